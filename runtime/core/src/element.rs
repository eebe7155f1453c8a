//! What flows between tasks.

use arrow_array::RecordBatch;
use sharestream_base::Instant;
use sharestream_base::ids::CheckpointId;

use crate::watermark::Watermark;

/// One element of a channel.
#[derive(Clone, Debug)]
pub enum StreamElement {
    /// Rows with the hidden columns of [`crate::coordinates`] at the end.
    Batch(RecordBatch),
    /// Rows that became dead letters; schema [`crate::coordinates::rejected_schema`]. Operators pass it on.
    Rejected(RecordBatch),
    /// Rows whose records are to be parked; schema [`crate::coordinates::parked_schema`]. Operators pass it on.
    Parked(RecordBatch),
    /// Everything before it belongs to its checkpoint, everything behind it to the next.
    Barrier(Barrier),
    /// Nothing comes after it.
    End,
}

/// A barrier on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint that it closes.
    pub checkpoint: CheckpointId,
    /// Until when calls that run are waited for before they are deferred to a later checkpoint; `None`: they are
    /// deferred at once. The last barrier of a job waits, because no checkpoint follows.
    pub waits_until: Option<Instant>,
    /// The watermark of the last committed checkpoint, for operators that keep state; `None` while there is none. It is
    /// valid behind all rows before the barrier.
    pub watermark: Option<Watermark>,
}
