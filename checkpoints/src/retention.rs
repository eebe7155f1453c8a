//! Which completed checkpoints are kept.
//!
//! Recovery only ever needs the last committed one; the others are for people. Pending manifests are never touched:
//! only the outcome log knows what they are. Owner objects are bounded where they are made (`fence`).

use sharestream_base::ids::CheckpointId;

use crate::{CheckpointStore, Result, StoredCheckpoint, StoredState};

/// Keeps the last completed checkpoints of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    keep: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Retention::keep_last(3)
    }
}

impl Retention {
    /// Keeps the last `count` completed checkpoints; at least one, which recovery needs.
    pub fn keep_last(count: usize) -> Self {
        Retention { keep: count.max(1) }
    }

    /// Names of what may go, oldest first. `needed` is the last committed checkpoint: neither it nor anything newer
    /// goes, whatever its state.
    pub fn surplus<'a>(&self, stored: &'a [StoredCheckpoint], needed: CheckpointId) -> Vec<&'a str> {
        let mut completed: Vec<&StoredCheckpoint> = stored
            .iter()
            .filter(|checkpoint| match checkpoint.state {
                StoredState::Completed | StoredState::CompletedWithoutManifest => checkpoint.id < needed,
                StoredState::Pending => false,
            })
            .collect();
        completed.sort_by_key(|checkpoint| (checkpoint.id, checkpoint.job_epoch));
        // The needed one is one of the kept.
        let surplus_count = completed.len().saturating_sub(self.keep - 1);
        completed[..surplus_count].iter().map(|checkpoint| checkpoint.name.as_str()).collect()
    }

    /// Deletes what may go; `needed` as in [`Retention::surplus`]. Not on the commit path: call it now and then.
    /// Returns how many went; none while somebody holds the store ([`crate::Hold`]). Interrupted, the next call goes on. Errors: `Retry`, `InvalidInput`.
    pub async fn run(&self, store: &CheckpointStore, needed: CheckpointId) -> Result<usize> {
        let stored = store.list().await?;
        let surplus = self.surplus(&stored, needed);
        if store.is_held().await? {
            tracing::debug!("retention waits: a savepoint is being made");
            return Ok(0);
        }
        for name in &surplus {
            store.delete_checkpoint(name).await?;
        }
        let part_count = store.delete_unnamed_state(needed).await?;
        tracing::debug!(checkpoints = surplus.len(), parts = part_count, "retention");
        Ok(surplus.len())
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::JobEpoch;

    use super::*;

    fn stored(id: u64, state: StoredState) -> StoredCheckpoint {
        let name = format!("{id}");
        StoredCheckpoint { id: CheckpointId(id), job_epoch: JobEpoch(1), name, state }
    }

    #[test]
    fn the_last_k_stay_and_the_needed_one_always() {
        use StoredState::{Completed, CompletedWithoutManifest, Pending};
        let all = [
            stored(1, CompletedWithoutManifest),
            stored(2, Pending),
            stored(3, Completed),
            stored(4, Completed),
            stored(5, Completed),
            stored(6, Pending),
        ];
        let surplus = |keep, needed| Retention::keep_last(keep).surplus(&all, CheckpointId(needed));
        assert_eq!(surplus(2, 5), ["1", "3"]);
        assert_eq!(surplus(0, 5), ["1", "3", "4"], "keeping none still keeps the needed one");
        assert_eq!(surplus(1, 4), ["1", "3"], "what is newer than the needed one stays");
        assert_eq!(surplus(9, 5), [""; 0]);
        assert_eq!(surplus(1, 6), ["1", "3", "4", "5"], "the needed one may still be pending");
    }
}
