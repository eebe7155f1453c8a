//! Offsets of consumer groups without members over the protocol (KIP-98, KIP-447): visibility, fencing, deletion.

mod fixtures;

use std::time::Duration;

use fixtures::offsets::STAGE_V2;
use fixtures::{READ_COMMITTED, batch, in_memory, start, tcp, text};
use kafka_protocol::messages::*;
use sharestream_base::Env;
use sharestream_broker::BrokerConfig;

const INVALID_EPOCH: i16 = 47;
const INVALID_STATE: i16 = 48;
const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER: i16 = 25;
const NOT_FOUND: i16 = 69;
const UNSTABLE: i16 = 88;

#[tokio::test]
async fn what_is_committed_is_read_back_and_a_member_of_nothing_is_refused() {
    let (broker, mut client) = tcp().await;
    assert_eq!(client.offset("g", 0, true).await, Ok(-1));
    assert_eq!(client.commit_offset_in("g", 3, 0, 5).await, ILLEGAL_GENERATION);
    assert_eq!(client.commit_offset("g", 0, 5).await, 0);
    assert_eq!(client.commit_offset_in("g", 3, 0, 6).await, UNKNOWN_MEMBER);
    assert_eq!(client.offset("g", 0, true).await, Ok(5));
    assert_eq!(client.commit_offset("g", 0, 2).await, 0, "back as well as forward");
    assert_eq!(client.commit_offset("g", 9, 2).await, 3, "UNKNOWN_TOPIC_OR_PARTITION");
    assert_eq!(client.offset("g", 0, true).await, Ok(2));
    let views = broker.cluster().consumer_offsets();
    assert_eq!((views.len(), views[0].offset.unwrap().0, views[0].staged), (1, 2, false));
    broker.shutdown().await;
}

#[tokio::test]
async fn staged_offsets_and_records_become_visible_together_or_not_at_all() {
    let (broker, mut client) = tcp().await;
    let mut producer = client.init(Some("tx")).await.unwrap();
    client.commit_offset("g", 0, 1).await;
    for (round, commit) in [(1, false), (2, true), (3, false), (4, true)] {
        let before = client.offset("g", 0, true).await.unwrap();
        assert_eq!(client.stage_patiently(("tx", producer), "g", round * 10).await, 0);
        assert_eq!(client.offset("g", 0, false).await, Ok(before));
        assert_eq!(client.offset("g", 0, true).await, Err(UNSTABLE));
        assert_eq!(client.offset("g", 1, true).await, Ok(-1), "only where something is staged");
        let record = batch(Some(producer), 0, true, &[&round.to_string()]);
        assert_eq!(client.produce(12, Some("tx"), 1, record).await.error_code, 0);
        producer = client.end(5, "tx", producer, commit).await.unwrap();
        client.settled("tx").await;
        let after = if commit { round * 10 } else { before };
        assert_eq!(client.offset("g", 0, true).await, Ok(after));
    }
    assert_eq!(client.values(1, READ_COMMITTED).await, ["2", "4"]);
    broker.shutdown().await;
}

#[tokio::test]
async fn the_next_transaction_may_stage_while_markers_are_under_way() {
    let (broker, mut client) = tcp().await;
    let mut producer = client.init(Some("tx")).await.unwrap();
    for round in 0..50 {
        assert_eq!(client.stage_patiently(("tx", producer), "g", round).await, 0);
        producer = client.end(5, "tx", producer, round % 3 != 0).await.unwrap();
    }
    client.settled("tx").await;
    assert_eq!(client.offset("g", 0, true).await, Ok(49));
    broker.shutdown().await;
}

