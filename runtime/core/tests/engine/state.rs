//! Operators that keep state: every record counts in it exactly once, whatever fails, and however many subtasks hold it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use sharestream_base::Clock;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::commit::CommitStep;
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::{KeyedState, read_state};
use sharestream_core::{ErrorKind, JobControl, Result};

use crate::fixtures::{Fault, Setup, rows};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 300;

/// Counts the records of each value. The value is the offset, so each counts once for each partition.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    id: &'static str,
    version: u32,
    /// Version 2 keeps twice the count.
    keeps_double: bool,
}

pub(crate) const COUNT: Count = Count { id: "count", version: 1, keeps_double: false };

impl KeyedOperatorFactory for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn id(&self) -> &str {
        self.id
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["value".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("count", DataType::Int64, false))]
    }

    fn state_version(&self) -> u32 {
        self.version
    }

    fn upgrade_state(&self, from: u32, values: RecordBatch) -> Result<RecordBatch> {
        assert_eq!((from, self.version), (1, 2));
        let counts = values.column(0).as_primitive::<Int64Type>().unary::<_, Int64Type>(|count| 2 * count);
        Ok(RecordBatch::try_new(values.schema(), vec![Arc::new(counts)]).unwrap())
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(inputs[0].clone())
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(self.clone()))
    }
}

impl KeyedOperator for Count {
    fn process(
        &mut self,
        input: usize,
        batch: RecordBatch,
        state: &mut KeyedState,
    ) -> Result<OperatorOutput> {
        let slots = state.slots(input, &batch)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let mut counts: Vec<i64> =
            (0..slots.len()).map(|slot| if kept.is_null(slot) { 0 } else { kept.value(slot) }).collect();
        for slot in &slots.of_row {
            counts[*slot] += if self.keeps_double { 2 } else { 1 };
        }
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let counts = RecordBatch::try_new(state.value_schema().clone(), vec![counts]).unwrap();
        state.put(&slots, &counts, None)?;
        Ok(OperatorOutput { rows: Some(batch), rejected: None })
    }
}

pub(crate) async fn setup() -> (Setup, Arc<InMemory>) {
    let mut setup = Setup::new(PARTITIONS, RECORDS);
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects.clone(), JobKey::new("test", "0")).await.unwrap());
    setup.keyed = Some((Arc::new(COUNT), 3));
    (setup, objects)
}

/// The counts in the last committed checkpoint.
pub(crate) async fn counts(setup: &Setup, operator: &Count) -> BTreeMap<i64, i64> {
    let store = setup.store.as_ref().unwrap();
    let manifest = setup.broker.last_committed().manifest.expect("something is committed");
    let manifest = store.load(&manifest).await.unwrap();
    let state = read_state(store, &manifest, operator, &rows::schema()).await.unwrap();
    let mut counts = BTreeMap::new();
    for batch in state.scan(50).unwrap() {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values().to_vec();
        counts.extend(column(0).into_iter().zip(column(1)));
    }
    counts
}

/// Each value that reaches the output counts once for each partition.
pub(crate) fn expected() -> BTreeMap<i64, i64> {
    let reaches = |offset: &i64| rows::fate(*offset) == rows::Fate::Output;
    (0..RECORDS).filter(reaches).map(|offset| (offset, PARTITIONS as i64)).collect()
}

