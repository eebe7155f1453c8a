//! A whole job with exactly the rights that `docs/security.md` says it needs, in transactional and in ledger mode.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::access::{Operation, Principal, ResourcePattern};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    Client, ClientConfig, Isolation, NewTopic, OffsetSpec, PartitionReader, Producer, SecuritySettings,
    WriterConfig, committed_records,
};
use sharestream_core::{JobBuilder, JobControl, JobId, JobOptions, JobReport, Result};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, SinkConfig, check};

const RECORDS: i64 = 20;
const OUTCOMES: &str = "sharestream-outcomes";
const PATIENCE: Duration = Duration::from_secs(30);

/// The rows of the page for a job that makes no topic and has no group settings.
fn rights() -> Vec<(Operation, ResourcePattern)> {
    use Operation::{Describe, Read, Write};
    let topic = |name: &str| ResourcePattern::topic(name);
    let mut rights = vec![(Read, topic(OUTCOMES))];
    for source in [topic("words"), ResourcePattern::group("group")] {
        rights.extend([(Read, source.clone()), (Describe, source)]);
    }
    let ids = ResourcePattern::transactional_id("job.0.").prefixed();
    for output in [topic("counts"), topic("dead"), topic(OUTCOMES), ids] {
        rights.extend([(Write, output.clone()), (Describe, output)]);
    }
    rights
}

