//! The load of the sources and of the subtasks that call out, as the coordinator's controller reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::Instant;
use tokio::sync::Notify;

use crate::async_map::{AsyncRow, LineLoad};
use crate::controller::Load;
use crate::coordinates::Coordinates;
use crate::remote::GaugesShown;
use crate::source::{Delivery, InFlight, PartitionLoad, SourceCounters, SourceMetrics};

/// A source subtask.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceGauge {
    pub(crate) in_flight: InFlight,
    pub(crate) is_idle: bool,
    pub(crate) oldest_at: Option<Instant>,
}

/// A row that is worked on.
#[derive(Clone, Debug)]
pub(crate) enum OldestCall {
    Here(AsyncRow),
    /// In another process: topic, partition, offset.
    Elsewhere(String, i32, i64),
}

impl OldestCall {
    /// Topic, partition and offset. `None`: its batch has no hidden columns, with which the operator fails and says so.
    pub(crate) fn place(&self) -> Option<(String, i32, i64)> {
        match self {
            OldestCall::Here(row) => {
                // A batch without its hidden columns fails in the operator, which says so.
                let hidden = Coordinates::of(row.batch()).ok()?;
                // Of a record that was parked, its copy holds back a partition.
                let copy = hidden.parked_copy(row.index()).ok()?;
                let (source, offset) = hidden.source(row.index()).ok()?;
                let topic = match copy {
                    Some(copy) => copy.topic.to_string(),
                    None => hidden.topics.text(row.index()).to_owned(),
                };
                Some((topic, source.partition.0, offset.0))
            }
            OldestCall::Elsewhere(topic, partition, offset) => Some((topic.clone(), *partition, *offset)),
        }
    }
}

/// A subtask that calls out.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallGauge {
    pub(crate) running_count: usize,
    pub(crate) waiting_count: usize,
    pub(crate) retry_count: u64,
    /// Rows that the last barrier passed.
    pub(crate) deferred_count: u64,
    pub(crate) is_holding: bool,
    /// As many calls run as may.
    pub(crate) is_saturated: bool,
    /// The row that came first of those that are not done, and when it came.
    pub(crate) oldest: Option<(OldestCall, Instant)>,
    /// Rows that were done since the last barrier, and when the first of them was.
    pub(crate) done_count: u64,
    pub(crate) done_at: Option<Instant>,
}

#[derive(Debug)]
struct State {
    sources: Vec<SourceGauge>,
    calls: Vec<CallGauge>,
}

/// One gauge for each source subtask and each one that calls out. Written by the tasks, read by the coordinator, which
/// is woken by every change.
#[derive(Debug)]
pub(crate) struct Gauges {
    state: Mutex<State>,
    /// For monitoring only: nobody is woken by them.
    metrics: Mutex<Vec<Shown>>,
    changed: Notify,
}

/// The figures of one source subtask.
#[derive(Clone, Debug, Default)]
struct Shown {
    metrics: SourceMetrics,
    at: Option<Instant>,
}

/// Figures for monitoring are at most this old while a source hands on.
const METRICS_INTERVAL: Duration = Duration::from_millis(100);

impl Gauges {
    pub(crate) fn new(source_count: usize, call_count: usize) -> Arc<Self> {
        let state = State {
            sources: vec![SourceGauge::default(); source_count],
            calls: vec![CallGauge::default(); call_count],
        };
        Arc::new(Gauges {
            state: Mutex::new(state),
            metrics: Mutex::new(vec![Shown::default(); source_count]),
            changed: Notify::new(),
        })
    }

    /// Whether the figures of this subtask are old enough to be read again; then they count as read at `now`.
    pub(crate) fn metrics_due(&self, subtask: usize, now: Instant) -> bool {
        let shown = &mut self.lock_metrics()[subtask];
        let due = shown.at.is_none_or(|at| now.duration_since(at) >= METRICS_INTERVAL);
        if due {
            shown.at = Some(now);
        }
        due
    }

    /// Shows the figures of a subtask.
    pub(crate) fn show(&self, subtask: usize, metrics: SourceMetrics) {
        self.lock_metrics()[subtask].metrics = metrics;
    }

    /// What all sources together have counted of locks and deliveries.
    pub(crate) fn counters(&self) -> SourceCounters {
        let mut sum = SourceCounters::default();
        for gauge in self.lock().sources.iter() {
            sum.add(&gauge.in_flight.counters);
        }
        sum
    }

    /// The figures of all sources together. Of a partition that several hold, what they hold adds up, and the fullest
    /// window counts: it is one window, of which each sees its own part.
    pub(crate) fn metrics(&self) -> SourceMetrics {
        let mut sum = SourceMetrics::default();
        let mut partitions: BTreeMap<_, PartitionLoad> = BTreeMap::new();
        for Shown { metrics, .. } in self.lock_metrics().iter() {
            sum.given_up += metrics.given_up;
            for load in &metrics.partitions {
                let known = partitions
                    .entry((load.topic.clone(), load.partition))
                    .or_insert_with(|| PartitionLoad::new(load.topic.clone(), load.partition));
                known.in_flight += load.in_flight;
                known.window_fill = known.window_fill.max(load.window_fill);
            }
        }
        sum.partitions = partitions.into_values().collect();
        sum
    }

