//! When to send a barrier.
//!
//! Records stay acquired until their epoch is visible, and brokers bound how many may be (DESIGN section 3): an
//! epoch that stays open too long starves the source, one that is cut too often pays for commits. Pure: load, time
//! and measurements come in, a decision comes out.

use std::time::Duration;

use sharestream_base::Instant;

use crate::options::JobOptions;
use crate::source::Delivery;

/// The part of the options that the controller needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Hand-over to visibility.
    pub(crate) goal: Duration,
    /// The longest that an epoch is left open.
    pub(crate) interval: Duration,
    pub(crate) rows_max: u64,
    pub(crate) bytes_max: u64,
    pub(crate) window_fill: f64,
}

impl From<&JobOptions> for Limits {
    fn from(options: &JobOptions) -> Self {
        Limits {
            goal: options.goal(),
            interval: options.interval(),
            rows_max: options.epoch_rows_max,
            bytes_max: options.epoch_bytes_max,
            window_fill: options.window_fill_threshold,
        }
    }
}

/// What the open epoch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Records handed on since the last barrier, over all sources.
    pub(crate) record_count: u64,
    /// Their payload bytes.
    pub(crate) byte_count: u64,
    /// The fullest lock window.
    pub(crate) window_fill: f64,
    /// Every source has run dry, and no calls run that would bring more.
    pub(crate) is_idle: bool,
    /// When the oldest record (or gap) since the last barrier was handed on; `None` when there is none.
    pub(crate) oldest_at: Option<Instant>,
    /// Deliveries that all sources of this attempt acknowledged as decided by a claim.
    pub(crate) already_decided: u64,
    /// The same below the floor.
    pub(crate) below_floor: u64,
    /// Every source has run dry.
    pub(crate) are_sources_dry: bool,
    /// Calls to the outside run or wait: what they bring belongs to this epoch or to a later one.
    pub(crate) has_calls: bool,
    /// The undecided record with the fewest deliveries left, if one is near its limit.
    pub(crate) nearest_limit: Option<Delivery>,
    /// A source holds, or is about to hand on, a record that shares its epoch with as little as possible.
    pub(crate) wants_barrier: bool,
    /// An earlier epoch is sealed and not yet committed.
    pub(crate) is_committing: bool,
}

/// Why a barrier is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Idle,
    NearLimit,
    Rows,
    Bytes,
    Window,
    Interval,
    /// Somebody asked for a checkpoint.
    Request,
    Drain,
}

impl Reason {
    /// Its name in metrics and traces; stable.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Reason::NearLimit => "near_limit",
            Reason::Idle => "idle",
            Reason::Rows => "rows",
            Reason::Bytes => "bytes",
            Reason::Window => "window",
            Reason::Interval => "interval",
            Reason::Request => "request",
            Reason::Drain => "drain",
        }
    }
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Now(Reason),
    /// Ask again at this time, or when the load changes.
    At(Instant),
    /// Ask again when the load changes or a commit ends.
    Wait,
}

/// Decides, and learns how long commits take.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    limits: Limits,
    /// Moving average of barrier to commit.
    commit_time: Option<Duration>,
    /// Moving average of barrier to visibility, which is what the goal is about; measured of a sample of the epochs.
    visible_time: Option<Duration>,
}

/// Weight of a new measurement: about the last ten commits count.
const COMMIT_TIME_WEIGHT: f64 = 0.2;
/// However slow commits are, an epoch stays open for this part of the goal: a goal that cannot be met must not turn
/// into commits without pause.
const OPEN_PART_MIN: u32 = 10;

impl Controller {
    pub(crate) fn new(limits: Limits) -> Self {
        Controller { limits, commit_time: None, visible_time: None }
    }

    /// Takes the time from sending a barrier to its known commit.
    pub(crate) fn observe(&mut self, took: Duration) {
        self.commit_time = Some(averaged(self.commit_time, took));
    }

    /// Takes the time from sending a barrier to its epoch's visibility.
    pub(crate) fn observe_visible(&mut self, took: Duration) {
        self.visible_time = Some(averaged(self.visible_time, took));
    }

