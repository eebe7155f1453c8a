//! State of one run of records of a share partition: the pure machine that every run goes through.
//!
//! Sources: KIP-932 (delivery states), KIP-1191 (dead letters), KIP-1222 (renew), KIP-1289 (transactional acknowledgement). The states and
//! moves are those of `RecordState`'s diagram; who may make each move is said with each [`Event`].

mod event;
mod moves;

use std::fmt;
use std::sync::Arc;

use sharestream_base::Instant;
use sharestream_base::ids::{ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};

pub(crate) use self::event::Event;

/// Member id of a share consumer. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(pub(crate) Arc<str>);

impl MemberId {
    /// Copies `text`.
    pub(crate) fn new(text: &str) -> Self {
        MemberId(Arc::from(text))
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An ordinary (not transactional) final acknowledgement of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Acknowledgement {
    /// Type 0: the offsets carry no deliverable record (control records, compaction holes).
    Gap,
    /// Type 1: processed.
    Accept,
    /// Type 2: given back, for anyone.
    Release,
    /// Type 3: can never be processed.
    Reject,
}

/// What a transaction wants to become of a run when it commits. RELEASE and RENEW cannot be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Intent {
    /// Type 0, ends as archived (as an ordinary gap acknowledgement does in Kafka).
    Gap,
    /// Type 1, ends as acknowledged.
    Accept,
    /// Type 3, ends as archived.
    Reject,
    /// Type 3 in a group that had a dead letter topic when it was staged: ends as archived, after its dead letter.
    DeadLetter,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TxnOutcome {
    /// COMMIT marker.
    Commit,
    /// ABORT marker.
    Abort,
}

/// The transaction that a run was staged into, and with which intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Staged {
    /// Producer id of the transaction.
    pub(crate) producer_id: ProducerId,
    /// Producer epoch of the transaction. Its marker carries a higher one (transaction version 2).
    pub(crate) producer_epoch: ProducerEpoch,
    /// What the run becomes on commit.
    pub(crate) intent: Intent,
}

/// A marker of the transaction coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Marker {
    /// Producer id whose transaction ended.
    pub(crate) producer_id: ProducerId,
    /// Epoch that the marker carries: bumped, so above that of everything it resolves (DESIGN section 8).
    pub(crate) producer_epoch: ProducerEpoch,
    /// How it ended.
    pub(crate) outcome: TxnOutcome,
}

impl Marker {
    /// True when the marker ends the transaction that `staged` belongs to.
    pub(crate) fn resolves(&self, staged: &Staged) -> bool {
        let ends = if is_planted(Bug::MarkerMatchedToStagedEpoch) {
            staged.producer_epoch == self.producer_epoch
        } else {
            staged.producer_epoch < self.producer_epoch
        };
        self.producer_id == staged.producer_id && ends
    }
}

/// Number of one durable write of a share partition's state, unique within the partition's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(pub(crate) u64);

/// Where a settling run goes once its write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Settled {
    /// Deliverable again.
    Available,
    /// Processed.
    Acknowledged,
    /// Given up, once the dead letter is written.
    Archiving,
    /// Given up.
    Archived,
}

/// Durability of a staged run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StageWrite {
    /// The write is on its way. A marker that arrives meanwhile is kept: the write may have been durable before it.
    Outstanding {
        /// The write that carries it.
        write: WriteId,
        /// Who held the records; gets them back when the write fails.
        holder: MemberId,
        /// A marker that overtook the answer of the write.
        resolved: Option<TxnOutcome>,
    },
    /// Durable: only a marker moves it.
    Durable,
}

