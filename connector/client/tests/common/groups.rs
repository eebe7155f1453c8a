//! What an operator does with groups and transactions: against any broker.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, Isolation, KafkaError, PlannedReset, Producer, ResetTo,
    TransactionConfig, TransactionSession, WriterConfig,
};

use super::{
    acknowledge_all, acquired_values, poll_count, read_values, share_consumer, topic, unique,
    wait_until_decided,
};

const LIMIT: Duration = Duration::from_secs(20);
const ONE: PartitionIndex = PartitionIndex(0);

/// Where a group has no limits of its own, as in Kafka 4.2, those of the brokers hold.
pub async fn the_brokers_limits_of_share_groups_are_told(client: &Client) {
    let configs = client.admin().describe_broker_config().await.unwrap();
    let limit: u16 = configs["group.share.delivery.count.limit"].parse().unwrap();
    let locks: u64 = configs["group.share.partition.max.record.locks"].parse().unwrap();
    // What Kafka lets an operator set.
    assert!((2..=10).contains(&limit) && (100..=10_000).contains(&locks), "{limit} {locks}");
}

pub async fn a_group_is_listed_described_and_reset(client: &Client) {
    let admin = client.admin();
    let name = topic(client, "client-reset", 1).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..10i64 {
        let value = n.to_string();
        let stamp = 1_000_000 + n * 1_000;
        producer.writer().append(&name, ONE, stamp, None, Some(value.as_bytes()), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    let group = unique("client-reset-group");
    assert_eq!(admin.describe_share_group(&group).await.unwrap(), None);
    let mut consumer = share_consumer(client, &group, &name).await;
    let polls = poll_count(&mut consumer, 10, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    consumer.commit_acknowledgements().await.unwrap();
    wait_until_decided(client, &group, &name).await;

    let listed = admin.list_share_groups().await.unwrap();
    assert!(listed.iter().any(|one| one.group_id == group && one.state == "Stable"), "{listed:?}");
    let described = admin.describe_share_group(&group).await.unwrap().unwrap();
    assert_eq!((described.state.as_str(), described.members.len()), ("Stable", 1));
    let member = &described.members[0];
    assert_eq!(member.member_id, consumer.share_group_metadata().member_id);
    assert_eq!(member.subscribed_topics, [name.as_str()]);
    assert_eq!((&*member.assignment[0].topic, &*member.assignment[0].partitions), (&*name, &[ONE][..]));
    let refused = admin.plan_share_group_reset(&group, &[], ResetTo::Earliest).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("1 members (clients: "), "{refused}");
    // The coordinator refuses as well, should a member join after the plan.
    let plan = PlannedReset {
        topic: name.as_str().into(),
        partition: ONE,
        before: None,
        after: Offset(0),
        log_start: Offset(0),
        log_end: Offset(10),
    };
    let refused = admin.reset_share_group(&group, &[plan]).await.unwrap_err();
    assert_eq!(refused.code(), Some(KafkaError::NON_EMPTY_GROUP), "{refused}");
    consumer.close().await.unwrap();

    for (to, after) in [
        (ResetTo::Latest, 10),
        (ResetTo::Offset(Offset(4)), 4),
        (ResetTo::Timestamp(1_007_001), 8),
        (ResetTo::Timestamp(9_000_000), 10),
        (ResetTo::Earliest, 0),
    ] {
        let plan = admin.plan_share_group_reset(&group, &[], to).await.unwrap();
        assert_eq!(plan.iter().map(|one| one.after.0).collect::<Vec<_>>(), [after], "{to:?}");
        admin.reset_share_group(&group, &plan).await.unwrap();
        let offsets = admin.describe_share_group_offsets(&group, &[&name]).await.unwrap();
        assert_eq!(offsets[0].start_offset, Some(Offset(after)), "{to:?}");
    }
    let error = admin.plan_share_group_reset(&group, &[], ResetTo::Offset(Offset(11))).await.unwrap_err();
    assert!(error.to_string().contains("reaches from 0 to 10"), "{error}");
    let mut consumer = share_consumer(client, &group, &name).await;
    assert_eq!(acquired_values(&poll_count(&mut consumer, 10, LIMIT).await).len(), 10, "all of them again");
    consumer.close().await.unwrap();
    admin.delete_share_group_offsets(&group, &[&name]).await.unwrap();
    let offsets = admin.describe_share_group_offsets(&group, &[]).await.unwrap();
    assert!(offsets.iter().all(|one| one.start_offset.is_none()), "{offsets:?}");
}

pub async fn a_group_is_deleted_once_it_is_empty(client: &Client) {
    let admin = client.admin();
    let name = topic(client, "client-delete", 1).await;
    let group = unique("client-delete-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    consumer.poll().await.unwrap();
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    while admin.describe_share_group(&group).await.unwrap().is_none_or(|group| group.members.is_empty()) {
        assert!(clock.now() < deadline);
        clock.sleep(Duration::from_millis(50)).await;
    }
    let refused = admin.delete_share_group(&group).await.unwrap_err();
    assert_eq!(refused.code(), Some(KafkaError::NON_EMPTY_GROUP), "{refused}");
    consumer.close().await.unwrap();
    admin.delete_share_group(&group).await.unwrap();
    assert_eq!(admin.describe_share_group(&group).await.unwrap(), None);
    let error = admin.delete_share_group(&group).await.unwrap_err();
    assert_eq!(error.code(), Some(KafkaError::GROUP_ID_NOT_FOUND), "{error}");
}

pub async fn an_open_transaction_is_ended_from_outside_and_its_producer_fenced(client: &Client) {
    let admin = client.admin();
    let name = topic(client, "client-end", 1).await;
    let id = unique("client-end-id");
    assert_eq!(admin.abort_transaction(&id).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let config = TransactionConfig { timeout: Duration::from_secs(33), ..TransactionConfig::new(&id) };
    let mut session = TransactionSession::new(client.clone(), config).unwrap();
    session.init().await.unwrap();
    assert_eq!(admin.abort_transaction(&id).await.unwrap(), None, "there is nothing to end");
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    writer.set_identity(&session.begin().unwrap());
    writer.append(&name, ONE, 0, None, Some(b"never"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    let ended = admin.abort_transaction(&id).await.unwrap().unwrap();
    assert_eq!(ended.before.state, "Ongoing");
    assert_eq!(ended.before.partitions, [(name.as_str().into(), ONE)]);
    assert!(!ended.after.is_open(), "{ended:?}");
    assert!(ended.after.producer_epoch > ended.before.producer_epoch);
    assert_eq!(ended.after.timeout, Duration::from_secs(33), "it keeps its time-out");
    assert_eq!(session.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(read_values(client, &name, 0, Isolation::ReadCommitted).await, Vec::<String>::new());
}
