//! What a poll hands out: whole batches as they came, and which of their offsets this member now holds.

use std::sync::Arc;

use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, Instant};
use sharestream_wire::records::RawBatch;

use super::acknowledge::OffsetRange;
use crate::{Error, Result};

/// Offsets of equal delivery count that this member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredRange {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// How often they were delivered, this time included.
    pub delivery_count: i16,
}

/// Records of one partition, and the part of them that is ours.
#[derive(Clone, Debug)]
pub struct AcquiredPartition {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Its id.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Whole batches, in order of offset: slices of the answer, nothing is copied. They may hold offsets that were
    /// not acquired.
    pub batches: Vec<RawBatch>,
    /// The offsets that are ours: sorted, disjoint.
    pub acquired: Vec<AcquiredRange>,
    /// When the locks run out, measured from the arrival of the answer; `None` when the broker did not say.
    pub lock_deadline: Option<Instant>,
}

/// What one poll acquired; empty when there was nothing until the longest wait.
#[derive(Clone, Debug, Default)]
pub struct ShareRecords {
    /// By partition.
    pub partitions: Vec<AcquiredPartition>,
}

impl ShareRecords {
    /// True when nothing was acquired.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Number of acquired offsets, gaps included.
    pub fn acquired_count(&self) -> u64 {
        self.partitions.iter().map(AcquiredPartition::acquired_count).sum()
    }
}

impl AcquiredPartition {
    /// Number of acquired offsets, gaps included.
    pub fn acquired_count(&self) -> u64 {
        self.acquired.iter().map(|range| range.first.count_to(range.last)).sum()
    }

    /// The delivery count of an acquired offset; `None` when it is not ours.
    pub fn delivery_count(&self, offset: Offset) -> Option<i16> {
        let index = self.acquired.partition_point(|range| range.last < offset);
        self.acquired.get(index).filter(|range| range.first <= offset).map(|range| range.delivery_count)
    }

    /// Acquired offsets without a deliverable record: control batches, compaction holes, and what no batch covers.
    /// They must be acknowledged as GAP, or the start offset never moves.
    ///
    /// Costs nothing per record where offsets are dense; only batches with holes are read.
    ///
    /// # Errors
    /// `Corrupt` when a batch with holes cannot be read.
    pub fn gaps(&self) -> Result<Vec<OffsetRange>> {
        let mut gaps = Gaps {
            acquired: &self.acquired,
            next: self.acquired.first().map(|r| r.first),
            found: Vec::new(),
        };
        for batch in &self.batches {
            let header = &batch.header;
            if header.is_control() {
                continue;
            }
            if i64::from(header.record_count) == i64::from(header.last_offset_delta) + 1 {
                gaps.deliverable(Offset(header.base_offset), Offset(header.last_offset()));
                continue;
            }
            let unreadable = |error| {
                let context =
                    format!("records of {}/{} at offset {}", self.topic, self.partition, header.base_offset);
                Error::new(ErrorKind::Corrupt, context).with_source(error)
            };
            let records = batch.records().map_err(unreadable)?;
            for record in records.iter() {
                let offset = Offset(record.map_err(unreadable)?.offset);
                gaps.deliverable(offset, offset);
            }
        }
        Ok(gaps.finish())
    }
}

/// Subtracts what is deliverable, in order of offset, from what was acquired.
struct Gaps<'a> {
    /// Ranges not yet wholly dealt with.
    acquired: &'a [AcquiredRange],
    /// First offset of them that is neither deliverable nor reported.
    next: Option<Offset>,
    found: Vec<OffsetRange>,
}

impl Gaps<'_> {
    fn deliverable(&mut self, first: Offset, last: Offset) {
        self.missing_before(first);
        while let (Some(next), Some((range, rest))) = (self.next, self.acquired.split_first()) {
            if next > last {
                return;
            }
            if range.last > last {
                self.next = Some(next.max(last.next()));
                return;
            }
            self.acquired = rest;
            self.next = rest.first().map(|range| range.first);
        }
    }

    /// Everything acquired below `offset` and not yet dealt with is a gap.
    fn missing_before(&mut self, offset: Offset) {
        while let (Some(next), Some((range, rest))) = (self.next, self.acquired.split_first()) {
            if next >= offset {
                return;
            }
            if range.last >= offset {
                self.push(next, offset.plus(-1));
                self.next = Some(offset);
                return;
            }
            self.push(next, range.last);
            self.acquired = rest;
            self.next = rest.first().map(|range| range.first);
        }
    }

    fn push(&mut self, first: Offset, last: Offset) {
        match self.found.last_mut() {
            Some(before) if before.last.next() == first => before.last = last,
            Some(_) | None => self.found.push(OffsetRange { first, last }),
        }
    }

    fn finish(mut self) -> Vec<OffsetRange> {
        self.missing_before(Offset(i64::MAX));
        self.found
    }
}

#[cfg(test)]
mod tests;