    /// The source handed something on.
    pub(crate) fn handed_on(&self, subtask: usize, in_flight: InFlight, now: Instant) {
        self.change(|gauges| {
            let oldest_at = gauges[subtask].oldest_at.or(Some(now));
            gauges[subtask] = SourceGauge { in_flight, is_idle: false, oldest_at };
        });
    }

    /// The load changed for another reason: a commit made room in the lock windows.
    pub(crate) fn refresh(&self, subtask: usize, in_flight: InFlight) {
        self.change(|gauges| gauges[subtask].in_flight = in_flight);
    }

    /// The source has run dry.
    pub(crate) fn idle(&self, subtask: usize, in_flight: InFlight) {
        self.change(|gauges| {
            gauges[subtask].in_flight = in_flight;
            gauges[subtask].is_idle = true;
        });
    }

    /// The source closed an epoch: what it hands on from now belongs to the next.
    pub(crate) fn barrier(&self, subtask: usize, in_flight: InFlight) {
        self.change(|gauges| {
            gauges[subtask].in_flight = in_flight;
            gauges[subtask].oldest_at = None;
        });
    }

    /// Calls of `subtask` were done with `count` rows, which are on their way to the sink.
    pub(crate) fn called(&self, subtask: usize, count: u64, now: Instant) {
        let state = &mut *self.lock();
        let gauge = &mut state.calls[subtask];
        gauge.done_count += count;
        gauge.done_at = gauge.done_at.or(Some(now));
        self.changed.notify_one();
    }

    /// What `subtask` has to do now.
    pub(crate) fn calls(&self, subtask: usize, load: &LineLoad<'_>) {
        let state = &mut *self.lock();
        let CallGauge { done_count, done_at, deferred_count, .. } = state.calls[subtask];
        state.calls[subtask] = CallGauge {
            running_count: load.running_count,
            waiting_count: load.waiting_count,
            retry_count: load.retry_count,
            deferred_count,
            is_holding: load.is_holding,
            is_saturated: load.is_saturated,
            oldest: load.oldest.map(|(row, since)| (OldestCall::Here(row.clone()), since)),
            done_count,
            done_at,
        };
        self.changed.notify_one();
    }

    /// A barrier has passed `subtask` while it worked on `deferred_count` rows: what is done from now belongs to the next epoch.
    pub(crate) fn call_barrier(&self, subtask: usize, deferred_count: u64) {
        let state = &mut *self.lock();
        let gauge = &mut state.calls[subtask];
        gauge.deferred_count = deferred_count;
        (gauge.done_count, gauge.done_at) = (0, None);
        self.changed.notify_one();
    }

    /// The subtasks that call out.
    pub(crate) fn call_gauges(&self) -> Vec<CallGauge> {
        self.lock().calls.clone()
    }

    /// The load of all sources and calls together.
    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        let mut load = Load::default();
        for gauge in &state.calls {
            // A call that ends adds to the epoch, so the job has not run dry.
            load.has_calls |= gauge.running_count + gauge.waiting_count > 0;
            load.record_count += gauge.done_count;
            load.oldest_at = match (load.oldest_at, gauge.done_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        load.are_sources_dry = true;
        for gauge in &state.sources {
            load.record_count += gauge.in_flight.record_count;
            load.byte_count += gauge.in_flight.byte_count;
            load.window_fill = load.window_fill.max(gauge.in_flight.window_fill);
            load.already_decided += gauge.in_flight.already_decided;
            load.below_floor += gauge.in_flight.below_floor;
            load.are_sources_dry &= gauge.is_idle;
            load.wants_barrier |= gauge.in_flight.wants_barrier;
            load.nearest_limit = [load.nearest_limit, gauge.in_flight.nearest_limit]
                .into_iter()
                .flatten()
                .min_by_key(Delivery::left);
            load.oldest_at = match (load.oldest_at, gauge.oldest_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        load.is_idle = load.are_sources_dry && !load.has_calls;
        load
    }

    /// A copy for another process, with the figures of `metrics` where asked for.
    pub(crate) fn copy(&self, with_metrics: bool) -> GaugesShown {
        let state = self.lock();
        let (sources, calls) = (state.sources.clone(), state.calls.clone());
        drop(state);
        let metrics = with_metrics
            .then(|| self.lock_metrics().iter().map(|shown| shown.metrics.clone()).collect::<Vec<_>>());
        GaugesShown { sources, calls, metrics }
    }

    /// Shows what another process has copied. False: it has another number of tasks, and nothing was taken.
    #[must_use]
    pub(crate) fn take(&self, copy: GaugesShown) -> bool {
        let state = &mut *self.lock();
        if copy.sources.len() != state.sources.len() || copy.calls.len() != state.calls.len() {
            return false;
        }
        (state.sources, state.calls) = (copy.sources, copy.calls);
        self.changed.notify_one();
        for (shown, metrics) in self.lock_metrics().iter_mut().zip(copy.metrics.into_iter().flatten()) {
            shown.metrics = metrics;
        }
        true
    }

    /// Waits for a change since the last call. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Vec<SourceGauge>)) {
        change(&mut self.lock().sources);
        self.changed.notify_one();
    }

    fn lock_metrics(&self) -> MutexGuard<'_, Vec<Shown>> {
        // Every change is one assignment.
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment or two independent ones: a poisoned gauge is still a gauge.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
