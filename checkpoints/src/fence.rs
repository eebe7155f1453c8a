//! Who owns a (job, instance): the highest epoch does.
//!
//! Taking ownership creates `owners/<epoch>`, one above the highest there is. The number fences everything that is
//! named by it; what fences the *transactions* of the older incarnation is InitProducerId, after which the owner is
//! read again: an older incarnation that initialised its producer late finds itself fenced there (G4).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sharestream_base::ids::JobEpoch;
use sharestream_base::planted::{Bug, is_planted};

use crate::paths::owner_epoch;
use crate::store::{CheckpointStore, Create};
use crate::{Error, ErrorKind, Result, StoredOwner};

/// Epochs tried when others start at the same time, before giving up.
const ACQUIRE_ATTEMPTS: u32 = 64;

/// Ownership of a (job, instance), as long as [`CheckpointStore::check_owner`] says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Incarnation of the job.
    pub epoch: JobEpoch,
    /// Who it is, for the error of the one that is fenced.
    pub by: String,
}

/// Content of an owner object. For people; only the object's name counts.
#[derive(Debug, Serialize, Deserialize)]
struct OwnerRecord {
    format_version: u32,
    by: String,
    acquired_ms: i64,
}

impl CheckpointStore {
    /// Takes the (job, instance) over from whoever has it. `by` names this process in the error that the older one
    /// reports (host, process id). Not cancel safe in one harmless way: an epoch may be used up. Errors: `Retry`,
    /// `Indeterminate`.
    pub async fn acquire_ownership(&self, by: &str, wall_ms: i64) -> Result<Owner> {
        let record = OwnerRecord { format_version: 1, by: by.to_owned(), acquired_ms: wall_ms };
        let bytes = Bytes::from(serde_json::to_vec(&record).map_err(|error| {
            Error::new(ErrorKind::Bug, "cannot write an owner record as json").with_source(error)
        })?);
        let mut lowest_epoch = JobEpoch(1);
        for _ in 0..ACQUIRE_ATTEMPTS {
            let owners = self.owner_epochs().await?;
            let epoch = owners.last().map_or(lowest_epoch, |last| lowest_epoch.max(JobEpoch(last.0 + 1)));
            match self.create(&self.paths().owner(epoch), bytes.clone()).await? {
                // Somebody with our name and our clock may have written the same bytes at the same moment: only
                // one create can have answered, so an object found instead of written is never taken as ours.
                Create::Written => {
                    let surplus = owners.len().saturating_sub(self.owners_kept());
                    for old in &owners[..surplus] {
                        self.delete(&self.paths().owner(*old)).await?;
                    }
                    tracing::info!(job = %self.key(), job_epoch = %epoch, "took ownership of the checkpoint folder");
                    return Ok(Owner { epoch, by: by.to_owned() });
                }
                Create::Found(_) => lowest_epoch = JobEpoch(epoch.0 + 1),
            }
        }
        let context =
            format!("{}: {ACQUIRE_ATTEMPTS} others took ownership first, one after another", self.key());
        Err(Error::new(ErrorKind::Retry, context))
    }

    /// Notes an owner of before, whose manifest comes back from a savepoint: epochs only rise. One that is there stays.
    pub(crate) async fn note_earlier_owner(&self, epoch: JobEpoch, savepoint: &str) -> Result<()> {
        let by = format!("savepoint {savepoint}");
        let record = OwnerRecord { format_version: 1, by, acquired_ms: 0 };
        let bytes = Bytes::from(serde_json::to_vec(&record).map_err(|error| {
            Error::new(ErrorKind::Bug, "cannot write an owner record as json").with_source(error)
        })?);
        match self.create(&self.paths().owner(epoch), bytes).await? {
            Create::Written | Create::Found(_) => Ok(()),
        }
    }

    /// Checks that nobody has taken over. Errors: `Fenced`, naming the newer owner; `Corrupt` when our own owner
    /// object is gone.
    pub async fn check_owner(&self, owner: &Owner) -> Result<()> {
        match self.owner_epochs().await?.last() {
            Some(last) if *last == owner.epoch => Ok(()),
            Some(_newer) if is_planted(Bug::FencedOwnerGoesOn) => Ok(()),
            Some(last) if *last > owner.epoch => {
                let newer = self.owner_record(*last).await?;
                let by =
                    newer.map_or_else(|| "another process".to_owned(), |record| format!("'{}'", record.by));
                let context = format!(
                    "{}: job epoch {} of '{}' was taken over by job epoch {last} of {by}",
                    self.key(),
                    owner.epoch,
                    owner.by
                );
                Err(Error::new(ErrorKind::Fenced, context))
            }
            Some(_) | None => {
                let path = self.describe(&self.paths().owner(owner.epoch));
                Err(Error::new(ErrorKind::Corrupt, format!("{path}, which this process wrote, is gone")))
            }
        }
    }

    /// All owners that are kept, by epoch.
    pub(crate) async fn stored_owners(&self) -> Result<Vec<StoredOwner>> {
        let mut owners = Vec::new();
        for epoch in self.owner_epochs().await? {
            let record = self.owner_record(epoch).await?;
            let acquired_ms = record.as_ref().map(|record| record.acquired_ms);
            owners.push(StoredOwner { epoch, by: record.map(|record| record.by), acquired_ms });
        }
        Ok(owners)
    }

    /// Epochs of all owners, ascending.
    async fn owner_epochs(&self) -> Result<Vec<JobEpoch>> {
        let paths = self.list_paths(&self.paths().owners()).await?;
        let mut epochs: Vec<_> = paths.iter().filter_map(owner_epoch).collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    /// The record of an owner; `None` when it is unreadable, which only costs a name in an error.
    async fn owner_record(&self, epoch: JobEpoch) -> Result<Option<OwnerRecord>> {
        let bytes = self.read(&self.paths().owner(epoch)).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}
