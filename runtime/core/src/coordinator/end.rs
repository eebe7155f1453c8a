//! The three ends of an attempt: drained, stopped at once, failed. Each leaves nothing running.

use sharestream_base::ids::CheckpointId;

use super::commit::{CommitEnd, OwnedStore};
use super::job::{Coordinator, Probe, probe_end};
use super::job_state::EpochEvent;
use super::seat::WorkEnd;
use super::start::close;
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::status::JobState;
use crate::supervisor::{describe, restartable};

impl Coordinator {
    /// After a drain: every task has ended and every epoch that held something is committed.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let limit = self.time_to_close().min(self.options.close_deadline);
        let clock = self.tools.clock.clone();
        // The last commit's visibility is a measurement, worth a moment but no error.
        if let Ok(end) = clock.timeout(limit, probe_end_or_none(&mut self.probe)).await
            && let Some(end) = end
        {
            self.on_probe_end(end);
        }
        self.control.update(|status| status.in_flight = 0);
        let Some(mut protocol) = self.seat.take() else {
            return Err(Error::new(ErrorKind::Bug, "the commit protocol is missing at the end"));
        };
        let left: Vec<CheckpointId> = self.line.in_protocol().collect();
        let closing = async {
            for checkpoint in left {
                protocol.discard(checkpoint).await?;
            }
            protocol.close().await
        };
        // All is committed: whoever cannot say goodbye properly has still not lost anything.
        match clock.timeout(self.time_to_close(), closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(job = %self.id, %error, "the commit protocol did not close cleanly")
            }
            Err(_elapsed) => tracing::warn!(job = %self.id, "the commit protocol did not close in time"),
        }
        Ok(())
    }

    /// Ends everything where it is. Returns the checkpoint whose commit was under way.
    pub(crate) async fn stop(mut self) -> Option<CheckpointId> {
        let unresolved = self.seat.committing();
        self.running.tasks.abort_all().await;
        self.seat.give_up().await;
        unresolved
    }

    /// After a failure: lets a commit that is under way come to its end, gives the open epochs up, closes. Returns the
    /// error that the attempt ends with.
    pub(crate) async fn fail(mut self, mut error: Error) -> Error {
        self.control.set_state(JobState::Failing);
        tracing::warn!(job = %self.id, kind = %error.kind(), %error, "the attempt has failed");
        // Shown now: giving up what is open may take as long as a broker does not answer.
        let text = describe(&error);
        let nearest_limit = self.running.gauges.load().nearest_limit;
        self.control.update(|status| {
            status.last_error = Some(text);
            status.nearest_limit = nearest_limit;
        });
        self.keep_sources(&error);
        self.running.tasks.cancel();
        let stop = self.control.stop_token().clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.wind_down(&mut error) => {}
        }
        self.running.tasks.abort_all().await;
        self.seat.give_up().await;
        self.judge_fenced(error).await
    }

    /// Where another attempt may follow, sources are kept: what was not staged is processed again from memory.
    fn keep_sources(&self, error: &Error) {
        let is_ending = self.control.drain_token().is_cancelled() || self.control.stop_token().is_cancelled();
        if let Some(kept) = self.tools.kept.as_ref().filter(|_| restartable(error.kind()) && !is_ending) {
            kept.allow(self.last_committed > self.restored);
        }
    }

    async fn wind_down(&mut self, error: &mut Error) {
        self.settle_running_work(error).await;
        if error.kind() == ErrorKind::Fenced {
            self.control.recorder().fenced();
        }
        let clock = self.tools.clock.clone();
        let tasks = &mut self.running.tasks;
        let ended = async { while tasks.join_next().await.is_some() {} };
        if clock.timeout(self.options.close_deadline, ended).await.is_err() {
            tracing::warn!(job = %self.id, "some tasks did not end in time");
        }
        // No sink writes from here on.
        self.running.tasks.abort_all().await;
        let Some(mut protocol) = self.seat.take() else { return };
        let open: Vec<CheckpointId> = self.line.in_protocol().collect();
        let aborting = async {
            for checkpoint in open {
                match protocol.abort(checkpoint).await {
                    Ok(()) => self.control.recorder().aborted(),
                    // The next attempt fences and resolves what stays open.
                    Err(error) => {
                        tracing::warn!(checkpoint_id = %checkpoint, %error, "an epoch could not be aborted");
                    }
                }
            }
        };
        if clock.timeout(self.options.commit_deadline, aborting).await.is_err() {
            tracing::warn!(job = %self.id, "open epochs could not be aborted in time");
        }
        if error.kind() == ErrorKind::Fenced && self.tools.store.is_none() {
            match clock.timeout(self.options.close_deadline, protocol.still_owns()).await {
                Ok(Ok(true)) => {
                    let fenced = std::mem::replace(error, Error::new(ErrorKind::Abort, "the job was fenced"));
                    *error = still_owner(fenced);
                }
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(other)) => {
                    tracing::warn!(job = %self.id, error = %other, "the owner could not be read")
                }
            }
        }
        close(protocol.as_mut(), &clock, self.options.close_deadline).await;
    }

    /// The work that runs with the protocol is let come to its end: a commit may be past the point of no return.
    async fn settle_running_work(&mut self, error: &mut Error) {
        let Some(mut deadline) = self.seat.deadline() else { return };
        let clock = self.tools.clock.clone();
        if self.is_drain_overdue() {
            // Whoever drains waits for us to end, not for a commit that the next start can resolve.
            deadline = deadline.min(clock.now() + self.options.close_deadline);
        }
        let (checkpoint, end) = match clock.timeout_at(deadline, self.seat.finished()).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(other)) => return keep_graver(error, other),
            Err(_elapsed) => {
                tracing::warn!(job = %self.id, "the work that ran with the commit protocol did not end in time");
                return self.seat.give_up().await;
            }
        };
        match end {
            WorkEnd::Opened(_) | WorkEnd::Discarded(Err(_)) => {}
            WorkEnd::Discarded(Ok(())) => self.forget(checkpoint),
            WorkEnd::Committed(CommitEnd::Committed { at, figures, after, .. }) => {
                self.record_commit(checkpoint, at, None, figures);
                self.control.requests().settled(checkpoint, Some(checkpoint));
                if let Some(kept) = &self.tools.kept {
                    kept.committed(checkpoint);
                }
                if let Err(other) = after {
                    tracing::warn!(checkpoint_id = %checkpoint, error = %other, "not completed in the store");
                }
                self.forget(checkpoint);
            }
            WorkEnd::Committed(CommitEnd::Failed { error: other, may_abort }) => {
                keep_graver(error, other);
                if !may_abort {
                    self.forget(checkpoint);
                }
            }
        }
    }

    /// Takes an epoch out of the line, so that it is not aborted.
    fn forget(&mut self, checkpoint: CheckpointId) {
        if let Err(error) = self.advance(checkpoint, EpochEvent::Settled) {
            tracing::error!(job = %self.id, %error, "the line of epochs contradicts the protocol");
        }
    }

    /// A broker that fences us is not the last word: as long as the store says that we own the job, the next attempt
    /// may go on (DESIGN section 2).
    ///
    /// Takes `&mut self` only because a protocol can be sent to another thread, but not shared with one: a shared
    /// borrow of it over an await would tie the whole job to its thread.
    async fn judge_fenced(&mut self, error: Error) -> Error {
        if error.kind() != ErrorKind::Fenced {
            return error;
        }
        let Some(OwnedStore { store, owner }) = &self.tools.store else { return error };
        match self.tools.clock.timeout(self.options.close_deadline, store.check_owner(owner)).await {
            Ok(Ok(())) => still_owner(error),
            Ok(Err(other)) if other.kind() == ErrorKind::Fenced => other.into(),
            Ok(Err(_)) | Err(_) => error,
        }
    }
}

/// The next attempt may go on.
pub(crate) fn still_owner(error: Error) -> Error {
    let context = format!("{error} (the job still owns its replica)");
    Error::new(ErrorKind::Abort, context).with_source(error)
}

async fn probe_end_or_none(probe: &mut Option<Probe>) -> Option<Result<super::commit::ProbeEnd>> {
    if probe.is_none() {
        return None;
    }
    Some(probe_end(probe).await)
}

/// Of two errors keeps the one that asks for more: an attempt must not be started again because the lesser was first.
fn keep_graver(kept: &mut Error, mut other: Error) {
    let weight = |error: &Error| match error.kind() {
        ErrorKind::Corrupt => 4,
        ErrorKind::Fenced => 3,
        ErrorKind::Bug | ErrorKind::InvalidInput => 2,
        ErrorKind::Indeterminate => 1,
        ErrorKind::Retry | ErrorKind::Abort | ErrorKind::Closed => 0,
        _ => 2,
    };
    if weight(&other) > weight(kept) {
        std::mem::swap(kept, &mut other);
    }
    tracing::warn!(error = %other, "a second error of the same attempt");
}
