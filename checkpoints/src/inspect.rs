//! A store as somebody sees it who looks at it from outside: what is there, what is wrong with it, what is needed.
//!
//! Nothing here takes ownership or writes, so a running job is not disturbed; what it does meanwhile may show as a
//! checkpoint that was listed and is gone.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{CheckpointId, JobEpoch};

use crate::decide::{self, Content, Facts, Outcomes, RecoveryDecision, StoredManifest};
use crate::store::CheckpointStore;
use crate::{Error, ErrorKind, Manifest, ManifestRef, Result, StatePart, StoredCheckpoint, StoredState};

/// An owner object. The highest epoch owns the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOwner {
    /// Incarnation of the job.
    pub epoch: JobEpoch,
    /// Who it was (host, process); `None` when the object cannot be read, which harms nothing.
    pub by: Option<String>,
    /// When it took the job over, Unix milliseconds.
    pub acquired_ms: Option<i64>,
}

/// A checkpoint with what could be read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedCheckpoint {
    /// As listed.
    pub stored: StoredCheckpoint,
    /// Bytes of its own objects: the manifest and the note of its completion.
    pub bytes: u64,
    /// The manifest, whole and with the right name; else why not.
    pub manifest: std::result::Result<(ManifestRef, Manifest), String>,
    /// The hash that the note of its completion names; `None` while it is pending.
    pub noted_sha256: Option<String>,
}

/// Everything that is stored of an instance at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Ascending by epoch.
    pub owners: Vec<StoredOwner>,
    /// By id, then by job epoch.
    pub checkpoints: Vec<InspectedCheckpoint>,
    /// Bytes of each part of operators' state that is stored, by name.
    pub state_parts: BTreeMap<String, u64>,
}

/// Something that contradicts itself or something else in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The checkpoint that it is found at; `None` for the instance as a whole.
    pub checkpoint: Option<CheckpointId>,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl InspectedCheckpoint {
    /// Bytes of the state that its manifest names, much of which other checkpoints name as well.
    pub fn state_bytes(&self) -> u64 {
        let operators = self.manifest.iter().flat_map(|(_, manifest)| &manifest.operators);
        operators.flat_map(|operator| &operator.parts).map(|part| part.bytes).sum()
    }
}

