//! Replicas in three processes, and what happens to two of them. What happens to a worker of the other files happens to
//! the coordinator.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_core::commit::CommitStep;
use sharestream_core::remote::Role;

use super::draw::{Dice, millis};
use super::{Fault, Moment, Plan, TimedFault, Way, any};

/// A process of a replica beside its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Source tasks and operators.
    Sources,
    /// Sink tasks.
    Sinks,
}

impl Part {
    pub(crate) const ALL: [Part; 2] = [Part::Sources, Part::Sinks];

    pub(crate) fn other(self) -> Part {
        match self {
            Part::Sources => Part::Sinks,
            Part::Sinks => Part::Sources,
        }
    }

    pub(crate) fn role(self) -> Role {
        match self {
            Part::Sources => Role::Sources,
            Part::Sinks => Role::Sinks,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.role(), f)
    }
}

/// Whom a part talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartPeer {
    /// Its coordinator.
    Coordinator,
    /// The sinks, for sources; the sources, for sinks.
    OtherPart,
    /// A node.
    Node(usize),
}

/// Drawn apart, from dice of their own, so that all other plans stay what they are. Not where replicas change their mode or
/// their generation in the run: all three processes would have to be told at once.
pub(super) fn draw_processes(plan: &mut Plan) {
    let dice = Dice::of(plan.seed, "processes");
    let changes = any(&plan.faults, &|fault| matches!(fault, Fault::RollOut { .. } | Fault::ResetGroup));
    if !dice.chance(20) || changes {
        return;
    }
    let only = dice.index(plan.workers.len());
    for (index, worker) in plan.workers.iter_mut().enumerate() {
        worker.in_three_processes = index == only || dice.chance(50);
    }
    let replicas: Vec<usize> =
        (0..plan.workers.len()).filter(|index| plan.workers[*index].in_three_processes).collect();
    for _ in 0..dice.pick(&[0, 1, 1, 2, 3, 5]) {
        let fault = draw_fault(&dice, plan, dice.pick(&replicas));
        plan.faults.push(TimedFault { at: dice.ms(0, millis(plan.busy_for)), fault });
    }
}

fn draw_fault(dice: &Dice, plan: &Plan, worker: usize) -> Fault {
    let fault = draw_fault_of_part(dice, plan, worker);
    if dice.chance(50) {
        return fault;
    }
    // In the milliseconds of a commit.
    let hold = if dice.chance(30) { Duration::ZERO } else { dice.ms(1, 3_000) };
    let moment = Moment::Step { worker, step: dice.pick(&CommitStep::ALL) };
    Fault::When { moment, hold, then: vec![TimedFault { at: Duration::ZERO, fault }] }
}

fn draw_fault_of_part(dice: &Dice, plan: &Plan, worker: usize) -> Fault {
    let part = dice.pick(&Part::ALL);
    match dice.between(0, 9) {
        0..=2 => Fault::KillPart { worker, part, down: dice.ms(1, 5_000), power: dice.chance(40) },
        3 => Fault::StopPart { worker, part },
        4 => Fault::PausePart { worker, part, lasts: dice.outage(), is_replaced: false },
        5 => Fault::PausePart { worker, part, lasts: dice.outage(), is_replaced: true },
        _ => {
            let node = PartPeer::Node(dice.index(plan.nodes));
            let peer = dice.pick(&[PartPeer::Coordinator, PartPeer::OtherPart, PartPeer::OtherPart, node]);
            let way = dice.pick(&[Way::Both, Way::There, Way::Back]);
            let breaks = dice.chance(60);
            let lasts = if breaks { dice.ms(1, 400) } else { dice.outage() };
            Fault::CutPart { worker, part, peer, lasts, way, breaks }
        }
    }
}
