//! The segment files of one partition: append at the end, begin a new one, drop old ones, put compacted ones in place.
//!
//! ```text
//! segment = head | (batch | log start)*
//! head      = kind 1: first offset i64 | covered end i64, -1 unless compacted | log start i64 | producers
//! batch     = kind 2: transaction version u8 | the record batch as on the wire
//! log start = kind 3: i64
//! ```
//! A head says everything that the segments before it would: a start can begin with any segment. A compacted segment
//! stands for all that it covers; what a crash left of those is removed by the next start.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId};
use sharestream_wire::records::RawBatch;
use tracing::warn;

use super::files::LogFile;
use super::frame::{self, FileKind};
use super::journal::MetaRecord;
use super::store::{Disk, plain, topic_folder};
use crate::error::ErrorCode;
use crate::log::TransactionVersion;

mod recover;

pub(crate) use recover::SegmentEvent;

const HEAD: u8 = 1;
const BATCH: u8 = 2;
const LOG_START: u8 = 3;
/// Head of a segment that covers nothing but itself.
const COVERS_NOTHING: i64 = -1;
const COMPACTED: &str = "compacted";

/// What a segment begins with: the partition as it was before the segment's first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Offset of the first record.
    pub(crate) base: Offset,
    /// First offset of the log.
    pub(crate) log_start: Offset,
    /// States of the producers, as their owner encodes them.
    pub(crate) producers: Vec<u8>,
}

/// A segment that nothing is appended to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Closed {
    base: Offset,
    /// Exclusive.
    end: Offset,
}

/// The segment that grows.
#[derive(Debug)]
struct Active {
    base: Offset,
    bytes: u64,
    number: u64,
    file: Arc<dyn LogFile>,
}

/// The files of one partition. The first append creates them.
#[derive(Debug)]
pub(crate) struct PartitionFiles {
    disk: Arc<Disk>,
    topic: TopicId,
    partition: PartitionIndex,
    folder: PathBuf,
    closed: VecDeque<Closed>,
    active: Option<Active>,
    /// The topic was deleted.
    removed: bool,
}

impl PartitionFiles {
    /// Of a partition that has none yet.
    pub(crate) fn new(disk: &Arc<Disk>, topic: TopicId, partition: PartitionIndex) -> Self {
        PartitionFiles {
            disk: Arc::clone(disk),
            topic,
            partition,
            folder: topic_folder(topic).join(partition.to_string()),
            closed: VecDeque::new(),
            active: None,
            removed: false,
        }
    }

    /// Writes batches that have their offsets, into a new segment when `roll` says so. `head` says what such a segment
    /// begins with. Errors: KAFKA_STORAGE_ERROR (nothing has changed).
    pub(crate) fn append(
        &mut self,
        batches: &[RawBatch],
        version: TransactionVersion,
        roll: bool,
        head: impl FnOnce() -> Head,
    ) -> Result<(), ErrorCode> {
        let mut frames = Vec::with_capacity(batches.iter().map(|batch| batch.bytes.len() + 32).sum());
        for batch in batches {
            put_batch(&mut frames, batch, version);
        }
        self.write(frames, roll, head)
    }

    /// Notes where the log starts now, and removes segments that lie wholly below. Errors: KAFKA_STORAGE_ERROR
    /// (nothing has changed).
    pub(crate) fn move_start(&mut self, start: Offset, head: impl FnOnce() -> Head) -> Result<(), ErrorCode> {
        let mut frames = Vec::with_capacity(32);
        frame::put(&mut frames, LOG_START, &[&start.0.to_be_bytes()]);
        self.write(frames, false, head)?;
        self.remove_below(start);
        Ok(())
    }

