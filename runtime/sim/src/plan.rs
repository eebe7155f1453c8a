//! What one seed means: topology, workload, settings, and a list of timed faults.
//!
//! A plan is drawn before anything runs and is all that differs between two seeds, so a failure can be shrunk by
//! running the same plan with fewer faults.

mod draw;
mod kinds;
mod ledger;
mod plots;
mod processes;
mod scenes;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_core::commit::{AckMode, CommitStep};

pub use ledger::LedgerPlan;
pub use processes::{Part, PartPeer};

/// Everything that a seed decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed; the run forks its own chance from it too.
    pub seed: u64,
    /// Broker nodes.
    pub nodes: usize,
    /// Partitions of the source topic.
    pub source_partitions: i32,
    /// Partitions of the output topic and of the dead letter topic.
    pub output_partitions: i32,
    /// Records that are produced.
    pub record_count: u64,
    /// Time over which they are produced, and in which faults happen.
    pub busy_for: Duration,
    /// Of so many batches of the loader, one is written in a transaction, and every other of those aborted: control
    /// records become gaps in the offsets. 0: none.
    pub batches_per_transaction: u64,
    /// The job runs at least once, by choice: then doubled records are no finding, lost ones are.
    pub at_least_once: bool,
    /// The job runs in ledger mode.
    #[serde(default)]
    pub ledger: Option<LedgerPlan>,
    /// Settings of the share group.
    pub group: GroupPlan,
    /// What the job does beside filtering and rejecting.
    #[serde(default)]
    pub operators: OperatorsPlan,
    /// The first rows of each attempt take a sink so long: longer than locks last.
    #[serde(default)]
    pub slow_write: Option<Duration>,
    /// Replicas of the job.
    pub workers: Vec<WorkerPlan>,
    /// Tasks are shuffled.
    pub yields: bool,
    /// What goes wrong, by time.
    pub faults: Vec<TimedFault>,
}

impl Plan {
    /// The mode that replicas are started with, until a roll-out.
    pub fn mode(&self) -> AckMode {
        match self.ledger {
            Some(_) => AckMode::Ledger,
            None if self.at_least_once => AckMode::AtLeastOnce,
            None => AckMode::Transactional,
        }
    }

    /// Whether the group is reset in the run.
    pub fn resets_group(&self) -> bool {
        self.ledger.is_some() && any(&self.faults, &|fault| *fault == Fault::ResetGroup)
    }

    /// Whether something can make attempts fail again and again: without any fault nothing may.
    pub fn has_outages_or_deaths(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Whether something keeps the brokers, the store or the way to them from serving for a while, so that attempt after
    /// attempt may fail and burn deliveries.
    pub fn has_outages(&self) -> bool {
        any(&self.faults, &Fault::is_outage)
    }
}

/// Where the job calls out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Calls {
    /// Nowhere.
    #[default]
    None,
    /// Before records become several rows: barriers pass calls that run.
    Deferred,
    /// Behind that: barriers wait.
    Awaited,
}

/// What the job does beside filtering and rejecting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorsPlan {
    /// Where it calls out.
    pub calls: Calls,
    /// Rows leave the calls in order.
    pub is_ordered: bool,
    /// It keeps state. Then every replica has a store.
    pub is_stateful: bool,
}

/// Settings of the share group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// `share.record.lock.duration.ms`.
    pub lock_duration: Duration,
    /// `share.delivery.count.limit`.
    pub delivery_limit: u16,
    /// `share.partition.max.record.locks`.
    pub record_locks: u32,
    /// `share.isolation.level` is read_committed.
    pub read_committed: bool,
}

/// One replica of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// When it starts first.
    pub starts_at: Duration,
    /// Source and sink subtasks.
    pub parallelism: usize,
    /// It keeps manifests in the object store.
    pub has_store: bool,
    /// Latency goal.
    pub checkpoint_interval: Duration,
    /// Records of one poll.
    pub poll_records: i32,
    /// Acknowledgements of an epoch are staged in several requests.
    pub stage_separately: bool,
    /// Its coordinator, its sources and its sinks are processes of their own.
    #[serde(default)]
    pub in_three_processes: bool,
}

/// A fault and when it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedFault {
    /// Virtual time since the loader started.
    pub at: Duration,
    /// What happens.
    pub fault: Fault,
}

