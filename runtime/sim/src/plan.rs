//! What one seed means: topology, workload, settings, and a list of timed faults.
//!
//! A plan is drawn before anything runs and is all that differs between two seeds, so a failure can be shrunk by
//! running the same plan with fewer faults.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_base::Rng;
use sharestream_core::commit::CommitStep;

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
    /// Settings of the share group.
    pub group: GroupPlan,
    /// Replicas of the job.
    pub workers: Vec<WorkerPlan>,
    /// Tasks are shuffled.
    pub yields: bool,
    /// What goes wrong, by time.
    pub faults: Vec<TimedFault>,
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
        /// Which partition.
        partition: i32,
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

impl Fault {
    /// Its kind, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Weather { .. } => "weather",
            Fault::Reset { .. } => "reset",
            Fault::ResetNode { .. } => "reset-node",
            Fault::Cut { .. } => "cut",
            Fault::CutNodes { .. } => "cut-nodes",
            Fault::PauseWorker { .. } => "pause-worker",
            Fault::PauseNode { .. } => "pause-node",
            Fault::KillWorker { power: false, .. } => "kill-worker",
            Fault::KillWorker { power: true, .. } => "power-off-worker",
            Fault::KillWorkerAt { .. } => "kill-worker-at",
            Fault::Zombie { .. } => "zombie",
            Fault::StopWorker { .. } => "stop-worker",
            Fault::KillNode { .. } => "kill-node",
            Fault::MoveLeader { .. } => "move-leader",
            Fault::StepClock { .. } => "step-clock",
            Fault::Store { .. } => "store",
        }
    }
}

impl fmt::Display for TimedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} s  {:?}", self.at.as_secs_f64(), self.fault)
    }
}

/// Which faults a plan is about: some bugs need several faults of one kind, which a mix rarely has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Focus {
    Mixed,
    Nodes,
    Workers,
    Network,
}

impl Focus {
    fn covers(self, fault: &Fault) -> bool {
        let about = match fault {
            Fault::CutNodes { .. }
            | Fault::PauseNode { .. }
            | Fault::KillNode { .. }
            | Fault::MoveLeader { .. }
            | Fault::ResetNode { .. } => Focus::Nodes,
            Fault::PauseWorker { .. }
            | Fault::KillWorker { .. }
            | Fault::KillWorkerAt { .. }
            | Fault::Zombie { .. }
            | Fault::StopWorker { .. }
            | Fault::Store { .. } => Focus::Workers,
            Fault::Weather { .. } | Fault::Reset { .. } | Fault::Cut { .. } | Fault::StepClock { .. } => {
                Focus::Network
            }
        };
        self == Focus::Mixed || self == about
    }
}

/// Draws numbers for a plan.
struct Dice(Rng);

