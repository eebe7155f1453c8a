//! Windows by event time: orders are counted by customer and hour, and an hour is told once, when its watermark has passed.
//!
//! `cargo run -p sharestream-examples --example event_windows`

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use sharestream_base::Env;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::coordinates::{derived, with_coordinates};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::KeyedState;
use sharestream_core::watermark::{EventTime, Watermark};
use sharestream_core::{JobControl, Result};
use sharestream_examples::{OUTPUT, World};
use sharestream_kafka::Pipeline;
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};

/// Counts the orders of each customer and hour.
struct ByHour;

fn columns<T: From<Field>>(text: &str, numbers: [&str; 2]) -> Vec<T> {
    let number = |name: &str| T::from(Field::new(name, DataType::Int64, true));
    vec![T::from(Field::new(text, DataType::Utf8, true)), number(numbers[0]), number(numbers[1])]
}

impl KeyedOperatorFactory for ByHour {
    fn name(&self) -> &str {
        "by hour"
    }
    fn id(&self) -> &str {
        "orders-by-hour"
    }
    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["customer".to_owned(), "hour_end".to_owned()]
    }
    fn state_fields(&self) -> Vec<FieldRef> {
        columns::<FieldRef>("", ["count", "due"]).split_off(1)
    }
    /// An hour is due when no order before its end is waited for any more.
    fn timer_column(&self) -> Option<String> {
        Some("due".to_owned())
    }
    fn output_schema(&self, _inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(with_coordinates(&Schema::new(columns::<Field>("customer", ["hour_end", "count"]))))
    }
    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(ByHour))
    }
}

impl KeyedOperator for ByHour {
    fn process(&mut self, input: usize, rows: RecordBatch, state: &mut KeyedState) -> Result<OperatorOutput> {
        let slots = state.slots(input, &rows)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let mut counts: Vec<i64> =
            (0..slots.len()).map(|slot| if kept.is_null(slot) { 0 } else { kept.value(slot) }).collect();
        slots.of_row.iter().for_each(|slot| counts[*slot] += 1);
        let ends = state.keys(&slots)?;
        let due = ends.column(1).as_primitive::<Int64Type>().unary::<_, Int64Type>(|end| end - 1);
        let values: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(counts)), Arc::new(due)];
        let values = RecordBatch::try_new(state.value_schema().clone(), values).expect("two columns");
        state.put(&slots, &values, None)?;
        Ok(OperatorOutput::default())
    }

    fn on_watermark(&mut self, watermark: Watermark, state: &mut KeyedState) -> Result<OperatorOutput> {
        let slots = state.due(watermark, 1_000)?;
        let mut columns = state.keys(&slots)?.columns().to_vec();
        let ends = columns[1].as_primitive::<Int64Type>().values().to_vec();
        columns.push(slots.values.column(0).clone());
        state.remove(&slots, &BooleanArray::from(vec![true; slots.len()]));
        let rows = derived(self.output_schema(&[])?, columns, ends).expect("the schema that was said");
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (world, folder) = (World::start().await?, tempfile::tempdir()?);
    for hour in 0..2 {
        let order =
            |n: i64| format!("customer-{},{},{}", n % 3, hour * 3_600_000 + n, (hour + 1) * 3_600_000);
        world.order((0..300).map(order)).await?;
        let mut config = world.config("windows");
        let number = |name| Column::new(name, ColumnType::Int64);
        let columns = vec![Column::new("customer", ColumnType::String), number("at"), number("hour_end")];
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        // One of the partitions may have no orders at all.
        let time = EventTime::in_column("at").with_idle_timeout(Some(Duration::from_millis(200)));
        let control = JobControl::new();
        let job = Pipeline::new(config)
            .options(|options| options.with_event_time(Some(time)))
            .checkpoints(CheckpointStore::local(folder.path(), JobKey::new("windows", "0")).await?)
            .stream(|orders| orders.keyed(Arc::new(ByHour), 2))
            .run(Env::system(), control.clone());
        let (report, output) = tokio::join!(job, async {
            // The first hour is told when orders of the second have come, by another run of the job.
            let output = world.wait_for(OUTPUT, if hour == 0 { 0 } else { 3 }).await;
            while control.snapshot().records_in < 300 {
                Env::system().clock.sleep(Duration::from_millis(10)).await;
            }
            control.drain();
            output
        });
        let (report, output) = (report?, output?);
        println!("run {hour}: watermark {:?}, {output:?}", report.status.watermark_ms);
        assert!(output.iter().all(|row| row["hour_end"] == 3_600_000 && row["count"] == 100));
    }
    assert_eq!(world.committed(OUTPUT).await?.len(), 3);
    world.shutdown().await;
    Ok(())
}
