//! Plots: settings and faults of ledger mode that belong together. Some mistakes show only when several things are as they
//! rarely are by chance: who stands still must be out of its group and hold its locks, or who is dead must stay so while
//! the log is compacted.

use std::time::Duration;

use sharestream_core::commit::CommitStep;

use super::draw::{Dice, millis};
use super::ledger::CLAIMED;
use super::{Fault, LedgerPlan, Moment, Plan, Request, TimedFault, Way, WorkerPlan};

/// Claimed, and not far from it: others have read the claim by the time that something happens to its owner.
const JUST_CLAIMED: [CommitStep; 2] = [CommitStep::AfterOutcome, CommitStep::BeforeStaging];

/// Replaces the faults of a plan by those of one plot.
pub(super) fn make_plot(dice: &Dice, plan: &mut Plan) {
    plan.faults.clear();
    match dice.between(0, 9) {
        0..=2 => reset_behind_a_back(dice, plan),
        3 | 4 => reset_while_away(dice, plan),
        5 | 6 => ghost_of_a_claim(dice, plan),
        7 => dead_for_long(dice, plan),
        _ => late_floor(dice, plan),
    }
}

fn now(fault: Fault) -> TimedFault {
    TimedFault { at: Duration::ZERO, fault }
}

fn two_workers(dice: &Dice, plan: &mut Plan) {
    plan.workers.truncate(2);
    while let (Some(first), true) = (plan.workers.first(), plan.workers.len() < 2) {
        let other = WorkerPlan { starts_at: dice.ms(0, 1_500), ..first.clone() };
        plan.workers.push(other);
    }
}

/// Records come all the time, and epochs are short.
fn busy(dice: &Dice, plan: &mut Plan) {
    plan.busy_for = dice.ms(14_000, 24_000);
    plan.record_count = dice.between(500, 900);
    for worker in &mut plan.workers {
        worker.checkpoint_interval = dice.ms(20, 300);
        worker.poll_records = dice.pick(&[1, 10, 10]);
    }
}

fn ledger(plan: &mut Plan, set: impl FnOnce(&mut LedgerPlan)) {
    if let Some(ledger) = &mut plan.ledger {
        set(ledger);
    }
}

/// Who stands still goes on when the other replica starts again, which the end of a reset is the reason for: before that one
/// has processed everything anew.
fn back_after_the_reset(dice: &Dice, worker: usize, reset_at: Duration) -> TimedFault {
    let moment = Moment::WorkerSends { worker: 1 - worker, request: Request::InitProducerId };
    let back = TimedFault { at: dice.ms(0, 300), fault: Fault::ResumeWorker { worker } };
    // By then the other one has drained.
    let at = reset_at + Duration::from_millis(800);
    TimedFault { at, fault: Fault::When { moment, hold: Duration::ZERO, then: vec![back] } }
}

/// A replica stands still for longer than its session lasts, and the group is reset while it is out. Sessions are so short
/// that an epoch may outlast them. It comes back with a claim that it has not made, or not committed.
fn reset_behind_a_back(dice: &Dice, plan: &mut Plan) {
    two_workers(dice, plan);
    plan.nodes = 3;
    let session = dice.ms(2_000, 4_000);
    ledger(plan, |ledger| ledger.session_timeout = Some(session));
    // Nobody else takes its records, and so ends its transaction, before the reset.
    plan.group.lock_duration = dice.ms(28_000, 38_000);
    let worker = dice.index(plan.workers.len());
    let hold = Duration::from_secs(25);
    let steps = [CommitStep::BeforeManifest, CommitStep::AfterManifest];
    // That it is out of the group it hears late, if this is the node that tells it.
    let (node, lasts) = (dice.index(plan.nodes), session + dice.ms(4_000, 6_000));
    let reset_at = dice.ms(1, 500);
    let then = vec![
        now(Fault::Cut { worker, node, lasts, way: Way::Back }),
        TimedFault { at: reset_at, fault: Fault::ResetGroup },
        back_after_the_reset(dice, worker, reset_at),
    ];
    let moment = Moment::Step { worker, step: dice.pick(&steps) };
    let at = dice.ms(500, millis(plan.busy_for) / 2);
    plan.faults.push(TimedFault { at, fault: Fault::When { moment, hold, then } });
}

