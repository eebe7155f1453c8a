//! Sinks: they write into the open epoch and make it durable at its barrier.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_base::ids::CheckpointId;

use crate::coordinates::RejectCounts;
use crate::decision::Decisions;
use crate::{Error, ErrorKind, Result};

/// What a sink subtask closed with a barrier.
#[derive(Clone, Debug, Default)]
pub struct SinkReport {
    /// Rows written to the output.
    pub row_count: u64,
    /// Dead letters written.
    pub dead_letter_count: u64,
    /// Records copied to the parking topic.
    pub parked_count: u64,
    /// Rejected rows by kind: dead letters, and those that are dropped.
    pub reject_counts: RejectCounts,
    /// The offsets of those rejected rows, as the decision that the commit protocol must stage for them.
    pub rejected: Decisions,
    /// Offsets of rejected rows that nothing was written for and that no epoch decides: they go back to whoever they came
    /// from, to be tried again. Only of a sink whose factory says so ([`SinkFactory::gives_back`]).
    pub given_back: Decisions,
}

/// The sink of one subtask. Owned by its sink task, which calls one method at a time.
///
/// All writes between barrier n-1 and barrier n belong to `checkpoint` n and become visible with its commit, or
/// never.
#[async_trait]
pub trait Sink: Send {
    /// Writes rows (hidden columns at the end) into the epoch. Waits when buffers are full. Not cancel safe: the
    /// task drops the sink afterwards.
    async fn write(&mut self, checkpoint: CheckpointId, rows: RecordBatch) -> Result<()>;

    /// Writes dead letters; schema [`crate::coordinates::rejected_schema`]. Not cancel safe, as above.
    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()>;

    /// Copies the records of these rows to the parking topic, within the epoch; schema
    /// [`crate::coordinates::parked_schema`]. Not cancel safe, as above. Errors: `Bug` by default, for sinks whose factory
    /// does not say that they park.
    async fn write_parked(&mut self, checkpoint: CheckpointId, parked: RecordBatch) -> Result<()> {
        let context = format!(
            "{} records to park in checkpoint {checkpoint}, for a sink that parks none",
            parked.num_rows()
        );
        Err(Error::new(ErrorKind::Bug, context))
    }

    /// No more rows wait for this sink just now. It may begin to send what it has buffered, so that the flush at the
    /// barrier has less to wait for; it should not wait for answers. Not cancel safe, as above. Does nothing by default.
    async fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns when every write of the epoch is acknowledged by its target. Not cancel safe, as above.
    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport>;

    /// Closes connections. Uncommitted writes stay invisible.
    async fn close(&mut self) -> Result<()>;
}

/// Splits a batch over the sink subtasks.
pub trait Router: Send {
    /// The parts of `rows` by sink subtask (`0..subtask_count`); every row goes to exactly one.
    fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>>;
}

/// Makes one sink for each subtask, and the router of each subtask before it.
#[async_trait]
pub trait SinkFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Checks the schema that reaches the sink (hidden columns at the end).
    fn check_schema(&self, input: SchemaRef) -> Result<()>;
    /// Whether its sinks may report rejected rows as given back ([`SinkReport::given_back`]). Then each record must be one row
    /// on one path, with no state upstream: nothing else of a record that goes back may be in the epoch. No by default.
    fn gives_back(&self) -> bool {
        false
    }
    /// Whether its sinks park records: they have a topic for them that is also a source of the job.
    fn parks(&self) -> bool {
        false
    }
    /// Connects the sink of one subtask.
    async fn create(&self, subtask: usize, subtask_count: usize) -> Result<Box<dyn Sink>>;
    /// The router of one upstream subtask.
    fn router(&self, subtask_count: usize) -> Result<Box<dyn Router>>;
}
