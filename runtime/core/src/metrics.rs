//! What is measured of a job for monitoring: plain numbers, recorded as they come and read when somebody asks.
//!
//! Nothing here decides anything, and nothing here knows a monitoring system: an exporter reads [`JobMetrics`] and gives
//! the figures their names. Counts that the job shows anyway are in [`crate::JobStatus`] and not repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ErrorKind;

use crate::source::{PartitionLoad, SourceCounters};
use crate::task::gauges::Gauges;

/// A step of a checkpoint whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CheckpointStep {
    /// From sending the barrier until the last source and operator have passed it on.
    Align,
    /// From there until the last sink has written everything before it.
    Flush,
    /// Writing the pending manifest; nothing without a checkpoint store.
    Manifest,
    /// Writing the outcome record, the last write of the transaction, until it is acknowledged.
    Outcome,
    /// Staging the acknowledgements at every source leader.
    Stage,
    /// Ending the transaction, until its outcome is known.
    EndTxn,
    /// Writing the completed manifest; nothing without a checkpoint store.
    Complete,
    /// From the known commit until it is visible everywhere (a sample of the checkpoints).
    Visible,
}

impl CheckpointStep {
    /// All steps, in order.
    pub const ALL: [CheckpointStep; 8] = [
        CheckpointStep::Align,
        CheckpointStep::Flush,
        CheckpointStep::Manifest,
        CheckpointStep::Outcome,
        CheckpointStep::Stage,
        CheckpointStep::EndTxn,
        CheckpointStep::Complete,
        CheckpointStep::Visible,
    ];

    /// Its name in metrics and traces; stable.
    pub const fn name(self) -> &'static str {
        match self {
            CheckpointStep::Align => "align",
            CheckpointStep::Flush => "flush",
            CheckpointStep::Manifest => "manifest",
            CheckpointStep::Outcome => "outcome",
            CheckpointStep::Stage => "stage",
            CheckpointStep::EndTxn => "end_txn",
            CheckpointStep::Complete => "complete",
            CheckpointStep::Visible => "visible",
        }
    }
}

/// Upper bounds of measured times, in seconds: from a quick local step to the longest deadline in the path.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Upper bounds of records in a checkpoint.
const RECORDS: &[f64] = &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
/// Upper bounds of payload bytes in a checkpoint, in steps of four.
const BYTES: &[f64] = &[
    1_024.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
];

/// Counts of values by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        self.counts[index] += 1;
        self.sum += value;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper bounds (inclusive, rising, the last one infinite) with the number of values that are above the bound before.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().copied().chain([f64::INFINITY]).zip(self.counts.iter().copied())
    }
}

/// What is measured of a job, over all attempts of one [`crate::JobControl`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobMetrics {
    /// Committed checkpoints by what caused them: `idle`, `rows`, `bytes`, `window`, `interval`, `drain`.
    pub checkpoints: BTreeMap<&'static str, u64>,
    /// From sending the barrier to the known commit, in seconds.
    pub checkpoint_seconds: Histogram,
    /// Times of the steps of committed checkpoints, in seconds.
    pub step_seconds: BTreeMap<CheckpointStep, Histogram>,
    /// Source records of a committed checkpoint, bad ones included, gaps not.
    pub checkpoint_records: Histogram,
    /// Payload bytes of its source records: keys, values and headers.
    pub checkpoint_bytes: Histogram,
    /// Offsets that committed checkpoints decided, gaps included.
    pub decided_offsets: u64,
    /// Bytes of pending manifests that were written.
    pub manifest_bytes: u64,
    /// Transactions that were aborted because an attempt failed.
    pub aborted_transactions: u64,
    /// Attempts that failed because something of them was fenced.
    pub fenced: u64,
    /// Failed attempts by kind of their error.
    pub failures: BTreeMap<String, u64>,
    /// Locks and deliveries, over all source subtasks.
    pub source: SourceCounters,
    /// Records near the delivery limit that were given up before the broker would drop them.
    pub given_up: u64,
    /// What the sources of the running attempt hold of each partition, in order of topic and partition.
    pub partitions: Vec<PartitionLoad>,
}

impl Default for JobMetrics {
    fn default() -> Self {
        JobMetrics {
            checkpoints: BTreeMap::new(),
            checkpoint_seconds: Histogram::new(SECONDS),
            step_seconds: CheckpointStep::ALL.map(|step| (step, Histogram::new(SECONDS))).into(),
            checkpoint_records: Histogram::new(RECORDS),
            checkpoint_bytes: Histogram::new(BYTES),
            decided_offsets: 0,
            manifest_bytes: 0,
            aborted_transactions: 0,
            fenced: 0,
            failures: BTreeMap::new(),
            source: SourceCounters::default(),
            given_up: 0,
            partitions: Vec::new(),
        }
    }
}

/// What was measured of one committed checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointFigures {
    pub(crate) reason: &'static str,
    /// From sending the barrier to the known commit.
    pub(crate) took: Duration,
    pub(crate) steps: Vec<(CheckpointStep, Duration)>,
    pub(crate) record_count: u64,
    pub(crate) byte_count: u64,
    pub(crate) offset_count: u64,
    pub(crate) manifest_bytes: u64,
}

