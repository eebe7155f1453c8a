//! Plots in transactional mode.

use std::time::Duration;

use sharestream_core::commit::CommitStep;

use super::{at_once, busy, now, some_time, spread};
use crate::plan::draw::{Dice, millis};
use crate::plan::{Calls, Fault, Moment, Plan, Request, TimedFault};

fn be_transactional(dice: &Dice, plan: &mut Plan) {
    if plan.ledger.take().is_some() {
        plan.group.lock_duration = dice.ms(15_000, 25_000);
    }
}

fn have_stores(plan: &mut Plan) {
    for worker in &mut plan.workers {
        worker.has_store = true;
    }
}

/// A stage never arrives, and everything else goes on.
pub(super) fn stage_is_lost(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    for at in spread(dice, plan, 3) {
        let worker = dice.index(plan.workers.len());
        let moment = Moment::WorkerSends { worker, request: Request::TxnShareAcknowledge };
        let lose = Fault::LoseRequest { lasts: dice.ms(2, 300) };
        plan.faults.push(TimedFault { at, fault: at_once(moment, vec![now(lose)]) });
    }
}

/// The only replica loses what it works on with its connections, and gets it again within the same epoch.
pub(super) fn locks_are_lost_within_an_epoch(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.workers.truncate(1);
    for worker in &mut plan.workers {
        worker.checkpoint_interval = dice.ms(1_000, 2_500);
        worker.poll_records = dice.pick(&[10, 100]);
    }
    for at in spread(dice, plan, 4) {
        plan.faults.push(TimedFault { at, fault: Fault::Reset { worker: 0 } });
    }
}

/// Calls run for longer than locks last, across barriers, and nothing goes wrong.
pub(super) fn calls_outlast_locks(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.busy_for = plan.busy_for.min(Duration::from_secs(12));
    plan.group.lock_duration = Duration::from_secs(3);
    plan.operators.calls = Calls::Deferred;
}

/// Attempts fail when their epochs are closed and not staged, and their sources stay: with records, mostly, that earlier
/// epochs have deferred.
pub(super) fn fails_before_it_stages(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    have_stores(plan);
    if dice.chance(75) {
        plan.operators.calls = Calls::Deferred;
    }
    for at in spread(dice, plan, 3) {
        let moment =
            Moment::Step { worker: dice.index(plan.workers.len()), step: CommitStep::BeforeManifest };
        let (lasts, delay_max) = (dice.ms(100, 4_000), dice.ms(4, 100));
        let store = Fault::Store { lasts, failed_percent: 100, lost_percent: 0, delay_max };
        plan.faults.push(TimedFault { at, fault: at_once(moment, vec![now(store)]) });
    }
}

/// A replica dies when all is prepared and the end of its transaction is not asked for.
pub(super) fn dies_before_its_end(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    have_stores(plan);
    let worker = dice.index(plan.workers.len());
    let kill = Fault::KillWorkerAt { worker, step: CommitStep::BeforeEndTxn, down: dice.ms(1, 3_000) };
    plan.faults.push(TimedFault { at: some_time(dice, plan), fault: kill });
}

/// A replica dies with records that may be delivered once more, and drains when it has them again.
pub(super) fn stops_near_the_limit(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.workers.truncate(1);
    plan.group.delivery_limit = 2;
    // Much is held at a time, and decided in several epochs.
    (plan.nodes, plan.source_partitions) = (1, 5);
    plan.busy_for = plan.busy_for.min(Duration::from_secs(14));
    for worker in &mut plan.workers {
        worker.checkpoint_interval = dice.ms(800, 2_000);
        worker.poll_records = dice.pick(&[10, 100, 4_000]);
    }
    let step = |step| Moment::Step { worker: 0, step };
    let stop = Fault::StopWorker { worker: 0, down: dice.ms(1, 2_000) };
    let stops =
        at_once(step(dice.pick(&[CommitStep::BeforeManifest, CommitStep::BeforeEndTxn])), vec![now(stop)]);
    let kill = Fault::KillWorker { worker: 0, down: dice.ms(50, 2_000), power: false };
    let then = vec![now(kill), TimedFault { at: Duration::from_millis(1), fault: stops }];
    let dies = at_once(step(dice.pick(&[CommitStep::BeforeManifest, CommitStep::AfterOutcome])), then);
    plan.faults.push(TimedFault { at: some_time(dice, plan), fault: dies });
}

/// An incarnation stands still when it has said that it takes the job over and has not done it. Another one does, and
/// stands still in turn before it has written an outcome; a later one would tell the first what has happened, and so would
/// a store.
pub(super) fn overtaken_at_its_start(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.operators.is_stateful = false;
    for worker in &mut plan.workers {
        worker.has_store = false;
    }
    let worker = dice.index(plan.workers.len());
    let first_epoch = Moment::Step { worker, step: CommitStep::BeforeManifest };
    let stands_still = Fault::When { moment: first_epoch, hold: dice.ms(4_000, 8_000), then: Vec::new() };
    let then = vec![now(Fault::Zombie { worker, lasts: dice.ms(1_000, 2_500) }), now(stands_still)];
    let at = some_time(dice, plan);
    let begin = Fault::KillWorker { worker, down: dice.ms(10, 1_000), power: false };
    let says_so = Moment::WorkerSends { worker, request: Request::Produce };
    plan.faults.push(TimedFault { at, fault: begin });
    plan.faults.push(TimedFault { at: at + Duration::from_millis(1), fault: at_once(says_so, then) });
}

/// A stage is on its way to the share coordinator for longer than its transaction lasts.
pub(super) fn stage_outlives_its_transaction(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.nodes = 3;
    plan.source_partitions = plan.source_partitions.max(3);
    for at in spread(dice, plan, 2) {
        let silence = Fault::Silence { lasts: dice.ms(10_200, 20_000) };
        let sent = Moment::NodeSends { request: Request::WriteShareGroupState };
        let step = Moment::Step { worker: dice.index(plan.workers.len()), step: CommitStep::BeforeStaging };
        let stages = at_once(step, vec![now(at_once(sent, vec![now(silence)]))]);
        plan.faults.push(TimedFault { at, fault: stages });
    }
}

/// The end of a transaction is decided, and its coordinator reaches no other node for longer than a transaction may last.
/// What it sent before that is lost.
pub(super) fn markers_outlast_the_time_out(dice: &Dice, plan: &mut Plan) {
    be_transactional(dice, plan);
    busy(dice, plan);
    plan.nodes = 3;
    plan.output_partitions = plan.output_partitions.max(3);
    let worker = dice.index(plan.workers.len());
    let lasts = dice.ms(44_000, 55_000);
    let mut then = vec![now(Fault::Mute { lasts })];
    let before = lasts - Duration::from_millis(1);
    then.extend((0..plan.nodes).map(|node| TimedFault { at: before, fault: Fault::ResetNode { node } }));
    let moment = Moment::WorkerSends { worker, request: Request::EndTxn };
    let at = dice.ms(500, millis(plan.busy_for) / 2);
    plan.faults.push(TimedFault { at, fault: at_once(moment, then) });
}
