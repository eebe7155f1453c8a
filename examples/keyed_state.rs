//! State by key that is part of every checkpoint: orders are counted by customer, and a restart goes on counting.
//!
//! `cargo run -p sharestream-examples --example keyed_state`

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use sharestream_base::Env;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::KeyedState;
use sharestream_core::{JobControl, Result};
use sharestream_examples::{OUTPUT, World};
use sharestream_kafka::Pipeline;

/// Appends to each order which one of its customer it is. Never change its id: checkpoints know the state by it.
struct Count;

fn with_count(orders: &Schema) -> SchemaRef {
    let mut fields = orders.fields().to_vec();
    fields.insert(2, Arc::new(Field::new("count", DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

impl KeyedOperatorFactory for Count {
    fn name(&self) -> &str {
        "count"
    }
    fn id(&self) -> &str {
        "count-by-customer"
    }
    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["customer".to_owned()]
    }
    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("count", DataType::Int64, false))]
    }
    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(with_count(&inputs[0]))
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
        let mut of_rows = Vec::new();
        for slot in &slots.of_row {
            counts[*slot] += 1;
            of_rows.push(counts[*slot]);
        }
        let counts = vec![Arc::new(Int64Array::from(counts)) as ArrayRef];
        let counts = RecordBatch::try_new(state.value_schema().clone(), counts).expect("one column");
        state.put(&slots, &counts, None)?;
        let mut columns = rows.columns().to_vec();
        columns.insert(2, Arc::new(Int64Array::from(of_rows)));
        let rows =
            RecordBatch::try_new(with_count(&rows.schema()), columns).expect("the schema that was said");
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let world = World::start().await?;
    let folder = tempfile::tempdir()?;
    for run in 1..=3 {
        world.order((0..300).map(|n| format!("customer-{},{n}", n % 3))).await?;
        let expected = 300 * run;
        let control = JobControl::new();
        let job = Pipeline::new(world.config("count"))
            .checkpoints(CheckpointStore::local(folder.path(), JobKey::new("count", "0")).await?)
            // State moves with its keys: another number of subtasks each time.
            .stream(move |orders| orders.keyed(Arc::new(Count), run))
            .run(Env::system(), control.clone());
        let (report, output) = tokio::join!(job, async {
            let output = world.wait_for(OUTPUT, expected).await;
            control.drain();
            output
        });
        let (report, output) = (report?, output?);
        // Each customer has its hundredth (then two hundredth ...) order, and no count twice.
        let latest: Vec<_> = output.iter().filter(|row| row["count"] == 100 * run).collect();
        println!("run {run}, checkpoint {:?}, {} rows: {}", report.status.checkpoint, expected, latest[0]);
        assert_eq!((latest.len(), output.len()), (3, expected));
        assert!(output.iter().all(|row| row["count"].as_u64() <= Some(100 * run as u64)));
    }
    world.shutdown().await;
    Ok(())
}
