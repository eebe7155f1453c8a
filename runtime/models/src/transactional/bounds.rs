//! How large a configuration is, and which faults may happen in it how often.

use super::names::{Process, RECORDS_MAX, Record, RecordSet, TransactionalId};

/// Budgets of faults. Each occurrence takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A process dies. A job dies only if another incarnation can follow, the replica always.
    pub crashes: u8,
    /// A new incarnation starts although the old one goes on running.
    pub takeovers: u8,
    /// The answer to an EndTxn or to a stage request is lost, or the request takes longer than the sender waits.
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
    /// Bounds for a run of minutes: three incarnations and the replica, three records, one fault of every kind that
    /// can be told apart there.
    pub fn large() -> Bounds {
        Bounds {
            records: 2,
            incarnations: 3,
            has_replica: true,
            checkpoints: 3,
            faults: Faults { crashes: 1, takeovers: 1, lost_answers: 1, lost_locks: 1, ..Faults::default() },
            ..Bounds::default()
        }
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
