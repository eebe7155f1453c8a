//! The store: every read and write of checkpoint objects goes through here.
//!
//! Writes are create-if-absent. A write without a clear answer is read back: what is found is given to the caller,
//! who knows whether equal bytes mean that the write happened (a manifest's name is ours alone) or not (owners
//! compete for a name); not found, it is tried again, a bounded number of times.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};
use sharestream_base::planted::{Bug, is_planted};

use crate::location::{OpenedStore, Service};
use crate::paths::{self, Paths, Suffix};
use crate::{
    Error, ErrorKind, JobKey, LocalStore, Manifest, ManifestRef, Result, Retention, StoredCheckpoint,
    StoredState, codec,
};

/// How often one create is tried before its answer counts as unknown.
const CREATE_ATTEMPTS: u32 = 3;

/// Larger objects are not ours: a manifest is bounded by the outcome record that carries the same ranges, and a part of
/// state by what its writer puts into one.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// Checkpoints of one (job, instance). Cheap to clone.
#[derive(Clone)]
pub struct CheckpointStore {
    objects: Arc<dyn ObjectStore>,
    /// What the store is called in errors.
    place: String,
    /// Set for a bucket.
    service: Option<Service>,
    key: JobKey,
    paths: Paths,
    owners_kept: usize,
    retention: Option<Retention>,
}

impl fmt::Debug for CheckpointStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStore").field("place", &self.place).field("key", &self.key).finish()
    }
}

/// How a create-if-absent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// The store answered that this call wrote it.
    Written,
    /// The object is there with these bytes: somebody else's, or ours, whose answer got lost.
    Found(Bytes),
}

/// Objects of older owners that are kept, if nobody says otherwise.
const OWNERS_KEPT: usize = 16;
/// Version of `job.json`, and with it of the folder's layout.
const FOLDER_FORMAT_VERSION: u32 = 1;

/// Content of `job.json`.
#[derive(Serialize, Deserialize)]
struct JobIdentity {
    format_version: u32,
    job: String,
}

impl CheckpointStore {
    /// Opens the job's folder, or makes it the job's when it is new. Errors: `InvalidInput` when the folder belongs
    /// to another job or cannot be used; `Indeterminate` when the store gives no answer. Cancel safe.
    pub async fn open(objects: Arc<dyn ObjectStore>, key: JobKey) -> Result<Self> {
        let place = objects.to_string();
        Self::open_in(&OpenedStore { objects, place, service: None }, key).await
    }

    /// As [`CheckpointStore::open`], in the place of a [`crate::StoreLocation`]. A bucket is also asked whether it
    /// refuses to create what exists: ownership rests on that. Errors: as there; `InvalidInput` when it does not.
    pub async fn open_in(opened: &OpenedStore, key: JobKey) -> Result<Self> {
        let store = Self::unclaimed(opened, key)?;
        let identity = store.claim_folder().await?;
        if store.service.is_some() {
            store.refuse_store_that_overwrites(identity).await?;
        }
        Ok(store)
    }

    /// Opens the checkpoints of an instance to look at them and to delete some: nothing is created. Errors:
    /// `InvalidInput` when nothing of the job is there; `Retry` when the store gives no answer. Cancel safe.
    pub async fn open_existing(opened: &OpenedStore, key: JobKey) -> Result<Self> {
        let store = Self::unclaimed(opened, key)?;
        let path = Paths::job();
        let Some(found) = store.read(&path).await? else {
            let context = format!(
                "no checkpoints in {}: there is no {path}, which the first start of a job writes there",
                store.place
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        store.check_identity(&found)?;
        Ok(store)
    }

    /// Nobody's: looks at nothing and claims nothing.
    pub(crate) fn unclaimed(opened: &OpenedStore, key: JobKey) -> Result<Self> {
        for (what, name) in [("job", &key.job), ("instance", &key.instance)] {
            if name.is_empty() {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("the {what} name of a checkpoint is empty"),
                ));
            }
        }
        let paths = Paths::new(&key.instance);
        let OpenedStore { objects, place, service } = opened.clone();
        let (owners_kept, retention) = (OWNERS_KEPT, None);
        Ok(CheckpointStore { objects, place, service, key, paths, owners_kept, retention })
    }

    /// Opens a folder of the local file system, created when missing, and synced before any write counts.
    pub async fn local(folder: impl Into<std::path::PathBuf>, key: JobKey) -> Result<Self> {
        let objects = LocalStore::open(folder).await?;
        Self::open(Arc::new(objects), key).await
    }

