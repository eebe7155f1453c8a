//! Staged acknowledgements (KIP-1289): commit, abort, time-out, repeats, fences.

use std::time::Duration;

use sharestream_broker::BrokerConfig;
use sharestream_wire::KafkaError;

use crate::fixtures::{Cluster, Member, acquired_of};

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(10);

async fn acquired(cluster: &mut Cluster, partitions: i32) -> Member {
    for partition in 0..partitions {
        cluster.produce(partition, 10).await;
    }
    let mut member = cluster.member("alice").await;
    let response = member.fetch_full(&[], LONG).await;
    for partition in 0..partitions {
        assert_eq!(acquired_of(&response, partition), [(0, 9, 1)]);
    }
    member
}

/// EndTxn answers when its decision is durable; the outcome is visible a little later.
async fn eventually_start_offset(cluster: &mut Cluster, partition: i32, expected: i64) {
    for _ in 0..500 {
        if cluster.start_offset(partition).await == expected {
            return;
        }
        cluster.env.clock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(cluster.start_offset(partition).await, expected);
}

#[tokio::test]
async fn a_commit_finalises_staged_acknowledgements_of_many_partitions() {
    let mut cluster = Cluster::start(8, &[]).await;
    let mut member = acquired(&mut cluster, 8).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    let acks: Vec<_> =
        (0..8).map(|partition| (partition, 0, 9, if partition == 3 { 3 } else { 1 })).collect();
    assert_eq!(transaction.stage(&member, &acks).await, 0);
    for partition in 0..8 {
        assert_eq!(cluster.start_offset(partition).await, 0, "nothing is final before the commit");
    }
    assert_eq!(member.fetch(NO_WAIT).await, []);
    transaction.end(true).await;
    for partition in 0..8 {
        eventually_start_offset(&mut cluster, partition, 10).await;
    }
    cluster.produce(0, 1).await;
    assert_eq!(member.fetch(LONG).await, [(10, 10, 1)]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn an_abort_makes_staged_records_available_to_anyone() {
    let mut cluster = Cluster::start(1, &[]).await;
    let member = acquired(&mut cluster, 1).await;
    let mut bob = cluster.member("bob").await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    assert_eq!(bob.fetch(NO_WAIT).await, []);
    transaction.end(false).await;
    assert_eq!(bob.fetch(LONG).await, [(0, 9, 2)]);
    // The next transaction of the same producer stages what bob holds now.
    assert_eq!(transaction.stage(&bob, &[(0, 0, 9, 1)]).await, 0);
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 0, 10).await;
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_timed_out_transaction_gives_its_records_back_and_its_late_stage_is_refused() {
    let mut cluster = Cluster::start(1, &[]).await;
    let mut member = acquired(&mut cluster, 1).await;
    let mut transaction = cluster.transaction("job-0", Duration::from_millis(300)).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 4, 1)]).await, 0);
    assert_eq!(member.fetch(LONG).await, [(0, 4, 2)]);
    let late = transaction.stage(&member, &[(0, 5, 9, 1)]).await;
    assert_ne!(late, 0, "the transaction has been aborted under it");
    assert_eq!(cluster.start_offset(0).await, 0);
    assert_eq!(member.acknowledge(&[(0, 0, 9, 1)]).await, 0);
    assert_eq!(cluster.start_offset(0).await, 10);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn staging_again_is_a_success_and_another_intent_is_not() {
    let mut cluster = Cluster::start(1, &[]).await;
    let member = acquired(&mut cluster, 1).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    for _ in 0..3 {
        assert_eq!(transaction.stage(&member, &[(0, 0, 4, 1)]).await, 0);
    }
    let changed = transaction.stage(&member, &[(0, 0, 4, 3)]).await;
    assert_eq!(changed, KafkaError::INVALID_RECORD_STATE.0);
    let mut other = cluster.transaction("job-1", LONG).await;
    assert_eq!(other.stage(&member, &[(0, 0, 4, 1)]).await, KafkaError::INVALID_RECORD_STATE.0);
    assert_eq!(other.stage(&member, &[(0, 5, 9, 1)]).await, 0);
    other.end(false).await;
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 0, 5).await;
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn staged_records_outlive_their_member_and_their_lock() {
    let mut cluster = Cluster::start(1, &[("share.record.lock.duration.ms", "200")]).await;
    let member = acquired(&mut cluster, 1).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    drop(member);
    cluster.env.clock.sleep(Duration::from_millis(400)).await;
    let mut bob = cluster.member("bob").await;
    assert_eq!(bob.fetch(NO_WAIT).await, []);
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 0, 10).await;
    assert_eq!(bob.fetch(NO_WAIT).await, []);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn only_the_holder_with_its_current_epoch_may_stage() {
    let mut cluster = Cluster::start(1, &[]).await;
    let mut member = acquired(&mut cluster, 1).await;
    let mut bob = cluster.member("bob").await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    let all = [(0, 0, 9, 1)];
    assert_eq!(transaction.stage(&bob, &all).await, KafkaError::INVALID_RECORD_STATE.0);
    bob.name = "nobody".to_owned();
    assert_eq!(transaction.stage(&bob, &all).await, KafkaError::UNKNOWN_MEMBER_ID.0);
    let old = member.epoch;
    assert_eq!(member.heartbeat().await, 0);
    let current = member.epoch;
    member.epoch = old;
    assert_eq!(transaction.stage(&member, &all).await, KafkaError::STALE_MEMBER_EPOCH.0);
    member.epoch = current + 1;
    assert_eq!(transaction.stage(&member, &all).await, KafkaError::FENCED_MEMBER_EPOCH.0);
    member.epoch = current;
    for kind in [2, 4] {
        let refused = transaction.stage(&member, &[(0, 0, 9, kind)]).await;
        assert_eq!(refused, KafkaError::INVALID_REQUEST.0);
    }
    assert_eq!(transaction.stage(&member, &all).await, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn an_older_producer_epoch_cannot_stage() {
    let mut cluster = Cluster::start(1, &[]).await;
    let member = acquired(&mut cluster, 1).await;
    let mut old = cluster.transaction("job-0", LONG).await;
    let mut new = cluster.transaction("job-0", LONG).await;
    assert_ne!(old.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    assert_eq!(new.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn taking_over_the_transactional_id_aborts_what_was_staged() {
    let mut cluster = Cluster::start(1, &[]).await;
    let mut member = acquired(&mut cluster, 1).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    let env = cluster.env.clone();
    let mut successor = None;
    // The first attempt aborts and asks to wait for the markers.
    for _ in 0..100 {
        if let Some(found) = try_transaction(&cluster, "job-0").await {
            successor = Some(found);
            break;
        }
        env.clock.sleep(Duration::from_millis(10)).await;
    }
    assert!(successor.is_some());
    assert_eq!(member.fetch(LONG).await, [(0, 9, 2)]);
    cluster.broker.shutdown().await;
}

async fn try_transaction(cluster: &Cluster, id: &str) -> Option<i16> {
    use kafka_protocol::messages::{InitProducerIdRequest, TransactionalId};
    let mut connection = crate::fixtures::Connection::open(cluster.broker.address(), &cluster.env).await;
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(id.to_owned().into())))
        .with_transaction_timeout_ms(10_000);
    let response = connection.call(request, 4).await;
    (response.error_code == 0).then_some(response.producer_epoch)
}

#[tokio::test]
async fn many_commits_in_a_row_leave_nothing_behind() {
    let config = BrokerConfig { share_state_partitions: 3, ..BrokerConfig::default() };
    let mut cluster = Cluster::start_with(config, 2, &[]).await;
    let mut member = cluster.member("alice").await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    let mut staging = Duration::ZERO;
    for round in 0..300 {
        for partition in 0..2 {
            cluster.produce(partition, 4).await;
        }
        let mut acks = Vec::new();
        while acks.len() < 2 {
            let response = member.fetch_full(&[], LONG).await;
            for partition in 0..2 {
                for (first, last, count) in acquired_of(&response, partition) {
                    assert_eq!((first, last, count), (round * 4, round * 4 + 3, 1));
                    acks.push((partition, first, last, 1));
                }
            }
        }
        acks.sort_unstable();
        let before = cluster.env.clock.now();
        assert_eq!(transaction.stage(&member, &acks).await, 0);
        staging += cluster.env.clock.now() - before;
        transaction.end(true).await;
    }
    println!("mean time to stage: {:?}", staging / 300);
    for partition in 0..2 {
        eventually_start_offset(&mut cluster, partition, 1_200).await;
    }
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn metrics_count_what_is_staged_and_no_lock_takes_it_back() {
    let mut cluster = Cluster::start(1, &[("share.record.lock.duration.ms", "100")]).await;
    let member = acquired(&mut cluster, 1).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 6, 1)]).await, 0);
    let seen = cluster.broker.cluster().metrics()[0];
    assert_eq!((seen.txn_pending_records_count, seen.txn_share_acknowledge_request_latency_ms.count), (7, 1));
    assert!(seen.txn_share_acknowledge_request_latency_ms.max_ms > 0.0);
    cluster.env.clock.sleep(Duration::from_millis(300)).await;
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 0, 7).await;
    let seen = cluster.broker.cluster().metrics()[0];
    assert_eq!((seen.txn_pending_records_count, seen.txn_pending_lock_expired_count), (0, 0));
    assert_eq!(seen.txn_remembered_markers_count, 1);
    let text = cluster.broker.cluster().metrics_text();
    assert!(text.contains("kafka_server_ShareGroupMetrics_TxnPendingRecordsCount{node=\"1\"} 0\n"), "{text}");
    cluster.broker.shutdown().await;
}
