//! The data folder of one broker: its lock, what is written and not synced yet, and whether it still works.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sharestream_base::ids::TopicId;
use sharestream_base::{ErrorKind, run_blocking};
use tracing::{error, warn};

use super::files::{Files, LogFile};
use super::journal::{Journal, MetaRecord, MetaState};
use super::policy::FsyncPolicy;
use crate::error::{Error, ErrorCode, Result};

const LOCK: &str = "lock";
const CLEAN: &str = "clean";
/// Folder of the topics.
pub(super) const TOPICS: &str = "topics";

/// The disk does not work any more: what was not answered may or may not be on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data folder does not work any more, the broker must be started again: {0}")]
pub(crate) struct DiskFailed(String);

/// An open data folder. Shared by `Arc`.
#[derive(Debug)]
pub(crate) struct Disk {
    files: Arc<dyn Files>,
    policy: FsyncPolicy,
    journal: Mutex<Journal>,
    unsynced: Mutex<Unsynced>,
    /// Held on a blocking thread by the one that syncs for all who wait. Never across an await: a task of a paused node
    /// would keep it from the others.
    turn: Mutex<()>,
    failed: OnceLock<DiskFailed>,
    lock: Mutex<Option<LockGuard>>,
}

struct LockGuard(#[expect(dead_code, reason = "held, never looked at")] Box<dyn Send + Sync>);

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockGuard")
    }
}

/// Counts writes; remembers what each of them has left to sync.
#[derive(Debug, Default)]
struct Unsynced {
    written: u64,
    synced: u64,
    next_file: u64,
    files: BTreeMap<u64, (Arc<dyn LogFile>, u64)>,
    folders: BTreeMap<PathBuf, u64>,
}

/// A folder that was opened, and what its journal says.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The folder.
    pub(crate) disk: Arc<Disk>,
    /// What the cluster agreed on when it ended.
    pub(crate) state: MetaState,
    /// The broker before ended in good order: every file must be whole.
    pub(crate) clean: bool,
}

