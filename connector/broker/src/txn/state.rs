//! The state machine of one transactional id (KIP-98, KIP-890).
//!
//! ```text
//!            init                 add partitions                end (client), time-out, init (fence)
//!  (nothing) ----> Empty ---------------------------> Ongoing --------------------------> PrepareCommit | PrepareAbort
//!                    ^ ^          add partitions        ^                                     |
//!                    | |  init                          |                                     | markers written
//!                    | +---- CompleteCommit | CompleteAbort <---------------------------------+
//!                    |                 |
//!                    +-- end (abort)---+   an empty abort under version 2: no participant, still a new epoch
//! ```
//!
//! Under transaction version 2 every end bumps the epoch: the markers carry the bumped one, and the producer goes on
//! with it. Decide and replay are apart: [`Transaction::decide`] changes nothing; its [`TransactionRecord`] is
//! appended to the log and then replayed, live as in recovery.

mod record;

use std::collections::BTreeSet;

use sharestream_base::ids::{ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};

use crate::error::ErrorCode;
use crate::log::TransactionVersion;

pub(crate) use self::record::{
    Ended, EndedBy, Identity, Open, Outcome, State, TopicPartition, TransactionRecord,
};

/// What is asked of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// InitProducerId.
    Init {
        /// The identity that the producer has, if it says.
        expected: Option<Identity>,
        /// Its time-out.
        timeout_ms: i32,
    },
    /// AddPartitionsToTxn.
    AddPartitions {
        /// Who asks.
        identity: Identity,
        /// Rules of the transaction.
        version: TransactionVersion,
        /// Participants, maybe known already.
        partitions: BTreeSet<TopicPartition>,
    },
    /// EndTxn.
    End {
        /// Who asks.
        identity: Identity,
        /// Rules of the request.
        version: TransactionVersion,
        /// How to end.
        outcome: Outcome,
    },
    /// Time has passed.
    CheckTimeOut,
    /// Every participant answered the markers that carry this identity.
    MarkersWritten {
        /// What the markers carried.
        marker: Identity,
    },
}

/// What follows from a command that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing changes; the identity is the answer.
    Keep(Identity),
    /// Append and replay the record; then its identity is the answer.
    Write(TransactionRecord),
    /// Append and replay the record, which starts the markers; the answer is its identity.
    WriteAndSendMarkers(TransactionRecord),
    /// As before, but the answer is that the producer must try again (CONCURRENT_TRANSACTIONS).
    AbortFirst(TransactionRecord),
}

/// How far a decided transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Markers are under way.
    Prepare,
    /// Every participant has its marker.
    Complete,
}

/// The machine. Its only state is the last record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    record: TransactionRecord,
}

/// Outside values that a decision may need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Wall time.
    pub(crate) now_ms: i64,
    /// A producer id that nobody has; used up only if the decision names it.
    pub(crate) fresh_id: ProducerId,
}

/// The first record of a transactional id.
pub(crate) fn first_record(timeout_ms: i32, facts: Facts) -> TransactionRecord {
    TransactionRecord {
        identity: Identity { producer_id: facts.fresh_id, epoch: ProducerEpoch(0) },
        timeout_ms,
        state: State::Empty { previous: None },
        updated_ms: facts.now_ms,
    }
}

impl Transaction {
    /// The machine as a record leaves it.
    pub(crate) fn replay(record: TransactionRecord) -> Self {
        Transaction { record }
    }

    /// The last record.
    pub(crate) fn record(&self) -> &TransactionRecord {
        &self.record
    }

