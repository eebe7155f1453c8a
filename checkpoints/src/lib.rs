//! Checkpoint store on object_store: manifests, ownership, recovery decisions.

use serde::{Deserialize, Serialize};

/// Name and content hash of a stored manifest: what an outcome record carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ManifestRef {
    /// Object name below the job's folder.
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
}
