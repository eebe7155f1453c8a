//! A hold: while it is there, retention deletes nothing of the instance. Whoever copies a checkpoint that the job may
//! meanwhile replace sets one first.
//!
//! Why that is enough: who copies takes the last committed checkpoint *after* the hold is stored. A run of retention that
//! has not seen the hold began before, so it needs that checkpoint or an older one, and what a later checkpoint names
//! of old parts the older one names, too. Every run that begins later sees the hold.
//!
//! A hold that somebody left (a process that was killed) counts for no longer than [`HOLD_MAX`] by the clock of the store:
//! compared with the youngest manifest, which a running job writes all the time.

use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::Result;
use crate::store::{CheckpointStore, Create};

/// A hold that is older than the youngest manifest by this counts no more.
const HOLD_MAX: Duration = Duration::from_secs(3_600);

/// Keeps retention from deleting. Dropped without [`Hold::release`] it counts for another hour.
#[derive(Debug)]
pub struct Hold {
    store: CheckpointStore,
    path: Path,
}

impl Hold {
    /// Takes it away. Errors: `Retry`, `InvalidInput`. Cancel safe.
    pub async fn release(self) -> Result<()> {
        self.store.delete(&self.path).await
    }
}

impl CheckpointStore {
    /// Keeps retention from deleting anything of this instance, for an hour at most. `name` must be one that nobody else
    /// uses. Errors: `Retry`, `Indeterminate`, `InvalidInput`.
    ///
    /// # Cancel safety
    /// Dropped, the hold may be there for an hour.
    pub async fn hold(&self, name: &str) -> Result<Hold> {
        let path = self.paths().holds().join(name);
        match self.create(&path, Bytes::from_static(b"{\"format_version\":1}\n")).await? {
            Create::Written | Create::Found(_) => Ok(Hold { store: self.clone(), path }),
        }
    }

    /// Whether somebody copies, so that nothing may go. Deletes holds that count no more.
    pub(crate) async fn is_held(&self) -> Result<bool> {
        let holds = self.list_objects(&self.paths().holds()).await?;
        if holds.is_empty() {
            return Ok(false);
        }
        let youngest = self.list_objects(&self.paths().manifests()).await?;
        let youngest = youngest.iter().map(|manifest| manifest.last_modified).max();
        let is_over = |hold: &ObjectMeta| {
            let age = youngest.and_then(|youngest| (youngest - hold.last_modified).to_std().ok());
            age.is_some_and(|age| age > HOLD_MAX)
        };
        let mut is_held = false;
        for hold in &holds {
            if is_over(hold) {
                tracing::warn!(hold = %hold.location, "a hold that somebody left is taken away");
                self.delete(&hold.location).await?;
            } else {
                is_held = true;
            }
        }
        Ok(is_held)
    }
}
