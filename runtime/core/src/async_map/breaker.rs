//! The circuit: when everything fails at once, it holds instead of burning attempts (DESIGN section 5).
//!
//! ```text
//! closed --failures in a row--> open --probe due--> probing --success--> closed
//!                                ^                     |
//!                                +------ failure ------+
//! ```
//!
//! Pure: time comes in, permission comes out.

use std::time::Duration;

use sharestream_base::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures_in_a_row: u32,
    },
    Open {
        probe_at: Instant,
    },
    /// One call is on its way.
    Probing,
}

/// The circuit of one subtask.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    /// 0: it never opens.
    failures_max: u32,
    probe_interval: Duration,
}

impl Breaker {
    pub(super) fn new(failures_max: u32, probe_interval: Duration) -> Self {
        Breaker { state: State::Closed { failures_in_a_row: 0 }, failures_max, probe_interval }
    }

    /// True while nothing is called but probes.
    pub(super) fn is_holding(&self) -> bool {
        matches!(self.state, State::Open { .. } | State::Probing)
    }

    /// Whether a call may start now. While the circuit is open, a permission is a probe.
    pub(super) fn may_call(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { probe_at } => now >= probe_at,
            State::Probing => false,
        }
    }

    /// A call was started with permission.
    pub(super) fn started(&mut self) {
        if let State::Open { .. } = self.state {
            self.state = State::Probing;
        }
    }

    /// When the next probe is due.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { probe_at } => Some(probe_at),
            State::Closed { .. } | State::Probing => None,
        }
    }

    /// The service answered, whatever it said about the record. Calls that were under way when the circuit opened count.
    pub(super) fn answered(&mut self) {
        self.state = State::Closed { failures_in_a_row: 0 };
    }

    /// The service failed; true when the circuit opens by it.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Closed { failures_in_a_row } => {
                *failures_in_a_row = failures_in_a_row.saturating_add(1);
                if self.failures_max == 0 || *failures_in_a_row < self.failures_max {
                    return false;
                }
                self.state = State::Open { probe_at: now + self.probe_interval };
                true
            }
            // A call that was under way when the circuit opened says nothing new.
            State::Open { .. } => false,
            State::Probing => {
                self.state = State::Open { probe_at: now + self.probe_interval };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::Clock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_closes_by_a_probe() {
        let start = Clock::system().now();
        let mut breaker = Breaker::new(3, SECOND);
        assert!(!breaker.failed(start));
        assert!(!breaker.failed(start));
        breaker.answered();
        assert!(!breaker.failed(start), "an answer between failures starts the count anew");
        assert!(!breaker.failed(start));
        assert!(breaker.failed(start));
        assert!(breaker.is_holding());
        assert!(!breaker.may_call(start));
        assert!(breaker.may_call(start + SECOND));
        breaker.started();
        assert!(!breaker.may_call(start + 10 * SECOND), "one probe at a time");
        assert!(!breaker.failed(start + SECOND));
        assert_eq!(breaker.probe_at(), Some(start + 2 * SECOND));
        breaker.started();
        breaker.answered();
        assert!(!breaker.is_holding());
        assert!(breaker.may_call(start));
    }

    #[tokio::test(start_paused = true)]
    async fn zero_never_opens() {
        let start = Clock::system().now();
        let mut breaker = Breaker::new(0, SECOND);
        for _ in 0..1_000 {
            assert!(!breaker.failed(start));
        }
        assert!(breaker.may_call(start));
    }
}
