//! What a client does against any broker: run against the embedded one and against a real Kafka.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::PartitionIndex;
use sharestream_client::{
    AcknowledgeType, AcquireMode, BatchWriter, Client, Isolation, OffsetRange, OffsetSpec, Producer,
    ShareAcknowledgements, ShareConsumer, ShareConsumerConfig, TransactionConfig, TransactionSession,
    WriterConfig,
};

use super::{
    acknowledge_all, acquired_values, poll_count, read_values, share_consumer, start_at_the_beginning, topic,
    unique, wait_until_decided,
};

const LIMIT: Duration = Duration::from_secs(20);

pub async fn topics_and_offsets_are_administered(client: &Client) {
    let name = topic(client, "client-admin", 3).await;
    let admin = client.admin();
    assert!(admin.cluster_id().is_some());
    assert!(admin.list_topics().await.unwrap().iter().any(|topic| *topic.name == *name));
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..30 {
        producer.send(&name, Some(format!("k{n}").as_bytes()), Some(b"v"), &[]).await.unwrap();
    }
    let written: i32 = producer.flush().await.unwrap().iter().map(|batch| batch.record_count).sum();
    assert_eq!(written, 30);
    let ends = admin.list_offsets(&name, &[], OffsetSpec::Latest).await.unwrap();
    assert_eq!(ends.values().map(|offset| offset.0).sum::<i64>(), 30);
    admin.delete_topic(&name).await.unwrap();
    let error = client.fresh_topic(&name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("sharestream topic create"), "{error}");
}

pub async fn a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort(client: &Client) {
    let name = topic(client, "client-txn", 2).await;
    let id = unique("client-txn-id");
    let mut session = TransactionSession::new(client.clone(), TransactionConfig::new(&id)).unwrap();
    let first_identity = session.init().await.unwrap();
    let mut writers = [
        BatchWriter::new(client.clone(), WriterConfig::default()),
        BatchWriter::new(client.clone(), WriterConfig::default()),
    ];
    for (round, commits) in [(0, true), (1, false), (2, true)] {
        let identity = session.begin().unwrap();
        for (partition, writer) in (0..).zip(&mut writers) {
            writer.set_identity(&identity);
            for n in 0..10 {
                let value = format!("{round}-{n}");
                let index = PartitionIndex(partition);
                writer.append(&name, index, 1_000, None, Some(value.as_bytes()), &[]).await.unwrap();
            }
            assert_eq!(writer.flush().await.unwrap().len(), 1);
        }
        if commits { session.commit().await.unwrap() } else { session.abort().await.unwrap() }
    }
    let last = session.identity().unwrap();
    assert!(last.producer_epoch > first_identity.producer_epoch, "each transaction has its own epoch");
    let expected: Vec<String> =
        [0, 2].iter().flat_map(|round| (0..10).map(move |n| format!("{round}-{n}"))).collect();
    for partition in 0..2 {
        assert_eq!(read_values(client, &name, partition, Isolation::ReadCommitted).await, expected);
        assert_eq!(read_values(client, &name, partition, Isolation::ReadUncommitted).await.len(), 30);
    }
    let described = client.admin().describe_transactions(&[&id]).await.unwrap();
    assert_eq!(described[0].state, "CompleteCommit");
    assert!(client.admin().list_transactions().await.unwrap().iter().any(|txn| txn.transactional_id == id));
}

