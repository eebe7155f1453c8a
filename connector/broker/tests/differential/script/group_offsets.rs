//! Offsets of consumer groups without members: committed, fetched, deleted, and in transactions.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::*;

use super::membership::{heartbeat, join};
use super::offset_requests::*;
use super::offsets as share_offsets;
use super::requests::*;
use super::transactions::{MINUTE_MS, identity, rest, successor};
use crate::play::Play;

/// The longest metadata that Kafka keeps, in bytes (`offset.metadata.max.bytes`).
const METADATA_BYTES_MAX: usize = 4_096;

pub(crate) async fn play(p: &mut Play) {
    let source = topic(p, "progress", 3).await;
    committed(p, &source).await;
    refused(p, &source).await;
    share_groups(p, &source).await;
    for commit in [true, false] {
        transaction(p, &source, commit).await;
    }
    refused_in_transactions(p, &source).await;
    version_1(p, &source).await;
    fences(p, &source).await;
    overtaken(p, &source).await;
    deleted(p, &source).await;
    without_a_topic(p).await;
    seen(p).await;
}

async fn committed(p: &mut Play, source: &Topic) {
    for version in 2..=9 {
        let group = p.name(&format!("commit-v{version}"));
        let request = commit(&group, NOBODY, &source.name, &[(0, 40 + i64::from(version), Some("m"))]);
        p.settled(&format!("commit offsets, version {version}"), request, version).await;
    }
    let group = p.name("progress");
    let request = commit(&group, NOBODY, &source.name, &[(0, 5, Some("five")), (1, 6, None)]);
    p.settled("commit two offsets", request, 8).await;
    for version in 1..=9 {
        let request = fetch_offsets(version, &group, Some(&[(&source.name, &[0, 1, 2])]), false);
        p.settled(&format!("fetch offsets, version {version}"), request, version).await;
    }
    for version in 2..=9 {
        let request = fetch_offsets(version, &group, None, false);
        fetched(p, &format!("fetch all offsets, version {version}"), request, version).await;
    }
    for version in [7, 9] {
        let request = fetch_offsets(version, &group, Some(&[(&source.name, &[0])]), true);
        p.settled(&format!("fetch stable offsets, version {version}"), request, version).await;
    }
    p.settled("commit an offset again", commit(&group, NOBODY, &source.name, &[(0, 3, Some(""))]), 8).await;
    let epoch = with_leader_epoch(commit(&group, NOBODY, &source.name, &[(1, 8, Some("e"))]), 4);
    p.settled("commit an offset with a leader epoch", epoch, 8).await;
    for version in [4, 5, 8] {
        let request = fetch_offsets(version, &group, Some(&[(&source.name, &[0, 1])]), false);
        p.settled(&format!("fetch what was committed again, version {version}"), request, version).await;
    }
    let stranger = p.name("nobody");
    let request = fetch_groups(&[(&group, "", -1), (&stranger, "", -1)], &source.name, 0);
    p.settled("fetch offsets of two groups", request, 8).await;
    for (what, member, epoch) in [("a member", "x", 3), ("a member epoch", "", 3), ("a member id", "x", -1)] {
        let request = fetch_groups(&[(&group, member, epoch), (&stranger, member, epoch)], &source.name, 0);
        p.settled(&format!("fetch offsets as {what}"), request, 9).await;
    }
    let unknown = p.name("unknown");
    for version in [1, 8] {
        let cases: [(&str, &str, Wanted<'_>); 5] = [
            ("of an unknown group", &stranger, Some(&[(&source.name, &[0])])),
            ("of a group without a name", "", Some(&[(&source.name, &[0])])),
            ("of a topic that is not there", &group, Some(&[(&unknown, &[0])])),
            ("of a partition that is not there", &group, Some(&[(&source.name, &[9])])),
            ("of no topics", &group, Some(&[])),
        ];
        for (what, group, topics) in cases {
            let request = fetch_offsets(version, group, topics, false);
            p.settled(&format!("fetch consumer offsets {what}, version {version}"), request, version).await;
        }
    }
    p.settled("fetch all offsets of an unknown group", fetch_offsets(8, &stranger, None, false), 8).await;
}

async fn refused(p: &mut Play, source: &Topic) {
    let (group, fresh, unknown) = (p.name("progress"), p.name("never"), p.name("unknown"));
    let name = &source.name;
    let one: &[Commit<'_>] = &[(0, 1, Some("m"))];
    let long = "x".repeat(METADATA_BYTES_MAX);
    let longer = "x".repeat(METADATA_BYTES_MAX + 1);
    let wide = "\u{e4}".repeat(METADATA_BYTES_MAX / 2 + 1);
    let cases = [
        ("of a group without a name", commit("", NOBODY, name, one)),
        ("of an unknown topic", commit(&group, NOBODY, &unknown, one)),
        ("of an unknown partition", commit(&group, NOBODY, name, &[(9, 1, Some("m")), (0, 11, Some("m"))])),
        ("of a negative partition", commit(&group, NOBODY, name, &[(-1, 1, Some("m"))])),
        ("of nothing", commit(&group, NOBODY, name, &[])),
        ("that is negative", commit(&group, NOBODY, name, &[(2, -7, Some("m"))])),
        ("with long metadata", commit(&group, NOBODY, name, &[(0, 12, Some(&long))])),
        (
            "with metadata that is too long",
            commit(&group, NOBODY, name, &[(0, 13, Some(&longer)), (1, 14, Some("m"))]),
        ),
        ("with wide metadata that is too long", commit(&group, NOBODY, name, &[(0, 13, Some(&wide))])),
        ("of a topic of the broker", commit(&group, NOBODY, "__consumer_offsets", one)),
        ("twice in one request", commit(&group, NOBODY, name, &[(2, 20, Some("m")), (2, 21, Some("n"))])),
    ];
    for (what, request) in cases {
        p.settled(&format!("commit an offset {what}"), request, 8).await;
    }
    for (which, group) in [("a known group", &group), ("an unknown group", &fresh)] {
        for version in [2, 6, 7, 8, 9] {
            for (who, member) in STRANGERS {
                let request = commit(group, member, name, one);
                p.settled(&format!("commit to {which} {who}, version {version}"), request, version).await;
            }
        }
    }
    for version in [7, 9] {
        let request = commit(&group, NOBODY, name, one).with_group_instance_id(Some(text("instance")));
        p.settled(&format!("commit as an instance without a member, version {version}"), request, version)
            .await;
    }
    let request = fetch_offsets(7, &group, Some(&[(name, &[0, 1, 2])]), false);
    p.settled("fetch offsets after refusals", request, 7).await;
    let request = fetch_offsets(7, &fresh, Some(&[(name, &[0])]), false);
    p.settled("fetch offsets of the refused group", request, 7).await;
}

/// A group of one kind is none of the other.
async fn share_groups(p: &mut Play, source: &Topic) {
    let group = p.name("sharing");
    join(p, &group, "alice", &[&source.name]).await;
    for when in ["in use", "without members"] {
        for version in [2, 8, 9] {
            let request = commit(&group, NOBODY, &source.name, &[(0, 1, Some("m"))]);
            p.settled(&format!("commit to a share group {when}, version {version}"), request, version).await;
            let request = commit(&group, STRANGERS[0].1, &source.name, &[(0, 1, Some("m"))]);
            let name = format!("commit as a member to a share group {when}, version {version}");
            p.settled(&name, request, version).await;
        }
        for version in [1, 8, 9] {
            let request = fetch_offsets(version, &group, Some(&[(&source.name, &[0])]), false);
            p.settled(&format!("fetch from a share group {when}, version {version}"), request, version).await;
        }
        p.settled(&format!("fetch all from a share group {when}"), fetch_offsets(8, &group, None, false), 8)
            .await;
        let request = delete_offsets(&group, &source.name, &[0]);
        p.settled(&format!("delete consumer offsets of a share group {when}"), request, 0).await;
        p.settled(&format!("describe a share group {when} as a consumer group"), describe_groups(&group), 6)
            .await;
        p.settled(&format!("delete a share group {when}"), delete_groups(&[&group]), 2).await;
        if when == "in use" {
            p.settled("the member of the share group leaves", heartbeat(&group, "alice", -1, None), 1).await;
        }
    }
    p.settled("delete a share group again", delete_groups(&[&group]), 2).await;
    let group = p.name("progress");
    let request = heartbeat(&group, "alice", 0, Some(&[&source.name]));
    p.settled("a share member joins a group that has offsets", request, 1).await;
    let request = ShareGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(&group))]);
    p.settled("describe a group that has offsets as a share group", request, 1).await;
    let request = share_offsets::alter(&group, &source.name, &[(0, 1)]);
    p.settled("set a share offset of a group that has offsets", request, 0).await;
    let request = share_offsets::delete(&group, &source.name);
    p.settled("delete a share offset of a group that has offsets", request, 0).await;
    let request = share_offsets::describe(&group, Some(&[(&source.name, &[0])]));
    p.settled("share offsets of a group that has offsets", request, 0).await;
}

