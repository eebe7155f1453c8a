//! One partition: its log behind a short lock, its leadership, and a watch on its ends.
//!
//! Whoever writes holds a [`Led`]: the right of one node under one leader epoch. The right is checked under the log's
//! lock, where leadership also changes, so nothing of a deposed leader gets in behind its successor's back.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sharestream_base::ids::{
    LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use sharestream_base::watch;
use sharestream_wire::records::RawBatch;

use super::partition_log::{
    AppendDecision, AppendInfo, EpochEnd, Isolation, LogEnds, Marker, MarkerDecision, NewBatches, Origin,
    PartitionLog, ReadInfo, TransactionVersion, split_checked,
};
use super::producer_state::{ProducerSummary, VerificationGuard};
use super::settings::LogSettings;
use crate::disk::PartitionFiles;
use crate::error::ErrorCode;

mod upkeep;

/// Who leads a partition, in which incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// The leader; none while every node that may lead is dead.
    pub(crate) leader: Option<NodeId>,
    /// Its incarnation: every change of the leader raises it. -1 before the first leader.
    pub(crate) epoch: LeaderEpoch,
}

impl Leadership {
    const NONE: i32 = -1;

    /// Both in one word, so that they are read as one.
    fn to_word(self) -> u64 {
        let leader = self.leader.map_or(Self::NONE, |leader| leader.0);
        u64::from(leader.cast_unsigned()) << 32 | u64::from(self.epoch.0.cast_unsigned())
    }

    fn from_word(word: u64) -> Leadership {
        let half = |bits: u64| (bits as u32).cast_signed();
        let leader = Some(NodeId(half(word >> 32))).filter(|leader| leader.0 != Self::NONE);
        Leadership { leader, epoch: LeaderEpoch(half(word)) }
    }
}

/// What ListOffsets asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampQuery {
    /// First record at or after this wall time.
    AtOrAfter(i64),
    /// Record with the latest timestamp.
    Latest,
}

/// A record's place in time and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimestampOffset {
    /// Its timestamp in Unix milliseconds.
    pub(crate) timestamp_ms: i64,
    /// Its offset.
    pub(crate) offset: Offset,
}

/// A partition. Shared by `Arc`; every call is short and none waits.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Its topic's name.
    pub(crate) topic: Arc<str>,
    /// Its topic's id.
    pub(crate) topic_id: TopicId,
    /// Its number.
    pub(crate) index: PartitionIndex,
    /// A [`Leadership`] in one word. Changes under the log's lock only.
    leadership: AtomicU64,
    batch_bytes_max: usize,
    log: Mutex<Owned>,
    ends: watch::Sender<LogEnds>,
}

/// What the lock guards.
#[derive(Debug)]
struct Owned {
    log: PartitionLog,
    /// The last leader, dead or alive: it leads again when it comes back to a partition that has no leader.
    home: NodeId,
    settings: LogSettings,
    /// Where the log is kept as well; none lives in memory only.
    files: Option<PartitionFiles>,
    /// A compaction is under way.
    cleaning: bool,
}

/// Which partition it is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its topic's name.
    pub(crate) topic: Arc<str>,
    /// Its topic's id.
    pub(crate) topic_id: TopicId,
    /// Its number.
    pub(crate) index: PartitionIndex,
}

/// What is there of a partition already, and where it is kept.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Its log.
    pub(crate) log: PartitionLog,
    /// The last leader epoch; -1 before the first leader.
    pub(crate) epoch: LeaderEpoch,
    /// Its files.
    pub(crate) files: Option<PartitionFiles>,
}

impl Default for Stored {
    fn default() -> Self {
        Stored { log: PartitionLog::default(), epoch: LeaderEpoch(-1), files: None }
    }
}

impl Partition {
    /// A partition without a leader; `home` is who shall lead it first.
    pub(crate) fn new(place: Place, home: NodeId, batch_bytes_max: usize, stored: Stored) -> Self {
        let Stored { log, epoch, files } = stored;
        let Place { topic, topic_id, index } = place;
        Partition {
            topic,
            topic_id,
            index,
            leadership: AtomicU64::new(Leadership { leader: None, epoch }.to_word()),
            batch_bytes_max,
            ends: watch::Sender::new(log.ends()),
            log: Mutex::new(Owned { log, home, settings: LogSettings::default(), files, cleaning: false }),
        }
    }

    /// Makes a node the leader, or nobody, under the next leader epoch. What the former leader has not appended by
    /// now never gets in; what producers were about to be verified for is forgotten, as it lived in its memory.
    pub(crate) fn lead(&self, leader: Option<NodeId>) -> LeaderEpoch {
        let mut owned = self.lock();
        let epoch = LeaderEpoch(self.leadership().epoch.0.saturating_add(1));
        owned.home = leader.unwrap_or(owned.home);
        owned.log.forget_guards();
        if let Some(files) = &owned.files {
            files.led(epoch, owned.home);
        }
        self.leadership.store(Leadership { leader, epoch }.to_word(), Ordering::Release);
        // Whoever waits here for records waits at the wrong node.
        self.ends.send_modify(|_same| {});
        epoch
    }

