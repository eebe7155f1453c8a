//! Ledger mode through the runtime and the embedded broker: every record has exactly one outcome, whatever becomes of
//! acknowledgements, answers and owners.

#[allow(dead_code, reason = "shared with other tests, which use more of it")]
mod fixtures;

use std::time::Duration;

use fixtures::{Findings, PATIENCE, World, stop_at};
use sharestream_core::commit::{AckMode, CommitStep};
use sharestream_kafka::AckModeChoice;

const RECORDS: i64 = 5_000;
const NOTHING: Findings = Findings { lost: 0, doubled: 0 };

fn world() -> World {
    let mut world = World::with_records(RECORDS);
    world.mode = AckModeChoice::Ledger;
    world
}

#[test]
fn a_job_without_crashes_gives_every_record_one_outcome() {
    let world = world();
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    let report = job.drain();
    assert_eq!(report.status.mode, Some(AckMode::Ledger));
    assert_eq!(report.status.records_in, RECORDS as u64);
    assert_eq!(world.check_output(RECORDS), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Ledger), NOTHING);
    world.shut_down();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let steps = [
        CommitStep::BeforeManifest,
        CommitStep::AfterOutcome,
        CommitStep::AfterStaging,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
    ];
    let world = world();
    let mut total = RECORDS;
    for (index, step) in steps.into_iter().enumerate() {
        let (hook, reached) = stop_at(step, index as u64 % 3);
        let job = world.start(1 + index % 2, Some(hook));
        let mut rounds = 0;
        while reached.recv_timeout(Duration::from_millis(50)).is_err() {
            world.produce(total..total + 100);
            total += 100;
            rounds += 1;
            assert!(
                rounds < 400,
                "{step:?} was not reached: {:?}, {:?}",
                job.end.try_recv(),
                job.control.snapshot()
            );
        }
        job.crash();
    }
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(world.check_output(total), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Ledger), NOTHING);
    world.shut_down();
}

/// Rule 8 and the drop of decided deliveries: the epoch is committed, its acknowledgements are lost with the process.
#[test]
fn records_that_come_again_after_their_commit_are_acknowledged_and_not_processed_again() {
    let world = world();
    let (hook, reached) = stop_at(CommitStep::AfterEndTxn, 0);
    let job = world.start(1, Some(hook));
    reached.recv_timeout(PATIENCE).expect("the first commit");
    job.crash();
    let job = world.start(1, None);
    world.wait_until_caught_up(&job);
    let report = job.drain();
    assert!(report.status.already_decided > 0, "{:?}", report.status);
    assert_eq!(world.check_output(RECORDS), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Ledger), NOTHING);
    world.shut_down();
}
