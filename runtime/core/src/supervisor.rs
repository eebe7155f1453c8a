//! Restarts failed attempts: bounded, with a growing and jittered pause.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use sharestream_base::{Env, Rng};

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::kept::KeptSources;
use crate::source::Delivery;
use crate::status::{JobControl, JobEnd, JobReport, JobState};

/// Builds the job anew for each attempt: sources, sinks and the commit protocol are used up by one.
#[async_trait]
pub trait AttemptFactory: Send {
    /// The job of attempt `attempt`, counted from 1. Errors are handled like errors of the attempt itself. Dropped when the
    /// job is drained or stopped meanwhile.
    async fn build(&mut self, attempt: u64) -> Result<Job>;
}

#[async_trait]
impl<F> AttemptFactory for F
where
    F: FnMut(u64) -> Result<Job> + Send,
{
    async fn build(&mut self, attempt: u64) -> Result<Job> {
        self(attempt)
    }
}

/// When and how often to start again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RestartOptions {
    /// Pause before the first restart. Default 100 ms. Since 0.1.
    pub backoff_first: Duration,
    /// The pause doubles up to this. Default 10 s. Since 0.1.
    pub backoff_max: Duration,
    /// Part of the pause by which it varies either way, so that replicas do not come back together. Default 0.2;
    /// 0 to 1. Since 0.1.
    pub jitter: f64,
    /// Attempts in a row without one commit, or that ended with an undecided record near its delivery limit, after which
    /// the job stops itself: restarts cost deliveries (DESIGN section 5). Default 10; at least 1. Since 0.1.
    pub attempts_without_commit_max: u32,
}

impl Default for RestartOptions {
    fn default() -> Self {
        RestartOptions {
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_secs(10),
            jitter: 0.2,
            attempts_without_commit_max: 10,
        }
    }
}

impl RestartOptions {
    /// Sets the first and the longest pause.
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, max: Duration) -> Self {
        (self.backoff_first, self.backoff_max) = (first, max);
        self
    }

    /// Sets [`RestartOptions::attempts_without_commit_max`].
    #[must_use]
    pub fn with_attempts_without_commit_max(mut self, count: u32) -> Self {
        self.attempts_without_commit_max = count;
        self
    }

    /// Checks every setting. Errors: `InvalidInput`, with every fault.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        if self.backoff_first > self.backoff_max {
            faults.push(format!(
                "backoff_first {:?} is above backoff_max {:?}",
                self.backoff_first, self.backoff_max
            ));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            faults.push(format!("jitter is {}, it must be 0 to 1", self.jitter));
        }
        if self.attempts_without_commit_max == 0 {
            faults.push("attempts_without_commit_max is 0, it must be at least 1".to_owned());
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("restart options: {}", faults.join("; "))))
    }
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Restart {
        pause: Duration,
    },
    GiveUp,
    /// Another attempt could be the last delivery of this record.
    Spare(Delivery),
}

/// Pure: counts failures and decides.
#[derive(Debug)]
struct RestartPolicy {
    options: RestartOptions,
    failures_in_a_row: u32,
}

impl RestartPolicy {
    /// `nearest_limit` is the undecided record of the failed attempt that has the fewest deliveries left.
    fn after_failure(
        &mut self,
        kind: ErrorKind,
        made_progress: bool,
        nearest_limit: Option<Delivery>,
    ) -> Next {
        if !restartable(kind) {
            return Next::GiveUp;
        }
        if let Some(delivery) = nearest_limit.filter(|delivery| delivery.left() <= DELIVERIES_SPARED) {
            return Next::Spare(delivery);
        }
        // Records that are given up one after another, each in a commit, are no progress: what fails is not the record.
        let made_progress = made_progress && nearest_limit.is_none();
        self.failures_in_a_row = if made_progress { 1 } else { self.failures_in_a_row + 1 };
        if self.failures_in_a_row >= self.options.attempts_without_commit_max && !made_progress {
            return nearest_limit.map_or(Next::GiveUp, Next::Spare);
        }
        let doublings = (self.failures_in_a_row - 1).min(16);
        let pause = self.options.backoff_first.saturating_mul(1 << doublings).min(self.options.backoff_max);
        Next::Restart { pause }
    }
}

