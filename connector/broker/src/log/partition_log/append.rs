//! Appends, in two steps: what to write is decided, and once it is written it is taken in.

use sharestream_base::ids::{LeaderEpoch, Offset};
use sharestream_wire::records::{RawBatch, control};

use super::{AppendInfo, Marker, Origin, PartitionLog, TransactionVersion};
use crate::error::ErrorCode;
use crate::log::aborted::AbortedTransaction;
use crate::log::producer_state::{MarkerVerdict, Verdict};

/// Batches that may be appended, with their offsets: to be written, then taken in.
#[derive(Debug)]
pub(crate) struct NewBatches {
    /// At least one.
    pub(crate) batches: Vec<RawBatch>,
    /// Of the transaction, if they are in one.
    pub(crate) version: TransactionVersion,
    base_offset: Offset,
}

/// What to do with batches that are not refused.
#[derive(Debug)]
pub(crate) enum AppendDecision {
    /// They are there already.
    Duplicate(AppendInfo),
    /// To be written.
    New(NewBatches),
}

/// A marker that may be appended: to be written, then taken in.
#[derive(Debug)]
pub(crate) struct NewMarker {
    /// The control batch.
    pub(crate) batch: RawBatch,
    marker: Marker,
    now_ms: i64,
}

/// What to do with a marker that is not refused.
#[derive(Debug)]
pub(crate) enum MarkerDecision {
    /// It was written before, here.
    Duplicate(Offset),
    /// To be written.
    New(NewMarker),
}

impl PartitionLog {
    /// Decides on batches that [`super::split_checked`] gave: all or none. Nothing changes.
    ///
    /// Errors: INVALID_RECORD (no batch) and those of
    /// [`ProducerStates::check`](crate::log::producer_state::ProducerStates::check).
    pub(crate) fn decide_append(
        &self,
        batches: Vec<RawBatch>,
        origin: Origin,
        leader_epoch: LeaderEpoch,
    ) -> Result<AppendDecision, ErrorCode> {
        let (guard, version) = match origin {
            Origin::Client { guard, version } | Origin::TransactionalCoordinator { guard, version } => {
                (guard, version)
            }
            Origin::Coordinator => (None, TransactionVersion::V2),
        };
        let in_sequence = !matches!(origin, Origin::TransactionalCoordinator { .. });
        let log_start = self.ends().log_start;
        let [first, ..] = batches.as_slice() else {
            return Err(ErrorCode::InvalidRecord);
        };
        if first.header.producer_id >= 0 {
            match self.producers.check(&first.header, guard, in_sequence)? {
                Verdict::Append => {}
                Verdict::Duplicate { base_offset, last_offset } => {
                    let info = AppendInfo { base_offset, last_offset, duplicate: true, log_start };
                    return Ok(AppendDecision::Duplicate(info));
                }
            }
        }
        let base_offset = self.ends().high_watermark;
        let mut next = base_offset.0;
        let placed = batches.into_iter().map(|batch| {
            let batch = batch.with_base_offset(next, leader_epoch.0);
            next = batch.header.next_offset();
            batch
        });
        Ok(AppendDecision::New(NewBatches { batches: placed.collect(), version, base_offset }))
    }

    /// Takes in batches that are written; in a new segment when `rolled`.
    pub(crate) fn appended(&mut self, new: NewBatches, rolled: bool) -> AppendInfo {
        let NewBatches { batches, version, base_offset } = new;
        let log_start = self.ends().log_start;
        if rolled {
            self.roll();
        }
        for batch in batches {
            self.take_batch(batch, version);
        }
        let last_offset = self.ends().high_watermark.plus(-1);
        AppendInfo { base_offset, last_offset, duplicate: false, log_start }
    }

    /// Takes in one batch of data.
    pub(super) fn take_batch(&mut self, batch: RawBatch, version: TransactionVersion) {
        if batch.header.producer_id >= 0 {
            self.producers.appended(&batch.header, Offset(batch.header.base_offset), version);
        }
        self.push(batch);
    }

    /// Decides on the end of a transaction. Nothing changes. Errors: those of
    /// [`ProducerStates::check_marker`](crate::log::producer_state::ProducerStates::check_marker).
    pub(crate) fn decide_marker(
        &self,
        marker: &Marker,
        now_ms: i64,
        leader_epoch: LeaderEpoch,
    ) -> Result<MarkerDecision, ErrorCode> {
        match self.producers.check_marker(marker)? {
            MarkerVerdict::Duplicate(offset) => return Ok(MarkerDecision::Duplicate(offset)),
            MarkerVerdict::Append => {}
        }
        let kind = if marker.commit { control::ControlMarker::Commit } else { control::ControlMarker::Abort };
        let meta = control::MarkerMeta {
            coordinator_epoch: marker.coordinator_epoch,
            producer_id: marker.producer_id.0,
            producer_epoch: marker.producer_epoch.0,
            timestamp_ms: now_ms,
            base_offset: self.ends().high_watermark.0,
            leader_epoch: leader_epoch.0,
        };
        let batch = control::encode(kind, &meta).and_then(RawBatch::from_bytes);
        let batch = batch.map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(MarkerDecision::New(NewMarker { batch, marker: *marker, now_ms }))
    }

    /// Takes in a marker that is written; in a new segment when `rolled`. Gives its offset.
    pub(crate) fn marked(&mut self, new: NewMarker, rolled: bool) -> Offset {
        if rolled {
            self.roll();
        }
        self.take_marker(new.batch, &new.marker, new.now_ms)
    }

    /// Takes in one control batch.
    pub(super) fn take_marker(&mut self, batch: RawBatch, marker: &Marker, now_ms: i64) -> Offset {
        let offset = Offset(batch.header.base_offset);
        self.push(batch);
        let first_offset = self.producers.marked(marker, offset, now_ms);
        if let (Some(first_offset), false) = (first_offset, marker.commit) {
            let producer_id = marker.producer_id;
            self.aborted.push(AbortedTransaction { producer_id, first_offset, marker_offset: offset });
        }
        offset
    }

    fn push(&mut self, batch: RawBatch) {
        self.log_end = Some(Offset(batch.header.next_offset()));
        self.segment.add(batch.bytes.len(), batch.header.max_timestamp);
        self.store.push(batch);
    }

    fn roll(&mut self) {
        self.segment = super::Segment::starting_at(self.ends().high_watermark);
    }
}

#[cfg(test)]
impl PartitionLog {
    /// Decides and takes in, as a log without files does.
    pub(crate) fn append(
        &mut self,
        batches: Vec<RawBatch>,
        origin: Origin,
        leader_epoch: LeaderEpoch,
    ) -> Result<AppendInfo, ErrorCode> {
        match self.decide_append(batches, origin, leader_epoch)? {
            AppendDecision::Duplicate(info) => Ok(info),
            AppendDecision::New(new) => Ok(self.appended(new, false)),
        }
    }

    /// Decides and takes in, as a log without files does.
    pub(crate) fn append_marker(
        &mut self,
        marker: &Marker,
        now_ms: i64,
        leader_epoch: LeaderEpoch,
    ) -> Result<Offset, ErrorCode> {
        match self.decide_marker(marker, now_ms, leader_epoch)? {
            MarkerDecision::Duplicate(offset) => Ok(offset),
            MarkerDecision::New(new) => Ok(self.marked(new, false)),
        }
    }
}
