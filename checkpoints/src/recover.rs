//! Recovery, in the two steps that surround the fencing of older transactions.
//!
//! ```text
//! acquire_ownership -> inspect -> [InitProducerId for each transactional id, read the outcome log] -> finish
//! ```
//!
//! What is stored is listed twice: before fencing, to learn which transactional ids pending manifests name, and
//! again after it, because until then an older incarnation may still have published and committed.

use std::collections::BTreeSet;

use sharestream_base::ids::CheckpointId;

use crate::decide::{self, Content, Facts, Outcomes, StoredManifest};
use crate::fence::Owner;
use crate::store::CheckpointStore;
use crate::{Error, ErrorKind, Manifest, ManifestRef, Result, StoredState};

/// A recovery that has looked at the store and waits for the outcome log.
#[derive(Clone, Debug)]
pub struct Recovery {
    transactional_ids: BTreeSet<String>,
}

/// Where the job goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The last committed checkpoint; `None` when there is none or it was committed without a store.
    pub restored: Option<(ManifestRef, Manifest)>,
    /// The last committed checkpoint's id, manifest or not: predecessor of the next one.
    pub predecessor: Option<CheckpointId>,
    /// The first id to use.
    pub next_checkpoint: CheckpointId,
}

impl Recovery {
    /// Looks at what is stored. Call it after taking ownership. Errors: `Corrupt`, `Retry`. Cancel safe.
    pub async fn inspect(store: &CheckpointStore) -> Result<Recovery> {
        let (_, transactional_ids) = read_stored(store, None).await?;
        Ok(Recovery { transactional_ids })
    }

    /// Transactional ids that pending manifests name: fence them and resolve their transactions before `finish`.
    pub fn pending_transactional_ids(&self) -> impl Iterator<Item = &str> + '_ {
        self.transactional_ids.iter().map(String::as_str)
    }

    /// Decides, completes, deletes and loads. Call it when every older transaction is resolved, with what the outcome
    /// log says. A recovery that is interrupted is simply done again.
    ///
    /// # Errors
    /// `Fenced`; `Corrupt` (see [`crate::decide`]); `Retry` when an older incarnation published meanwhile under a
    /// transactional id that was not fenced: recover again.
    pub async fn finish(
        self,
        store: &CheckpointStore,
        owner: &Owner,
        outcomes: Outcomes,
    ) -> Result<Recovered> {
        store.check_owner(owner).await?;
        match self.settle(store, owner, outcomes).await {
            // What contradicts the outcome may be the work of a newer owner, done since we asked; and whoever is to
            // recover again must not take the job back from one.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Retry) => {
                store.check_owner(owner).await?;
                Err(error)
            }
            settled => settled,
        }
    }

    async fn settle(self, store: &CheckpointStore, owner: &Owner, outcomes: Outcomes) -> Result<Recovered> {
        let named = outcomes.last_committed.as_ref().and_then(|outcome| outcome.manifest.as_ref());
        let (stored, transactional_ids) = read_stored(store, named).await?;
        // A newer owner deletes and completes as well: what it has published is not for us to judge.
        if stored.iter().any(|manifest| manifest.stored.job_epoch > owner.epoch) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "{}: there are manifests of a later job epoch than {}, which is the highest owner: owner objects \
                     were deleted",
                    store.key(),
                    owner.epoch
                ),
            ));
        }
        if let Some(unfenced) = transactional_ids.difference(&self.transactional_ids).next() {
            let context = format!(
                "{}: a manifest with transactional id '{unfenced}' appeared during recovery",
                store.key()
            );
            return Err(Error::new(ErrorKind::Retry, context));
        }
        let decision = decide::decide(&Facts { stored, outcomes })?;
        if let Some(manifest_ref) = &decision.complete {
            store.complete(owner, manifest_ref).await?;
        }
        for name in &decision.delete {
            tracing::info!(manifest = %name, "deleting a manifest that was never committed or is left over");
            store.delete_checkpoint(name).await?;
        }
        if let (Some(retention), Some(last)) = (store.retention(), decision.predecessor)
            && let Err(error) = retention.run(store, last).await
        {
            // Nothing is lost by it: the next recovery deletes what this one left.
            tracing::warn!(%error, "old checkpoints could not be deleted");
        }
        let restored = match decision.restore {
            Some(manifest_ref) => {
                let manifest = store.load(&manifest_ref).await?;
                Some((manifest_ref, manifest))
            }
            None => None,
        };
        let (predecessor, next_checkpoint) = (decision.predecessor, decision.next_checkpoint);
        tracing::info!(
            restored = restored.is_some(),
            predecessor = ?predecessor,
            next_checkpoint = %next_checkpoint,
            deleted_count = decision.delete.len(),
            "recovery decided"
        );
        Ok(Recovered { restored, predecessor, next_checkpoint })
    }
}

/// Lists everything, and reads the manifests on which a decision can depend: pending ones, and the one that the
/// outcome names.
async fn read_stored(
    store: &CheckpointStore,
    named: Option<&ManifestRef>,
) -> Result<(Vec<StoredManifest>, BTreeSet<String>)> {
    let mut manifests = Vec::new();
    let mut transactional_ids = BTreeSet::new();
    for stored in store.list().await? {
        let is_named = named.is_some_and(|manifest_ref| manifest_ref.name == stored.name);
        let wanted = match stored.state {
            StoredState::Pending => true,
            StoredState::Completed => is_named,
            StoredState::CompletedWithoutManifest => false,
        };
        let content = match wanted {
            false => Content::NotRead,
            true => match store.load_by_name(&stored.name).await {
                Ok((manifest_ref, manifest)) => {
                    if stored.state == StoredState::Pending {
                        transactional_ids.extend(manifest.transactional_id);
                    }
                    Content::Intact {
                        sha256: manifest_ref.sha256,
                        predecessor: manifest.predecessor,
                        outcome_topic_id: manifest.outcome_topic_id,
                    }
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => Content::Damaged(error.to_string()),
                Err(error) => return Err(error),
            },
        };
        manifests.push(StoredManifest { stored, content });
    }
    Ok((manifests, transactional_ids))
}