    /// Keeps so many objects of older owners, for people to read. Default 16, which is plenty: the highest one alone
    /// says who owns the instance, and it is never deleted. Since 0.1.
    #[must_use]
    pub fn with_owners_kept(mut self, count: usize) -> Self {
        self.owners_kept = count;
        self
    }

    /// Lets each recovery delete the completed checkpoints that are too many. A job deletes them as it runs, now and then;
    /// one that is started again and again for a few checkpoints would never come to it. Default: recovery deletes
    /// none. Since 0.1.
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    pub(crate) fn retention(&self) -> Option<Retention> {
        self.retention
    }

    pub(crate) fn owners_kept(&self) -> usize {
        self.owners_kept
    }

    /// Whose checkpoints these are.
    pub fn key(&self) -> &JobKey {
        &self.key
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns the bytes that say whose folder it is.
    async fn claim_folder(&self) -> Result<Bytes> {
        let path = Paths::job();
        // Read first: a start is the rule, a new folder the exception, and reading needs no sync.
        let found = match self.read(&path).await? {
            Some(found) => found,
            None => {
                let identity =
                    JobIdentity { format_version: FOLDER_FORMAT_VERSION, job: self.key.job.clone() };
                let mut bytes = serde_json::to_vec(&identity).map_err(|error| {
                    Error::new(ErrorKind::Bug, "cannot write a job identity as json").with_source(error)
                })?;
                bytes.push(b'\n');
                let bytes = Bytes::from(bytes);
                match self.create(&path, bytes.clone()).await? {
                    Create::Written => return Ok(bytes),
                    Create::Found(found) => found,
                }
            }
        };
        self.check_identity(&found)?;
        Ok(found)
    }

    fn parse_identity(&self, found: &[u8]) -> Result<JobIdentity> {
        let path = self.describe(&Paths::job());
        let identity: JobIdentity = serde_json::from_slice(found).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("{path} is damaged: {error}")).with_source(error)
        })?;
        if identity.format_version > FOLDER_FORMAT_VERSION {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "checkpoint folder {} has format version {}, this version reads up to {FOLDER_FORMAT_VERSION}: start \
                     the newer sharestream that wrote it",
                    self.place, identity.format_version
                ),
            ));
        }
        Ok(identity)
    }

    fn check_identity(&self, found: &[u8]) -> Result<()> {
        let identity = self.parse_identity(found)?;
        if identity.job != self.key.job {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "checkpoint folder {} belongs to job '{}', not to job '{}': give each job a folder of its own",
                    self.place, identity.job, self.key.job
                ),
            ));
        }
        Ok(())
    }

    /// Creates an object once more, with the bytes that it has: a store that answers success ignores the condition.
    async fn refuse_store_that_overwrites(&self, identity: Bytes) -> Result<()> {
        let path = Paths::job();
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(&path, PutPayload::from(identity), options).await {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(self.failed("write", &path, error)),
            Ok(_) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{} created an object that was there already: its server ignores If-None-Match, so two processes \
                     could both own the job; use a server that honours conditional writes",
                    self.place
                ),
            )),
        }
    }

    /// All checkpoints of the instance by id, then by job epoch. Foreign files are ignored.
    pub async fn list(&self) -> Result<Vec<StoredCheckpoint>> {
        let mut stored: std::collections::BTreeMap<_, StoredCheckpoint> = std::collections::BTreeMap::new();
        for path in self.list_paths(&self.paths.manifests()).await? {
            let Some((id, job_epoch, suffix)) = path.filename().and_then(paths::parse_name) else {
                tracing::warn!(object = %path, "a file that is no checkpoint lies among checkpoints");
                continue;
            };
            let name = paths::pending_name(id, job_epoch);
            let state = match (suffix, stored.get(&(id, job_epoch))) {
                (Suffix::Pending, None) => StoredState::Pending,
                (Suffix::Completed, None) => StoredState::CompletedWithoutManifest,
                (Suffix::Pending | Suffix::Completed, Some(_)) => StoredState::Completed,
            };
            stored.insert((id, job_epoch), StoredCheckpoint { id, job_epoch, name, state });
        }
        Ok(stored.into_values().collect())
    }

    /// Reads a manifest and checks its hash, its checksum and that it is the one it is named. Errors: `Corrupt`,
    /// also when it is missing.
    pub async fn load(&self, manifest_ref: &ManifestRef) -> Result<Manifest> {
        let (found, manifest) = self.load_by_name(&manifest_ref.name).await?;
        if found.sha256 != manifest_ref.sha256 {
            let path = self.describe(&self.paths.manifest(&manifest_ref.name));
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("manifest {path} has sha256 {}, expected {}", found.sha256, manifest_ref.sha256),
            ));
        }
        Ok(manifest)
    }

    /// Reads a manifest of which only the name is known.
    pub(crate) async fn load_by_name(&self, name: &str) -> Result<(ManifestRef, Manifest)> {
        let path = self.paths.manifest(name);
        let described = self.describe(&path);
        let corrupt = |what: String| Error::new(ErrorKind::Corrupt, format!("manifest {described} {what}"));
        let Some((id, epoch, Suffix::Pending)) = paths::parse_name(name) else {
            return Err(corrupt("has a name that no manifest has".to_owned()));
        };
        let Some(bytes) = self.read(&path).await? else { return Err(corrupt("is missing".to_owned())) };
        let manifest: Manifest = codec::decode(&described, &bytes)?;
        if (manifest.checkpoint, manifest.job_epoch) != (id, epoch) {
            return Err(corrupt(format!(
                "holds checkpoint {} of job epoch {}",
                manifest.checkpoint, manifest.job_epoch
            )));
        }
        if (&manifest.job, &manifest.instance) != (&self.key.job, &self.key.instance) {
            let written_by = JobKey::new(&manifest.job, &manifest.instance);
            return Err(corrupt(format!("belongs to {written_by}, not to {}", self.key)));
        }
        Ok((ManifestRef { name: name.to_owned(), sha256: codec::sha256_hex(&bytes) }, manifest))
    }

    /// Name and size of every object in the manifest folder.
    pub(crate) async fn manifest_sizes(&self) -> Result<Vec<(String, u64)>> {
        self.sizes(&self.paths.manifests()).await
    }

    /// Name and size of every part of operators' state.
    pub(crate) async fn state_sizes(&self) -> Result<Vec<(String, u64)>> {
        self.sizes(&self.paths.state_folder()).await
    }

    async fn sizes(&self, folder: &Path) -> Result<Vec<(String, u64)>> {
        let listed = self.list_objects(folder).await?;
        let named =
            listed.into_iter().filter_map(|meta| Some((meta.location.filename()?.to_owned(), meta.size)));
        Ok(named.collect())
    }

    /// The hash in the note of a manifest's completion; `None` without a note.
    pub(crate) async fn read_note(&self, name: &str) -> Result<Option<String>> {
        let Some(note) = paths::completed_name(name) else { return Ok(None) };
        let bytes = self.read(&self.paths.manifest(&note)).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    pub(crate) async fn has_manifest(&self, name: &str) -> Result<bool> {
        Ok(self.read(&self.paths.manifest(name)).await?.is_some())
    }

    /// The job that a place belongs to; `None` for an empty place. Errors: `Corrupt`, `Retry`, `InvalidInput`.
    pub async fn job_of(opened: &OpenedStore) -> Result<Option<String>> {
        let store = Self::unclaimed(opened, JobKey::new("-", "-"))?;
        let Some(found) = store.read(&Paths::job()).await? else { return Ok(None) };
        store.parse_identity(&found).map(|identity| Some(identity.job))
    }

    /// The instances of which something is stored in a place, sorted. Errors: `Retry`, `InvalidInput`.
    pub async fn instances_of(opened: &OpenedStore) -> Result<Vec<String>> {
        let store = Self::unclaimed(opened, JobKey::new("-", "-"))?;
        let folder = Paths::instances();
        let listed = store.objects.list_with_delimiter(Some(&folder)).await;
        let listed = listed.map_err(|error| store.failed("list", &folder, error))?;
        let mut names: Vec<String> = listed.common_prefixes.iter().filter_map(Paths::instance_name).collect();
        names.sort();
        Ok(names)
    }

    /// Deletes a checkpoint that nobody needs, for good. The caller has asked [`crate::Inspection::needed`]: a job
    /// whose last committed checkpoint is gone fails `Corrupt` at its next start. Errors: `Retry`, `InvalidInput`.
    pub async fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<()> {
        self.delete_checkpoint(&checkpoint.name).await
    }

    /// Deletes the objects of a checkpoint, the note of its completion first: a manifest without the note is judged
    /// by the outcome record, a note without its manifest would look like a lost one. Deleting twice is fine.
    pub(crate) async fn delete_checkpoint(&self, name: &str) -> Result<()> {
        let completed = paths::completed_name(name).map(|name| self.paths.manifest(&name));
        for path in completed.into_iter().chain([self.paths.manifest(name)]) {
            self.delete(&path).await?;
        }
        Ok(())
    }

    /// Deletes an object; one that is not there is fine.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", path, error)),
        }
    }

    /// Create-if-absent with a resolved answer. Errors: `Indeterminate` when it stays unknown.
    pub(crate) async fn create(&self, path: &Path, bytes: Bytes) -> Result<Create> {
        let mut attempt = 1;
        loop {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let error = match self.objects.put_opts(path, PutPayload::from(bytes.clone()), options).await {
                Ok(_) => return Ok(Create::Written),
                Err(error) => error,
            };
            // What an object needs above it is missing: a bucket that does not exist.
            if is_refused(&error) || matches!(error, object_store::Error::NotFound { .. }) {
                return Err(self.failed("write", path, error));
            }
            let answered = matches!(error, object_store::Error::AlreadyExists { .. });
            if is_planted(Bug::UnansweredPutIsSuccess) && !answered {
                return Ok(Create::Written);
            }
            let unknown = |cause: String| {
                let context = format!("it is unknown whether {} was written: {cause}", self.describe(path));
                Error::new(ErrorKind::Indeterminate, context)
            };
            match self.read(path).await {
                Ok(Some(found)) => return Ok(Create::Found(found)),
                Ok(None) if attempt < CREATE_ATTEMPTS => {
                    tracing::warn!(object = %path, attempt, error = %error, "a checkpoint object was not written");
                    attempt += 1;
                }
                Ok(None) => return Err(unknown(one_line(&error.to_string())).with_source(error)),
                Err(read_error) => {
                    return Err(
                        unknown(format!("{error}, and reading it back failed")).with_source(read_error)
                    );
                }
            }
        }
    }

    /// Reads a whole object; `None` when it is not there.
    pub(crate) async fn read(&self, path: &Path) -> Result<Option<Bytes>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed("read", path, error)),
        };
        if found.meta.size > OBJECT_BYTES_MAX {
            let context =
                format!("{} has {} bytes, too many to be ours", self.describe(path), found.meta.size);
            return Err(Error::new(ErrorKind::Corrupt, context));
        }
        found.bytes().await.map(Some).map_err(|error| self.failed("read", path, error))
    }

    /// The objects below a folder, sorted by path.
    pub(crate) async fn list_paths(&self, folder: &Path) -> Result<Vec<Path>> {
        let listed = self.list_objects(folder).await?;
        let mut paths: Vec<Path> = listed.into_iter().map(|meta| meta.location).collect();
        paths.sort();
        Ok(paths)
    }

    pub(crate) async fn list_objects(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        let listed = self.objects.list(Some(folder)).try_collect().await;
        listed.map_err(|error| self.failed("list", folder, error))
    }

    /// Store and path, for errors.
    pub(crate) fn describe(&self, path: &Path) -> String {
        format!("{}/{path}", self.place)
    }

    pub(crate) fn failed(&self, verb: &str, path: &Path, error: object_store::Error) -> Error {
        let is_missing = matches!(error, object_store::Error::NotFound { .. });
        let kind = if is_refused(&error) || is_missing { ErrorKind::InvalidInput } else { ErrorKind::Retry };
        let advice = self.service.and_then(|service| advice(service, &error)).unwrap_or_default();
        let answer = one_line(&error.to_string());
        Error::new(kind, format!("cannot {verb} {}: {answer}{advice}", self.describe(path)))
            .with_source(error)
    }
}

