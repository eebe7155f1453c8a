//! What a running job shows: state, committed counts, and how long commits take.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, Stream};
use hdrhistogram::Histogram;
use serde::Serialize;
use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::{CancellationToken, Instant, watch};

use crate::ErrorKind;
use crate::commit::AckMode;
use crate::coordinates::RejectCounts;
use crate::coordinator::CheckpointRequests;
use crate::error::{Error, Result};
use crate::metrics::{JobMetrics, Recorder};
use crate::source::Delivery;

/// Where a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// Not started yet.
    #[default]
    Created,
    /// Fencing older incarnations and finding the last committed checkpoint.
    Recovering,
    /// Connecting sources and sinks.
    Connecting,
    /// Processing.
    Running,
    /// Asked to stop: the last checkpoint is on its way.
    Draining,
    /// The attempt failed; open epochs are being given up.
    Failing,
    /// The supervisor waits before the next attempt.
    BackingOff,
    /// Ended.
    Ended,
}

/// Middle and tail of a measured time, in milliseconds; zero while nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the samples were not longer.
    pub p50: f64,
    /// 99 of 100 samples were not longer.
    pub p99: f64,
    /// Number of samples.
    pub count: u64,
}

/// What keeps a job from being faster just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundBy {
    /// The sources have run dry: the job is as fast as its input.
    Source,
    /// As many calls run as may (`concurrency`), and rows wait for theirs.
    Concurrency,
    /// A lock window is full: brokers hand out nothing more before the oldest record there is decided.
    LockWindow,
    /// Calls are held because all of them fail.
    Circuit,
}

/// A record that is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordInWork {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// How long it has been here, milliseconds.
    pub for_ms: u64,
}

/// An operator that calls out, over all of its subtasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallStatus {
    /// Its name.
    pub name: String,
    /// Calls that run.
    pub running: u64,
    /// Rows that wait for a call, first or repeated.
    pub waiting: u64,
    /// Rows that the last barrier passed while they were worked on: a later checkpoint commits them.
    pub deferred: u64,
    /// Calls of this attempt that were repeated.
    pub retries: u64,
    /// Everything fails, so that nothing is called but one record now and then.
    pub is_holding: bool,
    /// The record that has been here longest: its partition's start offset cannot pass it.
    pub oldest: Option<RecordInWork>,
}

/// A snapshot of a job. Counts are of committed epochs and go on over the attempts of one [`JobControl`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobStatus {
    /// Where the job is.
    pub state: JobState,
    /// The guarantee it runs with (G5), known from the first attempt on.
    pub mode: Option<AckMode>,
    /// Incarnation of the current attempt, once it owns the (job, instance).
    pub job_epoch: Option<JobEpoch>,
    /// Attempts started.
    pub attempts: u64,
    /// Why the last attempt failed, if one did.
    pub last_error: Option<String>,
    /// Last committed checkpoint that this process knows of.
    pub checkpoint: Option<CheckpointId>,
    /// Committed epochs.
    pub commits: u64,
    /// Committed source records, bad ones included, gaps not.
    pub records_in: u64,
    /// Committed output rows.
    pub rows_out: u64,
    /// Committed dead letters.
    pub dead_letters: u64,
    /// Records that committed epochs copied to the parking topic; each time counts.
    pub parked: u64,
    /// Committed rejected rows by kind of error: dead letters, and those that the policy drops.
    pub rejected: RejectCounts,
    /// Committed rows that operators dropped with no effect.
    pub filtered: u64,
    /// Bytes of the state of all operators, in memory, at the last commit.
    pub state_bytes: u64,
    /// Bytes of state that committed checkpoints have written because it had changed.
    pub state_written_bytes: u64,
    /// Bytes of state that they have written beside, so that old parts can go.
    pub state_compacted_bytes: u64,
    /// How far event time has come, as of the last commit: Unix milliseconds; no record at or before it is waited for.
    /// `None` for a job without event time, and until every partition that is not idle has told a time.
    pub watermark_ms: Option<i64>,
    /// Deliveries of this attempt that a committed claim had decided: acknowledged as decided, not processed again
    /// (ledger mode).
    pub already_decided: u64,
    /// Deliveries of this attempt below the floor: everything there is decided and its claims are gone (ledger mode). A
    /// high number without failures points to offsets that were moved by hand.
    pub dropped_below_floor: u64,
    /// Records handed on and not in a sealed epoch yet.
    pub in_flight: u64,
    /// The fullest lock window of any partition, 0.0 to 1.0.
    pub window_fill: f64,
    /// Operators that call out.
    pub calls: Vec<CallStatus>,
    /// What bounds the rate just now, if it is known.
    pub bound_by: Option<BoundBy>,
    /// Of the undecided records that the job holds, or held when its last attempt failed, the one with the fewest
    /// deliveries left; `None` while none is near the limit.
    pub nearest_limit: Option<Delivery>,
    /// Sending a barrier to its last acknowledgement: alignment and flush.
    pub barrier_ms: Quantiles,
    /// Last barrier acknowledgement to the known commit.
    pub commit_ms: Quantiles,
    /// Last barrier acknowledgement to visibility everywhere (a sample of the epochs).
    pub visible_ms: Quantiles,
    /// Visibility probes that failed; the epoch itself was committed.
    pub visible_failures: u64,
}

