//! Topics that come, grow, go and come back while a client uses them: against any broker.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, ClientConfig, Isolation, KafkaError, OffsetSpec, PartitionReader,
    Producer, ShareConsumer, ShareConsumerConfig, TransactionConfig, TransactionSession, WriterConfig,
};

use super::{
    acknowledge_all, acquired_values, kept_for_ever, poll_count, read_values, share_consumer,
    start_at_the_beginning, topic, unique,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A client of the same cluster that asks again for topics after `age`.
async fn client_that_asks_every(age: Duration, like: &Client) -> Client {
    let config = ClientConfig { metadata_age_max: age, ..like.config().clone() };
    Client::connect(Env::system(), config).await.unwrap()
}

async fn produce(client: &Client, topic: &str, partition: i32, values: &[&str]) {
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for value in values {
        let index = PartitionIndex(partition);
        producer.writer().append(topic, index, 0, None, Some(value.as_bytes()), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
}

/// Polls and accepts until these values have come.
async fn accept_until(consumer: &mut ShareConsumer, wanted: &[&str]) {
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    let mut left: Vec<&str> = wanted.to_vec();
    while !left.is_empty() {
        assert!(clock.now() < deadline, "{left:?} never came");
        let polls = [consumer.poll().await.unwrap()];
        let values = acquired_values(&polls);
        left.retain(|value| !values.contains_key(*value));
        acknowledge_all(consumer, &polls, AcknowledgeType::Accept);
        consumer.commit_acknowledgements().await.unwrap();
    }
}

/// Deletes a topic and creates it again, with another id.
async fn create_again(client: &Client, name: &str, partitions: i32) {
    client.admin().delete_topic(name).await.unwrap();
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    while client.admin().create_topic(kept_for_ever(name, partitions)).await.is_err() {
        assert!(clock.now() < deadline, "{name} cannot be created again");
        clock.sleep(Duration::from_millis(100)).await;
    }
}

pub async fn a_pattern_finds_topics_that_come_later(client: &Client) {
    let client = client_that_asks_every(Duration::from_millis(300), client).await;
    let prefix = unique("client-pattern");
    let group = unique("client-pattern-group");
    start_at_the_beginning(&client, &group).await;
    let config = ShareConsumerConfig::matching(&group, format!("{prefix}-(a|b)"));
    // Nothing matches yet, and the member waits.
    let mut consumer = ShareConsumer::join(client.clone(), config).await.unwrap();
    assert!(consumer.poll().await.unwrap().is_empty());
    for (suffix, value) in [("a", "first"), ("ab", "never"), ("b", "second")] {
        let name = format!("{prefix}-{suffix}");
        client.admin().create_topic(kept_for_ever(&name, 1)).await.unwrap();
        produce(&client, &name, 0, &[value]).await;
        if value != "never" {
            accept_until(&mut consumer, &[value]).await;
        }
    }
    consumer.close().await.unwrap();
}

pub async fn a_reader_never_goes_on_in_a_topic_that_was_created_again(client: &Client) {
    let name = topic(client, "client-again-read", 1).await;
    produce(client, &name, 0, &["old"]).await;
    let mut reader = PartitionReader::new(client.clone());
    let (partition, wait) = (PartitionIndex(0), Duration::from_millis(100));
    let first =
        reader.fetch(&name, partition, Offset(0), Isolation::ReadCommitted, 1 << 20, wait).await.unwrap();
    assert_eq!(first.next_offset(Offset(0)), Offset(1));
    create_again(client, &name, 1).await;
    produce(client, &name, 0, &["new-0", "new-1"]).await;
    let error =
        reader.fetch(&name, partition, Offset(1), Isolation::ReadCommitted, 1 << 20, wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("created again"), "{error}");
    assert_eq!(read_values(client, &name, 0, Isolation::ReadCommitted).await, ["new-0", "new-1"]);
}

pub async fn a_transaction_never_commits_into_two_topics_of_one_name(client: &Client) {
    let client = client_that_asks_every(Duration::ZERO, client).await;
    let name = topic(&client, "client-again-write", 1).await;
    let config = TransactionConfig::new(unique("client-again-id"));
    let mut session = TransactionSession::new(client.clone(), config).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    writer.set_identity(&session.begin().unwrap());
    writer.append(&name, PartitionIndex(0), 0, None, Some(b"old"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    create_again(&client, &name, 1).await;
    writer.append(&name, PartitionIndex(0), 0, None, Some(b"torn"), &[]).await.unwrap();
    let error = writer.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert!(error.to_string().contains("created again"), "{error}");
    session.abort().await.unwrap();
    // The next transaction writes to the topic that is there now.
    writer.set_identity(&session.begin().unwrap());
    writer.append(&name, PartitionIndex(0), 0, None, Some(b"new"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(read_values(&client, &name, 0, Isolation::ReadUncommitted).await, ["new"]);
}

pub async fn a_share_consumer_goes_on_in_a_topic_that_was_created_again(client: &Client) {
    let name = topic(client, "client-again-share", 1).await;
    produce(client, &name, 0, &["old"]).await;
    let mut consumer = share_consumer(client, &unique("client-again-group"), &name).await;
    accept_until(&mut consumer, &["old"]).await;
    create_again(client, &name, 1).await;
    produce(client, &name, 0, &["new"]).await;
    accept_until(&mut consumer, &["new"]).await;
    consumer.close().await.unwrap();
}

pub async fn partitions_that_are_added_are_found_by_everyone(client: &Client) {
    let name = topic(client, "client-grow", 1).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    producer.send(&name, None, Some(b"before"), &[]).await.unwrap();
    producer.flush().await.unwrap();
    let mut consumer = share_consumer(client, &unique("client-grow-group"), &name).await;
    accept_until(&mut consumer, &["before"]).await;
    let mut reader = PartitionReader::new(client.clone());
    let wait = Duration::from_millis(50);
    let isolation = Isolation::ReadCommitted;
    reader.fetch(&name, PartitionIndex(0), Offset(0), isolation, 1 << 20, wait).await.unwrap();
    // Another client adds them: ours hears of it only when it asks.
    let other = client_that_asks_every(Duration::ZERO, client).await;
    let grown = other.admin().create_partitions(&name, 3).await.unwrap();
    assert_eq!(grown.partitions.len(), 3);
    let error = other.admin().create_partitions(&name, 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    producer.writer().append(&name, PartitionIndex(2), 0, None, Some(b"after"), &[]).await.unwrap();
    producer.flush().await.unwrap();
    assert_eq!(client.admin().list_offsets(&name, &[], OffsetSpec::Latest).await.unwrap().len(), 3);
    let fetched = reader.fetch(&name, PartitionIndex(2), Offset(0), isolation, 1 << 20, wait).await.unwrap();
    assert_eq!(fetched.high_watermark, Offset(1));
    let error =
        reader.fetch(&name, PartitionIndex(3), Offset(0), isolation, 1 << 20, wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    accept_until(&mut consumer, &["after"]).await;
    let polls = poll_count(&mut consumer, 1, Duration::from_millis(300)).await;
    assert_eq!(acquired_values(&polls).len(), 0, "nothing twice");
    consumer.close().await.unwrap();
}

/// Replicas of a job start together; one of them is the first to create.
pub async fn a_topic_that_another_makes_meanwhile_is_taken(client: &Client) {
    let name = unique("client-ensure");
    let admin = client.admin();
    let both = tokio::join!(
        admin.ensure_topic(kept_for_ever(&name, 2)),
        admin.ensure_topic(kept_for_ever(&name, 2))
    );
    let (one, other) = (both.0.unwrap(), both.1.unwrap());
    assert_eq!((one.topic_id, one.partitions.len()), (other.topic_id, 2));
    let again = admin.create_topic(kept_for_ever(&name, 2)).await.unwrap_err();
    assert_eq!(again.code(), Some(KafkaError::TOPIC_ALREADY_EXISTS), "{again}");
}
