//! Windows by event time: each is emitted once, whatever crashes, and no record is late because it came again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use object_store::memory::InMemory;
use sharestream_checkpoints::{CheckpointStore, JobKey, Manifest};
use sharestream_core::commit::CommitStep;
use sharestream_core::coordinates::{COLUMNS, derived, user_column_count, with_coordinates};
use sharestream_core::operator::{
    KeyedOperator, KeyedOperatorFactory, Operator, OperatorFactory, OperatorOutput, RowsPerRecord,
    StatefulOperator, StatefulOperatorFactory,
};
use sharestream_core::state::{KeyedState, read_state};
use sharestream_core::watermark::{EventTime, Watermark};
use sharestream_core::{ErrorKind, JobControl, JobState, Result};

use crate::fixtures::{Fault, Setup, rows};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 300;
const WINDOW_MS: i64 = 50;
const KEYS: i64 = 4;

/// Adds a key and the end of the window to each row. The event time is the value, which is the offset.
struct ToWindows;

fn windowed_schema() -> SchemaRef {
    let column = |name: &str| Field::new(name, DataType::Int64, false);
    with_coordinates(&Schema::new(vec![column("value"), column("key"), column("window_end")]))
}

impl OperatorFactory for ToWindows {
    fn name(&self) -> &str {
        "to windows"
    }

    fn output_schema(&self, _input: SchemaRef) -> Result<SchemaRef> {
        Ok(windowed_schema())
    }

    fn rows_per_record(&self) -> RowsPerRecord {
        RowsPerRecord::AtMostOne
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        Ok(Box::new(ToWindows))
    }
}

impl Operator for ToWindows {
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        let times = batch.column(0).as_primitive::<Int64Type>();
        let keys = times.unary::<_, Int64Type>(|time| time % KEYS);
        let ends = times.unary::<_, Int64Type>(|time| (time / WINDOW_MS + 1) * WINDOW_MS);
        let mut columns = batch.columns().to_vec();
        columns.splice(1..1, [Arc::new(keys) as ArrayRef, Arc::new(ends)]);
        let rows = RecordBatch::try_new(windowed_schema(), columns).unwrap();
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

/// Counts the rows of each key and window, and gives the counts of the windows that are complete, a few at a time.
#[derive(Clone, Default)]
struct CountWindows {
    /// Rows that came when their window was complete.
    late_count: Arc<AtomicU64>,
}

impl KeyedOperatorFactory for CountWindows {
    fn name(&self) -> &str {
        "count windows"
    }

    fn id(&self) -> &str {
        "count-windows"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["key".to_owned(), "window_end".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        let column = |name: &str| Arc::new(Field::new(name, DataType::Int64, false));
        vec![column("count"), column("due")]
    }

    fn timer_column(&self) -> Option<String> {
        Some("due".to_owned())
    }

    fn output_schema(&self, _inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(rows::schema())
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(self.clone()))
    }
}

/// What a window leaves in the output.
fn window_value(key: i64, end: i64, count: i64) -> i64 {
    key * 1_000_000_000 + end * 1_000_000 + count
}

impl KeyedOperator for CountWindows {
    fn process(
        &mut self,
        input: usize,
        batch: RecordBatch,
        state: &mut KeyedState,
    ) -> Result<OperatorOutput> {
        let ends = batch.column(2).as_primitive::<Int64Type>().values();
        let is_late = |end: &&i64| state.watermark().is_some_and(|watermark| watermark.0 >= **end - 1);
        self.late_count.fetch_add(ends.iter().filter(is_late).count() as u64, Ordering::SeqCst);
        let slots = state.slots(input, &batch)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let mut counts: Vec<i64> =
            (0..slots.len()).map(|slot| if kept.is_null(slot) { 0 } else { kept.value(slot) }).collect();
        let mut due = vec![0; slots.len()];
        for (slot, end) in slots.of_row.iter().zip(ends) {
            counts[*slot] += 1;
            due[*slot] = end - 1;
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(counts)), Arc::new(Int64Array::from(due))];
        let values = RecordBatch::try_new(state.value_schema().clone(), columns).unwrap();
        state.put(&slots, &values, None)?;
        Ok(OperatorOutput::default())
    }

