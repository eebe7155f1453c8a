//! The load of the sources and of the subtasks that call out, as the coordinator's controller reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharestream_base::Instant;
use tokio::sync::Notify;

use crate::async_map::{AsyncRow, LineLoad};
use crate::controller::Load;
use crate::source::InFlight;

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
    changed: Notify,
}

impl Gauges {
    pub(crate) fn new(source_count: usize, call_count: usize) -> Arc<Self> {
        let state = State {
            sources: vec![Gauge::default(); source_count],
            calls: vec![CallGauge::default(); call_count],
        };
        Arc::new(Gauges { state: Mutex::new(state), changed: Notify::new() })
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
        let CallGauge { done_count, done_at, .. } = state.calls[subtask];
        state.calls[subtask] = CallGauge {
            running_count: load.running_count,
            waiting_count: load.waiting_count,
            retry_count: load.retry_count,
            is_holding: load.is_holding,
            is_saturated: load.is_saturated,
            oldest: load.oldest.map(|(row, since)| (row.clone(), since)),
            done_count,
            done_at,
        };
        self.changed.notify_one();
    }

    /// A barrier has passed `subtask`: what is done from now belongs to the next epoch.
    pub(crate) fn call_barrier(&self, subtask: usize) {
        let state = &mut *self.lock();
        let gauge = &mut state.calls[subtask];
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment or two independent ones: a poisoned gauge is still a gauge.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
