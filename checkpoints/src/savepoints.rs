//! Where savepoints lie, and how they get there and back.
//!
//! ```text
//! <folder>/savepoint.json        written last: without it the folder is none
//! <folder>/manifest              the checkpoint's manifest, byte for byte
//! <folder>/state/<part>.arrow    every part of state that it names
//! ```
//! Copies, not references: a savepoint outlives the job's store, and retention, which deletes only below `instances/`,
//! never touches it. Every object is written once (create-if-absent) and never changed.

use std::fmt;

use bytes::Bytes;
use object_store::path::Path;

use crate::fence::Owner;
use crate::location::OpenedStore;
use crate::paths::Paths;
use crate::store::{CheckpointStore, Create};
use crate::{Error, ErrorKind, JobKey, ManifestRef, Result, Savepoint, StatePart, codec};

const DOCUMENT: &str = "savepoint.json";

/// A folder of savepoints: that of a job's own store, or any other place.
#[derive(Clone, Debug)]
pub struct Savepoints {
    store: CheckpointStore,
    folder: Path,
}

/// The folder of one savepoint.
#[derive(Clone)]
pub struct SavepointPlace {
    store: CheckpointStore,
    folder: Path,
}

impl fmt::Debug for SavepointPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SavepointPlace").field(&self.to_string()).finish()
    }
}

impl fmt::Display for SavepointPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.store.describe(&self.folder).trim_end_matches('/'))
    }
}

/// A savepoint that was read; its copies are still where they are.
#[derive(Clone, Debug)]
pub struct LoadedSavepoint {
    /// Where it lies.
    pub place: SavepointPlace,
    /// What it says.
    pub savepoint: Savepoint,
    /// SHA-256 of its document: no two savepoints have the same.
    pub sha256: String,
}

/// A savepoint as listed.
#[derive(Clone, Debug)]
pub struct ListedSavepoint {
    /// Name of its folder.
    pub name: String,
    /// Bytes of all of its objects.
    pub bytes: u64,
    /// What it says; else why it cannot be read: damaged, or never finished.
    pub loaded: std::result::Result<LoadedSavepoint, String>,
}

impl Savepoints {
    /// The savepoints in a job's own store.
    pub fn of_store(store: &CheckpointStore) -> Self {
        Savepoints { store: store.clone(), folder: Paths::savepoints() }
    }

    /// The savepoints of any job in `opened`, each in a folder of its own. Errors: `InvalidInput`.
    pub fn at(opened: &OpenedStore) -> Result<Self> {
        Ok(Savepoints { store: anybodys(opened)?, folder: Path::default() })
    }

    /// The savepoint of this name, whether there is one or not. Errors: `InvalidInput` when no savepoint has such a name.
    pub fn named(&self, name: &str) -> Result<SavepointPlace> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_empty() || name.starts_with('.') || !is_plain {
            return Err(Error::new(ErrorKind::InvalidInput, format!("'{name}' is no name of a savepoint")));
        }
        Ok(SavepointPlace { store: self.store.clone(), folder: self.folder.clone().join(name) })
    }

    /// Everything that is there, by name. Errors: `Retry`, `InvalidInput`.
    pub async fn list(&self) -> Result<Vec<ListedSavepoint>> {
        let above = self.folder.parts().count();
        let mut sizes = std::collections::BTreeMap::<String, u64>::new();
        for object in self.store.list_objects(&self.folder).await? {
            let mut parts = object.location.parts().skip(above);
            let Some(name) = parts.next() else { continue };
            // Files beside the folders are not ours.
            if parts.next().is_some() {
                *sizes.entry(name.as_ref().to_owned()).or_default() += object.size;
            }
        }
        let mut listed = Vec::new();
        for (name, bytes) in sizes {
            // Another name has not been given by us.
            let Ok(place) = self.named(&name) else { continue };
            let loaded = match place.load().await {
                Ok(loaded) => Ok(loaded),
                Err(error) if is_about_content(&error) => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            listed.push(ListedSavepoint { name, bytes, loaded });
        }
        Ok(listed)
    }

    /// Writes a savepoint under its name, with copies of the manifest and of every part of state from `source`, the store of
    /// the job. The caller has a [`crate::Hold`] on it, and has taken the checkpoint after that.
    ///
    /// # Errors
    /// `Corrupt` (what is to be copied is damaged or missing), `InvalidInput` (the name is taken, or the place refuses),
    /// `Retry`, `Indeterminate`.
    ///
    /// # Cancel safety
    /// Dropped, copies may lie there without a document: no savepoint. [`SavepointPlace::delete`] takes them away.
    pub async fn write(
        &self,
        source: Option<&CheckpointStore>,
        savepoint: &Savepoint,
    ) -> Result<LoadedSavepoint> {
        let place = self.named(&savepoint.name)?;
        let needs_store = savepoint.manifest.is_some() || !savepoint.operators.is_empty();
        match source {
            Some(source) => place.copy_from(source, savepoint).await?,
            None if needs_store => {
                let context =
                    format!("savepoint {} has a manifest, but no store to copy from", savepoint.name);
                return Err(Error::new(ErrorKind::Bug, context));
            }
            None => {}
        }
        let bytes = Bytes::from(codec::encode(savepoint)?);
        let sha256 = codec::sha256_hex(&bytes);
        place.create(DOCUMENT, bytes).await?;
        Ok(LoadedSavepoint { place, savepoint: savepoint.clone(), sha256 })
    }
}

