//! Files that are really there: a local store whose success means synced.
//!
//! `object_store`'s own local store answers when the kernel has the bytes; after a power cut the object may be
//! gone, empty, or in a folder that nobody finds. Here a create is: write a temporary file, sync it, link it to its
//! name (which fails when the name exists, so create-if-absent is atomic and nobody sees half an object), sync the
//! folder. Folders that had to be created are synced into their parents.
//!
//! After a failed sync the kernel may have dropped the bytes while still showing them, so nothing that is read
//! afterwards proves anything: the store refuses all further work (`Closed`) until it is opened again.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use sharestream_base::{Rng, run_blocking};

use crate::{Error, ErrorKind, Result};

const STORE: &str = "local checkpoint folder";

/// A folder of the local file system as an [`ObjectStore`] for checkpoints. Only what checkpoints need is
/// supported: create-if-absent, get, list, delete.
pub struct LocalStore {
    files: LocalFileSystem,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    folder: PathBuf,
    /// Folders known to exist and to be synced into their parents.
    synced_folders: Mutex<BTreeSet<PathBuf>>,
    temporary_number: AtomicU64,
    sync_failed: AtomicBool,
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStore").field("folder", &self.state.folder).finish()
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.folder.display().fmt(f)
    }
}

impl LocalStore {
    /// Opens `folder`, creates it when missing, and proves that it can be written. Errors: `InvalidInput` with the
    /// folder and the reason.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let opened = run_blocking("open-checkpoint-folder", move || {
            let cannot = |verb: &str, error: io::Error| {
                let context = format!("checkpoint folder {} cannot be {verb}: {error}", folder.display());
                Error::new(ErrorKind::InvalidInput, context).with_source(error)
            };
            let absolute = std::path::absolute(&folder).map_err(|error| cannot("found", error))?;
            let mut synced_folders = BTreeSet::new();
            create_folder(&absolute, &mut synced_folders).map_err(|error| cannot("created", error))?;
            let store = Self::in_folder(absolute, synced_folders)?;
            let state = &store.state;
            let probe = state.temporary(&state.folder.join("probe"));
            write_synced(&probe, &[b"probe"]).map_err(|error| cannot("written", error))?;
            fs::remove_file(&probe).map_err(|error| cannot("written", error))?;
            Ok(store)
        });
        opened.await.map_err(|panic| Error::new(ErrorKind::Bug, panic.to_string()).with_source(panic))?
    }

    /// Opens a folder that exists, without proving that it can be written. Errors: `InvalidInput`.
    pub async fn open_existing(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let opened = run_blocking("open-checkpoint-folder", move || {
            let cannot = |error: io::Error| {
                let context = format!("checkpoint folder {} cannot be opened: {error}", folder.display());
                Error::new(ErrorKind::InvalidInput, context).with_source(error)
            };
            if !fs::metadata(&folder).map_err(cannot)?.is_dir() {
                return Err(cannot(io::ErrorKind::NotADirectory.into()));
            }
            Self::in_folder(std::path::absolute(&folder).map_err(cannot)?, BTreeSet::new())
        });
        opened.await.map_err(|panic| Error::new(ErrorKind::Bug, panic.to_string()).with_source(panic))?
    }

    fn in_folder(folder: PathBuf, synced_folders: BTreeSet<PathBuf>) -> Result<Self> {
        let files = LocalFileSystem::new_with_prefix(&folder).map_err(|error| {
            let context = format!("checkpoint folder {} cannot be opened: {error}", folder.display());
            Error::new(ErrorKind::InvalidInput, context).with_source(error)
        })?;
        let state = State {
            folder,
            synced_folders: Mutex::new(synced_folders),
            // A random start: two containers that share the folder may have the same process id, and a
            // crash may have left a temporary behind.
            temporary_number: AtomicU64::new(Rng::from_entropy().below(1 << 62)),
            sync_failed: AtomicBool::new(false),
        };
        Ok(LocalStore { files, state: Arc::new(state) })
    }

    fn refuse_after_failed_sync(&self) -> object_store::Result<()> {
        if self.state.sync_failed.load(Ordering::Acquire) {
            return Err(generic(io::Error::other("an earlier sync failed; open the folder again")));
        }
        Ok(())
    }
}

