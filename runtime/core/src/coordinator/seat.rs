//! Who holds the commit protocol: the coordinator, or the one piece of work that runs with it.
//!
//! The protocol is one object with `&mut self` calls, and the coordinator must stay responsive while a call runs.
//! So each piece of work takes the protocol with it into a task of its own and brings it back:
//!
//! ```text
//! free --start--> busy --finished--> free
//!                   \--panic, deadline, stop--> lost (end)
//! ```

use sharestream_base::{Instant, OwnedTask, TaskKind};

use tracing::Instrument;

use super::commit::{CommitEnd, CommitTools, commit_epoch};
use super::pending_checkpoint::Sealed;
use crate::ErrorKind;
use crate::commit::CommitProtocol;
use crate::error::{Error, Result};
use sharestream_base::ids::CheckpointId;

/// A piece of work for the protocol.
pub(crate) enum Assignment {
    Open(CheckpointId),
    Commit { sealed: Box<Sealed>, predecessor: Option<CheckpointId>, with_probe: bool },
    Discard(CheckpointId),
}

/// How it ended.
pub(crate) enum WorkEnd {
    Opened(Result<()>),
    Committed(CommitEnd),
    Discarded(Result<()>),
}

type Answer = (Box<dyn CommitProtocol>, WorkEnd);

enum State {
    Free(Box<dyn CommitProtocol>),
    Busy { task: OwnedTask<Answer>, checkpoint: CheckpointId, is_commit: bool, deadline: Instant },
    Lost,
}

/// The owner of the protocol.
pub(crate) struct Seat {
    state: State,
}

impl Seat {
    pub(crate) fn new(protocol: Box<dyn CommitProtocol>) -> Self {
        Seat { state: State::Free(protocol) }
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free(_))
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy { .. })
    }

    /// The checkpoint whose commit runs.
    pub(crate) fn committing(&self) -> Option<CheckpointId> {
        match &self.state {
            State::Busy { checkpoint, is_commit: true, .. } => Some(*checkpoint),
            State::Busy { .. } | State::Free(_) | State::Lost => None,
        }
    }

    /// When the running work must be done.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Busy { deadline, .. } => Some(*deadline),
            State::Free(_) | State::Lost => None,
        }
    }

    /// Starts a piece of work. Errors: `Bug` when the seat is not free.
    pub(crate) fn start(&mut self, work: Assignment, deadline: Instant, tools: CommitTools) -> Result<()> {
        let mut protocol = match std::mem::replace(&mut self.state, State::Lost) {
            State::Free(protocol) => protocol,
            other => {
                self.state = other;
                return Err(Error::new(ErrorKind::Bug, "the commit protocol was asked twice at once"));
            }
        };
        let (checkpoint, is_commit, what) = match &work {
            Assignment::Open(checkpoint) => (*checkpoint, false, "open"),
            Assignment::Commit { sealed, .. } => (sealed.checkpoint, true, "commit"),
            Assignment::Discard(checkpoint) => (*checkpoint, false, "discard"),
        };
        let spawner = tools.spawner.clone();
        let future = async move {
            let end = match work {
                Assignment::Open(checkpoint) => WorkEnd::Opened(protocol.open(checkpoint).await),
                Assignment::Discard(checkpoint) => WorkEnd::Discarded(protocol.discard(checkpoint).await),
                Assignment::Commit { sealed, predecessor, with_probe } => {
                    let span = sealed.trace.span().clone();
                    let commit = commit_epoch(protocol.as_mut(), *sealed, predecessor, with_probe, &tools);
                    WorkEnd::Committed(commit.instrument(span).await)
                }
            };
            (protocol, end)
        };
        let task = OwnedTask::spawn(&spawner, format!("{what}-{checkpoint}"), TaskKind::Job, future);
        self.state = State::Busy { task, checkpoint, is_commit, deadline };
        Ok(())
    }

    /// Waits for the end of the running work; for ever when none runs. Errors: `Bug` (it panicked; the protocol is
    /// lost). Cancel safe.
    pub(crate) async fn finished(&mut self) -> Result<(CheckpointId, WorkEnd)> {
        let State::Busy { task, checkpoint, .. } = &mut self.state else {
            return std::future::pending().await;
        };
        let checkpoint = *checkpoint;
        match task.join().await {
            Ok(Some((protocol, end))) => {
                self.state = State::Free(protocol);
                Ok((checkpoint, end))
            }
            Ok(None) => {
                self.state = State::Lost;
                Err(Error::new(ErrorKind::Closed, "the runtime is shutting down"))
            }
            Err(panic) => {
                self.state = State::Lost;
                Err(panic.into())
            }
        }
    }

    /// Ends the running work where it is. The protocol is lost with it: its state is unknown.
    pub(crate) async fn give_up(&mut self) {
        if let State::Busy { task, .. } = &mut self.state {
            task.abort();
            // Aborted or panicked, there is nothing left to learn from it.
            let _ended = task.join().await;
        }
        self.state = State::Lost;
    }

    /// The error of work that missed its deadline.
    pub(crate) fn overdue(&self, now: Instant) -> Option<Error> {
        match &self.state {
            State::Busy { checkpoint, is_commit, deadline, .. } if now >= *deadline => Some(if *is_commit {
                let context = format!("the commit of checkpoint {checkpoint} missed its deadline");
                Error::new(ErrorKind::Indeterminate, context)
            } else {
                let context =
                    format!("epoch {checkpoint} was not opened or discarded within the commit deadline");
                Error::new(ErrorKind::Abort, context)
            }),
            State::Busy { .. } | State::Free(_) | State::Lost => None,
        }
    }

    /// The protocol, when nothing runs with it.
    pub(crate) fn take(&mut self) -> Option<Box<dyn CommitProtocol>> {
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Free(protocol) => Some(protocol),
            other => {
                self.state = other;
                None
            }
        }
    }
}