fn security(folder: &Path, user: &str) -> SecuritySettings {
    let file = folder.join(user);
    std::fs::write(&file, format!("{user}-secret")).unwrap();
    let properties: BTreeMap<String, String> = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", user),
        ("sasl.password.file", file.to_str().unwrap()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    SecuritySettings::from_properties(&properties).unwrap()
}

struct World {
    broker: RunningBroker,
    admin: Client,
    config: KafkaJobConfig,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(mode: AckModeChoice, rights: Vec<(Operation, ResourcePattern)>) -> World {
        let folder = tempfile::tempdir().unwrap();
        let users = [("admin", "admin-secret"), ("job", "job-secret")];
        let builder = Broker::builder(Env::system()).users(users).super_user(Principal::user("admin"));
        let allow = |builder: sharestream_broker::BrokerBuilder, (operation, on)| {
            builder.allow(Principal::user("job"), operation, on)
        };
        let broker = rights.into_iter().fold(builder, allow).start().await.unwrap();
        let settings = ClientConfig::with_bootstrap(&broker.bootstrap()).unwrap();
        let settings = settings.with_security(security(folder.path(), "admin"));
        let admin = Client::connect(Env::system(), settings).await.unwrap();
        let outcomes = NewTopic::new(OUTCOMES, 1).with_config("cleanup.policy", "compact");
        let plain = ["words", "counts", "dead"].map(|name| NewTopic::new(name, 1));
        for topic in plain.into_iter().chain([outcomes]) {
            admin.admin().create_topic(topic).await.unwrap();
        }
        let earliest = [("share.auto.offset.reset".to_owned(), "earliest".to_owned())];
        admin.admin().alter_group_config("group", &earliest).await.unwrap();
        let mut producer = Producer::connect(admin.clone(), WriterConfig::default()).await.unwrap();
        for id in 0..RECORDS {
            // One of them does not decode.
            let value = if id == 7 { "seven".to_owned() } else { id.to_string() };
            producer.send("words", None, Some(value.as_bytes()), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
        let mut config =
            KafkaJobConfig::new("job", "group", vec!["words".to_owned()], SinkConfig::to_topic("counts"));
        config.bootstrap = vec![broker.bootstrap()];
        config.security = security(folder.path(), "job");
        config.mode = mode;
        config.dead_letter_topic = Some("dead".to_owned());
        config.outcome_topic = OUTCOMES.to_owned();
        let columns = vec![Column::new("id", ColumnType::Int64)];
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        World { broker, admin, config, _folder: folder }
    }

    async fn run(&self, control: JobControl) -> Result<JobReport> {
        let id = JobId::new(&self.config.job, &self.config.instance);
        let kafka = KafkaJob::connect(Env::system(), self.config.clone()).await?;
        let options = JobOptions::default().with_checkpoint_interval(Duration::from_millis(20));
        let job = JobBuilder::new(id)
            .source(kafka.source_factory(), 1)
            .sink(kafka.sink_factory(), 1)
            .commit(kafka.commit_protocol(None))
            .options(options)
            .build()?;
        job.run(Env::system(), control).await
    }

    async fn committed_count(&self, topic: &str) -> usize {
        let partition = PartitionIndex(0);
        let ends = self.admin.admin().list_offsets(topic, &[partition], OffsetSpec::Latest).await.unwrap();
        let mut reader = PartitionReader::new(self.admin.clone());
        let (mut next, mut count) = (Offset(0), 0);
        while next < ends[&partition] {
            let (isolation, wait) = (Isolation::ReadCommitted, Duration::from_millis(10));
            let fetched = reader.fetch(topic, partition, next, isolation, 1 << 20, wait).await.unwrap();
            let moved = fetched.next_offset(next);
            if moved == next {
                break;
            }
            next = moved;
            let batches = committed_records(&fetched).unwrap();
            count += batches.iter().map(|batch| batch.records().unwrap().iter().count()).sum::<usize>();
        }
        count
    }

    /// Waits until everything is in the output or in the dead letters, then lets the job end.
    async fn end_when_done(&self, control: &JobControl) {
        let clock = Env::system().clock;
        let deadline = clock.now() + PATIENCE;
        while self.committed_count("counts").await + self.committed_count("dead").await < RECORDS as usize {
            assert!(clock.now() < deadline, "{:?}", control.snapshot());
            clock.sleep(Duration::from_millis(20)).await;
        }
        control.drain();
    }
}

async fn a_job_runs(mode: AckModeChoice) {
    let world = World::start(mode, rights()).await;
    let control = JobControl::new();
    let both = async { tokio::join!(world.run(control.clone()), world.end_when_done(&control)) };
    let (report, ()) = Env::system().clock.timeout(PATIENCE, Box::pin(both)).await.expect("it ends in time");
    report.unwrap();
    assert_eq!(world.committed_count("counts").await, RECORDS as usize - 1);
    assert_eq!(world.committed_count("dead").await, 1);
    world.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transactional_job_runs_with_the_rights_of_the_page() {
    Box::pin(a_job_runs(AckModeChoice::Transactional)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_job_runs_with_the_rights_of_the_page() {
    Box::pin(a_job_runs(AckModeChoice::Ledger)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_may_not_read_its_source_says_so() {
    let denied = (Operation::Read, ResourcePattern::topic("words"));
    let rights = rights().into_iter().filter(|right| *right != denied).collect();
    let world = World::start(AckModeChoice::Transactional, rights).await;
    let run = Env::system().clock.timeout(PATIENCE, Box::pin(world.run(JobControl::new()))).await;
    let error = run.expect("it ends in time").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let text = error.to_string();
    assert!(text.contains("'User:job' needs an ACL for Read on topic 'words'"), "{text}");
    world.broker.shutdown().await;
}

/// What a check finds for a user with these rights.
async fn findings(rights: Vec<(Operation, ResourcePattern)>) -> Vec<check::Finding> {
    let world = World::start(AckModeChoice::Ledger, rights).await;
    let settings = ClientConfig::with_bootstrap(&world.broker.bootstrap()).unwrap();
    let settings = settings.with_security(world.config.security.clone());
    let client = Client::connect(Env::system(), settings).await.unwrap();
    let options = JobOptions::default()
        .with_barrier_alignment_timeout(Duration::from_secs(2))
        .with_commit_deadline(Duration::from_secs(25));
    let report = check::job(&client, &world.config, &options, None).await;
    assert_eq!(world.admin.admin().list_transactions().await.unwrap(), [], "no id was touched");
    assert_eq!(world.admin.admin().list_share_groups().await.unwrap(), [], "nobody joined");
    world.broker.shutdown().await;
    report.findings
}

fn refused(findings: &[check::Finding]) -> Vec<String> {
    let refused = findings.iter().filter(|finding| finding.weight == check::Weight::Refused);
    refused.map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_finds_every_right_that_is_missing_without_using_one() {
    let all = findings(rights()).await;
    assert_eq!(refused(&all), Vec::<String>::new());
    let told: Vec<&str> = all
        .iter()
        .filter(|finding| finding.area == check::Area::Rights && finding.weight == check::Weight::Warning)
        .map(|finding| finding.name)
        .collect();
    assert_eq!(told, ["topic-settings", "topic-settings", "topic-settings", "group"], "{all:#?}");
    for missing in rights() {
        // To read or write is to describe, so DESCRIBE is missing only where nothing else implies it.
        let only_describe = missing.0 == Operation::Describe;
        let left = rights().into_iter();
        let left = left.filter(|right| *right != missing && !(only_describe && right.1 == missing.1));
        let found = refused(&findings(left.collect()).await);
        let what = format!("{:?} on {:?}", missing.0, missing.1);
        assert!(!found.is_empty(), "without {what}");
        let needs = format!("'User:job' needs an ACL for {:?} on", missing.0);
        assert!(found.iter().any(|text| text.contains(&needs)), "without {what}: {found:#?}");
    }
}