impl Disk {
    /// Takes a folder and reads its journal. Errors: InvalidInput (the folder is in use, cannot be written, or was
    /// written by a newer build), Corrupt.
    pub(crate) fn open(files: Arc<dyn Files>, policy: FsyncPolicy) -> Result<Opened> {
        let lock = files.lock(Path::new(LOCK)).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "data folder {} is in use by another broker: stop that one or name another folder",
                    files.root().display()
                ),
            ),
            _ => unusable(&*files, source),
        })?;
        let clean = files.read(Path::new(CLEAN)).map_err(|source| unusable(&*files, source))?.is_some();
        let (journal, state) = Journal::open(&*files, clean)?;
        // From the first write on the folder is not clean any more.
        files
            .remove(Path::new(CLEAN))
            .and_then(|()| files.create_folder(Path::new(TOPICS)))
            .and_then(|()| files.sync_folder(Path::new("")))
            .map_err(|source| unusable(&*files, source))?;
        let disk = Disk {
            files,
            policy,
            journal: Mutex::new(journal),
            unsynced: Mutex::default(),
            turn: Mutex::default(),
            failed: OnceLock::new(),
            lock: Mutex::new(Some(LockGuard(lock))),
        };
        Ok(Opened { disk: Arc::new(disk), state, clean })
    }

    /// The files.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// When to sync.
    pub(crate) fn policy(&self) -> FsyncPolicy {
        self.policy
    }

    /// Errors: KAFKA_STORAGE_ERROR once the disk has failed.
    pub(super) fn check(&self) -> Result<(), ErrorCode> {
        self.failed.get().map_or(Ok(()), |_| Err(ErrorCode::KafkaStorageError))
    }

    /// From now on nothing is written any more, and no answer leaves that waits for the disk: what is on it is not
    /// known any more.
    pub(super) fn fail(&self, context: &str, cause: &io::Error) {
        let failed = DiskFailed(format!("{context}: {}", plain(cause)));
        if self.failed.set(failed).is_ok() {
            error!(folder = %self.files.root().display(), context, %cause, "the data folder has failed");
        }
    }

    /// A number for an opened file.
    pub(super) fn number_file(&self) -> u64 {
        let mut unsynced = self.unsynced();
        unsynced.next_file += 1;
        unsynced.next_file
    }

    /// Something was appended to a file.
    pub(super) fn wrote(&self, number: u64, file: &Arc<dyn LogFile>) {
        let mut unsynced = self.unsynced();
        unsynced.written += 1;
        let written = unsynced.written;
        unsynced.files.entry(number).or_insert_with(|| (Arc::clone(file), 0)).1 = written;
    }

    /// Names in a folder were changed.
    pub(super) fn changed_folder(&self, folder: &Path) {
        let mut unsynced = self.unsynced();
        unsynced.written += 1;
        let written = unsynced.written;
        unsynced.folders.insert(folder.to_owned(), written);
    }

    /// Adds to the journal. Errors: KAFKA_STORAGE_ERROR (nothing has changed).
    pub(crate) fn record(&self, record: MetaRecord) -> Result<(), ErrorCode> {
        self.check()?;
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).append(self, record)
    }

    /// Adds to the journal what is true already. When that cannot be noted, the disk counts as failed.
    pub(crate) fn record_or_fail(&self, record: MetaRecord) {
        if self.record(record).is_err() {
            self.fail("the journal cannot be written", &io::ErrorKind::Other.into());
        }
    }

    /// Waits until everything written by now is as safe as the policy asks. Errors: the disk has failed; what was
    /// written may or may not be there. Cancel safe.
    pub(crate) async fn durable(self: &Arc<Self>) -> Result<(), DiskFailed> {
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        match self.policy {
            FsyncPolicy::Always => self.sync().await,
            FsyncPolicy::Interval(_) | FsyncPolicy::Never => Ok(()),
        }
    }

    /// Syncs everything written by now, whatever the policy. Cancel safe: what was not synced is left to the next.
    pub(crate) async fn sync(self: &Arc<Self>) -> Result<(), DiskFailed> {
        let wanted = self.unsynced().written;
        if self.is_synced(wanted) {
            return Ok(());
        }
        let disk = Arc::clone(self);
        let work = run_blocking("fsync", move || {
            let _turn = disk.turn.lock().unwrap_or_else(PoisonError::into_inner);
            // The one before may have synced for this one too.
            if !disk.is_synced(wanted) && disk.failed.get().is_none() {
                disk.sync_all();
            }
        });
        if let Err(panic) = work.await {
            self.fail("fsync", &io::Error::other(panic.to_string()));
        }
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    /// Syncs everything written by now, on this thread. A failure is for ever: after it the operating system may have
    /// forgotten what it could not write, and a second try would succeed for nothing.
    fn sync_all(&self) {
        let (until, files, folders) = {
            let unsynced = self.unsynced();
            let files: Vec<_> = unsynced.files.values().map(|(file, _)| Arc::clone(file)).collect();
            (unsynced.written, files, unsynced.folders.keys().cloned().collect::<Vec<_>>())
        };
        for file in files {
            if let Err(cause) = file.sync() {
                return self.fail("fsync of a file", &cause);
            }
        }
        for folder in folders {
            match self.files.sync_folder(&folder) {
                Ok(()) => {}
                // Its topic was deleted meanwhile.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return self.fail("fsync of a folder", &cause),
            }
        }
        let mut unsynced = self.unsynced();
        unsynced.synced = unsynced.synced.max(until);
        unsynced.files.retain(|_, (_, written)| *written > until);
        unsynced.folders.retain(|_, written| *written > until);
    }

    /// Ends the use of the folder in good order: everything is synced, and the next start finds it clean.
    pub(crate) fn close(&self) {
        self.sync_all();
        if self.failed.get().is_none() {
            let noted = self.files.open(Path::new(CLEAN)).and_then(|file| file.sync());
            if let Err(cause) = noted.and_then(|()| self.files.sync_folder(Path::new(""))) {
                warn!(%cause, "the data folder is not marked as clean: the next start checks it as after a crash");
            }
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn is_synced(&self, wanted: u64) -> bool {
        self.unsynced().synced >= wanted
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder of a topic.
pub(super) fn topic_folder(topic: TopicId) -> PathBuf {
    Path::new(TOPICS).join(topic.to_string())
}

/// The error for a folder that cannot be used at all.
pub(super) fn unusable(files: &dyn Files, source: io::Error) -> Error {
    let text = format!("data folder {} cannot be used: {}", files.root().display(), plain(&source));
    Error::new(ErrorKind::InvalidInput, text).with_source(source)
}

/// What to do about it, in words.
pub(super) fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full: free some space or name another folder".to_owned(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "it cannot be written: change its permissions or name another folder".to_owned()
        }
        _ => error.to_string(),
    }
}
