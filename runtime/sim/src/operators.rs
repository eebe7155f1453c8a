//! Operators of the job beside [`ByFate`](crate::workload::ByFate): one that calls out, and one that keeps state.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use sharestream_base::{Env, ErrorKind};
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, AsyncRow, CallError};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::state::KeyedState;
use sharestream_core::{Error, Result};

/// Calls for some rows take seconds, so that barriers pass them; some fail, and are repeated.
pub(crate) fn calls(env: &Env, is_ordered: bool) -> AsyncMap {
    let (clock, rng) = (env.clock.clone(), env.rng.fork("calls"));
    let column = Field::new("called", DataType::Boolean, false);
    let options = AsyncMapOptions::default()
        .with_concurrency(50)
        .with_order(is_ordered)
        .with_attempts_max(u32::MAX)
        .with_backoff_max(Duration::from_secs(1));
    let map = AsyncMap::from_fn("calls", [column], move |row: AsyncRow| {
        let (clock, rng) = (clock.clone(), rng.clone());
        async move {
            let id = row.batch().column(0).as_primitive::<Int64Type>().value(row.index());
            let longest = if id % 50 == 7 { 6_000 } else { 30 };
            clock.sleep(Duration::from_millis(rng.below(longest))).await;
            if rng.below(20) == 0 {
                return Err(CallError::transient("the simulated service is busy"));
            }
            let column: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
            Ok(AsyncOutcome::Columns(vec![column]))
        }
    });
    map.options(options)
}

/// Counts the rows of each record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountById;

impl KeyedOperatorFactory for CountById {
    fn name(&self) -> &str {
        "count-by-id"
    }

    fn id(&self) -> &str {
        "count-by-id"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["id".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![Arc::new(Field::new("count", DataType::Int64, false))]
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        inputs.first().cloned().ok_or_else(|| Error::new(ErrorKind::Bug, "an operator without input"))
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(CountById))
    }
}

impl KeyedOperator for CountById {
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
            counts[*slot] += 1;
        }
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let counts = RecordBatch::try_new(state.value_schema().clone(), vec![counts]).map_err(|error| {
            Error::new(ErrorKind::Bug, "counts do not fit their schema").with_source(error)
        })?;
        state.put(&slots, &counts, None)?;
        Ok(OperatorOutput { rows: Some(batch), rejected: None })
    }
}
