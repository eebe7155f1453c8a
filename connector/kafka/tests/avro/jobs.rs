//! Whole jobs: every record once, whatever wrote it, and whatever the registry does meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sharestream_base::Env;
use sharestream_base::ids::Offset;
use sharestream_client::{Isolation, OffsetSpec, PartitionReader, Producer, WriterConfig, committed_records};
use sharestream_core::commit::AckMode;
use sharestream_core::{JobBuilder, RestartOptions, Supervisor};
use sharestream_kafka::formats::{
    AvroFormat, AvroFraming, AvroOutput, Format, OutputFormat, SchemaId, SchemaRegistry,
};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, SinkConfig, provenance};
use sharestream_registry::{HttpRegistry, RegistrySettings};

use crate::fake_registry::FakeRegistry;
use crate::fixtures::{self, RunningJob, World};

const FIRST: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"int"},{"name":"gone","type":"string"}]}"#;
const SECOND: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"note","type":["null","string"],"default":null},{"name":"id","type":"long"}]}"#;
/// Read by nobody: `id` has become text.
const STRANGE: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}"#;

fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn framed(id: u32) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice()].concat()
}

/// `{id, gone: "x"}` of the first schema.
fn of_first(schema: u32, id: i64) -> Vec<u8> {
    let mut value = framed(schema);
    long(id, &mut value);
    value.extend_from_slice(&[2, b'x']);
    value
}

/// `{note: "n", id}` of the second.
fn of_second(schema: u32, id: i64) -> Vec<u8> {
    let mut value = framed(schema);
    value.extend_from_slice(&[2, 2, b'n']);
    long(id, &mut value);
    value
}

