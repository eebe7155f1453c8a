//! Writing a checkpoint: pending before the commit, completed after it.

use std::fmt;

use bytes::Bytes;

use crate::fence::Owner;
use crate::store::{CheckpointStore, Create};
use crate::{CommitPermit, Error, ErrorKind, Manifest, ManifestRef, Result, codec, paths};

/// A manifest that is durable, and the right to commit it.
pub struct PublishedCheckpoint {
    /// Name and hash, for the outcome record.
    pub manifest_ref: ManifestRef,
    /// Length of the manifest as it is stored, in bytes.
    pub manifest_bytes: u64,
    permit: CommitPermit,
}

impl fmt::Debug for PublishedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublishedCheckpoint").field(&self.manifest_ref.name).finish()
    }
}

impl PublishedCheckpoint {
    /// The right to commit this checkpoint, once.
    pub fn permit(self) -> CommitPermit {
        self.permit
    }
}

impl CheckpointStore {
    /// Makes `manifest` durable. It is on the commit path: one create, no reading and no listing (a fenced owner is
    /// stopped by its producer epoch; its manifest then never has a committed outcome). The manifest of n+1 must
    /// not be published before the outcome of n is known.
    ///
    /// # Errors
    /// `InvalidInput` (the store refuses), `Retry` or `Indeterminate` (no answer), `Bug` (a manifest of another job,
    /// or a second, different one under the same id). The same manifest again is success.
    ///
    /// # Cancel safety
    /// Cancel safe: the manifest is then stored or not, and recovery deletes it.
    pub async fn publish_pending(&self, owner: &Owner, manifest: &Manifest) -> Result<PublishedCheckpoint> {
        let key = self.key();
        if (&manifest.job, &manifest.instance, manifest.job_epoch) != (&key.job, &key.instance, owner.epoch) {
            let context = format!(
                "manifest {} is of job {} instance {} epoch {}, the owner is {key} epoch {}",
                manifest.checkpoint, manifest.job, manifest.instance, manifest.job_epoch, owner.epoch
            );
            return Err(Error::new(ErrorKind::Bug, context));
        }
        let bytes = Bytes::from(codec::encode(manifest)?);
        let name = paths::pending_name(manifest.checkpoint, owner.epoch);
        let (sha256, manifest_bytes) = (codec::sha256_hex(&bytes), bytes.len() as u64);
        self.create_own(&name, bytes).await?;
        let permit = CommitPermit::from_published_manifest();
        Ok(PublishedCheckpoint { manifest_ref: ManifestRef { name, sha256 }, manifest_bytes, permit })
    }

    /// Notes that the outcome of this manifest is committed. `owner` may be a later incarnation than the one that
    /// wrote it. A repeat is success. Errors: as [`CheckpointStore::publish_pending`]. Cancel safe.
    pub async fn complete(&self, owner: &Owner, manifest_ref: &ManifestRef) -> Result<()> {
        let name = self.completed_name(manifest_ref)?;
        // No owner in the content: every incarnation writes the same bytes, so a repeat is recognised.
        let bytes = Bytes::from(format!("{}\n", manifest_ref.sha256));
        tracing::debug!(manifest = manifest_ref.name, job_epoch = %owner.epoch, "checkpoint completed");
        self.create_own(&name, bytes).await
    }

    /// Deletes a manifest whose outcome is known to be: never committed. Its absence is success. Errors: `Retry`,
    /// `InvalidInput`. Cancel safe.
    pub async fn delete_pending(&self, manifest_ref: &ManifestRef) -> Result<()> {
        self.delete(&self.paths().manifest(&manifest_ref.name)).await
    }

    fn completed_name(&self, manifest_ref: &ManifestRef) -> Result<String> {
        paths::completed_name(&manifest_ref.name).ok_or_else(|| {
            Error::new(ErrorKind::Bug, format!("'{}' is no name of a manifest", manifest_ref.name))
        })
    }

    /// Creates an object that nobody else writes: equal bytes found are our own earlier attempt.
    async fn create_own(&self, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.paths().manifest(name);
        match self.create(&path, bytes.clone()).await? {
            Create::Written => Ok(()),
            Create::Found(found) if found == bytes => Ok(()),
            Create::Found(_) => {
                let context = format!("{} is there already, with other content", self.describe(&path));
                Err(Error::new(ErrorKind::Bug, context))
            }
        }
    }
}