impl Inspection {
    /// Reads everything: a listing, and one read for each owner, manifest and note; retention bounds them. Errors:
    /// `Retry` (no answer), `InvalidInput` (refused, or a manifest of a newer format). Cancel safe.
    pub async fn of(store: &CheckpointStore) -> Result<Inspection> {
        let owners = store.stored_owners().await?;
        let sizes = store.manifest_sizes().await?;
        let mut checkpoints = Vec::new();
        for stored in store.list().await? {
            let noted_sha256 = store.read_note(&stored.name).await?;
            let manifest = match store.load_by_name(&stored.name).await {
                Ok(found) => Ok(found),
                Err(error) if error.kind() == ErrorKind::Corrupt => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            // Retention may have taken it since it was listed.
            if manifest.is_err() && noted_sha256.is_none() && !store.has_manifest(&stored.name).await? {
                continue;
            }
            let (stem, _) = stored.name.rsplit_once('.').unwrap_or((&stored.name, ""));
            let bytes = sizes.iter().filter(|(name, _)| name.starts_with(stem)).map(|(_, size)| size).sum();
            checkpoints.push(InspectedCheckpoint { stored, bytes, manifest, noted_sha256 });
        }
        // Last, so that the parts of every manifest that was read are there, or were let go together with it.
        let state_parts = store.state_sizes().await?.into_iter().collect();
        Ok(Inspection { owners, checkpoints, state_parts })
    }

    /// Reads every part of state that a manifest names, and checks its hash. Errors: `Retry`, `InvalidInput`.
    pub async fn state_faults(&self, store: &CheckpointStore) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        let mut read = BTreeSet::new();
        for (checkpoint, part) in self.named_parts() {
            if !self.state_parts.contains_key(&part.name) || !read.insert(&part.name) {
                continue;
            }
            match store.read_state(part).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    faults.push(Fault { checkpoint: Some(checkpoint), what: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(faults)
    }

    fn named_parts(&self) -> impl Iterator<Item = (CheckpointId, &StatePart)> {
        let intact =
            self.checkpoints.iter().filter_map(|one| Some((one.stored.id, &one.manifest.as_ref().ok()?.1)));
        intact.flat_map(|(id, manifest)| {
            let parts = manifest.operators.iter().flat_map(|operator| &operator.parts);
            parts.map(move |part| (id, part))
        })
    }

    /// The newest completed checkpoint.
    pub fn last_completed(&self) -> Option<&InspectedCheckpoint> {
        self.checkpoints.iter().rev().find(|checkpoint| checkpoint.stored.state == StoredState::Completed)
    }

    /// What contradicts itself or one another; empty for a store from which a job recovers. Whether what is pending
    /// is committed is not known here: see [`Inspection::recovery`].
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for checkpoint in &self.checkpoints {
            let mut fault =
                |what: String| faults.push(Fault { checkpoint: Some(checkpoint.stored.id), what });
            match &checkpoint.manifest {
                Err(why) => fault(why.clone()),
                Ok((manifest_ref, manifest)) => {
                    if let Some(noted) =
                        checkpoint.noted_sha256.as_ref().filter(|noted| **noted != manifest_ref.sha256)
                    {
                        fault(format!(
                            "manifest {} has sha256 {}, the note of its completion says {noted}",
                            manifest_ref.name, manifest_ref.sha256
                        ));
                    }
                    manifest.check_ranges().into_iter().for_each(&mut fault);
                }
            }
        }
        for (checkpoint, part) in self.named_parts() {
            let what = match self.state_parts.get(&part.name) {
                Some(bytes) if *bytes == part.bytes => continue,
                Some(bytes) => {
                    format!("state {} has {bytes} bytes, its manifest says {}", part.name, part.bytes)
                }
                None => format!("state {} is missing", part.name),
            };
            faults.push(Fault { checkpoint: Some(checkpoint), what });
        }
        self.check_owners(&mut faults);
        self.check_chain(&mut faults);
        faults
    }

    fn check_owners(&self, faults: &mut Vec<Fault>) {
        let highest = self.owners.last().map_or(JobEpoch(0), |owner| owner.epoch);
        for InspectedCheckpoint { stored, .. } in &self.checkpoints {
            if stored.job_epoch > highest {
                let what = format!(
                    "manifest {} is of job epoch {}, but the highest owner is {highest}: owner objects were deleted",
                    stored.name, stored.job_epoch
                );
                faults.push(Fault { checkpoint: Some(stored.id), what });
            }
        }
    }

    /// Completed checkpoints follow one another, and each pending one follows the last of them.
    fn check_chain(&self, faults: &mut Vec<Fault>) {
        let mut before: Option<&StoredCheckpoint> = None;
        for InspectedCheckpoint { stored, manifest, .. } in &self.checkpoints {
            let mut fault = |what: String| faults.push(Fault { checkpoint: Some(stored.id), what });
            let predecessor = manifest.as_ref().ok().map(|(_, manifest)| manifest.predecessor);
            let last = before.map(|before| before.id);
            match stored.state {
                StoredState::Completed => {
                    // Retention takes the oldest ones, so the first may follow one that is gone.
                    if let (Some(last), Some(predecessor)) = (last, predecessor)
                        && predecessor != Some(last)
                    {
                        fault(format!(
                            "checkpoint {} says that it follows {}, but {last} was completed before it",
                            stored.id,
                            name(predecessor)
                        ));
                    }
                    if let Some(before) = before.filter(|before| before.job_epoch > stored.job_epoch) {
                        fault(format!(
                            "checkpoint {} is of job epoch {}, but {} before it of the later one {}",
                            stored.id, stored.job_epoch, before.id, before.job_epoch
                        ));
                    }
                    before = Some(stored);
                }
                StoredState::Pending => {}
                StoredState::CompletedWithoutManifest => {}
            }
        }
        let Some(last) = before else { return };
        for InspectedCheckpoint { stored, manifest, .. } in &self.checkpoints {
            if stored.state != StoredState::Pending
                || stored.id <= last.id
                || stored.job_epoch < last.job_epoch
            {
                continue;
            }
            if let Ok((_, manifest)) = manifest
                && manifest.predecessor != Some(last.id)
            {
                let what = format!(
                    "pending checkpoint {} says that it follows {}, but {} was completed last",
                    stored.id,
                    name(manifest.predecessor),
                    last.id
                );
                faults.push(Fault { checkpoint: Some(stored.id), what });
            }
        }
    }

    /// What a start of the job would do, from what its outcome log says. Errors: `Corrupt`, when it would refuse; the
    /// error says why (see [`crate::decide`]).
    pub fn recovery(&self, outcomes: Outcomes) -> Result<RecoveryDecision> {
        let stored = self.checkpoints.iter().map(|checkpoint| StoredManifest {
            stored: checkpoint.stored.clone(),
            content: match &checkpoint.manifest {
                Ok((manifest_ref, manifest)) => Content::Intact {
                    sha256: manifest_ref.sha256.clone(),
                    predecessor: manifest.predecessor,
                    outcome_topic_id: manifest.outcome_topic_id,
                },
                Err(why) => Content::Damaged(why.clone()),
            },
        });
        decide::decide(&Facts { stored: stored.collect(), outcomes })
    }

    /// Why a checkpoint must stay, if it must: it is the last completed one, or it may be committed and nobody has
    /// noted it yet.
    pub fn needed(&self, checkpoint: &StoredCheckpoint) -> Option<String> {
        let last = self.last_completed().map(|last| &last.stored);
        match checkpoint.state {
            StoredState::Completed if Some(checkpoint) == last => Some(
                "it is the last completed one, from which the job goes on; without it the job does not start again"
                    .to_owned(),
            ),
            StoredState::Pending if last.is_none_or(|last| checkpoint.id > last.id) => {
                let owner = self.owners.last().filter(|owner| owner.epoch == checkpoint.job_epoch);
                let whose = match owner.and_then(|owner| owner.by.as_deref()) {
                    Some(by) => format!("its owner, '{by}', may be committing it"),
                    None => "it may be committed".to_owned(),
                };
                Some(format!("it is pending, and {whose}: only the outcome topic knows, and the next start asks it"))
            }
            _ => None,
        }
    }

    /// The checkpoint that a user means: an id, or `<id>-<job epoch>` where there are several of it. Errors:
    /// `InvalidInput`, naming what there is.
    pub fn find(&self, wanted: &str) -> Result<&InspectedCheckpoint> {
        let (id, epoch) = match wanted.split_once('-') {
            Some((id, epoch)) => (id.parse().ok(), epoch.parse().ok().map(JobEpoch)),
            None => (wanted.parse().ok(), None),
        };
        let invalid = |context: String| Error::new(ErrorKind::InvalidInput, context);
        if id.is_none() || (wanted.contains('-') && epoch.is_none()) {
            return Err(invalid(format!("'{wanted}' is no checkpoint: write its id, or <id>-<job epoch>")));
        }
        let is_meant = |stored: &StoredCheckpoint| {
            Some(stored.id.0) == id && epoch.is_none_or(|epoch| epoch == stored.job_epoch)
        };
        let found: Vec<_> = self.checkpoints.iter().filter(|one| is_meant(&one.stored)).collect();
        match found[..] {
            [one] => Ok(one),
            [] => {
                let ids: Vec<String> = self.checkpoints.iter().map(|one| one.stored.id.to_string()).collect();
                let there = if ids.is_empty() { "none are".to_owned() } else { ids.join(", ") };
                Err(invalid(format!("there is no checkpoint {wanted}; stored: {there}")))
            }
            _ => {
                let names: Vec<String> = found.iter().map(|one| one.stored.to_string()).collect();
                Err(invalid(format!("there are several checkpoints {wanted}: write {}", names.join(" or "))))
            }
        }
    }
}

fn name(id: Option<CheckpointId>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

#[cfg(test)]
mod tests;
