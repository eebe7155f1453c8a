//! Row transforms.

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};

use crate::state::KeyedState;
use crate::watermark::Watermark;
use crate::{Error, ErrorKind, Result};

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

/// A transform of one subtask that keeps state by key.
///
/// The state is part of every checkpoint: after a crash the job goes on with the state of the last committed one, and
/// every record counts in it exactly once. Rows of one key all come to one subtask.
pub trait KeyedOperator: Send {
    /// Transforms one batch of input `input` (from 0). As [`Operator::process`], and reads and writes `state`.
    fn process(&mut self, input: usize, batch: RecordBatch, state: &mut KeyedState)
    -> Result<OperatorOutput>;
    /// The watermark has risen, to that of the last committed checkpoint. Called at a barrier, behind all rows in front of it
    /// and before the state is taken: what it gives and what it changes is in that checkpoint. Called again as long as it
    /// gives rows, so that one call need not give them all; after a start it may be called for a watermark that was
    /// told before. Rows have the hidden columns of [`coordinates::derived`](crate::coordinates::derived), and none can be
    /// rejected. Does nothing by default.
    fn on_watermark(&mut self, watermark: Watermark, state: &mut KeyedState) -> Result<OperatorOutput> {
        let _keeps_no_time = (watermark, state);
        Ok(OperatorOutput::default())
    }
}

/// Makes one keyed operator for each subtask.
pub trait KeyedOperatorFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Id under which checkpoints keep the state: letters, digits, '.', '_' and '-', of its own within the job. It must not
    /// change from start to start.
    fn id(&self) -> &str;
    /// Names of the key columns of input `input`. The types must be the same for all inputs.
    fn key_columns(&self, input: usize) -> Vec<String>;
    /// The columns that are kept for each key.
    fn state_fields(&self) -> Vec<FieldRef>;
    /// Version of what is kept. A checkpoint with another one is read through [`KeyedOperatorFactory::upgrade_state`].
    fn state_version(&self) -> u32 {
        1
    }
    /// Values of version `from` as values of this version. Refused by default.
    fn upgrade_state(&self, from: u32, values: RecordBatch) -> Result<RecordBatch> {
        let _not_read = values;
        Err(no_upgrade(self.id(), self.state_version(), from))
    }
    /// The state column with the time at which a key is due, for [`KeyedState::due`]: a timestamp, or `Int64` as Unix
    /// milliseconds; null: never. None by default. Costs two further copies of each key that has a time.
    fn timer_column(&self) -> Option<String> {
        None
    }
    /// Checks the input schemas (hidden columns at the end) and gives the output schema (likewise).
    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef>;
    /// The operator of one subtask.
    fn create(&self, subtask: usize) -> Result<Box<dyn KeyedOperator>>;
}

/// How the rows of a [`StatefulOperator`] are given to its subtasks when their number has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redistribution {
    /// Each subtask gets an equal share: the rows of all subtasks one after the other, cut into runs. A row is in exactly
    /// one subtask. With as many subtasks as before, each gets its own rows back.
    #[default]
    Split,
    /// Each subtask gets the rows of all subtasks, at every start: a row is multiplied unless its operator takes out what
    /// is not its own.
    Union,
}

/// A transform of one subtask that keeps state without keys: a list of rows.
///
/// The state is part of every checkpoint: after a crash the job goes on with the state of the last committed one, and
/// every record counts in it exactly once. Which rows a subtask sees is up to the stream in front of it.
pub trait StatefulOperator: Send {
    /// Takes the rows that are this subtask's of the last committed checkpoint, none where there is no such state, and its
    /// watermark. Called once, before anything else. Schema: the factory's `state_fields`, in its version.
    fn restore(&mut self, rows: RecordBatch, watermark: Option<Watermark>) -> Result<()>;
    /// Transforms one batch. As [`Operator::process`].
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput>;
    /// All that is kept, as rows of the factory's `state_fields`. Called at each barrier, between rows of two epochs; runs on
    /// the reactor. The rows are written while the job goes on, unless they are what the checkpoint before has.
    fn snapshot(&mut self) -> Result<RecordBatch>;
    /// The watermark has risen. As [`KeyedOperator::on_watermark`].
    fn on_watermark(&mut self, watermark: Watermark) -> Result<OperatorOutput> {
        let _keeps_no_time = watermark;
        Ok(OperatorOutput::default())
    }
}

/// Makes one stateful operator for each subtask.
pub trait StatefulOperatorFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Id under which checkpoints keep the state: letters, digits, '.', '_' and '-', of its own within the job. It must not
    /// change from start to start.
    fn id(&self) -> &str;
    /// The columns that are kept.
    fn state_fields(&self) -> Vec<FieldRef>;
    /// Version of what is kept. A checkpoint with another one is read through [`StatefulOperatorFactory::upgrade_state`].
    fn state_version(&self) -> u32 {
        1
    }
    /// Rows of version `from` as rows of this version. Refused by default.
    fn upgrade_state(&self, from: u32, rows: RecordBatch) -> Result<RecordBatch> {
        let _not_read = rows;
        Err(no_upgrade(self.id(), self.state_version(), from))
    }
    /// How rows are given to subtasks at a start.
    fn redistribution(&self) -> Redistribution {
        Redistribution::Split
    }
    /// Checks the input schema (hidden columns at the end) and gives the output schema (likewise).
    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef>;
    /// The operator of one subtask.
    fn create(&self, subtask: usize) -> Result<Box<dyn StatefulOperator>>;
}

fn no_upgrade(id: &str, version: u32, from: u32) -> Error {
    let context = format!(
        "operator {id} keeps state of version {version}, the checkpoint has version {from}, and there is no upgrade"
    );
    Error::new(ErrorKind::InvalidInput, context)
}
