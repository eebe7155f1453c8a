//! The loop of the coordinator: it is the only one that decides, and it never waits for one thing alone.

use std::sync::Arc;
use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{Instant, OwnedTask, TaskExit};
use sharestream_checkpoints::Retention;
use tokio::sync::mpsc::error::TrySendError;

use super::calls::CallsShown;
use super::commit::{CommitEnd, CommitFigures, CommitTools, ProbeEnd};
use super::drain::Stage;
use super::job_state::{EpochEvent, EpochLine, TransitionError, Work};
use super::pending_checkpoint::{EpochCounts, PendingCheckpoint, Report, Sealed, Subtask};
use super::seat::{Assignment, Seat, WorkEnd};
use super::start::Started;
use super::trace::Trace;
use crate::ErrorKind;
use crate::controller::{Controller, Limits, Load, Reason, Trigger};
use crate::decision::{MemberDecisions, all_of};
use crate::element::Barrier;
use crate::error::{Error, Result};
use crate::graph::{JobId, Running};
use crate::metrics::CheckpointFigures;
use crate::options::JobOptions;
use crate::status::{CommitTimes, JobControl, JobState};
use crate::task::context::TaskEvent;
use crate::task::source::SourceCommand;

/// How the loop ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriveEnd {
    Drained,
    Stopped,
}

/// An epoch on its way through the commit.
#[derive(Clone, Debug)]
pub(super) struct Committing {
    pub(super) triggered_at: Instant,
    pub(super) sealed_at: Instant,
    pub(super) counts: EpochCounts,
    pub(super) trace: Trace,
}

/// An epoch whose visibility is awaited.
pub(super) struct Probe {
    pub(super) triggered_at: Instant,
    pub(super) sealed_at: Instant,
    pub(super) task: OwnedTask<ProbeEnd>,
}

/// The coordinator of one attempt.
pub(crate) struct Coordinator {
    pub(super) id: JobId,
    pub(super) options: JobOptions,
    pub(super) control: JobControl,
    pub(super) tools: CommitTools,
    pub(super) running: Running,
    pub(super) seat: Seat,
    pub(super) line: EpochLine,
    pub(super) last_committed: Option<CheckpointId>,
    /// The last committed checkpoint when the attempt began.
    pub(super) restored: Option<CheckpointId>,
    /// The epoch that the seat commits.
    pub(super) committing: Option<Committing>,
    /// A sampled epoch whose visibility is awaited.
    pub(super) probe: Option<Probe>,
    pub(super) controller: Controller,
    pub(super) stage: Stage,
    pub(super) drain_deadline: Option<Instant>,
    pub(super) pending: Option<PendingCheckpoint>,
    /// Offsets that a sealed epoch has deferred, by the member that holds them: they join the next one.
    pub(super) carried: Vec<MemberDecisions>,
    /// Sealed epochs that wait for their commit, oldest first: at most two.
    sealed: Vec<(Instant, Sealed)>,
    retention: Option<OwnedTask<sharestream_checkpoints::Result<usize>>>,
    commits_since_retention: u32,
    /// When the load was last shown in the status.
    load_shown_at: Option<Instant>,
}

/// The load in the status is at most this old while sources hand on; commits show it, too.
const LOAD_INTERVAL: Duration = Duration::from_millis(200);
/// Commits between two runs of retention: it lists the folder, which is too slow for every commit.
const COMMITS_PER_RETENTION: u32 = 64;

impl Coordinator {
    /// Errors: `Bug`, the graph does not fit together.
    pub(crate) fn new(started: Started, control: JobControl) -> Result<Self> {
        let Started { id, env, options, protocol, tools, blueprint, parts, last_committed, first } = started;
        let running = blueprint.start(parts, first, &env, tools.kept.as_ref())?;
        control.recorder().attach(running.gauges.clone());
        control.requests().start_attempt(last_committed);
        control.set_state(JobState::Running);
        Ok(Coordinator {
            seat: Seat::new(protocol),
            line: EpochLine::new(first),
            controller: Controller::new(Limits::from(&options)),
            stage: Stage::Running,
            drain_deadline: None,
            pending: None,
            carried: Vec::new(),
            sealed: Vec::new(),
            committing: None,
            probe: None,
            retention: None,
            commits_since_retention: 0,
            load_shown_at: None,
            id,
            options,
            control,
            tools,
            running,
            restored: last_committed,
            last_committed,
        })
    }