/// An answer without the XML around what it says.
fn one_line(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(content, _)| content)
    };
    match (text.find("<?xml").or_else(|| text.find("<Error>")), element("Code"), element("Message")) {
        (Some(xml), Some(code), Some(message)) => format!("{}{code}, {message}", &text[..xml]),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// What to do about an answer of a bucket; each begins with "; ".
fn advice(service: Service, error: &object_store::Error) -> Option<String> {
    use object_store::Error as E;
    let (_, _, credentials) = service.facts();
    // Where nothing is set, the clients ask the machine's own service for a role.
    let asked_machine = ["/latest/api/token", "/computeMetadata/", "/metadata/identity/", "169.254."];
    let text = error.to_string();
    match error {
        E::Generic { .. } if asked_machine.iter().any(|host| text.contains(host)) => {
            Some(format!("; no credentials were found: {credentials}"))
        }
        E::Unauthenticated { .. } => Some(format!("; the credentials were not accepted: {credentials}")),
        E::PermissionDenied { .. } => Some(
            "; are the credentials right, and may they list the bucket, and read, write and delete below the prefix?"
                .to_owned(),
        ),
        E::NotFound { .. } => Some("; does the bucket exist? Sharestream does not create buckets".to_owned()),
        _ => None,
    }
}

/// True when the store refused for a reason that trying again does not change: nothing was written.
fn is_refused(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(
        error,
        E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::NotImplemented { .. }
            | E::NotSupported { .. }
            | E::InvalidPath { .. }
            | E::UnknownConfigurationKey { .. }
    )
}

#[cfg(test)]
mod tests;