    fn on_watermark(&mut self, watermark: Watermark, state: &mut KeyedState) -> Result<OperatorOutput> {
        let slots = state.due(watermark, 3)?;
        let keys = state.keys(&slots)?;
        let column = |batch: &RecordBatch, index: usize| -> Vec<i64> {
            batch.column(index).as_primitive::<Int64Type>().values().to_vec()
        };
        let (keys, ends, counts) = (column(&keys, 0), column(&keys, 1), column(&slots.values, 0));
        let values = (0..slots.len()).map(|slot| window_value(keys[slot], ends[slot], counts[slot]));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        state.remove(&slots, &BooleanArray::from(vec![true; slots.len()]));
        let rows = derived(rows::schema(), vec![values], ends).unwrap();
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

async fn setup() -> (Setup, CountWindows) {
    let mut setup = Setup::new(PARTITIONS, RECORDS);
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects, JobKey::new("test", "0")).await.unwrap());
    setup.operator = Some(Arc::new(ToWindows));
    let operator = CountWindows::default();
    setup.keyed = Some((Arc::new(operator.clone()), 3));
    setup.options = setup.options.with_event_time(Some(EventTime::in_column("value")));
    (setup, operator)
}

/// The counts by key and window, of so many partitions.
fn all_windows(partitions: usize) -> BTreeMap<(i64, i64), i64> {
    let mut windows = BTreeMap::new();
    for time in (0..RECORDS).filter(|offset| rows::fate(*offset) == rows::Fate::Output) {
        let end = (time / WINDOW_MS + 1) * WINDOW_MS;
        *windows.entry((time % KEYS, end)).or_default() += partitions as i64;
    }
    windows
}

/// The last record has time 299, so the watermark is 298 at the end: what the output has then, and what is left in state.
fn expected(partitions: usize) -> (Vec<i64>, BTreeMap<(i64, i64), i64>) {
    let (open, done): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all_windows(partitions).into_iter().partition(|((_, end), _)| *end > 299);
    let mut done: Vec<i64> =
        done.into_iter().map(|((key, end), count)| window_value(key, end, count)).collect();
    done.sort_unstable();
    (done, open)
}

fn emitted(setup: &Setup) -> Vec<i64> {
    let mut values: Vec<i64> = setup.broker.output().iter().map(|row| row.offset).collect();
    values.sort_unstable();
    values
}

async fn manifest(setup: &Setup) -> Manifest {
    let manifest = setup.broker.last_committed().manifest.expect("something is committed");
    setup.store.as_ref().unwrap().load(&manifest).await.unwrap()
}

async fn in_state(setup: &Setup, operator: &CountWindows) -> BTreeMap<(i64, i64), i64> {
    let store = setup.store.as_ref().unwrap();
    let state = read_state(store, &manifest(setup).await, operator, &windowed_schema()).await.unwrap();
    let mut windows = BTreeMap::new();
    for batch in state.scan(50).unwrap() {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values().to_vec();
        let keys = column(0).into_iter().zip(column(1));
        windows.extend(keys.zip(column(2)));
    }
    windows
}

/// Drains the job once all is decided and the watermark has told of it; not before, for a drain waits for no window.
async fn drain_when_told(setup: &Setup, control: &JobControl) {
    let expected = expected(PARTITIONS).0.len();
    let is_done = || {
        let is_running = control.snapshot().state == JobState::Running;
        setup.broker.all_decided() && is_running && setup.broker.output_count() >= expected
    };
    for _ in 0..100_000 {
        if is_done() {
            break;
        }
        setup.env.clock.sleep(Duration::from_millis(1)).await;
    }
    control.drain();
}

/// Runs attempts until one is drained, each with another parallelism.
async fn run_to_the_end(setup: &mut Setup) -> JobControl {
    let control = JobControl::new();
    for attempt in 0.. {
        let subtasks = [3, 1, 5, 2][attempt % 4];
        setup.keyed = setup.keyed.take().map(|(operator, _)| (operator, subtasks));
        setup.sources = [2, 1, 3][attempt % 3];
        let run = setup.job().run(setup.env.clone(), control.clone());
        let done = drain_when_told(setup, &control);
        let result = tokio::select! {
            result = run => result,
            never = async { done.await; std::future::pending().await } => never,
        };
        match result {
            Ok(_) => break,
            Err(error) => assert!(error.to_string().contains("planned"), "{error}"),
        }
    }
    control
}