/// Restarts never cost a record its last delivery: with so many left, or fewer, there is no restart.
const DELIVERIES_SPARED: u16 = 1;

/// Ends a job whose restarts would use up the deliveries of a record.
fn spared(delivery: &Delivery, error: Error) -> Error {
    let Delivery { partition, offset, count, limit } = delivery;
    let context = format!(
        "the job stops before a record runs out of deliveries: topic {} partition {} offset {offset} has been delivered \
         {count} times of at most {limit}, and the attempt could not decide it ({}); the broker archives it after its last \
         delivery. Remove the cause, then raise share.delivery.count.limit of the group or move the group past the record, \
         and start the job again",
        partition.topic_id,
        partition.partition,
        describe(&error)
    );
    Error::new(ErrorKind::InvalidInput, context).with_source(error)
}

/// True when another attempt may succeed where this one failed.
pub(crate) fn restartable(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Abort | ErrorKind::Retry | ErrorKind::Indeterminate => true,
        ErrorKind::Fenced
        | ErrorKind::InvalidInput
        | ErrorKind::Corrupt
        | ErrorKind::Closed
        | ErrorKind::Bug => false,
        // A kind that this file does not know of asks for a human.
        _ => false,
    }
}

/// Runs attempts until one ends the job.
///
/// `Abort`, `Retry` and `Indeterminate` start a new attempt; every other kind ends the job, and so does any error
/// after a drain was asked for: what was not committed went back to the group. A record that has one delivery left and
/// was not decided ends it, too (DESIGN section 5): the broker would archive it if the next attempt failed.
pub struct Supervisor<F> {
    factory: F,
    options: RestartOptions,
}

impl<F> fmt::Debug for Supervisor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<F: AttemptFactory> Supervisor<F> {
    /// A supervisor of the jobs that `factory` builds.
    pub fn new(factory: F, options: RestartOptions) -> Self {
        Supervisor { factory, options }
    }

    /// Runs the job to its end. Errors: the error of the last attempt. Dropping the future ends everything at once.
    pub async fn run(mut self, env: Env, control: JobControl) -> Result<JobReport> {
        let _ended = control.ends_with_run();
        self.options.validate()?;
        let kept = KeptSources::new(&env);
        let result = self.attempts(&env, &control, &kept).await;
        if !control.stop_token().is_cancelled() {
            kept.close_all().await;
        }
        result
    }

    async fn attempts(&mut self, env: &Env, control: &JobControl, kept: &KeptSources) -> Result<JobReport> {
        let rng: Rng = env.rng.fork("restart");
        let mut policy = RestartPolicy { options: self.options.clone(), failures_in_a_row: 0 };
        loop {
            let commits_before = control.status().borrow().commits;
            let attempt = control.status().borrow().attempts + 1;
            control.update(|status| status.attempts = attempt);
            kept.begin_attempt(policy.failures_in_a_row == 0);
            let built = tokio::select! {
                biased;
                () = control.stop_token().cancelled() => return Ok(ended(JobEnd::Stopped, control)),
                () = control.drain_token().cancelled() => return Ok(ended(JobEnd::Drained, control)),
                built = self.factory.build(attempt) => built,
            };
            let result = match built {
                Ok(job) => Box::pin(job.attempt(env.clone(), control.clone(), Some(kept.clone()))).await,
                Err(error) => {
                    control.recorder().failed(error.kind());
                    Err(error)
                }
            };
            let error = match result {
                Ok(report) => return Ok(report),
                Err(error) => error,
            };
            let (made_progress, nearest_limit) = {
                let status = control.status();
                let status = status.borrow();
                (status.commits > commits_before, status.nearest_limit)
            };
            control.update(|status| status.last_error = Some(describe(&error)));
            let pause = match policy.after_failure(error.kind(), made_progress, nearest_limit) {
                Next::Restart { pause } if !control.drain_token().is_cancelled() => pause,
                Next::Restart { .. } | Next::GiveUp => return Err(error),
                Next::Spare(delivery) => {
                    let error = spared(&delivery, error);
                    control.update(|status| status.last_error = Some(describe(&error)));
                    return Err(error);
                }
            };
            let pause = rng.jitter(pause, self.options.jitter);
            tracing::warn!(
                attempt,
                kind = %error.kind(),
                error = describe(&error),
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "attempt failed, starting again"
            );
            control.set_state(JobState::BackingOff);
            let end = tokio::select! {
                biased;
                () = control.stop_token().cancelled() => Some(JobEnd::Stopped),
                () = control.drain_token().cancelled() => Some(JobEnd::Drained),
                () = env.clock.sleep(pause) => None,
            };
            if let Some(end) = end {
                return Ok(ended(end, control));
            }
        }
    }
}

