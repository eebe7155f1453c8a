//! Decisions on source records: offset ranges per share partition, and the member that holds them.
//!
//! Plain versioned values: they travel from source tasks to the coordinator, into outcome records and manifests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{MemberEpoch, Offset, PartitionIndex, TopicId};

/// A partition of a source topic, by topic id: a re-created topic is another topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcePartition {
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition within the topic.
    pub partition: PartitionIndex,
}

/// What becomes of one acquired offset. RELEASE is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The record and all that came of it are in this epoch.
    Accept,
    /// The record became a dead letter in this epoch (or was dropped by the user's choice).
    Reject,
    /// No deliverable record: control record or compaction hole. Acknowledged as type 0.
    Gap,
}

/// Offsets `first..=last` with one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DecidedRange {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive, not below `first`.
    pub last: Offset,
    /// The decision on all of them.
    pub decision: Decision,
}

/// Decided ranges per source partition: sorted, disjoint, neighbours with equal decision merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    partitions: BTreeMap<SourcePartition, BTreeMap<Offset, (Offset, Decision)>>,
}

impl Decisions {
    /// No decisions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the decision on `range`; what was decided on those offsets before is replaced (a default ACCEPT
    /// becomes a REJECT that way). Cost: logarithmic in the ranges of the partition, plus the ranges replaced.
    pub fn set(&mut self, partition: SourcePartition, range: DecidedRange) {
        let DecidedRange { mut first, mut last, decision } = range;
        if last < first {
            return;
        }
        let ranges = self.partitions.entry(partition).or_default();
        // Cut what overlaps; keep the parts that stick out on either side.
        let overlapping: Vec<(Offset, Offset, Decision)> = ranges
            .range(..=last)
            .rev()
            .take_while(|(_, (end, _))| *end >= first)
            .map(|(start, (end, old))| (*start, *end, *old))
            .collect();
        for (start, end, old) in overlapping {
            ranges.remove(&start);
            if start < first {
                ranges.insert(start, (first.plus(-1), old));
            }
            if end > last {
                ranges.insert(last.next(), (end, old));
            }
        }
        // Merge with equal neighbours.
        if let Some((start, (end, old))) = ranges.range(..first).next_back().map(|(s, v)| (*s, *v))
            && end.next() == first
            && old == decision
        {
            ranges.remove(&start);
            first = start;
        }
        if let Some((end, old)) = ranges.get(&last.next()).copied()
            && old == decision
        {
            ranges.remove(&last.next());
            last = end;
        }
        ranges.insert(first, (last, decision));
    }

    /// Takes over every range of `other`, which wins where both decide.
    pub fn overlay(&mut self, other: &Decisions) {
        for (partition, range) in other.ranges() {
            self.set(partition, range);
        }
    }

    /// The decision on one offset.
    pub fn get(&self, partition: SourcePartition, offset: Offset) -> Option<Decision> {
        let (_, (last, decision)) = self.partitions.get(&partition)?.range(..=offset).next_back()?;
        (*last >= offset).then_some(*decision)
    }

    /// True when one of the offsets `first..=last` is decided on.
    pub fn overlaps(&self, partition: SourcePartition, first: Offset, last: Offset) -> bool {
        let Some(ranges) = self.partitions.get(&partition) else { return false };
        // Ranges are disjoint, so the last one that begins in time is also the one that ends last.
        first <= last && ranges.range(..=last).next_back().is_some_and(|(_, (end, _))| *end >= first)
    }

