//! What the tests against brokers share.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

pub mod certificates;
pub mod fake;
pub mod groups;
pub mod logged;
pub mod records;
pub mod scenarios;
pub mod topics;

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::Env;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{
    AcknowledgeType, Client, ClientConfig, Isolation, NewTopic, OffsetSpec, PartitionReader, ShareConsumer,
    ShareConsumerConfig, ShareGroupOffset, ShareRecords, committed_records,
};

/// A client with short time-outs.
pub async fn client(bootstrap: &str) -> Client {
    let config = ClientConfig::with_bootstrap(bootstrap)
        .unwrap()
        .with_request_timeout(Duration::from_secs(10))
        .with_operation_timeout(Duration::from_secs(30));
    Client::connect(Env::system(), config).await.unwrap()
}

/// A name that no other test and no other run uses.
pub fn unique(name: &str) -> String {
    format!("{name}-{}", &Env::system().rng.uuid().simple().to_string()[..12])
}

/// A new topic. Kept for ever: the tests stamp records long ago, and Kafka would delete them when it next looks.
pub async fn topic(client: &Client, name: &str, partitions: i32) -> String {
    let name = unique(name);
    client.admin().create_topic(kept_for_ever(&name, partitions)).await.unwrap();
    name
}

/// The settings of such a topic.
pub fn kept_for_ever(name: &str, partitions: i32) -> NewTopic {
    NewTopic::new(name, partitions).with_config("retention.ms", "-1")
}

/// Every value of a partition that a reader at `isolation` sees, from the start.
pub async fn read_values(client: &Client, topic: &str, partition: i32, isolation: Isolation) -> Vec<String> {
    let mut reader = PartitionReader::new(client.clone());
    let mut from = Offset(0);
    let mut values = Vec::new();
    loop {
        let wait = Duration::from_millis(200);
        let fetched =
            reader.fetch(topic, PartitionIndex(partition), from, isolation, 1 << 20, wait).await.unwrap();
        let batches = match isolation {
            Isolation::ReadCommitted => committed_records(&fetched).unwrap(),
            Isolation::ReadUncommitted => fetched.batches.iter().filter(|b| !b.header.is_control()).collect(),
        };
        for batch in batches {
            for record in batch.records().unwrap().iter() {
                let record = record.unwrap();
                if record.offset >= from.0 {
                    values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                }
            }
        }
        let next = fetched.next_offset(from);
        if next == from {
            return values;
        }
        from = next;
    }
}

/// Makes a group read from the beginning, committed records only.
pub async fn start_at_the_beginning(client: &Client, group: &str) {
    let configs = [("share.auto.offset.reset", "earliest"), ("share.isolation.level", "read_committed")];
    let configs = configs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    client.admin().alter_group_config(group, &configs).await.unwrap();
}

/// A consumer of a new group that starts at the beginning.
pub async fn share_consumer(client: &Client, group: &str, topic: &str) -> ShareConsumer {
    start_at_the_beginning(client, group).await;
    ShareConsumer::join(client.clone(), ShareConsumerConfig::new(group, [topic])).await.unwrap()
}

/// Polls until `count` offsets are acquired (gaps included) or `limit` is over.
pub async fn poll_count(consumer: &mut ShareConsumer, count: u64, limit: Duration) -> Vec<ShareRecords> {
    let env = Env::system();
    let deadline = env.clock.now() + limit;
    let (mut polls, mut acquired) = (Vec::new(), 0);
    while acquired < count && env.clock.now() < deadline {
        let records = consumer.poll().await.unwrap();
        acquired += records.acquired_count();
        if !records.is_empty() {
            polls.push(records);
        }
    }
    polls
}

/// The values acquired, with their delivery counts.
pub fn acquired_values(polls: &[ShareRecords]) -> BTreeMap<String, i16> {
    let mut values = BTreeMap::new();
    for partition in polls.iter().flat_map(|records| &records.partitions) {
        for batch in partition.batches.iter().filter(|batch| !batch.header.is_control()) {
            for record in batch.records().unwrap().iter() {
                let record = record.unwrap();
                if let Some(count) = partition.delivery_count(Offset(record.offset)) {
                    values.insert(String::from_utf8(record.value.unwrap().to_vec()).unwrap(), count);
                }
            }
        }
    }
    values
}

/// Decides on everything acquired: `kind`, and GAP where there is nothing.
pub fn acknowledge_all(consumer: &mut ShareConsumer, polls: &[ShareRecords], kind: AcknowledgeType) {
    for partition in polls.iter().flat_map(|records| &records.partitions) {
        let (topic_id, index) = (partition.topic_id, partition.partition);
        for range in &partition.acquired {
            consumer.acknowledge(topic_id, index, range.first, range.last, kind);
        }
        for gap in partition.gaps().unwrap() {
            consumer.acknowledge(topic_id, index, gap.first, gap.last, AcknowledgeType::Gap);
        }
    }
}

/// Waits until the group has decided every record. Kafka writes the start offset late, so the lag counts where the
/// broker tells it; in a transaction a commit shows after its markers.
pub async fn wait_until_decided(client: &Client, group: &str, topic: &str) {
    let clock = Env::system().clock;
    let deadline = clock.now() + Duration::from_secs(60);
    loop {
        let admin = client.admin();
        let ends = admin.list_offsets(topic, &[], OffsetSpec::Latest).await.unwrap();
        let offsets = admin.describe_share_group_offsets(group, &[topic]).await.unwrap();
        let decided = |offset: &&ShareGroupOffset| {
            offset.lag == Some(0) || offset.start_offset == ends.get(&offset.partition).copied()
        };
        if offsets.iter().filter(decided).count() == ends.len() {
            return;
        }
        assert!(clock.now() < deadline, "still at {offsets:?}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}