    /// Whether to send a barrier for the open epoch.
    pub(crate) fn decide(&self, load: &Load, now: Instant) -> Trigger {
        let Some(oldest_at) = load.oldest_at else { return Trigger::Wait };
        // These four hold while an earlier commit runs, too: the budgets bound what one epoch may become, with dry
        // sources nothing more would join this one, and a record near its delivery limit is to stay alone.
        if load.is_idle {
            return Trigger::Now(Reason::Idle);
        }
        if load.wants_barrier {
            return Trigger::Now(Reason::NearLimit);
        }
        if load.record_count >= self.limits.rows_max {
            return Trigger::Now(Reason::Rows);
        }
        if load.byte_count >= self.limits.bytes_max {
            return Trigger::Now(Reason::Bytes);
        }
        // Cutting now would gain nothing: commits are in order, and until the earlier one is done the epoch can
        // only be filled further or make the sinks wait.
        if load.is_committing {
            return Trigger::Wait;
        }
        if load.window_fill >= self.limits.window_fill {
            return Trigger::Now(Reason::Window);
        }
        let Limits { goal, interval, .. } = self.limits;
        // Commits are measured more often, and become slow before the sample says so.
        let takes = self.commit_time.max(self.visible_time).unwrap_or_default();
        let open_for = goal.saturating_sub(takes).max(goal / OPEN_PART_MIN).min(interval);
        let due = oldest_at + open_for;
        if now >= due { Trigger::Now(Reason::Interval) } else { Trigger::At(due) }
    }
}

fn averaged(old: Option<Duration>, took: Duration) -> Duration {
    match old {
        None => took,
        Some(old) => old.mul_f64(1.0 - COMMIT_TIME_WEIGHT) + took.mul_f64(COMMIT_TIME_WEIGHT),
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::Clock;

    use super::*;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn controller() -> Controller {
        Controller::new(Limits {
            goal: ms(100),
            interval: ms(100),
            rows_max: 1_000,
            bytes_max: 10_000,
            window_fill: 0.4,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn every_reason_alone_and_while_a_commit_runs() {
        let start = Clock::system().now();
        let now = start + ms(50);
        let quiet = Load { record_count: 1, byte_count: 1, oldest_at: Some(start), ..Load::default() };
        let table = [
            (
                "nothing handed on",
                Load { oldest_at: None, is_idle: true, ..quiet },
                Trigger::Wait,
                Trigger::Wait,
            ),
            ("young", quiet, Trigger::At(start + ms(100)), Trigger::Wait),
            ("dry", Load { is_idle: true, ..quiet }, Trigger::Now(Reason::Idle), Trigger::Now(Reason::Idle)),
            (
                "only gaps, dry",
                Load { record_count: 0, is_idle: true, ..quiet },
                Trigger::Now(Reason::Idle),
                Trigger::Now(Reason::Idle),
            ),
            (
                "a record near its limit",
                Load { wants_barrier: true, ..quiet },
                Trigger::Now(Reason::NearLimit),
                Trigger::Now(Reason::NearLimit),
            ),
            (
                "rows full",
                Load { record_count: 1_000, ..quiet },
                Trigger::Now(Reason::Rows),
                Trigger::Now(Reason::Rows),
            ),
            (
                "bytes full",
                Load { byte_count: 10_000, ..quiet },
                Trigger::Now(Reason::Bytes),
                Trigger::Now(Reason::Bytes),
            ),
            (
                "window filling",
                Load { window_fill: 0.4, ..quiet },
                Trigger::Now(Reason::Window),
                Trigger::Wait,
            ),
            (
                "window below",
                Load { window_fill: 0.39, ..quiet },
                Trigger::At(start + ms(100)),
                Trigger::Wait,
            ),
            (
                "old",
                Load { oldest_at: Some(now - ms(50)), ..quiet },
                Trigger::At(start + ms(100)),
                Trigger::Wait,
            ),
        ];
        for (name, load, alone, committing) in table {
            assert_eq!(controller().decide(&load, now), alone, "{name}");
            let load = Load { is_committing: true, ..load };
            assert_eq!(controller().decide(&load, now), committing, "{name}, while a commit runs");
        }
        assert_eq!(controller().decide(&quiet, start + ms(100)), Trigger::Now(Reason::Interval));
    }

    #[tokio::test(start_paused = true)]
    async fn the_goal_includes_the_measured_commit_time() {
        let start = Clock::system().now();
        let load = Load { record_count: 1, oldest_at: Some(start), ..Load::default() };
        let mut controller = controller();
        controller.observe(ms(30));
        assert_eq!(controller.decide(&load, start), Trigger::At(start + ms(70)));
        let mut visible = controller.clone();
        visible.observe_visible(ms(45));
        assert_eq!(visible.decide(&load, start), Trigger::At(start + ms(55)), "visible is what counts");
        visible.observe(ms(130));
        assert_eq!(
            visible.decide(&load, start),
            Trigger::At(start + ms(50)),
            "a commit that became slow counts at once"
        );
        controller.observe(ms(80));
        assert_eq!(controller.decide(&load, start), Trigger::At(start + ms(60)), "moving average");
        for _ in 0..100 {
            controller.observe(ms(500));
        }
        assert_eq!(controller.decide(&load, start), Trigger::At(start + ms(10)), "a tenth always stays");
        controller.limits.interval = ms(7);
        assert_eq!(
            controller.decide(&load, start),
            Trigger::At(start + ms(7)),
            "not longer than the interval"
        );
    }
}
