//! One attempt of a session: from its recovery to its first error.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use sharestream_base::Instant;
use sharestream_base::ids::CheckpointId;
use tracing::Instrument;

use super::held::{Held, Use};
use super::{Commit, Setup};
use crate::ErrorKind;
use crate::commit::CommitProtocol;
use crate::coordinator::{
    CommitEnd, CommitTools, PendingCheckpoint, Position, Report, Sealed, Subtask, Trace, close, commit_epoch,
    recover, still_owner, within,
};
use crate::decision::Decisions;
use crate::error::{Error, Result};
use crate::sink::Sink;
use crate::source::{Source, SourceEvent, maintained};

/// The parts, connected, and the epoch that they are in.
pub(super) struct Attempt {
    pub(super) source: Box<dyn Source>,
    /// True once it was asked to stop acquiring.
    is_stopped: bool,
    /// A call that must not be dropped half way runs: a source that was interrupted in it cannot be asked to close.
    is_source_in_call: bool,
    sink: Box<dyn Sink>,
    /// `None`: a call of it was given up, so that nobody knows its state.
    protocol: Option<Box<dyn CommitProtocol>>,
    tools: CommitTools,
    pub(super) last_committed: Option<CheckpointId>,
    /// The epoch that is written, or the next one.
    checkpoint: CheckpointId,
    is_open: bool,
    pub(super) held: Held,
    /// Bad records that are not written as dead letters yet. The lock window bounds them.
    undecodable: Vec<RecordBatch>,
    /// When the source first gave something since the last commit, gaps included.
    pub(super) oldest_at: Option<Instant>,
    /// Schema of rows that the sink takes.
    checked: Option<SchemaRef>,
}

/// Why a call has failed, and whether the open epoch is still ours to abort.
pub(super) struct Failure {
    error: Error,
    may_abort: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, may_abort: true }
    }
}

impl Attempt {
    /// Recovers and connects. Nothing is left on an error.
    pub(super) async fn start(setup: &Setup) -> Result<Self> {
        let Setup { env, id, parts, options, step_hook } = setup;
        let mut protocol = parts.commit_protocol(Some(step_hook.clone()));
        let clock = env.clock.clone();
        let start = async {
            let recovery = recover(id, protocol.as_mut(), None, env);
            let position = within(&clock, options.recovery_deadline, "recovery", recovery).await?;
            let connect = async {
                let sink = parts.sink_factory().create(0, 1).await?;
                let source = parts.source_factory().create(0).await?;
                Ok((source, sink))
            };
            let parts = within(&clock, options.connect_deadline, "connecting source and sink", connect);
            Ok((position, parts.await?))
        };
        let (position, (source, sink)) = match start.await {
            Ok(started) => started,
            Err(error) => {
                close(protocol.as_mut(), &clock, options.close_deadline).await;
                return Err(error);
            }
        };
        let Position { job_epoch, last_committed, next_checkpoint, .. } = position;
        tracing::info!(job = %id, %job_epoch, ?last_committed, mode = ?protocol.mode(), "session recovered");
        let tools = CommitTools {
            kept: None,
            clock: env.clock.clone(),
            spawner: env.spawner.clone(),
            job_epoch,
            store: None,
            step_hook: step_hook.clone(),
            probe_deadline: options.commit_deadline,
        };
        Ok(Attempt {
            source,
            is_stopped: false,
            is_source_in_call: false,
            sink,
            protocol: Some(protocol),
            tools,
            last_committed,
            checkpoint: next_checkpoint,
            is_open: false,
            held: Held::default(),
            undecodable: Vec::new(),
            oldest_at: None,
            checked: None,
        })
    }

