//! The durable form of a share partition: what its leader writes to and reads from the share coordinator.
//!
//! Acquired is never durable (KIP-932): after a leader change those records are simply available. A staged run is
//! durable as TX_PENDING with its transaction and intent (KIP-1289, steps 10 and 11 of the flow).

use std::fmt;
use std::sync::Arc;

use sharestream_base::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, StateEpoch, TopicId,
};
use sharestream_wire::messages as wire;

use super::record_state::{Intent, Settled, Staged};

/// Inclusive run of offsets; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OffsetRange {
    /// First offset.
    pub(crate) first: Offset,
    /// Last offset, inclusive.
    pub(crate) last: Offset,
}

impl OffsetRange {
    /// `first..=last`; none when that is empty.
    pub(crate) fn new(first: Offset, last: Offset) -> Option<Self> {
        (first <= last).then_some(OffsetRange { first, last })
    }

    /// Number of offsets.
    pub(crate) fn count(self) -> i64 {
        self.last.0 - self.first.0 + 1
    }

    /// The common part.
    pub(crate) fn intersect(self, other: OffsetRange) -> Option<OffsetRange> {
        OffsetRange::new(self.first.max(other.first), self.last.min(other.last))
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// Which share partition: a partition of a topic as one group sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShareKey {
    /// Group id.
    pub(crate) group: Arc<str>,
    /// Topic id: a re-created topic is another share partition.
    pub(crate) topic_id: TopicId,
    /// Partition.
    pub(crate) partition: PartitionIndex,
}

impl fmt::Display for ShareKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.group, self.topic_id, self.partition)
    }
}

/// Stored acknowledge type of a REJECT that was staged while the group had a dead letter topic.
const REJECT_WITH_LETTER: i8 = -3;

/// Durable state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DurableState {
    /// Id 0.
    Available,
    /// Id 2.
    Acknowledged,
    /// Id 3: the dead letter is to be written (KIP-1191).
    Archiving,
    /// Id 4.
    Archived,
    /// Id 5.
    TxnPending(Staged),
}

impl DurableState {
    /// True for the ends.
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            DurableState::Acknowledged | DurableState::Archived => true,
            DurableState::Available | DurableState::Archiving | DurableState::TxnPending(_) => false,
        }
    }
}

impl From<Settled> for DurableState {
    fn from(target: Settled) -> Self {
        match target {
            Settled::Available => DurableState::Available,
            Settled::Acknowledged => DurableState::Acknowledged,
            Settled::Archiving => DurableState::Archiving,
            Settled::Archived => DurableState::Archived,
        }
    }
}

/// One run of durable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StateBatch {
    /// Its offsets.
    pub(crate) range: OffsetRange,
    /// Its state.
    pub(crate) state: DurableState,
    /// Deliveries so far.
    pub(crate) delivery_count: u16,
}

/// Everything durable of one share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DurableShare {
    /// Incarnation of the offsets: a reset raises it.
    pub(crate) state_epoch: StateEpoch,
    /// Epoch of the source leader that wrote last.
    pub(crate) leader_epoch: LeaderEpoch,
    /// Share-partition start offset; none while nobody has chosen one.
    pub(crate) start_offset: Option<Offset>,
    /// Runs at and above the start offset, ascending and disjoint; what is missing is available.
    pub(crate) batches: Vec<StateBatch>,
}

impl DurableShare {
    /// Offsets from the start offset on that are at an end (Kafka's DeliveryCompleteCount, KIP-1226); none while there
    /// is no start offset.
    pub(crate) fn complete_count(&self) -> Option<i32> {
        complete_count(self.start_offset, &self.batches)
    }
}

/// Offsets of `runs`, which are disjoint, that are at an end and not below the start offset.
pub(crate) fn complete_count<'a>(
    start_offset: Option<Offset>,
    runs: impl IntoIterator<Item = &'a StateBatch>,
) -> Option<i32> {
    let from = OffsetRange { first: start_offset?, last: Offset(i64::MAX) };
    let done = runs.into_iter().filter(|run| run.state.is_terminal());
    let count: i64 = done.filter_map(|run| run.range.intersect(from)).map(OffsetRange::count).sum();
    Some(i32::try_from(count).unwrap_or(i32::MAX))
}

/// A number in a stored or sent batch that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("state batch has an unknown {0} or an empty range")]
pub(crate) struct UnknownState(&'static str);

impl StateBatch {
    /// As sent between nodes and stored.
    pub(crate) fn to_wire(self) -> wire::StateBatch {
        let batch = wire::StateBatch {
            first_offset: self.range.first.0,
            last_offset: self.range.last.0,
            delivery_count: i16::try_from(self.delivery_count).unwrap_or(i16::MAX),
            ..wire::StateBatch::default()
        };
        match self.state {
            DurableState::Available => wire::StateBatch { delivery_state: 0, ..batch },
            DurableState::Acknowledged => wire::StateBatch { delivery_state: 2, ..batch },
            DurableState::Archiving => wire::StateBatch { delivery_state: 3, ..batch },
            DurableState::Archived => wire::StateBatch { delivery_state: 4, ..batch },
            DurableState::TxnPending(staged) => wire::StateBatch {
                delivery_state: 5,
                producer_id: staged.producer_id.0,
                producer_epoch: staged.producer_epoch.0,
                ack_type: match staged.intent {
                    Intent::Gap => 0,
                    Intent::Accept => 1,
                    Intent::Reject => 3,
                    Intent::DeadLetter => REJECT_WITH_LETTER,
                },
                ..batch
            },
        }
    }

    /// From a node or a log. Errors: an id that is not known.
    pub(crate) fn from_wire(batch: &wire::StateBatch) -> Result<StateBatch, UnknownState> {
        let range = OffsetRange::new(Offset(batch.first_offset), Offset(batch.last_offset));
        let state = match batch.delivery_state {
            0 => DurableState::Available,
            2 => DurableState::Acknowledged,
            3 => DurableState::Archiving,
            4 => DurableState::Archived,
            5 => DurableState::TxnPending(Staged {
                producer_id: ProducerId(batch.producer_id),
                producer_epoch: ProducerEpoch(batch.producer_epoch),
                intent: match batch.ack_type {
                    0 => Intent::Gap,
                    1 => Intent::Accept,
                    3 => Intent::Reject,
                    REJECT_WITH_LETTER => Intent::DeadLetter,
                    _ => return Err(UnknownState("acknowledge type")),
                },
            }),
            _ => return Err(UnknownState("delivery state")),
        };
        Ok(StateBatch {
            range: range.ok_or(UnknownState("range"))?,
            state,
            delivery_count: u16::try_from(batch.delivery_count)
                .map_err(|_| UnknownState("delivery count"))?,
        })
    }
}
