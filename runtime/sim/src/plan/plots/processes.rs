//! Plots of replicas in three processes.

use super::{busy, spread};
use crate::plan::draw::Dice;
use crate::plan::{Fault, Part, PartPeer, Plan, TimedFault, Way};

/// Rows come late to the sinks, again and again, or are lost with their connections.
pub(super) fn rows_are_late(dice: &Dice, plan: &mut Plan) {
    busy(dice, plan);
    let worker = dice.index(plan.workers.len());
    let parallelism = dice.pick(&[2, 2, 3]);
    plan.workers[worker].in_three_processes = true;
    plan.workers[worker].parallelism = parallelism;
    plan.output_partitions = plan.output_partitions.max(i32::try_from(parallelism).unwrap_or(1));
    for at in spread(dice, plan, 5) {
        let breaks = dice.chance(50);
        let cut = Fault::CutPart {
            worker,
            part: Part::Sources,
            peer: PartPeer::OtherPart,
            lasts: dice.ms(100, 1_500),
            way: Way::There,
            breaks,
        };
        plan.faults.push(TimedFault { at, fault: cut });
    }
}
