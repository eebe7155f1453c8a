//! Records that take too long are parked, come again from the parking topic and have one outcome in the end, whatever step
//! of a commit the job dies at.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fixtures;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use fixtures::{ByFate, Fate, Findings, PARTITIONS, PATIENCE, RunningJob, World, stop_at};
use sharestream_base::Env;
use sharestream_client::NewTopic;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, CallError};
use sharestream_core::commit::{AckMode, CommitStep, StepHook};
use sharestream_core::coordinates::Coordinates;
use sharestream_core::{ErrorKind, JobBuilder};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, parking};

const RECORDS: i64 = 2_000;
const NOTHING: Findings = Findings { lost: 0, doubled: 0 };
const PARKED: &str = "parked";
/// How often a record may be parked.
const PARK_MAX: u32 = 2;

/// How often a record must be parked before it is answered; never where that is more than it may be.
fn parkings_wanted(id: i64) -> u32 {
    match id % 100 {
        8 => 1,
        28 => 2,
        48 => 3,
        _ => 0,
    }
}

/// Ids that were asked for, by idempotency key.
type Calls = Arc<Mutex<BTreeMap<String, BTreeSet<i64>>>>;

fn world(records: i64, mode: AckModeChoice) -> World {
    let mut world = World::with_records(records);
    world.mode = mode;
    world.block_on(async {
        world.client().admin().create_topic(NewTopic::new(PARKED, PARTITIONS)).await.unwrap();
    });
    world
}

fn config(world: &World) -> KafkaJobConfig {
    let mut config = world.config();
    config.parking_topic = Some(PARKED.to_owned());
    config
}

/// Doubles an id, or hangs until its record was parked often enough.
fn map(calls: Calls, is_ordered: bool) -> AsyncMap {
    let options = AsyncMapOptions::default()
        .with_order(is_ordered)
        .with_concurrency(64)
        .with_holds_after_failures(0)
        .with_park_after(Duration::from_millis(60))
        .with_park_max(PARK_MAX);
    let column = Field::new("doubled", DataType::Int64, false);
    let map = AsyncMap::from_fn("double", [column], move |row| {
        let calls = calls.clone();
        async move {
            let id = row.batch().column(0).as_primitive::<Int64Type>().value(row.index());
            let hidden = Coordinates::of(row.batch()).unwrap();
            let times = hidden.parked_copy(row.index()).unwrap().map_or(0, |copy| copy.times);
            assert!(times <= PARK_MAX);
            calls.lock().unwrap().entry(row.idempotency_key().unwrap()).or_default().insert(id);
            if times < parkings_wanted(id) {
                std::future::pending::<()>().await;
            }
            let column: ArrayRef = Arc::new(Int64Array::from(vec![2 * id]));
            Ok::<_, CallError>(AsyncOutcome::Columns(vec![column]))
        }
    });
    map.options(options)
}

fn build(
    kafka: &KafkaJob,
    calls: Calls,
    is_ordered: bool,
    parallelism: usize,
    hook: Option<StepHook>,
) -> JobBuilder {
    let builder = JobBuilder::new(kafka.id())
        .source(kafka.source_factory(), parallelism)
        .operator(Arc::new(ByFate))
        .async_map(map(calls, is_ordered))
        .sink(kafka.sink_factory(), parallelism)
        .commit(kafka.commit_protocol(hook.clone()));
    match hook {
        Some(hook) => builder.step_hook(hook),
        None => builder,
    }
}

fn wait_until_all_is_decided(world: &World, job: &RunningJob) {
    let clock = Env::system().clock;
    let deadline = clock.now() + PATIENCE;
    let lag = || world.lag(&world.group()) + world.lag_of(&world.group(), PARKED);
    while lag() > 0 {
        assert!(job.end.try_recv().is_err(), "the job ended");
        assert!(clock.now() < deadline, "lag {}, {:?}", lag(), job.control.snapshot());
        world.block_on(clock.sleep(Duration::from_millis(20)));
    }
}

