//! Event time in a checkpoint: the watermark of the job, and how far each source partition is.

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

/// Event time of a job as of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventTimeSnapshot {
    /// The watermark, Unix milliseconds; `None` while no partition, or not every one, has told a time.
    pub watermark_ms: Option<i64>,
    /// By source partition.
    #[serde(default)]
    pub partitions: Vec<PartitionTimes>,
}

/// How far one source partition is decided, and in event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionTimes {
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Every offset below is decided; `None` while it is not known where the group began.
    pub next_offset: Option<Offset>,
    /// Latest event time below, Unix milliseconds.
    pub max_ms: Option<i64>,
    /// Decided ranges above, first and last, inclusive, sorted and disjoint.
    #[serde(default)]
    pub decided_above: Vec<(Offset, Offset)>,
    /// Event times above, Unix milliseconds: each counts once every offset up to its own is decided. Sorted by offset.
    #[serde(default)]
    pub times_above: Vec<(Offset, i64)>,
}
