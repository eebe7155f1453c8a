//! Operators that keep state without keys: rows of a list, given out again to however many subtasks there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use sharestream_checkpoints::{CheckpointStore, JobKey, Manifest};
use sharestream_core::commit::CommitStep;
use sharestream_core::operator::{OperatorOutput, Redistribution, StatefulOperator, StatefulOperatorFactory};
use sharestream_core::state::read_list_state;
use sharestream_core::watermark::Watermark;
use sharestream_core::{ErrorKind, JobControl, Result};

use crate::fixtures::{Fault, Setup};
use crate::state::{COUNT, counts, expected};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 300;
/// The operator keeps nothing new from this value on.
const KEPT_BELOW: i64 = 200;

/// Keeps the values that it has seen, below a bound, as rows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: &'static str,
    version: u32,
    columns: &'static str,
    rule: Redistribution,
}

const SEEN: Seen = Seen { id: "seen", version: 1, columns: "value", rule: Redistribution::Split };

struct SeenOperator {
    schema: SchemaRef,
    values: Vec<i64>,
}

impl StatefulOperatorFactory for Seen {
    fn name(&self) -> &str {
        "seen"
    }

    fn id(&self) -> &str {
        self.id
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new(self.columns, DataType::Int64, false))]
    }

    fn state_version(&self) -> u32 {
        self.version
    }

    fn upgrade_state(&self, from: u32, rows: RecordBatch) -> Result<RecordBatch> {
        assert_eq!((from, self.version), (1, 2));
        let schema = Arc::new(Schema::new(self.state_fields()));
        Ok(RecordBatch::try_new(schema, rows.columns().to_vec()).unwrap())
    }

    fn redistribution(&self) -> Redistribution {
        self.rule
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        Ok(input)
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn StatefulOperator>> {
        let schema = Arc::new(Schema::new(self.state_fields()));
        Ok(Box::new(SeenOperator { schema, values: Vec::new() }))
    }
}

impl StatefulOperator for SeenOperator {
    fn restore(&mut self, rows: RecordBatch, _watermark: Option<Watermark>) -> Result<()> {
        self.values = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        Ok(())
    }

    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        let values = batch.column(0).as_primitive::<Int64Type>().values();
        self.values.extend(values.iter().filter(|value| **value < KEPT_BELOW));
        Ok(OperatorOutput { rows: Some(batch), rejected: None })
    }

    fn snapshot(&mut self) -> Result<RecordBatch> {
        let values: ArrayRef = Arc::new(Int64Array::from(self.values.clone()));
        Ok(RecordBatch::try_new(self.schema.clone(), vec![values]).unwrap())
    }
}

async fn setup(operator: Seen) -> (Setup, Arc<InMemory>) {
    let mut setup = Setup::new(PARTITIONS, RECORDS);
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects.clone(), JobKey::new("test", "0")).await.unwrap());
    setup.stateful = Some(Arc::new(operator));
    (setup, objects)
}

