//! The state of one partition's log, without lock, clock or waiting.
//!
//! There is no replication, so the high watermark is the log's end. The last stable offset is the first offset of
//! the oldest open transaction, or the high watermark.

use bytes::{Bytes, BytesMut};
use sharestream_base::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_wire::records::{self, RawBatch};

use super::aborted::{AbortedIndex, AbortedTransaction};
use super::producer_state::{ProducerStates, ProducerSummary, VerificationGuard};
use super::settings::LogSettings;
use super::store::BatchStore;
use crate::error::ErrorCode;

mod append;
mod cleaning;
mod recover;

pub(crate) use append::{AppendDecision, MarkerDecision, NewBatches};
pub(crate) use cleaning::CleaningPlan;

/// Which records a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// All below the high watermark.
    ReadUncommitted,
    /// All below the last stable offset; the aborted ones are named.
    ReadCommitted,
}

impl Isolation {
    /// As on the wire: 1 is read committed.
    pub(crate) fn from_wire(level: i8) -> Isolation {
        if level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
    }
}

/// Rules that a transaction follows (finalized feature `transaction.version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransactionVersion {
    /// Markers carry the producer's epoch; clients add partitions (KIP-98).
    V1,
    /// Markers carry the bumped epoch; leaders add partitions (KIP-890).
    V2,
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client: exactly one batch, no control batch.
    Client {
        /// For the first batch of a transaction on this partition.
        guard: Option<VerificationGuard>,
        /// Of the transaction, if it is in one.
        version: TransactionVersion,
    },
    /// A coordinator of this cluster that writes its state: any number of batches.
    Coordinator,
    /// A group coordinator that writes what a producer staged: one batch, of no sequence.
    TransactionalCoordinator {
        /// For the first batch of a transaction on this partition.
        guard: Option<VerificationGuard>,
        /// Of the transaction.
        version: TransactionVersion,
    },
}

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendInfo {
    /// Offset of its first record.
    pub(crate) base_offset: Offset,
    /// Offset of its last record.
    pub(crate) last_offset: Offset,
    /// It was there already.
    pub(crate) duplicate: bool,
    /// First offset of the log.
    pub(crate) log_start: Offset,
}

/// First and last offsets of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnds {
    /// First offset that is still there.
    pub(crate) log_start: Offset,
    /// First offset of the oldest open transaction, or the high watermark.
    pub(crate) last_stable_offset: Offset,
    /// Offset that the next record gets.
    pub(crate) high_watermark: Offset,
}

impl LogEnds {
    /// How far a reader of the isolation level may read (exclusive).
    pub(crate) fn readable_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable_offset,
        }
    }
}

/// Where the records of a leader epoch end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochEnd {
    /// The epoch, or the one before it when it has no records.
    pub(crate) epoch: LeaderEpoch,
    /// First offset behind them.
    pub(crate) end: Offset,
}

/// What a read found.
#[derive(Debug)]
pub(crate) struct ReadInfo {
    /// Whole batches; the first one holds the asked offset and may begin before it. Slices of the log, not copies.
    pub(crate) batches: Vec<RawBatch>,
    /// The log's ends at the time of the read.
    pub(crate) ends: LogEnds,
    /// For read committed: aborted transactions that touch the batches. Empty for read uncommitted.
    pub(crate) aborted: Vec<AbortedTransaction>,
}

impl ReadInfo {
    /// Bytes of the batches.
    pub(crate) fn bytes_len(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes.len()).sum()
    }

    /// The batches in one piece; only more than one batch is copied.
    pub(crate) fn records(&self) -> Bytes {
        match self.batches.as_slice() {
            [] => Bytes::new(),
            [one] => one.bytes.clone(),
            many => {
                let mut all = BytesMut::with_capacity(self.bytes_len());
                for batch in many {
                    all.extend_from_slice(&batch.bytes);
                }
                all.freeze()
            }
        }
    }
}

/// The end of a transaction, as its coordinator tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Whose transaction.
    pub(crate) producer_id: ProducerId,
    /// Its epoch; under version 2 the bumped one.
    pub(crate) producer_epoch: ProducerEpoch,
    /// Incarnation of the coordinator.
    pub(crate) coordinator_epoch: i32,
    /// Commit or abort.
    pub(crate) commit: bool,
}

