//! Ids and small values that name checkpoints.

use std::fmt;

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{CheckpointId, JobEpoch};

/// Who writes here: a job, and which of its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Name of the job.
    pub job: String,
    /// Name of the replica; stable over restarts (a pod name).
    pub instance: String,
}

impl JobKey {
    /// Puts the two together.
    pub fn new(job: impl Into<String>, instance: impl Into<String>) -> Self {
        JobKey { job: job.into(), instance: instance.into() }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} instance {}", self.job, self.instance)
    }
}

/// Name and content hash of a stored manifest: what an outcome record carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ManifestRef {
    /// Object name in the instance's manifest folder: checkpoint id, job epoch and `.pending`.
    pub name: String,
    /// SHA-256 of the stored bytes, lower-case hex.
    pub sha256: String,
}

/// The right to commit one checkpoint: made only from a published manifest, or by a job that has none to publish.
#[derive(Debug)]
pub struct CommitPermit(());

impl CommitPermit {
    /// For a job without operator state and with Kafka sinks only: its transaction is its checkpoint (DESIGN
    /// section 2).
    pub fn transaction_is_the_checkpoint() -> Self {
        CommitPermit(())
    }

    /// Only [`crate::PublishedCheckpoint`] calls it.
    pub(crate) fn from_published_manifest() -> Self {
        CommitPermit(())
    }
}

/// What the store holds of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// A manifest; whether it is committed only its outcome record knows.
    Pending,
    /// A manifest and the note that its outcome is committed.
    Completed,
    /// The note without the manifest: retention was interrupted, or somebody deleted a file.
    CompletedWithoutManifest,
}

/// One checkpoint as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// Incarnation of the job that wrote it.
    pub job_epoch: JobEpoch,
    /// Name of its manifest, as in [`ManifestRef::name`].
    pub name: String,
    /// What is there of it.
    pub state: StoredState,
}

impl fmt::Display for StoredCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.id, self.job_epoch)
    }
}
