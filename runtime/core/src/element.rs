//! What flows between tasks.

use arrow_array::RecordBatch;
use sharestream_base::ids::CheckpointId;

/// One element of a channel.
#[derive(Clone, Debug)]
pub enum StreamElement {
    /// Rows with the hidden columns of [`crate::coordinates`] at the end.
    Batch(RecordBatch),
    /// Rows that became dead letters; schema [`crate::coordinates::rejected_schema`]. Operators pass it on.
    Rejected(RecordBatch),
    /// Everything before it belongs to this checkpoint, everything behind it to the next.
    Barrier(CheckpointId),
    /// Nothing comes after it.
    End,
}
