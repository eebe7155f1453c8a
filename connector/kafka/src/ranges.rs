//! Sets of offsets by partition, kept as ranges: decisions of which only the offsets count. Pure.

use sharestream_base::ids::Offset;
use sharestream_client::OffsetRange;
use sharestream_core::decision::{DecidedRange, Decision, Decisions, SourcePartition};

/// Offsets by partition: sorted, disjoint, neighbours merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// All alike, so that neighbours merge.
    offsets: Decisions,
}

impl Ranges {
    /// The offsets that `decisions` decide, however.
    pub(crate) fn of(decisions: &Decisions) -> Self {
        let mut ranges = Ranges::default();
        for (partition, range) in decisions.ranges() {
            ranges.add(partition, range.first, range.last);
        }
        ranges
    }

    /// Adds `first..=last`.
    pub(crate) fn add(&mut self, partition: SourcePartition, first: Offset, last: Offset) {
        self.offsets.set(partition, DecidedRange { first, last, decision: Decision::Accept });
    }

    /// Adds everything that `other` has.
    pub(crate) fn add_all(&mut self, other: &Ranges) {
        self.offsets.overlay(&other.offsets);
    }

    /// Takes `first..=last` out.
    pub(crate) fn remove(&mut self, partition: SourcePartition, first: Offset, last: Offset) {
        self.offsets.take_within(partition, first, last);
    }

    /// The parts of `first..=last` that are in the set, in order.
    pub(crate) fn within(
        &self,
        partition: SourcePartition,
        first: Offset,
        last: Offset,
    ) -> impl Iterator<Item = OffsetRange> + '_ {
        self.offsets.within(partition, first, last).map(offsets_of)
    }

    /// True when one of the offsets is in the set.
    pub(crate) fn overlaps(&self, partition: SourcePartition, first: Offset, last: Offset) -> bool {
        self.offsets.overlaps(partition, first, last)
    }

    /// True when everything in `other` is in the set.
    pub(crate) fn contains_all(&self, other: &Ranges) -> bool {
        other.iter().all(|(partition, range)| {
            self.within(partition, range.first, range.last).eq(std::iter::once(range))
        })
    }

    /// All ranges, by partition and offset.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SourcePartition, OffsetRange)> + '_ {
        self.offsets.ranges().map(|(partition, range)| (partition, offsets_of(range)))
    }
}

fn offsets_of(range: DecidedRange) -> OffsetRange {
    OffsetRange { first: range.first, last: range.last }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sharestream_base::ids::{PartitionIndex, TopicId};

    use super::*;

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_single_offsets(
            steps in proptest::collection::vec((0i64..60, 0i64..20, any::<bool>()), 0..40)
        ) {
            let partition = SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(0) };
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (first, length, adds) in steps {
                let offsets = first..=first + length;
                if adds {
                    ranges.add(partition, Offset(first), Offset(first + length));
                    model.extend(offsets);
                } else {
                    ranges.remove(partition, Offset(first), Offset(first + length));
                    model.retain(|offset| !offsets.contains(offset));
                }
            }
            let read: Vec<_> = ranges.iter().map(|(_, range)| range).collect();
            for pair in read.windows(2) {
                prop_assert!(pair[0].last.next() < pair[1].first, "sorted, disjoint, merged");
            }
            let offsets = |range: &OffsetRange| range.first.0..=range.last.0;
            prop_assert_eq!(read.iter().flat_map(offsets).collect::<BTreeSet<i64>>(), model.clone());
            for first in 0..70 {
                let within: Vec<i64> =
                    ranges.within(partition, Offset(first), Offset(first + 5)).flat_map(|range| offsets(&range)).collect();
                prop_assert_eq!(within, model.range(first..=first + 5).copied().collect::<Vec<_>>());
            }
            prop_assert!(ranges.contains_all(&ranges.clone()));
            let mut more = ranges.clone();
            more.add(partition, Offset(200), Offset(200));
            prop_assert!(!ranges.contains_all(&more));
        }
    }
}
