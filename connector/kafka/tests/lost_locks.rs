//! A source whose locks expire while it stands still: the broker tells nobody, and hands the records out again.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::Broker;
use sharestream_client::{Client, ClientConfig, NewTopic, Producer, WriterConfig};
use sharestream_core::source::{Source, SourceEvent};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::{KafkaJob, KafkaJobConfig, SinkConfig};

const LOCK: Duration = Duration::from_secs(2);
const RECORDS: usize = 10;

async fn source(env: &Env, client: &Client, bootstrap: String) -> Box<dyn Source> {
    for topic in ["words", "counts"] {
        client.admin().create_topic(NewTopic::new(topic, 1)).await.unwrap();
    }
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for id in 0..RECORDS {
        producer.send("words", None, Some(id.to_string().as_bytes()), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    let mut config =
        KafkaJobConfig::new("job", "group", vec!["words".to_owned()], SinkConfig::to_topic("counts"));
    config.bootstrap = vec![bootstrap];
    let columns = vec![Column::new("id", ColumnType::Int64)];
    config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
    let lock_ms = LOCK.as_millis().to_string();
    for (key, value) in
        [("share.auto.offset.reset", "earliest"), ("share.record.lock.duration.ms", lock_ms.as_str())]
    {
        config.group_configs.insert(key.to_owned(), value.to_owned());
    }
    let job = KafkaJob::connect(env.clone(), config).await.unwrap();
    job.source_factory().create(0).await.unwrap()
}

/// Rows of the next event that has any.
async fn next_rows(source: &mut dyn Source) -> sharestream_core::Result<usize> {
    loop {
        if let SourceEvent::Records { rows: Some(rows), .. } = source.next().await? {
            return Ok(rows.num_rows());
        }
    }
}

async fn with_source(seed: u64, barrier: Option<CheckpointId>) -> sharestream_core::Result<usize> {
    let env = Env::seeded(seed);
    let broker = Broker::builder(env.clone()).start().await.unwrap();
    let bootstrap = broker.bootstrap();
    let client =
        Client::connect(env.clone(), ClientConfig::with_bootstrap(&bootstrap).unwrap()).await.unwrap();
    let mut source = source(&env, &client, bootstrap).await;
    assert_eq!(next_rows(source.as_mut()).await.unwrap(), RECORDS);
    if let Some(checkpoint) = barrier {
        source.barrier(checkpoint).await.unwrap();
    }
    env.clock.sleep(LOCK * 2).await;
    let again = next_rows(source.as_mut()).await;
    broker.shutdown().await;
    again
}

#[tokio::test(start_paused = true)]
async fn records_that_come_again_within_an_epoch_end_the_attempt() {
    let error = with_source(1, None).await.expect_err("the epoch would hold them twice");
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert!(error.to_string().contains("delivered again"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn records_that_come_again_in_the_next_epoch_are_for_the_brokers_to_judge() {
    // Only one of the two epochs can stage them.
    assert_eq!(with_source(2, Some(CheckpointId(1))).await.unwrap(), RECORDS);
}
