//! Everything that can happen, one step at a time.

use std::fmt;

use super::ids::{ClaimId, Records, ReplicaId, TransactionalId};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The group hands records to a replica; it processes them in a transaction and produces its claim.
    Claim {
        /// By whom.
        replica: ReplicaId,
        /// Which.
        records: Records,
    },
    /// A replica reads the next entry of the log.
    Read(ReplicaId),
    /// A replica has arbitrated and sends EndTxn(COMMIT).
    SendCommit(ReplicaId),
    /// A replica aborts its transaction: it lost, or gave up.
    Abort(ReplicaId),
    /// EndTxn answers a replica with success; its acknowledgements succeed or fail.
    LearnCommitted {
        /// By whom.
        replica: ReplicaId,
        /// Whether its acknowledgements succeed.
        acknowledges: bool,
    },
    /// No answer to EndTxn reaches the replica until its deadline.
    LoseAnswer(ReplicaId),
    /// A replica finds that its producer epoch is fenced.
    NoticeFence(ReplicaId),
    /// A replica asks for a producer epoch: that ends what is open under its id, or succeeds.
    InitProducerId(ReplicaId),
    /// A recovering replica asks for a producer epoch under the id that its pending manifest names.
    FenceManifestOwner(ReplicaId),
    /// A recovering replica judges its pending manifest.
    JudgeManifest(ReplicaId),
    /// A replica is handed a record that it knows as decided, and acknowledges it without effects.
    AcknowledgeDecided {
        /// By whom.
        replica: ReplicaId,
        /// Which.
        record: u8,
    },
    /// A replica writes a floor record.
    RaiseFloor {
        /// By whom.
        replica: ReplicaId,
        /// Everything below is decided.
        end: u8,
    },
    /// A replica writes the tombstone of a claim.
    Tombstone {
        /// By whom.
        replica: ReplicaId,
        /// Which.
        claim: ClaimId,
    },
    /// A replica forgets its view and reads from the start.
    RebuildView(ReplicaId),
    /// A replica takes an open claim for aborted (only where rule 4 or 5 is left out).
    PresumeAborted {
        /// By whom.
        replica: ReplicaId,
        /// Which.
        claim: ClaimId,
    },
    /// A replica joins the share group.
    Join(ReplicaId),
    /// A replica dies and its process starts again, under its id or a new one.
    Crash {
        /// By whom.
        replica: ReplicaId,
        /// Whether its transactional id is another one.
        new_id: bool,
    },
    /// A transactional replica is stopped, at whatever it was doing.
    Stop(ReplicaId),
    /// It starts again.
    Start(ReplicaId),
    /// EndTxn(COMMIT) reaches the coordinator, perhaps long after its sender's death.
    CommitArrives(ClaimId),
    /// The coordinator ends an open transaction: InitProducerId by somebody else, or the time-out.
    EndTransaction(TransactionalId),
    /// The coordinator's marker is written.
    WriteMarker(TransactionalId),
    /// The broker archives a record.
    Archive(u8),
    /// The cleaner removes one entry.
    Compact(u8),
    /// The group becomes transactional.
    ChangeMode,
    /// The group becomes ledger again.
    ChangeModeBack,
    /// `group reset` writes the generation record.
    WriteGeneration,
    /// `group reset` resets the group's offsets.
    ResetOffsets,
    /// `group reset` writes that it is done.
    WriteGenerationReady,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Action as A;
        match self {
            A::Claim { replica, records } => write!(f, "{replica:?} claims {records:?}"),
            A::Read(replica) => write!(f, "{replica:?} reads"),
            A::SendCommit(replica) => write!(f, "{replica:?} sends EndTxn(COMMIT)"),
            A::Abort(replica) => write!(f, "{replica:?} aborts"),
            A::LearnCommitted { replica, acknowledges: true } => {
                write!(f, "{replica:?} learns success, acknowledges")
            }
            A::LearnCommitted { replica, .. } => write!(f, "{replica:?} learns success, acknowledging fails"),
            A::LoseAnswer(replica) => write!(f, "{replica:?} gets no answer to EndTxn"),
            A::NoticeFence(replica) => write!(f, "{replica:?} notices that it is fenced"),
            A::InitProducerId(replica) => write!(f, "{replica:?} calls InitProducerId"),
            A::FenceManifestOwner(replica) => write!(f, "{replica:?} fences the id of its manifest"),
            A::JudgeManifest(replica) => write!(f, "{replica:?} judges its manifest"),
            A::AcknowledgeDecided { replica, record } => {
                write!(f, "{replica:?} acknowledges record {record} as decided")
            }
            A::RaiseFloor { replica, end } => write!(f, "{replica:?} writes floor {end}"),
            A::Tombstone { replica, claim } => write!(f, "{replica:?} tombstones {claim:?}"),
            A::RebuildView(replica) => write!(f, "{replica:?} rebuilds its view from the start"),
            A::PresumeAborted { replica, claim } => write!(f, "{replica:?} presumes {claim:?} aborted"),
            A::Join(replica) => write!(f, "{replica:?} joins the group"),
            A::Crash { replica, new_id: false } => write!(f, "{replica:?} crashes and comes back"),
            A::Crash { replica, .. } => write!(f, "{replica:?} crashes and comes back under a new id"),
            A::Stop(replica) => write!(f, "{replica:?} is stopped"),
            A::Start(replica) => write!(f, "{replica:?} is started"),
            A::CommitArrives(claim) => write!(f, "EndTxn(COMMIT) of {claim:?} reaches the coordinator"),
            A::EndTransaction(id) => write!(f, "the open transaction of {id:?} is ended from outside"),
            A::WriteMarker(id) => write!(f, "the marker of {id:?} is written"),
            A::Archive(record) => write!(f, "the broker archives record {record}"),
            A::Compact(position) => write!(f, "the cleaner removes position {position}"),
            A::ChangeMode => write!(f, "the mode record: transactional"),
            A::ChangeModeBack => write!(f, "the mode record: ledger"),
            A::WriteGeneration => write!(f, "the record of a new generation"),
            A::ResetOffsets => write!(f, "the group's offsets are reset"),
            A::WriteGenerationReady => write!(f, "the record that the offsets are reset"),
        }
    }
}
