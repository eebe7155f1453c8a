//! The state of one partition's log, without lock, clock or waiting.
//!
//! There is no replication, so the high watermark is the log's end. The last stable offset is the first offset of
//! the oldest open transaction, or the high watermark.

use bytes::{Bytes, BytesMut};
use sharestream_base::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_wire::records::{self, RawBatch, control};

use super::aborted::{AbortedIndex, AbortedTransaction};
use super::producer_state::{MarkerVerdict, ProducerStates, ProducerSummary, Verdict, VerificationGuard};
use super::store::BatchStore;
use crate::error::ErrorCode;

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

    /// Appends batches that [`split_checked`] gave: all or none. On `Err` nothing has changed.
    ///
    /// Errors: INVALID_RECORD (no batch) and those of [`ProducerStates::check`].
    pub(crate) fn append(
        &mut self,
        batches: Vec<RawBatch>,
        origin: Origin,
        leader_epoch: LeaderEpoch,
    ) -> Result<AppendInfo, ErrorCode> {
        let (guard, version) = match origin {
            Origin::Client { guard, version } => (guard, version),
            Origin::Coordinator => (None, TransactionVersion::V2),
        };
        let log_start = self.ends().log_start;
        let [first, ..] = batches.as_slice() else {
            return Err(ErrorCode::InvalidRecord);
        };
        if first.header.producer_id >= 0 {
            match self.producers.check(&first.header, guard)? {
                Verdict::Append => {}
                Verdict::Duplicate { base_offset, last_offset } => {
                    return Ok(AppendInfo { base_offset, last_offset, duplicate: true, log_start });
                }
            }
        }
        let base_offset = self.ends().high_watermark;
        let mut next = base_offset;
        for batch in batches {
            if batch.header.producer_id >= 0 {
                self.producers.appended(&batch.header, next, version);
            }
            let batch = batch.with_base_offset(next.0, leader_epoch.0);
            next = Offset(batch.header.next_offset());
            self.store.push(batch);
        }
        self.log_end = Some(next);
        Ok(AppendInfo { base_offset, last_offset: next.plus(-1), duplicate: false, log_start })
    }

    /// Ends a transaction. On `Err` nothing has changed. Gives the marker's offset.
    pub(crate) fn append_marker(
        &mut self,
        marker: &Marker,
        now_ms: i64,
        leader_epoch: LeaderEpoch,
    ) -> Result<Offset, ErrorCode> {
        match self.producers.check_marker(marker)? {
            MarkerVerdict::Duplicate(offset) => return Ok(offset),
            MarkerVerdict::Append => {}
        }
        let offset = self.ends().high_watermark;
        let kind = if marker.commit { control::ControlMarker::Commit } else { control::ControlMarker::Abort };
        let meta = control::MarkerMeta {
            coordinator_epoch: marker.coordinator_epoch,
            producer_id: marker.producer_id.0,
            producer_epoch: marker.producer_epoch.0,
            timestamp_ms: now_ms,
            base_offset: offset.0,
            leader_epoch: leader_epoch.0,
        };
        let batch = control::encode(kind, &meta)
            .and_then(RawBatch::from_bytes)
            .map_err(|_| ErrorCode::UnknownServerError)?;
        self.store.push(batch);
        self.log_end = Some(offset.next());
        let first_offset = self.producers.marked(marker, offset, now_ms);
        if let (Some(first_offset), false) = (first_offset, marker.commit) {
            let producer_id = marker.producer_id;
            self.aborted.push(AbortedTransaction { producer_id, first_offset, marker_offset: offset });
        }
        Ok(offset)
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
        let ends = self.ends();
        if from < ends.log_start || from > ends.high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let batches = self.store.read(from, ends.readable_end(isolation), bytes_max);
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

    /// Forgets what producers are about to be verified for: guards given so far fit no more.
    pub(crate) fn forget_guards(&mut self) {
        self.producers.forget_guards();
    }

    /// Moves the log's start forward, never beyond the high watermark; drops batches wholly below it.
    pub(crate) fn delete_before(&mut self, offset: Offset) -> LogEnds {
        let ends = self.ends();
        let log_start = offset.clamp(ends.log_start, ends.high_watermark);
        self.log_start = Some(log_start);
        self.store.drop_before(log_start);
        self.aborted.truncate_before(log_start);
        self.ends()
    }

    /// Drops the oldest batches until at most `bytes_max` are left. What is open or undecided stays.
    pub(crate) fn retain_bytes(&mut self, bytes_max: usize) {
        if self.store.bytes() <= bytes_max {
            return;
        }
        if let Some(offset) = self.store.offset_that_keeps(bytes_max) {
            self.delete_before(offset.min(self.ends().last_stable_offset));
        }
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
        Origin::Client { .. } | Origin::Coordinator => Ok(batches),
    }
}

#[cfg(test)]
mod tests;
