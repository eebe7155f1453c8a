//! Source and sink without the runtime, for those who write their own loop.
//!
//! ```text
//! open: recover --> next: rows --> write, reject, release --> commit: one transaction --> next ...
//!          ^          |                                          |
//!          +--recover-+----------------- abort, or any error ----+
//! ```
//!
//! A session has one source, one sink and one commit protocol, no tasks and no channels: everything happens within the
//! calls. Its guarantees are those of a job with the same parts, for the commit runs through the same code: the rows
//! written since the last commit, the dead letters and the acknowledgements of everything handed out become visible as
//! one, or never. It is a stateless job: state of your own has to be somewhere that the commit reaches, or be such that
//! it does not matter.
//!
//! # What becomes of a record
//! What was handed out and neither rejected nor released is accepted at [`Session::commit`], also when nothing was written
//! for it (it was filtered). Records that do not decode are rejected by the session, as its sink is configured to.
//!
//! ```no_run
//! use std::sync::Arc;
//! use sharestream_base::Env;
//! use sharestream_core::session::Session;
//! use sharestream_core::{JobId, JobParts, Result};
//!
//! async fn copy(parts: Arc<dyn JobParts>) -> Result<()> {
//!     let mut session = Session::builder(JobId::new("copy", "0"), parts).open(Env::system()).await?;
//!     loop {
//!         if let Some(batch) = session.next().await? {
//!             session.write(batch.rows).await?;
//!         }
//!         if session.is_commit_due() {
//!             session.commit().await?;
//!         }
//!     }
//! }
//! ```
//!
//! # After an error
//! `InvalidInput` of [`Session::write`], [`Session::reject`] and [`Session::release`] names rows that cannot be used so;
//! nothing has changed. Any other error ends the attempt ([`Session::has_attempt`]): what was not committed went back to
//! the group. So does a bad record, where the sink is configured to fail on one. [`Session::recover`] begins the next attempt where the last commit was, if [`Error::is_restartable`] says that it may
//! help. Every attempt that fails costs a delivery of each record that it held: pause between attempts, and bound them.

mod attempt;
mod held;

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::stream::{self, Stream};
use sharestream_base::Env;
use sharestream_base::ids::CheckpointId;

use crate::commit::StepHook;
use crate::controller::{Controller, Limits, Load, Trigger};
use crate::coordinates::{self, Coordinates, RejectKind, user_column_count};
use crate::error::{Error, Result};
use crate::source::{Delivery, InFlight, SourceEvent};
use crate::{ErrorKind, JobId, JobOptions, JobParts};

use attempt::{Attempt, Failure};
use held::Use;

/// Rows that a session handed out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The rows, hidden columns at the end ([`crate::coordinates`]); none, when nothing of the batch decoded.
    pub rows: RecordBatch,
    /// Records that did not decode, for your information: the session rejects them. Schema
    /// [`coordinates::rejected_schema`].
    pub undecodable: Option<RecordBatch>,
}

impl Batch {
    /// The coordinates of the rows. Errors: `Bug`, the source gave rows without them.
    pub fn coordinates(&self) -> Result<Coordinates<'_>> {
        Coordinates::of(&self.rows)
    }
}

/// What a commit has made visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// Its checkpoint. The last one, when there was nothing to commit; `None`: there never was one.
    pub checkpoint: Option<CheckpointId>,
    /// Source records that it decided, bad ones included, gaps not.
    pub records_in: u64,
    /// Rows written to the output.
    pub rows_out: u64,
    /// Dead letters written.
    pub dead_letters: u64,
}

/// What all attempts share.
struct Setup {
    env: Env,
    id: JobId,
    parts: Arc<dyn JobParts>,
    options: JobOptions,
    step_hook: StepHook,
}