/// Runs attempts until one is drained, each with another parallelism; all attempts that fail were meant to.
async fn run_to_the_end(setup: &mut Setup, parallelism: &[usize]) {
    let control = JobControl::new();
    for attempt in 0.. {
        setup.sources = parallelism[attempt % parallelism.len()];
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

async fn manifest(setup: &Setup) -> Manifest {
    let manifest = setup.broker.last_committed().manifest.expect("something is committed");
    setup.store.as_ref().unwrap().load(&manifest).await.unwrap()
}

/// How often each value is in the state of the last committed checkpoint.
async fn seen(setup: &Setup, operator: Seen) -> BTreeMap<i64, i64> {
    let manifest = manifest(setup).await;
    let rows = read_list_state(setup.store.as_ref().unwrap(), &manifest, &operator).await.unwrap();
    let mut seen = BTreeMap::new();
    for value in rows.column(0).as_primitive::<Int64Type>().values() {
        *seen.entry(*value).or_default() += 1;
    }
    seen
}

/// Each value that comes by, once for each partition.
fn all_seen() -> BTreeMap<i64, i64> {
    expected().into_iter().filter(|(value, _)| *value < KEPT_BELOW).collect()
}

#[tokio::test(start_paused = true)]
async fn every_row_of_a_list_is_kept_once_whatever_crashes_and_however_many_subtasks() {
    for step in CommitStep::ALL {
        for reaches_broker in [false, true] {
            let (mut setup, _) = setup(SEEN).await;
            for after in [0, 2, 0, 3, 1] {
                setup.faults.plan(step, Fault::Crash, after, reaches_broker);
            }
            run_to_the_end(&mut setup, &[2, 3, 3, 1, 4]).await;
            setup.broker.assert_exactly_once();
            assert_eq!(seen(&setup, SEEN).await, all_seen(), "{step:?} {reaches_broker}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn state_without_keys_and_state_by_key_live_in_one_checkpoint() {
    let (mut setup, _) = setup(SEEN).await;
    setup.keyed = Some((Arc::new(COUNT), 3));
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 4, true);
    run_to_the_end(&mut setup, &[2, 3]).await;
    assert_eq!(seen(&setup, SEEN).await, all_seen());
    assert_eq!(counts(&setup, &COUNT).await, expected());
}

#[tokio::test(start_paused = true)]
async fn with_a_union_every_subtask_gets_the_rows_of_all() {
    let union = Seen { rule: Redistribution::Union, ..SEEN };
    let (mut setup, _) = setup(union).await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 0, true);
    setup.sources = 2;
    setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    let before = seen(&setup, union).await;
    run_to_the_end(&mut setup, &[3]).await;
    let expected = all_seen().into_iter().map(|(value, count)| {
        let restored = before.get(&value).copied().unwrap_or(0);
        (value, count - restored + 3 * restored)
    });
    assert!(!before.is_empty());
    assert_eq!(seen(&setup, union).await, expected.collect());
}

#[tokio::test(start_paused = true)]
async fn rows_that_have_not_changed_are_not_written_again_nor_after_a_start() {
    let (mut setup, objects) = setup(SEEN).await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 17, true);
    run_to_the_end(&mut setup, &[1]).await;
    let commits = setup.broker.commit_count();
    let folder = object_store::path::Path::from("instances/0/state");
    let parts: Vec<_> = futures::TryStreamExt::try_collect(objects.list(Some(&folder))).await.unwrap();
    // Values rise with the epochs, so the last third of them changes nothing: not one part more.
    assert!(parts.len() * 5 < commits * 4, "{} parts in {commits} checkpoints", parts.len());
    assert_eq!(seen(&setup, SEEN).await, all_seen());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_and_the_refusals_are_those_of_state_by_key() {
    let (mut setup, _) = setup(SEEN).await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 4, true);
    setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    let renamed = Seen { columns: "number", ..SEEN };
    for (operator, says) in [
        (renamed, "raise its state_version"),
        (Seen { id: "other", ..SEEN }, "(seen)"),
        (Seen { id: "a b", ..SEEN }, "must have 1 to 100 letters"),
    ] {
        setup.stateful = Some(Arc::new(operator));
        let error = match setup.builder().build() {
            Ok(job) => job.run(setup.env.clone(), JobControl::new()).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
    let upgraded = Seen { version: 2, ..renamed };
    setup.stateful = Some(Arc::new(upgraded));
    run_to_the_end(&mut setup, &[2, 3]).await;
    assert_eq!(seen(&setup, upgraded).await, all_seen());
    setup.store = None;
    assert!(setup.builder().build().unwrap_err().to_string().contains("no checkpoint store"));
}

#[tokio::test(start_paused = true)]
async fn state_by_key_is_not_taken_for_a_list_nor_the_other_way_round() {
    let (mut setup, _) = setup(Seen { id: "count", ..SEEN }).await;
    setup.faults.plan(CommitStep::AfterEndTxn, Fault::Crash, 2, true);
    setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    setup.stateful = None;
    setup.keyed = Some((Arc::new(COUNT), 2));
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("without keys in the checkpoint"), "{error}");
}