    /// Runs until the job is drained, stopped at once, or something fails.
    pub(crate) async fn drive(&mut self) -> Result<DriveEnd> {
        let stop = self.control.stop_token().clone();
        let drain = self.control.drain_token().clone();
        let mut asked = self.control.requests().watch();
        loop {
            self.start_work()?;
            self.answer_requests();
            if self.advance_drain()? {
                return Ok(DriveEnd::Drained);
            }
            let look_again_at = self.pace()?;
            let deadline =
                [look_again_at, self.alignment_deadline(), self.seat.deadline(), self.drain_deadline]
                    .into_iter()
                    .flatten()
                    .min();
            let is_running = matches!(self.stage, Stage::Running);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(DriveEnd::Stopped),
                Some(event) = self.running.events.recv() => self.on_event(event)?,
                ended = self.seat.finished() => {
                    let (checkpoint, end) = ended?;
                    self.on_work_end(checkpoint, end)?;
                }
                Some(exit) = self.running.tasks.join_next() => self.on_exit(exit)?,
                () = drain.cancelled(), if is_running => self.begin_drain()?,
                Ok(()) = asked.changed() => {}
                ended = probe_end(&mut self.probe) => self.on_probe_end(ended),
                () = self.running.gauges.changed() => self.show_load(),
                () = self.tools.clock.sleep_until_any(deadline) => {}
            }
            self.check_deadlines()?;
        }
    }

    /// Gives the protocol its next work, if it is free.
    fn start_work(&mut self) -> Result<()> {
        if !self.seat.is_free() {
            return Ok(());
        }
        let Some(work) = self.line.next_work() else { return Ok(()) };
        let deadline = self.tools.clock.now() + self.options.commit_deadline;
        let assignment = match work {
            Work::Open(checkpoint) => {
                self.advance(checkpoint, EpochEvent::OpenStarted)?;
                Assignment::Open(checkpoint)
            }
            Work::Settle(checkpoint) => {
                self.advance(checkpoint, EpochEvent::CommitStarted)?;
                let index = self.sealed.iter().position(|(_, sealed)| sealed.checkpoint == checkpoint);
                let Some(index) = index else {
                    return Err(bug(format!("epoch {checkpoint} is sealed, but its content is gone")));
                };
                let (sealed_at, sealed) = self.sealed.remove(index);
                if sealed.is_empty() {
                    sealed.trace.ended("discarded");
                    Assignment::Discard(checkpoint)
                } else {
                    let (triggered_at, counts) = (sealed.triggered_at, sealed.counts);
                    let trace = sealed.trace.clone();
                    self.committing = Some(Committing { triggered_at, sealed_at, counts, trace });
                    let with_probe = self.probe.is_none();
                    Assignment::Commit {
                        sealed: Box::new(sealed),
                        predecessor: self.last_committed,
                        with_probe,
                    }
                }
            }
        };
        self.seat.start(assignment, deadline, self.tools.clone())
    }

    /// Sends a barrier when it is time; otherwise says when to look again.
    fn pace(&mut self) -> Result<Option<Instant>> {
        if self.pending.is_some() {
            return Ok(None);
        }
        let Some(checkpoint) = self.line.barrier_target() else { return Ok(None) };
        let load = Load { is_committing: self.line.is_committing(), ..self.running.gauges.load() };
        let now = self.tools.clock.now();
        let (trigger, event) = match &self.stage {
            Stage::Running => (self.trigger(&load, now), EpochEvent::BarrierSent),
            Stage::LastCheckpoint if load.oldest_at.is_some() || load.has_calls => {
                (Trigger::Now(Reason::Drain), EpochEvent::LastBarrierSent)
            }
            Stage::LastCheckpoint | Stage::Stopping(_) | Stage::Closing => return Ok(None),
        };
        match trigger {
            Trigger::Wait => Ok(None),
            Trigger::At(at) => Ok(Some(at)),
            Trigger::Now(reason) => {
                tracing::debug!(checkpoint_id = %checkpoint, ?reason, records = load.record_count, "barrier");
                self.advance(checkpoint, event)?;
                let carried = std::mem::take(&mut self.carried);
                let mut pending = PendingCheckpoint::new(checkpoint, now, self.subtasks(), carried);
                pending.trace = Trace::begin(&self.id, checkpoint, reason.name());
                self.pending = Some(pending);
                let waits_until = self.waits_for_calls_until(reason);
                self.command(&SourceCommand::Barrier(Barrier { checkpoint, waits_until }))?;
                self.running.barrier_sent.send_replace(checkpoint);
                self.control.requests().barrier_sent(checkpoint);
                // The next epoch can be opened while this barrier is on its way.
                self.start_work()?;
                Ok(None)
            }
        }
    }

    /// The last barrier has calls end that would otherwise be thrown away; what is not done after half of the time that
    /// a drain has goes back to the group.
    fn waits_for_calls_until(&self, reason: Reason) -> Option<Instant> {
        match reason {
            Reason::Drain => self.drain_deadline.map(|deadline| deadline - self.options.drain_deadline / 2),
            Reason::NearLimit
            | Reason::Idle
            | Reason::Rows
            | Reason::Bytes
            | Reason::Window
            | Reason::Interval
            | Reason::Request => None,
        }
    }

    fn subtasks(&self) -> Vec<Subtask> {
        (0..self.running.commands.len())
            .map(Subtask::Source)
            .chain((0..self.running.operator_count).map(Subtask::Operator))
            .chain((0..self.running.sink_count).map(Subtask::Sink))
            .collect()
    }

    fn on_event(&mut self, event: TaskEvent) -> Result<()> {
        match event {
            TaskEvent::SourceAcked { subtask, checkpoint, report } => {
                self.acknowledge(Subtask::Source(subtask), checkpoint, Report::Source(report))
            }
            TaskEvent::OperatorAcked { subtask, checkpoint, report } => {
                self.acknowledge(Subtask::Operator(subtask), checkpoint, Report::Operator(report))
            }
            TaskEvent::SinkAcked { subtask, checkpoint, report } => {
                self.acknowledge(Subtask::Sink(subtask), checkpoint, Report::Sink(report))
            }
            TaskEvent::SourceStopped { subtask } => {
                if let Stage::Stopping(waiting) = &mut self.stage {
                    waiting.remove(&subtask);
                }
                Ok(())
            }
            TaskEvent::Failed { task, error } => {
                tracing::debug!(task, %error, "task failed");
                Err(error)
            }
        }
    }

    fn acknowledge(&mut self, subtask: Subtask, checkpoint: CheckpointId, report: Report) -> Result<()> {
        let Some(pending) = &mut self.pending else {
            return Err(bug(format!("{subtask} acknowledged barrier {checkpoint}, but none is pending")));
        };
        let is_last = pending.acknowledge(subtask, checkpoint, report)?;
        let now = self.tools.clock.now();
        if pending.is_aligned() {
            pending.trace.aligned(pending.triggered_at, now);
        }
        if !is_last {
            return Ok(());
        }
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let (mut sealed, deferred) = pending.seal()?;
        sealed.trace.sealed(now, &sealed.counts);
        self.advance(checkpoint, EpochEvent::Sealed)?;
        let offsets = all_of(&deferred);
        self.control.requests().sealed(checkpoint, &offsets);
        if !deferred.is_empty() {
            let offsets = Arc::new(offsets);
            self.command(&SourceCommand::Deferred(checkpoint, offsets))?;
            self.carried = if is_planted(Bug::CarriedOffsetsForgotten) { Vec::new() } else { deferred };
        }
        self.sealed.push((now, sealed));
        Ok(())
    }

    fn on_work_end(&mut self, checkpoint: CheckpointId, end: WorkEnd) -> Result<()> {
        match end {
            WorkEnd::Opened(result) => {
                result.map_err(|error| error.within(&format!("opening epoch {checkpoint}")))?;
                self.advance(checkpoint, EpochEvent::Opened)?;
                self.running.opened.send_replace(checkpoint);
                Ok(())
            }
            WorkEnd::Discarded(result) => {
                result.map_err(|error| error.within(&format!("discarding empty epoch {checkpoint}")))?;
                self.control.requests().settled(checkpoint, self.last_committed);
                self.advance(checkpoint, EpochEvent::Settled)
            }
            WorkEnd::Committed(end) => self.on_commit_end(checkpoint, end),
        }
    }

    fn on_commit_end(&mut self, checkpoint: CheckpointId, end: CommitEnd) -> Result<()> {
        let (at, probe, figures, after) = match end {
            CommitEnd::Committed { at, probe, figures, after } => (at, probe, figures, after),
            CommitEnd::Failed { error, may_abort } => {
                if let Some(Committing { trace, .. }) = &self.committing {
                    trace.ended("failed");
                }
                if !may_abort {
                    // Over for us: what it came to is for the next attempt to find out.
                    self.advance(checkpoint, EpochEvent::Settled)?;
                    if is_planted(Bug::ManifestBeforeOutcome) && error.kind() == ErrorKind::Indeterminate {
                        return Ok(());
                    }
                }
                return Err(error.within(&format!("committing checkpoint {checkpoint}")));
            }
        };
        self.record_commit(checkpoint, at, probe, figures);
        self.control.requests().settled(checkpoint, self.last_committed);
        self.advance(checkpoint, EpochEvent::Settled)?;
        after
            .map_err(|error| error.within(&format!("checkpoint {checkpoint} is committed, completing it")))?;
        self.command(&SourceCommand::Committed(checkpoint))?;
        self.run_retention(checkpoint);
        Ok(())
    }

    /// Notes that `checkpoint` is committed, whatever comes next.
    pub(super) fn record_commit(
        &mut self,
        checkpoint: CheckpointId,
        at: Instant,
        probe: Option<OwnedTask<ProbeEnd>>,
        figures: CommitFigures,
    ) {
        self.last_committed = Some(checkpoint);
        let Some(committing) = self.committing.take() else { return };
        let Committing { triggered_at, sealed_at, counts, trace } = committing;
        let took = at.duration_since(triggered_at);
        self.controller.observe(took);
        if let Some(probe) = probe {
            self.probe = Some(Probe { triggered_at, sealed_at, task: probe });
        }
        let load = self.running.gauges.load();
        let (barrier, commit) = (sealed_at.duration_since(triggered_at), at.duration_since(sealed_at));
        self.control.record_commit(CommitTimes { barrier, commit }, at, |status| {
            status.checkpoint = Some(checkpoint);
            status.commits += 1;
            status.records_in += counts.records_in;
            status.rows_out += counts.rows_out;
            status.dead_letters += counts.dead_letters;
            status.rejected += counts.rejected;
            status.filtered += counts.filtered;
            status.state_bytes = counts.state_bytes;
            status.state_written_bytes += counts.state_written_bytes;
            status.state_compacted_bytes += counts.state_compacted_bytes;
            status.in_flight = load.record_count;
            status.window_fill = load.window_fill;
            status.nearest_limit = load.nearest_limit;
            (status.already_decided, status.dropped_below_floor) = (load.already_decided, load.below_floor);
        });
        trace.ended("committed");
        trace.span().in_scope(|| {
            tracing::debug!(
                checkpoint_id = %checkpoint,
                records = counts.records_in,
                ?barrier,
                ?commit,
                "committed"
            );
        });
        self.control.recorder().checkpoint(&CheckpointFigures {
            reason: trace.reason(),
            took,
            steps: trace.into_steps(figures.steps),
            record_count: counts.records_in,
            byte_count: counts.payload_bytes,
            offset_count: figures.offset_count,
            manifest_bytes: figures.manifest_bytes,
        });
    }

    /// A job that cannot commit still shows what it holds.
    fn show_load(&mut self) {
        let now = self.tools.clock.now();
        if self.load_shown_at.is_some_and(|at| now.duration_since(at) < LOAD_INTERVAL) {
            return;
        }
        self.load_shown_at = Some(now);
        let load = self.running.gauges.load();
        let calls = CallsShown::of(&self.running, now);
        self.control.update(|status| {
            (status.in_flight, status.window_fill) = (load.record_count, load.window_fill);
            status.nearest_limit = load.nearest_limit;
            (status.already_decided, status.dropped_below_floor) = (load.already_decided, load.below_floor);
            status.bound_by = calls.bound_by(&load);
            status.calls = calls.operators;
        });
    }

    pub(super) fn on_probe_end(&mut self, end: Result<ProbeEnd>) {
        let Some(Probe { triggered_at, sealed_at, .. }) = self.probe.take() else { return };
        let error = match end {
            Ok(ProbeEnd { at, took, result: Ok(Ok(())) }) => {
                self.control.record_visible(at.duration_since(sealed_at));
                self.controller.observe_visible(at.duration_since(triggered_at));
                self.control.recorder().visible(took);
                return;
            }
            Ok(ProbeEnd { result: Ok(Err(error)), .. }) => error.to_string(),
            Ok(ProbeEnd { result: Err(_elapsed), .. }) => "it was not visible in time".to_owned(),
            Err(error) => error.to_string(),
        };
        // The epoch is committed; only its measurement is missing, and that is counted.
        tracing::warn!(job = %self.id, error, "a visibility probe failed");
        self.control.update(|status| status.visible_failures += 1);
    }

    fn on_exit(&mut self, exit: TaskExit<()>) -> Result<()> {
        exit.result?;
        match self.stage {
            Stage::Closing => Ok(()),
            Stage::Running | Stage::Stopping(_) | Stage::LastCheckpoint => {
                Err(bug(format!("task {} ended before its time", exit.name)))
            }
        }
    }

    fn check_deadlines(&self) -> Result<()> {
        let now = self.tools.clock.now();
        if self.is_drain_overdue() {
            let limit = self.options.drain_deadline;
            let context = format!("draining took longer than {limit:?}; what is not committed is given back");
            return Err(Error::new(ErrorKind::Closed, context));
        }
        if let Some(error) = self.seat.overdue(now) {
            return Err(error);
        }
        match (&self.pending, self.alignment_deadline()) {
            (Some(pending), Some(deadline)) if now >= deadline => Err(Error::new(
                ErrorKind::Abort,
                format!(
                    "barrier {} was not acknowledged within {:?} by {}",
                    pending.checkpoint,
                    self.options.barrier_alignment_timeout,
                    pending.waiting_for()
                ),
            )),
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn alignment_deadline(&self) -> Option<Instant> {
        let pending = self.pending.as_ref()?;
        Some(pending.triggered_at + self.options.barrier_alignment_timeout)
    }

    /// Tells every source. A source that has ended says so itself.
    pub(super) fn command(&mut self, command: &SourceCommand) -> Result<()> {
        for (subtask, sender) in self.running.commands.iter().enumerate() {
            match sender.try_send(command.clone()) {
                Ok(()) | Err(TrySendError::Closed(_)) => {}
                Err(TrySendError::Full(_)) => {
                    return Err(bug(format!("source-{subtask} has too many commands waiting")));
                }
            }
        }
        Ok(())
    }

    pub(super) fn advance(&mut self, checkpoint: CheckpointId, event: EpochEvent) -> Result<()> {
        self.line.apply(checkpoint, event).map_err(|error: TransitionError| bug(error.to_string()))
    }

    /// Deletes old completed checkpoints beside the job, now and then.
    fn run_retention(&mut self, committed: CheckpointId) {
        let Some(owned) = &self.tools.store else { return };
        self.commits_since_retention += 1;
        let is_running = self.retention.as_ref().is_some_and(|task| !task.is_finished());
        if self.commits_since_retention < COMMITS_PER_RETENTION || is_running {
            return;
        }
        self.commits_since_retention = 0;
        let retention = Retention::keep_last(self.options.checkpoints_retained);
        let store = owned.store.clone();
        let kind = sharestream_base::TaskKind::Job;
        self.retention = Some(OwnedTask::spawn(&self.tools.spawner, "retention", kind, async move {
            let result = retention.run(&store, committed).await;
            if let Err(error) = &result {
                // Nothing is lost by it: the next run deletes what this one left.
                tracing::warn!(%error, "old checkpoints could not be deleted");
            }
            result
        }));
    }
}

/// Waits for the end of the probe; for ever when none runs. Cancel safe.
pub(super) async fn probe_end(probe: &mut Option<Probe>) -> Result<ProbeEnd> {
    let Some(Probe { task, .. }) = probe else { return std::future::pending().await };
    match task.join().await {
        Ok(Some(end)) => Ok(end),
        Ok(None) => Err(Error::new(ErrorKind::Closed, "the runtime is shutting down")),
        Err(panic) => Err(panic.into()),
    }
}

fn bug(context: String) -> Error {
    Error::new(ErrorKind::Bug, context)
}