/// Settings of a session that is not open yet.
pub struct SessionBuilder {
    id: JobId,
    parts: Arc<dyn JobParts>,
    options: JobOptions,
    step_hook: StepHook,
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SessionBuilder {
    /// Replaces the settings: the deadlines hold as for a job, the rest says when a commit is due.
    #[must_use]
    pub fn options(mut self, options: JobOptions) -> Self {
        self.options = options;
        self
    }

    /// Is called at each step of each commit. Must not block.
    #[must_use]
    pub fn step_hook(mut self, hook: StepHook) -> Self {
        self.step_hook = hook;
        self
    }

    /// Fences older incarnations of the (job, instance), finds the last commit, and connects.
    ///
    /// # Errors
    /// `InvalidInput`: settings that cannot be. `Retry`: brokers did not answer in time. `Fenced`: somebody newer runs
    /// the job. `Corrupt`: the outcomes contradict each other.
    ///
    /// # Cancel safety
    /// Dropped, older incarnations may be fenced; nothing else remains.
    pub async fn open(self, env: Env) -> Result<Session> {
        let SessionBuilder { id, parts, options, step_hook } = self;
        options.validate()?;
        let controller = Controller::new(Limits::from(&options));
        let setup = Setup { env, id, parts, options, step_hook };
        let attempt = Box::pin(Attempt::start(&setup)).await?;
        let last_committed = attempt.last_committed;
        Ok(Session {
            setup,
            controller,
            attempt: Some(attempt),
            failed: None,
            nearest_limit: None,
            last_committed,
            is_dry: false,
        })
    }
}

/// One source, one sink, and the transaction of both. See the [module](self).
pub struct Session {
    setup: Setup,
    controller: Controller,
    /// `None`: it has failed, or a call that must not be dropped was.
    attempt: Option<Attempt>,
    /// What failed behind the last commit.
    failed: Option<Error>,
    /// The undecided record of the failed attempt with the fewest deliveries left.
    nearest_limit: Option<Delivery>,
    last_committed: Option<CheckpointId>,
    /// The last look at the source found nothing.
    is_dry: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.setup.id)
            .field("last_committed", &self.last_committed)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session of this (job, instance) over these parts. Nothing else may run with the parts meanwhile.
    pub fn builder(id: JobId, parts: Arc<dyn JobParts>) -> SessionBuilder {
        let options = JobOptions::default();
        SessionBuilder { id, parts, options, step_hook: Arc::new(|_, _| {}) }
    }

    /// Schema of the rows: the user's columns, then the hidden ones.
    pub fn schema(&self) -> SchemaRef {
        self.setup.parts.source_factory().schema()
    }

    /// The last committed checkpoint that this session knows of.
    pub fn last_committed(&self) -> Option<CheckpointId> {
        self.last_committed
    }

    /// False: the attempt is over, and [`Session::recover`] begins the next.
    pub fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// What the source holds since the last commit, and how full its lock windows are.
    pub fn in_flight(&self) -> InFlight {
        self.attempt.as_ref().map(|attempt| attempt.source.in_flight()).unwrap_or_default()
    }

