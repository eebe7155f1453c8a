//! A whole job in a program of your own: orders above 100 are copied, exactly once.
//!
//! `cargo run -p sharestream-examples --example embed_job`

use std::sync::Arc;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use sharestream_base::Env;
use sharestream_core::operator::{Operator, OperatorFactory, OperatorOutput, RowsPerRecord};
use sharestream_core::{JobControl, JobEnd};
use sharestream_examples::{OUTPUT, World};
use sharestream_kafka::Pipeline;

/// Keeps large orders. A row that is in no output of an operator is filtered: accepted with no effect.
struct LargeOrders;

impl Operator for LargeOrders {
    fn process(&mut self, batch: RecordBatch) -> sharestream_core::Result<OperatorOutput> {
        let amounts = batch.column(1).as_primitive::<Int64Type>();
        let is_large = BooleanArray::from_iter(amounts.iter().map(|amount| Some(amount > Some(100))));
        let rows = filter_record_batch(&batch, &is_large).expect("a mask of the same length");
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

impl OperatorFactory for LargeOrders {
    fn name(&self) -> &str {
        "large-orders"
    }

    fn output_schema(&self, input: SchemaRef) -> sharestream_core::Result<SchemaRef> {
        Ok(input)
    }

    fn rows_per_record(&self) -> RowsPerRecord {
        RowsPerRecord::AtMostOne
    }

    fn create(&self, _subtask: usize) -> sharestream_core::Result<Box<dyn Operator>> {
        Ok(Box::new(LargeOrders))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let world = World::start().await?;
    world.order((0..1_000).map(|n| format!("customer-{},{}", n % 7, n))).await?;

    let control = JobControl::new();
    let job = Pipeline::new(world.config("large-orders"))
        .parallelism(2)
        .stream(|orders| orders.operator(Arc::new(LargeOrders)))
        .run(Env::system(), control.clone());
    let (report, output) = tokio::join!(job, async {
        let output = world.wait_for(OUTPUT, 899).await;
        // A last checkpoint, then the end; `stop()` would end it at once.
        control.drain();
        output
    });

    let (report, output) = (report?, output?);
    assert_eq!(report.end, JobEnd::Drained);
    assert_eq!((report.status.records_in, report.status.rows_out), (1_000, 899));
    assert_eq!(output.iter().map(|row| row["amount"].as_i64()).min(), Some(Some(101)));
    println!(
        "{} orders in, {} large ones out, {} commits in mode {:?}",
        report.status.records_in, report.status.rows_out, report.status.commits, report.status.mode
    );
    world.shutdown().await;
    Ok(())
}
