//! A job that is taken over without being run: everybody before is fenced, the last commit is known, and state that comes
//! from elsewhere can be made the next commit. What a start from a savepoint is built of.

use std::fmt;
use std::time::Duration;

use sharestream_base::Env;
use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::{CheckpointStore, CommitPermit, LoadedSavepoint, Manifest};

use crate::commit::{CommitProtocol, SealedEpoch};
use crate::coordinator::{OwnedStore, Position, recover, recover_to_replace, within};
use crate::error::Result;
use crate::graph::JobId;

/// The right to go on with a job, as long as nobody takes it over.
pub struct Takeover {
    protocol: Box<dyn CommitProtocol>,
    position: Position,
    env: Env,
    deadline: Duration,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("last_committed", &self.last_committed()).finish_non_exhaustive()
    }
}

impl Takeover {
    /// Takes the job over as a start does: ownership, fences, and what is committed last. `deadline` bounds it, and each
    /// later step.
    ///
    /// # Errors
    /// As those of a start: `Fenced`, `Corrupt`, `InvalidInput`, `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the job belongs to nobody; whoever comes next takes it over.
    pub async fn of(
        id: &JobId,
        protocol: Box<dyn CommitProtocol>,
        store: Option<CheckpointStore>,
        env: &Env,
        deadline: Duration,
    ) -> Result<Takeover> {
        let mut protocol = protocol;
        let recovery = recover(id, protocol.as_mut(), store, env);
        let position = within(&env.clock, deadline, "taking the job over", recovery).await?;
        Ok(Takeover { protocol, position, env: env.clone(), deadline })
    }

    /// The same for somebody who replaces the last commit by [`Takeover::commit_state`]: what the store has of it is not
    /// judged, so that a job whose store is damaged can go back to a savepoint. Errors and cancel safety: as there.
    pub async fn to_replace(
        id: &JobId,
        protocol: Box<dyn CommitProtocol>,
        store: Option<CheckpointStore>,
        env: &Env,
        deadline: Duration,
    ) -> Result<Takeover> {
        let mut protocol = protocol;
        let recovery = recover_to_replace(id, protocol.as_mut(), store, env);
        let position = within(&env.clock, deadline, "taking the job over", recovery).await?;
        Ok(Takeover { protocol, position, env: env.clone(), deadline })
    }

    /// The last committed checkpoint.
    pub fn last_committed(&self) -> Option<CheckpointId> {
        self.position.last_committed
    }

    /// Commits a checkpoint that decides nothing and has the state of a savepoint, whose parts are in the store. `None`
    /// for a job without a store: it has no state.
    ///
    /// # Errors
    /// As those of a commit. After `Indeterminate` it is unknown whether it happened: take the job over again.
    ///
    /// # Cancel safety
    /// Not cancel safe: as after `Indeterminate`.
    pub async fn commit_state(mut self, savepoint: &LoadedSavepoint) -> Result<Option<CheckpointId>> {
        let Some(OwnedStore { store, owner }) = self.position.owned_store().cloned() else { return Ok(None) };
        let checkpoint = self.position.next_checkpoint;
        let predecessor = self.position.last_committed;
        let now_ms = self.env.clock.wall_ms();
        let manifest = Manifest {
            transactional_id: self.protocol.transactional_id(checkpoint),
            outcome_topic_id: self.protocol.outcome_topic_id(),
            ..savepoint.manifest_for(&owner, checkpoint, predecessor, now_ms)
        };
        let published = store.publish_pending(&owner, &manifest).await?;
        let manifest_ref = published.manifest_ref.clone();
        let epoch = SealedEpoch {
            checkpoint,
            predecessor,
            job_epoch: self.position.job_epoch,
            decided: Vec::new(),
            manifest: Some(manifest_ref.clone()),
        };
        let (clock, deadline) = (self.env.clock.clone(), self.deadline);
        let committing = self.commit(&epoch, published.permit());
        within(&clock, deadline, "committing the state of the savepoint", committing).await?;
        store.complete(&owner, &manifest_ref).await?;
        Ok(Some(checkpoint))
    }

    async fn commit(&mut self, epoch: &SealedEpoch, permit: CommitPermit) -> Result<()> {
        self.protocol.open(epoch.checkpoint).await?;
        self.protocol.write_outcome(epoch).await?;
        self.protocol.stage(epoch).await?;
        self.protocol.commit(epoch, permit).await?;
        // What follows may rely on its marker.
        self.protocol.visible(epoch).await
    }
}
