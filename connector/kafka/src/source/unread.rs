//! What was polled and is still as it came: compressed, and to be read on as the job asks for more. Pure.

use std::collections::VecDeque;

use sharestream_client::{AcquiredPartition, AcquiredRange, OffsetRange, ShareRecords};
use sharestream_core::decision::SourcePartition;

use super::delivery::{DeliveryLimit, Treatment};

/// Acquired records in the order in which they are read: those near their delivery limit first, whatever batches they share with
/// others. A batch with records of several treatments is read once for each.
#[derive(Debug, Default)]
pub(super) struct Unread {
    parts: VecDeque<AcquiredPartition>,
}

impl Unread {
    /// Adds what a poll brought. Batches are shared, not copied.
    pub(super) fn add(&mut self, records: ShareRecords, limit: DeliveryLimit) {
        let treatment = |range: &AcquiredRange| limit.treatment(range.delivery_count);
        let mut ranges = records.partitions.iter().flat_map(|acquired| &acquired.acquired);
        if ranges.all(|range| treatment(range) == Treatment::Usual) {
            self.parts.extend(records.partitions);
            return;
        }
        for wanted in [Treatment::GiveUp, Treatment::Alone, Treatment::Usual] {
            for acquired in &records.partitions {
                let ranges = acquired.acquired.iter().filter(|range| treatment(range) == wanted);
                let ranges: Vec<AcquiredRange> = ranges.copied().collect();
                if !ranges.is_empty() {
                    self.parts.push_back(AcquiredPartition { acquired: ranges, ..acquired.clone() });
                }
            }
        }
    }

    /// True when everything was read.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What is read next.
    pub(super) fn pop_front(&mut self) -> Option<AcquiredPartition> {
        self.parts.pop_front()
    }

    /// The rest of what was taken out last.
    pub(super) fn push_front(&mut self, rest: AcquiredPartition) {
        self.parts.push_front(rest);
    }

    /// Takes out all offsets but those of records that `keeps` says of, by partition.
    pub(super) fn take_releasable(
        &mut self,
        keeps: impl Fn(&AcquiredRange) -> bool,
    ) -> Vec<(SourcePartition, OffsetRange)> {
        let mut taken = Vec::new();
        self.parts.retain_mut(|acquired| {
            let partition = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
            acquired.acquired.retain(|range| {
                let is_kept = keeps(range);
                if !is_kept {
                    taken.push((partition, OffsetRange { first: range.first, last: range.last }));
                }
                is_kept
            });
            !acquired.acquired.is_empty()
        });
        taken
    }
}

#[cfg(test)]
#[path = "unread_tests.rs"]
mod tests;
