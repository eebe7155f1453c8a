//! `verify` must catch the mistakes that exactly-once systems make. Each test plants one of them in an otherwise
//! whole job, runs the job on an embedded broker, and asks the command, which knows nothing of the bug.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, OwnedTask, TaskKind};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_checkpoints::CommitPermit;
use sharestream_client::{
    AcknowledgeType, Client, ClientConfig, NewTopic, Producer, ShareConsumer, ShareConsumerConfig,
    WriterConfig,
};
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::sink::{Router, Sink, SinkFactory, SinkReport};
use sharestream_core::{JobBuilder, JobControl, JobId, Result};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::{KafkaJob, KafkaJobConfig, SinkConfig};

const RECORDS: i64 = 600;
const GROUP: &str = "words";

/// A mistake of the commit protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProtocolBug {
    None,
    SkipOutcome,
    DropRangeFromStaging,
    DropRangeFromOutcome,
}

/// The real protocol with a mistake in it.
struct Planted {
    inner: Box<dyn CommitProtocol>,
    bug: ProtocolBug,
}

impl Planted {
    fn epoch(&self, epoch: &SealedEpoch, bug: ProtocolBug) -> SealedEpoch {
        let mut epoch = epoch.clone();
        if self.bug == bug {
            for member in &mut epoch.decided {
                let all: Vec<_> = member.decisions.ranges().collect();
                member.decisions = Default::default();
                for (partition, range) in all.iter().skip(1) {
                    member.decisions.set(*partition, *range);
                }
            }
        }
        epoch
    }
}

#[async_trait]
impl CommitProtocol for Planted {
    fn mode(&self) -> AckMode {
        self.inner.mode()
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        self.inner.transactional_id(checkpoint)
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        self.inner.recover(request).await
    }

    async fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.inner.open(checkpoint).await
    }

    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        if self.bug == ProtocolBug::SkipOutcome {
            return Ok(());
        }
        let epoch = self.epoch(epoch, ProtocolBug::DropRangeFromOutcome);
        self.inner.write_outcome(&epoch).await
    }

    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()> {
        let epoch = self.epoch(epoch, ProtocolBug::DropRangeFromStaging);
        self.inner.stage(&epoch).await
    }

    async fn commit(&mut self, epoch: &SealedEpoch, permit: CommitPermit) -> Result<CommitReceipt> {
        self.inner.commit(epoch, permit).await
    }

    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        self.inner.visible(epoch)
    }

    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.inner.abort(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}

/// Writes every output twice.
struct WritesTwice(Arc<dyn SinkFactory>);

struct TwiceSink(Box<dyn Sink>);

#[async_trait]
impl Sink for TwiceSink {
    async fn write(&mut self, checkpoint: CheckpointId, rows: RecordBatch) -> Result<()> {
        self.0.write(checkpoint, rows.clone()).await?;
        self.0.write(checkpoint, rows).await
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        self.0.write_rejected(checkpoint, rejected).await
    }

    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport> {
        self.0.flush(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await
    }
}

#[async_trait]
impl SinkFactory for WritesTwice {
    fn name(&self) -> &str {
        "writes-twice"
    }

    fn check_schema(&self, input: SchemaRef) -> Result<()> {
        self.0.check_schema(input)
    }

    async fn create(&self, subtask: usize, subtask_count: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(TwiceSink(self.0.create(subtask, subtask_count).await?)))
    }

    fn router(&self, subtask_count: usize) -> Result<Box<dyn Router>> {
        self.0.router(subtask_count)
    }
}

