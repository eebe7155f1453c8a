//! The load of the sources, as the coordinator's controller reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::Instant;
use tokio::sync::Notify;

use crate::controller::Load;
use crate::source::{InFlight, PartitionLoad, SourceCounters, SourceMetrics};

#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    in_flight: InFlight,
    is_idle: bool,
    oldest_at: Option<Instant>,
}

/// One gauge for each source subtask. Written by the source tasks, read by the coordinator, which is woken by every
/// change.
#[derive(Debug)]
pub(crate) struct Gauges {
    gauges: Mutex<Vec<Gauge>>,
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
    pub(crate) fn new(source_count: usize) -> Arc<Self> {
        Arc::new(Gauges {
            gauges: Mutex::new(vec![Gauge::default(); source_count]),
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
        for gauge in self.lock().iter() {
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

    /// The load of all sources together.
    pub(crate) fn load(&self) -> Load {
        let gauges = self.lock();
        let mut load = Load { is_idle: true, ..Load::default() };
        for gauge in gauges.iter() {
            load.record_count += gauge.in_flight.record_count;
            load.byte_count += gauge.in_flight.byte_count;
            load.window_fill = load.window_fill.max(gauge.in_flight.window_fill);
            load.already_decided += gauge.in_flight.already_decided;
            load.below_floor += gauge.in_flight.below_floor;
            load.is_idle &= gauge.is_idle;
            load.oldest_at = match (load.oldest_at, gauge.oldest_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        load
    }

    /// Waits for a change since the last call. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Gauge>)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock_metrics(&self) -> MutexGuard<'_, Vec<Shown>> {
        // Every change is one assignment.
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Gauge>> {
        // Every change is one assignment or two independent ones: a poisoned gauge is still a gauge.
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
