//! How large a configuration is, and which faults may happen in it how often.

use super::names::{Process, RECORDS_MAX, Record, RecordSet, TransactionalId};

/// Budgets of faults. Each occurrence takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A process dies. A job dies only if another incarnation can follow, the replica always.
    pub crashes: u8,
    /// A new incarnation starts although the old one goes on running.
    pub takeovers: u8,
    /// The answer to an EndTxn or to a stage request is lost, or the request takes longer than the sender
    /// waits.
    pub lost_answers: u8,
    /// The coordinator aborts a transaction of a living process.
    pub time_outs: u8,
    /// All locks of a living process are lost: it was slow, or a connection was closed.
    pub lost_locks: u8,
    /// Leadership of a source partition moves.
    pub leader_moves: u8,
    /// Outputs cannot be written.
    pub sink_failures: u8,
    /// The answer to a manifest write is lost, before or after the write, or the write lands later.
    pub manifest_faults: u8,
    /// The shard fails to write a stage write.
    pub failed_stage_writes: u8,
    /// The outcome topic is deleted and created again.
    pub outcome_topic_losses: u8,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        crashes: 0,
        takeovers: 0,
        lost_answers: 0,
        time_outs: 0,
        lost_locks: 0,
        leader_moves: 0,
        sink_failures: 0,
        manifest_faults: 0,
        failed_stage_writes: 0,
        outcome_topic_losses: 0,
    };
    /// One crash.
    pub const CRASH: Faults = Faults { crashes: 1, ..Faults::NONE };
    /// One takeover of a living incarnation.
    pub const ZOMBIE: Faults = Faults { takeovers: 1, ..Faults::NONE };
    /// One lost answer.
    pub const LOST_ANSWER: Faults = Faults { lost_answers: 1, ..Faults::NONE };
    /// One transaction time-out.
    pub const TIME_OUT: Faults = Faults { time_outs: 1, ..Faults::NONE };
    /// One loss of locks.
    pub const LOST_LOCKS: Faults = Faults { lost_locks: 1, ..Faults::NONE };
    /// One move of a source leader.
    pub const LEADER_MOVE: Faults = Faults { leader_moves: 1, ..Faults::NONE };
    /// One failure of the sink.
    pub const SINK_FAILURE: Faults = Faults { sink_failures: 1, ..Faults::NONE };
    /// One manifest write of unknown outcome.
    pub const MANIFEST_FAULT: Faults = Faults { manifest_faults: 1, ..Faults::NONE };
    /// One failed stage write.
    pub const FAILED_STAGE_WRITE: Faults = Faults { failed_stage_writes: 1, ..Faults::NONE };
    /// One outcome topic that is created again.
    pub const OTHER_OUTCOME_TOPIC: Faults = Faults { outcome_topic_losses: 1, ..Faults::NONE };

    /// These faults and others.
    #[must_use]
    pub const fn and(self, others: Faults) -> Faults {
        Faults {
            crashes: self.crashes + others.crashes,
            takeovers: self.takeovers + others.takeovers,
            lost_answers: self.lost_answers + others.lost_answers,
            time_outs: self.time_outs + others.time_outs,
            lost_locks: self.lost_locks + others.lost_locks,
            leader_moves: self.leader_moves + others.leader_moves,
            sink_failures: self.sink_failures + others.sink_failures,
            manifest_faults: self.manifest_faults + others.manifest_faults,
            failed_stage_writes: self.failed_stage_writes + others.failed_stage_writes,
            outcome_topic_losses: self.outcome_topic_losses + others.outcome_topic_losses,
        }
    }
}

/// Size of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Records of the source, at most [`RECORDS_MAX`].
    pub records: usize,
    /// Source partitions, 1 or 2. With 2 the last record is alone in the second.
    pub partitions: usize,
    /// Incarnations of the job, at most 3.
    pub incarnations: u8,
    /// Whether the second replica takes part.
    pub has_replica: bool,
    /// Whether a second epoch may fill while the first commits.
    pub is_pipelined: bool,
    /// Highest checkpoint id.
    pub checkpoints: u8,
    /// Whether incarnations after the first use other transactional ids.
    pub ids_change: bool,
    /// Whether the source leader learns of a marker later than the share-state partition.
    pub leader_learns_late: bool,
    /// Faults.
    pub faults: Faults,
}

impl Default for Bounds {
    /// One incarnation, two records, no fault.
    fn default() -> Self {
        Bounds {
            records: 2,
            partitions: 1,
            incarnations: 1,
            has_replica: false,
            is_pipelined: true,
            checkpoints: 3,
            ids_change: false,
            leader_learns_late: false,
            faults: Faults::default(),
        }
    }
}

impl Bounds {
    /// Bounds for a run of minutes: three incarnations, two records, three checkpoints, a zombie and a crash.
    pub fn large() -> Bounds {
        Bounds::of_job(3, Faults::ZOMBIE.and(Faults::CRASH))
    }

    /// The default with so many incarnations of the job, and faults.
    pub fn of_job(incarnations: u8, faults: Faults) -> Bounds {
        Bounds { incarnations, faults, ..Bounds::default() }
    }

    /// The default with the second replica, so many records, and faults.
    pub fn with_replica(records: usize, faults: Faults) -> Bounds {
        Bounds { has_replica: true, records, faults, ..Bounds::default() }
    }

    /// All records.
    pub fn all_records(&self) -> RecordSet {
        RecordSet::range(0, self.records)
    }

    /// Index of the partition that holds a record.
    pub fn partition_of(&self, record: Record) -> usize {
        usize::from(self.partitions == 2 && record.index() + 1 == self.records)
    }

    /// The records of a partition.
    pub fn records_of(&self, partition: usize) -> RecordSet {
        let end = self.records.min(RECORDS_MAX);
        match (self.partitions, partition) {
            (2, 0) => RecordSet::range(0, end - 1),
            (2, _) => RecordSet::range(end - 1, end),
            (_, _) => RecordSet::range(0, end),
        }
    }

    /// The transactional ids of a process, by slot. The replica has the same for both.
    pub fn ids_of(&self, process: Process) -> [TransactionalId; 2] {
        match process {
            Process::REPLICA => [TransactionalId(4); 2],
            Process(0) => [TransactionalId(0), TransactionalId(1)],
            Process(_) if self.ids_change => [TransactionalId(2), TransactionalId(3)],
            Process(_) => [TransactionalId(0), TransactionalId(1)],
        }
    }
}
