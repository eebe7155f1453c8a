//! How a plan is drawn.

use std::time::Duration;

use sharestream_base::Rng;
use sharestream_core::commit::CommitStep;

use super::ledger::make_ledger;
use super::plots::{draw_plot, make_named, names};
use super::processes::draw_processes;
use super::scenes::draw_scene;
use super::{Calls, Fault, GroupPlan, MovedTopic, OperatorsPlan, Plan, TimedFault, Way, WorkerPlan};

/// Which faults a plan is about: some bugs need several faults of one kind, which a mix rarely has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Focus {
    Mixed,
    Nodes,
    Workers,
    Network,
    /// Faults at moments of the protocol, in scenes.
    Moments,
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
            | Fault::KillPart { .. }
            | Fault::StopPart { .. }
            | Fault::PausePart { .. }
            | Fault::CutPart { .. }
            | Fault::Store { .. } => Focus::Workers,
            Fault::Weather { .. } | Fault::Reset { .. } | Fault::Cut { .. } | Fault::StepClock { .. } => {
                Focus::Network
            }
            Fault::Join { .. }
            | Fault::LoseAnswer { .. }
            | Fault::LoseRequest { .. }
            | Fault::Mute { .. }
            | Fault::Silence { .. }
            | Fault::When { .. }
            | Fault::ResumeWorker { .. }
            | Fault::RollOut { .. }
            | Fault::ResetGroup => Focus::Moments,
        };
        self == Focus::Mixed || self == about
    }
}

/// Draws numbers for a plan.
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn of(seed: u64, name: &str) -> Self {
        Dice(Rng::seeded(seed).fork(name))
    }

    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    pub(super) fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// Most durations are short; some are long enough for every time-out.
    pub(super) fn outage(&self) -> Duration {
        match self.0.below(8) {
            0..=3 => self.ms(20, 1_500),
            4..=5 => self.ms(1_500, 12_000),
            _ => self.ms(12_000, 50_000),
        }
    }

    pub(super) fn chance(&self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    pub(super) fn index(&self, count: usize) -> usize {
        usize::try_from(self.0.below(count as u64)).unwrap_or(0)
    }

    pub(super) fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let dice = Dice::of(seed, "plan");
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
                in_three_processes: false,
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
            ledger: None,
            group: GroupPlan {
                lock_duration: dice.ms(15_000, 40_000),
                delivery_limit: 10,
                record_locks: dice.pick(&[100, 400, 2_000]),
                read_committed: dice.chance(60),
            },
            operators: OperatorsPlan::default(),
            slow_write: None,
            workers,
            yields: dice.chance(75),
            faults: Vec::new(),
        };
        let focus = dice.pick(&[
            Focus::Mixed,
            Focus::Mixed,
            Focus::Nodes,
            Focus::Workers,
            Focus::Network,
            Focus::Moments,
            Focus::Moments,
            Focus::Moments,
        ]);
        // With all kinds mixed a few faults are enough to ruin the day; of one kind it takes more.
        let fault_count = match focus {
            Focus::Mixed => dice.pick(&[0, 1, 2, 3, 4, 5, 6, 8]),
            Focus::Nodes | Focus::Workers | Focus::Network => dice.pick(&[2, 4, 6, 9]),
            // Scenes are drawn apart.
            Focus::Moments => 0,
        };
        if focus == Focus::Nodes {
            plan.nodes = 3;
        }
        if focus == Focus::Moments {
            plan.nodes = dice.pick(&[1, 3, 3, 3, 3, 3]);
            if dice.chance(60) {
                // Moments come when there is something to commit.
                plan.record_count = dice.between(300, 900);
                plan.busy_for = plan.busy_for.min(dice.ms(8_000, 15_000));
            }
            // A transaction may be staged for longer than this.
            plan.group.lock_duration = plan.group.lock_duration.min(dice.ms(15_000, 25_000));
            if let ([only], true) = (&plan.workers[..], dice.chance(60)) {
                let other = WorkerPlan { starts_at: dice.ms(0, 3_000), ..only.clone() };
                plan.workers.push(other);
            }
            for _ in 0..dice.pick(&[1, 1, 2, 3]) {
                let at = dice.ms(0, millis(plan.busy_for) * 3 / 4);
                plan.faults.extend(draw_scene(&dice, &plan, at));
            }
        }
        while plan.faults.len() < fault_count {
            let at = dice.ms(0, millis(busy_for));
            let fault = draw_fault(&dice, &plan);
            if focus.covers(&fault) {
                plan.faults.push(TimedFault { at, fault });
            }
        }
        make_ledger(&mut plan);
        draw_operators(&mut plan);
        plan.strain_deliveries();
        draw_processes(&mut plan);
        draw_plot(&mut plan);
        plan.faults.sort_by_key(|fault| fault.at);
        plan
    }

    /// The plan of a seed, made into the plot of that name; as it is, if there is none.
    pub fn draw_as(seed: u64, plot: Option<&str>) -> Plan {
        let mut plan = Plan::draw(seed);
        if let Some(name) = plot {
            make_named(&mut plan, name);
        }
        plan
    }

    /// Names of all plots.
    pub fn plots() -> Vec<&'static str> {
        names().collect()
    }

    /// Some groups give a record few deliveries, and some jobs hold records for longer than a lock lasts. Drawn apart: what
    /// the other seeds mean stays.
    fn strain_deliveries(&mut self) {
        let dice = Dice::of(self.seed, "deliveries");
        if dice.chance(25) {
            self.group.delivery_limit = dice.pick(&[5, 5, 4, 3]);
        }
        if dice.chance(10) {
            self.group.lock_duration = Duration::from_secs(6);
            self.slow_write = Some(dice.ms(7_000, 9_000));
            if dice.chance(50) {
                // Where nothing else happens an attempt that fails is a finding.
                self.faults.clear();
            }
        }
    }
}

/// Drawn apart, from dice of their own, so that they change nothing else of a plan.
fn draw_operators(plan: &mut Plan) {
    let dice = Dice::of(plan.seed, "operators");
    let has_stores = plan.workers.iter().all(|worker| worker.has_store);
    plan.operators = OperatorsPlan {
        calls: dice.pick(&[Calls::None, Calls::None, Calls::Deferred, Calls::Awaited]),
        is_ordered: dice.chance(30),
        is_stateful: has_stores && dice.chance(60),
    };
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
                partition: Some(i32::try_from(dice.between(0, 7)).unwrap_or(0)),
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

    /// What happens behind a moment counts as well.
    fn note(faults: &[TimedFault], kinds: &mut std::collections::BTreeSet<&'static str>) {
        for timed in faults {
            kinds.insert(timed.fault.kind());
            if let Fault::When { then, .. } = &timed.fault {
                note(then, kinds);
            }
        }
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..2_000 {
            note(&Plan::draw(seed).faults, &mut kinds);
        }
        assert_eq!(kinds.len(), 32, "{kinds:?}");
    }
}
