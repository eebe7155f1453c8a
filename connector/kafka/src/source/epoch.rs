//! What a source has handed on since the last barrier.

use sharestream_base::ids::Offset;
use sharestream_core::decision::{DecidedRange, Decisions, MemberDecisions, ShareMember, SourcePartition};
use sharestream_core::source::SourceReport;

/// Decisions and counts of the open epoch.
#[derive(Debug, Default)]
pub(super) struct OpenEpoch {
    decisions: Decisions,
    pub(super) record_count: u64,
    pub(super) byte_count: u64,
    /// Holds a record near its delivery limit.
    pub(super) is_protected: bool,
}

impl OpenEpoch {
    /// A range of `decided` that this epoch holds already. Its lock was lost meanwhile, or the records could not
    /// have been acquired again: handed on, their effects would be in the epoch's transaction twice.
    pub(super) fn held_already(
        &self,
        decided: &[(SourcePartition, DecidedRange)],
    ) -> Option<(SourcePartition, DecidedRange)> {
        let held = |(partition, range): &&(SourcePartition, DecidedRange)| {
            self.decisions.overlaps(*partition, range.first, range.last)
        };
        decided.iter().find(held).copied()
    }

    /// Takes the decisions of a chunk that is handed on.
    pub(super) fn hand_on(
        &mut self,
        decided: &[(SourcePartition, DecidedRange)],
        record_count: u64,
        byte_count: u64,
    ) {
        for (partition, range) in decided {
            self.decisions.set(*partition, *range);
        }
        self.record_count += record_count;
        self.byte_count += byte_count;
    }

    /// True while nothing was handed on.
    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Records that were handed on are given back, undecided. Gives how many there were.
    pub(super) fn release(&mut self, partition: SourcePartition, first: Offset, last: Offset) -> u64 {
        let taken = self.decisions.take_within(partition, first, last);
        let count = taken.iter().map(|range| range.first.count_to(range.last)).sum();
        self.record_count = self.record_count.saturating_sub(count);
        count
    }

    /// Closes the epoch; the next one is empty.
    pub(super) fn close(&mut self, member: ShareMember) -> SourceReport {
        let OpenEpoch { decisions, record_count, byte_count, is_protected: _ } = std::mem::take(self);
        let decided =
            if decisions.is_empty() { Vec::new() } else { vec![MemberDecisions { member, decisions }] };
        SourceReport { decided, record_count, byte_count, ..SourceReport::default() }
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{MemberEpoch, PartitionIndex, TopicId};
    use sharestream_core::decision::Decision;

    use super::*;

    fn range(index: i32, first: i64, last: i64) -> (SourcePartition, DecidedRange) {
        let partition = SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) };
        (partition, DecidedRange { first: Offset(first), last: Offset(last), decision: Decision::Accept })
    }

    #[test]
    fn records_that_come_again_within_an_epoch_are_noticed() {
        let mut epoch = OpenEpoch::default();
        epoch.hand_on(&[range(0, 10, 19), range(1, 0, 4)], 15, 150);
        assert_eq!(epoch.held_already(&[range(0, 20, 29), range(1, 5, 9), range(2, 10, 19)]), None);
        // A lock that expired, and the same member acquired the records once more.
        assert_eq!(epoch.held_already(&[range(0, 20, 29), range(1, 4, 9)]), Some(range(1, 4, 9)));
        // Given back, they may come again.
        assert_eq!(epoch.release(range(1, 0, 4).0, Offset(3), Offset(9)), 2);
        assert_eq!(epoch.record_count, 13);
        assert_eq!(epoch.held_already(&[range(1, 3, 9)]), None);
        let member =
            ShareMember { group_id: String::new(), member_id: String::new(), member_epoch: MemberEpoch(1) };
        epoch.close(member);
        // The next epoch may hold them: the brokers let only one of the two stage them.
        assert_eq!(epoch.held_already(&[range(1, 4, 9)]), None);
    }
}