    /// A commit now is what a job with these options would do: the source has run dry, or the row, byte or time budget or
    /// the lock window is used up. Where nobody commits, brokers hand out nothing more.
    pub fn is_commit_due(&self) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        let in_flight = attempt.source.in_flight();
        let load = Load {
            record_count: in_flight.record_count,
            byte_count: in_flight.byte_count,
            window_fill: in_flight.window_fill,
            is_idle: self.is_dry,
            oldest_at: attempt.oldest_at,
            ..Load::default()
        };
        let now = self.setup.env.clock.now();
        attempt.oldest_at.is_some()
            && (in_flight.wants_barrier || matches!(self.controller.decide(&load, now), Trigger::Now(_)))
    }

    /// The next rows; `None` when a look at the source found nothing, or when what was handed out must be committed before
    /// there is more: a record near its delivery limit shares a commit with as little as possible. It waits as long as
    /// the source does for records. Locks of what was handed out are renewed here, and within the other calls; for work
    /// that takes long there is [`Session::keep`].
    ///
    /// # Errors
    /// See the [module](self): the attempt is over.
    ///
    /// # Cancel safety
    /// Cancel safe: rows come with a later call.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        loop {
            let attempt = running(&mut self.attempt, &mut self.failed)?;
            let handed_out = match attempt.next().await {
                Ok(None | Some(SourceEvent::Idle)) => {
                    self.is_dry = true;
                    return Ok(None);
                }
                Ok(Some(SourceEvent::Records { rows, rejected })) => {
                    attempt.hand_out(rows.as_ref(), rejected.as_ref()).map(|()| (rows, rejected))
                }
                Err(error) => Err(error),
            };
            self.is_dry = false;
            match handed_out {
                Ok((None, None)) => {}
                Ok((rows, undecodable)) => {
                    let rows = rows.unwrap_or_else(|| RecordBatch::new_empty(self.schema()));
                    return Ok(Some(Batch { rows, undecodable }));
                }
                Err(error) => return Err(self.fail(error.into()).await),
            }
        }
    }

    /// The next rows as a stream, up to the moment when the source has run dry or at least `rows_max` rows have come; then
    /// decide and [`Session::commit`]. As [`Session::next`]; it ends behind an error.
    pub fn batches(&mut self, rows_max: usize) -> impl Stream<Item = Result<Batch>> + Send + Unpin + '_ {
        Box::pin(stream::try_unfold(
            (self, 0),
            move |(session, row_count): (&mut Session, usize)| async move {
                if row_count >= rows_max {
                    return Ok(None);
                }
                let batch = session.next().await?;
                Ok(batch.map(|batch| {
                    let row_count = row_count + batch.rows.num_rows();
                    (batch, (session, row_count))
                }))
            },
        ))
    }

    /// Runs `work` of yours and renews the locks of what was handed out meanwhile, where it takes long.
    ///
    /// # Errors
    /// Locks were lost: see the [module](self).
    ///
    /// # Cancel safety
    /// As cancel safe as `work`.
    pub async fn keep<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        match running(&mut self.attempt, &mut self.failed)?.keep(work).await {
            Ok(done) => Ok(done),
            Err(error) => Err(self.fail(error.into()).await),
        }
    }

    /// Acquires nothing more: what was not handed out goes back to the group at once, but for records near their delivery
    /// limit, which [`Session::next`] still gives. Go on to its `None`, commit, and [`Session::close`].
    ///
    /// # Errors
    /// See the [module](self): the attempt is over.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over.
    pub async fn stop_acquiring(&mut self) -> Result<()> {
        running(&mut self.attempt, &mut self.failed)?;
        let Some(mut attempt) = self.attempt.take() else { return Err(no_attempt()) };
        let result = attempt.stop_acquiring(&self.setup).await;
        self.put_back(attempt, result).await
    }

    /// Writes rows to the output, as part of the next commit. They must end with the hidden columns of the records that
    /// they came from, which were handed out since the last commit; several rows of one record differ in
    /// [`ORDINAL`](coordinates::ORDINAL). Waits when buffers are full.
    ///
    /// # Errors
    /// `InvalidInput`: the sink does not take such rows, or their records were not handed out, or are rejected or
    /// released; nothing has changed. Others: see the [module](self).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over.
    pub async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let attempt = running(&mut self.attempt, &mut self.failed)?;
        let offsets = attempt.check_rows(&self.setup, &rows)?;
        let Some(mut attempt) = self.attempt.take() else { return Err(no_attempt()) };
        let result = attempt.write(&self.setup, rows, &offsets).await;
        self.put_back(attempt, result).await
    }

    /// Rejects the records of these rows: each becomes a dead letter with `error` (or what the sink is configured to do)
    /// in the same commit as its REJECT. The rows must end with the hidden columns; the columns before do not matter.
    ///
    /// # Errors
    /// `InvalidInput`: their records were not handed out, or are written, rejected or released already; nothing has
    /// changed. Others: see the [module](self).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over.
    pub async fn reject(&mut self, rows: &RecordBatch, error: &str) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let attempt = running(&mut self.attempt, &mut self.failed)?;
        let offsets = attempt.held.check(rows, Use::Reject)?;
        let columns = rows.columns()[user_column_count(rows.schema_ref())..].to_vec();
        let errors = vec![(RejectKind::Transform, error); rows.num_rows()];
        let rejected = coordinates::rejected_batch(columns, errors).map_err(|cause| {
            Error::new(ErrorKind::InvalidInput, "rows whose hidden columns were changed").with_source(cause)
        })?;
        let Some(mut attempt) = self.attempt.take() else { return Err(no_attempt()) };
        let result = attempt.reject(&self.setup, rejected, &offsets).await;
        self.put_back(attempt, result).await
    }

    /// Gives the records of these rows back to the group at once, undecided: anyone may get them again. It costs each a
    /// delivery, and at the group's limit the broker archives it. The rows must end with the hidden columns.
    ///
    /// # Errors
    /// `InvalidInput`: their records were not handed out, or are written, rejected or released already, or near their
    /// delivery limit, or the source cannot give single records back; nothing has changed. Others: see the [module](self).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over.
    pub async fn release(&mut self, rows: &RecordBatch) -> Result<()> {
        let attempt = running(&mut self.attempt, &mut self.failed)?;
        let offsets = attempt.held.check(rows, Use::Release)?;
        if !attempt.source.can_release() {
            let context = "this source cannot give single records back: abort gives back all of them";
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let InFlight { wants_barrier, nearest_limit, .. } = attempt.source.in_flight();
        let is_near =
            |near: Delivery| attempt.is_stopped() || offsets.get(near.partition, near.offset).is_some();
        if wants_barrier || nearest_limit.is_some_and(is_near) {
            let context =
                "a record near its delivery limit is decided, not given back: write or reject it, and commit";
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let Some(mut attempt) = self.attempt.take() else { return Err(no_attempt()) };
        let result = attempt.release(&offsets).await;
        self.put_back(attempt, result).await
    }

    /// Commits everything since the last commit in one transaction: rows, dead letters, and the decisions on all records
    /// that were handed out. `Ok` says that it is committed; with nothing handed out, that there was nothing to do.
    ///
    /// # Errors
    /// `Indeterminate`: nobody knows; [`Session::recover`] finds out, and [`Session::last_committed`] tells. Others: it is
    /// not committed, and the attempt is over (see the [module](self)).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over and its end is unknown, as with `Indeterminate`.
    pub async fn commit(&mut self) -> Result<Commit> {
        running(&mut self.attempt, &mut self.failed)?;
        let Some(mut attempt) = self.attempt.take() else { return Err(no_attempt()) };
        let started_at = self.setup.env.clock.now();
        let (commit, after) = match Box::pin(attempt.commit(&self.setup)).await {
            Ok(committed) => committed,
            Err(failure) => return Err(self.give_up(attempt, failure).await),
        };
        self.last_committed = commit.checkpoint;
        self.controller.observe(self.setup.env.clock.now().duration_since(started_at));
        match after {
            Ok(()) => self.attempt = Some(attempt),
            // It is committed all the same: the next call tells.
            Err(error) => self.failed = Some(self.give_up(attempt, error.into()).await),
        }
        Ok(commit)
    }

    /// Gives everything back that was handed out since the last commit; nothing written since then becomes visible. The
    /// source leaves the group and joins it again, and each record has used up a delivery.
    ///
    /// # Errors
    /// `InvalidInput`: a record has no delivery left, and given back it would be archived by the broker: commit, or reject
    /// it; nothing has changed. Others: as [`Session::recover`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, the attempt is over.
    pub async fn abort(&mut self) -> Result<()> {
        if let Some(attempt) = &self.attempt
            && let Some(last) = attempt.source.in_flight().nearest_limit.filter(|near| near.left() == 0)
        {
            return Err(near_limit(
                &last,
                "commit or reject it, for given back it is archived by the broker",
            ));
        }
        self.recover().await
    }

    /// Begins a new attempt where the last commit was; what the one before held goes back to the group.
    ///
    /// # Errors
    /// `InvalidInput`: the attempt failed with a record that has one delivery left or none, so that the next could be its
    /// last. Remove the cause, then open another session. Others: as [`SessionBuilder::open`]; it may be called again.
    ///
    /// # Cancel safety
    /// Dropped, there is no attempt; it may be called again.
    pub async fn recover(&mut self) -> Result<()> {
        if let Some(attempt) = self.attempt.take()
            && let Err(error) = attempt.close(&self.setup).await
        {
            // Whatever it could not give back comes again when its locks end.
            tracing::warn!(job = %self.setup.id, %error, "an attempt of a session did not end cleanly");
        }
        (self.failed, self.is_dry) = (None, false);
        if let Some(last) = self.nearest_limit.filter(|near| near.left() <= 1) {
            let todo = "remove what made the attempt fail, then raise the group's share.delivery.count.limit and open \
                        another session";
            return Err(near_limit(&last, todo));
        }
        let attempt = Box::pin(Attempt::start(&self.setup)).await?;
        self.last_committed = attempt.last_committed;
        self.attempt = Some(attempt);
        Ok(())
    }

    /// Leaves the group; what is not committed is given back. Dropping a session leaves that to its locks.
    ///
    /// # Errors
    /// Something could not be given back in time: it comes again when its locks end.
    ///
    /// # Cancel safety
    /// Dropped, locks end what is left.
    pub async fn close(mut self) -> Result<()> {
        match self.attempt.take() {
            Some(attempt) => attempt.close(&self.setup).await,
            None => Ok(()),
        }
    }

    async fn put_back(&mut self, attempt: Attempt, result: std::result::Result<(), Failure>) -> Result<()> {
        match result {
            Ok(()) => {
                self.attempt = Some(attempt);
                Ok(())
            }
            Err(failure) => Err(self.give_up(attempt, failure).await),
        }
    }

    async fn fail(&mut self, failure: Failure) -> Error {
        match self.attempt.take() {
            Some(attempt) => self.give_up(attempt, failure).await,
            None => no_attempt(),
        }
    }

    async fn give_up(&mut self, attempt: Attempt, failure: Failure) -> Error {
        self.nearest_limit = attempt.source.in_flight().nearest_limit;
        Box::pin(attempt.fail(&self.setup, failure)).await
    }
}

/// The attempt that runs. Errors: what ended it, once; then that there is none.
fn running<'a>(attempt: &'a mut Option<Attempt>, failed: &mut Option<Error>) -> Result<&'a mut Attempt> {
    attempt.as_mut().ok_or_else(|| failed.take().unwrap_or_else(no_attempt))
}

fn no_attempt() -> Error {
    let context = "the attempt of this session is over: it failed, or a call was dropped; recover first";
    Error::new(ErrorKind::Abort, context)
}

/// A record would run out of deliveries.
fn near_limit(delivery: &Delivery, what_to_do: &str) -> Error {
    let Delivery { partition, offset, count, limit } = delivery;
    let context = format!(
        "topic {} partition {} offset {offset} has been delivered {count} times of at most {limit}: {what_to_do}",
        partition.topic_id, partition.partition
    );
    Error::new(ErrorKind::InvalidInput, context)
}
