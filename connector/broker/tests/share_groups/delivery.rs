//! Fetching, acknowledging, giving back, expiring: share groups without transactions.

use std::time::Duration;

use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, DeleteGroupsRequest, GroupId, ShareGroupHeartbeatRequest, TopicName,
};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::share_fetch::ShareFetchRequest;

use crate::fixtures::{Cluster, GROUP, Member, TOPIC, acquired_of};

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn acknowledged_records_move_the_start_offset_and_do_not_come_back() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 10).await;
    cluster.produce(0, 5).await;
    let mut member = cluster.member("alice").await;
    assert_eq!(member.fetch(LONG).await, [(0, 14, 1)]);
    assert_eq!(cluster.start_offset(0).await, 0);
    assert_eq!(member.acknowledge(&[(0, 0, 7, 1)]).await, 0);
    assert_eq!(cluster.start_offset(0).await, 8);
    assert_eq!(member.acknowledge(&[(0, 3, 9, 1)]).await, 0, "what lies below the start offset is ignored");
    assert_eq!(member.acknowledge(&[(0, 10, 10, 3)]).await, 0);
    let again = member.acknowledge(&[(0, 12, 12, 1), (0, 12, 12, 1)]).await;
    assert_eq!(again, KafkaError::INVALID_RECORD_STATE.0, "a second acknowledgement is an error");
    assert_eq!(cluster.start_offset(0).await, 11);
    assert_eq!(member.fetch(NO_WAIT).await, []);
    cluster.broker.shutdown().await;
}

