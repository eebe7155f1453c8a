//! Settings of a job: what it aims for, and the bound of every wait.

use std::time::Duration;

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::watermark::EventTime;

/// Settings of a job. `Default` works; [`JobOptions::validate`] reports every fault at once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobOptions {
    /// Latency goal: a record that was handed on is visible about this long after, at the latest. The controller
    /// subtracts what commits are measured to take ([`JobOptions::goal`]). Default: `checkpoint_interval`, and 100 ms
    /// where neither is given; above zero, at most 10 minutes. Since 0.2.
    pub latency_goal: Option<Duration>,
    /// The longest that an epoch is left open, whatever the goal allows. Default: the goal, which alone is enough for most
    /// jobs; above zero and not above the goal, which would be reached first. Since 0.1.
    pub checkpoint_interval: Option<Duration>,
    /// A barrier is sent when this many records were handed on since the last one: it bounds the outcome record
    /// too. Default 20,000; at least 1. Since 0.1.
    pub epoch_rows_max: u64,
    /// A barrier is sent when this many payload bytes were handed on since the last one. A source subtask that has handed
    /// on as much by itself waits for that barrier, which comes once the epoch before the last is committed. Default 32 MiB;
    /// at least 1. Since 0.1.
    pub epoch_bytes_max: u64,
    /// A barrier is sent when the lock window of a partition is filled to this part. Default 0.4; above 0, at
    /// most 1. Since 0.1.
    pub window_fill_threshold: f64,
    /// Epochs that may be open at once. 2: the next one is written while one commits, each under a transactional id of
    /// its own. 1: it is written once the one before is committed, which shows what the second one wins (the bench
    /// `pipeline`) and is of no other use. Default 2; 1 or 2. Since 0.2.
    pub epochs_open_max: usize,
    /// Rows that one channel between two tasks holds; a fuller channel makes the sender wait. One larger batch
    /// passes an empty channel. Default 16,384; at least 1. Since 0.1.
    pub channel_rows_max: usize,
    /// Payload bytes that one channel between two tasks holds, likewise. Default 8 MiB; at least 1. Since 0.1.
    pub channel_bytes_max: usize,
    /// Longest wait from a barrier to its last acknowledgement (alignment and flush) before the attempt is given
    /// up. Default 60 s; above zero. Since 0.1.
    pub barrier_alignment_timeout: Duration,
    /// Longest time of one commit, and of opening an epoch. A commit that takes longer is of unknown outcome; the
    /// next attempt finds out. Default 30 s; above zero. Since 0.1.
    pub commit_deadline: Duration,
    /// Longest time of recovery: it may have to wait for a transaction of an older incarnation to end. Default
    /// 90 s; not below `commit_deadline`. Since 0.1.
    pub recovery_deadline: Duration,
    /// Longest time to connect all sources and sinks. Default 60 s; above zero. Since 0.1.
    pub connect_deadline: Duration,
    /// Longest time from a drain request to the end of the job: the last checkpoint, its commit, and closing.
    /// Default 30 s; above zero. Since 0.1.
    pub drain_deadline: Duration,
    /// Longest time that tasks of a failed attempt get to give back what they hold. Default 5 s; above zero and at
    /// most `drain_deadline`. Since 0.1.
    pub close_deadline: Duration,
    /// Completed checkpoints that the store keeps. Default 3; at least 1. Since 0.1.
    pub checkpoints_retained: usize,
    /// State in the last checkpoint that no operator of the job claims is dropped. Default false: the start fails.
    /// Since 0.1.
    pub allow_unclaimed_state: bool,
    /// Event time and watermarks, for operators that keep state ([`crate::watermark`]). Default none: it costs nothing.
    /// Needs a checkpoint store. Since 0.1.
    pub event_time: Option<EventTime>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            latency_goal: None,
            checkpoint_interval: None,
            epoch_rows_max: 20_000,
            epoch_bytes_max: 32 << 20,
            window_fill_threshold: 0.4,
            epochs_open_max: 2,
            channel_rows_max: 16_384,
            channel_bytes_max: 8 << 20,
            barrier_alignment_timeout: Duration::from_secs(60),
            commit_deadline: Duration::from_secs(30),
            recovery_deadline: Duration::from_secs(90),
            connect_deadline: Duration::from_secs(60),
            drain_deadline: Duration::from_secs(30),
            close_deadline: Duration::from_secs(5),
            checkpoints_retained: 3,
            allow_unclaimed_state: false,
            event_time: None,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $setter:ident($field:ident: $type:ty)),+ $(,)?) => {
        impl JobOptions {
            $(
                $(#[$doc])*
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
    /// Sets [`JobOptions::epoch_rows_max`].
    with_epoch_rows_max(epoch_rows_max: u64),
    /// Sets [`JobOptions::epoch_bytes_max`].
    with_epoch_bytes_max(epoch_bytes_max: u64),
    /// Sets [`JobOptions::window_fill_threshold`].
    with_window_fill_threshold(window_fill_threshold: f64),
    /// Sets [`JobOptions::epochs_open_max`].
    with_epochs_open_max(epochs_open_max: usize),
    /// Sets [`JobOptions::channel_rows_max`].
    with_channel_rows_max(channel_rows_max: usize),
    /// Sets [`JobOptions::channel_bytes_max`].
    with_channel_bytes_max(channel_bytes_max: usize),
    /// Sets [`JobOptions::barrier_alignment_timeout`].
    with_barrier_alignment_timeout(barrier_alignment_timeout: Duration),
    /// Sets [`JobOptions::commit_deadline`].
    with_commit_deadline(commit_deadline: Duration),
    /// Sets [`JobOptions::recovery_deadline`].
    with_recovery_deadline(recovery_deadline: Duration),
    /// Sets [`JobOptions::connect_deadline`].
    with_connect_deadline(connect_deadline: Duration),
    /// Sets [`JobOptions::drain_deadline`].
    with_drain_deadline(drain_deadline: Duration),
    /// Sets [`JobOptions::close_deadline`].
    with_close_deadline(close_deadline: Duration),
    /// Sets [`JobOptions::checkpoints_retained`].
    with_checkpoints_retained(checkpoints_retained: usize),
    /// Sets [`JobOptions::allow_unclaimed_state`].
    with_allow_unclaimed_state(allow_unclaimed_state: bool),
    /// Sets [`JobOptions::event_time`].
    with_event_time(event_time: Option<EventTime>),
}

const LATENCY_GOAL_DEFAULT: Duration = Duration::from_millis(100);
const LATENCY_GOAL_MAX: Duration = Duration::from_secs(600);

impl JobOptions {
    /// Sets [`JobOptions::latency_goal`].
    #[must_use]
    pub fn with_latency_goal(mut self, goal: Duration) -> Self {
        self.latency_goal = Some(goal);
        self
    }

    /// Sets [`JobOptions::checkpoint_interval`]; without a goal it is the goal, too.
    #[must_use]
    pub fn with_checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = Some(interval);
        self
    }

    /// The latency goal that holds.
    pub fn goal(&self) -> Duration {
        self.latency_goal.or(self.checkpoint_interval).unwrap_or(LATENCY_GOAL_DEFAULT)
    }

    /// The longest that an epoch is left open: `checkpoint_interval`, else the goal.
    pub fn interval(&self) -> Duration {
        self.checkpoint_interval.unwrap_or_else(|| self.goal())
    }

    /// Every fault, in words that name the setting, its value and its bound.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |good: bool, fault: String| {
            if !good {
                faults.push(fault);
            }
        };
        for (name, value) in [
            ("latency_goal", self.goal()),
            ("checkpoint_interval", self.interval()),
            ("barrier_alignment_timeout", self.barrier_alignment_timeout),
            ("commit_deadline", self.commit_deadline),
            ("recovery_deadline", self.recovery_deadline),
            ("connect_deadline", self.connect_deadline),
            ("drain_deadline", self.drain_deadline),
            ("close_deadline", self.close_deadline),
        ] {
            check(value > Duration::ZERO, format!("{name} is zero, it must be above zero"));
        }
        for (name, value) in [
            ("epoch_rows_max", self.epoch_rows_max),
            ("epoch_bytes_max", self.epoch_bytes_max),
            ("channel_rows_max", self.channel_rows_max as u64),
            ("channel_bytes_max", self.channel_bytes_max as u64),
            ("checkpoints_retained", self.checkpoints_retained as u64),
        ] {
            check(value > 0, format!("{name} is 0, it must be at least 1"));
        }
        check(
            self.window_fill_threshold > 0.0 && self.window_fill_threshold <= 1.0,
            format!(
                "window_fill_threshold is {}, it must be above 0 and at most 1",
                self.window_fill_threshold
            ),
        );
        check(
            (1..=2).contains(&self.epochs_open_max),
            format!("epochs_open_max is {}, it must be 1 or 2", self.epochs_open_max),
        );
        check(
            self.goal() <= LATENCY_GOAL_MAX,
            format!("latency_goal is {:?}, it must be at most {LATENCY_GOAL_MAX:?}", self.goal()),
        );
        check(
            self.interval() <= self.goal(),
            format!(
                "checkpoint_interval {:?} is above latency_goal {:?}, which closes each epoch before: leave it out",
                self.interval(),
                self.goal()
            ),
        );
        check(
            self.recovery_deadline >= self.commit_deadline,
            format!(
                "recovery_deadline {:?} is below commit_deadline {:?}: recovery may have to wait for a commit",
                self.recovery_deadline, self.commit_deadline
            ),
        );
        check(
            self.close_deadline <= self.drain_deadline,
            format!(
                "close_deadline {:?} is above drain_deadline {:?}",
                self.close_deadline, self.drain_deadline
            ),
        );
        faults.extend(self.event_time.iter().flat_map(EventTime::faults));
        faults
    }

    /// Checks every setting and the relations between them. Errors: `InvalidInput`, with every fault.
    pub fn validate(&self) -> Result<()> {
        let faults = self.faults();
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("job options: {}", faults.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        JobOptions::default().validate().unwrap();
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let options = JobOptions::default()
            .with_checkpoint_interval(Duration::ZERO)
            .with_epoch_rows_max(0)
            .with_window_fill_threshold(f64::NAN)
            .with_epochs_open_max(3)
            .with_recovery_deadline(Duration::from_secs(1))
            .with_close_deadline(Duration::from_secs(31))
            .with_event_time(Some(
                EventTime::in_column("at")
                    .with_idle_timeout(Some(Duration::ZERO))
                    .with_max_out_of_orderness(Duration::from_secs(u64::MAX)),
            ));
        let error = options.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for name in [
            "checkpoint_interval",
            "epoch_rows_max",
            "window_fill_threshold",
            "epochs_open_max",
            "recovery_deadline",
            "close_deadline",
            "event_time.idle_timeout",
            "event_time.max_out_of_orderness",
        ] {
            assert!(error.context().contains(name), "{name} is missing in: {error}");
        }
        assert_eq!(options.faults().len(), 9, "the goal follows the interval");
        assert_eq!(JobOptions::default().with_epochs_open_max(0).faults().len(), 1);
    }

    #[test]
    fn the_goal_is_enough_and_the_interval_only_shortens_it() {
        let ms = Duration::from_millis;
        let both = |options: JobOptions| (options.goal(), options.interval(), options.faults().len());
        let options = JobOptions::default;
        assert_eq!(both(options()), (ms(100), ms(100), 0));
        assert_eq!(both(options().with_latency_goal(ms(20))), (ms(20), ms(20), 0));
        assert_eq!(both(options().with_checkpoint_interval(ms(500))), (ms(500), ms(500), 0), "as before 0.2");
        let goal = options().with_latency_goal(ms(100));
        assert_eq!(both(goal.clone().with_checkpoint_interval(ms(30))), (ms(100), ms(30), 0));
        assert_eq!(both(goal.clone().with_checkpoint_interval(ms(100))), (ms(100), ms(100), 0));
        let late = goal.with_checkpoint_interval(ms(101));
        assert!(late.faults()[0].contains("checkpoint_interval 101ms is above latency_goal 100ms"));
        assert_eq!(options().with_latency_goal(Duration::from_secs(601)).faults().len(), 1);
    }
}