/// A broker with 600 records, of which every 50th does not parse.
struct Cluster {
    env: Env,
    broker: RunningBroker,
    client: Client,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        let env = Env::system();
        let broker = Broker::builder(env.clone()).start().await.unwrap();
        let config = ClientConfig::with_bootstrap(&broker.bootstrap()).unwrap();
        let client = Client::connect(env.clone(), config).await.unwrap();
        for topic in ["words", "kept", "rejected"] {
            client.admin().create_topic(NewTopic::new(topic, 3)).await.unwrap();
        }
        let configs = [("share.auto.offset.reset".to_owned(), "earliest".to_owned())];
        client.admin().alter_group_config(GROUP, &configs).await.unwrap();
        let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
        for number in 0..RECORDS {
            let key = number.to_string();
            let value = if number % 50 == 0 { "NA,word".to_owned() } else { format!("{number},word") };
            producer.send("words", Some(key.as_bytes()), Some(value.as_bytes()), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster { env, broker, client, folder };
        std::fs::write(cluster.job_file(), cluster.job_text()).unwrap();
        cluster
    }

    fn job_file(&self) -> PathBuf {
        self.folder.path().join("job.toml")
    }

    fn job_text(&self) -> String {
        format!(
            r#"
[job]
name = "words"

[source]
brokers = "{}"
topics = ["words"]
group = "{GROUP}"
format = "csv"
columns = [{{ name = "number", type = "Int64" }}, {{ name = "word", type = "String" }}]

[source.group_config]
share.auto.offset.reset = "earliest"

[sink]
topic = "kept"
format = "json"

[dead_letter]
topic = "rejected"

[ack]
mode = "transactional"
"#,
            self.broker.bootstrap()
        )
    }

    fn config(&self) -> KafkaJobConfig {
        let columns = vec![
            Column::new("number", ColumnType::Int64).not_null(),
            Column::new("word", ColumnType::String).not_null(),
        ];
        let mut config =
            KafkaJobConfig::new("words", GROUP, vec!["words".to_owned()], SinkConfig::to_topic("kept"));
        config.bootstrap = vec![self.broker.bootstrap()];
        config.instance = "main".to_owned();
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        config.dead_letter_topic = Some("rejected".to_owned());
        config
    }

    /// Runs the job until it has committed `records`, then drains it.
    async fn run(&self, bug: ProtocolBug, writes_twice: bool, records: u64) {
        let job = KafkaJob::connect(self.env.clone(), self.config()).await.unwrap();
        let sink = job.sink_factory();
        let sink = if writes_twice { Arc::new(WritesTwice(sink)) } else { sink };
        let protocol = Box::new(Planted { inner: job.commit_protocol(None), bug });
        let graph = JobBuilder::new(JobId::new("words", "main"))
            .source(job.source_factory(), 1)
            .sink(sink, 2)
            .commit(protocol)
            .build()
            .unwrap();
        let control = JobControl::new();
        let mut status = control.status();
        let mut running = OwnedTask::spawn(
            &self.env.spawner,
            "job",
            TaskKind::Job,
            graph.run(self.env.clone(), control.clone()),
        );
        let caught_up = status.wait_for(|status| status.records_in >= records);
        // Only the answer is kept: what `wait_for` returns borrows the status, and the job could not write it.
        let is_caught_up = self.env.clock.timeout(Duration::from_secs(20), caught_up).await.is_ok();
        assert!(is_caught_up, "the job did not catch up");
        control.drain();
        running.join().await.unwrap().unwrap().unwrap();
    }

    async fn verify(&self) -> Output {
        let file = self.job_file();
        let run =
            move || Command::new(env!("CARGO_BIN_EXE_sharestream")).arg("verify").arg(file).output().unwrap();
        sharestream_base::run_blocking("verify", run).await.unwrap()
    }

    /// Runs `verify`, which must exit with `code` and say each of `texts`.
    async fn expect(&self, code: i32, texts: &[&str]) {
        let output = self.verify().await;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{said}");
        for text in texts {
            assert!(said.contains(text), "'{text}' is not in:\n{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_a_bug_is_right() {
    let cluster = Cluster::start().await;
    cluster.run(ProtocolBug::None, false, 600).await;
    cluster.expect(0, &[]).await;
    cluster.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_outcome_record_is_caught() {
    let cluster = Cluster::start().await;
    cluster.run(ProtocolBug::SkipOutcome, false, 600).await;
    cluster.expect(1, &["no committed outcome"]).await;
    cluster.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_dropped_from_the_outcome_record_is_caught() {
    let cluster = Cluster::start().await;
    cluster.run(ProtocolBug::DropRangeFromOutcome, false, 600).await;
    cluster.expect(1, &["no committed outcome"]).await;
    cluster.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_dropped_from_staging_is_caught_before_and_after_its_redelivery() {
    let cluster = Cluster::start().await;
    cluster.run(ProtocolBug::DropRangeFromStaging, false, 600).await;
    cluster.expect(1, &["the group still holds it"]).await;
    // The dropped range comes back and is processed a second time.
    cluster.run(ProtocolBug::None, false, 1).await;
    cluster.expect(1, &["doubled"]).await;
    cluster.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_written_twice_is_caught() {
    let cluster = Cluster::start().await;
    cluster.run(ProtocolBug::None, true, 600).await;
    cluster.expect(1, &["doubled"]).await;
    cluster.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_before_end_txn_is_caught_when_the_job_crashes_between() {
    let cluster = Cluster::start().await;
    let mut config = ShareConsumerConfig::new(GROUP, ["words"]);
    config.max_poll_records = 100;
    let mut consumer = ShareConsumer::join(cluster.client.clone(), config).await.unwrap();
    let mut taken = 0;
    while taken == 0 {
        let records = consumer.poll().await.unwrap();
        for partition in &records.partitions {
            for range in &partition.acquired {
                let (first, last) = (range.first, range.last);
                consumer.acknowledge(
                    partition.topic_id,
                    partition.partition,
                    first,
                    last,
                    AcknowledgeType::Accept,
                );
                taken += 1;
            }
        }
    }
    // Acknowledged for good; the transaction with the outputs dies with the process that never sent EndTxn.
    consumer.commit_acknowledgements().await.unwrap();
    consumer.close().await.unwrap();
    cluster.run(ProtocolBug::None, false, 1).await;
    cluster.expect(1, &["lost"]).await;
    cluster.broker.shutdown().await;
}