/// One partition's log.
#[derive(Debug, Default)]
pub(crate) struct PartitionLog {
    store: BatchStore,
    producers: ProducerStates,
    aborted: AbortedIndex,
    log_start: Option<Offset>,
    log_end: Option<Offset>,
    segment: Segment,
    /// Everything below was compacted.
    compacted_end: Option<Offset>,
}

/// The segment that grows: what is in it is never compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    base: Offset,
    bytes: u64,
    first_timestamp_ms: i64,
}

impl Default for Segment {
    fn default() -> Self {
        Segment::starting_at(Offset(0))
    }
}

impl Segment {
    fn starting_at(base: Offset) -> Self {
        Segment { base, bytes: 0, first_timestamp_ms: 0 }
    }

    fn add(&mut self, bytes: usize, timestamp_ms: i64) {
        if self.bytes == 0 {
            self.first_timestamp_ms = timestamp_ms;
        }
        self.bytes += bytes as u64;
    }

    /// True when batches of so many bytes and this greatest timestamp belong into a new segment. Time is that of the
    /// records, as in Kafka.
    fn is_full(&self, bytes: usize, timestamp_ms: i64, settings: &LogSettings) -> bool {
        let age_ms = timestamp_ms.saturating_sub(self.first_timestamp_ms);
        self.bytes > 0 && (self.bytes + bytes as u64 > settings.segment_bytes || age_ms > settings.segment_ms)
    }
}

impl PartitionLog {
    /// First and last offsets.
    pub(crate) fn ends(&self) -> LogEnds {
        let high_watermark = self.log_end.unwrap_or(Offset(0));
        LogEnds {
            log_start: self.log_start.unwrap_or(Offset(0)),
            last_stable_offset: self.producers.first_open_offset().unwrap_or(high_watermark),
            high_watermark,
        }
    }

    /// Reads whole batches from the one that holds `from`; at least one when any is readable.
    ///
    /// Errors: OFFSET_OUT_OF_RANGE.
    pub(crate) fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        self.read_until(from, Offset(i64::MAX), bytes_max, isolation)
    }

    /// As [`PartitionLog::read`], but no batch that begins at `enough` or later, except for the first one.
    ///
    /// Errors: OFFSET_OUT_OF_RANGE.
    pub(crate) fn read_until(
        &self,
        from: Offset,
        enough: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<ReadInfo, ErrorCode> {
        let ends = self.ends();
        if from < ends.log_start || from > ends.high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let batches = self.store.read(from, enough, ends.readable_end(isolation), bytes_max);
        let aborted = match (isolation, batches.last()) {
            (Isolation::ReadCommitted, _) if is_planted(Bug::AbortedListIgnored) => Vec::new(),
            (Isolation::ReadCommitted, Some(last)) => {
                self.aborted.overlapping(from, Offset(last.header.next_offset()))
            }
            (Isolation::ReadCommitted, None) | (Isolation::ReadUncommitted, _) => Vec::new(),
        };
        Ok(ReadInfo { batches, ends, aborted })
    }

    /// The first batch with a record of `timestamp_ms` or later.
    pub(crate) fn batch_at_or_after(&self, timestamp_ms: i64) -> Option<RawBatch> {
        self.store.at_or_after(self.ends().log_start, timestamp_ms).cloned()
    }

    /// The first batch with the latest timestamp.
    pub(crate) fn latest_batch_in_time(&self) -> Option<RawBatch> {
        self.store.latest_in_time().cloned()
    }

    /// See [`ProducerStates::guard`]; `None` when the batch needs no word of the coordinator.
    pub(crate) fn verification_guard(
        &mut self,
        batch: &RawBatch,
        version: TransactionVersion,
    ) -> Option<VerificationGuard> {
        self.producers.needs_verification(&batch.header).then(|| self.producers.guard(&batch.header, version))
    }

    /// See [`ProducerStates::staging_guard`].
    pub(crate) fn staging_guard(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        version: TransactionVersion,
    ) -> Option<VerificationGuard> {
        self.producers.staging_guard(producer_id, epoch, version)
    }

    /// Forgets what producers are about to be verified for: guards given so far fit no more.
    pub(crate) fn forget_guards(&mut self) {
        self.producers.forget_guards();
    }

    /// Where the records of a leader epoch end, or those of the one before when it has none; none for an epoch that was
    /// not yet. `current` is the epoch that writes now.
    pub(crate) fn end_of_epoch(&self, asked: LeaderEpoch, current: LeaderEpoch) -> Option<EpochEnd> {
        let end = self.ends().high_watermark;
        if asked == LeaderEpoch(-1) || asked > current {
            return None;
        }
        if asked == current {
            return Some(EpochEnd { epoch: current, end });
        }
        let (last, next) = self.store.around_epoch(asked.0);
        let epoch = last.map_or(asked, |batch| LeaderEpoch(batch.header.partition_leader_epoch));
        Some(EpochEnd { epoch, end: next.map_or(end, |batch| Offset(batch.header.base_offset)) })
    }

    /// True when these batches belong into a new segment.
    pub(crate) fn wants_roll(&self, batches: &[RawBatch], settings: &LogSettings) -> bool {
        let bytes = batches.iter().map(|batch| batch.bytes.len()).sum();
        let timestamp_ms = batches.iter().map(|batch| batch.header.max_timestamp).max();
        timestamp_ms.is_some_and(|timestamp_ms| self.segment.is_full(bytes, timestamp_ms, settings))
    }

    /// Where the log would start when records below `offset` are deleted: what is open or undecided stays.
    pub(crate) fn start_after_deleting(&self, offset: Offset) -> Offset {
        let ends = self.ends();
        offset.min(ends.last_stable_offset).max(ends.log_start)
    }

    /// Moves the log's start to what [`PartitionLog::start_after_deleting`] gave; drops batches wholly below it.
    pub(crate) fn delete_before(&mut self, offset: Offset) -> LogEnds {
        let log_start = self.start_after_deleting(offset);
        self.log_start = Some(log_start);
        self.store.drop_before(log_start);
        self.aborted.truncate_before(log_start);
        self.ends()
    }

    /// Where the log shall start so that at most `bytes_max` are left; none when nothing is to be dropped.
    pub(crate) fn start_that_keeps(&self, bytes_max: usize) -> Option<Offset> {
        if self.store.bytes() <= bytes_max {
            return None;
        }
        let start = self.start_after_deleting(self.store.offset_that_keeps(bytes_max)?);
        (start > self.ends().log_start).then_some(start)
    }

    /// Where the log shall start so that no batch of its beginning is wholly older than `oldest_ms`.
    pub(crate) fn start_not_before(&self, oldest_ms: i64) -> Option<Offset> {
        let start = self.start_after_deleting(self.store.first_not_before(oldest_ms)?);
        (start > self.ends().log_start).then_some(start)
    }

    /// Every producer.
    pub(crate) fn producers(&self) -> Vec<ProducerSummary> {
        self.producers.summaries()
    }
}

