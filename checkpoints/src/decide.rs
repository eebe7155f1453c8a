//! What recovery does, as a pure function of what is stored and what the outcome log says.
//!
//! The outcome record of the last committed transaction is the only witness of what happened. Stored objects are
//! hints that must agree with it:
//!
//! ```text
//! stored manifest            last committed outcome            decision
//! -----------------------------------------------------------------------------------------------------
//! pending, completed or not  names it, hash equal              restore it, complete it if it is not
//! pending                    none, or names its predecessor    it never happened: delete, restore predecessor
//! pending, older than that   any                               a leftover: delete
//! pending, of an older       any                               its incarnation was fenced: delete
//!   incarnation
//! completed, newer           any                               Corrupt: the outcome log lost what we know of
//! pending                    neither it nor its predecessor    Corrupt: the outcome log is behind or another
//! missing                    names it                          Corrupt: the folder lost it, or is another
//! other hash or damaged      names it                          Corrupt
//! names another outcome      any                               Corrupt: the topic was created again
//!   topic
//! ```
//!
//! Absence proves nothing: a missing outcome counts as "nothing was ever committed" only when nothing stored says
//! otherwise.

use sharestream_base::ids::{CheckpointId, JobEpoch, TopicId};
use sharestream_base::planted::{Bug, is_planted};

use crate::{Error, ErrorKind, ManifestRef, Result, StoredCheckpoint, StoredState, paths};

/// What a stored manifest turned out to be when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Readable.
    Intact {
        /// SHA-256 of its bytes.
        sha256: String,
        /// The last committed checkpoint when it was written.
        predecessor: Option<CheckpointId>,
        /// Topic that was to hold its outcome; `None` when it does not say.
        outcome_topic_id: Option<TopicId>,
    },
    /// Unreadable, with the reason.
    Damaged(String),
    /// Not read: it is completed, and the outcome names another.
    NotRead,
}

/// A stored checkpoint and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// As listed.
    pub stored: StoredCheckpoint,
    /// As read.
    pub content: Content,
}

/// The last committed outcome record of this (job, instance).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCommitted {
    /// Its checkpoint.
    pub checkpoint: CheckpointId,
    /// The manifest that it names; `None` when the job had no checkpoint store then.
    pub manifest: Option<ManifestRef>,
}

/// What the outcome log says. The default: a log that has no id and holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Topic that was read; `None` where outcomes are not in a topic.
    pub topic_id: Option<TopicId>,
    /// `None` when it holds no committed record of this (job, instance).
    pub last_committed: Option<LastCommitted>,
    /// Highest id in any own outcome record, committed or not.
    pub highest_seen: Option<CheckpointId>,
}

/// Everything that the decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// All stored checkpoints, in any order.
    pub stored: Vec<StoredManifest>,
    /// The only witness.
    pub outcomes: Outcomes,
}

/// What recovery does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryDecision {
    /// Checkpoint to restore; `None` to start without state: nothing was committed, or only without a store.
    pub restore: Option<ManifestRef>,
    /// Manifest whose completion must be noted first.
    pub complete: Option<ManifestRef>,
    /// Names of manifests that never happened, or are leftovers.
    pub delete: Vec<String>,
    /// The last committed checkpoint: predecessor of the next manifest.
    pub predecessor: Option<CheckpointId>,
    /// The first id that was never used.
    pub next_checkpoint: CheckpointId,
}

/// Decides what to restore, complete and delete. Errors: `Corrupt`, saying which object and which outcome
/// contradict each other.
pub fn decide(facts: &Facts) -> Result<RecoveryDecision> {
    let Outcomes { topic_id, last_committed, highest_seen } = &facts.outcomes;
    check_topic(&facts.stored, *topic_id)?;
    let committed = last_committed.as_ref();
    let named = committed.and_then(|outcome| outcome.manifest.as_ref());
    let restored = match (committed, named) {
        (Some(outcome), Some(manifest_ref)) => Some(check_named(&facts.stored, outcome, manifest_ref)?),
        (Some(_) | None, _) => None,
    };
    let committed_epoch = restored.map(|manifest| manifest.stored.job_epoch);

    let mut delete = Vec::new();
    for manifest in &facts.stored {
        let is_leftover =
            is_planted(Bug::CommittedManifestDeleted) && manifest.stored.state == StoredState::Pending;
        let is_restored = named.is_some_and(|manifest_ref| manifest_ref.name == manifest.stored.name);
        let is_restored = is_restored && !is_leftover;
        if !is_restored && check_other(manifest, committed, committed_epoch)? == Other::Delete {
            delete.push(manifest.stored.name.clone());
        }
    }

    let complete = restored
        .filter(|manifest| manifest.stored.state == StoredState::Pending)
        .and_then(|_| named.cloned());
    let used = facts.stored.iter().map(|manifest| manifest.stored.id);
    let used = used.chain(*highest_seen).chain(committed.map(|outcome| outcome.checkpoint)).max();
    Ok(RecoveryDecision {
        restore: named.cloned(),
        complete,
        delete,
        predecessor: committed.map(|outcome| outcome.checkpoint),
        next_checkpoint: used.map_or(CheckpointId(1), CheckpointId::next),
    })
}

