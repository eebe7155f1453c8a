//! Source to sink through the runtime and the embedded broker: every record has exactly one outcome, also when the
//! job crashes at any step of a commit.

mod fixtures;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use fixtures::{Bug, ByFate, Fate, Findings, PATIENCE, RunningJob, World, stop_at};
use sharestream_core::commit::{AckMode, CommitStep};
use sharestream_core::coordinates::{self, Coordinates, RejectKind};
use sharestream_core::operator::{Operator, OperatorFactory, OperatorOutput, RowsPerRecord};
use sharestream_core::{ErrorKind, JobBuilder, JobId, Result};
use sharestream_kafka::{AckModeChoice, BadRecords};

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

/// Rejects every record on its first deliveries.
struct Picky {
    until: i16,
    rows: RowsPerRecord,
}

impl Operator for Picky {
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        let counts = Coordinates::of(&batch)?.delivery_counts.values().to_vec();
        let is_early = |early: bool| {
            let rows =
                BooleanArray::from_iter(counts.iter().map(|count| Some((*count < self.until) == early)));
            filter_record_batch(&batch, &rows).expect("same length")
        };
        let early = is_early(true);
        let columns: Vec<ArrayRef> = early.columns()[2..].to_vec();
        let errors = vec![(RejectKind::Call, "come back later"); early.num_rows()];
        let rejected = coordinates::rejected_batch(columns, errors).expect("rejected schema");
        let mut output = ByFate.process(is_early(false))?;
        let both = [Some(rejected), output.rejected.take()];
        let both: Vec<RecordBatch> = both.into_iter().flatten().collect();
        output.rejected = Some(concat_batches(both[0].schema_ref(), &both).expect("one schema"));
        Ok(output)
    }
}

impl OperatorFactory for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        Ok(input)
    }

    fn rows_per_record(&self) -> RowsPerRecord {
        self.rows
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Picky { until: self.until, rows: self.rows }))
    }
}

/// `call` errors are given back, `transform` errors too: those come each time.
fn releasing(world: &World, rows: RowsPerRecord) -> RunningJob {
    let mut config = world.config();
    config.delivery_reserve = 2;
    config.group_configs.insert("share.delivery.count.limit".to_owned(), "5".to_owned());
    config.call_policy = Some(BadRecords::Release);
    config.transform_policy = Some(BadRecords::Release);
    world.start_built(config, false, move |kafka| {
        JobBuilder::new(JobId::new(&kafka.config().job, &kafka.config().instance))
            .source(kafka.source_factory(), 2)
            .operator(Arc::new(Picky { until: 2, rows }))
            .sink(kafka.sink_factory(), 2)
            .commit(kafka.commit_protocol(None))
    })
}

#[test]
fn records_that_are_given_back_come_again_and_count_once_or_become_dead_letters_at_their_limit() {
    const RECORDS: i64 = 300;
    for mode in [AckModeChoice::Transactional, AckModeChoice::Ledger, AckModeChoice::AtLeastOnce] {
        let mut world = World::with_records(RECORDS);
        world.mode = mode;
        let job = releasing(&world, RowsPerRecord::AtMostOne);
        world.wait_until_caught_up(&job);
        let control = job.control.clone();
        let status = job.drain().status;
        assert_eq!(world.check_output(RECORDS), Findings::default(), "{mode:?}");
        let always = (0..RECORDS).filter(|id| Fate::of(*id) == Fate::Refused).count() as u64;
        // Everything but what does not decode once, and the others that fail once more.
        let decoded = (0..RECORDS).filter(|id| Fate::of(*id) != Fate::Undecodable).count() as u64;
        assert_eq!(control.metrics().source.releases, decoded + always, "{mode:?}");
        assert_eq!(status.records_in, RECORDS.unsigned_abs(), "each is decided once");
        world.shut_down();
    }
}

#[test]
fn a_record_that_may_be_several_rows_cannot_be_given_back() {
    let world = World::with_records(0);
    let job = releasing(&world, RowsPerRecord::Many);
    let error = job.end.recv_timeout(PATIENCE).unwrap().expect_err("refused");
    assert!(error.to_string().contains("policy release"), "{error}");
    let mut config = world.config();
    config.bad_records = Some(BadRecords::Release);
    let error = world.connect_error(config);
    assert!(error.to_string().contains("delivery-limit-policy"), "{error}");
    world.shut_down();
}