/// A store that belongs to no job.
fn anybodys(opened: &OpenedStore) -> Result<CheckpointStore> {
    CheckpointStore::unclaimed(opened, JobKey::new("-", "-"))
}

/// Errors that another try does not change.
fn is_about_content(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::InvalidInput)
}

impl SavepointPlace {
    /// The savepoint that lies in `opened` itself. Errors: `InvalidInput`.
    pub fn at(opened: &OpenedStore) -> Result<Self> {
        Ok(SavepointPlace { store: anybodys(opened)?, folder: Path::default() })
    }

    /// Reads the document. Errors: `InvalidInput` when there is none, or it is of a newer format; `Corrupt`; `Retry`.
    pub async fn load(&self) -> Result<LoadedSavepoint> {
        let path = self.folder.clone().join(DOCUMENT);
        let Some(bytes) = self.store.read(&path).await? else {
            let context = format!(
                "there is no savepoint in {self}: it has no {DOCUMENT}, which is written last (`sharestream savepoint \
                 list` shows those that there are)"
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        let described = self.store.describe(&path);
        let savepoint: Savepoint = codec::decode(&described, &bytes)?;
        if let Some(fault) = savepoint.faults().first() {
            return Err(Error::new(ErrorKind::Corrupt, format!("savepoint {described} is damaged: {fault}")));
        }
        Ok(LoadedSavepoint { place: self.clone(), savepoint, sha256: codec::sha256_hex(&bytes) })
    }

    /// Deletes it, the document first: what is left after an interruption is no savepoint. Gives the number of objects.
    /// Errors: `Retry`, `InvalidInput`. Cancel safe: repeat it.
    pub async fn delete(&self) -> Result<usize> {
        let document = self.folder.clone().join(DOCUMENT);
        let mut paths = self.store.list_paths(&self.folder).await?;
        paths.sort_by_key(|path| *path != document);
        for path in &paths {
            self.store.delete(path).await?;
        }
        Ok(paths.len())
    }

    async fn copy_from(&self, source: &CheckpointStore, savepoint: &Savepoint) -> Result<()> {
        if let Some(manifest_ref) = &savepoint.manifest {
            source.load(manifest_ref).await?;
            let path = source.paths().manifest(&manifest_ref.name);
            let bytes =
                source.read(&path).await?.filter(|bytes| codec::sha256_hex(bytes) == manifest_ref.sha256);
            let bytes = bytes.ok_or_else(|| {
                Error::new(
                    ErrorKind::Retry,
                    format!("manifest {} changed while it was read", manifest_ref.name),
                )
            })?;
            self.create("manifest", bytes).await?;
        }
        for part in savepoint.operators.iter().flat_map(|operator| &operator.parts) {
            let bytes = source.read_state(part).await?;
            self.create_at(&self.part(part), bytes).await?;
        }
        Ok(())
    }

    fn part(&self, part: &StatePart) -> Path {
        self.folder.clone().join("state").join(part.name.as_str())
    }

    async fn create(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.create_at(&self.folder.clone().join(name), bytes).await
    }

    async fn create_at(&self, path: &Path, bytes: Bytes) -> Result<()> {
        match self.store.create(path, bytes.clone()).await? {
            Create::Written => Ok(()),
            Create::Found(found) if found == bytes => Ok(()),
            Create::Found(_) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{} is there already, with other content: savepoints are never changed",
                    self.store.describe(path)
                ),
            )),
        }
    }

    async fn read(&self, path: &Path, sha256: &str) -> Result<Bytes> {
        let corrupt = |what: &str| {
            let path = self.store.describe(path);
            Error::new(ErrorKind::Corrupt, format!("savepoint object {path} {what}"))
        };
        let bytes = self.store.read(path).await?.ok_or_else(|| corrupt("is missing"))?;
        if codec::sha256_hex(&bytes) != sha256 {
            return Err(corrupt("is damaged: its hash is not the one that the savepoint names"));
        }
        Ok(bytes)
    }
}