impl Dice {
    fn between(&self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// Most durations are short; some are long enough for every time-out.
    fn outage(&self) -> Duration {
        match self.0.below(8) {
            0..=3 => self.ms(20, 1_500),
            4..=5 => self.ms(1_500, 12_000),
            _ => self.ms(12_000, 50_000),
        }
    }

    fn chance(&self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn index(&self, count: usize) -> usize {
        usize::try_from(self.0.below(count as u64)).unwrap_or(0)
    }

    fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let dice = Dice(Rng::seeded(seed).fork("plan"));
        let nodes = dice.pick(&[1, 1, 2, 3, 3]);
        let worker_count = dice.pick(&[1, 1, 2, 2, 3]);
        let busy_for = dice.ms(5_000, 40_000);
        let all_stores = dice.chance(50);
        let workers: Vec<WorkerPlan> = (0..worker_count)
            .map(|index| WorkerPlan {
                starts_at: if index == 0 { Duration::ZERO } else { dice.ms(0, 10_000) },
                parallelism: dice.pick(&[1, 1, 2, 3]),
                has_store: all_stores,
                checkpoint_interval: dice.ms(20, 1_000),
                poll_records: dice.pick(&[1, 10, 100, 4_000]),
                stage_separately: dice.chance(50),
            })
            .collect();
        let parallelism_max = workers.iter().map(|worker| worker.parallelism).max().unwrap_or(1);
        let mut plan = Plan {
            seed,
            nodes,
            source_partitions: dice.pick(&[1, 2, 3, 5]),
            // Each sink subtask needs a partition of its own.
            output_partitions: i32::try_from(parallelism_max).unwrap_or(1) + dice.pick(&[0, 0, 1, 3]),
            record_count: dice.between(20, 600),
            busy_for,
            batches_per_transaction: dice.pick(&[0, 2, 4]),
            at_least_once: dice.chance(8),
            group: GroupPlan {
                lock_duration: dice.ms(15_000, 40_000),
                delivery_limit: 10,
                record_locks: dice.pick(&[100, 400, 2_000]),
                read_committed: dice.chance(60),
            },
            workers,
            yields: dice.chance(75),
            faults: Vec::new(),
        };
        let focus = dice.pick(&[Focus::Mixed, Focus::Mixed, Focus::Nodes, Focus::Workers, Focus::Network]);
        // With all kinds mixed a few faults are enough to ruin the day; of one kind it takes more.
        let fault_count = match focus {
            Focus::Mixed => dice.pick(&[0, 1, 2, 3, 4, 5, 6, 8]),
            Focus::Nodes | Focus::Workers | Focus::Network => dice.pick(&[2, 4, 6, 9]),
        };
        if focus == Focus::Nodes {
            plan.nodes = 3;
        }
        while plan.faults.len() < fault_count {
            let at = dice.ms(0, u64::try_from(busy_for.as_millis()).unwrap_or(u64::MAX));
            let fault = draw_fault(&dice, &plan);
            if focus.covers(&fault) {
                plan.faults.push(TimedFault { at, fault });
            }
        }
        plan.faults.sort_by_key(|fault| fault.at);
        plan
    }
}

fn draw_fault(dice: &Dice, plan: &Plan) -> Fault {
    let worker = dice.index(plan.workers.len());
    let node = dice.index(plan.nodes);
    let way = dice.pick(&[Way::Both, Way::There, Way::Back]);
    loop {
        let fault = match dice.between(0, 18) {
            0 => Fault::Weather {
                lasts: dice.ms(500, 8_000),
                delay_max: dice.ms(5, 400),
                loss_percent: dice.pick(&[0, 2, 10, 30]),
            },
            1 | 2 => Fault::Reset { worker },
            3 => Fault::ResetNode { node },
            4 => Fault::Cut { worker, node, lasts: dice.outage(), way },
            5 => Fault::CutNodes { from: node, to: dice.index(plan.nodes), lasts: dice.outage(), way },
            6 => Fault::PauseWorker { worker, lasts: dice.outage() },
            7 => Fault::PauseNode { node, lasts: dice.outage() },
            8 | 9 => Fault::KillWorker { worker, down: dice.ms(1, 5_000), power: dice.chance(40) },
            10..=12 => {
                Fault::KillWorkerAt { worker, step: dice.pick(&CommitStep::ALL), down: dice.ms(1, 5_000) }
            }
            13 => Fault::Zombie { worker, lasts: dice.outage() },
            14 => Fault::StopWorker { worker, down: dice.ms(1, 5_000) },
            15 => Fault::KillNode { node, down: dice.ms(100, 15_000) },
            16 => Fault::MoveLeader {
                topic: dice.pick(&[
                    MovedTopic::Source,
                    MovedTopic::Output,
                    MovedTopic::Outcome,
                    MovedTopic::ShareState,
                    MovedTopic::TransactionState,
                ]),
                partition: i32::try_from(dice.between(0, 7)).unwrap_or(0),
            },
            17 => Fault::StepClock {
                process: dice.index(plan.workers.len() + plan.nodes),
                by_ms: i64::try_from(dice.between(0, 240_000)).unwrap_or(0) - 120_000,
            },
            _ => Fault::Store {
                lasts: dice.ms(500, 20_000),
                failed_percent: dice.pick(&[0, 10, 50, 100]),
                lost_percent: dice.pick(&[0, 10, 50]),
                delay_max: dice.ms(4, 3_000),
            },
        };
        // A fault that cannot happen in this plan is drawn again.
        let makes_sense = match &fault {
            Fault::CutNodes { from, to, .. } => from != to,
            Fault::MoveLeader { .. } => plan.nodes > 1,
            Fault::Store { .. } => plan.workers.iter().any(|worker| worker.has_store),
            _ => true,
        };
        if makes_sense {
            return fault;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same_plan_and_two_seeds_differ() {
        assert_eq!(Plan::draw(7), Plan::draw(7));
        assert_ne!(Plan::draw(7), Plan::draw(8));
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..2_000 {
            kinds.extend(Plan::draw(seed).faults.iter().map(|timed| timed.fault.kind()));
        }
        assert_eq!(kinds.len(), 16, "{kinds:?}");
    }
}