/// How a job ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobEnd {
    /// Drained: everything handed on is committed, the rest was given back.
    Drained,
    /// Stopped at once: what was not committed goes back to the group when its locks end.
    Stopped,
}

/// The last word of a job that ended without an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobReport {
    /// How it ended.
    pub end: JobEnd,
    /// A checkpoint whose commit had begun when the job was stopped at once: the next start finds out.
    pub unresolved: Option<CheckpointId>,
    /// The final counts.
    pub status: JobStatus,
}

/// A handle to a job from outside: asks it for a checkpoint or to stop, and watches it. Cheap to clone; one handle
/// serves all attempts.
///
/// Three ways to end a job, whatever operators it has:
///
/// | | what was handed on | what calls of an `AsyncMap` work on | state |
/// |---|---|---|---|
/// | [`drain`](JobControl::drain) | committed | committed if done within half of `drain_deadline`, else given back | in the last checkpoint |
/// | [`stop`](JobControl::stop) | not waited for, comes again | dropped, comes again | as of the last commit |
/// | dropping the future of the run | as `stop` | as `stop` | as `stop` |
///
/// None of them loses or doubles a record. After a stop or a drop a commit may be under way; the next start finds out.
#[derive(Clone, Debug)]
pub struct JobControl {
    drain: CancellationToken,
    stop: CancellationToken,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    status: watch::Sender<JobStatus>,
    latencies: Mutex<Latencies>,
    recorder: Recorder,
    requests: CheckpointRequests,
}

#[derive(Debug)]
struct Latencies {
    barrier_us: Histogram<u64>,
    commit_us: Histogram<u64>,
    visible_us: Histogram<u64>,
    refreshed_at: Option<Instant>,
}

/// How long one epoch took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitTimes {
    /// Sending the barrier to its last acknowledgement.
    pub(crate) barrier: Duration,
    /// From there to the known commit.
    pub(crate) commit: Duration,
}

/// Two digits: a quantile then costs microseconds, and no decision hangs on the third digit.
const SIGNIFICANT_DIGITS: u8 = 2;
/// Longer times count as this one: 10 minutes, above every deadline in the path.
const LATENCY_US_MAX: u64 = 600_000_000;
/// Quantiles in the status are at most this old while commits come in.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

impl Default for JobControl {
    fn default() -> Self {
        Self::new()
    }
}

