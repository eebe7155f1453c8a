//! The load of the sources and of the subtasks that call out, as the coordinator's controller reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::Instant;
use tokio::sync::Notify;

use crate::async_map::{AsyncRow, LineLoad};
use crate::controller::Load;
use crate::source::{Delivery, InFlight, PartitionLoad, SourceCounters, SourceMetrics};

#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    in_flight: InFlight,
    is_idle: bool,
    oldest_at: Option<Instant>,
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
    pub(crate) oldest: Option<(AsyncRow, Instant)>,
    /// Rows that were done since the last barrier, and when the first of them was.
    done_count: u64,
    done_at: Option<Instant>,
}

#[derive(Debug)]
struct State {
    sources: Vec<Gauge>,
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
            sources: vec![Gauge::default(); source_count],
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
            gauges[subtask] = Gauge { in_flight, is_idle: false, oldest_at };
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
            oldest: load.oldest.map(|(row, since)| (row.clone(), since)),
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

    /// Waits for a change since the last call. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Gauge>)) {
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
