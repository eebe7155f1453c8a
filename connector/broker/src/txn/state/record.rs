//! What is known of a transactional id: the data of the state machine, which is what its log keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use crate::log::TransactionVersion;

/// From this epoch on a producer id is used up: the markers of its last transaction need one epoch more.
pub(super) const EPOCH_LAST: i16 = i16::MAX - 1;

/// Producer id and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The id.
    pub(crate) producer_id: ProducerId,
    /// Its incarnation.
    pub(crate) epoch: ProducerEpoch,
}

impl Identity {
    /// What markers carry that end a transaction of this identity with a bump.
    pub(super) fn bumped(self) -> Identity {
        Identity { epoch: ProducerEpoch(self.epoch.0.saturating_add(1)), ..self }
    }

    /// The identity after this one: the next epoch, or a fresh id when the epochs are used up.
    pub(super) fn successor(self, fresh_id: ProducerId) -> Identity {
        if self.epoch.0 >= EPOCH_LAST {
            Identity { producer_id: fresh_id, epoch: ProducerEpoch(0) }
        } else {
            self.bumped()
        }
    }
}

/// A participant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicPartition {
    /// Topic by name, as in the protocol.
    pub(crate) topic: Arc<str>,
    /// Partition.
    pub(crate) partition: PartitionIndex,
}

/// Commit or abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All effects count.
    Commit,
    /// None does.
    Abort,
}

/// Who ended a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its producer, with EndTxn.
    Producer,
    /// The coordinator, because its time was up.
    TimeOut,
    /// A newer incarnation, with InitProducerId.
    Fence,
}

/// A transaction with participants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Rules that it follows.
    pub(crate) version: TransactionVersion,
    /// Where its marker must go.
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// Wall time of the first participant.
    pub(crate) started_ms: i64,
}

/// How a transaction ended, kept for repetitions of the request that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Who did it.
    pub(crate) by: EndedBy,
    /// Rules that it followed.
    pub(crate) version: TransactionVersion,
    /// Under which identity it ran.
    pub(crate) ran_as: Identity,
    /// What its markers carry.
    pub(crate) marker: Identity,
}

/// State with the data that is valid in it. The producer's identity is beside it, in [`TransactionRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Initialised, nothing open.
    Empty {
        /// The identity before the last init that named one: a repetition of that init is recognised.
        previous: Option<Identity>,
    },
    /// Participants write.
    Ongoing(Open),
    /// Decided; markers under way.
    PrepareCommit(Open, Ended),
    /// Decided; markers under way.
    PrepareAbort(Open, Ended),
    /// Every participant has its marker.
    CompleteCommit(Ended),
    /// Every participant has its marker.
    CompleteAbort(Ended),
}

impl State {
    /// As Kafka prints it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Empty { .. } => "Empty",
            State::Ongoing(_) => "Ongoing",
            State::PrepareCommit(..) => "PrepareCommit",
            State::PrepareAbort(..) => "PrepareAbort",
            State::CompleteCommit(_) => "CompleteCommit",
            State::CompleteAbort(_) => "CompleteAbort",
        }
    }
}

/// Everything that is known of a transactional id: one record of the log replaces the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransactionRecord {
    /// Who may go on. In Prepare states: who may go on once the markers are written.
    pub(crate) identity: Identity,
    /// Time-out of each transaction, as its producer asked.
    pub(crate) timeout_ms: i32,
    /// The state.
    pub(crate) state: State,
    /// Wall time of this record.
    pub(crate) updated_ms: i64,
}