impl JobControl {
    /// A handle for a job that has not started.
    pub fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
                .expect("one is below the maximum, and two significant digits are allowed")
        };
        JobControl {
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            shared: Arc::new(Shared {
                status: watch::Sender::new(JobStatus::default()),
                latencies: Mutex::new(Latencies {
                    barrier_us: histogram(),
                    commit_us: histogram(),
                    visible_us: histogram(),
                    refreshed_at: None,
                }),
                recorder: Recorder::default(),
                requests: CheckpointRequests::default(),
            }),
        }
    }

    /// Asks for a last checkpoint and then the end, within `drain_deadline`.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Ends the job at once; what is not committed goes back to the group when its locks end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks for a checkpoint now, and waits until everything that sources had handed on before the call is committed,
    /// what calls of an `AsyncMap` work on included. Returns the checkpoint that it was committed by or with; at once
    /// the last one when nothing is in flight, and `None` when the job has never committed anything.
    ///
    /// It may be called before the job starts, and goes on over the attempts of a supervisor: what a failed attempt had
    /// not committed goes back to the group, and the call waits for the first commit of the next attempt, or until its
    /// sources have looked and found nothing. Callers that wait at the same time share a barrier, so any number of them
    /// costs no more than one.
    ///
    /// # Errors
    /// `Closed`: the job ended first.
    ///
    /// # Cancel safety
    /// Dropped, it takes nothing with it: the checkpoint may be taken all the same.
    pub async fn checkpoint(&self) -> Result<Option<CheckpointId>> {
        let mut status = self.status();
        let (number, mut answered) = self.shared.requests.ask();
        tokio::select! {
            biased;
            answer = answered.wait_for(|answer| answer.number >= number) => {
                if let Ok(answer) = answer {
                    return Ok(answer.checkpoint);
                }
            }
            _ended = status.wait_for(|status| status.state == JobState::Ended) => {}
        }
        Err(Error::new(ErrorKind::Closed, "the job ended before the checkpoint that was asked for"))
    }

    /// Triggered by [`JobControl::drain`].
    pub fn drain_token(&self) -> &CancellationToken {
        &self.drain
    }

    /// Triggered by [`JobControl::stop`].
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// The status, now and as it changes.
    pub fn status(&self) -> watch::Receiver<JobStatus> {
        self.shared.status.subscribe()
    }

    /// The status as a stream: as it is now, then as it changes, the last of the changes that came while nobody looked.
    /// It ends behind [`JobState::Ended`]. Dropping it costs nothing.
    pub fn status_stream(&self) -> impl Stream<Item = JobStatus> + Send + Unpin + use<> {
        let state = (self.status(), true);
        Box::pin(stream::unfold(state, |(mut status, is_first)| async move {
            if !is_first {
                let is_over = status.borrow().state == JobState::Ended;
                if is_over || status.changed().await.is_err() {
                    return None;
                }
            }
            let now = status.borrow_and_update().clone();
            Some((now, (status, false)))
        }))
    }

    /// A copy of the status with fresh quantiles.
    pub fn snapshot(&self) -> JobStatus {
        self.refresh_quantiles();
        self.shared.status.borrow().clone()
    }

    /// What is measured for monitoring, now. Costs a copy of some hundred numbers.
    pub fn metrics(&self) -> JobMetrics {
        self.shared.recorder.snapshot()
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    pub(crate) fn requests(&self) -> &CheckpointRequests {
        &self.shared.requests
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        self.shared.status.send_modify(change);
    }

    pub(crate) fn set_state(&self, state: JobState) {
        self.update(|status| status.state = state);
    }

    /// Whoever holds this runs the job: it has ended when this is dropped, however that comes.
    pub(crate) fn ends_with_run(&self) -> EndsWithRun {
        EndsWithRun(self.clone())
    }

    /// Records one commit and publishes `change` with it.
    pub(crate) fn record_commit(&self, took: CommitTimes, now: Instant, change: impl FnOnce(&mut JobStatus)) {
        let fresh = {
            let mut latencies = self.latencies();
            latencies.barrier_us.saturating_record(micros(took.barrier));
            latencies.commit_us.saturating_record(micros(took.commit));
            let due = latencies.refreshed_at.is_none_or(|at| now.duration_since(at) >= REFRESH_INTERVAL);
            due.then(|| {
                latencies.refreshed_at = Some(now);
                latencies.quantiles()
            })
        };
        self.update(|status| {
            change(status);
            if let Some(fresh) = fresh {
                (status.barrier_ms, status.commit_ms, status.visible_ms) = fresh;
            }
        });
    }

    pub(crate) fn record_visible(&self, took: Duration) {
        self.latencies().visible_us.saturating_record(micros(took));
    }

    pub(crate) fn refresh_quantiles(&self) {
        let fresh = self.latencies().quantiles();
        self.update(|status| (status.barrier_ms, status.commit_ms, status.visible_ms) = fresh);
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        // Histograms stay valid whatever panicked beside them.
        self.shared.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the end of a job when it is dropped.
pub(crate) struct EndsWithRun(JobControl);

impl Drop for EndsWithRun {
    fn drop(&mut self) {
        if self.0.status().borrow().state != JobState::Ended {
            self.0.set_state(JobState::Ended);
        }
    }
}

impl Latencies {
    /// Of barriers, commits and visibility.
    fn quantiles(&self) -> (Quantiles, Quantiles, Quantiles) {
        let of = |histogram: &Histogram<u64>| Quantiles {
            p50: histogram.value_at_quantile(0.5) as f64 / 1e3,
            p99: histogram.value_at_quantile(0.99) as f64 / 1e3,
            count: histogram.len(),
        };
        (of(&self.barrier_us), of(&self.commit_us), of(&self.visible_us))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn quantiles_come_with_commits_but_not_with_each_one() {
        let control = JobControl::new();
        let clock = sharestream_base::Clock::system();
        let start = clock.now();
        let took = CommitTimes { barrier: Duration::from_millis(1), commit: Duration::from_millis(4) };
        control.record_commit(took, start, |status| status.commits += 1);
        assert_eq!(control.status().borrow().commit_ms.count, 1);
        control.record_commit(took, start, |status| status.commits += 1);
        assert_eq!(control.status().borrow().commit_ms.count, 1, "within the refresh interval");
        assert_eq!(control.status().borrow().commits, 2, "counts are never held back");
        let status = control.snapshot();
        assert_eq!(status.commit_ms.count, 2);
        assert!((3.9..=4.1).contains(&status.commit_ms.p50), "{:?}", status.commit_ms);
    }
}
