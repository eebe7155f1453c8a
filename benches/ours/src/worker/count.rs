//! An operator that keeps state: records `key,id` are counted by key, and each gets its number.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::KeyedState;
use sharestream_core::{Error, ErrorKind, Result};
use sharestream_kafka::formats::{Column, ColumnType};

/// Appends `count`, the number of a record among those of its key, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count;

/// Columns of the records.
pub(super) fn columns() -> Vec<Column> {
    vec![Column::new("key", ColumnType::Int64).not_null(), Column::new("id", ColumnType::Int64).not_null()]
}

/// The same as Arrow has them.
pub(crate) fn schema() -> Schema {
    Schema::new(vec![Field::new("key", DataType::Int64, false), Field::new("id", DataType::Int64, false)])
}

/// Where the count is in the output; hidden columns follow.
const COUNT_INDEX: usize = 2;

fn with_count(records: &Schema) -> SchemaRef {
    let mut fields = records.fields().to_vec();
    fields.insert(COUNT_INDEX, Arc::new(Field::new("count", DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

impl KeyedOperatorFactory for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn id(&self) -> &str {
        "count-by-key"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["key".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("count", DataType::Int64, false))]
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(with_count(&inputs[0]))
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(*self))
    }
}

impl KeyedOperator for Count {
    fn process(&mut self, input: usize, rows: RecordBatch, state: &mut KeyedState) -> Result<OperatorOutput> {
        let slots = state.slots(input, &rows)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let mut counts: Vec<i64> =
            (0..slots.len()).map(|slot| if kept.is_null(slot) { 0 } else { kept.value(slot) }).collect();
        let mut of_rows = Vec::with_capacity(slots.of_row.len());
        for slot in &slots.of_row {
            counts[*slot] += 1;
            of_rows.push(counts[*slot]);
        }
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let counts = batch(state.value_schema().clone(), vec![counts])?;
        state.put(&slots, &counts, None)?;
        let mut columns = rows.columns().to_vec();
        columns.insert(COUNT_INDEX, Arc::new(Int64Array::from(of_rows)));
        let rows = batch(with_count(&rows.schema()), columns)?;
        Ok(OperatorOutput { rows: Some(rows), rejected: None })
    }
}

fn batch(schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(schema, columns).map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))
}
