//! Row transforms.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::Result;

/// What an operator made of one batch.
#[derive(Debug, Default)]
pub struct OperatorOutput {
    /// Rows to pass on, hidden columns at the end. `None` or no rows: all were filtered.
    pub rows: Option<RecordBatch>,
    /// Rows that the operator rejects, one by one; schema [`crate::coordinates::rejected_schema`].
    pub rejected: Option<RecordBatch>,
}

/// How many rows an operator makes of one source record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsPerRecord {
    /// None or one: a projection, a filter.
    AtMostOne,
    /// Any number: barriers wait for calls of an [`AsyncMap`](crate::async_map::AsyncMap) behind it.
    Many,
}

/// A stateless transform of one subtask.
///
/// A row that is in neither output was filtered: it is ACCEPTed with no effect. An error ends the attempt; a bad
/// *row* is no error, it goes to [`OperatorOutput::rejected`].
pub trait Operator: Send {
    /// Transforms one batch. Runs on the reactor, so it must not block; a batch is bounded by the source.
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput>;
}

/// Makes one operator for each subtask.
pub trait OperatorFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Checks the input schema (hidden columns at the end) and gives the output schema (likewise).
    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef>;
    /// What it promises about rows of one record; the default is the one that is always right.
    fn rows_per_record(&self) -> RowsPerRecord {
        RowsPerRecord::Many
    }
    /// The operator of one subtask.
    fn create(&self, subtask: usize) -> Result<Box<dyn Operator>>;
}
