//! What the status shows of operators that call out.

use sharestream_base::Instant;

use crate::controller::Load;
use crate::graph::Running;
use crate::status::{BoundBy, CallStatus, RecordInWork};
use crate::task::gauges::CallGauge;

/// Of a lock window: from here on it counts as full.
const WINDOW_FULL: f64 = 0.9;

/// The operators that call out, and whether they have all that they can do.
pub(super) struct CallsShown {
    pub(super) operators: Vec<CallStatus>,
    /// In every subtask as many calls run as may.
    is_saturated: bool,
}

impl CallsShown {
    pub(super) fn of(running: &Running, now: Instant) -> Self {
        let gauges = running.gauges.call_gauges();
        let is_saturated = !gauges.is_empty() && gauges.iter().all(|gauge| gauge.is_saturated);
        let mut operators: Vec<CallStatus> = Vec::new();
        for (name, gauge) in running.callers.iter().zip(&gauges) {
            match operators.iter_mut().find(|operator| operator.name == *name) {
                Some(operator) => add(operator, gauge, now),
                None => {
                    let mut operator = CallStatus { name: name.clone(), ..CallStatus::default() };
                    add(&mut operator, gauge, now);
                    operators.push(operator);
                }
            }
        }
        CallsShown { operators, is_saturated }
    }

    /// What keeps the job from being faster. Calls come first: while they have all that they can do, nothing else
    /// matters.
    pub(super) fn bound_by(&self, load: &Load) -> Option<BoundBy> {
        if self.operators.iter().any(|operator| operator.is_holding) {
            Some(BoundBy::Circuit)
        } else if self.is_saturated {
            Some(BoundBy::Concurrency)
        } else if load.window_fill >= WINDOW_FULL {
            Some(BoundBy::LockWindow)
        } else if load.are_sources_dry {
            Some(BoundBy::Source)
        } else {
            None
        }
    }
}

fn add(operator: &mut CallStatus, gauge: &CallGauge, now: Instant) {
    operator.running += gauge.running_count as u64;
    operator.waiting += gauge.waiting_count as u64;
    operator.deferred += gauge.deferred_count;
    operator.retries += gauge.retry_count;
    operator.is_holding |= gauge.is_holding;
    let oldest = gauge.oldest.as_ref().and_then(|(row, since)| {
        let (topic, partition, offset) = row.place()?;
        let for_ms = u64::try_from(now.duration_since(*since).as_millis()).unwrap_or(u64::MAX);
        Some(RecordInWork { topic, partition, offset, for_ms })
    });
    let is_older = match (&operator.oldest, &oldest) {
        (Some(known), Some(other)) => other.for_ms > known.for_ms,
        (None, _) => true,
        (Some(_), None) => false,
    };
    if is_older {
        operator.oldest = oldest;
    }
}