/// Runs attempts until one is drained, each with another parallelism.
async fn run_to_the_end(setup: &mut Setup) {
    let control = JobControl::new();
    for attempt in 1.. {
        let subtasks = [3, 1, 5, 17, 2][attempt % 5];
        setup.keyed = setup.keyed.take().map(|(operator, _)| (operator, subtasks));
        let run = setup.job().run(setup.env.clone(), control.clone());
        let done = setup.drain_when_done(&control);
        let result = tokio::select! {
            result = run => result,
            never = async { done.await; std::future::pending().await } => never,
        };
        match result {
            Ok(_) => return,
            Err(error) => assert!(error.to_string().contains("planned"), "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn state_counts_every_record_once_whatever_crashes_and_however_many_subtasks() {
    for has_two_inputs in [false, true] {
        for step in CommitStep::ALL {
            for reaches_broker in [false, true] {
                let (mut setup, _) = setup().await;
                setup.has_two_inputs = has_two_inputs;
                for after in [0, 2, 0, 3, 1] {
                    setup.faults.plan(step, Fault::Crash, after, reaches_broker);
                }
                run_to_the_end(&mut setup).await;
                assert!(setup.broker.all_decided());
                setup.broker.assert_exactly_once();
                assert_eq!(counts(&setup, &COUNT).await, expected(), "{step:?} {reaches_broker}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_checkpoint_store_an_operator_that_keeps_state_is_refused() {
    let (mut setup, _) = setup().await;
    setup.store = None;
    let error = setup.builder().build().unwrap_err();
    assert!(error.to_string().contains("no checkpoint store"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn two_operators_with_one_id_and_a_missing_key_are_refused() {
    let (setup, _) = setup().await;
    let twice = setup.keyed_twice();
    assert!(twice.build().unwrap_err().to_string().contains("another one keeps state under the id 'count'"));
}

#[tokio::test(start_paused = true)]
async fn damaged_or_missing_state_is_corrupt_and_never_taken_for_none() {
    for is_missing in [false, true] {
        let (mut setup, objects) = setup().await;
        setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 4, true);
        let control = JobControl::new();
        setup.job().run(setup.env.clone(), control.clone()).await.unwrap_err();
        let folder = object_store::path::Path::from("instances/0/state");
        let parts: Vec<_> = futures::TryStreamExt::try_collect(objects.list(Some(&folder))).await.unwrap();
        assert!(!parts.is_empty());
        for part in parts {
            objects.delete(&part.location).await.unwrap();
            if !is_missing {
                objects.put(&part.location, b"damaged".to_vec().into()).await.unwrap();
            }
        }
        setup.keyed = Some((Arc::new(COUNT), 2));
        let error = setup.job().run(setup.env.clone(), control).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn state_that_no_operator_claims_ends_the_start_unless_allowed() {
    let (mut setup, _) = setup().await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 4, true);
    setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    setup.keyed = Some((Arc::new(Count { id: "renamed", ..COUNT }), 2));
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("(count)"), "{error}");
    setup.options = setup.options.with_allow_unclaimed_state(true);
    run_to_the_end(&mut setup).await;
    assert!(setup.broker.all_decided());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_carries_state_over_and_one_that_is_missing_is_refused() {
    let (mut setup, _) = setup().await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 4, true);
    setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    let doubled = Count { version: 2, keeps_double: true, ..COUNT };
    setup.keyed = Some((Arc::new(doubled.clone()), 2));
    run_to_the_end(&mut setup).await;
    let expected: BTreeMap<i64, i64> = expected().into_iter().map(|(key, count)| (key, 2 * count)).collect();
    assert_eq!(counts(&setup, &doubled).await, expected);
    let other = Arc::new(OtherColumns);
    setup.keyed = Some((other, 2));
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("version"), "{error}");
}

/// As [`Count`], but it keeps something else under the same id.
#[derive(Debug)]
struct OtherColumns;

impl KeyedOperatorFactory for OtherColumns {
    fn name(&self) -> &str {
        "count"
    }

    fn id(&self) -> &str {
        "count"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["value".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("name", DataType::Utf8, false))]
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(inputs[0].clone())
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(COUNT))
    }
}

#[tokio::test(start_paused = true)]
async fn old_state_goes_with_the_checkpoints_that_name_it() {
    let (mut setup, objects) = setup().await;
    setup.broker = crate::fixtures::Broker::new(PARTITIONS, 10_000, Clock::system());
    run_to_the_end(&mut setup).await;
    let folder = object_store::path::Path::from("instances/0/state");
    let parts: Vec<_> = futures::TryStreamExt::try_collect(objects.list(Some(&folder))).await.unwrap();
    let commits = setup.broker.commit_count();
    assert!(commits > 300, "{commits}");
    // Retention runs every 64 commits; between two runs each subtask writes one or two parts for each checkpoint.
    assert!(parts.len() < 2 * 2 * (64 + 64 + 16), "{} parts after {commits} commits", parts.len());
}
