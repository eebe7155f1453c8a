//! The whole state, and what the model remembers to judge it.

use std::fmt;

use super::bounds::{Bounds, Faults};
use super::incarnation::{End, Incarnation, OpenEpoch, Phase};
use super::manifests::{Manifest, ManifestStore};
use super::names::{
    JobEpoch, PARTITIONS_MAX, PROCESSES, Process, ProducerEpoch, RECORDS_MAX, Record, RecordSet,
    TRANSACTIONAL_IDS, TransactionalId,
};
use super::outcome_log::LogEntry;
use super::share::{DurableRecord, LeaderRecord, SharePartition, StageWrite};
use super::transaction::{Transaction, Writes};

/// An EndTxn(COMMIT) that was sent and has not arrived. A request that never arrives is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndTxnRequest {
    /// The transaction to commit.
    pub id: TransactionalId,
    /// The producer epoch that it was sent under.
    pub epoch: ProducerEpoch,
    /// Who waits for the answer.
    pub sender: Process,
}

/// What no process knows, kept to judge the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Committed outputs of each record; more than two count as two.
    pub effects: [u8; RECORDS_MAX],
    /// Records in the job's committed checkpoints.
    pub committed: RecordSet,
    /// The newest job epoch whose recovery concluded; 0 for none.
    pub concluded: u8,
    /// An incarnation committed after a newer one had concluded its recovery.
    pub fenced_one_committed: bool,
    /// A commit did not build on all commits before it.
    pub commit_skipped_another: bool,
    /// An owner restored something else than the last commit.
    pub restored_another: bool,
    /// An owner found the store corrupt, which it never is in this model.
    pub corrupt: bool,
    /// A failing sink or a lost answer alone aborted staged records.
    pub delivery_wasted: bool,
}

/// One state of the model.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The incarnations of the job, then the replica.
    pub processes: [Incarnation; PROCESSES],
    /// The transaction coordinator.
    pub transactions: [Transaction; TRANSACTIONAL_IDS],
    /// The source partitions.
    pub shares: [SharePartition; PARTITIONS_MAX],
    /// The outcome partition.
    pub outcome_log: Vec<LogEntry>,
    /// Whether the outcome topic is not the one that the job began with.
    pub is_outcome_topic_new: bool,
    /// The checkpoint store.
    pub manifests: ManifestStore,
    /// Manifest writes that will land late.
    pub late_manifests: Vec<Manifest>,
    /// Owner of the job in the checkpoint store; 0 for nobody.
    pub owner: JobEpoch,
    /// EndTxn requests under way, sorted.
    pub end_requests: Vec<EndTxnRequest>,
    /// Stage writes under way, sorted.
    pub stage_writes: Vec<StageWrite>,
    /// Faults that may still happen.
    pub faults_left: Faults,
    /// What happened.
    pub history: History,
}

impl State {
    /// Nothing consumed; the replica runs if there is one, the job has not started.
    pub fn initial(bounds: &Bounds) -> State {
        let mut processes = std::array::from_fn(|_| Incarnation::not_started());
        if bounds.has_replica {
            processes[Process::REPLICA.index()].phase = Phase::Running;
        }
        State {
            processes,
            transactions: [Transaction::new(); TRANSACTIONAL_IDS],
            shares: [SharePartition::new(); PARTITIONS_MAX],
            outcome_log: Vec::new(),
            is_outcome_topic_new: false,
            manifests: ManifestStore::default(),
            late_manifests: Vec::new(),
            owner: JobEpoch(0),
            end_requests: Vec::new(),
            stage_writes: Vec::new(),
            faults_left: bounds.faults,
            history: History::default(),
        }
    }

    pub(super) fn process(&self, process: Process) -> &Incarnation {
        &self.processes[process.index()]
    }

    pub(super) fn process_mut(&mut self, process: Process) -> &mut Incarnation {
        &mut self.processes[process.index()]
    }

    /// Entries of the outcome partition below a high watermark; fewer if the topic was created again since.
    pub(super) fn outcomes_below(&self, high_watermark: usize) -> &[LogEntry] {
        &self.outcome_log[..high_watermark.min(self.outcome_log.len())]
    }

    /// Open epoch in a slot that is known to hold one.
    pub(super) fn epoch_mut(&mut self, process: Process, slot: usize) -> &mut OpenEpoch {
        self.processes[process.index()].slots[slot].as_mut().expect("the action names an open epoch")
    }

    /// Whether `process` owns its job. The replica is the only incarnation of its own.
    pub(super) fn is_owner(&self, process: Process) -> bool {
        process.is_replica() || self.owner == process.job_epoch()
    }

    /// The coordinator has made a commit durable: its effects are there.
    pub(super) fn record_commit(&mut self, writes: Writes) {
        for record in writes.outputs.iter() {
            let count = if writes.doubled.contains(record) { 2 } else { 1 };
            let effects = &mut self.history.effects[record.index()];
            *effects = (*effects + count).min(2);
        }
        let Some(writer) = writes.writer.filter(|writer| !writer.is_replica()) else { return };
        let before = self.history.committed;
        self.history.committed = before.union(writes.outputs);
        if self.history.concluded > writer.job_epoch().0 {
            self.history.fenced_one_committed = true;
        }
        if writes.outcome.is_some_and(|outcome| outcome.state != self.history.committed) {
            self.history.commit_skipped_another = true;
        }
    }

    /// Whether a record is acknowledged.
    pub(super) fn is_acknowledged(&self, record: Record, bounds: &Bounds) -> bool {
        let share = &self.shares[bounds.partition_of(record)];
        share.durable[record.index()] == DurableRecord::Acknowledged
    }
}

impl fmt::Debug for State {
    /// One line: what each record, transaction and process is at.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "effects {:?}", self.history.effects)?;
        for (partition, share) in self.shares.iter().enumerate() {
            for (index, record) in share.durable.iter().enumerate() {
                let in_memory = share.leader[index];
                if *record != DurableRecord::Available || in_memory != LeaderRecord::Available {
                    write!(
                        f,
                        "; r{index} of partition {partition}: durable {record:?}, leader {in_memory:?}"
                    )?;
                }
            }
        }
        for id in TransactionalId::all() {
            let transaction = &self.transactions[id.index()];
            if transaction.epoch != ProducerEpoch(0) || !transaction.is_resolved() {
                write!(f, "; {id} at epoch {} {:?}", transaction.epoch.0, transaction.progress)?;
            }
        }
        for (index, incarnation) in self.processes.iter().enumerate() {
            let process = Process(index as u8);
            match &incarnation.phase {
                Phase::NotStarted => {}
                Phase::Recovering(_) => write!(f, "; {process} recovers")?,
                Phase::Running => write!(f, "; {process} runs with state {}", incarnation.state)?,
                Phase::Ended(End::Crashed) => write!(f, "; {process} crashed")?,
                Phase::Ended(end) => write!(f, "; {process} ended {end:?}")?,
            }
        }
        write!(f, "; committed state {}", self.history.committed)
    }
}
