//! Epochs that are aborted before they are staged are processed again from memory: no record is delivered twice for it.
//! Staged ones cost what was staged a delivery, and nothing else (DESIGN section 2, Abort; ADR 0026).

#![allow(clippy::unwrap_used, reason = "a test")]

mod fixtures;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::Env;
use sharestream_base::ids::{CheckpointId, JobEpoch, TopicId};
use sharestream_checkpoints::CommitPermit;
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::sink::{Router, Sink, SinkFactory, SinkReport};
use sharestream_core::{Error, ErrorKind, JobBuilder, JobId, JobReport, Result};
use sharestream_kafka::{AckModeChoice, KafkaJob};

use fixtures::{ByFate, Findings, RunningJob, World};

const RECORDS: i64 = 3_000;

/// Where the job fails, once, when some epochs have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    SinkWrite,
    SinkHangs,
    Outcome,
    /// As after a lost answer: everything is staged, and the call fails.
    Staged,
    /// Staged and committed, and nobody hears of it.
    Committed,
}

/// Fails once at its place.
#[derive(Clone, Debug)]
struct Failure {
    place: Place,
    is_due: Arc<AtomicBool>,
    /// Commits that go well first.
    commits_left: Arc<AtomicI64>,
}

impl Failure {
    fn at(place: Place) -> Self {
        Failure { place, is_due: Arc::new(AtomicBool::new(true)), commits_left: Arc::new(AtomicI64::new(3)) }
    }

    fn is_now(&self, place: Place) -> bool {
        self.place == place
            && self.commits_left.load(Ordering::Relaxed) <= 0
            && self.is_due.swap(false, Ordering::Relaxed)
    }

    fn fail_at(&self, place: Place, kind: ErrorKind) -> Result<()> {
        if self.is_now(place) { Err(Error::new(kind, format!("planned: {place:?}"))) } else { Ok(()) }
    }
}

struct FailingSinks(Arc<dyn SinkFactory>, Failure);

struct FailingSink(Box<dyn Sink>, Failure);

#[async_trait]
impl SinkFactory for FailingSinks {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn check_schema(&self, input: SchemaRef) -> Result<()> {
        self.0.check_schema(input)
    }

    async fn create(&self, subtask: usize, subtask_count: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(FailingSink(self.0.create(subtask, subtask_count).await?, self.1.clone())))
    }

    fn router(&self, subtask_count: usize) -> Result<Box<dyn Router>> {
        self.0.router(subtask_count)
    }
}

#[async_trait]
impl Sink for FailingSink {
    async fn write(&mut self, checkpoint: CheckpointId, batch: RecordBatch) -> Result<()> {
        self.1.fail_at(Place::SinkWrite, ErrorKind::Abort)?;
        // So that the source is not through before the first barrier comes.
        Env::system().clock.sleep(Duration::from_millis(2)).await;
        self.0.write(checkpoint, batch).await
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, batch: RecordBatch) -> Result<()> {
        self.0.write_rejected(checkpoint, batch).await
    }

    async fn idle(&mut self) -> Result<()> {
        self.0.idle().await
    }

    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport> {
        if self.1.is_now(Place::SinkHangs) {
            std::future::pending::<()>().await;
        }
        self.0.flush(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await
    }
}

struct FailingProtocol(Box<dyn CommitProtocol>, Failure);

#[async_trait]
impl CommitProtocol for FailingProtocol {
    fn mode(&self) -> AckMode {
        self.0.mode()
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        self.0.transactional_id(checkpoint)
    }

    fn outcome_topic_id(&self) -> Option<TopicId> {
        self.0.outcome_topic_id()
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        self.0.recover(request).await
    }

    async fn check_not_replaced(&mut self) -> Result<()> {
        self.0.check_not_replaced().await
    }

    async fn last_job_epoch(&mut self) -> Result<Option<JobEpoch>> {
        self.0.last_job_epoch().await
    }

    async fn still_owns(&mut self) -> Result<bool> {
        self.0.still_owns().await
    }

