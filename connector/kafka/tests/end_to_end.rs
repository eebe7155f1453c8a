//! Source to sink through the runtime and the embedded broker: every record has exactly one outcome, also when the
//! job crashes at any step of a commit.

mod fixtures;

use std::time::Duration;

use fixtures::{Bug, Findings, PATIENCE, World, stop_at};
use sharestream_core::ErrorKind;
use sharestream_core::commit::{AckMode, CommitStep};
use sharestream_kafka::AckModeChoice;

const RECORDS: i64 = 5_000;
const NOTHING: Findings = Findings { lost: 0, doubled: 0 };

#[test]
fn a_job_without_crashes_gives_every_record_one_outcome() {
    let world = World::with_records(RECORDS);
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    let report = job.drain();
    assert_eq!(report.status.records_in, RECORDS as u64);
    assert!(report.status.commit_ms.p50 > 0.0, "{:?}", report.status);
    assert_eq!(world.check_output(RECORDS), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Transactional), NOTHING);
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
    let total = world.crash_at_each(&steps, RECORDS);
    let job = world.start(2, None);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(world.check_output(total), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Transactional), NOTHING);
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
    let Findings { lost, doubled } = world.check_output(RECORDS);
    assert_eq!(lost, 0);
    assert!(doubled > 0, "the epoch was committed and not acknowledged");
    world.shut_down();
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::SkipOutcome, Bug::DropRange, Bug::WriteTwice] {
        let world = World::with_records(RECORDS);
        let job = world.start_with(1, None, Some(bug));
        if bug == Bug::DropRange {
            // What is not staged stays locked; after a crash it comes again.
            let mut commits = job.control.status();
            let enough = commits.wait_for(|status| status.records_in >= RECORDS as u64 && status.commits > 0);
            drop(world.block_on(enough));
            job.crash();
            let job = world.start(1, None);
            world.wait_until_caught_up(&job);
            job.drain();
        } else {
            world.wait_until_caught_up(&job);
            job.drain();
        }
        let (output, outcomes) = (world.check_output(RECORDS), world.check_outcomes(AckMode::Transactional));
        match bug {
            Bug::SkipOutcome => assert!(outcomes.lost > 0, "{outcomes:?}"),
            Bug::DropRange => assert!(output.doubled > 0 && outcomes.doubled > 0, "{output:?} {outcomes:?}"),
            Bug::WriteTwice => assert!(output.doubled > 0, "{output:?}"),
        }
        world.shut_down();
    }
}

#[test]
fn what_cannot_work_is_refused_before_the_group_is_joined() {
    let world = World::with_records(0);
    let mut missing = world.config();
    missing.topics.push("nowhere".to_owned());
    missing.sink.topic = "neither".to_owned();
    let error = world.connect_error(missing);
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains("source topic 'nowhere' does not exist"), "{text}");
    assert!(text.contains("sink topic 'neither' does not exist"), "{text}");

    let mut refused = world.config();
    refused.group_configs.insert("share.delivery.count.limit".to_owned(), "many".to_owned());
    let error = world.connect_error(refused);
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

    let mut unreachable = world.config();
    unreachable.bootstrap = vec!["127.0.0.1:1".to_owned()];
    let error = world.connect_error(unreachable);
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    world.shut_down();
}

#[test]
fn a_bad_record_ends_the_job_by_name_when_the_user_wants_that() {
    let world = World::with_records(10);
    let mut config = world.config();
    config.dead_letter_topic = None;
    let job = world.start_config(config, 1, None, None);
    let error = job.end.recv_timeout(PATIENCE).expect("it ends").expect_err("with an error");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot be processed: column n: not an int64"), "{error}");
    assert!(world.committed("output").is_empty());
    world.shut_down();
}

#[test]
fn an_owner_whose_transactional_ids_were_taken_may_start_again() {
    let world = World::with_records(RECORDS);
    let job = world.start(1, None);
    world.wait_until_caught_up(&job);
    // Someone takes the ids without having taken the job: an incarnation that has lost and does not know it yet.
    world.take_transactional_ids();
    world.produce(RECORDS..RECORDS + 100);
    let error = job.end.recv_timeout(PATIENCE).expect("it ends").expect_err("with an error");
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert!(error.to_string().contains("still owns"), "{error}");
    let again = world.start(1, None);
    world.wait_until_caught_up(&again);
    again.drain();
    assert_eq!(world.check_output(RECORDS + 100), NOTHING);
    world.shut_down();
}

#[test]
fn a_second_copy_of_the_job_fences_the_first() {
    let world = World::with_records(RECORDS);
    let first = world.start(1, None);
    world.wait_until_caught_up(&first);
    let second = world.start(1, None);
    let mut total = RECORDS;
    let ended = loop {
        // The first learns of it when it commits next.
        world.produce(total..total + 100);
        total += 100;
        if let Ok(ended) = first.end.recv_timeout(Duration::from_millis(50)) {
            break ended;
        }
        assert!(total < RECORDS + 40_000, "the first was not fenced: {:?}", first.control.snapshot());
    };
    assert_eq!(ended.expect_err("it was fenced").kind(), ErrorKind::Fenced);
    world.wait_until_caught_up(&second);
    second.drain();
    assert_eq!(world.check_output(total), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Transactional), NOTHING);
    world.shut_down();
}
