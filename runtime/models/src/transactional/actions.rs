//! Everything that can happen, one step at a time.

use std::fmt;

use super::manifests::Manifest;
use super::names::{Process, Record, TransactionalId};
use super::share::StageWrite;
use super::state::EndTxnRequest;
use super::transaction::Participant;

/// What becomes of a manifest write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestAnswer {
    /// Stored and answered.
    Stored,
    /// Stored, the answer is lost.
    StoredUnanswered,
    /// Neither stored nor answered.
    NotStored,
    /// Not answered, stored later.
    StoredLater,
}

/// What becomes of a stage write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageAnswer {
    /// The shard judged it, and the requester hears of it.
    Answered,
    /// The shard judged it, but the answer to the requester is lost.
    Lost,
    /// The shard could not write.
    Failed,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next incarnation takes ownership (create-if-absent) and lists the pending manifests.
    Start(Process),
    /// InitProducerId during recovery.
    Init(Process, TransactionalId),
    /// Recovery reads the owner again and takes the high watermark of the outcome partition.
    ReadOwner(Process),
    /// Recovery reads the outcome partition, decides on the manifests, and runs.
    Decide(Process),
    /// The share group hands a record to a process, which adds it to its filling epoch.
    Acquire(Process, Record),
    /// The epoch of a slot is sealed and its outputs are written.
    WriteOutputs(Process, usize),
    /// The manifest of the epoch in a slot is written.
    WriteManifest(Process, usize, ManifestAnswer),
    /// A manifest write of unknown outcome is settled by reading.
    ReadManifest(Process, usize),
    /// The outcome record is produced.
    WriteOutcome(Process, usize),
    /// TxnShareAcknowledge is sent to the leader of a source partition.
    Stage(Process, usize, usize),
    /// EndTxn(COMMIT) is sent, for the first time or again.
    SendEnd(Process, usize),
    /// The deadline for an EndTxn of unknown outcome has passed: recover in place.
    GiveUpEnd(Process, usize),
    /// Planted: an EndTxn of unknown outcome is followed by InitProducerId and then taken for aborted.
    AssumeAborted(Process, usize),
    /// Planted: an EndTxn of unknown outcome is taken for committed.
    AssumeCommitted(Process, usize),
    /// A process learns that it has lost locks of an epoch that is not staged.
    NoticeLostLocks(Process),
    /// A stage write arrives at its shard.
    StageWriteArrives(StageWrite, StageAnswer),
    /// EndTxn arrives at the coordinator; the flag says that the answer is lost.
    EndArrives(EndTxnRequest, bool),
    /// A marker arrives.
    MarkerArrives(TransactionalId, Participant),
    /// The source leader reads the durable state after a marker.
    LeaderLearns(usize),
    /// The broker gives back what a dead process held.
    LocksOfDeadExpire(Process),
    /// The lock of a record that a living process has forgotten runs out, since nobody renews it.
    ForgottenLockExpires(Process, Record),
    /// The coordinator aborts the transaction of a dead process.
    TimeOutOfDead(TransactionalId),
    /// A manifest write lands late.
    LateManifestLands(Manifest),
    /// A process dies.
    Crash(Process),
    /// An EndTxn is not answered in time. It is still under way.
    EndUnanswered(Process, usize),
    /// The coordinator aborts the transaction of a living process.
    TimeOut(TransactionalId),
    /// A living process loses all its locks.
    LoseLocks(Process),
    /// Leadership of a source partition moves.
    MoveLeader(usize),
    /// The outcome topic is deleted and created again.
    LoseOutcomeTopic,
    /// The sink fails before it has written the outputs.
    SinkFails(Process, usize),
}

impl Action {
    /// Whether it is a fault, which may happen but cannot be relied on.
    pub fn is_fault(&self) -> bool {
        match self {
            Action::WriteManifest(_, _, answer) => *answer != ManifestAnswer::Stored,
            Action::StageWriteArrives(_, answer) => *answer != StageAnswer::Answered,
            Action::EndArrives(_, is_answer_lost) => *is_answer_lost,
            Action::Crash(_)
            | Action::EndUnanswered(..)
            | Action::TimeOut(_)
            | Action::LoseLocks(_)
            | Action::MoveLeader(_)
            | Action::LoseOutcomeTopic
            | Action::SinkFails(..) => true,
            Action::Start(_)
            | Action::Init(..)
            | Action::ReadOwner(_)
            | Action::Decide(_)
            | Action::Acquire(..)
            | Action::WriteOutputs(..)
            | Action::ReadManifest(..)
            | Action::WriteOutcome(..)
            | Action::Stage(..)
            | Action::SendEnd(..)
            | Action::GiveUpEnd(..)
            | Action::AssumeAborted(..)
            | Action::AssumeCommitted(..)
            | Action::NoticeLostLocks(_)
            | Action::MarkerArrives(..)
            | Action::LeaderLearns(_)
            | Action::LocksOfDeadExpire(_)
            | Action::ForgottenLockExpires(..)
            | Action::TimeOutOfDead(_)
            | Action::LateManifestLands(_) => false,
        }
    }