/// KIP-1226.
#[tokio::test]
async fn the_lag_counts_what_is_not_at_an_end_whatever_lies_between() {
    let mut cluster = Cluster::start(1, &[]).await;
    assert_eq!(cluster.described(0).await, (-1, -1), "nobody has chosen a start offset");
    cluster.produce(0, 10).await;
    let mut member = cluster.member("alice").await;
    assert_eq!(member.fetch(LONG).await, [(0, 9, 1)]);
    assert_eq!(cluster.described(0).await, (0, 10), "what is delivered is not done");
    assert_eq!(member.acknowledge(&[(0, 4, 5, 1), (0, 7, 7, 3), (0, 8, 8, 2)]).await, 0);
    assert_eq!(
        cluster.described(0).await,
        (0, 7),
        "ends behind the start offset count, what is released not"
    );
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 3, 1)]).await, 0);
    assert_eq!(cluster.described(0).await, (0, 7), "what is staged is not done");
    transaction.end(true).await;
    let mut described = cluster.described(0).await;
    for _ in 0..500 {
        if described.0 > 0 {
            break;
        }
        cluster.env.clock.sleep(Duration::from_millis(5)).await;
        described = cluster.described(0).await;
    }
    assert_eq!(described, (6, 3));
    cluster.produce(0, 5).await;
    assert_eq!(cluster.described(0).await, (6, 8));
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn released_records_come_back_with_a_higher_count_until_the_limit_archives_them() {
    let mut cluster = Cluster::start(1, &[("share.delivery.count.limit", "3")]).await;
    cluster.produce(0, 4).await;
    let mut member = cluster.member("alice").await;
    for delivery in 1..=3 {
        assert_eq!(member.fetch(LONG).await, [(0, 3, delivery)]);
        assert_eq!(member.acknowledge(&[(0, 0, 3, 2)]).await, 0);
    }
    assert_eq!(member.fetch(NO_WAIT).await, []);
    assert_eq!(cluster.start_offset(0).await, 4);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn an_answer_without_records_has_an_empty_set_of_them_and_no_null() {
    let cluster = Cluster::start(1, &[]).await;
    let mut member = cluster.member("alice").await;
    let request = member.fetch_request(&[], NO_WAIT);
    member.connection.send(&request, 2).await;
    let response = member.connection.receive::<ShareFetchRequest>(2).await;
    // The answer that opens a session names its partitions, whether they have records or not.
    let partitions: Vec<_> = response.responses.iter().flat_map(|topic| &topic.partitions).collect();
    assert!(!partitions.is_empty());
    for partition in partitions {
        assert_eq!(partition.error_code, 0);
        assert_eq!(partition.records.as_deref(), Some(&[][..]), "Java's client hangs on a null");
    }
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_closed_connection_gives_its_records_back_at_once_and_wakes_waiting_fetches() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 6).await;
    let mut alice = cluster.member("alice").await;
    let mut bob = cluster.member("bob").await;
    assert_eq!(alice.fetch(LONG).await, [(0, 5, 1)]);
    assert_eq!(bob.fetch(NO_WAIT).await, []);
    let waiting = bob.fetch_request(&[], LONG);
    bob.connection.send(&waiting, 2).await;
    drop(alice);
    let response = bob.connection.receive::<ShareFetchRequest>(2).await;
    assert_eq!(acquired_of(&response, 0), [(0, 5, 2)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_waiting_fetch_sees_new_records() {
    let mut cluster = Cluster::start(2, &[]).await;
    let mut member = cluster.member("alice").await;
    let waiting = member.fetch_request(&[], LONG);
    member.connection.send(&waiting, 2).await;
    cluster.produce(1, 3).await;
    let response = member.connection.receive::<ShareFetchRequest>(2).await;
    assert_eq!(acquired_of(&response, 1), [(0, 2, 1)]);
    assert_eq!(response.acquisition_lock_timeout_ms, 30_000);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn an_expired_lock_gives_records_back_and_a_renewed_one_keeps_them() {
    let mut cluster = Cluster::start(1, &[("share.record.lock.duration.ms", "300")]).await;
    cluster.produce(0, 10).await;
    let mut alice = cluster.member("alice").await;
    let mut bob = cluster.member("bob").await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    for _ in 0..4 {
        cluster.env.clock.sleep(Duration::from_millis(100)).await;
        assert_eq!(alice.acknowledge(&[(0, 0, 4, 4)]).await, 0);
    }
    assert_eq!(bob.fetch(LONG).await, [(5, 9, 2)], "the renewed half stays with alice");
    let late = alice.acknowledge(&[(0, 5, 9, 1)]).await;
    assert_eq!(late, KafkaError::INVALID_RECORD_STATE.0);
    assert_eq!(alice.acknowledge(&[(0, 0, 4, 1)]).await, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn members_share_a_partition_and_a_fetch_shares_its_limits_among_partitions() {
    let mut cluster = Cluster::start(2, &[]).await;
    for partition in [0, 1] {
        for _ in 0..4 {
            cluster.produce(partition, 200).await;
        }
    }
    let (mut alice, mut bob) = (cluster.member("alice").await, cluster.member("bob").await);
    let first = alice.fetch_full(&[], LONG).await;
    // 500 records asked, batches of 200 kept whole: 250 of each partition become 400, then 100 more are asked.
    assert_eq!(acquired_of(&first, 0).len() + acquired_of(&first, 1).len(), 2);
    let second = bob.fetch_full(&[], LONG).await;
    for partition in [0, 1] {
        let (mine, theirs) = (acquired_of(&first, partition), acquired_of(&second, partition));
        assert!(theirs.iter().all(|range| range.0 > mine[0].1), "no record is delivered twice");
    }
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn session_epochs_are_checked_and_a_closing_request_gives_back() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 3).await;
    let mut member = cluster.member("alice").await;
    member.session_epoch = 3;
    let request = member.fetch_request(&[], NO_WAIT);
    let response = member.connection.call(request, 2).await;
    assert_eq!(response.error_code, KafkaError::SHARE_SESSION_NOT_FOUND.0);
    member.session_epoch = 0;
    assert_eq!(member.fetch(LONG).await, [(0, 2, 1)]);
    member.session_epoch = 7;
    assert_eq!(member.acknowledge(&[(0, 0, 0, 1)]).await, KafkaError::INVALID_SHARE_SESSION_EPOCH.0);
    member.session_epoch = -1;
    assert_eq!(member.acknowledge(&[(0, 0, 0, 1)]).await, 0);
    assert_eq!(cluster.member("bob").await.fetch(LONG).await, [(1, 2, 2)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn aborted_and_open_transactions_are_not_delivered_to_a_read_committed_group() {
    let mut cluster = Cluster::start(1, &[("share.isolation.level", "read_committed")]).await;
    let mut producer = cluster.transaction("producer", LONG).await;
    producer.produce(0, 5, 0).await;
    producer.end(false).await;
    let committed_at = cluster.produce(0, 2).await;
    let mut member = cluster.member("alice").await;
    let first = member.fetch(LONG).await;
    assert_eq!(first.last().unwrap().1, committed_at + 1);
    assert!(first[0].0 >= 5, "aborted data is skipped: {first:?}");
    // Everything acquired, the abort marker's offset included, is acknowledged.
    for (start, end, _) in first {
        assert_eq!(member.acknowledge(&[(0, start, end, 1)]).await, 0);
    }
    assert_eq!(cluster.start_offset(0).await, committed_at + 2);
    cluster.broker.shutdown().await;
}

/// Moves the start offset of partition 0.
fn reset_to(start_offset: i64) -> AlterShareGroupOffsetsRequest {
    let partition = AlterShareGroupOffsetsRequestPartition::default()
        .with_partition_index(0)
        .with_start_offset(start_offset);
    let topic = AlterShareGroupOffsetsRequestTopic::default()
        .with_topic_name(TopicName(TOPIC.into()))
        .with_partitions(vec![partition]);
    AlterShareGroupOffsetsRequest::default().with_group_id(GroupId(GROUP.into())).with_topics(vec![topic])
}

async fn leave(member: &mut Member) {
    let leave = ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(GROUP.into()))
        .with_member_id(member.name.clone().into())
        .with_member_epoch(-1);
    assert_eq!(member.connection.call(leave, 1).await.error_code, 0);
}

#[tokio::test]
async fn a_reset_reaches_a_leader_whose_share_session_has_outlived_its_membership() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 8).await;
    let mut alice = cluster.member("alice").await;
    assert_eq!(alice.fetch(LONG).await, [(0, 7, 1)]);
    assert_eq!(alice.acknowledge(&[(0, 0, 7, 1)]).await, 0);
    leave(&mut alice).await;
    let altered = cluster.admin.call(reset_to(2), 0).await;
    assert_eq!((altered.error_code, altered.responses[0].partitions[0].error_code), (0, 0));
    let mut bob = cluster.member("bob").await;
    // The fetch that waits at the old state ends with an error; the next one finds the new state.
    let request = bob.fetch_request(&[], LONG);
    let first = bob.connection.call(request, 2).await;
    assert_eq!(first.responses[0].partitions[0].error_code, KafkaError::NOT_LEADER_OR_FOLLOWER.0);
    assert_eq!(bob.fetch(LONG).await, [(2, 7, 1)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn start_offsets_can_be_reset_once_the_group_is_empty() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 8).await;
    let mut member = cluster.member("alice").await;
    assert_eq!(member.fetch(LONG).await, [(0, 7, 1)]);
    assert_eq!(member.acknowledge(&[(0, 0, 7, 1)]).await, 0);
    let request = reset_to(2);
    let refused = cluster.admin.call(request.clone(), 0).await;
    assert_eq!(refused.error_code, KafkaError::NON_EMPTY_GROUP.0);

    member.session_epoch = -1;
    assert_eq!(member.acknowledge(&[]).await, 0);
    leave(&mut member).await;
    let altered = cluster.admin.call(request, 0).await;
    assert_eq!((altered.error_code, altered.responses[0].partitions[0].error_code), (0, 0));
    assert_eq!(cluster.start_offset(0).await, 2);
    assert_eq!(cluster.member("bob").await.fetch(LONG).await, [(2, 7, 1)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_group_without_members_can_be_deleted_and_begins_anew() {
    let mut cluster = Cluster::start(1, &[]).await;
    cluster.produce(0, 8).await;
    let mut alice = cluster.member("alice").await;
    assert_eq!(alice.fetch(LONG).await, [(0, 7, 1)]);
    assert_eq!(alice.acknowledge(&[(0, 0, 7, 1)]).await, 0);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(GROUP.into())]);
    let refused = cluster.admin.call(request.clone(), 2).await;
    assert_eq!(refused.results[0].error_code, KafkaError::NON_EMPTY_GROUP.0);

    alice.session_epoch = -1;
    assert_eq!(alice.acknowledge(&[]).await, 0);
    leave(&mut alice).await;
    let deleted = cluster.admin.call(request.clone(), 2).await;
    assert_eq!((&*deleted.results[0].group_id.0, deleted.results[0].error_code), (GROUP, 0));
    let unknown = cluster.admin.call(request, 2).await;
    assert_eq!(unknown.results[0].error_code, KafkaError::GROUP_ID_NOT_FOUND.0);
    assert_eq!(cluster.member("bob").await.fetch(LONG).await, [(0, 7, 1)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn member_epochs_rise_and_strangers_are_refused() {
    let cluster = Cluster::start(1, &[]).await;
    let mut alice = cluster.member("alice").await;
    let before = alice.epoch;
    let _bob = cluster.member("bob").await;
    assert_eq!(alice.heartbeat().await, 0);
    assert!(alice.epoch > before);
    alice.epoch += 5;
    assert_eq!(alice.heartbeat().await, KafkaError::FENCED_MEMBER_EPOCH.0);
    alice.name = "mallory".to_owned();
    assert_eq!(alice.heartbeat().await, KafkaError::UNKNOWN_MEMBER_ID.0);
    cluster.broker.shutdown().await;
}