/// The log that was read must be the one that the manifests were written for: in another one their outcomes are
/// missing, which looks like a checkpoint that was never committed.
fn check_topic(stored: &[StoredManifest], topic_id: Option<TopicId>) -> Result<()> {
    for StoredManifest { stored, content } in stored {
        let Content::Intact { outcome_topic_id: Some(named), .. } = content else { continue };
        if topic_id != Some(*named) {
            let used = topic_id.map_or_else(|| "none".to_owned(), |id| format!("the one with id {id}"));
            return corrupt(format!(
                "the outcome of checkpoint {} ({}) is in the outcome topic with id {named}, but the job uses {used} now: \
                 the topic was created again, or the job file names another one, and nobody can tell from it whether \
                 that checkpoint is committed; name the topic of before, or give the job an empty checkpoint folder, \
                 which starts it without state",
                stored.id, stored.name
            ));
        }
    }
    Ok(())
}

/// The manifest that the outcome names: it must be there, whole, and the one that was committed.
fn check_named<'a>(
    stored: &'a [StoredManifest],
    outcome: &LastCommitted,
    manifest_ref: &ManifestRef,
) -> Result<&'a StoredManifest> {
    let ManifestRef { name, sha256 } = manifest_ref;
    let checkpoint = outcome.checkpoint;
    match paths::parse_name(name) {
        Some((id, _, paths::Suffix::Pending)) if id == checkpoint => {}
        Some(_) | None => {
            return corrupt(format!(
                "the outcome of checkpoint {checkpoint} names manifest '{name}' of another"
            ));
        }
    }
    let found = stored.iter().find(|manifest| manifest.stored.name == *name);
    let Some(found) = found.filter(|found| found.stored.state != StoredState::CompletedWithoutManifest)
    else {
        return corrupt(format!(
            "checkpoint {checkpoint} is committed, but its manifest {name} is not stored: is this the folder that \
             the job used before?"
        ));
    };
    match &found.content {
        Content::Intact { sha256: stored_sha256, .. } if stored_sha256 == sha256 => Ok(found),
        Content::Intact { sha256: stored_sha256, .. } => corrupt(format!(
            "manifest {name} has sha256 {stored_sha256}, its committed outcome says {sha256}"
        )),
        Content::Damaged(why) => corrupt(format!("checkpoint {checkpoint} is committed, but {why}")),
        Content::NotRead => Err(Error::new(ErrorKind::Bug, format!("manifest {name} was not read"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    /// A completed checkpoint before the restored one: retention's business.
    Keep,
    Delete,
}

/// A manifest that the outcome does not name: it must be a leftover, or its predecessor must be what is committed.
fn check_other(
    manifest: &StoredManifest,
    committed: Option<&LastCommitted>,
    committed_epoch: Option<JobEpoch>,
) -> Result<Other> {
    let StoredCheckpoint { id, job_epoch, name, state } = &manifest.stored;
    let last = committed.map(|outcome| outcome.checkpoint);
    let described = || match last {
        Some(last) => format!("the last committed outcome is that of checkpoint {last}"),
        None => "no outcome is committed".to_owned(),
    };
    match state {
        StoredState::Completed | StoredState::CompletedWithoutManifest
            if last.is_none_or(|last| *id >= last) =>
        {
            corrupt(format!(
                "checkpoint {id} ({name}) was completed, but {}: the outcome topic lost records or was re-created",
                described()
            ))
        }
        StoredState::Completed => Ok(Other::Keep),
        // Retention deletes the note first, so this is not its doing; below the committed one it is harmless.
        StoredState::CompletedWithoutManifest => Ok(Other::Delete),
        StoredState::Pending if last.is_some_and(|last| *id <= last) => Ok(Other::Delete),
        StoredState::Pending if committed_epoch.is_some_and(|epoch| *job_epoch < epoch) => Ok(Other::Delete),
        StoredState::Pending => match &manifest.content {
            Content::Intact { predecessor, .. } if *predecessor == last => Ok(Other::Delete),
            Content::Intact { predecessor, .. } => {
                let predecessor = predecessor.map_or_else(|| "none".to_owned(), |id| id.to_string());
                corrupt(format!(
                    "{}, but pending manifest {name} has predecessor {predecessor}: the outcome topic lost records or \
                     was re-created",
                    described()
                ))
            }
            Content::Damaged(why) => {
                corrupt(format!("{}, and its predecessor cannot be checked: {why}", described()))
            }
            Content::NotRead => Err(Error::new(ErrorKind::Bug, format!("manifest {name} was not read"))),
        },
    }
}

fn corrupt<T>(context: String) -> Result<T> {
    Err(Error::new(ErrorKind::Corrupt, context))
}

#[cfg(test)]
mod tests;