impl LoadedSavepoint {
    /// Reads every copy and checks its hash: what is wrong, a sentence each. Errors: `Retry`, `InvalidInput`.
    pub async fn verify(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let manifest = self.savepoint.manifest.as_ref();
        let mut objects: Vec<(Path, &str)> =
            manifest.map(|found| (self.manifest_path(), found.sha256.as_str())).into_iter().collect();
        let parts = self.savepoint.operators.iter().flat_map(|operator| &operator.parts);
        objects.extend(parts.map(|part| (self.place.part(part), part.sha256.as_str())));
        for (path, sha256) in objects {
            match self.place.read(&path, sha256).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => wrong.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(wrong)
    }

    /// Copies the parts of state into the store of the job, under their own names; what is there already stays.
    ///
    /// # Errors
    /// `Corrupt` (a copy is damaged or missing, or the store has another part of that name), `Retry`, `Indeterminate`,
    /// `InvalidInput`.
    ///
    /// # Cancel safety
    /// Cancel safe: repeat it. Parts that no manifest names are deleted by retention.
    pub async fn restore_state(&self, store: &CheckpointStore) -> Result<()> {
        for part in self.savepoint.operators.iter().flat_map(|operator| &operator.parts) {
            let bytes = self.place.read(&self.place.part(part), &part.sha256).await?;
            put(store, &store.paths().state(&part.name), bytes).await?;
        }
        Ok(())
    }

    /// Puts the checkpoint itself back into a store that has lost it: parts, manifest, and the owner that wrote it. For a
    /// job whose last commit it is. Gives whether anything was missing. Errors and cancel safety: as
    /// [`LoadedSavepoint::restore_state`].
    pub async fn restore_checkpoint(&self, store: &CheckpointStore) -> Result<bool> {
        let Some(ManifestRef { name, sha256 }) = &self.savepoint.manifest else { return Ok(false) };
        if store.has_manifest(name).await? {
            return Ok(false);
        }
        let bytes = self.place.read(&self.manifest_path(), sha256).await?;
        self.restore_state(store).await?;
        // Before the manifest: one of a later job epoch than any owner would look like owners that were deleted.
        store.note_earlier_owner(self.savepoint.job_epoch, &self.savepoint.name).await?;
        put(store, &store.paths().manifest(name), bytes).await?;
        Ok(true)
    }

    fn manifest_path(&self) -> Path {
        self.place.folder.clone().join("manifest")
    }

    /// The manifest of a checkpoint that begins with this state: `checkpoint`, made by `owner`, behind `predecessor`.
    pub fn manifest_for(
        &self,
        owner: &Owner,
        checkpoint: sharestream_base::ids::CheckpointId,
        predecessor: Option<sharestream_base::ids::CheckpointId>,
        created_ms: i64,
    ) -> crate::Manifest {
        let key = self.savepoint.key();
        let mut manifest = crate::Manifest::new(&key, owner.epoch, checkpoint, predecessor, created_ms);
        manifest.operators.clone_from(&self.savepoint.operators);
        manifest.event_time.clone_from(&self.savepoint.event_time);
        manifest
    }
}

/// Creates an object of the job's store; equal bytes are fine.
async fn put(store: &CheckpointStore, path: &Path, bytes: Bytes) -> Result<()> {
    match store.create(path, bytes.clone()).await? {
        Create::Written => Ok(()),
        Create::Found(found) if found == bytes => Ok(()),
        Create::Found(_) => Err(Error::new(
            ErrorKind::Corrupt,
            format!("{} is there with other content than the savepoint has", store.describe(path)),
        )),
    }
}

#[cfg(test)]
#[path = "savepoints/tests.rs"]
mod tests;
