//! What `fuzz/` needs of the decoders that this crate keeps to itself. Built only for tests and by cargo-fuzz.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sharestream_base::ids::{PartitionIndex, TopicId};

use crate::disk::frame::{self, FileKind};
use crate::disk::{Disk, Files, FsyncPolicy, LogFile, PartitionFiles};
use crate::group::offsets::records::Record as OffsetRecord;
use crate::handlers;
use crate::log::PartitionLog;
use crate::share_coordinator::records::Record;
use crate::txn::log as transactions;

/// Every API that the broker serves with its first and last version, those between its own nodes included.
pub fn served() -> impl Iterator<Item = (i16, i16, i16)> {
    handlers::SERVED.iter().map(|served| (served.api_key, served.min, served.max))
}

/// Reads a stored record of the share coordinator. True when it is one.
///
/// # Panics
/// When a record that was read does not read back from what is written of it.
pub fn share_state_record(key: &[u8], value: Option<&[u8]>) -> bool {
    let Ok(record) = Record::decode(key, value) else { return false };
    let (key, value) = record.encode();
    assert_eq!(Record::decode(&key, value.as_deref()), Ok(record), "a record of share state reads back");
    true
}

/// Reads a stored record of the coordinator of consumer groups' offsets. True when it is one.
///
/// # Panics
/// When a record that was read does not read back from what is written of it.
pub fn consumer_offset_record(key: &[u8], value: Option<&[u8]>) -> bool {
    let Ok(record) = OffsetRecord::decode(key, value) else { return false };
    let (key, value) = record.encode();
    assert_eq!(OffsetRecord::decode(&key, value.as_deref()), Ok(record), "a record of offsets reads back");
    true
}

/// Reads key and value of a stored record of the transaction log. True when both are right.
///
/// # Panics
/// When a record that was read does not read back from what is written of it.
pub fn transaction_record(key: &[u8], value: &[u8]) -> bool {
    let id = transactions::decode_key(key);
    if let Ok(id) = &id {
        let read = transactions::decode_key(&transactions::encode_key(id));
        assert_eq!(read.as_ref().ok(), Some(id), "a transactional id reads back");
    }
    let record = transactions::decode_value(value);
    if let Ok(record) = &record {
        let read = transactions::decode_value(&transactions::encode_value(record));
        assert_eq!(read.as_ref().ok(), Some(record), "a transactional id's state reads back");
    }
    id.is_ok() && record.is_ok()
}

/// Starts as a broker would on a folder with this journal and these segments of one partition, each with the offset
/// in its name. True when all of it could be read.
pub fn data_folder(journal: Vec<u8>, segments: Vec<(i64, Vec<u8>)>, clean: bool) -> bool {
    let topic = TopicId::default();
    let folder = PathBuf::from(format!("topics/{topic}/0"));
    let mut files = vec![(PathBuf::from("meta.log"), journal)];
    for (base, bytes) in segments {
        files.push((folder.join(format!("{base:020}.log")), bytes));
    }
    if clean {
        files.push((PathBuf::from("clean"), Vec::new()));
    }
    files.sort();
    files.dedup_by(|one, other| one.0 == other.0);
    let files = Arc::new(MemoryFiles { files: Mutex::new(files) });
    let Ok(opened) = Disk::open(files, FsyncPolicy::Never) else { return false };
    let mut log = PartitionLog::default();
    let take = |event| log.recover(event);
    PartitionFiles::recover(&opened.disk, topic, PartitionIndex(0), opened.clean, take).is_ok()
}

/// A file of frames with right checksums: of a journal, or of a segment.
pub fn file_of_frames<'a>(journal: bool, frames: impl IntoIterator<Item = (u8, &'a [u8])>) -> Vec<u8> {
    let kind = if journal { FileKind::Meta } else { FileKind::Segment };
    let mut bytes = kind.preamble().to_vec();
    for (kind, payload) in frames {
        frame::put(&mut bytes, kind, &[payload]);
    }
    bytes
}

/// A folder in memory that never fails.
#[derive(Debug, Default)]
struct MemoryFiles {
    files: Mutex<Vec<(PathBuf, Vec<u8>)>>,
}

/// What is written is not read again in the same start.
#[derive(Debug)]
struct Sink;

impl LogFile for Sink {
    fn append(&self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for MemoryFiles {
    fn root(&self) -> &Path {
        Path::new("memory")
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn create_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = files.iter().filter_map(|(name, _)| name.strip_prefix(path).ok());
        Ok(inside.filter_map(|name| name.to_str()).map(str::to_owned).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(files.iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes.clone()))
    }

    fn open(&self, _path: &Path) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(Sink))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).retain(|(name, _)| name != path);
        Ok(())
    }

    fn remove_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
