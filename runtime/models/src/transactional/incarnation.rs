//! One process: the coordinator of a job or of the replica, with its source and its sink.

use super::manifests::ManifestStore;
use super::names::{Checkpoint, IdSet, Process, ProducerEpoch, Record, RecordSet};

/// Where a process stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started yet.
    NotStarted,
    /// Taking over; see [`Recovery`].
    Recovering(Recovery),
    /// Consuming and committing.
    Running,
    /// Gone, with the reason.
    Ended(End),
}

/// Why a process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Killed.
    Crashed,
    /// Another incarnation owns the job.
    Fenced,
    /// The store and the outcome partition contradict each other.
    Corrupt,
}

/// A recovery under way, after ownership was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// Transactional ids that still need a successful InitProducerId.
    pub to_fence: IdSet,
    /// Entries of the outcome partition to read: its high watermark, once taken.
    pub high_watermark: Option<usize>,
    /// Whether the owner has been read again and was still this process.
    pub is_owner_confirmed: bool,
    /// Manifests as they were listed before fencing, if that listing is to be used later.
    pub listed_early: Option<ManifestStore>,
}

/// How far a manifest has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ManifestWrite {
    /// Not tried, or read and found missing.
    Missing,
    /// Tried, not known.
    Unknown,
    /// Stored.
    Stored,
}

/// How far the records of one source partition have been staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Staging {
    /// Not asked for, or the answer was lost.
    NotAsked,
    /// Waiting for the leader's answer.
    Waiting,
    /// The leader has answered.
    Staged,
}

/// How far EndTxn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Not sent.
    NotSent,
    /// Waiting for the answer.
    Waiting,
    /// No answer came: it may have happened, and may still happen.
    Unknown,
}

/// What the manifest of an epoch says, fixed when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    /// The checkpoint before.
    pub predecessor: Checkpoint,
    /// All records that operator state counts.
    pub state: RecordSet,
}

/// Everything between two barriers, from the first record to the known commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenEpoch {
    /// Its checkpoint.
    pub checkpoint: Checkpoint,
    /// Its records.
    pub records: RecordSet,
    /// Records that came twice.
    pub doubled: RecordSet,
    /// No more records come.
    pub is_sealed: bool,
    /// Outputs are durable.
    pub has_outputs: bool,
    /// The manifest.
    pub manifest: ManifestWrite,
    /// What the manifest says.
    pub planned: Option<Planned>,
    /// The outcome record is durable.
    pub has_outcome: bool,
    /// Staging, for each source partition.
    pub staging: [Staging; 2],
    /// EndTxn.
    pub ending: Ending,
}

impl OpenEpoch {
    /// An epoch that begins with `records`.
    pub fn new(checkpoint: Checkpoint, records: RecordSet) -> OpenEpoch {
        OpenEpoch {
            checkpoint,
            records,
            doubled: RecordSet::EMPTY,
            is_sealed: false,
            has_outputs: false,
            manifest: ManifestWrite::Missing,
            planned: None,
            has_outcome: false,
            staging: [Staging::NotAsked; 2],
            ending: Ending::NotSent,
        }
    }

    /// Whether anything was staged, or may have been.
    pub fn may_be_staged(&self) -> bool {
        self.staging.iter().any(|staging| *staging != Staging::NotAsked)
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation {
    /// Where it stands.
    pub phase: Phase,
    /// The epochs open, by slot: checkpoint n uses slot n modulo 2. The replica has one slot.
    pub slots: [Option<OpenEpoch>; 2],
    /// The producer epoch of each slot.
    pub producer_epochs: [ProducerEpoch; 2],
    /// The last checkpoint known to be committed; 0 for none.
    pub last: Checkpoint,
    /// Operator state at that checkpoint.
    pub state: RecordSet,
    /// The next checkpoint id.
    pub next: Checkpoint,
    /// Records of an aborted epoch that are kept in memory, to be processed again.
    pub kept: RecordSet,
}

impl Incarnation {
    /// A process that does not exist yet.
    pub fn not_started() -> Incarnation {
        Incarnation {
            phase: Phase::NotStarted,
            slots: [None; 2],
            producer_epochs: [ProducerEpoch(0); 2],
            last: Checkpoint(0),
            state: RecordSet::EMPTY,
            next: Checkpoint(1),
            kept: RecordSet::EMPTY,
        }
    }

    /// The slot of a checkpoint.
    pub fn slot_of(process: Process, checkpoint: Checkpoint) -> usize {
        if process.is_replica() { 0 } else { usize::from(checkpoint.0 % 2) }
    }

    /// Whether it runs or recovers.
    pub fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Recovering(_))
    }

    /// Whether it consumes and commits.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The slot whose epoch still takes records.
    pub fn filling(&self) -> Option<usize> {
        (0..2).find(|slot| self.slots[*slot].is_some_and(|epoch| !epoch.is_sealed))
    }

    /// Whether an epoch before that of `slot` is still open.
    pub fn has_open_predecessor(&self, slot: usize) -> bool {
        match (self.slots[slot], self.slots[1 - slot]) {
            (Some(epoch), Some(other)) => other.checkpoint < epoch.checkpoint,
            (None | Some(_), _) => false,
        }
    }

    /// Whether some open epoch holds `record`, or it is kept for the next one.
    pub fn holds(&self, record: Record) -> bool {
        self.kept.contains(record) || self.slots.iter().flatten().any(|epoch| epoch.records.contains(record))
    }

    /// Forgets everything but what a dead or starting process has.
    pub fn drop_memory(&mut self) {
        self.slots = [None; 2];
        self.kept = RecordSet::EMPTY;
    }

    /// Ends the process. What it knew does not matter any more.
    pub fn end(&mut self, end: End) {
        *self = Incarnation { phase: Phase::Ended(end), ..Incarnation::not_started() };
    }
}
