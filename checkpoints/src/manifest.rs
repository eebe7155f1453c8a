//! What a checkpoint consists of.
//!
//! Stored as JSON (see `codec`), so that a person can read it. New fields get a default; a change that an old
//! reader would misread raises [`Manifest::FORMAT_VERSION`].

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, PartitionIndex, TopicId};

use crate::{EventTimeSnapshot, JobKey, OperatorSnapshot, Result, codec};

/// One checkpoint: what was decided since its predecessor, and the state after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format, [`Manifest::FORMAT_VERSION`] when written by this version.
    pub format_version: u32,
    /// Job that it belongs to.
    pub job: String,
    /// Replica of the job.
    pub instance: String,
    /// Incarnation that wrote it.
    pub job_epoch: JobEpoch,
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The last committed checkpoint when this one was written; `None` for the first.
    pub predecessor: Option<CheckpointId>,
    /// Transaction that commits it; `None` in a mode without transactions.
    pub transactional_id: Option<String>,
    /// Topic that holds the outcome of that transaction; `None` without one, and in format version 1. A topic that was
    /// created again under its old name has another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_topic_id: Option<TopicId>,
    /// Decisions of this checkpoint, by source partition.
    #[serde(default)]
    pub sources: Vec<SourceSnapshot>,
    /// State of operators; empty while no operator has any.
    #[serde(default)]
    pub operators: Vec<OperatorSnapshot>,
    /// Event time; `None` for a job that does not use it, and before format version 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<EventTimeSnapshot>,
    /// Wall time of writing, Unix milliseconds. Informative.
    pub created_ms: i64,
}

/// What was decided on one source partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSnapshot {
    /// Topic name, for people; the id identifies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Decided ranges, sorted and disjoint.
    pub decided: Vec<DecidedOffsets>,
}

/// Offsets `first..=last` with one decision. Stored as `[first, last, "decision"]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Offset, Offset, OffsetDecision)", into = "(Offset, Offset, OffsetDecision)")]
pub struct DecidedOffsets {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// The decision.
    pub decision: OffsetDecision,
}

impl From<(Offset, Offset, OffsetDecision)> for DecidedOffsets {
    fn from((first, last, decision): (Offset, Offset, OffsetDecision)) -> Self {
        DecidedOffsets { first, last, decision }
    }
}

impl From<DecidedOffsets> for (Offset, Offset, OffsetDecision) {
    fn from(range: DecidedOffsets) -> Self {
        (range.first, range.last, range.decision)
    }
}

/// The decision on an offset, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffsetDecision {
    /// Its effects are in this checkpoint.
    Accept,
    /// It became a dead letter in this checkpoint.
    Reject,
    /// No record to deliver.
    Gap,
}

impl Manifest {
    /// Version that this code writes; it reads this one and all before it. Version 2 added the
    /// outcome topic's id, version 3 the state of operators, version 4 event time and state without keys.
    pub const FORMAT_VERSION: u32 = 4;

    /// The bytes that a store keeps, for a way to another process. Errors: `Bug`.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        codec::encode(self)
    }

    /// Reads what [`Manifest::to_bytes`] gave. Errors: `Corrupt`; `InvalidInput` for a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        codec::decode("of another process", bytes)
    }

    /// A manifest without decisions or state.
    pub fn new(
        key: &JobKey,
        job_epoch: JobEpoch,
        checkpoint: CheckpointId,
        predecessor: Option<CheckpointId>,
        created_ms: i64,
    ) -> Self {
        Manifest {
            format_version: Self::FORMAT_VERSION,
            job: key.job.clone(),
            instance: key.instance.clone(),
            job_epoch,
            checkpoint,
            predecessor,
            transactional_id: None,
            outcome_topic_id: None,
            sources: Vec::new(),
            operators: Vec::new(),
            event_time: None,
            created_ms,
        }
    }

    /// Decided ranges that no build would have written: backwards, out of order, or over one another. A sentence each.
    pub fn check_ranges(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for source in &self.sources {
            let mut end = None;
            for range in &source.decided {
                let DecidedOffsets { first, last, .. } = range;
                if first > last || end.is_some_and(|end| *first <= end) {
                    wrong.push(format!(
                        "checkpoint {} decides offsets {first} to {last} of partition {} out of order, or twice",
                        self.checkpoint, source.partition
                    ));
                }
                end = end.max(Some(*last));
            }
        }
        wrong
    }
}