fn produce(world: &World, values: &[Vec<u8>]) {
    let source = world.source();
    world.block_on(async {
        let mut producer = Producer::connect(world.client(), WriterConfig::default()).await.unwrap();
        for (index, value) in values.iter().enumerate() {
            let key = index.to_string();
            producer.send(&source, Some(key.as_bytes()), Some(value), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
    });
}

fn config(world: &World) -> KafkaJobConfig {
    let mut config = world.config();
    config.format = Format::Avro(AvroFormat { schema: SECOND.to_owned(), framing: AvroFraming::Registry });
    config
}

fn start(world: &World, config: KafkaJobConfig, url: &str, parallelism: usize) -> RunningJob {
    let mut settings = RegistrySettings::new(vec![url.to_owned()]);
    settings.request_timeout = Duration::from_millis(500);
    // Attempts end in time for the test to see some.
    settings.patience = Duration::from_millis(700);
    let registry = world.block_on(HttpRegistry::new(settings, Env::system().clock)).unwrap();
    start_with(world, config, Arc::new(registry), parallelism)
}

fn start_with(
    world: &World,
    config: KafkaJobConfig,
    registry: Arc<dyn SchemaRegistry>,
    parallelism: usize,
) -> RunningJob {
    let options = world.options.clone();
    fixtures::spawn(move |control| async move {
        let kafka = KafkaJob::connect(Env::system(), config).await?.with_registry(registry);
        let attempts = move |_attempt| {
            JobBuilder::new(kafka.id())
                .source(kafka.source_factory(), parallelism)
                .sink(kafka.sink_factory(), 1)
                .commit(kafka.commit_protocol(None))
                .options(options.clone())
                .build()
        };
        let pause = Duration::from_millis(10);
        let restarts = RestartOptions::default().with_backoff(pause, 5 * pause);
        Supervisor::new(attempts, restarts).run(Env::system(), control).await
    })
}

/// The error of each dead letter.
fn errors(world: &World) -> Vec<String> {
    let topic = world.named("dead");
    world.block_on(async {
        let ends = world.client().admin().list_offsets(&topic, &[], OffsetSpec::Latest).await.unwrap();
        let mut errors = Vec::new();
        for (partition, end) in ends {
            let mut reader = PartitionReader::new(world.client());
            let mut next = Offset(0);
            while next < end {
                let wait = Duration::from_millis(10);
                let fetched = reader
                    .fetch(&topic, partition, next, Isolation::ReadCommitted, 1 << 20, wait)
                    .await
                    .unwrap();
                for batch in committed_records(&fetched).unwrap() {
                    for record in &batch.records().unwrap() {
                        let record = record.unwrap();
                        let mut headers = record.headers.iter();
                        let error = headers.find(|(key, _)| *key == provenance::ERROR.as_bytes()).unwrap().1;
                        errors.push(String::from_utf8(error.unwrap().to_vec()).unwrap());
                    }
                }
                next = fetched.next_offset(next);
            }
        }
        errors
    })
}

/// How often each id is in the output, and in all.
fn ids(world: &World) -> BTreeMap<i64, usize> {
    let mut ids = BTreeMap::new();
    for (_, value, _) in world.committed("output") {
        let row: serde_json::Value = serde_json::from_str(&value).unwrap();
        *ids.entry(row["id"].as_i64().unwrap()).or_default() += 1;
    }
    ids
}

fn once(ids: impl IntoIterator<Item = i64>) -> BTreeMap<i64, usize> {
    ids.into_iter().map(|id| (id, 1)).collect()
}

#[test]
fn records_of_several_writers_are_read_and_bad_ones_are_dead_letters_one_by_one() {
    let world = World::with_records(0);
    let registry = world.block_on(FakeRegistry::start());
    let first = registry.register("numbers-value", FIRST);
    let second = registry.register("numbers-value", SECOND);
    let strange = registry.register("numbers-value", STRANGE);
    let mut values = Vec::new();
    let mut good = Vec::new();
    for id in 0..600 {
        match id % 10 {
            3 => values.push([framed(strange), vec![2, b'x']].concat()),
            5 => values.push(of_first(77, id)),
            6 => values.push(b"{\"no\": \"avro\"}".to_vec()),
            7 => values.push(of_second(second, id)[..7].to_vec()),
            even if even % 2 == 0 => {
                good.push(id);
                values.push(of_first(first, id));
            }
            _ => {
                good.push(id);
                values.push(of_second(second, id));
            }
        }
    }
    produce(&world, &values);
    let job = start(&world, config(&world), &registry.url, 2);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(ids(&world), once(good.iter().copied()));
    let errors = errors(&world);
    assert_eq!(errors.len(), values.len() - good.len());
    let about = |text: &str| errors.iter().filter(|error| error.contains(text)).count();
    assert_eq!(about("cannot be read as the reader's"), 60);
    assert_eq!(about("schema 77: the registry does not have it"), 60);
    assert_eq!(about("does not begin with a zero byte"), 60);
    assert_eq!(about("it ends too early"), 60);
    // By two subtasks, in many batches: once each.
    for id in [first, second, strange] {
        assert_eq!(registry.asked(&format!("/schemas/ids/{id}")), 1);
    }
    let findings = world.check_outcomes(AckMode::Transactional);
    assert_eq!((findings.lost, findings.doubled), (0, 0));
    world.shut_down();
}

#[test]
fn a_registry_that_is_away_makes_no_record_bad_and_loses_none() {
    let world = World::with_records(0);
    let registry = world.block_on(FakeRegistry::start());
    let first = registry.register("numbers-value", FIRST);
    let second = registry.register("numbers-value", SECOND);
    produce(&world, &(0..200).map(|id| of_first(first, id)).collect::<Vec<_>>());
    let job = start(&world, config(&world), &registry.url, 2);
    world.wait_until_caught_up(&job);
    registry.set_down(true);
    // What is known is read on; the new schema has to wait.
    let later = (200..400).map(|id| if id % 2 == 0 { of_first(first, id) } else { of_second(second, id) });
    produce(&world, &later.collect::<Vec<_>>());
    let clock = Env::system().clock;
    let path = format!("/schemas/ids/{second}");
    world.block_on(async {
        while registry.asked(&path) < 6 {
            clock.sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(!world.is_caught_up());
    registry.set_down(false);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(ids(&world), once(0..400));
    assert!(world.committed("dead").is_empty());
    let findings = world.check_outcomes(AckMode::Transactional);
    assert_eq!((findings.lost, findings.doubled), (0, 0));
    world.shut_down();
}

/// What one job writes by its schema's id, another reads: both ends, in the other exactly-once mode.
#[test]
fn what_one_job_writes_another_reads_by_its_schema() {
    let mut world = World::with_records(0);
    world.mode = AckModeChoice::Ledger;
    let registry = world.block_on(FakeRegistry::start());
    let second = registry.register("numbers-value", SECOND);
    produce(&world, &(0..300).map(|id| of_second(second, id)).collect::<Vec<_>>());
    let output = registry.register("between-value", SECOND);
    world.block_on(async {
        let topic = sharestream_client::NewTopic::new("between", fixtures::PARTITIONS);
        world.client().admin().create_topic(topic).await.unwrap();
    });
    let mut writes = config(&world);
    let mut avro = AvroOutput::default();
    (avro.schema, avro.schema_id) = (Some(SECOND.to_owned()), Some(SchemaId(output)));
    writes.sink = SinkConfig::to_topic("between").with_format(OutputFormat::Avro(avro));
    let job = start(&world, writes, &registry.url, 1);
    world.wait_until_caught_up(&job);
    job.drain();
    let mut reads = config(&world);
    (reads.job, reads.group, reads.topics) =
        ("reader".to_owned(), "reader".to_owned(), vec!["between".to_owned()]);
    let job = start(&world, reads, &registry.url, 2);
    let clock = Env::system().clock;
    let deadline = clock.now() + fixtures::PATIENCE;
    while world.lag_of("reader", "between") > 0 && clock.now() < deadline {
        world.block_on(clock.sleep(Duration::from_millis(50)));
    }
    job.drain();
    assert_eq!(ids(&world), once(0..300));
    world.shut_down();
}