    /// What cannot be removed now is below the log's start, and is removed by the next start of the broker.
    fn remove_below(&mut self, start: Offset) {
        let Some(active) = &self.active else { return };
        if self.closed.front().is_none_or(|closed| closed.end > start) {
            return;
        }
        // The note of the start must be there, under a name that stays, before what it explains is gone.
        let noted = active.file.sync().and_then(|()| self.disk.files().sync_folder(&self.folder));
        if let Err(cause) = noted {
            return self.disk.fail("fsync of a segment", &cause);
        }
        while let Some(closed) = self.closed.front().copied().filter(|closed| closed.end <= start) {
            self.closed.pop_front();
            self.remove_segment(closed.base);
        }
    }

    /// Notes a change of the leader.
    pub(crate) fn led(&self, epoch: LeaderEpoch, home: NodeId) {
        if !self.removed {
            let (topic, partition) = (self.topic.to_string(), self.partition.0);
            self.disk.record_or_fail(MetaRecord::Leader { topic, partition, epoch: epoch.0, home: home.0 });
        }
    }

    /// The topic is gone: nothing is written any more.
    pub(crate) fn retire(&mut self) {
        self.removed = true;
        self.active = None;
    }

    fn write(&mut self, frames: Vec<u8>, roll: bool, head: impl FnOnce() -> Head) -> Result<(), ErrorCode> {
        if self.removed {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        self.disk.check()?;
        if let Some(active) = self.active.as_mut().filter(|_| !roll) {
            if let Err(cause) = active.file.append(&frames) {
                warn!(folder = %self.folder.display(), %cause, "records were not written: {}", plain(&cause));
                if let Err(cause) = active.file.truncate(active.bytes) {
                    self.disk.fail("a segment cannot be cut back", &cause);
                }
                return Err(ErrorCode::KafkaStorageError);
            }
            active.bytes += frames.len() as u64;
            self.disk.wrote(active.number, &active.file);
            return Ok(());
        }
        self.begin(&frames, &head())
    }

    /// Begins a segment with these frames; the one before is whole on the disk by then.
    fn begin(&mut self, frames: &[u8], head: &Head) -> Result<(), ErrorCode> {
        let path = self.segment(head.base);
        let created = || -> std::io::Result<(Arc<dyn LogFile>, u64)> {
            if let Some(active) = &self.active {
                active.file.sync()?;
                self.disk.files().sync_folder(&self.folder)?;
            }
            self.disk.files().create_folder(&self.folder)?;
            let file = self.disk.files().open(&path)?;
            let mut bytes = FileKind::Segment.preamble().to_vec();
            put_head(&mut bytes, head, COVERS_NOTHING);
            bytes.extend_from_slice(frames);
            file.append(&bytes)?;
            Ok((file, bytes.len() as u64))
        };
        let (file, bytes) = match created() {
            Ok(created) => created,
            Err(cause) => {
                warn!(segment = %path.display(), %cause, "records were not written: {}", plain(&cause));
                if let Err(cause) = self.disk.files().remove(&path) {
                    self.disk.fail("an unfinished segment cannot be removed", &cause);
                }
                return Err(ErrorCode::KafkaStorageError);
            }
        };
        if let Some(old) = self.active.take() {
            self.closed.push_back(Closed { base: old.base, end: head.base });
        }
        let number = self.disk.number_file();
        self.disk.wrote(number, &file);
        self.disk.changed_folder(&self.folder);
        for above in self.folder.ancestors().skip(1).take(2) {
            self.disk.changed_folder(above);
        }
        self.active = Some(Active { base: head.base, bytes, number, file });
        Ok(())
    }

    fn remove_segment(&self, base: Offset) {
        let path = self.segment(base);
        if let Err(cause) = self.disk.files().remove(&path) {
            warn!(segment = %path.display(), %cause, "an old segment was not removed");
        }
        self.disk.changed_folder(&self.folder);
    }

    fn segment(&self, base: Offset) -> PathBuf {
        self.folder.join(format!("{:020}.log", base.0))
    }

    /// A compaction of the closed segments that end at or below `limit`; `None` when there are none.
    pub(crate) fn compaction(&self, limit: Offset) -> Option<Compaction> {
        let base = self.closed.front()?.base;
        let end = self.closed.iter().map(|closed| closed.end).take_while(|end| *end <= limit).last()?;
        let path = self.folder.join(format!("{:020}.{COMPACTED}", base.0));
        Some(Compaction { disk: Arc::clone(&self.disk), path, base, end })
    }

    /// Puts a written compaction in the place of the segments that it covers. Errors: KAFKA_STORAGE_ERROR (the old
    /// segments are still there).
    pub(crate) fn put_in_place(&mut self, compaction: &Compaction) -> Result<(), ErrorCode> {
        let covered = self.closed.iter().take_while(|closed| closed.end <= compaction.end).count();
        let base = self.closed.front().map(|closed| closed.base);
        let same = base == Some(compaction.base) && covered > 0;
        if self.removed || !same || self.closed[covered - 1].end != compaction.end {
            return Err(ErrorCode::KafkaStorageError);
        }
        let files = self.disk.files();
        let renamed = files.rename(&compaction.path, &self.segment(compaction.base));
        if let Err(cause) = renamed.and_then(|()| files.sync_folder(&self.folder)) {
            self.disk.fail("a compacted segment was not put in place", &cause);
            return Err(ErrorCode::KafkaStorageError);
        }
        let replaced: Vec<Closed> = self.closed.drain(..covered).collect();
        for closed in &replaced[1..] {
            self.remove_segment(closed.base);
        }
        self.closed.push_front(Closed { base: compaction.base, end: compaction.end });
        Ok(())
    }
}

/// A compacted log under way: from the first offset of the closed segments to their end.
#[derive(Debug)]
pub(crate) struct Compaction {
    disk: Arc<Disk>,
    path: PathBuf,
    base: Offset,
    /// Exclusive.
    pub(crate) end: Offset,
}

impl Compaction {
    /// Writes what is kept beside the log and syncs it; it takes its place by [`PartitionFiles::put_in_place`]. Blocks.
    /// Errors: KAFKA_STORAGE_ERROR.
    pub(crate) fn write(&self, head: &Head, kept: &[RawBatch]) -> Result<(), ErrorCode> {
        let write = || -> std::io::Result<()> {
            let files = self.disk.files();
            files.remove(&self.path)?;
            let file = files.open(&self.path)?;
            let mut bytes = FileKind::Segment.preamble().to_vec();
            put_head(&mut bytes, &Head { base: self.base, ..head.clone() }, self.end.0);
            for batch in kept {
                // What is compacted is decided: its version makes no difference any more.
                put_batch(&mut bytes, batch, TransactionVersion::V2);
                if bytes.len() >= WRITE_BYTES {
                    file.append(&bytes)?;
                    bytes.clear();
                }
            }
            file.append(&bytes)?;
            file.sync()
        };
        self.disk.check()?;
        write().map_err(|cause| {
            warn!(segment = %self.path.display(), %cause, "a compacted segment was not written: {}", plain(&cause));
            let _left_for_the_next_start = self.disk.files().remove(&self.path);
            ErrorCode::KafkaStorageError
        })
    }
}

/// Bytes that a compaction writes at a time.
const WRITE_BYTES: usize = 1024 * 1024;

fn put_head(out: &mut Vec<u8>, head: &Head, covered_end: i64) {
    let numbers = [head.base.0, covered_end, head.log_start.0].map(i64::to_be_bytes).concat();
    frame::put(out, HEAD, &[&numbers, &head.producers]);
}

fn put_batch(out: &mut Vec<u8>, batch: &RawBatch, version: TransactionVersion) {
    let version = match version {
        TransactionVersion::V1 => 1,
        TransactionVersion::V2 => 2,
    };
    frame::put(out, BATCH, &[&[version], &batch.bytes]);
}

/// Removes the folder of a deleted topic.
pub(crate) fn remove_topic(disk: &Disk, topic: TopicId) {
    let folder = topic_folder(topic);
    if let Err(cause) = disk.files().remove_folder(&folder) {
        warn!(folder = %folder.display(), %cause, "the folder of a deleted topic was not removed");
    }
    disk.changed_folder(Path::new(super::store::TOPICS));
}