/// What every reader sees of a group, stable or not.
async fn looks(p: &mut Play, when: &str, group: &str, source: &Topic) {
    for stable in [false, true] {
        let word = if stable { "stable" } else { "any" };
        let request = fetch_offsets(7, group, Some(&[(&source.name, &[0, 1])]), stable);
        p.step(&format!("{when}: fetch {word} offsets"), request, 7).await;
        let request = fetch_offsets(9, group, None, stable);
        fetched(p, &format!("{when}: fetch all {word} offsets"), request, 9).await;
    }
}

/// A transaction of version 2 from the first offset to what readers see.
async fn transaction(p: &mut Play, source: &Topic, ends: bool) {
    let word = if ends { "offsets commit" } else { "offsets abort" };
    let (id, group) = (p.name(word), p.name(&format!("group of {word}")));
    let producer = identity(&p.settled(&format!("{word}: init"), init(Some(&id), NEW, MINUTE_MS), 5).await);
    p.settled(&format!("{word}: plain"), commit(&group, NOBODY, &source.name, &[(0, 3, Some("p"))]), 8).await;
    let staged = |offsets: &[Commit<'_>]| txn_commit(&id, producer, &group, NOBODY, &source.name, offsets);
    p.settled(&format!("{word}: stage"), staged(&[(0, 10, Some("a")), (1, 11, None)]), 5).await;
    looks(p, &format!("{word}, open"), &group, source).await;
    p.settled(&format!("{word}: stage again"), staged(&[(0, 12, Some("b"))]), 5).await;
    let ended = p.settled(&format!("{word}: end"), end(&id, producer, ends), 5).await;
    let next = successor(&ended);
    rest(p, &id).await;
    looks(p, &format!("{word}, ended"), &group, source).await;
    p.settled(&format!("{word}: stage late"), staged(&[(0, 13, Some("late"))]), 5).await;
    p.settled(&format!("{word}: end again"), end(&id, producer, ends), 5).await;
    looks(p, &format!("{word}, late"), &group, source).await;
    let request = txn_commit(&id, next, &group, NOBODY, &source.name, &[(0, 14, Some("next"))]);
    p.settled(&format!("{word}: stage in the next"), request, 5).await;
    p.settled(&format!("{word}: end the next otherwise"), end(&id, next, !ends), 5).await;
    rest(p, &id).await;
    looks(p, &format!("{word}, at last"), &group, source).await;
}

async fn refused_in_transactions(p: &mut Play, source: &Topic) {
    let (id, group, unknown) = (p.name("offsets-refused"), p.name("group of refused"), p.name("unknown"));
    let producer = identity(&p.settled("offsets refused: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let name = &source.name;
    let one: &[Commit<'_>] = &[(0, 1, Some("m"))];
    let longer = "x".repeat(METADATA_BYTES_MAX + 1);
    let older = Producer { epoch: producer.epoch - 1, ..producer };
    let later = Producer { epoch: producer.epoch + 1, ..producer };
    let other = Producer { id: producer.id + 1_000_000, ..producer };
    let by = |producer, group: &str, offsets: &[Commit<'_>]| {
        txn_commit(&id, producer, group, NOBODY, name, offsets)
    };
    for version in [2, 3, 5] {
        let cases = [
            ("of a group without a name", by(producer, "", one)),
            ("of an unknown topic", txn_commit(&id, producer, &group, NOBODY, &unknown, one)),
            ("of an unknown partition", by(producer, &group, &[(9, 1, Some("m"))])),
            ("as an older incarnation", by(older, &group, one)),
            ("as a later incarnation", by(later, &group, one)),
            ("as another producer", by(other, &group, one)),
            ("with an id that nobody has", txn_commit(&unknown, producer, &group, NOBODY, name, one)),
            ("without an id", txn_commit("", producer, &group, NOBODY, name, one)),
            ("of nothing", by(producer, &group, &[])),
        ];
        for (what, request) in cases {
            p.settled(&format!("stage an offset {what}, version {version}"), request, version).await;
        }
    }
    let cases = [
        ("with metadata that is too long", by(producer, &group, &[(0, 13, Some(&longer)), (1, 2, None)])),
        ("that is negative", by(producer, &group, &[(2, -1, Some("m"))])),
    ];
    for (what, request) in cases {
        p.settled(&format!("stage an offset {what}"), request, 5).await;
    }
    for (which, group) in [("a known group", &group), ("an unknown group", &unknown)] {
        for (who, member) in STRANGERS {
            for version in [3, 5] {
                let request = txn_commit(&id, producer, group, member, name, one);
                p.settled(&format!("stage to {which} {who}, version {version}"), request, version).await;
            }
        }
    }
    p.settled("offsets refused: end", end(&id, producer, true), 5).await;
    rest(p, &id).await;
    looks(p, "offsets refused", &group, source).await;
    let producer = identity(&p.settled("offsets shared: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let sharing = p.name("sharing-too");
    join(p, &sharing, "alice", &[name]).await;
    let request = txn_commit(&id, producer, &sharing, NOBODY, name, one);
    p.settled("stage an offset of a share group", request, 5).await;
    p.settled("the member of the other share group leaves", heartbeat(&sharing, "alice", -1, None), 1).await;
    p.settled("offsets shared: end", end(&id, producer, false), 5).await;
    rest(p, &id).await;
}

/// Clients that add the group themselves and keep their epoch.
async fn version_1(p: &mut Play, source: &Topic) {
    let (id, group) = (p.name("offsets-first"), p.name("group of version 1"));
    let producer = identity(&p.settled("offsets 1: init", init(Some(&id), NEW, MINUTE_MS), 4).await);
    let staged = |offset| txn_commit(&id, producer, &group, NOBODY, &source.name, &[(0, offset, Some("v1"))]);
    for version in 0..=4 {
        p.settled(&format!("offsets 1: stage without adding, version {version}"), staged(1), version).await;
    }
    let unknown = p.name("unknown");
    let older = Producer { epoch: producer.epoch - 1, ..producer };
    let later = Producer { epoch: producer.epoch + 1, ..producer };
    let other = Producer { id: producer.id + 1_000_000, ..producer };
    for version in [0, 1, 2, 4] {
        let cases = [
            ("as an older incarnation", add_offsets(&id, older, &group)),
            ("as a later incarnation", add_offsets(&id, later, &group)),
            ("as another producer", add_offsets(&id, other, &group)),
            ("with an id that nobody has", add_offsets(&unknown, producer, &group)),
            ("without an id", add_offsets("", producer, &group)),
            ("without a group", add_offsets(&id, producer, "")),
        ];
        for (what, request) in cases {
            p.settled(&format!("offsets 1: add {what}, version {version}"), request, version).await;
        }
    }
    for version in 0..=4 {
        p.settled(&format!("offsets 1: add, version {version}"), add_offsets(&id, producer, &group), version)
            .await;
        let offset = 20 + i64::from(version);
        p.settled(&format!("offsets 1: stage, version {version}"), staged(offset), version).await;
        looks(p, &format!("offsets 1, open, version {version}"), &group, source).await;
        let commit = version % 2 == 0;
        p.settled(&format!("offsets 1: end, version {version}"), end(&id, producer, commit), version).await;
        rest(p, &id).await;
        looks(p, &format!("offsets 1, ended, version {version}"), &group, source).await;
    }
}

/// A newer incarnation takes over.
async fn fences(p: &mut Play, source: &Topic) {
    let (id, group) = (p.name("offsets-fences"), p.name("group of fences"));
    let old = identity(&p.settled("offset fences: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let staged = |who, offset| txn_commit(&id, who, &group, NOBODY, &source.name, &[(0, offset, Some("f"))]);
    p.settled("offset fences: stage", staged(old, 1), 5).await;
    let new = identity(&p.settled("offset fences: init again", init(Some(&id), NEW, MINUTE_MS), 5).await);
    looks(p, "offset fences, aborted", &group, source).await;
    for version in 0..=5 {
        let request = staged(old, 2);
        p.settled(&format!("offset fences: stage as the old one, version {version}"), request, version).await;
    }
    for version in [0, 1, 2, 4] {
        let request = add_offsets(&id, old, &group);
        p.settled(&format!("offset fences: add as the old one, version {version}"), request, version).await;
    }
    p.settled("offset fences: stage as the new one", staged(new, 3), 5).await;
    p.settled("offset fences: end as the old one", end(&id, old, true), 5).await;
    p.settled("offset fences: end as the new one", end(&id, new, true), 5).await;
    rest(p, &id).await;
    looks(p, "offset fences", &group, source).await;
}

/// Offsets that are committed, or deleted, while others are staged for the same partition.
async fn overtaken(p: &mut Play, source: &Topic) {
    let group = p.name("group of the overtaken");
    let name = &source.name;
    let (first, second) = (p.name("overtaken-1"), p.name("overtaken-2"));
    let one = identity(&p.settled("overtaken: init", init(Some(&first), NEW, MINUTE_MS), 5).await);
    let two = identity(&p.settled("overtaken: init another", init(Some(&second), NEW, MINUTE_MS), 5).await);
    let request = txn_commit(&first, one, &group, NOBODY, name, &[(0, 10, None), (1, 10, None)]);
    p.settled("overtaken: stage", request, 5).await;
    let request = txn_commit(&second, two, &group, NOBODY, name, &[(1, 20, None)]);
    p.settled("overtaken: another stages", request, 5).await;
    p.settled("overtaken: plain", commit(&group, NOBODY, name, &[(0, 5, Some("plain"))]), 8).await;
    looks(p, "overtaken, open", &group, source).await;
    let two = successor(&p.settled("overtaken: the other ends", end(&second, two, true), 5).await);
    rest(p, &second).await;
    looks(p, "overtaken, once", &group, source).await;
    let one = successor(&p.settled("overtaken: end", end(&first, one, true), 5).await);
    rest(p, &first).await;
    looks(p, "overtaken, twice", &group, source).await;

    let request = txn_commit(&first, one, &group, NOBODY, name, &[(0, 30, None), (1, 30, None)]);
    p.settled("overtaken: stage for a deletion", request, 5).await;
    p.settled("overtaken: delete an offset", delete_offsets(&group, name, &[0]), 0).await;
    looks(p, "overtaken, deleted", &group, source).await;
    p.settled("overtaken: end after a deletion", end(&first, one, true), 5).await;
    rest(p, &first).await;
    looks(p, "overtaken, committed after a deletion", &group, source).await;

    let request = txn_commit(&second, two, &group, NOBODY, name, &[(0, 40, None)]);
    p.settled("overtaken: stage for the group's end", request, 5).await;
    p.settled("overtaken: delete the group", delete_groups(&[&group]), 2).await;
    looks(p, "overtaken, without its group", &group, source).await;
    p.settled("overtaken: end after the group", end(&second, two, true), 5).await;
    rest(p, &second).await;
    looks(p, "overtaken, at last", &group, source).await;
}

async fn deleted(p: &mut Play, source: &Topic) {
    let (group, unknown, fresh) = (p.name("deleted"), p.name("unknown"), p.name("never"));
    let name = &source.name;
    let request = commit(&group, NOBODY, name, &[(0, 1, None), (1, 2, None), (2, 3, None)]);
    p.settled("deleted: commit", request, 8).await;
    p.settled("delete an offset", delete_offsets(&group, name, &[1]), 0).await;
    p.settled("delete an offset again", delete_offsets(&group, name, &[1]), 0).await;
    p.settled("delete an offset of an unknown topic", delete_offsets(&group, &unknown, &[0]), 0).await;
    p.settled("delete an offset of an unknown partition", delete_offsets(&group, name, &[0, 9]), 0).await;
    let stranger = p.name("nobody");
    p.settled("delete an offset of an unknown group", delete_offsets(&stranger, name, &[0]), 0).await;
    p.settled("delete an offset of a group without a name", delete_offsets("", name, &[0]), 0).await;
    fetched(p, "fetch what was not deleted", fetch_offsets(8, &group, None, false), 8).await;
    for version in 0..=2 {
        let group = p.name(&format!("commit-v{}", version + 2));
        let request = delete_groups(&[&group, &fresh, ""]);
        let answer = p.call(&request, version).await.map(|mut answer| {
            answer.results.sort_by(|a, b| a.group_id.cmp(&b.group_id));
            answer
        });
        let answer = answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug);
        p.note(&format!("delete groups, version {version}"), answer, Vec::new());
    }
    p.settled("delete a group", delete_groups(&[&group]), 2).await;
    p.settled("delete a group again", delete_groups(&[&group]), 2).await;
    p.settled("delete no group", delete_groups(&[]), 2).await;
    p.settled("fetch offsets of a deleted group", fetch_offsets(8, &group, None, false), 8).await;
    p.settled("commit to a deleted group", commit(&group, NOBODY, name, &[(0, 9, None)]), 8).await;
    p.settled("delete its last offset", delete_offsets(&group, name, &[0]), 0).await;
    p.settled("describe a group without offsets", describe_groups(&group), 6).await;
    p.settled("delete a group without offsets", delete_groups(&[&group]), 2).await;
}

/// Offsets end with their topic, also when another one of its name comes.
async fn without_a_topic(p: &mut Play) {
    let gone = topic(p, "short-lived", 1).await;
    let group = p.name("group of the short-lived");
    p.settled("short-lived: commit", commit(&group, NOBODY, &gone.name, &[(0, 4, None)]), 8).await;
    let state = delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name(&gone.name)));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]).with_timeout_ms(5_000);
    p.quietly_until(&request, 6, |_| true).await;
    let fetch = || fetch_offsets(7, &group, Some(&[(&gone.name, &[0])]), false);
    let is_nowhere = |answer: &OffsetFetchResponse| answer.topics[0].partitions[0].committed_offset == -1;
    p.until("short-lived: fetch without the topic", fetch(), 7, is_nowhere).await;
    p.settled("short-lived: fetch all without the topic", fetch_offsets(8, &group, None, false), 8).await;
    p.settled("short-lived: describe", describe_groups(&group), 6).await;
    let again = topic(p, "short-lived", 1).await;
    p.settled("short-lived: fetch of another topic of its name", fetch(), 7).await;
    p.settled("short-lived: commit again", commit(&group, NOBODY, &again.name, &[(0, 5, None)]), 8).await;
    p.settled("short-lived: fetch again", fetch(), 7).await;
}

async fn seen(p: &mut Play) {
    let (group, fresh) = (p.name("progress"), p.name("never"));
    for version in 0..=6 {
        p.settled(
            &format!("describe a group of offsets, version {version}"),
            describe_groups(&group),
            version,
        )
        .await;
        p.settled(
            &format!("describe a group of nobody, version {version}"),
            describe_groups(&fresh),
            version,
        )
        .await;
    }
    p.settled("describe a consumer group without a name", describe_groups(""), 6).await;
    let filters: [(&str, &[&str], &[&str]); 6] = [
        ("all groups", &[], &[]),
        ("empty groups", &["Empty"], &[]),
        ("stable groups", &["Stable"], &[]),
        ("classic groups", &[], &["classic"]),
        ("consumer groups", &[], &["consumer"]),
        ("share groups", &[], &["share"]),
    ];
    for (what, states, types) in filters {
        let answer = p.call(&list_groups(states, types), 5).await.map(|mut answer| {
            let run = p.run.clone();
            // Members of the other share groups may have timed out, or not.
            let is_seen = |group: &ListedGroup| {
                group.group_type.as_str() != "share" || group.group_id.starts_with("sharing-too")
            };
            answer.groups.retain(|group| group.group_id.ends_with(run.as_str()) && is_seen(group));
            answer.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
            answer
        });
        let answer = answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug);
        p.note(&format!("list {what}"), answer, Vec::new());
    }
}