    /// Decides on a command; changes nothing.
    ///
    /// Errors: PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    pub(crate) fn decide(&self, command: &Command, facts: Facts) -> Result<Decision, ErrorCode> {
        match command {
            Command::Init { expected, timeout_ms } => self.init(*expected, *timeout_ms, facts),
            Command::AddPartitions { identity, version, partitions } => {
                self.add(*identity, *version, partitions, facts)
            }
            Command::End { identity, version, outcome } => self.end(*identity, *version, *outcome, facts),
            Command::CheckTimeOut => Ok(self.check_time_out(facts)),
            Command::MarkersWritten { marker } => Ok(self.markers_written(*marker, facts)),
        }
    }

    /// Checks a participant without adding it (AddPartitionsToTxn with verify only, KIP-890 part 1).
    pub(crate) fn verify(&self, identity: Identity, partition: &TopicPartition) -> Result<(), ErrorCode> {
        self.check_identity(identity)?;
        match &self.record.state {
            State::Ongoing(open) if open.partitions.contains(partition) => Ok(()),
            State::PrepareCommit(..) | State::PrepareAbort(..) => Err(ErrorCode::ConcurrentTransactions),
            State::Ongoing(_) | State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_) => {
                Err(ErrorCode::InvalidTxnState)
            }
        }
    }

    fn next(&self, identity: Identity, state: State, facts: Facts) -> TransactionRecord {
        TransactionRecord { identity, timeout_ms: self.record.timeout_ms, state, updated_ms: facts.now_ms }
    }

    fn check_identity(&self, identity: Identity) -> Result<(), ErrorCode> {
        if identity == self.record.identity {
            Ok(())
        } else if identity.producer_id == self.record.identity.producer_id {
            Err(ErrorCode::ProducerFenced)
        } else {
            Err(ErrorCode::InvalidProducerIdMapping)
        }
    }

    fn init(&self, expected: Option<Identity>, timeout_ms: i32, facts: Facts) -> Result<Decision, ErrorCode> {
        let current = self.record.identity;
        let restart = |previous| {
            let successor =
                if is_planted(Bug::InitKeepsEpoch) { current } else { current.successor(facts.fresh_id) };
            let record = self.next(successor, State::Empty { previous }, facts);
            Ok(Decision::Write(TransactionRecord { timeout_ms, ..record }))
        };
        match (&self.record.state, expected) {
            (State::PrepareCommit(..) | State::PrepareAbort(..), _) => Err(ErrorCode::ConcurrentTransactions),
            (State::Ongoing(_), Some(expected)) if expected != current => Err(ErrorCode::ProducerFenced),
            (State::Ongoing(open), Some(_) | None) => {
                Ok(Decision::AbortFirst(self.abort(open.clone(), EndedBy::Fence, facts)))
            }
            (State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_), None) => restart(None),
            (State::Empty { previous }, Some(expected)) => {
                if expected == current {
                    restart(Some(expected))
                } else if *previous == Some(expected) {
                    Ok(Decision::Keep(current))
                } else {
                    Err(ErrorCode::ProducerFenced)
                }
            }
            (State::CompleteCommit(ended) | State::CompleteAbort(ended), Some(expected)) => {
                // A producer whose transaction timed out may go on (KIP-588); one that was fenced may not.
                let timed_out = ended.by == EndedBy::TimeOut && ended.ran_as == expected;
                if expected == current || timed_out {
                    restart(Some(expected))
                } else {
                    Err(ErrorCode::ProducerFenced)
                }
            }
        }
    }

    fn add(
        &self,
        identity: Identity,
        version: TransactionVersion,
        partitions: &BTreeSet<TopicPartition>,
        facts: Facts,
    ) -> Result<Decision, ErrorCode> {
        self.check_identity(identity)?;
        match &self.record.state {
            State::PrepareCommit(..) | State::PrepareAbort(..) => Err(ErrorCode::ConcurrentTransactions),
            State::Ongoing(open) if partitions.is_subset(&open.partitions) => Ok(Decision::Keep(identity)),
            State::Ongoing(open) => {
                let mut open = open.clone();
                open.partitions.extend(partitions.iter().cloned());
                // One leader that adds under version 2 makes the transaction one of version 2.
                if version == TransactionVersion::V2 {
                    open.version = version;
                }
                Ok(Decision::Write(self.next(identity, State::Ongoing(open), facts)))
            }
            State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_) => {
                let open = Open { version, partitions: partitions.clone(), started_ms: facts.now_ms };
                Ok(Decision::Write(self.next(identity, State::Ongoing(open), facts)))
            }
        }
    }

    fn end(
        &self,
        identity: Identity,
        version: TransactionVersion,
        outcome: Outcome,
        facts: Facts,
    ) -> Result<Decision, ErrorCode> {
        match &self.record.state {
            State::Ongoing(open) => {
                self.check_identity(identity)?;
                let mut open = open.clone();
                if version == TransactionVersion::V2 {
                    open.version = version;
                }
                Ok(Decision::WriteAndSendMarkers(self.end_open(open, outcome, facts)))
            }
            State::Empty { .. } => {
                self.check_identity(identity)?;
                self.end_nothing(version, outcome, facts)
            }
            State::PrepareCommit(_, ended) => {
                self.end_again(identity, outcome, Outcome::Commit, *ended, Phase::Prepare)
            }
            State::PrepareAbort(_, ended) => {
                self.end_again(identity, outcome, Outcome::Abort, *ended, Phase::Prepare)
            }
            State::CompleteCommit(ended) | State::CompleteAbort(ended)
                if identity == self.record.identity && identity != ended.ran_as =>
            {
                self.end_nothing(version, outcome, facts)
            }
            State::CompleteCommit(ended) => {
                self.end_again(identity, outcome, Outcome::Commit, *ended, Phase::Complete)
            }
            State::CompleteAbort(ended) => {
                self.end_again(identity, outcome, Outcome::Abort, *ended, Phase::Complete)
            }
        }
    }

    /// The producer ends an open transaction.
    fn end_open(&self, open: Open, outcome: Outcome, facts: Facts) -> TransactionRecord {
        let ran_as = self.record.identity;
        let (marker, successor) = match open.version {
            TransactionVersion::V1 => (ran_as, ran_as),
            TransactionVersion::V2 => (ran_as.bumped(), ran_as.successor(facts.fresh_id)),
        };
        let ended = Ended { by: EndedBy::Producer, version: open.version, ran_as, marker };
        let state = match outcome {
            Outcome::Commit => State::PrepareCommit(open, ended),
            Outcome::Abort => State::PrepareAbort(open, ended),
        };
        self.next(successor, state, facts)
    }

    /// EndTxn without a transaction. Under version 2 an abort still bumps the epoch: a write of a transaction that
    /// the coordinator has not heard of yet must not get in any more.
    fn end_nothing(
        &self,
        version: TransactionVersion,
        outcome: Outcome,
        facts: Facts,
    ) -> Result<Decision, ErrorCode> {
        match (version, outcome) {
            (TransactionVersion::V2, Outcome::Abort) => {
                let open = Open { version, partitions: BTreeSet::new(), started_ms: facts.now_ms };
                Ok(Decision::WriteAndSendMarkers(self.end_open(open, outcome, facts)))
            }
            (TransactionVersion::V2, Outcome::Commit) | (TransactionVersion::V1, _) => {
                Err(ErrorCode::InvalidTxnState)
            }
        }
    }

    /// EndTxn after the transaction was decided: a repetition, a contradiction, or someone else.
    fn end_again(
        &self,
        identity: Identity,
        asked: Outcome,
        was: Outcome,
        ended: Ended,
        phase: Phase,
    ) -> Result<Decision, ErrorCode> {
        if identity != ended.ran_as {
            // The successor asks for its own end while the markers of the last one are under way.
            self.check_identity(identity)?;
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let same_answer = Ok(Decision::Keep(self.record.identity));
        match (ended.by, ended.version, asked == was, phase) {
            (EndedBy::Producer, TransactionVersion::V2, true, _) => same_answer,
            // The producer keeps its epoch, so it must not begin anew before the markers are written.
            (EndedBy::Producer, TransactionVersion::V1, true, Phase::Prepare) => {
                Err(ErrorCode::ConcurrentTransactions)
            }
            (EndedBy::Producer, TransactionVersion::V1, true, Phase::Complete) => same_answer,
            (EndedBy::Producer, _, false, _) => Err(ErrorCode::InvalidTxnState),
            // The producer wanted to abort what the time-out has aborted: it gets what it wanted.
            (EndedBy::TimeOut, TransactionVersion::V2, true, _) => same_answer,
            (EndedBy::TimeOut, TransactionVersion::V2, false, _)
            | (EndedBy::TimeOut, TransactionVersion::V1, _, _)
            | (EndedBy::Fence, _, _, _) => Err(ErrorCode::ProducerFenced),
        }
    }

    /// The coordinator aborts; the bumped epoch fences the producer, whatever the version.
    fn abort(&self, open: Open, by: EndedBy, facts: Facts) -> TransactionRecord {
        let ran_as = self.record.identity;
        let ended = Ended { by, version: open.version, ran_as, marker: ran_as.bumped() };
        self.next(ran_as.successor(facts.fresh_id), State::PrepareAbort(open, ended), facts)
    }

    /// The open transaction, as long as its end is not decided: only then may its time run out.
    pub(crate) fn undecided(&self) -> Option<&Open> {
        match &self.record.state {
            State::Ongoing(open) => Some(open),
            State::PrepareCommit(open, _) if is_planted(Bug::TimeOutAfterPrepare) => Some(open),
            State::Empty { .. }
            | State::PrepareCommit(..)
            | State::PrepareAbort(..)
            | State::CompleteCommit(_)
            | State::CompleteAbort(_) => None,
        }
    }

    fn check_time_out(&self, facts: Facts) -> Decision {
        let is_late =
            |open: &&Open| facts.now_ms.saturating_sub(open.started_ms) >= i64::from(self.record.timeout_ms);
        match self.undecided().filter(is_late) {
            Some(open) => Decision::WriteAndSendMarkers(self.abort(open.clone(), EndedBy::TimeOut, facts)),
            None => Decision::Keep(self.record.identity),
        }
    }

    fn markers_written(&self, marker: Identity, facts: Facts) -> Decision {
        let identity = self.record.identity;
        match &self.record.state {
            State::PrepareCommit(_, ended) if ended.marker == marker => {
                Decision::Write(self.next(identity, State::CompleteCommit(*ended), facts))
            }
            State::PrepareAbort(_, ended) if ended.marker == marker => {
                Decision::Write(self.next(identity, State::CompleteAbort(*ended), facts))
            }
            // Markers of an earlier transaction, answered twice.
            State::PrepareCommit(..)
            | State::PrepareAbort(..)
            | State::Empty { .. }
            | State::Ongoing(_)
            | State::CompleteCommit(_)
            | State::CompleteAbort(_) => Decision::Keep(identity),
        }
    }
}

#[cfg(test)]
mod tests;