impl State {
    /// A name beside `file` that listings ignore: `object_store` hides names that end in `#` and digits.
    fn temporary(&self, file: &FilePath) -> PathBuf {
        let number = self.temporary_number.fetch_add(1, Ordering::Relaxed);
        let mut name = file.as_os_str().to_owned();
        name.push(format!("#{number}"));
        PathBuf::from(name)
    }

    /// Create-if-absent. On an error that is not `AlreadyExists` the object does not exist, or the store is
    /// closed by `sync_failed`.
    fn create(&self, file: &FilePath, payload: &PutPayload) -> io::Result<()> {
        let folder = file.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        {
            let mut synced = self.synced_folders.lock().unwrap_or_else(PoisonError::into_inner);
            // A folder that exists but could not be synced would look fine to the next try.
            create_folder(folder, &mut synced).inspect_err(|error| {
                let untouched = error.kind() == io::ErrorKind::PermissionDenied;
                self.sync_failed.fetch_or(!untouched, Ordering::Release);
            })?;
        }
        let temporary = self.temporary(file);
        let chunks: Vec<&[u8]> = payload.iter().map(|chunk| &chunk[..]).collect();
        let linked = write_synced(&temporary, &chunks).and_then(|()| fs::hard_link(&temporary, file));
        // Left over when this fails: hidden from listings, and harmless.
        let _ = fs::remove_file(&temporary);
        linked?;
        sync_folder(folder).inspect_err(|error| {
            self.sync_failed.store(true, Ordering::Release);
            tracing::error!(folder = %folder.display(), %error, "a checkpoint folder could not be synced");
        })
    }
}

/// Creates `folder` and its missing parents, each synced into its own parent, which makes it findable.
fn create_folder(folder: &FilePath, synced: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if synced.contains(folder) {
        return Ok(());
    }
    let mut missing = Vec::new();
    let mut next = Some(folder);
    while let Some(candidate) = next {
        if candidate.as_os_str().is_empty() || candidate.is_dir() {
            break;
        }
        missing.push(candidate);
        next = candidate.parent();
    }
    for created in missing.into_iter().rev() {
        match fs::create_dir(created) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && created.is_dir() => {}
            Err(error) => return Err(error),
        }
        if let Some(parent) = created.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_folder(parent)?;
        }
    }
    synced.insert(folder.to_owned());
    Ok(())
}

fn write_synced(file: &FilePath, chunks: &[&[u8]]) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file)?;
    for chunk in chunks {
        opened.write_all(chunk)?;
    }
    opened.sync_all()
}

fn sync_folder(folder: &FilePath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: STORE, source: source.into() }
}

fn not_implemented(operation: &str) -> object_store::Error {
    object_store::Error::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        match options.mode {
            PutMode::Create => {}
            PutMode::Overwrite | PutMode::Update(_) => return Err(not_implemented("put other than create")),
        }
        self.refuse_after_failed_sync()?;
        let file = self.files.path_to_filesystem(location)?;
        let state = self.state.clone();
        let written = run_blocking("write-checkpoint-object", move || {
            state.create(&file, &payload).map_err(|error| (file.display().to_string(), error))
        });
        match written.await.map_err(generic)? {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err((path, source)) => Err(match source.kind() {
                io::ErrorKind::AlreadyExists => {
                    object_store::Error::AlreadyExists { path, source: source.into() }
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    object_store::Error::PermissionDenied { path, source: source.into() }
                }
                _ => generic(source),
            }),
        }
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(not_implemented("multipart upload"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.refuse_after_failed_sync()?;
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.refuse_after_failed_sync()?;
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        // A deletion that a power cut undoes is done again by the next recovery: no sync.
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.refuse_after_failed_sync() {
            Ok(()) => self.files.list(prefix),
            Err(error) => futures::stream::once(futures::future::ready(Err(error))).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.refuse_after_failed_sync()?;
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> object_store::Result<()> {
        Err(not_implemented("copy"))
    }
}
