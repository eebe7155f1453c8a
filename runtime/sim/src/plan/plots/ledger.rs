//! Plots in ledger mode.

use std::time::Duration;

use sharestream_core::commit::CommitStep;

use super::{at_once, busy, now, spread, two_workers};
use crate::plan::draw::{Dice, millis};
use crate::plan::ledger::{CLAIMED, draw_end_of_a_late_owner, draw_ledger};
use crate::plan::{Fault, LedgerPlan, Moment, Plan, Request, TimedFault, Way};

/// Claimed, and not far from it: others have read the claim by the time that something happens to its owner.
const JUST_CLAIMED: [CommitStep; 2] = [CommitStep::AfterOutcome, CommitStep::BeforeStaging];

/// Replaces the faults of a plan by those of one plot.
pub(in crate::plan) fn make_plot(dice: &Dice, plan: &mut Plan) {
    plan.faults.clear();
    match dice.between(0, 9) {
        0..=2 => reset_behind_a_back(dice, plan),
        3 | 4 => reset_while_away(dice, plan),
        5 | 6 => ghost_of_a_claim(dice, plan, (30, 500)),
        7 => dead_for_long(dice, plan),
        _ => late_floor(dice, plan),
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
/// compacted away (F7). Then it alone is left. `soon`: how many milliseconds it has with the records first.
fn ghost_of_a_claim(dice: &Dice, plan: &mut Plan, soon: (u64, u64)) {
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
            at: at + dice.ms(soon.0, soon.1),
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

/// Ledger mode with short deadlines, whatever the plan was.
fn be_in_ledger_mode(dice: &Dice, plan: &mut Plan) {
    plan.ledger = Some(LedgerPlan {
        commit_deadline: Duration::from_millis(dice.pick(&[2_000, 2_000, 4_000])),
        ..draw_ledger(dice)
    });
    plan.group.lock_duration = dice.ms(3_000, 6_000);
    two_workers(dice, plan);
}

/// Two replicas claim the same records at the same time, and what tells each of the claim of the other is slow. Again and
/// again: it is a matter of milliseconds.
pub(super) fn claims_at_once(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    plan.group.lock_duration = dice.ms(15_000, 25_000);
    for at in spread(dice, plan, 6) {
        let worker = dice.index(2);
        let delay_max = dice.ms(20, 300);
        let weather = Fault::Weather { lasts: Duration::from_secs(1), delay_max, loss_percent: 0 };
        let back = vec![now(Fault::ResumeWorker { worker }), now(weather)];
        let moment = |worker| Moment::Step { worker, step: CommitStep::AfterManifest };
        let claims = Fault::When { moment: moment(1 - worker), hold: dice.ms(1, 400), then: back };
        let armed = TimedFault { at: dice.ms(50, 400), fault: claims };
        let then = vec![now(Fault::Reset { worker }), armed];
        let fault = Fault::When { moment: moment(worker), hold: Duration::from_secs(3), then };
        plan.faults.push(TimedFault { at, fault });
    }
}

/// Somebody ends the transaction of a late owner, which commits just before.
pub(super) fn commits_while_it_is_ended(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    plan.group.lock_duration = dice.ms(15_000, 25_000);
    for at in spread(dice, plan, 3) {
        let fault = draw_end_of_a_late_owner(dice, plan, dice.index(2));
        plan.faults.push(TimedFault { at, fault });
    }
}

/// EndTxn has no answer for as long as it is asked for, and never arrives. Acknowledgements would arrive.
pub(super) fn end_is_lost(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    plan.nodes = 3;
    plan.source_partitions = plan.source_partitions.max(3);
    ledger(plan, |ledger| ledger.commit_deadline = Duration::from_secs(2));
    for at in spread(dice, plan, 2) {
        let worker = dice.index(2);
        let lasts = dice.ms(2_500, 4_000);
        let reset = Fault::Reset { worker };
        let then = vec![
            now(Fault::Silence { lasts }),
            TimedFault { at: lasts - Duration::from_millis(1), fault: reset },
        ];
        let moment = Moment::WorkerSends { worker, request: Request::EndTxn };
        plan.faults.push(TimedFault { at, fault: at_once(moment, then) });
    }
}

/// An epoch is closed, and claimed when others have decided its records and a floor has passed them.
pub(super) fn claims_below_the_floor(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    plan.group.lock_duration = dice.ms(3_000, 4_000);
    for at in spread(dice, plan, 2) {
        let hold = plan.group.lock_duration + dice.ms(2_000, 5_000);
        let moment = Moment::Step { worker: dice.index(2), step: CommitStep::AfterManifest };
        plan.faults.push(TimedFault { at, fault: Fault::When { moment, hold, then: Vec::new() } });
    }
}

/// [`dead_for_long`] in a plan that was drawn for something else.
pub(super) fn dies_for_long(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    dead_for_long(dice, plan);
}

/// A floor arrives when others have raised a higher one, and nothing moves any more that would make them raise another.
pub(super) fn floors_are_late(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    busy(dice, plan);
    plan.busy_for = dice.ms(7_000, 11_000);
    let busy_ms = millis(plan.busy_for);
    let moment = Moment::WorkerSends { worker: dice.index(2), request: Request::Floor };
    let silence = Fault::Silence { lasts: dice.ms(4_000, 8_000) };
    let at = dice.ms(busy_ms / 2, busy_ms * 3 / 4);
    plan.faults.push(TimedFault { at, fault: at_once(moment, vec![now(silence)]) });
}

/// [`ghost_of_a_claim`] likewise. Whoever gets the records has no time to claim them, and no reason to end their owner.
pub(super) fn ghosts_of_claims(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    ghost_of_a_claim(dice, plan, (5, 80));
    ledger(plan, |ledger| ledger.commit_deadline = Duration::from_secs(10));
}

/// [`reset_while_away`] likewise.
pub(super) fn is_away_while_the_group_is_reset(dice: &Dice, plan: &mut Plan) {
    be_in_ledger_mode(dice, plan);
    reset_while_away(dice, plan);
}
