//! Speed of the client's paths, alone and against the embedded broker in one process.
//!
//! `cargo bench -p sharestream-client` prints nanoseconds per appended record, records a second written, and records
//! a second consumed with a transaction per poll, with the commit's latency.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::time::Duration;

use sharestream_base::Env;
use sharestream_base::ids::PartitionIndex;
use sharestream_broker::Broker;
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, ClientConfig, NewTopic, Producer, ShareConsumer,
    ShareConsumerConfig, TransactionConfig, TransactionSession, WriterConfig,
};

const RECORDS: usize = 1_000_000;
const PARTITIONS: i32 = 8;
const VALUE: [u8; 100] = [b'x'; 100];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::builder(Env::system()).start().await.unwrap();
        let config = ClientConfig::with_bootstrap(&broker.bootstrap()).unwrap();
        let client = Client::connect(Env::system(), config).await.unwrap();
        client.admin().create_topic(NewTopic::new("bench", PARTITIONS)).await.unwrap();
        append(&client).await;
        produce(&client).await;
        consume(&client).await;
        broker.shutdown().await;
    });
}

/// Appends alone, in short runs of which the best counts: a busy machine interrupts long ones.
async fn append(client: &Client) {
    const RUN: i32 = 1_000;
    let config = WriterConfig { batch_bytes_max: usize::MAX, ..WriterConfig::default() };
    let mut writer = BatchWriter::new(client.clone(), config);
    let clock = Env::system().clock;
    let mut best = Duration::MAX;
    for _ in 0..500 {
        let start = clock.now();
        for n in 0..RUN {
            let partition = PartitionIndex(n % PARTITIONS);
            writer.append("bench", partition, i64::from(n), Some(b"UA"), Some(&VALUE), &[]).await.unwrap();
        }
        best = best.min(clock.now() - start);
        writer.discard();
    }
    println!("append: {} ns a record of 100 bytes", best.as_nanos() / 1_000);
}

async fn produce(client: &Client) {
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    let clock = Env::system().clock;
    let start = clock.now();
    for n in 0..RECORDS {
        let partition = PartitionIndex(i32::try_from(n).unwrap() % PARTITIONS);
        producer.writer().append("bench", partition, 0, Some(b"UA"), Some(&VALUE), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    println!("produce: {:.0} records a second", RECORDS as f64 / (clock.now() - start).as_secs_f64());
}

/// Poll, write one record, stage, commit; one transaction for each poll.
async fn consume(client: &Client) {
    let reset = ("share.auto.offset.reset".to_owned(), "earliest".to_owned());
    client.admin().alter_group_config("bench", &[reset]).await.unwrap();
    client.admin().create_topic(NewTopic::new("outcome", 1)).await.unwrap();
    let config = ShareConsumerConfig::new("bench", ["bench"]);
    let mut consumer = ShareConsumer::join(client.clone(), config).await.unwrap();
    let mut session = TransactionSession::new(client.clone(), TransactionConfig::new("bench")).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    let clock = Env::system().clock;
    let start = clock.now();
    let (mut consumed, mut commits) = (0, Vec::new());
    while consumed < RECORDS as u64 {
        let records = consumer.poll().await.unwrap();
        if records.is_empty() {
            assert!(clock.now() - start < Duration::from_secs(120), "stuck at {consumed} records");
            continue;
        }
        consumed += records.acquired_count();
        for partition in &records.partitions {
            for range in &partition.acquired {
                let (topic_id, index) = (partition.topic_id, partition.partition);
                consumer.acknowledge(topic_id, index, range.first, range.last, AcknowledgeType::Accept);
            }
        }
        let before = clock.now();
        writer.set_identity(&session.begin().unwrap());
        writer.append("outcome", PartitionIndex(0), 0, None, Some(b"outcome"), &[]).await.unwrap();
        writer.flush().await.unwrap();
        let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
        let metadata = consumer.share_group_metadata();
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
        session.commit().await.unwrap();
        commits.push(clock.now() - before);
    }
    let seconds = (clock.now() - start).as_secs_f64();
    commits.sort();
    println!(
        "consume: {:.0} records a second, {} commits, write, stage and commit {:?} p50 {:?} p99",
        consumed as f64 / seconds,
        commits.len(),
        commits[commits.len() / 2],
        commits[commits.len() * 99 / 100]
    );
    consumer.close().await.unwrap();
}
