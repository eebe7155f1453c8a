//! What the engine itself costs, with parts that do nothing. Run it in release:
//! `cargo test --release -p sharestream-core --test engine -- --ignored --nocapture throughput`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use sharestream_base::ids::{CheckpointId, MemberEpoch};
use sharestream_base::{Clock, Env, Instant};
use sharestream_checkpoints::CommitPermit;
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::decision::{DecidedRange, Decision, Decisions, MemberDecisions, ShareMember};
use sharestream_core::operator::{Operator, OperatorFactory, OperatorOutput};
use sharestream_core::sink::{Router, Sink, SinkFactory, SinkReport};
use sharestream_core::source::{InFlight, Source, SourceEvent, SourceFactory, SourceReport};
use sharestream_core::{JobBuilder, JobControl, JobId, Result};

use crate::fixtures::{Row, rows};

const BATCH_ROWS: i64 = 1_000;

/// The report of an epoch that accepts the offsets `first..end` of one partition, by one member.
pub fn accepted(first: i64, end: i64) -> SourceReport {
    let mut decisions = Decisions::new();
    let row = Row { partition: 0, offset: 0 };
    let range = DecidedRange { first: first.into(), last: (end - 1).into(), decision: Decision::Accept };
    decisions.set(row.source_partition(), range);
    let record_count = (end - first) as u64;
    let member =
        ShareMember { group_id: "g".to_owned(), member_id: "m".to_owned(), member_epoch: MemberEpoch(1) };
    let decided = vec![MemberDecisions { member, decisions }];
    SourceReport { decided, record_count, byte_count: record_count, ..SourceReport::default() }
}

/// Hands on one batch each `pause`, and then runs dry, so that every batch is an epoch.
#[derive(Clone)]
struct Paced {
    clock: Clock,
    batch: RecordBatch,
    pause: Duration,
    next_at: Instant,
    is_dry: bool,
    offset: i64,
    barrier_count: Arc<AtomicU64>,
    first: i64,
}

#[async_trait]
impl Source for Paced {
    async fn next(&mut self) -> Result<SourceEvent> {
        if self.is_dry {
            self.is_dry = false;
            return Ok(SourceEvent::Idle);
        }
        if !self.pause.is_zero() {
            self.clock.sleep_until(self.next_at).await;
            self.next_at += self.pause;
            self.is_dry = true;
        }
        self.offset += BATCH_ROWS;
        Ok(SourceEvent::Records { rows: Some(self.batch.clone()), rejected: None })
    }

    async fn barrier(&mut self, _checkpoint: CheckpointId) -> Result<SourceReport> {
        self.barrier_count.fetch_add(1, Ordering::Relaxed);
        let report = accepted(self.first, self.offset);
        self.first = self.offset;
        Ok(report)
    }

    fn in_flight(&self) -> InFlight {
        let record_count = (self.offset - self.first) as u64;
        InFlight { record_count, byte_count: record_count, ..InFlight::default() }
    }

    async fn committed(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        Ok(())
    }

    async fn stop_acquiring(&mut self) -> Result<()> {
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl SourceFactory for Paced {
    fn name(&self) -> &str {
        "paced"
    }

    fn schema(&self) -> SchemaRef {
        rows::schema()
    }

    async fn create(&self, _subtask: usize) -> Result<Box<dyn Source>> {
        Ok(Box::new(Paced { next_at: self.clock.now(), ..self.clone() }))
    }
}

pub struct Nothing;

impl Operator for Nothing {
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        Ok(OperatorOutput { rows: Some(batch), rejected: None })
    }
}

impl OperatorFactory for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        Ok(input)
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Nothing))
    }
}

impl Router for Nothing {
    fn route(&mut self, batch: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let half = batch.num_rows() / 2;
        Ok(vec![(0, batch.slice(0, half)), (1, batch.slice(half, batch.num_rows() - half))])
    }
}

#[derive(Default)]
struct Counting(u64);

#[async_trait]
impl Sink for Counting {
    async fn write(&mut self, _checkpoint: CheckpointId, batch: RecordBatch) -> Result<()> {
        self.0 += batch.num_rows() as u64;
        Ok(())
    }

    async fn write_rejected(&mut self, _checkpoint: CheckpointId, _rejected: RecordBatch) -> Result<()> {
        Ok(())
    }

    async fn flush(&mut self, _checkpoint: CheckpointId) -> Result<SinkReport> {
        Ok(SinkReport { row_count: std::mem::take(&mut self.0), ..SinkReport::default() })
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl SinkFactory for Nothing {
    fn name(&self) -> &str {
        "counting"
    }

    fn check_schema(&self, _input: SchemaRef) -> Result<()> {
        Ok(())
    }

    async fn create(&self, _subtask: usize, _subtask_count: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Counting::default()))
    }

    fn router(&self, _subtask_count: usize) -> Result<Box<dyn Router>> {
        Ok(Box::new(Nothing))
    }
}

#[async_trait]
impl CommitProtocol for Nothing {
    fn mode(&self) -> AckMode {
        AckMode::AtLeastOnce
    }

    fn transactional_id(&self, _checkpoint: CheckpointId) -> Option<String> {
        None
    }

    async fn recover(&mut self, _request: RecoverRequest) -> Result<LastCommitted> {
        Ok(LastCommitted::default())
    }

    async fn open(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        Ok(())
    }

    async fn write_outcome(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        Ok(())
    }

    async fn stage(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        Ok(())
    }

    async fn commit(&mut self, _epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        Ok(CommitReceipt::default())
    }

    fn visible(&mut self, _epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        async { Ok(()) }.boxed()
    }

    async fn abort(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// User and system time of this process, where the system tells.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

async fn measure(name: &str, pause: Duration) {
    let env = Env::system();
    let all: Vec<Row> = (0..BATCH_ROWS).map(|offset| Row { partition: 0, offset }).collect();
    let source = Paced {
        clock: env.clock.clone(),
        batch: rows::batch(&all).unwrap(),
        pause,
        next_at: env.clock.now(),
        is_dry: false,
        offset: 0,
        barrier_count: Arc::default(),
        first: 0,
    };
    let job = JobBuilder::new(JobId::new("throughput", "0"))
        .source(Arc::new(source), 1)
        .operator(Arc::new(Nothing))
        .sink(Arc::new(Nothing), 2)
        .commit(Box::new(Nothing))
        .build()
        .unwrap();
    let control = JobControl::new();
    let (started_at, cpu_before) = (env.clock.now(), cpu_time());
    let (report, ()) = tokio::join!(job.run(env.clone(), control.clone()), async {
        env.clock.sleep(Duration::from_secs(5)).await;
        control.drain();
    });
    let seconds = (env.clock.now() - started_at).as_secs_f64();
    let status = report.unwrap().status;
    let cpu = cpu_before.zip(cpu_time()).map(|(before, after)| (after - before).as_secs_f64() / seconds);
    println!(
        "{name}: {:.0} rows/s, {:.0} epochs/s, cpu {:?} cores, barrier_ms {:?}, commit_ms {:?}",
        status.rows_out as f64 / seconds,
        status.commits as f64 / seconds,
        cpu,
        status.barrier_ms,
        status.commit_ms,
    );
    assert_eq!(status.records_in, status.rows_out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it alone, in release"]
async fn throughput() {
    measure("400k rows/s, an epoch for each batch of 1,000", Duration::from_micros(2_500)).await;
    measure("unpaced", Duration::ZERO).await;
}