/// Keeps the figures of one job. Locks are held for a few additions only.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: JobMetrics,
    /// The sources of the running attempt; what they count is not in `metrics` yet.
    sources: Option<Arc<Gauges>>,
}

impl State {
    /// Adds what ended sources have counted.
    fn retire_sources(&mut self) {
        if let Some(sources) = self.sources.take() {
            self.metrics.source.add(&sources.counters());
            self.metrics.given_up += sources.metrics().given_up;
        }
    }
}

impl Recorder {
    /// The sources of a new attempt are counted from here on.
    pub(crate) fn attach(&self, sources: Arc<Gauges>) {
        let mut state = self.lock();
        state.retire_sources();
        state.sources = Some(sources);
    }

    /// The attempt has ended: what its sources counted stays, what they held is no longer held.
    pub(crate) fn detach(&self) {
        self.lock().retire_sources();
    }

    /// A checkpoint is committed.
    pub(crate) fn checkpoint(&self, figures: &CheckpointFigures) {
        let metrics = &mut self.lock().metrics;
        *metrics.checkpoints.entry(figures.reason).or_default() += 1;
        metrics.checkpoint_seconds.observe(figures.took.as_secs_f64());
        for (step, took) in &figures.steps {
            observe_step(metrics, *step, *took);
        }
        metrics.checkpoint_records.observe(figures.record_count as f64);
        metrics.checkpoint_bytes.observe(figures.byte_count as f64);
        metrics.decided_offsets += figures.offset_count;
        metrics.manifest_bytes += figures.manifest_bytes;
    }

    /// A checkpoint was seen to be visible, so long after its commit was known.
    pub(crate) fn visible(&self, took: Duration) {
        observe_step(&mut self.lock().metrics, CheckpointStep::Visible, took);
    }

    /// A transaction was aborted.
    pub(crate) fn aborted(&self) {
        self.lock().metrics.aborted_transactions += 1;
    }

    /// An attempt fails because it was fenced.
    pub(crate) fn fenced(&self) {
        self.lock().metrics.fenced += 1;
    }

    /// An attempt has failed.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        *self.lock().metrics.failures.entry(kind.to_string()).or_default() += 1;
    }

    /// The figures now.
    pub(crate) fn snapshot(&self) -> JobMetrics {
        let state = self.lock();
        let mut metrics = state.metrics.clone();
        if let Some(sources) = &state.sources {
            let running = sources.metrics();
            metrics.source.add(&sources.counters());
            metrics.given_up += running.given_up;
            metrics.partitions = running.partitions;
        }
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is a few additions: whatever panicked beside them, the figures stay valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn observe_step(metrics: &mut JobMetrics, step: CheckpointStep, took: Duration) {
    let histogram = metrics.step_seconds.entry(step).or_insert_with(|| Histogram::new(SECONDS));
    histogram.observe(took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::PartitionIndex;

    use super::*;
    use crate::source::{InFlight, PartitionLoad, SourceMetrics};

    #[test]
    fn a_value_on_a_bound_counts_below_it_and_a_huge_one_above_all() {
        let mut histogram = Histogram::new(RECORDS);
        for value in [0.0, 1.0, 1.5, 10.0, 1e9] {
            histogram.observe(value);
        }
        let buckets: Vec<(f64, u64)> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(buckets, [(1.0, 2), (10.0, 2), (f64::INFINITY, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 1e9 + 12.5));
    }

    #[test]
    fn counts_of_sources_go_on_over_attempts_and_their_load_does_not() {
        let recorder = Recorder::default();
        let load = |topic: &str, in_flight, window_fill| PartitionLoad {
            topic: topic.into(),
            partition: PartitionIndex(0),
            in_flight,
            window_fill,
        };
        for (attempt, redeliveries) in [(1, 5), (2, 7)] {
            let gauges = Gauges::new(2, 0);
            recorder.attach(gauges.clone());
            let counters = SourceCounters { redeliveries, ..SourceCounters::default() };
            gauges.refresh(0, InFlight { counters, ..InFlight::default() });
            gauges.show(0, SourceMetrics { given_up: 0, partitions: vec![load("a", 4, 0.5)] });
            let partitions = vec![load("a", 1, 0.25), load("b", 2, 0.1)];
            gauges.show(1, SourceMetrics { given_up: 1, partitions });
            let metrics = recorder.snapshot();
            assert_eq!(metrics.given_up, attempt);
            // Two members of one process share a partition: what they hold adds up, the wider window counts.
            assert_eq!(metrics.partitions, [load("a", 5, 0.5), load("b", 2, 0.1)]);
        }
        assert_eq!(recorder.snapshot().source.redeliveries, 12);
        recorder.detach();
        recorder.detach();
        let metrics = recorder.snapshot();
        assert_eq!((metrics.source.redeliveries, metrics.given_up, metrics.partitions.len()), (12, 2, 0));
    }
}