    /// The decided parts of `first..=last`, in order, cut to it. Cost: logarithmic in the ranges of the partition, plus
    /// the parts.
    pub fn within(
        &self,
        partition: SourcePartition,
        first: Offset,
        last: Offset,
    ) -> impl Iterator<Item = DecidedRange> + '_ {
        let ranges = self.partitions.get(&partition).filter(|_| first <= last);
        let start =
            ranges.and_then(|ranges| ranges.range(..first).next_back()).map_or(first, |(start, _)| *start);
        let parts = ranges.into_iter().flat_map(move |ranges| ranges.range(start..=last));
        parts.filter(move |(_, (end, _))| *end >= first).map(move |(start, (end, decision))| DecidedRange {
            first: (*start).max(first),
            last: (*end).min(last),
            decision: *decision,
        })
    }

    /// Takes the decided parts of `first..=last` out, in order. Cost: as [`Decisions::within`], and as much again.
    pub fn take_within(
        &mut self,
        partition: SourcePartition,
        first: Offset,
        last: Offset,
    ) -> Vec<DecidedRange> {
        let parts: Vec<DecidedRange> = self.within(partition, first, last).collect();
        let Some(ranges) = self.partitions.get_mut(&partition) else { return parts };
        for part in &parts {
            // The range that holds the part begins with it or before it.
            let Some((start, (end, decision))) =
                ranges.range(..=part.first).next_back().map(|(start, held)| (*start, *held))
            else {
                continue;
            };
            ranges.remove(&start);
            if start < part.first {
                ranges.insert(start, (part.first.plus(-1), decision));
            }
            if end > part.last {
                ranges.insert(part.last.next(), (end, decision));
            }
        }
        if ranges.is_empty() {
            self.partitions.remove(&partition);
        }
        parts
    }

    /// What is decided here, of the offsets that are decided in `other`, too.
    pub(crate) fn common_with(&self, other: &Decisions) -> Decisions {
        let mut common = Decisions::new();
        for (partition, range) in other.ranges() {
            for part in self.within(partition, range.first, range.last) {
                common.set(partition, part);
            }
        }
        common
    }

    /// Forgets what is decided below `end`: a range that sticks out keeps the rest of it.
    pub fn forget_below(&mut self, partition: SourcePartition, end: Offset) {
        let Some(ranges) = self.partitions.get_mut(&partition) else { return };
        let mut kept = ranges.split_off(&end);
        if let Some((_, (last, decision))) = ranges.iter().next_back()
            && *last >= end
        {
            kept.insert(end, (*last, *decision));
        }
        if kept.is_empty() {
            self.partitions.remove(&partition);
        } else {
            *ranges = kept;
        }
    }

    /// All ranges, by partition and offset.
    pub fn ranges(&self) -> impl Iterator<Item = (SourcePartition, DecidedRange)> + '_ {
        self.partitions.iter().flat_map(|(partition, ranges)| {
            ranges.iter().map(|(first, (last, decision))| {
                (*partition, DecidedRange { first: *first, last: *last, decision: *decision })
            })
        })
    }

    /// The partitions decided on, in order.
    pub fn partitions(&self) -> impl Iterator<Item = SourcePartition> + '_ {
        self.partitions.keys().copied()
    }

    /// The ranges of one partition, by offset.
    pub fn of(&self, partition: SourcePartition) -> impl Iterator<Item = DecidedRange> + '_ {
        self.partitions.get(&partition).into_iter().flatten().map(|(first, (last, decision))| DecidedRange {
            first: *first,
            last: *last,
            decision: *decision,
        })
    }

    /// True when nothing is decided.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Number of offsets with `decision`.
    pub fn count(&self, decision: Decision) -> u64 {
        let ranges = self.ranges().filter(|(_, range)| range.decision == decision);
        ranges.map(|(_, range)| range.first.count_to(range.last)).sum()
    }

    /// Number of offsets decided on, gaps included.
    pub fn offset_count(&self) -> u64 {
        self.ranges().map(|(_, range)| range.first.count_to(range.last)).sum()
    }
}

/// A member of a share group as brokers know it: `ShareGroupMetadata` of KIP-1289.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShareMember {
    /// Group id.
    pub group_id: String,
    /// Member id.
    pub member_id: String,
    /// Member epoch when the decisions were taken; asked again just before staging.
    pub member_epoch: MemberEpoch,
}

/// Decisions and the member that holds the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDecisions {
    /// Holder of the acquisition locks.
    pub member: ShareMember,
    /// What it decided.
    pub decisions: Decisions,
}

/// The decisions of all members, whoever holds the records.
pub(crate) fn all_of(decided: &[MemberDecisions]) -> Decisions {
    let mut all = Decisions::new();
    for member in decided {
        all.overlay(&member.decisions);
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition() -> SourcePartition {
        SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(0) }
    }

    fn decision(code: u8) -> Decision {
        [Decision::Accept, Decision::Reject, Decision::Gap][usize::from(code % 3)]
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_map_of_single_offsets(
            steps in proptest::collection::vec((0i64..60, 0i64..20, 0u8..3), 0..40)
        ) {
            let mut decisions = Decisions::new();
            let mut model = BTreeMap::new();
            for (first, length, code) in steps {
                let range = DecidedRange {
                    first: Offset(first), last: Offset(first + length), decision: decision(code),
                };
                decisions.set(partition(), range);
                for offset in first..=first + length {
                    model.insert(offset, decision(code));
                }
            }
            for offset in 0..90 {
                prop_assert_eq!(decisions.get(partition(), Offset(offset)), model.get(&offset).copied());
                let overlaps = model.range(offset..=offset + 3).next().is_some();
                prop_assert_eq!(decisions.overlaps(partition(), Offset(offset), Offset(offset + 3)), overlaps);
            }
            for first in 0..60 {
                let window = Offset(first)..=Offset(first + 7);
                let mut found = BTreeMap::new();
                for part in decisions.within(partition(), *window.start(), *window.end()) {
                    found.extend((part.first.0..=part.last.0).map(|offset| (offset, part.decision)));
                }
                let expected = model.range(first..=first + 7).map(|(offset, decision)| (*offset, *decision));
                prop_assert_eq!(found, expected.collect());
            }
            let mut above = decisions.clone();
            above.forget_below(partition(), Offset(30));
            for offset in 0..90 {
                let expected = model.get(&offset).copied().filter(|_| offset >= 30);
                prop_assert_eq!(above.get(partition(), Offset(offset)), expected);
            }
            prop_assert_eq!(above.is_empty(), model.range(30..).next().is_none());
            let ranges: Vec<_> = decisions.of(partition()).collect();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].last < pair[1].first, "sorted and disjoint");
                let touching = pair[0].last.next() == pair[1].first;
                prop_assert!(!touching || pair[0].decision != pair[1].decision, "merged");
            }
        }
    }
}