/// Every record below `total` has the one outcome that it must have, by the one chain of copies that leads to it.
fn check(world: &World, calls: &Calls, total: i64, mode: AckMode) {
    assert_eq!(world.check_outcomes(mode), NOTHING);
    // Copies of transactions that aborted are decided by nobody: the brokers pass them over.
    assert_eq!(world.check_outcomes_of(PARKED, mode).doubled, 0);
    let source_id = world.topic_id(&world.source());
    let parking_id = world.topic_id(PARKED);
    let mut written = BTreeSet::new();
    for (provenance, value, headers) in world.committed("output") {
        let row: serde_json::Value = serde_json::from_str(&value).unwrap();
        let id = row["id"].as_i64().unwrap();
        assert_eq!(row["doubled"].as_i64(), Some(2 * id));
        assert_eq!(provenance.topic_id, source_id, "an output names the record as it was at first");
        assert!(written.insert(id), "{id} is in the output twice");
        let was_parked = headers.iter().any(|name| name == "sharestream.parked");
        assert_eq!(was_parked, parkings_wanted(id) > 0, "{id}: {headers:?}");
    }
    let mut dead = BTreeSet::new();
    for (provenance, value, headers) in world.committed("dead") {
        let id: i64 = value.split(',').next().unwrap().parse().unwrap();
        assert_eq!(provenance.topic_id, source_id);
        assert!(dead.insert(id), "{id} is a dead letter twice");
        assert!(headers.iter().all(|name| !name.starts_with("sharestream.parked.")), "{headers:?}");
        assert_eq!(headers[0], "origin", "its own header came back from the parking topic");
    }
    let mut copies: BTreeMap<i64, u32> = BTreeMap::new();
    let mut copied = BTreeSet::new();
    for (via, value, headers) in world.committed_by(PARKED, parking::VIA) {
        let id: i64 = value.split(',').next().unwrap().parse().unwrap();
        *copies.entry(id).or_default() += 1;
        assert!(via.topic_id == source_id || via.topic_id == parking_id);
        assert!(copied.insert(via), "{id} was parked twice from {via}");
        assert_eq!(headers.iter().filter(|name| *name == parking::VIA).count(), 1, "{headers:?}");
    }
    for id in 0..total {
        let is_called = Fate::of(id) == Fate::Written;
        let wanted = parkings_wanted(id);
        let is_bad = matches!(Fate::of(id), Fate::Undecodable | Fate::Refused);
        assert_eq!(written.contains(&id), is_called && wanted <= PARK_MAX, "{id}");
        assert_eq!(dead.contains(&id), is_bad || wanted > PARK_MAX, "{id}");
        assert_eq!(copies.get(&id).copied().unwrap_or(0), wanted.min(PARK_MAX), "{id}");
    }
    let calls = calls.lock().unwrap();
    assert!(calls.values().all(|ids| ids.len() == 1), "a key stands for several records");
    let asked = (0..total).filter(|id| Fate::of(*id) == Fate::Written).count();
    assert_eq!(calls.len(), asked, "a record keeps its key when it is parked");
}

/// Dies at each of the steps in turn, while records keep coming, then runs to the end.
fn crash_at_each(mode: AckModeChoice, expected: AckMode, steps: &[CommitStep]) {
    let world = world(RECORDS, mode);
    let calls = Calls::default();
    let mut total = RECORDS;
    for (index, step) in steps.iter().enumerate() {
        let (hook, reached) = stop_at(*step, index as u64 % 3);
        let (parallelism, own) = (1 + index % 2, calls.clone());
        let hook = std::sync::Mutex::new(Some(hook));
        let job = world.start_built(config(&world), false, move |kafka| {
            build(kafka, own.clone(), index % 2 == 1, parallelism, hook.lock().unwrap().take())
        });
        let mut rounds = 0;
        while reached.recv_timeout(Duration::from_millis(50)).is_err() {
            world.produce(total..total + 50);
            total += 50;
            rounds += 1;
            let end = job.end.try_recv();
            assert!(rounds < 400 && end.is_err(), "{step:?}: {end:?}, {:?}", job.control.snapshot());
        }
        job.crash();
    }
    let own = calls.clone();
    let job = world.start_built(config(&world), true, move |kafka| build(kafka, own.clone(), false, 2, None));
    wait_until_all_is_decided(&world, &job);
    let status = job.drain().status;
    assert!(status.parked > 0, "{status:?}");
    check(&world, &calls, total, expected);
    world.shut_down();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_parked_record() {
    let steps = [
        CommitStep::BeforeManifest,
        CommitStep::AfterOutcome,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::BeforeEndTxn,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
    ];
    crash_at_each(AckModeChoice::Transactional, AckMode::Transactional, &steps);
}

#[test]
fn the_same_in_ledger_mode() {
    let steps = [CommitStep::AfterOutcome, CommitStep::DuringEndTxn, CommitStep::AfterEndTxn];
    crash_at_each(AckModeChoice::Ledger, AckMode::Ledger, &steps);
}

#[test]
fn a_group_that_begins_at_the_end_reads_every_copy_all_the_same() {
    let world = world(0, AckModeChoice::Transactional);
    let calls = Calls::default();
    let mut config = config(&world);
    config.group_configs.insert("share.auto.offset.reset".to_owned(), "latest".to_owned());
    let own = calls.clone();
    let job = world.start_built(config, false, move |kafka| build(kafka, own.clone(), false, 1, None));
    let clock = Env::system().clock;
    let deadline = clock.now() + PATIENCE;
    let mut total = 0;
    while job.control.snapshot().parked < 2 {
        world.produce(total..total + 50);
        total += 50;
        assert!(clock.now() < deadline, "{:?}", job.control.snapshot());
        world.block_on(clock.sleep(Duration::from_millis(20)));
    }
    wait_until_all_is_decided(&world, &job);
    job.drain();
    assert_eq!(world.check_outcomes_of(PARKED, AckMode::Transactional), NOTHING);
    world.shut_down();
}

#[test]
fn a_group_that_reads_uncommitted_records_is_refused_and_so_is_a_topic_that_is_not_there() {
    let world = world(0, AckModeChoice::Transactional);
    let mut config = config(&world);
    config.group_configs.insert("share.isolation.level".to_owned(), "read_uncommitted".to_owned());
    let error = world.connect_error(config.clone());
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("read_committed"), "{error}");
    config.group_configs.remove("share.isolation.level");
    config.parking_topic = Some("elsewhere".to_owned());
    let error = world.connect_error(config);
    assert!(error.to_string().contains("parking topic 'elsewhere' does not exist"), "{error}");
    world.shut_down();
}
