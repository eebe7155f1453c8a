//! Which records of a fetched batch are ours, and which acquired offsets have no record. Pure.

use sharestream_base::ids::Offset;
use sharestream_client::AcquiredRange;
use sharestream_core::decision::{DecidedRange, Decision};

/// Walks the acquired ranges of one partition beside its records, in order of offset, and turns both into decisions.
///
/// An acquired offset that is passed without a record is a gap: a control record or a compaction hole, which must be
/// acknowledged too, or the start offset never moves. What lies behind the last batch is *not* a gap: its batch may
/// have been cut off.
#[derive(Debug)]
pub(super) struct AcquiredCursor<'a> {
    /// Ranges not wholly passed.
    ranges: &'a [AcquiredRange],
    /// First offset not decided on.
    next: Offset,
    decided: Vec<DecidedRange>,
}

impl<'a> AcquiredCursor<'a> {
    /// `ranges` is sorted and disjoint.
    pub(super) fn new(ranges: &'a [AcquiredRange]) -> Self {
        let next = ranges.first().map_or(Offset(0), |range| range.first);
        AcquiredCursor { ranges, next, decided: Vec::new() }
    }

    /// Passes to `offset`; its delivery count when it is ours. Every acquired offset before it that has no decision
    /// is a gap.
    #[inline]
    pub(super) fn pass_to(&mut self, offset: Offset) -> Option<i16> {
        loop {
            let range = self.ranges.first()?;
            if range.last < offset {
                self.push(self.next.max(range.first), range.last, Decision::Gap);
                self.skip_range();
                continue;
            }
            if range.first > offset || self.next > offset {
                return None;
            }
            let (delivery_count, first) = (range.delivery_count, self.next.max(range.first));
            if first < offset {
                self.push(first, offset.plus(-1), Decision::Gap);
                self.next = offset;
            }
            return Some(delivery_count);
        }
    }

    /// Decides on the offset that was passed to last.
    #[inline]
    pub(super) fn decide(&mut self, offset: Offset, decision: Decision) {
        self.push(offset, offset, decision);
        self.next = offset.next();
        if self.ranges.first().is_some_and(|range| range.last == offset) {
            self.skip_range();
        }
    }

    /// Everything acquired up to the end of a batch has been seen: what is left of it is gaps.
    pub(super) fn pass_batch_end(&mut self, last: Offset) {
        while let Some(range) = self.ranges.first().copied() {
            let first = self.next.max(range.first);
            if first > last {
                return;
            }
            self.push(first, range.last.min(last), Decision::Gap);
            self.next = range.last.min(last).next();
            if range.last > last {
                return;
            }
            self.skip_range();
        }
    }

    /// Takes the decisions so far: sorted, disjoint, merged.
    pub(super) fn take_decided(&mut self) -> Vec<DecidedRange> {
        std::mem::take(&mut self.decided)
    }

    /// True when something acquired and not decided is in a batch that ends here, or before it.
    pub(super) fn needs_batch(&self, last: Offset) -> bool {
        self.uncovered().is_some_and(|next| next <= last)
    }

    /// What is acquired and not decided.
    pub(super) fn rest(&self) -> Vec<AcquiredRange> {
        let ranges = self.ranges.iter();
        ranges.map(|range| AcquiredRange { first: self.next.max(range.first), ..*range }).collect()
    }

    /// The first acquired offset that no batch covered.
    pub(super) fn uncovered(&self) -> Option<Offset> {
        self.ranges.first().map(|range| self.next.max(range.first))
    }

    fn skip_range(&mut self) {
        self.ranges = &self.ranges[1..];
        if let Some(range) = self.ranges.first() {
            self.next = self.next.max(range.first);
        }
    }

    #[inline]
    fn push(&mut self, first: Offset, last: Offset, decision: Decision) {
        if last < first {
            return;
        }
        match self.decided.last_mut() {
            Some(range) if range.decision == decision && range.last.next() == first => range.last = last,
            Some(_) | None => self.decided.push(DecidedRange { first, last, decision }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn acquired(first: i64, last: i64, delivery_count: i16) -> AcquiredRange {
        AcquiredRange { first: Offset(first), last: Offset(last), delivery_count }
    }

    proptest! {
        /// Batches with holes and ranges of any shape against a map of single offsets.
        #[test]
        fn every_acquired_offset_under_a_batch_is_decided_once(
            present in proptest::collection::vec(any::<bool>(), 1..60),
            cuts in proptest::collection::btree_set(0i64..70, 0..12),
            batch_length in 1usize..20,
        ) {
            let cuts: Vec<i64> = cuts.into_iter().collect();
            let ranges: Vec<AcquiredRange> =
                cuts.chunks_exact(2).enumerate().map(|(i, cut)| acquired(cut[0], cut[1] - 1, i as i16 + 1)).collect();
            let mut cursor = AcquiredCursor::new(&ranges);
            let mut expected = BTreeMap::new();
            for (batch_index, batch) in present.chunks(batch_length).enumerate() {
                let base = (batch_index * batch_length) as i64;
                for (index, present) in batch.iter().enumerate() {
                    let offset = base + index as i64;
                    let range = ranges.iter().find(|range| (range.first.0..=range.last.0).contains(&offset));
                    if let Some(range) = range {
                        let decision = match (present, offset % 7) {
                            (false, _) => Decision::Gap,
                            (true, 0) => Decision::Reject,
                            (true, _) => Decision::Accept,
                        };
                        expected.insert(offset, decision);
                        if *present {
                            prop_assert_eq!(cursor.pass_to(Offset(offset)), Some(range.delivery_count));
                            cursor.decide(Offset(offset), decision);
                        }
                    } else if *present {
                        prop_assert_eq!(cursor.pass_to(Offset(offset)), None);
                    }
                }
                cursor.pass_batch_end(Offset(base + batch.len() as i64 - 1));
            }
            let end = present.len() as i64;
            let first_uncovered = ranges.iter().find(|range| range.last.0 >= end).map(|range| range.first.0.max(end));
            prop_assert_eq!(cursor.uncovered(), first_uncovered.map(Offset));
            let decided = cursor.take_decided();
            for pair in decided.windows(2) {
                prop_assert!(pair[0].last < pair[1].first, "sorted and disjoint");
            }
            let mut read = BTreeMap::new();
            for range in decided {
                read.extend((range.first.0..=range.last.0).map(|offset| (offset, range.decision)));
            }
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn what_lies_behind_the_last_batch_is_no_gap() {
        let ranges = [acquired(0, 9, 1)];
        let mut cursor = AcquiredCursor::new(&ranges);
        assert_eq!(cursor.pass_to(Offset(0)), Some(1));
        cursor.decide(Offset(0), Decision::Accept);
        cursor.pass_batch_end(Offset(4));
        assert_eq!(cursor.uncovered(), Some(Offset(5)));
        let decided = cursor.take_decided();
        assert_eq!(
            decided.last().map(|range| (range.last, range.decision)),
            Some((Offset(4), Decision::Gap))
        );
    }
}