    async fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.0.open(checkpoint).await
    }

    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.1.fail_at(Place::Outcome, ErrorKind::Retry)?;
        self.0.write_outcome(epoch).await
    }

    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.0.stage(epoch).await?;
        self.1.fail_at(Place::Staged, ErrorKind::Abort)
    }

    async fn commit(&mut self, epoch: &SealedEpoch, permit: CommitPermit) -> Result<CommitReceipt> {
        let receipt = self.0.commit(epoch, permit).await?;
        self.1.fail_at(Place::Committed, ErrorKind::Indeterminate)?;
        self.1.commits_left.fetch_sub(1, Ordering::Relaxed);
        Ok(receipt)
    }

    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        self.0.visible(epoch)
    }

    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.0.abort(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await
    }
}

fn start(world: &World, failure: &Failure, parallelism: usize) -> RunningJob {
    let failure = failure.clone();
    let mut config = world.config();
    config.batch_rows_max = 50;
    world.start_built(config, true, move |kafka: &KafkaJob| {
        JobBuilder::new(JobId::new(&kafka.config().job, &kafka.config().instance))
            .source(kafka.source_factory(), parallelism)
            .operator(Arc::new(ByFate))
            .sink(Arc::new(FailingSinks(kafka.sink_factory(), failure.clone())), parallelism)
            .commit(Box::new(FailingProtocol(kafka.commit_protocol(None), failure.clone())))
    })
}

/// Runs a job that fails once at this place. Gives its report, how many records were delivered again and how many were
/// staged, or in a commit nobody heard of, when it failed.
fn run(place: Place, mode: AckModeChoice, parallelism: usize) -> (JobReport, u64) {
    let mut world = World::with_records(RECORDS);
    world.mode = mode;
    world.options = world
        .options
        .clone()
        // Several epochs of some hundred records each, so that one is open while another fails.
        .with_epoch_rows_max(200)
        .with_channel_rows_max(50)
        .with_barrier_alignment_timeout(Duration::from_millis(500));
    let failure = Failure::at(place);
    let job = start(&world, &failure, parallelism);
    world.wait_until_caught_up(&job);
    assert!(!failure.is_due.load(Ordering::Relaxed), "{place:?} was not reached");
    let control = job.control.clone();
    let report = job.drain();
    assert_eq!(report.status.attempts, 2, "{place:?}: {:?}", report.status);
    assert_eq!(world.check_output(RECORDS), Findings::default(), "{place:?}");
    let redeliveries = control.metrics().source.redeliveries;
    world.shut_down();
    (report, redeliveries)
}

#[test]
fn an_abort_before_staging_costs_no_delivery() {
    for place in [Place::SinkWrite, Place::SinkHangs, Place::Outcome] {
        for parallelism in [1, 2] {
            let (_, redeliveries) = run(place, AckModeChoice::Transactional, parallelism);
            assert_eq!(redeliveries, 0, "{place:?} with {parallelism} sources");
        }
    }
}

#[test]
fn in_ledger_mode_an_abort_before_the_commit_costs_no_delivery() {
    for place in [Place::SinkWrite, Place::SinkHangs, Place::Outcome, Place::Staged] {
        let (_, redeliveries) = run(place, AckModeChoice::Ledger, 1);
        assert_eq!(redeliveries, 0, "{place:?}");
    }
}

#[test]
fn an_abort_after_staging_costs_only_what_was_staged_a_delivery() {
    let (_, redeliveries) = run(Place::Staged, AckModeChoice::Transactional, 1);
    assert!(redeliveries > 0, "what was staged is available to anyone, us included");
    // A poll is handed on in whole batches, so an epoch may be somewhat larger than its budget; the open one is not less.
    assert!(redeliveries <= 1_000, "{redeliveries} of {RECORDS}: the next epoch was kept");
}

#[test]
fn a_commit_that_nobody_heard_of_is_found_and_nothing_of_it_is_processed_again() {
    let (_, redeliveries) = run(Place::Committed, AckModeChoice::Transactional, 1);
    assert_eq!(redeliveries, 0);
    // Its acknowledgements follow the commit: they are given with a delivery that nobody processes.
    run(Place::Committed, AckModeChoice::Ledger, 1);
}
