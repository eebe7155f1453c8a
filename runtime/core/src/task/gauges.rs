//! The load of the sources, as the coordinator's controller reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharestream_base::Instant;
use tokio::sync::Notify;

use crate::controller::Load;
use crate::source::{Delivery, InFlight};

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
    changed: Notify,
}

impl Gauges {
    pub(crate) fn new(source_count: usize) -> Arc<Self> {
        Arc::new(Gauges { gauges: Mutex::new(vec![Gauge::default(); source_count]), changed: Notify::new() })
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
            load.counters.add(&gauge.in_flight.counters);
            load.wants_barrier |= gauge.in_flight.wants_barrier;
            load.nearest_limit = [load.nearest_limit, gauge.in_flight.nearest_limit]
                .into_iter()
                .flatten()
                .min_by_key(Delivery::left);
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

    fn lock(&self) -> MutexGuard<'_, Vec<Gauge>> {
        // Every change is one assignment or two independent ones: a poisoned gauge is still a gauge.
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