/// What can go wrong. Workers, nodes and partitions are named by number, modulo how many there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Chunks are slow or lost for a while.
    Weather {
        /// How long.
        lasts: Duration,
        /// Ordinary delay up to this.
        delay_max: Duration,
        /// Part of the chunks that are lost and sent again, in percent.
        loss_percent: u8,
    },
    /// Connections between a worker and the brokers are reset.
    Reset {
        /// Which worker.
        worker: usize,
    },
    /// All connections of a node are reset, those from other nodes too.
    ResetNode {
        /// Which node.
        node: usize,
    },
    /// The link between a worker and a node is cut.
    Cut {
        /// Which worker.
        worker: usize,
        /// Which node.
        node: usize,
        /// How long.
        lasts: Duration,
        /// Which way.
        way: Way,
    },
    /// The link between two nodes is cut.
    CutNodes {
        /// One node.
        from: usize,
        /// Another.
        to: usize,
        /// How long.
        lasts: Duration,
        /// Which way.
        way: Way,
    },
    /// A worker stands still and goes on.
    PauseWorker {
        /// Which worker.
        worker: usize,
        /// How long.
        lasts: Duration,
    },
    /// A node stands still and goes on.
    PauseNode {
        /// Which node.
        node: usize,
        /// How long.
        lasts: Duration,
    },
    /// A worker is killed and started again.
    KillWorker {
        /// Which worker.
        worker: usize,
        /// Until the next start.
        down: Duration,
        /// The machine dies, not only the process: no connection is closed, unsynced writes may be lost.
        power: bool,
    },
    /// A worker is killed when it next reaches a step of a commit.
    KillWorkerAt {
        /// Which worker.
        worker: usize,
        /// The step.
        step: CommitStep,
        /// Until the next start.
        down: Duration,
    },
    /// A worker stands still, a replacement of the same instance starts, and the old one comes back.
    Zombie {
        /// Which worker.
        worker: usize,
        /// How long the old one stands still.
        lasts: Duration,
    },
    /// A worker is asked to drain, and started again.
    StopWorker {
        /// Which worker.
        worker: usize,
        /// Until the next start.
        down: Duration,
    },
    /// The request of a moment arrives, its answer is lost with the connection, and nothing else comes back on that link.
    /// Only behind a request.
    LoseAnswer {
        /// How long.
        lasts: Duration,
    },
    /// The request of a moment is lost with its connection, and nothing else arrives on that link. Only behind a request.
    LoseRequest {
        /// How long.
        lasts: Duration,
    },
    /// The node that was asked is answered, and reaches no other node. Only behind a request.
    Mute {
        /// How long.
        lasts: Duration,
    },
    /// A worker that is to start later starts now.
    Join {
        /// Which worker.
        worker: usize,
    },
    /// A node is killed; what it led moves to others, when there are others, after a while.
    KillNode {
        /// Which node.
        node: usize,
        /// Until it starts again.
        down: Duration,
    },
    /// The leadership of a partition moves to the next node.
    MoveLeader {
        /// Of which topic.
        topic: MovedTopic,
        /// Which partition; none: all of them.
        partition: Option<i32>,
    },
    /// The wall clock of a worker or node jumps.
    StepClock {
        /// Worker numbers, then node numbers.
        process: usize,
        /// By so many milliseconds.
        by_ms: i64,
    },
    /// The object store is slow, fails or loses answers.
    Store {
        /// How long.
        lasts: Duration,
        /// Calls that fail, in percent.
        failed_percent: u8,
        /// Calls whose answer is lost, in percent.
        lost_percent: u8,
        /// Delay up to this.
        delay_max: Duration,
    },
    /// A worker that stands still in a trap goes on before its time.
    ResumeWorker {
        /// Which worker.
        worker: usize,
    },
    /// Replicas that start from now on run in transactional mode, and one is started again. Only in ledger mode.
    RollOut {
        /// Which worker is the first.
        worker: usize,
    },
    /// Every replica is stopped, the group is reset to a new replay generation, and they start again. Only in ledger mode.
    ResetGroup,
    /// What the process of a moment has just sent, and what it sends from then on, does not arrive: on the link of the
    /// request that was the moment, or else on those to all nodes. Only behind a moment.
    Silence {
        /// How long.
        lasts: Duration,
    },
    /// The sources or the sinks of a replica in three processes are killed and started again.
    KillPart {
        /// Which worker.
        worker: usize,
        /// Which of its processes.
        part: Part,
        /// Until the next start.
        down: Duration,
        /// The machine dies, not only the process.
        power: bool,
    },
    /// Those are asked to end, and started again.
    StopPart {
        /// Which worker.
        worker: usize,
        /// Which of its processes.
        part: Part,
    },
    /// Those stand still and go on.
    PausePart {
        /// Which worker.
        worker: usize,
        /// Which of its processes.
        part: Part,
        /// How long.
        lasts: Duration,
        /// Another process starts in their place, and they are one too many when they go on.
        is_replaced: bool,
    },
    /// The link between those and another process is cut.
    CutPart {
        /// Which worker.
        worker: usize,
        /// Which of its processes.
        part: Part,
        /// The other end.
        peer: PartPeer,
        /// How long.
        lasts: Duration,
        /// Which way.
        way: Way,
        /// In the end connections break, and what was on the way is lost.
        breaks: bool,
    },
    /// Waits for the next moment of a kind. Its process then stands still where it is, and other faults begin.
    When {
        /// Which moment.
        moment: Moment,
        /// How long the process stands still.
        hold: Duration,
        /// What else happens, by time since the moment.
        then: Vec<TimedFault>,
    },
}

