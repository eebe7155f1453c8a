//! What a savepoint says: where a job and its group stood at one checkpoint, exactly.
//!
//! ```text
//! offsets of a partition   0 . . . . . . . start . . [decided] . . [decided] . . . . >
//!                          all decided      |    undecided: handed out again after a rewind
//! ```
//! Stored as JSON behind a checksum (see `codec`), beside copies of everything that a start from it needs.

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, PartitionIndex, TopicId};

use crate::{DecidedOffsets, EventTimeSnapshot, JobKey, ManifestRef, OperatorSnapshot};

/// A checkpoint of one job, kept apart from the job's own checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Savepoint {
    /// Version of the format, [`Savepoint::FORMAT_VERSION`] when written by this version.
    pub format_version: u32,
    /// What it is called: the name of its folder when it was written.
    pub name: String,
    /// Job.
    pub job: String,
    /// Replica of the job that made the checkpoint.
    pub instance: String,
    /// Incarnation of it.
    pub job_epoch: JobEpoch,
    /// The checkpoint: the last one that had committed.
    pub checkpoint: CheckpointId,
    /// Its manifest, a copy of which lies beside; `None` for a job without a checkpoint store.
    pub manifest: Option<ManifestRef>,
    /// Share group.
    pub group: String,
    /// Replay generation of the group.
    pub generation: u32,
    /// Where it stands in the order of commits.
    pub outcome: OutcomePosition,
    /// Every source partition that the group had begun.
    pub sources: Vec<SavepointSource>,
    /// State of operators, the parts of which are copied; empty where no operator has any.
    #[serde(default)]
    pub operators: Vec<OperatorSnapshot>,
    /// Event time as of the checkpoint; `None` for a job without event time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<EventTimeSnapshot>,
    /// Wall time of writing, Unix milliseconds. Informative.
    pub created_ms: i64,
}

/// A place in the order of commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomePosition {
    /// The outcome topic, for people; the id identifies it.
    pub topic: String,
    /// Its id.
    pub topic_id: TopicId,
    /// Partition of the group.
    pub partition: PartitionIndex,
    /// Where the outcome of the checkpoint stands.
    pub checkpoint: Offset,
    /// Outcomes of the group below count, if they committed; none from here on does.
    pub end: Offset,
}

/// Where the group stood in one source partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavepointSource {
    /// Topic name, for people and for the reset of offsets; the id identifies it.
    pub topic: String,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Everything below is decided; this offset is not.
    pub start_offset: Offset,
    /// Decided ranges above it, sorted and disjoint.
    pub decided: Vec<DecidedOffsets>,
}

impl Savepoint {
    /// Version that this code writes.
    pub const FORMAT_VERSION: u32 = 1;

    /// Whose it is.
    pub fn key(&self) -> JobKey {
        JobKey::new(&self.job, &self.instance)
    }

    /// What no build would have written, a sentence each: ranges out of order, or not above the start offset.
    pub fn faults(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for source in &self.sources {
            let place = format!("{}[{}]", source.topic, source.partition);
            if source.start_offset.0 < 0 {
                wrong.push(format!("{place} starts at offset {}", source.start_offset));
            }
            let mut lowest = source.start_offset.next();
            for DecidedOffsets { first, last, .. } in &source.decided {
                if *first < lowest || last < first {
                    wrong.push(format!(
                        "{place} decides offsets {first} to {last} out of order, or not above its start offset {}",
                        source.start_offset
                    ));
                }
                lowest = lowest.max(last.next());
            }
        }
        if self.outcome.checkpoint >= self.outcome.end {
            wrong.push(format!(
                "the outcome at offset {} is not below the end {}",
                self.outcome.checkpoint, self.outcome.end
            ));
        }
        wrong
    }

    /// Bytes of the state that it holds.
    pub fn state_bytes(&self) -> u64 {
        self.operators.iter().flat_map(|operator| &operator.parts).map(|part| part.bytes).sum()
    }
}
