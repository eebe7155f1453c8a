//! Savepoints on the embedded broker: made while the job runs, gone back to by another parallelism, through a crash at every
//! step.

mod fixtures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use fixtures::{ByFate, Fate, RunningJob, World};
use sharestream_base::{CancellationToken, Env};
use sharestream_checkpoints::{
    CheckpointStore, JobKey, LoadedSavepoint, Retention, SavepointPlace, Savepoints, StoreLocation,
};
use sharestream_core::async_map::{AsyncMap, AsyncOutcome, CallError};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::{KeyedState, read_state};
use sharestream_core::{ErrorKind, JobBuilder, Result, Stream};
use sharestream_kafka::savepoint::{
    RewindStep, SavepointOf, SavepointStart, StartChoice, Started, start_from, take,
};
use sharestream_kafka::{AckModeChoice, KafkaJob};

const RECORDS: i64 = 1_000;
const REWIND: StartChoice = StartChoice { rewind: true, again: false };

/// Counts the records of each id: each must count once, however often the job goes back.
struct Count;

impl KeyedOperatorFactory for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn id(&self) -> &str {
        "count"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["id".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("count", DataType::Int64, false))]
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(inputs[0].clone())
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(Count))
    }
}

impl KeyedOperator for Count {
    fn process(&mut self, input: usize, rows: RecordBatch, state: &mut KeyedState) -> Result<OperatorOutput> {
        let slots = state.slots(input, &rows)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let mut counts: Vec<i64> =
            (0..slots.len()).map(|slot| if kept.is_null(slot) { 0 } else { kept.value(slot) }).collect();
        for slot in &slots.of_row {
            counts[*slot] += 1;
        }
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let counts = RecordBatch::try_new(state.value_schema().clone(), vec![counts]).expect("one column");
        state.put(&slots, &counts, None)?;
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

/// A world with a stateful job and its store.
struct Stateful {
    world: World,
    folder: tempfile::TempDir,
    opened: CancellationToken,
}

fn is_held(id: i64) -> bool {
    (RECORDS..RECORDS + 100).contains(&id) && id % 10 == 4
}

const HELD: i64 = 10;

/// A call that takes until `opened`, for the records that are held.
fn gate(opened: CancellationToken) -> AsyncMap {
    AsyncMap::from_fn("gate", [], move |row| {
        let id = row.batch().column(0).as_primitive::<Int64Type>().value(row.index());
        let opened = opened.clone();
        async move {
            if is_held(id) {
                opened.cancelled().await;
            }
            Ok::<_, CallError>(AsyncOutcome::Columns(Vec::new()))
        }
    })
}

impl Stateful {
    fn new(mode: AckModeChoice) -> Self {
        let mut world = World::with_records(RECORDS);
        world.mode = mode;
        Stateful { world, folder: tempfile::tempdir().expect("a folder"), opened: CancellationToken::new() }
    }

    fn key(&self) -> JobKey {
        let config = self.world.config();
        JobKey::new(config.job, config.instance)
    }

    fn store(&self) -> CheckpointStore {
        self.world
            .block_on(CheckpointStore::local(self.folder.path(), self.key()))
            .expect("the store opens")
            .with_retention(Retention::keep_last(1))
    }

    /// Starts the job, under this parallelism before and behind the keys. Some records wait for `opened`, while
    /// checkpoints go on without them.
    fn start(&self, parallelism: usize, keyed: usize) -> RunningJob {
        let (store, opened) = (self.store(), self.opened.clone());
        self.world.start_built(self.world.config(), true, move |kafka| {
            let stream = Stream::from_source(kafka.source_factory(), parallelism)
                .operator(Arc::new(ByFate))
                .async_map(gate(opened.clone()))
                .keyed(Arc::new(Count), keyed);
            JobBuilder::new(kafka.id())
                .stream(stream)
                .sink(kafka.sink_factory(), parallelism)
                .commit(kafka.commit_protocol(None))
                .checkpoints(Some(store.clone()))
        })
    }

    fn of(&self) -> SavepointOf {
        let config = self.world.config();
        SavepointOf {
            job: config.job,
            instance: config.instance,
            group: config.group,
            topics: config.topics,
            outcome_topic: config.outcome_topic,
        }
    }

    fn take(&self) -> LoadedSavepoint {
        let store = self.store();
        let to = Savepoints::of_store(&store);
        self.world.block_on(take(&self.world.client(), &self.of(), Some(&store), &to)).expect("a savepoint")
    }

    /// Prepares a start; `crash` ends a rewind behind that step.
    fn start_from(
        &self,
        savepoint: &LoadedSavepoint,
        choice: StartChoice,
        crash: Option<RewindStep>,
    ) -> Result<Started> {
        let store = self.store();
        self.world.block_on(async {
            let kafka = KafkaJob::connect(Env::system(), self.world.config()).await?;
            let start = SavepointStart::new(&kafka, Some(store), savepoint).choice(choice);
            let hook = Box::new(move |step| match Some(step) == crash {
                true => Err(sharestream_core::Error::new(ErrorKind::Closed, "crashed")),
                false => Ok(()),
            });
            start_from(start.hook(hook)).await
        })
    }

    /// The count of each id in the last completed checkpoint.
    fn counts(&self) -> BTreeMap<i64, i64> {
        let store = self.store();
        self.world.block_on(async {
            let seen = sharestream_checkpoints::Inspection::of(&store).await.expect("a store");
            let (_, manifest) = seen.last_completed().expect("one").manifest.clone().expect("intact");
            let schema = self.world.config().format.schema();
            let state = read_state(&store, &manifest, &Count, &schema).await.expect("state");
            let mut counts = BTreeMap::new();
            for batch in state.scan(500).expect("rows") {
                let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values().to_vec();
                counts.extend(column(0).into_iter().zip(column(1)));
            }
            counts
        })
    }

    /// How often each place of the source is in the output.
    fn copies(&self) -> BTreeMap<(i32, i64), usize> {
        let mut copies = BTreeMap::new();
        for (provenance, ..) in self.world.committed("output") {
            *copies.entry((provenance.partition.0, provenance.offset.0)).or_default() += 1;
        }
        copies
    }

    fn wait_for_lag(&self, job: &RunningJob, lag: impl Fn(i64) -> bool) {
        let clock = Env::system().clock;
        let deadline = clock.now() + fixtures::PATIENCE;
        while !lag(self.world.lag(&self.world.group())) {
            assert!(
                clock.now() < deadline,
                "lag {}, {:?}",
                self.world.lag(&self.world.group()),
                job.control.snapshot()
            );
            self.world.block_on(clock.sleep(Duration::from_millis(20)));
        }
    }
}

fn written(ids: std::ops::Range<i64>) -> BTreeMap<i64, i64> {
    ids.filter(|id| Fate::of(*id) == Fate::Written).map(|id| (id, 1)).collect()
}

fn goes_back(mode: AckModeChoice) {
    let stateful = Stateful::new(mode);
    let world = &stateful.world;
    // A group that has read before: its configs are set by the first start of the job.
    let job = stateful.start(2, 2);
    world.wait_until_caught_up(&job);
    job.drain();
    let job = stateful.start(2, 2);
    world.produce(RECORDS..2 * RECORDS);
    stateful.wait_for_lag(&job, |lag| lag == HELD);
    let savepoint = stateful.take();
    let decided_above: usize = savepoint.savepoint.sources.iter().map(|source| source.decided.len()).sum();
    assert!(decided_above > 0, "what is held leaves holes: {:?}", savepoint.savepoint.sources);
    let counts_at_savepoint = {
        let schema = world.config().format.schema();
        let store = stateful.store();
        world.block_on(async {
            let manifest_ref = savepoint.savepoint.manifest.clone().expect("a manifest");
            let manifest = store.load(&manifest_ref).await.expect("still there");
            let state = read_state(&store, &manifest, &Count, &schema).await.expect("state");
            state.scan(10_000).expect("rows").iter().map(RecordBatch::num_rows).sum::<usize>()
        })
    };
    stateful.opened.cancel();
    let total = 3 * RECORDS;
    world.produce(2 * RECORDS..total);
    world.wait_until_caught_up(&job);
    let error = stateful.start_from(&savepoint, REWIND, None).expect_err("members are in the group");
    assert!(error.to_string().contains("members"), "{error}");
    job.drain();
    let all = written(0..total);
    assert_eq!(stateful.counts(), all);
    let before = stateful.copies();
    assert!(before.values().all(|copies| *copies == 1) && before.len() == all.len());

    let error =
        stateful.start_from(&savepoint, StartChoice::default(), None).expect_err("not the last commit");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("--rewind"), "{error}");

    for step in RewindStep::ALL {
        let error = stateful.start_from(&savepoint, REWIND, Some(step));
        if step == RewindStep::Ready {
            assert!(error.is_err());
            break;
        }
        assert!(error.expect_err("it crashed").to_string().contains("crashed"), "{step:?}");
        let refused = stateful.start(1, 1).end.recv_timeout(fixtures::PATIENCE).expect("it ends");
        let refused = refused.expect_err("no job starts between the steps");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{step:?}: {refused}");
        assert!(refused.to_string().contains("--rewind once more"), "{step:?}: {refused}");
    }
    // The crash was behind the last step: it is done, and not done again.
    let started = stateful.start_from(&savepoint, REWIND, None).expect("it goes on");
    assert!(matches!(started, Started::GoesOn { .. }), "{started:?}");
    assert_eq!(stateful.counts().len(), counts_at_savepoint, "the state of the savepoint is the last commit");

    let job = stateful.start(1, 3);
    world.wait_until_caught_up(&job);
    let report = job.drain();
    assert!(report.status.already_decided > 0, "{:?}", report.status);
    assert_eq!(stateful.counts(), all, "each record counts once");
    let after = stateful.copies();
    let mut twice = 0;
    for ((partition, offset), copies) in &after {
        let source = savepoint.savepoint.sources.iter().find(|source| source.partition.0 == *partition);
        let source = source.expect("every partition is in it");
        let was_decided = *offset < source.start_offset.0
            || source.decided.iter().any(|range| (range.first.0..=range.last.0).contains(offset));
        let expected = if was_decided { 1 } else { 2 };
        assert_eq!(*copies, expected, "partition {partition} offset {offset}");
        twice += usize::from(!was_decided);
    }
    assert_eq!(after.len(), all.len());
    assert_eq!(all.len() - counts_at_savepoint, twice, "what the state did not hold was processed again");

    let error = stateful.start_from(&savepoint, REWIND, None).expect_err("it went back before");
    assert!(error.to_string().contains("--again"), "{error}");
    stateful.world.shut_down();
}

#[test]
fn a_job_goes_back_to_a_savepoint_and_processes_once_more_what_came_after_it_transactional() {
    goes_back(AckModeChoice::Transactional);
}

#[test]
fn a_job_goes_back_to_a_savepoint_and_processes_once_more_what_came_after_it_ledger() {
    goes_back(AckModeChoice::Ledger);
}

#[test]
fn the_last_commit_goes_on_also_where_the_store_is_lost_and_damage_is_found_before_anything_is_changed() {
    let stateful = Stateful::new(AckModeChoice::Transactional);
    stateful.opened.cancel();
    let world = &stateful.world;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let to = world.block_on(StoreLocation::folder(elsewhere.path()).open()).expect("opened");
    let none =
        world.block_on(take(&world.client(), &stateful.of(), None, &Savepoints::at(&to).expect("a place")));
    assert!(none.is_err(), "nothing is committed yet");
    let job = stateful.start(2, 2);
    world.wait_until_caught_up(&job);
    job.drain();
    let store = stateful.store();
    let place = Savepoints::at(&to).expect("a place");
    let savepoint =
        world.block_on(take(&world.client(), &stateful.of(), Some(&store), &place)).expect("a savepoint");
    let started = stateful.start_from(&savepoint, StartChoice::default(), None).expect("it goes on");
    assert_eq!(started, Started::GoesOn { checkpoint_restored: false });

    std::fs::remove_dir_all(stateful.folder.path().join("instances")).expect("the store is lost");
    let started = stateful.start_from(&savepoint, StartChoice::default(), None).expect("it goes on");
    assert_eq!(started, Started::GoesOn { checkpoint_restored: true });
    world.produce(RECORDS..RECORDS + 200);
    let job = stateful.start(1, 3);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(stateful.counts(), written(0..RECORDS + 200));

    let folder = elsewhere.path().join(&savepoint.savepoint.name);
    let part =
        std::fs::read_dir(folder.join("state")).expect("parts").next().expect("one").expect("one").path();
    std::fs::write(&part, b"other").expect("damaged");
    let opened = world.block_on(StoreLocation::folder(&folder).open_existing()).expect("opened");
    let damaged =
        world.block_on(SavepointPlace::at(&opened).expect("a place").load()).expect("the document is whole");
    let error = stateful.start_from(&damaged, REWIND, None).expect_err("a part is damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("damaged"), "{error}");
    // Nothing was changed: the job starts as before.
    let job = stateful.start(1, 1);
    world.produce(RECORDS + 200..RECORDS + 300);
    world.wait_until_caught_up(&job);
    job.drain();
    assert_eq!(stateful.counts(), written(0..RECORDS + 300));
    stateful.world.shut_down();
}