    /// The process that acts, if it is one.
    pub fn actor(&self) -> Option<Process> {
        match self {
            Action::Start(process)
            | Action::Init(process, _)
            | Action::ReadOwner(process)
            | Action::Decide(process)
            | Action::Acquire(process, _)
            | Action::WriteOutputs(process, _)
            | Action::WriteManifest(process, ..)
            | Action::ReadManifest(process, _)
            | Action::WriteOutcome(process, _)
            | Action::Stage(process, ..)
            | Action::SendEnd(process, _)
            | Action::GiveUpEnd(process, _)
            | Action::AssumeAborted(process, _)
            | Action::AssumeCommitted(process, _)
            | Action::NoticeLostLocks(process) => Some(*process),
            Action::StageWriteArrives(..)
            | Action::EndArrives(..)
            | Action::MarkerArrives(..)
            | Action::LeaderLearns(_)
            | Action::LocksOfDeadExpire(_)
            | Action::ForgottenLockExpires(..)
            | Action::TimeOutOfDead(_)
            | Action::LateManifestLands(_)
            | Action::Crash(_)
            | Action::EndUnanswered(..)
            | Action::TimeOut(_)
            | Action::LoseLocks(_)
            | Action::MoveLeader(_)
            | Action::LoseOutcomeTopic
            | Action::SinkFails(..) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Start(p) => write!(f, "{p} starts and takes ownership"),
            Action::Init(p, id) => write!(f, "{p} sends InitProducerId for {id}"),
            Action::ReadOwner(p) => {
                write!(f, "{p} reads the owner, then the outcome partition's high watermark")
            }
            Action::Decide(p) => write!(f, "{p} reads the outcomes up to there, decides and runs"),
            Action::Acquire(p, record) => write!(f, "{p} acquires {record}"),
            Action::WriteOutputs(p, slot) => {
                write!(f, "{p} seals the epoch of slot {slot}, outputs are durable")
            }
            Action::WriteManifest(p, slot, answer) => {
                let answer = match answer {
                    ManifestAnswer::Stored => "stored",
                    ManifestAnswer::StoredUnanswered => "stored, no answer",
                    ManifestAnswer::NotStored => "lost, no answer",
                    ManifestAnswer::StoredLater => "under way, no answer",
                };
                write!(f, "{p} writes the manifest of slot {slot}: {answer}")
            }
            Action::ReadManifest(p, slot) => {
                write!(f, "{p} looks whether the manifest of slot {slot} is there")
            }
            Action::WriteOutcome(p, slot) => write!(f, "{p} produces the outcome record of slot {slot}"),
            Action::Stage(p, slot, partition) => write!(f, "{p} stages slot {slot} at partition {partition}"),
            Action::SendEnd(p, slot) => write!(f, "{p} sends EndTxn(COMMIT) for slot {slot}"),
            Action::GiveUpEnd(p, slot) => {
                write!(f, "{p} gives up on the EndTxn of slot {slot}, recovers in place")
            }
            Action::AssumeAborted(p, slot) => write!(f, "{p} takes the EndTxn of slot {slot} for aborted"),
            Action::AssumeCommitted(p, slot) => {
                write!(f, "{p} takes the EndTxn of slot {slot} for committed")
            }
            Action::NoticeLostLocks(p) => write!(f, "{p} notices lost locks, recovers in place"),
            Action::StageWriteArrives(write, answer) => {
                let answer = match answer {
                    StageAnswer::Answered => "",
                    StageAnswer::Lost => ", its answer is lost",
                    StageAnswer::Failed => " and fails",
                };
                let (records, id, epoch) = (write.records, write.staged.id, write.staged.epoch.0);
                write!(f, "the stage write of {records} under {id} epoch {epoch} reaches the shard{answer}")
            }
            Action::EndArrives(request, is_answer_lost) => {
                let lost = if *is_answer_lost { ", its answer is lost" } else { "" };
                let (id, epoch) = (request.id, request.epoch.0);
                write!(f, "EndTxn(COMMIT) of {id} epoch {epoch} reaches the coordinator{lost}")
            }
            Action::MarkerArrives(id, Participant::OutcomeLog) => {
                write!(f, "the marker of {id} reaches the outcome partition")
            }
            Action::MarkerArrives(id, Participant::ShareState(partition)) => {
                write!(f, "the marker of {id} reaches share-state partition {partition}")
            }
            Action::LeaderLearns(partition) => {
                write!(f, "the leader of partition {partition} reads the durable state")
            }
            Action::LocksOfDeadExpire(p) => write!(f, "locks of dead {p} expire"),
            Action::ForgottenLockExpires(p, record) => {
                write!(f, "the lock of {record}, forgotten by {p}, expires")
            }
            Action::TimeOutOfDead(id) => write!(f, "the coordinator aborts {id}, whose owner is dead"),
            Action::LateManifestLands(manifest) => {
                write!(f, "a late manifest of checkpoint {} lands", manifest.reference.name.checkpoint.0)
            }
            Action::Crash(p) => write!(f, "{p} crashes"),
            Action::EndUnanswered(p, slot) => {
                write!(f, "{p} gets no answer to the EndTxn of slot {slot} in time")
            }
            Action::TimeOut(id) => write!(f, "the transaction of {id} times out, the coordinator aborts it"),
            Action::LoseLocks(p) => write!(f, "{p} loses all its locks"),
            Action::MoveLeader(partition) => write!(f, "leadership of partition {partition} moves"),
            Action::LoseOutcomeTopic => write!(f, "the outcome topic is deleted and created again"),
            Action::SinkFails(p, slot) => write!(f, "{p} cannot write the outputs of slot {slot}"),
        }
    }
}