    /// Waits for what the source has next, and looks after what it holds meanwhile. `None`: it has nothing more before a
    /// commit. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<SourceEvent>> {
        loop {
            let must_commit = self.oldest_at.is_some() && self.source.in_flight().wants_barrier;
            if must_commit || self.is_stopped && !self.source.has_rest() {
                return Ok(None);
            }
            let maintain_at = self.source.maintain_at();
            tokio::select! {
                biased;
                event = self.source.next() => return event.map(Some),
                () = self.tools.clock.sleep_until_any(maintain_at) => {}
            }
            self.source.maintain().await?;
        }
    }

    /// Runs `work` of the caller's, and looks after what the source holds meanwhile.
    pub(super) async fn keep<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let work = async { Ok(work.await) };
        maintained(self.source.as_mut(), &self.tools.clock, work).await
    }

    /// True once it acquires nothing more: what it hands out then must not be given back.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Stops acquiring; what must not be given back is still handed out.
    pub(super) async fn stop_acquiring(&mut self, setup: &Setup) -> Result<(), Failure> {
        if self.is_stopped {
            return Ok(());
        }
        let limit = setup.options.close_deadline;
        self.is_source_in_call = true;
        match self.tools.clock.timeout(limit, self.source.stop_acquiring()).await {
            Ok(stopped) => {
                (self.is_source_in_call, self.is_stopped) = (false, true);
                Ok(stopped?)
            }
            Err(elapsed) => {
                let context = format!("the source did not stop within {limit:?}");
                Err(Error::new(ErrorKind::Retry, context).with_source(elapsed).into())
            }
        }
    }

    /// Notes what the source gave. Errors: `Bug`, rows without coordinates.
    pub(super) fn hand_out(
        &mut self,
        rows: Option<&RecordBatch>,
        rejected: Option<&RecordBatch>,
    ) -> Result<()> {
        self.oldest_at = self.oldest_at.or(Some(self.tools.clock.now()));
        self.undecodable.extend(rejected.cloned());
        rows.map_or(Ok(()), |rows| self.held.hand_out(rows))
    }

    /// Whether the sink takes rows like these, and whether they may be written. Errors: `InvalidInput`; nothing has
    /// changed.
    pub(super) fn check_rows(&mut self, setup: &Setup, rows: &RecordBatch) -> Result<Decisions> {
        let offsets = self.held.check(rows, Use::Write)?;
        if self.checked.as_ref() != Some(rows.schema_ref()) {
            setup.parts.sink_factory().check_schema(rows.schema())?;
            self.checked = Some(rows.schema());
        }
        Ok(offsets)
    }

    fn protocol(&mut self) -> Result<&mut dyn CommitProtocol> {
        match &mut self.protocol {
            Some(protocol) => Ok(protocol.as_mut()),
            None => Err(protocol_is_gone()),
        }
    }

    /// Opens the epoch for its first write, and writes the bad records that wait for it.
    async fn enter(&mut self, setup: &Setup) -> Result<()> {
        if !self.is_open {
            let (checkpoint, limit) = (self.checkpoint, setup.options.commit_deadline);
            let clock = self.tools.clock.clone();
            let open = self.protocol()?.open(checkpoint);
            within(&clock, limit, "opening an epoch", open).await?;
            self.is_open = true;
        }
        for rejected in std::mem::take(&mut self.undecodable) {
            self.sink.write_rejected(self.checkpoint, rejected).await?;
        }
        Ok(())
    }

    pub(super) async fn write(
        &mut self,
        setup: &Setup,
        rows: RecordBatch,
        offsets: &Decisions,
    ) -> Result<(), Failure> {
        self.enter(setup).await?;
        self.held.decide(offsets);
        let writing = self.sink.write(self.checkpoint, rows);
        Ok(maintained(self.source.as_mut(), &self.tools.clock, writing).await?)
    }

    pub(super) async fn reject(
        &mut self,
        setup: &Setup,
        rejected: RecordBatch,
        offsets: &Decisions,
    ) -> Result<(), Failure> {
        self.enter(setup).await?;
        self.held.decide(offsets);
        Ok(self.sink.write_rejected(self.checkpoint, rejected).await?)
    }

    pub(super) async fn release(&mut self, offsets: &Decisions) -> Result<(), Failure> {
        self.source.release(offsets).await?;
        self.held.release(offsets);
        Ok(())
    }

    /// Commits what was handed out; `Ok` says that it is committed. The second value: what failed behind that.
    pub(super) async fn commit(&mut self, setup: &Setup) -> Result<(Commit, Result<()>), Failure> {
        if self.oldest_at.is_none() {
            let nothing = Commit { checkpoint: self.last_committed, ..Commit::default() };
            return Ok((nothing, Ok(())));
        }
        self.enter(setup).await?;
        let sealed = self.seal(setup).await?;
        let (checkpoint, counts) = (self.checkpoint, sealed.counts);
        if sealed.is_empty() {
            // Everything was released.
            self.protocol()?.discard(checkpoint).await?;
            self.next_epoch();
            // Nothing of the epoch is held any more.
            self.source.committed(checkpoint).await?;
            let nothing = Commit { checkpoint: self.last_committed, ..Commit::default() };
            return Ok((nothing, Ok(())));
        }
        let mut protocol = self.protocol.take().ok_or_else(protocol_is_gone)?;
        let span = sealed.trace.span().clone();
        let trace = sealed.trace.clone();
        let commit = commit_epoch(protocol.as_mut(), sealed, self.last_committed, false, &self.tools);
        let limit = setup.options.commit_deadline;
        let (source, clock) = (&mut self.source, &self.tools.clock);
        let mut maintained = Ok(());
        let commit = async {
            // A commit is let come to its end whatever becomes of the locks: it may be past the point of no return.
            let commit = commit.instrument(span);
            tokio::pin!(commit);
            while maintained.is_ok() {
                let maintain_at = source.maintain_at();
                tokio::select! {
                    biased;
                    end = &mut commit => return end,
                    () = clock.sleep_until_any(maintain_at) => maintained = source.maintain().await,
                }
            }
            commit.await
        };
        let end = match clock.timeout(limit, commit).await {
            Ok(end) => end,
            Err(elapsed) => {
                let context =
                    format!("the commit of checkpoint {checkpoint} missed its deadline of {limit:?}");
                let error = Error::new(ErrorKind::Indeterminate, context).with_source(elapsed);
                return Err(Failure { error, may_abort: false });
            }
        };
        self.protocol = Some(protocol);
        let after = match end {
            CommitEnd::Committed { after, .. } => after,
            CommitEnd::Failed { error, may_abort } => {
                trace.ended("failed");
                let error = error.within(&format!("committing checkpoint {checkpoint}"));
                return Err(Failure { error, may_abort });
            }
        };
        trace.ended("committed");
        self.last_committed = Some(checkpoint);
        self.next_epoch();
        let after = match after.and(maintained) {
            Ok(()) => self.source.committed(checkpoint).await,
            Err(error) => Err(error),
        };
        let (records_in, rows_out, dead_letters) = (counts.records_in, counts.rows_out, counts.dead_letters);
        Ok((Commit { checkpoint: Some(checkpoint), records_in, rows_out, dead_letters }, after))
    }

    /// Runs the barrier through source and sink.
    async fn seal(&mut self, setup: &Setup) -> Result<Sealed> {
        let (checkpoint, now) = (self.checkpoint, self.tools.clock.now());
        let subtasks = [Subtask::Source(0), Subtask::Sink(0)];
        let mut pending = PendingCheckpoint::new(checkpoint, now, subtasks, Vec::new());
        pending.trace = Trace::begin(&setup.id, checkpoint, "session");
        let (source, sink, clock) = (&mut self.source, &mut self.sink, self.tools.clock.clone());
        let is_in_call = &mut self.is_source_in_call;
        let barrier = async {
            *is_in_call = true;
            let decided = source.barrier(checkpoint).await;
            *is_in_call = false;
            let decided = decided?;
            let flushed = maintained(source.as_mut(), &clock, sink.flush(checkpoint)).await?;
            Ok((decided, flushed))
        };
        let limit = setup.options.barrier_alignment_timeout;
        let reports = self.tools.clock.timeout(limit, barrier).await;
        let (decided, flushed) = reports.unwrap_or_else(|elapsed| {
            let context = format!("checkpoint {checkpoint} was not flushed within {limit:?}");
            Err(Error::new(ErrorKind::Abort, context).with_source(elapsed))
        })?;
        pending.acknowledge(Subtask::Source(0), checkpoint, Report::Source(decided))?;
        pending.acknowledge(Subtask::Sink(0), checkpoint, Report::Sink(flushed))?;
        let (mut sealed, _none_deferred) = pending.seal()?;
        sealed.trace.sealed(self.tools.clock.now(), &sealed.counts);
        Ok(sealed)
    }

    fn next_epoch(&mut self) {
        self.checkpoint = self.checkpoint.next();
        self.is_open = false;
        self.held.clear();
        self.oldest_at = None;
    }

    /// Ends the attempt after a failure: gives back what was handed out and the open epoch. Returns the error for the
    /// caller.
    pub(super) async fn fail(self, setup: &Setup, failure: Failure) -> Error {
        let Failure { mut error, may_abort } = failure;
        let is_fenced = error.kind() == ErrorKind::Fenced;
        tracing::warn!(job = %setup.id, kind = %error.kind(), %error, "the attempt of a session has failed");
        let clock = self.tools.clock.clone();
        let Some(mut protocol) = self.give_up(setup, may_abort).await else { return error };
        let limit = setup.options.close_deadline;
        // As in a job: a broker that fences is not the last word.
        if is_fenced && let Ok(Ok(true)) = clock.timeout(limit, protocol.still_owns()).await {
            error = still_owner(error);
        }
        close(protocol.as_mut(), &clock, limit).await;
        error
    }

    /// Ends the attempt without a failure. Errors: what was acknowledged could not be sent, or the group not be left.
    pub(super) async fn close(mut self, setup: &Setup) -> Result<()> {
        let clock = self.tools.clock.clone();
        let limit = setup.options.close_deadline;
        // Sends acknowledgements of committed epochs that were to go with the next poll, too.
        let stopped = self.stop_acquiring(setup).await.map_err(|failure| failure.error);
        if let Some(mut protocol) = self.give_up(setup, true).await {
            close(protocol.as_mut(), &clock, limit).await;
        }
        stopped
    }

    /// Gives back what was handed out, then the open epoch: nothing of it becomes visible.
    async fn give_up(mut self, setup: &Setup, may_abort: bool) -> Option<Box<dyn CommitProtocol>> {
        let clock = self.tools.clock.clone();
        let close_limit = setup.options.close_deadline;
        if !self.is_source_in_call {
            warn_of(within(&clock, close_limit, "closing the source", self.source.close()).await);
        }
        // A sink in an epoch that is given up is dropped: its calls are not cancel safe.
        if !self.is_open {
            warn_of(within(&clock, close_limit, "closing the sink", self.sink.close()).await);
        }
        let mut protocol = self.protocol?;
        if self.is_open && may_abort {
            let limit = setup.options.commit_deadline;
            warn_of(within(&clock, limit, "aborting the epoch", protocol.abort(self.checkpoint)).await);
        }
        Some(protocol)
    }
}

fn protocol_is_gone() -> Error {
    Error::new(ErrorKind::Bug, "the commit protocol is gone")
}

/// What is left open, the next attempt fences and resolves.
fn warn_of(result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "a session could not give everything back");
    }
}