    /// The last leader.
    pub(crate) fn home(&self) -> NodeId {
        self.lock().home
    }

    /// The right to write here, if `node` leads.
    pub(crate) fn led_by(self: &Arc<Self>, node: NodeId) -> Option<Led> {
        let leadership = self.leadership();
        (leadership.leader == Some(node)).then(|| Led { partition: Arc::clone(self), leadership })
    }

    /// Reads whole batches from the one that holds `from`, at least one when any is readable. No bytes are copied.
    /// Errors: OFFSET_OUT_OF_RANGE.
    pub(crate) fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        self.lock().log.read(from, bytes_max, isolation)
    }

    /// Finds a record by time. Errors: CORRUPT_MESSAGE (a batch that cannot be decoded).
    pub(crate) fn find_by_time(&self, query: TimestampQuery) -> Result<Option<TimestampOffset>, ErrorCode> {
        let batch = match query {
            TimestampQuery::AtOrAfter(timestamp_ms) => self.lock().log.batch_at_or_after(timestamp_ms),
            TimestampQuery::Latest => self.lock().log.latest_batch_in_time(),
        };
        let Some(batch) = batch else { return Ok(None) };
        let wanted_ms = match query {
            TimestampQuery::AtOrAfter(timestamp_ms) => timestamp_ms,
            TimestampQuery::Latest => batch.header.max_timestamp,
        };
        first_at_or_after(&batch, wanted_ms)
    }

    /// Every batch, for those who look from outside. No bytes are copied.
    pub(crate) fn batches(&self) -> Vec<RawBatch> {
        let owned = self.lock();
        let start = owned.log.ends().log_start;
        // Nothing lies below the log's start, so the read cannot miss it.
        owned.log.read(start, usize::MAX, Isolation::ReadUncommitted).map_or(Vec::new(), |read| read.batches)
    }

    /// First and last offsets.
    pub(crate) fn ends(&self) -> LogEnds {
        *self.ends.borrow()
    }

    /// Tells of every change of the ends: appended records, markers, deleted records.
    pub(crate) fn watch(&self) -> watch::Receiver<LogEnds> {
        self.ends.subscribe()
    }

    /// Sets what the topic's settings say.
    pub(crate) fn set_settings(&self, settings: LogSettings) {
        self.lock().settings = settings;
    }

    /// The topic is gone: nothing is written to its files any more.
    pub(crate) fn retire(&self) {
        if let Some(files) = &mut self.lock().files {
            files.retire();
        }
    }

    /// Every producer that wrote here.
    pub(crate) fn producers(&self) -> Vec<ProducerSummary> {
        self.lock().log.producers()
    }

    /// Leader and leader epoch, read as one.
    pub(crate) fn leadership(&self) -> Leadership {
        Leadership::from_word(self.leadership.load(Ordering::Acquire))
    }

    /// The leading node, if any.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leadership().leader
    }

    /// Published under the log's lock, so that watchers never see the ends go back.
    fn publish(&self, log: &PartitionLog) {
        let ends = log.ends();
        self.ends.send_if_modified(|known| std::mem::replace(known, ends) != ends);
    }

    fn lock(&self) -> MutexGuard<'_, Owned> {
        // A panic under the lock is a defect of ours; the log stays as it was, so readers may go on.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right of one node to write to a partition under one leader epoch. Once the leadership has moved, every use of
/// it is refused with NOT_LEADER_OR_FOLLOWER, also when the same node leads again under a later epoch.
#[derive(Clone, Debug)]
pub(crate) struct Led {
    partition: Arc<Partition>,
    leadership: Leadership,
}

impl Deref for Led {
    type Target = Partition;

    fn deref(&self) -> &Partition {
        &self.partition
    }
}