/// Splits a blob and checks what can be checked without state, so without the log's lock. No record is looked at: only
/// headers and checksums. The batches are copies: they do not keep a whole request in memory.
///
/// Errors: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE.
pub(crate) fn split_checked(
    blob: &Bytes,
    origin: Origin,
    batch_bytes_max: usize,
) -> Result<Vec<RawBatch>, ErrorCode> {
    let mut batches = Vec::with_capacity(1);
    let mut bytes = 0;
    for batch in records::split(blob.clone()) {
        let batch = batch.map_err(|_| ErrorCode::CorruptMessage)?;
        batch.verify_crc().map_err(|_| ErrorCode::CorruptMessage)?;
        let header = batch.header;
        if batch.bytes.len() > batch_bytes_max {
            return Err(ErrorCode::MessageTooLarge);
        }
        if header.record_count <= 0 || header.last_offset_delta != header.record_count - 1 {
            return Err(ErrorCode::InvalidRecord);
        }
        let idempotent = header.producer_id >= 0;
        if idempotent != (header.base_sequence >= 0) || (header.is_transactional() && !idempotent) {
            return Err(ErrorCode::InvalidRecord);
        }
        bytes += batch.bytes.len();
        batches.push(RawBatch { header, bytes: Bytes::copy_from_slice(&batch.bytes) });
    }
    // `split` takes a truncated last batch for the end; in a log it is damage.
    if bytes != blob.len() {
        return Err(ErrorCode::CorruptMessage);
    }
    match origin {
        Origin::Client { .. } if batches.len() != 1 || batches.iter().any(|one| one.header.is_control()) => {
            Err(ErrorCode::InvalidRecord)
        }
        Origin::Client { .. } | Origin::Coordinator | Origin::TransactionalCoordinator { .. } => Ok(batches),
    }
}

#[cfg(test)]
mod tests;
