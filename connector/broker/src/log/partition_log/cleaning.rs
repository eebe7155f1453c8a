//! Compaction of a log (Kafka's `cleanup.policy=compact`): what it may look at, and what it leaves.
//!
//! Only what is decided and lies in segments that are closed is looked at: never past the last stable offset (rule 12
//! of the ledger protocol), and never the segment that grows. Of each key the last record stays; records of aborted
//! transactions go, and so do records without a key. Deletions (records without a value) and markers outlive what
//! they delete or end for `delete.retention.ms`, counted from their own time, so that a reader who is so far behind
//! still sees them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sharestream_base::ids::Offset;
use sharestream_wire::WireError;
use sharestream_wire::records::RawBatch;

use super::{LogSettings, PartitionLog};
use crate::disk::Head;
use crate::log::aborted::AbortedTransaction;
use crate::log::producer_state::ProducerStates;
use crate::log::rebuild::keep_records;

/// The part of a log that is to be compacted, as it was when the plan was made.
#[derive(Debug)]
pub(crate) struct CleaningPlan {
    batches: Vec<RawBatch>,
    aborted: Vec<AbortedTransaction>,
    /// Exclusive.
    pub(crate) end: Offset,
    log_start: Offset,
    /// What deletes or ends and is older may go.
    outlived_ms: i64,
}

impl PartitionLog {
    /// How far compaction may look (exclusive): what is decided, in closed segments, and old enough.
    pub(crate) fn cleanable_end(&self, settings: &LogSettings, now_ms: i64) -> Offset {
        let limit = self.ends().last_stable_offset.min(self.segment.base);
        let young_ms = now_ms.saturating_sub(settings.compaction_lag_ms);
        if settings.compaction_lag_ms == 0 {
            return limit;
        }
        let young = self.store.before(limit).find(|batch| batch.header.max_timestamp > young_ms);
        young.map_or(limit, |batch| Offset(batch.header.base_offset))
    }

    /// What is to be compacted below `end`, which is at most [`PartitionLog::cleanable_end`], if it is worth it by
    /// `min.cleanable.dirty.ratio`.
    pub(crate) fn plan_cleaning(
        &self,
        settings: &LogSettings,
        now_ms: i64,
        end: Offset,
    ) -> Option<CleaningPlan> {
        let log_start = self.ends().log_start;
        let bytes = |batch: &RawBatch| batch.bytes.len() as u64;
        let compacted_end = self.compacted_end.map_or(0, |end| end.0);
        let is_dirty = |batch: &&RawBatch| batch.header.base_offset >= compacted_end;
        let dirty: u64 = self.store.before(end).filter(is_dirty).map(bytes).sum();
        let all: u64 = self.store.before(end).map(bytes).sum();
        (dirty > 0 && dirty * 100 >= all * settings.dirty_percent_min).then(|| CleaningPlan {
            batches: self.store.before(end).cloned().collect(),
            // Those too whose markers lie behind: their data is decided.
            aborted: self.aborted.overlapping(log_start, end),
            end,
            log_start,
            outlived_ms: now_ms.saturating_sub(settings.delete_retention_ms),
        })
    }

    /// False when the log's beginning has changed since the plan was made.
    pub(crate) fn may_clean(&self, plan: &CleaningPlan) -> bool {
        self.ends().log_start == plan.log_start && Some(plan.end) >= self.compacted_end
    }

    /// Puts what a plan kept in the place of what it looked at; only when [`PartitionLog::may_clean`] allows it.
    pub(crate) fn cleaned(&mut self, plan: &CleaningPlan, kept: Vec<RawBatch>) {
        let there: BTreeSet<i64> = kept.iter().map(|batch| batch.header.base_offset).collect();
        self.store.replace_before(plan.end, kept);
        self.aborted.forget(|marker| marker < plan.end && !there.contains(&marker.0));
        self.compacted_end = Some(plan.end);
    }
}

impl CleaningPlan {
    /// How many batches it looks at.
    pub(crate) fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// What a file of what it keeps begins with. Nobody's state: the segment behind it has the states of producers.
    pub(crate) fn head(&self) -> Head {
        let producers = ProducerStates::default().encode();
        Head { base: self.log_start, log_start: self.log_start, producers }
    }

    /// The batches that stay, some with fewer records. Looks into every record, so not under the log's lock.
    ///
    /// Errors: Corrupt (a batch that cannot be decoded: the log stays as it is).
    pub(crate) fn compact(&self) -> Result<Vec<RawBatch>, WireError> {
        let last = self.last_offsets()?;
        let mut kept = Vec::new();
        // Transactions of which data is kept, by producer: from their first offset to their marker.
        let mut with_data: BTreeSet<i64> = BTreeSet::new();
        for batch in &self.batches {
            if batch.header.is_control() {
                let ended_something = with_data.remove(&batch.header.producer_id);
                if ended_something || batch.header.max_timestamp > self.outlived_ms {
                    kept.push(batch.clone());
                }
                continue;
            }
            if self.is_aborted(batch) {
                continue;
            }
            let stays = |record: &sharestream_wire::records::RecordView<'_>| {
                let outlived = record.value.is_none() && record.timestamp <= self.outlived_ms;
                record.key.is_some_and(|key| last.get(key) == Some(&record.offset)) && !outlived
            };
            if let Some(batch) = keep_records(batch, stays)? {
                if batch.header.is_transactional() {
                    with_data.insert(batch.header.producer_id);
                }
                kept.push(batch);
            }
        }
        Ok(kept)
    }

    /// The last offset of each key among what is not aborted.
    fn last_offsets(&self) -> Result<BTreeMap<Bytes, i64>, WireError> {
        let mut last = BTreeMap::new();
        for batch in &self.batches {
            if batch.header.is_control() || self.is_aborted(batch) {
                continue;
            }
            for record in batch.records()?.iter() {
                let record = record?;
                if let Some(key) = record.key {
                    last.insert(Bytes::copy_from_slice(key), record.offset);
                }
            }
        }
        Ok(last)
    }

    fn is_aborted(&self, batch: &RawBatch) -> bool {
        let header = &batch.header;
        header.is_transactional()
            && self.aborted.iter().any(|aborted| {
                aborted.producer_id.0 == header.producer_id
                    && aborted.first_offset.0 <= header.base_offset
                    && header.base_offset < aborted.marker_offset.0
            })
    }
}
