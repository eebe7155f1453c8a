//! Who and what the model speaks of: processes, transactional ids, records and sets of them.

use std::fmt;

/// Most records that a configuration may have.
pub const RECORDS_MAX: usize = 3;
/// Most source partitions, each with its own leader and its own share-state partition.
pub const PARTITIONS_MAX: usize = 2;
/// Transactional ids: two slots of the job, two slots of the job after its naming has changed, one of the
/// replica.
pub const TRANSACTIONAL_IDS: usize = 5;
/// Processes: three incarnations of the job, and the replica.
pub const PROCESSES: usize = 4;

/// An incarnation of the job, or the second, stateless replica with transactional ids of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process(pub u8);

impl Process {
    /// The second consumer of the share group, an instance of its own.
    pub const REPLICA: Process = Process(3);

    /// Whether this is the second, stateless replica.
    pub fn is_replica(self) -> bool {
        self == Self::REPLICA
    }

    /// The owner epoch that this incarnation takes; each incarnation takes its own.
    pub fn job_epoch(self) -> JobEpoch {
        JobEpoch(self.0 + 1)
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Process::REPLICA => write!(f, "replica"),
            Process(index) => write!(f, "job #{}", index + 1),
        }
    }
}

/// Number of an ownership of the (job, instance); 0 stands for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobEpoch(pub u8);

/// Number of a checkpoint, from 1; 0 stands for the empty start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Checkpoint(pub u8);

impl Checkpoint {
    pub(super) fn next(self) -> Checkpoint {
        Checkpoint(self.0 + 1)
    }
}

/// A transactional id. It keeps one producer id for good, so it stands for that as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionalId(pub u8);

impl TransactionalId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn all() -> impl Iterator<Item = TransactionalId> {
        (0..TRANSACTIONAL_IDS as u8).map(TransactionalId)
    }
}

impl fmt::Display for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            slot @ (0 | 1) => write!(f, "job.{slot}"),
            slot @ (2 | 3) => write!(f, "renamed.{}", slot - 2),
            _ => write!(f, "replica.0"),
        }
    }
}

/// Epoch of a producer id. Under transaction version 2 every end of a transaction raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerEpoch(pub u8);

impl ProducerEpoch {
    pub(super) fn bumped(self) -> ProducerEpoch {
        ProducerEpoch(self.0 + 1)
    }
}

/// A record of the source, by its number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record(pub u8);

impl Record {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A set of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordSet(u8);

impl RecordSet {
    /// No record.
    pub const EMPTY: RecordSet = RecordSet(0);

    /// The records numbered `begin..end`.
    pub fn range(begin: usize, end: usize) -> RecordSet {
        (begin..end).fold(RecordSet::EMPTY, |set, index| set.with(Record(index as u8)))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `record` is one of them.
    pub fn contains(self, record: Record) -> bool {
        self.0 >> record.0 & 1 == 1
    }

    /// These and `record`.
    #[must_use]
    pub fn with(self, record: Record) -> RecordSet {
        RecordSet(self.0 | 1 << record.0)
    }

    /// Records of either set.
    #[must_use]
    pub fn union(self, other: RecordSet) -> RecordSet {
        RecordSet(self.0 | other.0)
    }

    /// Records of both sets.
    #[must_use]
    pub fn intersection(self, other: RecordSet) -> RecordSet {
        RecordSet(self.0 & other.0)
    }

    /// All of them in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Record> {
        (0..RECORDS_MAX as u8).map(Record).filter(move |record| self.contains(*record))
    }
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|record| record.to_string()).collect();
        write!(f, "{{{}}}", names.join(" "))
    }
}

/// A set of transactional ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdSet(u8);

impl IdSet {
    /// No id.
    pub const EMPTY: IdSet = IdSet(0);

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `id` is one of them.
    pub fn contains(self, id: TransactionalId) -> bool {
        self.0 >> id.0 & 1 == 1
    }

    /// Adds an id.
    pub fn insert(&mut self, id: TransactionalId) {
        self.0 |= 1 << id.0;
    }

    /// Takes an id out.
    pub fn remove(&mut self, id: TransactionalId) {
        self.0 &= !(1 << id.0);
    }
}
