//! The transaction coordinator's view of one transactional id, under transaction version 2 (KIP-890).
//!
//! ```text
//! empty, ended --first write--> ongoing --EndTxn, or the coordinator aborts--> ending --last marker--> ended
//!   \--InitProducerId--> empty (producer epoch + 1)
//! ```
//! Every end raises the producer epoch, and the markers carry the raised one.

use super::names::{Checkpoint, Process, ProducerEpoch, RecordSet};
use super::rules::Rules;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything in it happens.
    Commit,
    /// Nothing in it happens.
    Abort,
}

/// A partition that takes part in a transaction and gets its marker. The output partitions are left out: what
/// they hold counts from the moment the coordinator has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Participant {
    /// The partition of the outcome topic.
    OutcomeLog,
    /// The share-state partition (`__share_group_state`) of a source partition.
    ShareState(u8),
}

/// A set of participants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Participants(u8);

impl Participants {
    fn bit(participant: Participant) -> u8 {
        match participant {
            Participant::OutcomeLog => 1,
            Participant::ShareState(partition) => 2 << partition,
        }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `participant` is one of them.
    pub fn contains(self, participant: Participant) -> bool {
        self.0 & Self::bit(participant) != 0
    }

    fn insert(&mut self, participant: Participant) {
        self.0 |= Self::bit(participant);
    }

    fn remove(&mut self, participant: Participant) {
        self.0 &= !Self::bit(participant);
    }

    /// All participants that the model has, for enumeration.
    pub const ALL: [Participant; 3] =
        [Participant::OutcomeLog, Participant::ShareState(0), Participant::ShareState(1)];
}

/// What the coordinator has durably written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// No transaction under this producer epoch yet.
    Empty,
    /// Open.
    Ongoing(Participants),
    /// PREPARE_COMMIT or PREPARE_ABORT: decided, markers still to be written to the participants named.
    Ending(Verdict, Participants),
    /// COMPLETE_COMMIT or COMPLETE_ABORT.
    Ended(Verdict),
}

/// The outcome record that is part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Content of the manifest that it names: all records that operator state counts.
    pub state: RecordSet,
}

/// What an open transaction holds. It is no part of the coordinator: the model keeps it here to know what a
/// commit brings about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writes {
    /// Who wrote.
    pub writer: Option<Process>,
    /// Records with at least one output.
    pub outputs: RecordSet,
    /// Records with two outputs.
    pub doubled: RecordSet,
    /// The outcome record, if it has been produced.
    pub outcome: Option<Outcome>,
}

/// One transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The only producer epoch that may write.
    pub epoch: ProducerEpoch,
    /// Where its transaction stands.
    pub progress: Progress,
    /// What its open transaction holds.
    pub writes: Writes,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// Another producer epoch is current.
    Fenced,
    /// CONCURRENT_TRANSACTIONS: the markers of the last transaction are still under way; try again.
    StillEnding,
}

/// Answer to EndTxn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAnswer {
    /// The transaction ends, or has ended, as asked.
    Done {
        /// What became effective by this request; none for a repeat.
        committed_now: Option<Writes>,
    },
    /// Fenced, or the transaction ended otherwise. It does not tell how.
    Refused,
}

/// Answer to InitProducerId.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitAnswer {
    /// Everything older is resolved; the caller has the new producer epoch.
    Taken(ProducerEpoch),
    /// CONCURRENT_TRANSACTIONS: an older transaction is being ended, perhaps because of this request; try
    /// again.
    StillEnding,
}

impl Transaction {
    /// A fresh id.
    pub fn new() -> Transaction {
        Transaction { epoch: ProducerEpoch(0), progress: Progress::Empty, writes: Writes::default() }
    }

    /// Whether a transaction is open.
    pub fn is_ongoing(&self) -> bool {
        matches!(self.progress, Progress::Ongoing(_))
    }

    /// Whether the markers of a decided transaction are still under way.
    pub fn is_ending(&self) -> bool {
        matches!(self.progress, Progress::Ending(..))
    }

    /// Whether nothing is open or under way.
    pub fn is_resolved(&self) -> bool {
        matches!(self.progress, Progress::Empty | Progress::Ended(_))
    }

    /// Adds a write of `writer` to the transaction, which it begins if needed. `participant` is none for
    /// outputs.
    pub fn write(
        &mut self,
        epoch: ProducerEpoch,
        writer: Process,
        participant: Option<Participant>,
    ) -> Result<(), WriteRefusal> {
        if epoch != self.epoch {
            return Err(WriteRefusal::Fenced);
        }
        if self.is_ending() {
            return Err(WriteRefusal::StillEnding);
        }
        let mut participants = match self.progress {
            Progress::Ongoing(participants) => participants,
            Progress::Empty | Progress::Ending(..) | Progress::Ended(_) => Participants::default(),
        };
        if let Some(participant) = participant {
            participants.insert(participant);
        }
        self.progress = Progress::Ongoing(participants);
        self.writes.writer = Some(writer);
        Ok(())
    }

    /// EndTxn(COMMIT). The same request again is answered like the first as long as the id has not moved on.
    pub fn commit(&mut self, epoch: ProducerEpoch, rules: &Rules) -> EndAnswer {
        match self.progress {
            Progress::Ongoing(_) if epoch == self.epoch || !rules.end_txn_checks_epoch => {
                EndAnswer::Done { committed_now: Some(self.decide(Verdict::Commit)) }
            }
            Progress::Ending(Verdict::Commit, _) | Progress::Ended(Verdict::Commit)
                if epoch.bumped() == self.epoch && rules.end_txn_is_idempotent =>
            {
                EndAnswer::Done { committed_now: None }
            }
            Progress::Empty | Progress::Ongoing(_) | Progress::Ending(..) | Progress::Ended(_) => {
                EndAnswer::Refused
            }
        }
    }

    /// InitProducerId.
    pub fn init(&mut self) -> InitAnswer {
        match self.progress {
            Progress::Ongoing(_) => {
                self.decide(Verdict::Abort);
                InitAnswer::StillEnding
            }
            Progress::Ending(..) => InitAnswer::StillEnding,
            Progress::Empty | Progress::Ended(_) => {
                self.epoch = self.epoch.bumped();
                self.progress = Progress::Empty;
                InitAnswer::Taken(self.epoch)
            }
        }
    }

    /// The coordinator aborts because of the transaction time-out.
    pub fn time_out(&mut self) {
        self.decide(Verdict::Abort);
    }

    /// PREPARE_COMMIT or PREPARE_ABORT becomes durable. Returns what the transaction held.
    fn decide(&mut self, verdict: Verdict) -> Writes {
        let Progress::Ongoing(participants) = self.progress else { return Writes::default() };
        self.epoch = self.epoch.bumped();
        self.progress = match participants.is_empty() {
            true => Progress::Ended(verdict),
            false => Progress::Ending(verdict, participants),
        };
        std::mem::take(&mut self.writes)
    }

    /// A marker has reached `participant`. After the last one the transaction is complete.
    pub fn marker_written(&mut self, participant: Participant) {
        let Progress::Ending(verdict, mut remaining) = self.progress else { return };
        remaining.remove(participant);
        self.progress = match remaining.is_empty() {
            true => Progress::Ended(verdict),
            false => Progress::Ending(verdict, remaining),
        };
    }
}

impl Default for Transaction {
    fn default() -> Self {
        Transaction::new()
    }
}
