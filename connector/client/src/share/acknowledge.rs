//! Decisions on acquired records: types, ranges, and their coalescing into batches (KIP-932, KIP-1222).

use std::collections::BTreeMap;
use std::fmt;

use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::share_acknowledge::AcknowledgementBatch as WireBatch;

/// What becomes of an acquired offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AcknowledgeType {
    /// No deliverable record is there: a control record or a compaction hole.
    Gap,
    /// Processed.
    Accept,
    /// Back to the group, for another attempt.
    Release,
    /// Never to be processed.
    Reject,
    /// Still being processed: the lock starts anew (KIP-1222).
    Renew,
}

impl AcknowledgeType {
    /// The number on the wire.
    pub fn code(self) -> i8 {
        match self {
            AcknowledgeType::Gap => 0,
            AcknowledgeType::Accept => 1,
            AcknowledgeType::Release => 2,
            AcknowledgeType::Reject => 3,
            AcknowledgeType::Renew => 4,
        }
    }
}

impl fmt::Display for AcknowledgeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AcknowledgeType::Gap => "GAP",
            AcknowledgeType::Accept => "ACCEPT",
            AcknowledgeType::Release => "RELEASE",
            AcknowledgeType::Reject => "REJECT",
            AcknowledgeType::Renew => "RENEW",
        })
    }
}

/// Offsets `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OffsetRange {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
}

/// Decisions on offsets `first..=last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcknowledgementBatch {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// One type for the whole range, or one for each offset.
    pub types: Vec<AcknowledgeType>,
}

impl AcknowledgementBatch {
    /// One decision on the whole range.
    pub fn uniform(first: Offset, last: Offset, kind: AcknowledgeType) -> Self {
        AcknowledgementBatch { first, last, types: vec![kind] }
    }

    pub(crate) fn to_wire(&self) -> WireBatch {
        WireBatch {
            first_offset: self.first.0,
            last_offset: self.last.0,
            acknowledge_types: self.types.iter().map(|kind| kind.code()).collect(),
        }
    }
}

/// Decisions to be staged into a transaction: a plain value that may travel to another process (KIP-1289).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareAcknowledgements {
    /// Batches by topic id and partition: sorted, disjoint.
    pub partitions: BTreeMap<(TopicId, PartitionIndex), Vec<AcknowledgementBatch>>,
}

impl ShareAcknowledgements {
    /// True when there is nothing to stage.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// The decisions by topic id and partition.
    pub fn acknowledgements(&self) -> &BTreeMap<(TopicId, PartitionIndex), Vec<AcknowledgementBatch>> {
        &self.partitions
    }
}

/// What became of the ordinary acknowledgements of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckResult {
    /// Topic.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// What was acknowledged.
    pub batches: Vec<AcknowledgementBatch>,
    /// `None` when the leader took them. INVALID_RECORD_STATE: locks were lost, the records come back.
    /// NETWORK_EXCEPTION: no answer came, they may or may not have been taken.
    pub error: Option<KafkaError>,
}

/// Decisions by offset, not yet sent: sorted, disjoint, neighbours of equal type merged. The later decision on an
/// offset wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    ranges: BTreeMap<i64, (i64, AcknowledgeType)>,
}

impl Decided {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Decides on `first..=last`.
    pub(crate) fn set(&mut self, first: Offset, last: Offset, kind: AcknowledgeType) {
        let (mut first, mut last) = (first.0, last.0);
        if last < first {
            return;
        }
        // The usual case: right behind the last range, of the same type.
        if let Some(mut tail) = self.ranges.last_entry() {
            let (end, old) = *tail.get();
            if end + 1 == first && old == kind {
                tail.insert((last, kind));
                return;
            }
        }
        self.cut(first, last);
        let before = self.ranges.range(..first).next_back().map(|(start, (end, old))| (*start, *end, *old));
        if let Some((start, _, _)) = before.filter(|(_, end, old)| end + 1 == first && *old == kind) {
            self.ranges.remove(&start);
            first = start;
        }
        let behind = self.ranges.get(&(last + 1)).copied();
        if let Some((end, _)) = behind.filter(|(_, old)| *old == kind) {
            self.ranges.remove(&(last + 1));
            last = end;
        }
        self.ranges.insert(first, (last, kind));
    }

    /// Forgets what was decided on `first..=last`; keeps what sticks out on either side.
    fn cut(&mut self, first: i64, last: i64) {
        let overlapping: Vec<(i64, i64, AcknowledgeType)> = self
            .ranges
            .range(..=last)
            .rev()
            .take_while(|(_, (end, _))| *end >= first)
            .map(|(start, (end, old))| (*start, *end, *old))
            .collect();
        for (start, end, old) in overlapping {
            self.ranges.remove(&start);
            if start < first {
                self.ranges.insert(start, (first - 1, old));
            }
            if end > last {
                self.ranges.insert(last + 1, (end, old));
            }
        }
    }

    /// Forgets what was decided on `first..=last`.
    pub(crate) fn forget(&mut self, range: OffsetRange) {
        self.cut(range.first.0, range.last.0);
    }

    /// Takes the decisions whose type `wanted` accepts.
    pub(crate) fn take(&mut self, wanted: impl Fn(AcknowledgeType) -> bool) -> Vec<AcknowledgementBatch> {
        let mut taken = Vec::new();
        self.ranges.retain(|first, (last, kind)| {
            let take = wanted(*kind);
            if take {
                taken.push(AcknowledgementBatch::uniform(Offset(*first), Offset(*last), *kind));
            }
            !take
        });
        taken
    }

    /// The first decision whose type `wanted` accepts.
    pub(crate) fn find(
        &self,
        wanted: impl Fn(AcknowledgeType) -> bool,
    ) -> Option<(OffsetRange, AcknowledgeType)> {
        self.ranges
            .iter()
            .find(|(_, (_, kind))| wanted(*kind))
            .map(|(first, (last, kind))| (OffsetRange { first: Offset(*first), last: Offset(*last) }, *kind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [AcknowledgeType; 5] = [
        AcknowledgeType::Gap,
        AcknowledgeType::Accept,
        AcknowledgeType::Release,
        AcknowledgeType::Reject,
        AcknowledgeType::Renew,
    ];

    #[test]
    fn codes_are_those_of_the_protocol() {
        assert_eq!(KINDS.map(AcknowledgeType::code), [0, 1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_map_of_single_offsets(
            steps in proptest::collection::vec((0i64..60, 0i64..20, 0usize..5), 0..40)
        ) {
            let mut decided = Decided::default();
            let mut model = BTreeMap::new();
            for (first, length, kind) in steps {
                decided.set(Offset(first), Offset(first + length), KINDS[kind]);
                model.extend((first..=first + length).map(|offset| (offset, KINDS[kind])));
            }
            let batches = decided.take(|_| true);
            prop_assert!(decided.is_empty());
            let mut read = BTreeMap::new();
            for batch in &batches {
                read.extend((batch.first.0..=batch.last.0).map(|offset| (offset, batch.types[0])));
            }
            prop_assert_eq!(read, model);
            for pair in batches.windows(2) {
                prop_assert!(pair[0].last < pair[1].first);
                let touching = pair[0].last.next() == pair[1].first;
                prop_assert!(!touching || pair[0].types != pair[1].types, "merged");
            }
        }
    }
}