impl Led {
    /// The leader epoch of the right.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        self.leadership.epoch
    }

    /// Compares the leader epoch that a client knows, -1 when it knows none. Errors: FENCED_LEADER_EPOCH,
    /// UNKNOWN_LEADER_EPOCH.
    pub(crate) fn check_known_epoch(&self, known: LeaderEpoch) -> Result<(), ErrorCode> {
        match known {
            LeaderEpoch(-1) => Ok(()),
            known if known < self.epoch() => Err(ErrorCode::FencedLeaderEpoch),
            known if known > self.epoch() => Err(ErrorCode::UnknownLeaderEpoch),
            _same => Ok(()),
        }
    }

    /// See [`PartitionLog::end_of_epoch`]. Errors: NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn end_of_epoch(&self, asked: LeaderEpoch) -> Result<Option<EpochEnd>, ErrorCode> {
        Ok(self.lock_led()?.log.end_of_epoch(asked, self.epoch()))
    }

    /// True while the right holds.
    pub(crate) fn is_current(&self) -> bool {
        self.partition.leadership() == self.leadership
    }

    /// The log, if the right still holds. Errors: NOT_LEADER_OR_FOLLOWER.
    fn lock_led(&self) -> Result<MutexGuard<'_, Owned>, ErrorCode> {
        let owned = self.partition.lock();
        if self.is_current() { Ok(owned) } else { Err(ErrorCode::NotLeaderOrFollower) }
    }

    /// Appends a blob of record batches: all or none. Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, and those
    /// of [`split_checked`] and [`PartitionLog::decide_append`].
    pub(crate) fn append(&self, blob: &Bytes, origin: Origin) -> Result<AppendInfo, ErrorCode> {
        let batches = split_checked(blob, origin, self.batch_bytes_max)?;
        let owned = &mut *self.lock_led()?;
        let appended = match owned.log.decide_append(batches, origin, self.epoch())? {
            AppendDecision::Duplicate(appended) => return Ok(appended),
            AppendDecision::New(new) => owned.append(new)?,
        };
        owned.retain_bytes();
        self.publish(&owned.log);
        Ok(appended)
    }

    /// Ends a transaction on this partition. Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR and those of
    /// [`PartitionLog::decide_marker`].
    pub(crate) fn append_marker(&self, marker: &Marker, now_ms: i64) -> Result<Offset, ErrorCode> {
        let owned = &mut *self.lock_led()?;
        let new = match owned.log.decide_marker(marker, now_ms, self.epoch())? {
            MarkerDecision::Duplicate(offset) => return Ok(offset),
            MarkerDecision::New(new) => new,
        };
        let batches = std::slice::from_ref(&new.batch);
        let rolled = owned.write(batches, TransactionVersion::V2)?;
        let offset = owned.log.marked(new, rolled);
        self.publish(&owned.log);
        Ok(offset)
    }

    /// Reads as [`Partition::read`], for someone who must be at the leader. Errors: NOT_LEADER_OR_FOLLOWER,
    /// OFFSET_OUT_OF_RANGE.
    pub(crate) fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        self.lock_led()?.log.read(from, bytes_max, isolation)
    }

    /// See [`PartitionLog::read_until`]. Errors: NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE.
    pub(crate) fn read_until(
        &self,
        from: Offset,
        enough: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        self.lock_led()?.log.read_until(from, enough, bytes_max, isolation)
    }

    /// The guard for a transactional batch that needs the coordinator's word; `None` when it needs none. Errors:
    /// NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn verification_guard(
        &self,
        batch: &RawBatch,
        version: TransactionVersion,
    ) -> Result<Option<VerificationGuard>, ErrorCode> {
        Ok(self.lock_led()?.log.verification_guard(batch, version))
    }

    /// The guard for offsets that a producer stages, when that needs the coordinator's word; `None` when it needs none.
    /// Errors: NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn staging_guard(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        version: TransactionVersion,
    ) -> Result<Option<VerificationGuard>, ErrorCode> {
        Ok(self.lock_led()?.log.staging_guard(producer_id, epoch, version))
    }

    /// Deletes records below `offset`, but none at or above the last stable offset; gives the ends after it. Errors:
    /// NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
    pub(crate) fn delete_before(&self, offset: Offset) -> Result<LogEnds, ErrorCode> {
        let owned = &mut *self.lock_led()?;
        let ends = owned.delete_before(offset)?;
        self.publish(&owned.log);
        Ok(ends)
    }
}

impl Owned {
    /// Writes batches to the files, if there are any; true when they begin a new segment. Errors:
    /// KAFKA_STORAGE_ERROR (nothing has changed).
    fn write(&mut self, batches: &[RawBatch], version: TransactionVersion) -> Result<bool, ErrorCode> {
        let rolls = self.log.wants_roll(batches, &self.settings);
        if let Some(files) = &mut self.files {
            files.append(batches, version, rolls, || self.log.head())?;
        }
        Ok(rolls)
    }

    fn append(&mut self, new: NewBatches) -> Result<AppendInfo, ErrorCode> {
        let rolled = self.write(&new.batches, new.version)?;
        Ok(self.log.appended(new, rolled))
    }

    fn delete_before(&mut self, offset: Offset) -> Result<LogEnds, ErrorCode> {
        let start = self.log.start_after_deleting(offset);
        if start == self.log.ends().log_start {
            return Ok(self.log.ends());
        }
        if let Some(files) = &mut self.files {
            files.move_start(start, || self.log.head())?;
        }
        Ok(self.log.delete_before(start))
    }
}

fn first_at_or_after(batch: &RawBatch, wanted_ms: i64) -> Result<Option<TimestampOffset>, ErrorCode> {
    let records = batch.records().map_err(|_| ErrorCode::CorruptMessage)?;
    for record in records.iter() {
        let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
        if record.timestamp >= wanted_ms {
            let offset = Offset(record.offset);
            return Ok(Some(TimestampOffset { timestamp_ms: record.timestamp, offset }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
