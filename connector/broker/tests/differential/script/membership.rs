//! Members of share groups, their settings, and what administrators see of them.

use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::requests::*;
use crate::play::Play;

pub(crate) fn heartbeat(
    group: &str,
    member: &str,
    epoch: i32,
    topics: Option<&[&str]>,
) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rack_id(None)
        .with_subscribed_topic_names(
            topics.map(|topics| topics.iter().map(|name| topic_name(name)).collect()),
        )
}

/// Joins, or goes on from an epoch, until the assignment has come and the epoch stays; no step. Gives the epoch.
pub(crate) async fn join(p: &mut Play, group: &str, member: &str, topics: &[&str]) -> i32 {
    let mut epoch = 0;
    let mut assigned = false;
    for _ in 0..400 {
        let subscribed = (epoch == 0).then_some(topics);
        let request = heartbeat(group, member, epoch, subscribed);
        let answer = p.quietly_until(&request, 1, |_| true).await.unwrap();
        assert_eq!(answer.error_code, 0, "{member} cannot join: {answer:?}");
        let stays = answer.member_epoch == epoch;
        assigned |= answer.assignment.as_ref().is_some_and(|given| !given.topic_partitions.is_empty());
        epoch = answer.member_epoch;
        if stays && assigned {
            return epoch;
        }
        p.sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{member} is assigned nothing");
}

pub(crate) async fn play(p: &mut Play) {
    let source = topic(p, "members", 2).await;
    heartbeats(p, &source).await;
    settings(p).await;
    for version in 0..=5 {
        let request = ListGroupsRequest::default();
        let request = match version {
            5 => request.with_types_filter(vec![text("classic")]),
            _ => request,
        };
        // Share groups are shown to those who cannot tell them apart, too.
        let answer = p.call(&request, version).await.map(|mut answer| {
            let run = p.run.clone();
            answer.groups.retain(|group| group.group_id.ends_with(run.as_str()));
            answer.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
            answer
        });
        let name = format!("list groups, version {version}");
        p.note(&name, answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
    }
}

async fn heartbeats(p: &mut Play, source: &Topic) {
    let group = p.name("group");
    let topics: &[&str] = &[&source.name];
    let stranger = p.name("no-group");
    let cases = [
        ("without a group", heartbeat("", "alice", 0, Some(topics))),
        ("without a member id", heartbeat(&group, "", 0, Some(topics))),
        ("with epoch -2", heartbeat(&group, "alice", -2, Some(topics))),
        ("that joins without topics", heartbeat(&group, "alice", 0, None)),
        ("that joins with an empty list of topics", heartbeat(&group, "alice", 0, Some(&[]))),
        (
            "with an empty rack",
            heartbeat(&group, "alice", 0, Some(topics)).with_rack_id(Some(StrBytes::new())),
        ),
        ("of a stranger", heartbeat(&group, "stranger", 7, None)),
        ("of a stranger that leaves", heartbeat(&stranger, "stranger", -1, None)),
    ];
    for (what, request) in cases {
        p.settled(&format!("heartbeat {what}"), request, 1).await;
    }
    let describe = |groups: &[&str]| {
        let ids = groups.iter().map(|group| GroupId(text(group))).collect();
        ShareGroupDescribeRequest::default().with_group_ids(ids)
    };
    p.settled("describe an unknown group", describe(&[&stranger]), 1).await;
    p.settled("describe a group without a name", describe(&[""]), 1).await;
    p.settled("describe no group", describe(&[]), 1).await;
    let rights = |groups: &[&str]| describe(groups).with_include_authorized_operations(true);
    p.settled("describe an unknown group, with rights", rights(&[&stranger]), 1).await;
    p.settled("describe a group without a name, with rights", rights(&[""]), 1).await;

    let epoch = join(p, &group, "alice", topics).await;
    p.settled("heartbeat that says nothing new", heartbeat(&group, "alice", epoch, None), 1).await;
    p.settled("heartbeat with the same topics", heartbeat(&group, "alice", epoch, Some(topics)), 1).await;
    p.settled("heartbeat with a later epoch", heartbeat(&group, "alice", epoch + 5, None), 1).await;
    p.settled("heartbeat of a stranger in a group", heartbeat(&group, "stranger", 3, None), 1).await;
    p.settled("heartbeat that joins again", heartbeat(&group, "alice", 0, Some(topics)), 1).await;
    p.settled("describe a group of one", describe(&[&group]), 1).await;
    p.settled("describe a group of one, with rights", rights(&[&group]), 1).await;

    let bob = join(p, &group, "bob", topics).await;
    let alice = p.quietly_until(&heartbeat(&group, "alice", epoch, None), 1, |_| true).await.unwrap();
    p.settled("heartbeat after another joined", heartbeat(&group, "alice", alice.member_epoch, None), 1)
        .await;
    p.settled("heartbeat with the epoch before", heartbeat(&group, "alice", epoch, None), 1).await;
    p.settled("bob leaves", heartbeat(&group, "bob", -1, None), 1).await;
    p.settled("bob leaves again", heartbeat(&group, "bob", -1, None), 1).await;
    p.settled("bob after he left", heartbeat(&group, "bob", bob, None), 1).await;
    p.settled("alice leaves", heartbeat(&group, "alice", -1, None), 1).await;
    p.settled("describe an empty group", describe(&[&group]), 1).await;
    p.settled("describe two groups", describe(&[&group, &stranger]), 1).await;
}

async fn settings(p: &mut Play) {
    let group = p.name("settings");
    let cases: [(&str, &str, Option<&str>); 16] = [
        ("offsets from the start", "share.auto.offset.reset", Some("earliest")),
        ("offsets by duration", "share.auto.offset.reset", Some("by_duration:PT1H")),
        ("offsets from nowhere", "share.auto.offset.reset", Some("somewhere")),
        ("offsets by no duration", "share.auto.offset.reset", Some("by_duration:soon")),
        ("offsets by a negative duration", "share.auto.offset.reset", Some("by_duration:-PT1H")),
        ("committed only", "share.isolation.level", Some("read_committed")),
        ("no isolation level", "share.isolation.level", Some("read_some")),
        ("a lock of two seconds", "share.record.lock.duration.ms", Some("2000")),
        ("a lock of no time", "share.record.lock.duration.ms", Some("0")),
        ("a lock that is no number", "share.record.lock.duration.ms", Some("long")),
        ("a delivery limit", "share.delivery.count.limit", Some("3")),
        ("a delivery limit of 0", "share.delivery.count.limit", Some("0")),
        ("no renewal", "share.renew.acknowledge.enable", Some("false")),
        ("renewal perhaps", "share.renew.acknowledge.enable", Some("perhaps")),
        ("an unknown key", "share.no.such.config", Some("1")),
        ("the default again", "share.isolation.level", None),
    ];
    for (what, key, value) in cases {
        let request = alter_configs(GROUP_RESOURCE, &group, &[(key, value)]);
        p.settled(&format!("alter a group config: {what}"), request, 1).await;
    }
    let request = alter_configs(GROUP_RESOURCE, "", &[("share.isolation.level", Some("read_committed"))]);
    p.settled("alter a config of no group", request, 1).await;
    p.settings_arrive().await;
    for key in [
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.record.lock.duration.ms",
        "share.delivery.count.limit",
        "share.partition.max.record.locks",
        "share.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.renew.acknowledge.enable",
    ] {
        let value = |answer: &DescribeConfigsResponse| !answer.results[0].configs.is_empty();
        let request = describe_configs(GROUP_RESOURCE, &group, Some(&[key]));
        p.until(&format!("describe a group config: {key}"), request, 4, value).await;
    }
    let fresh = p.name("fresh");
    let request = describe_configs(GROUP_RESOURCE, &fresh, Some(&["share.isolation.level"]));
    p.settled("describe a config of a group that nobody knows", request, 4).await;
}
