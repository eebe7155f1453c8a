//! Source to sink through the runtime and the embedded broker: every record has exactly one outcome, also when the
//! job crashes at any step of a commit.

mod fixtures;

use fixtures::{PATIENCE, World, stop_at};
use sharestream_core::commit::{AckMode, CommitStep};
use sharestream_kafka::AckModeChoice;

const RECORDS: i64 = 5_000;

#[test]
fn a_job_without_crashes_gives_every_record_one_outcome() {
    let world = World::with_records(RECORDS);
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    let report = job.drain();
    assert_eq!(report.status.records_in, RECORDS as u64);
    assert_eq!(world.check_output(RECORDS), 0);
    world.check_outcomes(AckMode::Transactional);
    world.shut_down();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let steps = [
        CommitStep::BeforeManifest,
        CommitStep::AfterOutcome,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
    ];
    let world = World::with_records(RECORDS);
    for (index, step) in steps.into_iter().enumerate() {
        let (hook, reached) = stop_at(step, 1);
        let job = world.start(1 + index % 2, Some(hook));
        let first = RECORDS + index as i64 * 1_000;
        world.produce(first..first + 1_000);
        let got_there = reached.recv_timeout(PATIENCE);
        assert!(got_there.is_ok(), "{step:?} was not reached: {:?}", job.end.try_recv());
        job.crash();
    }
    let total = RECORDS + steps.len() as i64 * 1_000;
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(world.check_output(total), 0, "doubled");
    world.check_outcomes(AckMode::Transactional);
    world.shut_down();
}

#[test]
fn at_least_once_loses_nothing_and_a_crash_behind_the_commit_doubles() {
    let mut world = World::with_records(RECORDS);
    world.mode = AckModeChoice::AtLeastOnce;
    let (hook, reached) = stop_at(CommitStep::AfterEndTxn, 0);
    let job = world.start(1, Some(hook));
    reached.recv_timeout(PATIENCE).expect("the first commit");
    job.crash();
    let job = world.start(1, None);
    world.wait_until_caught_up(&job);
    job.drain();
    assert!(world.check_output(RECORDS) > 0, "the epoch was committed and not acknowledged");
    world.shut_down();
}