/// State of a run of records with the same history.
///
/// ```text
/// available --acquire--> acquired --acknowledge--> settling --written--> acknowledged (end)
///     ^                   ^  |  |                     | |  \--written--> archived (end)
///     |                   |  |  \-lock expired,       | |
///     |                   |  |    session closed------^ |
///     |                   \--+--write failed, has owner-/
///     |                   ^  |
///     |      write failed |  \--stage--> txn_pending(outstanding) --written--> txn_pending(durable)
///     |                   \-----------------/
///     +-- settling --written (release; expiry or close below the delivery limit)
///     +-- txn_pending --abort marker
///         txn_pending --commit marker--> acknowledged | archived (end) | archiving
/// settling --written (given up, with a dead letter topic)--> archiving --letter done--> settling (archived)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// Deliverable to any member.
    Available,
    /// Delivered to `holder`, whose lock runs out at `lock_deadline`.
    Acquired {
        /// The member that may acknowledge, renew or stage.
        holder: MemberId,
        /// When the lock expires.
        lock_deadline: Instant,
    },
    /// Decided, and the durable write of it is on its way: nobody can touch it meanwhile.
    Settling {
        /// State after the write.
        target: Settled,
        /// The write that carries it.
        write: WriteId,
        /// Who gets the records back when the write fails; none after lock expiry or session close.
        holder: Option<MemberId>,
    },
    /// Staged into a transaction: not delivered, not expired, not released; the marker decides.
    TxnPending {
        /// Transaction and intent.
        staged: Staged,
        /// Whether it is durable.
        write: StageWrite,
    },
    /// Given up, and its dead letter is not written yet, or nobody knows. Nobody can touch it, a new leader writes the
    /// letter again.
    Archiving {
        /// The letter that is on its way.
        letter: Option<WriteId>,
    },
    /// End: processed.
    Acknowledged,
    /// End: rejected, a gap, aborted data or out of attempts.
    Archived,
}

/// What becomes of a run on an event that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The new state.
    To(RecordState),
    /// Success, nothing changes: a repeat, or an event that is not about this run.
    Same,
    /// The state stays, but the write has to be made (again): it carries an outstanding stage.
    Rewrite(RecordState),
}

/// The event is not allowed in this state, or not for this member: INVALID_RECORD_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the records are not acquired by this member")]
pub(crate) struct InvalidRecordState;

impl Acknowledgement {
    fn target(self, attempts: Attempts) -> Settled {
        match self {
            Acknowledgement::Accept => Settled::Acknowledged,
            Acknowledgement::Gap => Settled::Archived,
            Acknowledgement::Reject => attempts.given_up(),
            Acknowledgement::Release => attempts.given_back(),
        }
    }
}

impl Intent {
    /// The end state after a commit.
    pub(crate) fn committed(self) -> Settled {
        match self {
            Intent::Accept => Settled::Acknowledged,
            Intent::Gap | Intent::Reject => Settled::Archived,
            Intent::DeadLetter => Settled::Archiving,
        }
    }

    /// True when both were the same acknowledgement: whether it has a dead letter was decided when it was first staged.
    fn is_repeat_of(self, staged: Intent) -> bool {
        let rejects = |intent| matches!(intent, Intent::Reject | Intent::DeadLetter);
        self == staged || (rejects(self) && rejects(staged))
    }
}

impl From<Settled> for RecordState {
    fn from(target: Settled) -> Self {
        match target {
            Settled::Available => RecordState::Available,
            Settled::Acknowledged => RecordState::Acknowledged,
            Settled::Archiving => RecordState::Archiving { letter: None },
            Settled::Archived => RecordState::Archived,
        }
    }
}

/// Deliveries so far against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Deliveries so far.
    pub(crate) delivery_count: u16,
    /// `share.delivery.count.limit`.
    pub(crate) limit: u16,
    /// The group has a dead letter topic.
    pub(crate) dead_letters: bool,
}

impl Attempts {
    /// Where a run goes that is given back: at the limit it is given up.
    fn given_back(self) -> Settled {
        if self.delivery_count >= self.limit { self.given_up() } else { Settled::Available }
    }

    /// Where a run goes that is given up.
    fn given_up(self) -> Settled {
        if self.dead_letters { Settled::Archiving } else { Settled::Archived }
    }
}

impl RecordState {
    /// True for the ends: the share-partition start offset may pass.
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            RecordState::Acknowledged | RecordState::Archived => true,
            RecordState::Available
            | RecordState::Acquired { .. }
            | RecordState::Settling { .. }
            | RecordState::Archiving { .. }
            | RecordState::TxnPending { .. } => false,
        }
    }

    /// The next state. On `Err` nothing has changed.
    pub(crate) fn apply(
        &self,
        event: &Event<'_>,
        attempts: Attempts,
    ) -> Result<Transition, InvalidRecordState> {
        match self {
            RecordState::Available => moves::available(event),
            RecordState::Acquired { holder, lock_deadline } => {
                moves::acquired(holder, *lock_deadline, event, attempts)
            }
            RecordState::Settling { target, write, holder } => {
                moves::settling(*target, *write, holder.as_ref(), event)
            }
            RecordState::TxnPending { staged, write } => moves::txn_pending(staged, write, event),
            RecordState::Archiving { letter } => moves::archiving(*letter, event),
            RecordState::Acknowledged | RecordState::Archived => moves::terminal(event),
        }
    }
}

#[cfg(test)]
mod tests;
