//! A record that is too large, or whose output is, has an outcome by policy, and the job goes on.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use std::collections::BTreeMap;

use fixtures::{Findings, World};
use sharestream_client::{NewTopic, Producer, WriterConfig};
use sharestream_core::JobBuilder;
use sharestream_core::commit::AckMode;
use sharestream_kafka::formats::{Format, OutputFormat};
use sharestream_kafka::{AckModeChoice, BadRecords, KafkaJobConfig, SinkConfig, provenance};
use sharestream_wire::records::Compression;

/// What the output topic takes, and one of the topics of dead letters.
const TOPIC_BYTES_MAX: usize = 2_000;
const RECORD_BYTES_MAX: usize = 8_192;
/// Written, written, too large for the output, too large to be processed.
const SIZES: [usize; 4] = [100, 1_500, 5_000, 10_000];
const ROUNDS: usize = 25;

fn world() -> World {
    world_of(Compression::None)
}

fn world_of(compression: Compression) -> World {
    let mut world = World::with_records(0);
    world.mode = AckModeChoice::Transactional;
    let small = |name: &str| {
        let mut topic = NewTopic::new(name, fixtures::PARTITIONS);
        topic.configs = vec![("max.message.bytes".to_owned(), TOPIC_BYTES_MAX.to_string())];
        topic
    };
    let source = world.source();
    world.block_on(async {
        for name in ["small-output", "small-dead"] {
            world.client().admin().create_topic(small(name)).await.unwrap();
        }
        let writer = WriterConfig { compression, ..WriterConfig::default() };
        let mut producer = Producer::connect(world.client(), writer).await.unwrap();
        for round in 0..ROUNDS {
            for size in SIZES {
                let (key, value) = (format!("{round}"), "x".repeat(size));
                let header: [(&[u8], Option<&[u8]>); 1] = [(b"origin", Some(b"test"))];
                producer.send(&source, Some(key.as_bytes()), Some(value.as_bytes()), &header).await.unwrap();
            }
        }
        producer.flush().await.unwrap();
    });
    world
}

fn config(world: &World, dead: Option<&str>) -> KafkaJobConfig {
    let mut config = world.config();
    config.format = Format::Raw;
    config.sink = SinkConfig::to_topic("small-output").with_format(OutputFormat::Raw);
    config.dead_letter_topic = dead.map(str::to_owned);
    config.record_bytes_max = RECORD_BYTES_MAX;
    // A batch at a time.
    config.decompressed_bytes_max = 1_024;
    config
}

/// Runs a job that copies its records, to the end of them.
fn run(world: &World, config: KafkaJobConfig) -> sharestream_core::JobStatus {
    let job = world.start_built(config, true, |kafka| {
        JobBuilder::new(kafka.id())
            .source(kafka.source_factory(), 1)
            .sink(kafka.sink_factory(), 2)
            .commit(kafka.commit_protocol(None))
    });
    world.wait_until_caught_up(&job);
    job.drain().status
}

/// How often values of each length are there.
fn lengths(records: &[(provenance::Provenance, String, Vec<String>)]) -> BTreeMap<usize, usize> {
    let mut lengths = BTreeMap::new();
    for (_, value, _) in records {
        *lengths.entry(value.len()).or_default() += 1;
    }
    lengths
}

#[test]
fn records_that_are_too_large_become_dead_letters_whole_where_they_fit() {
    let world = world();
    let status = run(&world, config(&world, Some("dead")));
    assert_eq!((status.attempts, status.rejected.too_large), (1, 2 * ROUNDS as u64), "{status:?}");
    assert_eq!((status.rows_out, status.dead_letters), (2 * ROUNDS as u64, 2 * ROUNDS as u64));
    assert_eq!(lengths(&world.committed("small-output")), BTreeMap::from([(100, ROUNDS), (1_500, ROUNDS)]));
    let letters = world.committed("dead");
    assert_eq!(lengths(&letters), BTreeMap::from([(5_000, ROUNDS), (10_000, ROUNDS)]));
    assert!(
        letters.iter().all(|(_, _, headers)| !headers.iter().any(|name| name == provenance::PAYLOAD_BYTES))
    );
    assert_eq!(world.check_outcomes(AckMode::Transactional), Findings { lost: 0, doubled: 0 });
    world.shut_down();
}

#[test]
fn a_letter_that_its_topic_does_not_take_tells_what_was_in_it() {
    let world = world();
    let status = run(&world, config(&world, Some("small-dead")));
    assert_eq!((status.attempts, status.dead_letters), (1, 2 * ROUNDS as u64), "{status:?}");
    let letters = world.committed("small-dead");
    assert_eq!(lengths(&letters), BTreeMap::from([(0, 2 * ROUNDS)]));
    for (_, _, headers) in &letters {
        for name in ["origin", provenance::PAYLOAD_BYTES, provenance::PAYLOAD_SHA256, provenance::ERROR_KIND]
        {
            assert!(headers.iter().any(|header| header == name), "{name}: {headers:?}");
        }
    }
    world.shut_down();
}

#[test]
fn what_is_too_large_is_dropped_or_ends_the_job_where_that_was_chosen() {
    let world = world();
    let mut config = config(&world, None);
    let job = world.start_built(config.clone(), true, |kafka| {
        JobBuilder::new(kafka.id())
            .source(kafka.source_factory(), 1)
            .sink(kafka.sink_factory(), 1)
            .commit(kafka.commit_protocol(None))
    });
    let error = job.end.recv_timeout(fixtures::PATIENCE).unwrap().unwrap_err().to_string();
    assert!(error.contains("too-large"), "{error}");
    config.too_large_policy = Some(BadRecords::Reject);
    let status = run(&world, config);
    assert_eq!((status.rejected.too_large, status.dead_letters), (2 * ROUNDS as u64, 0), "{status:?}");
    world.shut_down();
}

#[test]
fn a_batch_that_cannot_be_held_decompressed_costs_its_own_records_and_nothing_else() {
    let world = world_of(Compression::Zstd);
    let mut config = config(&world, Some("dead"));
    config.decompressed_batch_bytes_max = 1_024;
    let status = run(&world, config);
    let all = (SIZES.len() * ROUNDS) as u64;
    // A record of 100 bytes that was sent alone fits.
    assert_eq!((status.attempts, status.rows_out + status.dead_letters), (1, all), "{status:?}");
    assert!(status.rejected.too_large >= 3 * ROUNDS as u64, "{status:?}");
    let letters = world.committed("dead");
    assert_eq!(lengths(&letters), BTreeMap::from([(0, status.dead_letters as usize)]), "without their bytes");
    assert_eq!(world.check_outcomes(AckMode::Transactional), Findings { lost: 0, doubled: 0 });
    world.shut_down();
}
