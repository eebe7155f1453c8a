//! The file operations that the broker needs, as a trait: tests put failing disks and crashes under it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that grows at its end. Shared: one thread may sync what another appends to.
pub(crate) trait LogFile: fmt::Debug + Send + Sync {
    /// Writes all bytes at the end. On `Err` some of them may be there.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `length` bytes; the next append goes there.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when everything appended before the call is on the disk. On `Err` nobody knows what is.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of files. Paths are relative to it. What was created, renamed or removed survives the machine's end only
/// after [`Files::sync_folder`] of the folder that it is in.
pub(crate) trait Files: fmt::Debug + Send + Sync {
    /// The folder, for messages.
    fn root(&self) -> &Path;
    /// Takes the folder for this process; the lock ends with the value, or with the process. `WouldBlock`: another one
    /// has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
    /// Creates a folder with all above it, unless it is there.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder, sorted; none when it is not there.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// All bytes of a file; `None` when it is not there.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Opens a file at its end; creates it when it is not there.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Gives a file another name, in place of what has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all in it, if it is there.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug)]
pub(crate) struct SystemFiles {
    root: PathBuf,
}

#[derive(Debug)]
struct SystemFile(File);

/// Unlocks when it is dropped. Closing the file would not always do: a process that is being started by another
/// thread has inherited the open file until it becomes another program, and the lock with it.
struct SystemLock(File);

impl Drop for SystemLock {
    fn drop(&mut self) {
        // What cannot be unlocked ends with the process at the latest.
        let _ends_later = self.0.unlock();
    }
}

impl LogFile for SystemFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl SystemFiles {
    /// In this folder, which is created when it is not there.
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(SystemFiles { root: root.canonicalize()? })
    }
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Files for SystemFiles {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let path = self.root.join(path);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(SystemLock(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(self.root.join(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let Some(entries) = unless_missing(fs::read_dir(self.root.join(path)))? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            // Names of ours are plain text; others are nothing of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        unless_missing(fs::read(self.root.join(path)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().create(true).append(true).open(self.root.join(path))?;
        Ok(Arc::new(SystemFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        unless_missing(fs::remove_file(self.root.join(path))).map(|_| ())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        unless_missing(fs::remove_dir_all(self.root.join(path))).map(|_| ())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(self.root.join(path))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_value_also_when_a_starting_process_still_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = SystemFiles::new(folder.path()).unwrap();
        let path = Path::new("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.path().join(path))
            .unwrap();
        file.try_lock().unwrap();
        // As a fork has it: the same open file.
        let inherited = file.try_clone().unwrap();
        let held = SystemLock(file);
        assert_eq!(files.lock(path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(files.lock(path).is_ok());
        drop(inherited);
    }
}
