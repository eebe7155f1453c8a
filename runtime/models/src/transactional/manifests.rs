//! The checkpoint store: manifests, created if absent, and what recovery decides about them.

use super::names::{Checkpoint, JobEpoch, Process, RecordSet, TransactionalId};
use super::outcome_log::OutcomesRead;
use super::rules::Rules;

/// Name of a manifest in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ManifestName {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The job epoch of the writer; the same for all if names do not hold it.
    pub job_epoch: JobEpoch,
}

/// Name and content hash, as an outcome record carries them. The state stands for the hash: two manifests
/// with equal states restore the same job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ManifestRef {
    /// The name.
    pub name: ManifestName,
    /// All records that operator state counts.
    pub state: RecordSet,
}

/// A stored manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Manifest {
    /// Name and content.
    pub reference: ManifestRef,
    /// The checkpoint before; 0 for none.
    pub predecessor: Checkpoint,
    /// Who wrote it.
    pub writer: Process,
    /// The transactional id that commits it.
    pub id: TransactionalId,
    /// Whether it was marked completed.
    pub is_completed: bool,
}

/// Where a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The checkpoint restored; 0 for the empty start.
    pub checkpoint: Checkpoint,
    /// Its state.
    pub state: RecordSet,
    /// The first checkpoint id to use.
    pub next: Checkpoint,
}

/// Absence of what must be there: the store and the outcome partition do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// All manifests, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ManifestStore(Vec<Manifest>);

impl ManifestStore {
    /// Manifests in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Manifest> {
        self.0.iter()
    }

    /// Whether the name is taken.
    pub fn contains(&self, name: ManifestName) -> bool {
        self.0.iter().any(|manifest| manifest.reference.name == name)
    }

    /// Creates a pending manifest if its name is free; otherwise nothing changes.
    pub fn create_if_absent(&mut self, manifest: Manifest) {
        if !self.contains(manifest.reference.name) {
            self.0.push(manifest);
            self.0.sort_unstable();
        }
    }

    /// Marks a manifest completed; retention then deletes older completed ones.
    pub fn complete(&mut self, name: ManifestName) {
        let Some(found) = self.0.iter_mut().find(|manifest| manifest.reference.name == name) else { return };
        found.is_completed = true;
        self.0.retain(|other| !other.is_completed || other.reference.name.checkpoint >= name.checkpoint);
        self.0.sort_unstable();
    }

    /// Decides, completes and deletes, given what the outcome partition says.
    pub fn recover(
        &mut self,
        me: Process,
        outcomes: OutcomesRead,
        listed: &ManifestStore,
        rules: &Rules,
    ) -> Result<Restored, Corrupt> {
        let restored = match rules.outcome_decides_pending_manifest {
            true => outcomes.last_committed.map(|named| listed.find(named, rules)).transpose()?,
            false => listed.iter().filter(|manifest| manifest.is_completed).max().copied(),
        };
        for manifest in listed.iter().filter(|manifest| Some(**manifest) != restored) {
            let is_newer = manifest.writer.job_epoch() > me.job_epoch();
            if is_newer && rules.newer_manifests_are_left_alone {
                continue;
            }
            if is_leftover(manifest, restored.as_ref(), rules)? {
                self.0.retain(|stored| stored.reference.name != manifest.reference.name);
            }
        }
        if let Some(manifest) = restored {
            self.complete(manifest.reference.name);
        }
        let checkpoint = restored.map_or(Checkpoint(0), |manifest| manifest.reference.name.checkpoint);
        let stored = listed.iter().map(|manifest| manifest.reference.name.checkpoint).max();
        let used = checkpoint.max(outcomes.highest_seen).max(stored.unwrap_or(Checkpoint(0)));
        Ok(Restored {
            checkpoint,
            state: restored.map_or(RecordSet::EMPTY, |manifest| manifest.reference.state),
            next: if rules.checkpoint_ids_never_reused { used.next() } else { checkpoint.next() },
        })
    }

    /// The manifest that a committed outcome names.
    fn find(&self, named: ManifestRef, rules: &Rules) -> Result<Manifest, Corrupt> {
        let is_named = |manifest: &&Manifest| {
            let ManifestRef { name, state } = manifest.reference;
            let is_same_name = match rules.matched_by_name {
                true => name == named.name,
                false => name.checkpoint == named.name.checkpoint,
            };
            is_same_name && (state == named.state || !rules.matched_by_hash)
        };
        self.iter().find(is_named).copied().ok_or(Corrupt)
    }
}

/// Whether a manifest that is not restored is to be deleted; completed older ones are retention's.
fn is_leftover(manifest: &Manifest, restored: Option<&Manifest>, rules: &Rules) -> Result<bool, Corrupt> {
    let last = restored.map_or(Checkpoint(0), |restored| restored.reference.name.checkpoint);
    let checkpoint = manifest.reference.name.checkpoint;
    let is_lenient = !rules.outcome_decides_pending_manifest || !rules.unexplained_outcome_is_corrupt;
    if manifest.is_completed {
        return if checkpoint >= last && !is_lenient { Err(Corrupt) } else { Ok(false) };
    }
    let is_of_older_job =
        restored.is_some_and(|restored| manifest.writer.job_epoch() < restored.writer.job_epoch());
    let is_explained = checkpoint <= last || is_of_older_job || manifest.predecessor == last;
    if is_explained || is_lenient { Ok(true) } else { Err(Corrupt) }
}