#[tokio::test(start_paused = true)]
async fn every_window_is_emitted_once_and_whole_whatever_crashes_and_in_whatever_order_records_come() {
    for step in CommitStep::ALL {
        for reaches_broker in [false, true] {
            let (mut setup, operator) = setup().await;
            setup.broker.shuffle(step as u64 * 2 + u64::from(reaches_broker));
            for after in [0, 2, 0, 3, 1] {
                setup.faults.plan(step, Fault::Crash, after, reaches_broker);
            }
            let control = run_to_the_end(&mut setup).await;
            let place = format!("{step:?} {reaches_broker}");
            assert_eq!(setup.broker.violations(), Vec::<String>::new(), "{place}");
            let (done, open) = expected(PARTITIONS);
            assert_eq!(emitted(&setup), done, "{place}");
            assert_eq!(in_state(&setup, &operator).await, open, "{place}");
            assert_eq!(operator.late_count.load(Ordering::SeqCst), 0, "{place}: late because it came again");
            assert_eq!(control.snapshot().watermark_ms, Some(298), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_watermark_of_a_restart_is_that_of_the_last_committed_checkpoint_and_never_falls() {
    let (setup, _) = setup().await;
    setup.broker.shuffle(5);
    for _ in 0..6 {
        setup.faults.plan(CommitStep::BeforeEndTxn, Fault::Crash, 3, false);
    }
    let mut last = None;
    while setup.faults.are_left() {
        let control = JobControl::new();
        setup.job().run(setup.env.clone(), control).await.unwrap_err();
        let event_time = manifest(&setup).await.event_time.expect("it is in every checkpoint");
        assert!(event_time.watermark_ms >= last, "{event_time:?} after {last:?}");
        last = event_time.watermark_ms;
        let standing = setup.broker.standing();
        for times in event_time.partitions {
            let source = sharestream_core::decision::SourcePartition {
                topic_id: times.topic_id,
                partition: times.partition,
            };
            assert_eq!(times.next_offset, Some(standing[&source].start_offset), "what is committed, no more");
        }
    }
    assert!(last.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_empty_partition_holds_the_watermark_until_it_is_idle() {
    let (mut setup, _) = setup().await;
    setup.broker.clear_partition(2);
    let patient = EventTime::in_column("value").with_idle_timeout(None);
    setup.options = setup.options.with_event_time(Some(patient));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let done = setup.drain_when_done(&control);
    let (result, ()) = tokio::join!(run, done);
    result.unwrap();
    assert_eq!(control.snapshot().watermark_ms, None, "partition 2 may have records yet");
    assert_eq!(emitted(&setup), Vec::<i64>::new());

    // The last record is decided long before: that partition 2 is idle is told by checkpoints without a record.
    let soon = EventTime::in_column("value").with_idle_timeout(Some(Duration::from_secs(5)));
    setup.broker = crate::fixtures::Broker::new(PARTITIONS, RECORDS, setup.env.clock.clone());
    setup.broker.clear_partition(2);
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects, JobKey::new("test", "0")).await.unwrap());
    setup.options = setup.options.with_event_time(Some(soon));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let done = async {
        drain_when_told(&setup, &control).await;
        setup.env.clock.now()
    };
    let started_at = setup.env.clock.now();
    let (result, done_at) = tokio::join!(run, done);
    result.unwrap();
    assert_eq!(control.snapshot().watermark_ms, Some(298));
    assert_eq!(emitted(&setup), expected(2).0);
    assert!(done_at.duration_since(started_at) < Duration::from_secs(10), "it does not wait for a record");
    assert_eq!(setup.broker.violations(), Vec::<String>::new());
}

/// Remembers the highest watermark it was told, without keys, and gives it as a row.
struct Clockwork {
    rejects: bool,
    told: i64,
    is_given: bool,
}

struct ClockworkFactory {
    rejects: bool,
}

impl StatefulOperatorFactory for ClockworkFactory {
    fn name(&self) -> &str {
        "clockwork"
    }

    fn id(&self) -> &str {
        "clockwork"
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("told", DataType::Int64, false))]
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        Ok(input)
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn StatefulOperator>> {
        Ok(Box::new(Clockwork { rejects: self.rejects, told: i64::MIN, is_given: false }))
    }
}

impl StatefulOperator for Clockwork {
    fn restore(&mut self, rows: RecordBatch, watermark: Option<Watermark>) -> Result<()> {
        let told = rows.column(0).as_primitive::<Int64Type>().values().iter().max();
        assert!(told.is_none_or(|told| Some(Watermark(*told)) <= watermark.or(Some(Watermark(i64::MIN)))));
        self.told = told.copied().unwrap_or(i64::MIN);
        Ok(())
    }

    fn process(&mut self, _batch: RecordBatch) -> Result<OperatorOutput> {
        Ok(OperatorOutput::default())
    }

    fn snapshot(&mut self) -> Result<RecordBatch> {
        let schema = Arc::new(Schema::new(vec![Field::new("told", DataType::Int64, false)]));
        Ok(RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![self.told]))]).unwrap())
    }

    fn on_watermark(&mut self, watermark: Watermark) -> Result<OperatorOutput> {
        // Once for each watermark that is news to the state, however often it is told.
        if self.is_given || watermark.0 <= self.told {
            self.is_given = false;
            return Ok(OperatorOutput::default());
        }
        self.told = watermark.0;
        self.is_given = true;
        if self.rejects {
            let row = crate::fixtures::Row { partition: 0, offset: 6 };
            return Ok(OperatorOutput { rows: None, rejected: rows::rejected(&[row]) });
        }
        let value: ArrayRef = Arc::new(Int64Array::from(vec![watermark.0]));
        let rows = derived(rows::schema(), vec![value], vec![watermark.0]).unwrap();
        assert_eq!(user_column_count(&rows.schema()) + COLUMNS.len(), rows.num_columns());
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

#[tokio::test(start_paused = true)]
async fn state_without_keys_hears_of_every_watermark_once_over_crashes() {
    let (mut setup, _) = setup().await;
    (setup.operator, setup.keyed) = (None, None);
    setup.sources = 1;
    setup.stateful = Some(Arc::new(ClockworkFactory { rejects: false }));
    for step in [CommitStep::BeforeEndTxn, CommitStep::AfterEndTxn, CommitStep::AfterManifest] {
        setup.faults.plan(step, Fault::Crash, 2, true);
    }
    let control = JobControl::new();
    while setup.faults.are_left() {
        let error = setup.job().run(setup.env.clone(), control.clone()).await.unwrap_err();
        assert!(error.to_string().contains("planned"), "{error}");
    }
    let run = setup.job().run(setup.env.clone(), control.clone());
    let done = async {
        for _ in 0..10_000 {
            if emitted(&setup).last() == Some(&298) {
                break;
            }
            setup.env.clock.sleep(Duration::from_millis(1)).await;
        }
        control.drain();
    };
    let (result, ()) = tokio::join!(run, done);
    result.unwrap();
    let told = emitted(&setup);
    assert_eq!(told.last(), Some(&298));
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "told twice: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn rows_of_state_cannot_be_rejected() {
    let (mut setup, _) = setup().await;
    (setup.operator, setup.keyed) = (None, None);
    setup.stateful = Some(Arc::new(ClockworkFactory { rejects: true }));
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(error.to_string().contains("they come from state"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn wrong_settings_are_refused_before_anything_starts() {
    let (setup, _) = setup().await;
    let refused = |event_time: EventTime| {
        let mut setup = setup.clone();
        setup.options = setup.options.with_event_time(Some(event_time));
        setup.builder().build().unwrap_err().to_string()
    };
    assert!(refused(EventTime::in_column("at")).contains("no event time column 'at' among value"));
    assert!(refused(EventTime::in_column("_key")).contains("BinaryView is no event time"));
    assert!(
        refused(EventTime::in_column("value").with_idle_timeout(Some(Duration::ZERO)))
            .contains("idle_timeout")
    );
    let mut without_store = setup.clone();
    without_store.store = None;
    let error = without_store.builder().build().unwrap_err().to_string();
    assert!(error.contains("no checkpoint store to keep its watermark in"), "{error}");
}
