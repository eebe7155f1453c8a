//! Settings of an [`AsyncMap`](super::AsyncMap).

use std::time::Duration;

/// What becomes of a record whose calls failed `attempts_max` times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnExhausted {
    /// It becomes a dead letter.
    #[default]
    Reject,
    /// The attempt ends with the error; the next one processes the record again, at the cost of a delivery.
    Fail,
}

/// Settings of an [`AsyncMap`](super::AsyncMap), for each of its subtasks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AsyncMapOptions {
    /// Calls that run at once. Default 64; 1 to 65,536. Since 0.1.
    pub concurrency: usize,
    /// True: rows leave in the order in which they came, and a slow one holds back those behind it. Default false.
    /// Since 0.1.
    pub is_ordered: bool,
    /// Longest time of one call. Default 30 s; above zero. Since 0.1.
    pub timeout: Duration,
    /// Calls for one record before it is given up. Default 5; at least 1. Since 0.1.
    pub attempts_max: u32,
    /// Pause before the second call; it doubles for each further one. Default 100 ms; above zero. Since 0.1.
    pub backoff: Duration,
    /// Longest pause between two calls, unless the service asks for a longer one. Default 30 s; not below `backoff`.
    /// Since 0.1.
    pub backoff_max: Duration,
    /// What becomes of a record that was called for `attempts_max` times. Default [`OnExhausted::Reject`]. Since 0.1.
    pub on_exhausted: OnExhausted,
    /// After so many failures in a row that another call may mend, without a success between them, the circuit opens: no
    /// record is given up, nothing is called but one record every `probe_interval`, until that succeeds. 0: never.
    /// Default 20. Since 0.1.
    pub holds_after_failures: u32,
    /// Pause between two probes while the circuit is open. Default 1 s; above zero. Since 0.1.
    pub probe_interval: Duration,
    /// Rows that wait or run, in one subtask; at this bound nothing is read from upstream unless a barrier is on its
    /// way. Default 65,536; not below `concurrency`. Since 0.1.
    pub rows_max: usize,
    /// A record whose calls have taken so long in all is *parked*: copied to the sink's parking topic, in the transaction of
    /// its ACCEPT, so that its partition goes on; a call that runs is dropped. It comes again from there, and is parked
    /// again only after twice the time, then four times, up to 16 times. Needs a sink with a parking topic, and records that
    /// reach the operator as one row each. Default none: a record is worked on as long as it takes. Since 0.2.
    pub park_after: Option<Duration>,
    /// How often a record may be parked; when its time is up once more it is given up as after `attempts_max` calls.
    /// Default 3; at least 1. Since 0.2.
    pub park_max: u32,
}

impl Default for AsyncMapOptions {
    fn default() -> Self {
        AsyncMapOptions {
            concurrency: 64,
            is_ordered: false,
            timeout: Duration::from_secs(30),
            attempts_max: 5,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            on_exhausted: OnExhausted::Reject,
            holds_after_failures: 20,
            probe_interval: Duration::from_secs(1),
            rows_max: 65_536,
            park_after: None,
            park_max: 3,
        }
    }
}

const CONCURRENCY_MAX: usize = 65_536;
/// Longest time before a record is parked once more, in `park_after`.
const PARK_FACTOR_MAX: u32 = 16;

macro_rules! setters {
    ($($setter:ident($field:ident: $type:ty)),+ $(,)?) => {
        impl AsyncMapOptions {
            $(
                #[doc = concat!("Sets [`AsyncMapOptions::", stringify!($field), "`].")]
                #[must_use]
                pub fn $setter(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

setters! {
    with_concurrency(concurrency: usize),
    with_order(is_ordered: bool),
    with_timeout(timeout: Duration),
    with_attempts_max(attempts_max: u32),
    with_backoff(backoff: Duration),
    with_backoff_max(backoff_max: Duration),
    with_on_exhausted(on_exhausted: OnExhausted),
    with_holds_after_failures(holds_after_failures: u32),
    with_probe_interval(probe_interval: Duration),
    with_rows_max(rows_max: usize),
    with_park_max(park_max: u32),
}

impl AsyncMapOptions {
    /// Every fault, in words that begin with the name of the setting and tell its value and its bound.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |good: bool, fault: String| {
            if !good {
                faults.push(fault);
            }
        };
        check(
            (1..=CONCURRENCY_MAX).contains(&self.concurrency),
            format!("concurrency is {}, it must be 1 to {CONCURRENCY_MAX}", self.concurrency),
        );
        for (name, value) in
            [("timeout", self.timeout), ("backoff", self.backoff), ("probe_interval", self.probe_interval)]
        {
            check(value > Duration::ZERO, format!("{name} is zero, it must be above zero"));
        }
        check(self.attempts_max > 0, "attempts_max is 0, it must be at least 1".to_owned());
        check(
            self.backoff_max >= self.backoff,
            format!("backoff_max {:?} is below backoff {:?}", self.backoff_max, self.backoff),
        );
        check(
            self.rows_max >= self.concurrency,
            format!("rows_max {} is below concurrency {}", self.rows_max, self.concurrency),
        );
        check(
            self.park_after != Some(Duration::ZERO),
            "park_after is zero, it must be above zero".to_owned(),
        );
        check(self.park_max > 0, "park_max is 0, it must be at least 1".to_owned());
        faults
    }

    /// Sets [`AsyncMapOptions::park_after`](field@AsyncMapOptions::park_after).
    #[must_use]
    pub fn with_park_after(mut self, park_after: Duration) -> Self {
        self.park_after = Some(park_after);
        self
    }

    /// How long the calls of a record may take that was parked so often before; `None`: as long as they like.
    pub(super) fn park_after(&self, parked_count: u32) -> Option<Duration> {
        let factor = 2u32.saturating_pow(parked_count).min(PARK_FACTOR_MAX);
        self.park_after.map(|after| after.saturating_mul(factor))
    }

    /// The pause after `attempt` calls (from 1), without jitter.
    pub(super) fn pause_after(&self, attempt: u32) -> Duration {
        let factor = 2u32.saturating_pow(attempt.saturating_sub(1));
        self.backoff.saturating_mul(factor).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_faults_come_together() {
        assert!(AsyncMapOptions::default().faults().is_empty());
        let bad = AsyncMapOptions::default()
            .with_concurrency(0)
            .with_timeout(Duration::ZERO)
            .with_attempts_max(0)
            .with_backoff_max(Duration::from_millis(1));
        assert_eq!(bad.faults().len(), 4, "{:?}", bad.faults());
    }

    #[test]
    fn the_pause_doubles_to_its_bound() {
        let options = AsyncMapOptions::default().with_backoff_max(Duration::from_millis(350));
        let pauses: Vec<u128> = (1..=5).map(|attempt| options.pause_after(attempt).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 350, 350, 350]);
        assert_eq!(options.pause_after(u32::MAX).as_millis(), 350);
    }
}
