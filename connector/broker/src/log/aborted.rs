//! Index of aborted transactions: what a read-committed reader must skip (KIP-98).

use sharestream_base::ids::{Offset, ProducerId};

/// An aborted transaction's data on one partition: from its first record to its abort marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbortedTransaction {
    /// Who wrote it.
    pub(crate) producer_id: ProducerId,
    /// Offset of its first record.
    pub(crate) first_offset: Offset,
    /// Offset of its abort marker.
    pub(crate) marker_offset: Offset,
}

/// Aborted transactions by marker offset.
#[derive(Debug, Default)]
pub(crate) struct AbortedIndex {
    by_marker: Vec<AbortedTransaction>,
}

impl AbortedIndex {
    /// Adds one; markers arrive in offset order.
    pub(crate) fn push(&mut self, aborted: AbortedTransaction) {
        debug_assert!(self.by_marker.last().is_none_or(|last| last.marker_offset < aborted.marker_offset));
        self.by_marker.push(aborted);
    }

    /// Those that have a record or their marker in `from..end`, by first offset: a reader takes them in as it
    /// reaches their first records.
    pub(crate) fn overlapping(&self, from: Offset, end: Offset) -> Vec<AbortedTransaction> {
        let start = self.by_marker.partition_point(|aborted| aborted.marker_offset < from);
        let mut found: Vec<_> =
            self.by_marker[start..].iter().filter(|aborted| aborted.first_offset < end).copied().collect();
        found.sort_by_key(|aborted| aborted.first_offset);
        found
    }

    /// Forgets those whose markers compaction has removed: a reader that is told of one would wait for its marker.
    pub(crate) fn forget(&mut self, gone: impl Fn(Offset) -> bool) {
        self.by_marker.retain(|aborted| !gone(aborted.marker_offset));
    }

    /// Forgets what lies wholly below `log_start`.
    pub(crate) fn truncate_before(&mut self, log_start: Offset) {
        let end = self.by_marker.partition_point(|aborted| aborted.marker_offset < log_start);
        self.by_marker.drain(..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(producer: i64, first: i64, marker: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            marker_offset: Offset(marker),
        }
    }

    #[test]
    fn a_read_sees_every_aborted_transaction_that_touches_it_and_no_other() {
        let mut index = AbortedIndex::default();
        let (a, b, c) = (aborted(1, 5, 9), aborted(2, 0, 12), aborted(3, 20, 22));
        for one in [a, b, c] {
            index.push(one);
        }
        assert_eq!(index.overlapping(Offset(0), Offset(5)), vec![b], "1 starts at 5, beyond the read");
        assert_eq!(index.overlapping(Offset(0), Offset(10)), vec![b, a]);
        assert_eq!(index.overlapping(Offset(10), Offset(20)), vec![b]);
        assert_eq!(index.overlapping(Offset(13), Offset(20)), vec![]);
        assert_eq!(index.overlapping(Offset(13), Offset(21)), vec![c]);
        index.truncate_before(Offset(10));
        assert_eq!(index.overlapping(Offset(0), Offset(30)), vec![b, c]);
    }
}
