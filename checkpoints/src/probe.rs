//! Whether a store can be used, found out by doing once what a job does all the time: create an object unless it is there,
//! twice, list it, take it away.
//!
//! The job's own objects are only read. A folder that does not exist is not created: its nearest parent is tried instead.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use crate::{
    CheckpointStore, Error, ErrorKind, JobKey, LocalStore, OpenedStore, Result, StoreLocation, StoredOwner,
};

/// How the names of probe objects begin; one that is left over may be deleted.
const PREFIX: &str = "sharestream-check-";

/// What was found out about a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreProbe {
    /// Set when the folder does not exist: the parent that was tried in its place.
    pub tried_parent: Option<PathBuf>,
    /// The job that the place belongs to; `None` for an empty place.
    pub belongs_to: Result<Option<String>>,
    /// The owner of the instance, the newest.
    pub owner: Option<StoredOwner>,
    /// Whether an object can be created.
    pub created: Result<()>,
    /// Whether it is refused to create it again, on which ownership rests. `None` where the first was not created.
    pub refuses_second: Option<Result<bool>>,
    /// Whether objects can be listed.
    pub listed: Result<()>,
    /// Whether the object could be taken away. `None` where it was not created.
    pub deleted: Option<Result<()>>,
    /// When the object was created by the clock of whoever keeps the store, Unix milliseconds, in steps of a second.
    pub created_ms: Option<i64>,
}

impl StoreProbe {
    /// Probes a place for `key`. `name`: part of the probe object's name, of letters and digits; nobody else may use it at
    /// the same time.
    ///
    /// # Errors
    /// `InvalidInput` when the place cannot be opened at all.
    ///
    /// # Cancel safety
    /// Dropped, the probe object may be left behind; it is a few bytes that no job looks at.
    pub async fn of(location: &StoreLocation, key: &JobKey, name: &str) -> Result<StoreProbe> {
        let missing = location.as_folder().filter(|folder| !folder.exists());
        let (opened, tried_parent) = match missing {
            None => (location.open_existing().await?, None),
            Some(folder) => {
                let parent = nearest(folder)?;
                let objects = Arc::new(LocalStore::open_existing(&parent).await?);
                (OpenedStore { objects, place: parent.display().to_string(), service: None }, Some(parent))
            }
        };
        let store = CheckpointStore::unclaimed(&opened, key.clone())?;
        let (belongs_to, owner) = match &tried_parent {
            // What lies in a parent is not ours.
            Some(_) => (Ok(None), None),
            None => {
                let owners = store.stored_owners().await.unwrap_or_default();
                (CheckpointStore::job_of(&opened).await, owners.into_iter().next_back())
            }
        };
        let path = Path::from(format!("{PREFIX}{name}"));
        let created = create(&opened, &path).await.map_err(|error| store.failed("write", &path, error));
        let listed = store.list_objects(&Path::from(PREFIX)).await.map(|_| ());
        let (mut refuses_second, mut deleted, mut created_ms) = (None, None, None);
        if created.is_ok() {
            refuses_second = Some(match create(&opened, &path).await {
                Ok(()) => Ok(false),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(true),
                Err(error) => Err(store.failed("write", &path, error)),
            });
            created_ms =
                opened.objects.head(&path).await.ok().map(|meta| meta.last_modified.timestamp_millis());
            deleted = Some(store.delete(&path).await);
        }
        Ok(StoreProbe {
            tried_parent,
            belongs_to,
            owner,
            created,
            refuses_second,
            listed,
            deleted,
            created_ms,
        })
    }
}

async fn create(opened: &OpenedStore, path: &Path) -> object_store::Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    opened.objects.put_opts(path, PutPayload::from_static(b"probe\n"), options).await.map(|_| ())
}

/// The nearest folder above `folder` that exists.
fn nearest(folder: &FilePath) -> Result<PathBuf> {
    let absolute = std::path::absolute(folder).map_err(|error| {
        let context = format!("checkpoint folder {} cannot be found: {error}", folder.display());
        Error::new(ErrorKind::InvalidInput, context).with_source(error)
    })?;
    let found = absolute.ancestors().skip(1).find(|parent| parent.exists());
    found.map(FilePath::to_owned).ok_or_else(|| {
        let context = format!("no folder above {} exists", absolute.display());
        Error::new(ErrorKind::InvalidInput, context)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn files(folder: &FilePath) -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[tokio::test]
    async fn a_folder_that_can_be_used_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let key = JobKey::new("flights", "main");
        let store = CheckpointStore::local(folder.path(), key.clone()).await.unwrap();
        store.acquire_ownership("host-a pid 17", 1_000).await.unwrap();
        let before = files(folder.path());
        let location = StoreLocation::folder(folder.path());
        let probe = StoreProbe::of(&location, &key, "one").await.unwrap();
        assert_eq!(probe.belongs_to.unwrap().as_deref(), Some("flights"));
        assert_eq!(probe.owner.unwrap().by.as_deref(), Some("host-a pid 17"));
        assert!(probe.created.is_ok() && probe.listed.is_ok() && probe.deleted.unwrap().is_ok());
        assert!(probe.refuses_second.unwrap().unwrap(), "the second create is refused");
        assert!(probe.created_ms.is_some() && probe.tried_parent.is_none());
        assert_eq!(files(folder.path()), before);
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let location = StoreLocation::folder(folder.path().join("a/b"));
        let probe = StoreProbe::of(&location, &JobKey::new("j", "i"), "one").await.unwrap();
        assert_eq!(probe.tried_parent.as_deref(), Some(folder.path()));
        assert!(probe.created.is_ok() && probe.refuses_second.unwrap().unwrap());
        assert_eq!(files(folder.path()), BTreeSet::new());
    }

    #[tokio::test]
    async fn a_file_in_the_place_of_the_folder_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let location = StoreLocation::folder(folder.path().join("file"));
        let error = StoreProbe::of(&location, &JobKey::new("j", "i"), "one").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("file"), "{error}");
    }
}
