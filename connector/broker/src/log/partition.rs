//! One partition: its log behind a short lock, its leadership, and a watch on its ends.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId};
use sharestream_wire::records::RawBatch;
use tokio::sync::watch;

use super::partition_log::{
    AppendInfo, Isolation, LogEnds, Marker, Origin, PartitionLog, ReadInfo, TransactionVersion, split_checked,
};
use super::producer_state::{ProducerSummary, VerificationGuard};
use crate::error::ErrorCode;

/// Who leads a partition, in which incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// The leader.
    pub(crate) leader: NodeId,
    /// Its incarnation.
    pub(crate) epoch: LeaderEpoch,
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
    leader: AtomicI32,
    leader_epoch: AtomicI32,
    /// Topic config `retention.bytes`; negative means unlimited.
    retention_bytes: AtomicI64,
    batch_bytes_max: usize,
    log: Mutex<PartitionLog>,
    ends: watch::Sender<LogEnds>,
}

impl Partition {
    /// An empty partition.
    pub(crate) fn new(
        topic: Arc<str>,
        topic_id: TopicId,
        index: PartitionIndex,
        leader: NodeId,
        batch_bytes_max: usize,
    ) -> Self {
        let log = PartitionLog::default();
        Partition {
            topic,
            topic_id,
            index,
            leader: AtomicI32::new(leader.0),
            leader_epoch: AtomicI32::new(0),
            retention_bytes: AtomicI64::new(-1),
            batch_bytes_max,
            ends: watch::Sender::new(log.ends()),
            log: Mutex::new(log),
        }
    }

    /// Appends a blob of record batches: all or none. Errors: those of [`split_checked`] and [`PartitionLog::append`].
    pub(crate) fn append(&self, blob: &Bytes, origin: Origin) -> Result<AppendInfo, ErrorCode> {
        let batches = split_checked(blob, origin, self.batch_bytes_max)?;
        let mut log = self.lock();
        let appended = log.append(batches, origin, self.leadership().epoch)?;
        if let Ok(bytes_max) = usize::try_from(self.retention_bytes.load(Ordering::Relaxed)) {
            log.retain_bytes(bytes_max);
        }
        self.publish(&log);
        Ok(appended)
    }

    /// Ends a transaction on this partition. See [`PartitionLog::append_marker`].
    pub(crate) fn append_marker(&self, marker: &Marker, now_ms: i64) -> Result<Offset, ErrorCode> {
        let mut log = self.lock();
        let offset = log.append_marker(marker, now_ms, self.leadership().epoch)?;
        self.publish(&log);
        Ok(offset)
    }

    /// Reads whole batches from the one that holds `from`, at least one when any is readable. No bytes are copied.
    /// Errors: OFFSET_OUT_OF_RANGE.
    pub(crate) fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        self.lock().read(from, bytes_max, isolation)
    }

    /// Finds a record by time. Errors: CORRUPT_MESSAGE (a batch that cannot be decoded).
    pub(crate) fn find_by_time(&self, query: TimestampQuery) -> Result<Option<TimestampOffset>, ErrorCode> {
        let batch = match query {
            TimestampQuery::AtOrAfter(timestamp_ms) => self.lock().batch_at_or_after(timestamp_ms),
            TimestampQuery::Latest => self.lock().latest_batch_in_time(),
        };
        let Some(batch) = batch else { return Ok(None) };
        let wanted_ms = match query {
            TimestampQuery::AtOrAfter(timestamp_ms) => timestamp_ms,
            TimestampQuery::Latest => batch.header.max_timestamp,
        };
        first_at_or_after(&batch, wanted_ms)
    }

    /// First and last offsets.
    pub(crate) fn ends(&self) -> LogEnds {
        *self.ends.borrow()
    }

    /// Tells of every change of the ends: appended records, markers, deleted records.
    pub(crate) fn watch(&self) -> watch::Receiver<LogEnds> {
        self.ends.subscribe()
    }

    /// The guard for a transactional batch that needs the coordinator's word; `None` when it needs none.
    pub(crate) fn verification_guard(
        &self,
        batch: &RawBatch,
        version: TransactionVersion,
    ) -> Option<VerificationGuard> {
        self.lock().verification_guard(batch, version)
    }

    /// Deletes records below `offset`; gives the ends after it.
    pub(crate) fn delete_before(&self, offset: Offset) -> LogEnds {
        let mut log = self.lock();
        let ends = log.delete_before(offset);
        self.publish(&log);
        ends
    }

    /// Sets the topic config `retention.bytes`; negative means unlimited.
    pub(crate) fn set_retention_bytes(&self, bytes: i64) {
        self.retention_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Every producer that wrote here.
    pub(crate) fn producers(&self) -> Vec<ProducerSummary> {
        self.lock().producers()
    }

    /// The leading node.
    pub(crate) fn leader(&self) -> NodeId {
        NodeId(self.leader.load(Ordering::Acquire))
    }

    /// Leader and leader epoch.
    pub(crate) fn leadership(&self) -> Leadership {
        Leadership { leader: self.leader(), epoch: LeaderEpoch(self.leader_epoch.load(Ordering::Acquire)) }
    }

    /// Published under the log's lock, so that watchers never see the ends go back.
    fn publish(&self, log: &PartitionLog) {
        let ends = log.ends();
        self.ends.send_if_modified(|known| std::mem::replace(known, ends) != ends);
    }

    fn lock(&self) -> MutexGuard<'_, PartitionLog> {
        // A panic under the lock is a defect of ours; the log stays as it was, so readers may go on.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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