/// A point of the protocol, in place of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// A worker reaches a step of a commit.
    Step {
        /// Which worker.
        worker: usize,
        /// The step.
        step: CommitStep,
    },
    /// A worker has sent a request.
    WorkerSends {
        /// Which worker.
        worker: usize,
        /// The request.
        request: Request,
    },
    /// Any node has sent a request to a node, be it itself.
    NodeSends {
        /// The request.
        request: Request,
    },
}

/// Requests that are moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Records; at a start, the owner record.
    Produce,
    /// At a start: how far the outcomes are to be read.
    ListOffsets,
    /// At a start: who coordinates a transactional id.
    FindCoordinator,
    /// A transactional id is taken.
    InitProducerId,
    /// A partition becomes part of a transaction.
    AddPartitionsToTxn,
    /// Acknowledgements are staged.
    TxnShareAcknowledge,
    /// A transaction is ended.
    EndTxn,
    /// The coordinator tells how it ended.
    WriteTxnMarkers,
    /// A share partition is loaded.
    ReadShareGroupState,
    /// A share partition is written.
    WriteShareGroupState,
    /// A keeper raises a floor: records one of which has the key of a floor.
    Floor,
}

impl Request {
    /// What its bytes hold besides, where the number does not say enough.
    pub(crate) fn holds(self) -> &'static [u8] {
        if self == Request::Floor { b"#floor/" } else { b"" }
    }

    /// Its number on the wire.
    pub(crate) fn api_key(self) -> i16 {
        match self {
            Request::Produce | Request::Floor => 0,
            Request::ListOffsets => 2,
            Request::FindCoordinator => 10,
            Request::InitProducerId => 22,
            Request::AddPartitionsToTxn => 24,
            Request::EndTxn => 26,
            Request::WriteTxnMarkers => 27,
            Request::ReadShareGroupState => 84,
            Request::WriteShareGroupState => 85,
            Request::TxnShareAcknowledge => sharestream_wire::txn_share_acknowledge::KEY,
        }
    }
}

/// Which way a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Both ways.
    Both,
    /// Only what the first sends is lost.
    There,
    /// Only what the second sends is lost.
    Back,
}

/// Whose leader moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MovedTopic {
    /// The source topic: the share partition leader.
    Source,
    /// The output topic.
    Output,
    /// The outcome topic.
    Outcome,
    /// `__share_group_state`: the share coordinator.
    ShareState,
    /// `__transaction_state`: the transaction coordinator.
    TransactionState,
}

/// Whether one of the faults, or of those behind moments, is like that.
fn any(faults: &[TimedFault], is_it: &dyn Fn(&Fault) -> bool) -> bool {
    faults.iter().any(|timed| match &timed.fault {
        Fault::When { then, .. } => any(then, is_it),
        fault => is_it(fault),
    })
}

impl fmt::Display for TimedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} s  {:?}", self.at.as_secs_f64(), self.fault)
    }
}