/// The end of a job that was told so while no attempt ran.
fn ended(end: JobEnd, control: &JobControl) -> JobReport {
    control.set_state(JobState::Ended);
    JobReport { end, unresolved: None, status: control.snapshot() }
}

/// The error with its causes, on one line.
pub(crate) fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

    use super::*;
    use crate::decision::SourcePartition;

    fn policy(attempts: u32) -> RestartPolicy {
        let options = RestartOptions::default()
            .with_backoff(Duration::from_millis(100), Duration::from_millis(350))
            .with_attempts_without_commit_max(attempts);
        RestartPolicy { options, failures_in_a_row: 0 }
    }

    #[test]
    fn the_kind_decides_whether_to_start_again() {
        for (kind, again) in [
            (ErrorKind::Retry, true),
            (ErrorKind::Abort, true),
            (ErrorKind::Indeterminate, true),
            (ErrorKind::Fenced, false),
            (ErrorKind::InvalidInput, false),
            (ErrorKind::Corrupt, false),
            (ErrorKind::Closed, false),
            (ErrorKind::Bug, false),
        ] {
            let restarted = matches!(policy(3).after_failure(kind, false, None), Next::Restart { .. });
            assert_eq!(restarted, again, "{kind}");
        }
    }

    #[test]
    fn the_pause_doubles_to_its_bound_and_starts_anew_after_progress() {
        let mut policy = policy(100);
        let mut pause = |progress| match policy.after_failure(ErrorKind::Abort, progress, None) {
            Next::Restart { pause } => pause.as_millis(),
            Next::GiveUp | Next::Spare(_) => panic!("gave up"),
        };
        assert_eq!([pause(false), pause(false), pause(false), pause(false)], [100, 200, 350, 350]);
        assert_eq!([pause(true), pause(false)], [100, 200]);
    }

    #[test]
    fn attempts_without_a_commit_are_bounded() {
        let mut policy = policy(3);
        assert!(matches!(policy.after_failure(ErrorKind::Abort, false, None), Next::Restart { .. }));
        assert!(matches!(policy.after_failure(ErrorKind::Abort, true, None), Next::Restart { .. }));
        assert!(matches!(policy.after_failure(ErrorKind::Abort, false, None), Next::Restart { .. }));
        assert_eq!(policy.after_failure(ErrorKind::Abort, false, None), Next::GiveUp);
    }

    #[test]
    fn no_restart_costs_a_record_its_last_delivery() {
        let delivery = |count| Delivery {
            partition: SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(3) },
            offset: Offset(7),
            count,
            limit: 5,
        };
        for (count, stops) in [(2, false), (3, false), (4, true), (5, true), (6, true)] {
            for progress in [false, true] {
                let next = policy(10).after_failure(ErrorKind::Abort, progress, Some(delivery(count)));
                assert_eq!(matches!(next, Next::Spare(_)), stops, "{count}");
            }
        }
        let mut policy = policy(3);
        for stops in [false, false, true] {
            let next = policy.after_failure(ErrorKind::Abort, true, Some(delivery(3)));
            assert_eq!(matches!(next, Next::Spare(_)), stops, "commits of dead letters are no progress");
        }
        let error = spared(&delivery(4), Error::new(ErrorKind::Abort, "the sink is gone"));
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        for part in ["partition 3", "offset 7", "4 times of at most 5", "the sink is gone", "raise"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