#[tokio::test]
async fn clients_of_version_1_add_the_group_first_and_keep_their_epoch() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    let whose = ("tx", producer);
    assert_eq!(client.stage_offset(3, whose, "g", 0, 1).await, INVALID_STATE, "the group was not added");
    for round in 1..4 {
        assert_eq!(client.add_offsets("tx", producer, "g").await, 0);
        assert_eq!(client.stage_offset(3, whose, "g", 0, round).await, 0);
        assert_eq!(client.end(3, "tx", producer, round != 2).await, Ok(producer));
        client.settled("tx").await;
        let expected = if round == 2 { 1 } else { round };
        assert_eq!(client.offset("g", 0, true).await, Ok(expected));
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn a_newer_incarnation_takes_away_what_the_older_one_staged() {
    let (broker, mut client) = tcp().await;
    let old = client.init(Some("tx")).await.unwrap();
    assert_eq!(client.stage_offset(STAGE_V2, ("tx", old), "g", 0, 1).await, 0);
    let new = client.init_patiently("tx").await;
    assert_eq!(client.offset("g", 0, true).await, Ok(-1));
    for version in [2, 3, 4, STAGE_V2] {
        assert_eq!(client.stage_offset(version, ("tx", old), "g", 0, 2).await, INVALID_EPOCH, "{version}");
    }
    assert_eq!(client.stage_offset(STAGE_V2, ("tx", new), "g", 0, 3).await, 0);
    client.end(5, "tx", new, true).await.unwrap();
    assert_eq!(client.stable_offset("g").await, 3);
    broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_takes_too_long_takes_its_offsets_along() {
    let (broker, mut client) = in_memory().await;
    let nobody = fixtures::Producer { id: -1, epoch: -1 };
    let producer = client.init_with(Some("tx"), nobody, 2_000).await.unwrap();
    assert_eq!(client.stage_offset(STAGE_V2, ("tx", producer), "g", 0, 1).await, 0);
    Env::seeded(1).clock.sleep(Duration::from_millis(2_300)).await;
    assert_eq!(client.settled("tx").await, "CompleteAbort");
    assert_eq!(client.offset("g", 0, true).await, Ok(-1));
    assert_eq!(client.stage_offset(STAGE_V2, ("tx", producer), "g", 0, 1).await, INVALID_EPOCH);
    broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn offsets_are_forgotten_in_time_but_not_while_a_transaction_may_change_them() {
    let hour = Duration::from_secs(3_600);
    let config = BrokerConfig {
        offsets_retention: hour,
        transaction_timeout_max: 4 * hour,
        ..BrokerConfig::default()
    };
    let (broker, mut client) = start(Env::seeded(1), config).await;
    client.commit_offset("old", 0, 1).await;
    client.commit_offset("held", 0, 2).await;
    let nobody = fixtures::Producer { id: -1, epoch: -1 };
    let timeout_ms = i32::try_from((3 * hour).as_millis()).unwrap();
    let producer = client.init_with(Some("tx"), nobody, timeout_ms).await.unwrap();
    assert_eq!(client.stage_offset(STAGE_V2, ("tx", producer), "held", 0, 3).await, 0);
    let clock = Env::seeded(1).clock;
    clock.sleep(hour - Duration::from_secs(60)).await;
    client.commit_offset("young", 0, 3).await;
    clock.sleep(Duration::from_secs(900)).await;
    assert_eq!(client.offset("old", 0, false).await, Ok(-1));
    assert_eq!(client.offset("held", 0, false).await, Ok(2));
    assert_eq!(client.offset("young", 0, false).await, Ok(3));
    let groups: Vec<String> = client.groups().await.into_iter().map(|(group, _)| group).collect();
    assert_eq!(groups, ["held", "young"]);
    client.end(5, "tx", producer, true).await.unwrap();
    assert_eq!(client.stable_offset("held").await, 3);
    broker.shutdown().await;
}

#[tokio::test]
async fn a_group_is_of_one_kind_until_it_is_deleted() {
    let (broker, mut client) = tcp().await;
    let join = |group: &str, epoch: i32| {
        ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_member_id(text("alice"))
            .with_member_epoch(epoch)
            .with_subscribed_topic_names((epoch == 0).then(|| vec![TopicName(text("t"))]))
    };
    client.commit_offset("offsets", 0, 1).await;
    assert_eq!(client.call(join("offsets", 0), 1).await.error_code, NOT_FOUND);
    assert_eq!(client.call(join("sharing", 0), 1).await.error_code, 0);
    assert_eq!(client.commit_offset("sharing", 0, 1).await, NOT_FOUND);
    let kinds = [("offsets", "classic"), ("sharing", "share")];
    let mut listed = client.groups().await;
    listed.sort();
    assert_eq!(listed, kinds.map(|(group, kind)| (group.to_owned(), kind.to_owned())));
    assert_eq!(client.call(join("sharing", -1), 1).await.error_code, 0);
    for group in ["offsets", "sharing"] {
        assert_eq!(client.delete_group(group).await, 0);
        assert_eq!(client.delete_group(group).await, NOT_FOUND);
    }
    assert_eq!(client.offset("offsets", 0, true).await, Ok(-1));
    assert_eq!(client.call(join("offsets", 0), 1).await.error_code, 0);
    assert_eq!(client.commit_offset("sharing", 0, 1).await, 0);
    broker.shutdown().await;
}
