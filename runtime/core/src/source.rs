//! Sources: they acquire records, hand them on, and report what they handed on before each barrier.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_base::ids::{CheckpointId, PartitionIndex};

use crate::Result;
use crate::decision::{Decisions, MemberDecisions};

/// What a source has next.
#[derive(Debug)]
pub enum SourceEvent {
    /// Rows, and the rows that could not be decoded.
    Records {
        /// Decoded rows, hidden columns at the end; `None` when every record was bad or a gap.
        rows: Option<RecordBatch>,
        /// Bad records, one row each; schema [`crate::coordinates::rejected_schema`].
        rejected: Option<RecordBatch>,
    },
    /// A poll came back empty: the source has run dry for now.
    Idle,
}

/// How much a source holds acquired, and how close its lock windows are to full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InFlight {
    /// Records handed on since the last barrier.
    pub record_count: u64,
    /// Their payload bytes.
    pub byte_count: u64,
    /// The fullest lock window of any partition, 0.0 (empty) to 1.0 (the broker hands out nothing more).
    pub window_fill: f64,
    /// Records that this source was given although a committed claim had decided them: acknowledged, not handed on
    /// (ledger mode). Counted since the source was made.
    pub already_decided: u64,
    /// The same for records below the floor, where the claims are gone.
    pub below_floor: u64,
}

/// What a source holds of one partition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionLoad {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// Offsets that were handed on and whose epoch has not committed, gaps included.
    pub in_flight: u64,
    /// How full the lock window is, 0.0 (empty) to 1.0 (the broker hands out nothing more).
    pub window_fill: f64,
}

impl PartitionLoad {
    /// An empty load of this partition.
    pub fn new(topic: Arc<str>, partition: PartitionIndex) -> Self {
        PartitionLoad { topic, partition, in_flight: 0, window_fill: 0.0 }
    }
}

/// Figures of one source subtask for monitoring: no decision hangs on them. Counts are since the source was made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceMetrics {
    /// Records acquired that had been delivered before (delivery count above 1).
    pub redelivered: u64,
    /// Records given back undecided (RELEASE).
    pub released: u64,
    /// Renewals of record locks that the brokers granted, as records.
    pub renewed: u64,
    /// Times that locks of a partition were found to be lost: refused at a renewal, gone with a session or a leader, or
    /// run out unnoticed.
    pub locks_lost: u64,
    /// Records at the delivery limit's reserve that were given up before the broker would drop them.
    pub given_up: u64,
    /// What is held of each partition that holds anything, in order of topic and partition.
    pub partitions: Vec<PartitionLoad>,
}

impl SourceMetrics {
    /// Adds the counts of `other`; the partitions stay.
    pub(crate) fn add_counts(&mut self, other: &SourceMetrics) {
        self.redelivered += other.redelivered;
        self.released += other.released;
        self.renewed += other.renewed;
        self.locks_lost += other.locks_lost;
        self.given_up += other.given_up;
    }
}

/// What a source subtask closed with a barrier.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    /// Default decisions (ACCEPT, REJECT of bad records, GAP) on everything handed on since the last barrier, by
    /// member. The coordinator overlays the rejections of operators.
    pub decided: Vec<MemberDecisions>,
    /// Records handed on, bad ones included, gaps not.
    pub record_count: u64,
    /// Payload bytes handed on.
    pub byte_count: u64,
}

/// The source of one subtask. Owned by its source task, which calls one method at a time.
#[async_trait]
pub trait Source: Send {
    /// The next records. Cancel safe: the task drops the call when a control message comes.
    async fn next(&mut self) -> Result<SourceEvent>;

    /// Closes the epoch of `checkpoint`: reports everything handed on since the last barrier. Not cancel safe.
    async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<SourceReport>;

    /// Load of this subtask, read after each event.
    fn in_flight(&self) -> InFlight;

    /// Figures for monitoring, read when somebody asks for them and at every barrier. All zero by default.
    fn metrics(&self) -> SourceMetrics {
        SourceMetrics::default()
    }

    /// These offsets, reported at the barrier of `checkpoint` or carried over to it, are still being worked on: they are
    /// not decided in its epoch but in a later one (DESIGN section 6). Called between that barrier and
    /// [`Source::committed`], only when there are such offsets of any source subtask; the source picks out its own, keeps
    /// their locks and counts them as held. Each call replaces the one before. Not cancel safe. Does nothing by default.
    async fn deferred(&mut self, checkpoint: CheckpointId, offsets: &Decisions) -> Result<()> {
        let _no_locks_to_keep = (checkpoint, offsets);
        Ok(())
    }

    /// The epoch is committed and the share acknowledgements are final. Not cancel safe.
    async fn committed(&mut self, checkpoint: CheckpointId) -> Result<()>;

    /// Stops acquiring: what was acquired and not handed on is given back. [`Source::next`] is not called again;
    /// barriers still come. Not cancel safe.
    async fn stop_acquiring(&mut self) -> Result<()>;

    /// Leaves the group and closes connections; records handed on and not committed go back to the group.
    async fn close(&mut self) -> Result<()>;
}

/// Makes one source for each subtask.
#[async_trait]
pub trait SourceFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Schema of the rows: the user's columns, then the hidden ones.
    fn schema(&self) -> SchemaRef;
    /// Connects the source of one subtask.
    async fn create(&self, subtask: usize) -> Result<Box<dyn Source>>;
}