/// A replica that was never given a record stands still for longer than its session lasts. When it comes back the group was
/// reset: it joins again and is given records, while what was written to the outcome partition meanwhile comes late. (Who
/// was given records before begins anew when it is out of its group, and reads the partition to its end.)
fn reset_while_away(dice: &Dice, plan: &mut Plan) {
    two_workers(dice, plan);
    plan.nodes = 3;
    plan.busy_for = plan.busy_for.min(Duration::from_secs(10));
    let session = dice.ms(2_000, 4_000);
    ledger(plan, |ledger| ledger.session_timeout = Some(session));
    let (worker, starts_at) = (1, plan.busy_for + dice.ms(200, 600));
    plan.workers[worker].starts_at = starts_at;
    let at = starts_at + dice.ms(700, 1_500);
    let lasts = Duration::from_secs(25);
    plan.faults.push(TimedFault { at, fault: Fault::PauseWorker { worker, lasts } });
    let reset_at = at + dice.ms(10, 500);
    plan.faults.push(TimedFault { at: reset_at, fault: Fault::ResetGroup });
    plan.faults.push(back_after_the_reset(dice, worker, reset_at));
    let (node, lasts) = (dice.index(plan.nodes), session + dice.ms(4_000, 7_000));
    plan.faults.push(TimedFault { at, fault: Fault::Cut { worker, node, lasts, way: Way::Back } });
}

/// A replica has read the claim of another, which dies. It gets the records, and stands still until claim and marker are
/// compacted away (F7). Then it alone is left.
fn ghost_of_a_claim(dice: &Dice, plan: &mut Plan) {
    two_workers(dice, plan);
    busy(dice, plan);
    ledger(plan, |ledger| {
        ledger.segment_bytes = dice.pick(&[200, 1_500]);
        ledger.delete_retention = Duration::from_millis(500);
        ledger.commit_deadline = dice.ms(1_000, 4_000);
    });
    plan.group.lock_duration = dice.ms(25_000, 40_000);
    let worker = dice.index(2);
    let (other, at) = (1 - worker, dice.ms(60, 250));
    let stands_still = dice.ms(5_000, 9_000);
    let kill = |down| Fault::KillWorker { worker, down, power: false };
    let then = vec![
        TimedFault { at, fault: kill(dice.ms(700, 1_500)) },
        TimedFault {
            at: at + dice.ms(30, 500),
            fault: Fault::PauseWorker { worker: other, lasts: stands_still },
        },
        TimedFault { at: at + stands_still, fault: kill(dice.ms(60_000, 80_000)) },
    ];
    let moment = Moment::Step { worker, step: dice.pick(&JUST_CLAIMED) };
    let hold = at + Duration::from_millis(100);
    let at = dice.ms(1_000, 4_000);
    plan.faults.push(TimedFault { at, fault: Fault::When { moment, hold, then } });
}

/// The owner of a claim is dead for as long as its transaction may last, and its records are with others at once (rule 13).
fn dead_for_long(dice: &Dice, plan: &mut Plan) {
    two_workers(dice, plan);
    ledger(plan, |ledger| ledger.commit_deadline = dice.ms(1_000, 3_000));
    let worker = dice.index(2);
    let down = dice.ms(45_000, 70_000);
    let kill = Fault::KillWorker { worker, down, power: false };
    let moment = Moment::Step { worker, step: dice.pick(&CLAIMED) };
    let at = dice.ms(500, millis(plan.busy_for) * 3 / 4);
    let then = vec![now(kill)];
    plan.faults.push(TimedFault { at, fault: Fault::When { moment, hold: Duration::ZERO, then } });
}

/// A floor is on its way while others raise higher ones (F1).
fn late_floor(dice: &Dice, plan: &mut Plan) {
    two_workers(dice, plan);
    busy(dice, plan);
    for _ in 0..dice.between(1, 3) {
        let moment = Moment::WorkerSends { worker: dice.index(2), request: Request::Floor };
        let then = vec![now(Fault::Silence { lasts: dice.ms(1_500, 6_000) })];
        let at = dice.ms(1_000, 10_000);
        plan.faults.push(TimedFault { at, fault: Fault::When { moment, hold: Duration::ZERO, then } });
    }
}