pub async fn a_second_session_fences_the_first(client: &Client) {
    let name = topic(client, "client-fence", 1).await;
    let config = TransactionConfig::new(unique("client-fence-id"));
    let mut old = TransactionSession::new(client.clone(), config.clone()).unwrap();
    old.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    writer.set_identity(&old.begin().unwrap());
    writer.append(&name, PartitionIndex(0), 0, None, Some(b"old"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    let mut new = TransactionSession::new(client.clone(), config).unwrap();
    new.init().await.unwrap();
    assert_eq!(old.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(read_values(client, &name, 0, Isolation::ReadCommitted).await, Vec::<String>::new());
    writer.append(&name, PartitionIndex(0), 0, None, Some(b"zombie"), &[]).await.unwrap();
    assert_eq!(writer.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
}

pub async fn shared_records_are_consumed_released_rejected_and_renewed(client: &Client) {
    let name = topic(client, "client-share", 2).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..20 {
        producer
            .writer()
            .append(&name, PartitionIndex(n % 2), 0, None, Some(n.to_string().as_bytes()), &[])
            .await
            .unwrap();
    }
    producer.flush().await.unwrap();
    let group = unique("client-share-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    assert_eq!(acquired_values(&polls).len(), 20);
    assert!(consumer.acquisition_lock_timeout().is_some());
    assert!(consumer.share_group_metadata().member_epoch.0 > 0);
    let one = &polls[0].partitions[0];
    let range = OffsetRange { first: one.acquired[0].first, last: one.acquired[0].last };
    let renewed = consumer.renew(one.topic_id, one.partition, &[range]).await.unwrap();
    assert!(renewed.iter().all(|result| result.error.is_none()), "{renewed:?}");
    // Everything once more, then for good.
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Release);
    let released = consumer.commit_acknowledgements().await.unwrap();
    assert!(released.iter().all(|result| result.error.is_none()), "{released:?}");
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    let values = acquired_values(&polls);
    assert_eq!(values.len(), 20);
    assert!(values.values().all(|count| *count == 2), "{values:?}");
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let accepted = consumer.commit_acknowledgements().await.unwrap();
    assert!(accepted.iter().all(|result| result.error.is_none()), "{accepted:?}");
    assert_eq!(consumer.lost(), vec![]);
    wait_until_decided(client, &group, &name).await;
    let config = client.admin().describe_group_config(&group).await.unwrap();
    assert_eq!(config.get("share.auto.offset.reset").map(String::as_str), Some("earliest"));
    consumer.close().await.unwrap();
}

pub async fn aborted_records_and_markers_are_gaps_of_a_share_group(client: &Client) {
    let name = topic(client, "client-gaps", 1).await;
    let mut session =
        TransactionSession::new(client.clone(), TransactionConfig::new(unique("client-gaps-id"))).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    for round in 0..3 {
        writer.set_identity(&session.begin().unwrap());
        writer
            .append(&name, PartitionIndex(0), 0, None, Some(format!("{round}").as_bytes()), &[])
            .await
            .unwrap();
        writer.flush().await.unwrap();
        session.commit().await.unwrap();
    }
    let group = unique("client-gaps-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    let polls = poll_count(&mut consumer, 5, LIMIT).await;
    assert_eq!(acquired_values(&polls).len(), 3);
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let accepted = consumer.commit_acknowledgements().await.unwrap();
    assert!(accepted.iter().all(|result| result.error.is_none()), "{accepted:?}");
    consumer.close().await.unwrap();
}

pub async fn transactional_acknowledgements_are_refused_where_the_cluster_lacks_them(client: &Client) {
    let mut session =
        TransactionSession::new(client.clone(), TransactionConfig::new(unique("client-1289-id"))).unwrap();
    session.init().await.unwrap();
    session.begin().unwrap();
    let metadata = sharestream_client::ShareGroupMetadata {
        group_id: "g".to_owned(),
        member_id: "m".to_owned(),
        member_epoch: sharestream_base::ids::MemberEpoch(1),
    };
    if client.features().transactional_share_acknowledgements() {
        println!("skipped: this cluster has KIP-1289");
        return;
    }
    let acks = ShareAcknowledgements::default();
    let error = session.send_share_acknowledgements_to_transaction(&acks, &metadata).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

pub async fn records_of_a_consumer_that_vanished_go_to_another(client: &Client) {
    let name = topic(client, "client-vanish", 1).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..10 {
        producer.send(&name, None, Some(n.to_string().as_bytes()), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    let group = unique("client-vanish-group");
    let mut first = share_consumer(client, &group, &name).await;
    assert_eq!(acquired_values(&poll_count(&mut first, 10, LIMIT).await).len(), 10);
    // Its connections close, and with them its session.
    drop(first);
    let mut second = share_consumer(client, &group, &name).await;
    let values = acquired_values(&poll_count(&mut second, 10, LIMIT).await);
    assert_eq!(values.len(), 10);
    assert!(values.values().all(|count| *count == 2), "{values:?}");
    second.close().await.unwrap();
}

pub async fn the_record_limit_is_kept_and_single_ranges_are_released(client: &Client) {
    let name = topic(client, "client-limit", 1).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..10 {
        producer.send(&name, None, Some(n.to_string().as_bytes()), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    let group = unique("client-limit-group");
    start_at_the_beginning(client, &group).await;
    let config = ShareConsumerConfig {
        max_poll_records: 3,
        acquire_mode: AcquireMode::RecordLimit,
        prefetch: false,
        ..ShareConsumerConfig::new(&group, [&name])
    };
    let mut consumer = ShareConsumer::join(client.clone(), config).await.unwrap();
    let polls = poll_count(&mut consumer, 1, LIMIT).await;
    assert_eq!(polls[0].acquired_count(), 3);
    let one = &polls[0].partitions[0];
    let range = OffsetRange { first: one.acquired[0].first, last: one.acquired[0].first };
    let released = consumer.release(one.topic_id, one.partition, &[range]).await.unwrap();
    assert_eq!((released.len(), released[0].error), (1, None));
    // What was given back comes again; the two others are still ours.
    let again = poll_count(&mut consumer, 1, LIMIT).await;
    assert_eq!(again[0].partitions[0].delivery_count(range.first), Some(2));
    assert_eq!(again[0].partitions[0].delivery_count(range.first.next()), None);
    consumer.close().await.unwrap();
}
