//! Which records a source holds whose next delivery could be their last: written before they are handed on, so that a start
//! after a crash knows it before it acquires anything (ADR 0019).

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_core::decision::SourcePartition;

use super::record::{OutcomeRecord, RecordFormatError};
use crate::ranges::Ranges;

/// Begins the keys of these records; no job name has this character.
pub(super) const NEAR_LIMIT_KEY: &str = "#near-limit/";

/// What one source subtask of a replica holds near the limit; the last record of a key counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearLimitRecord {
    /// [`super::FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Job.
    pub job: String,
    /// Replica of the job.
    pub instance: String,
    /// Source subtask of the replica.
    pub subtask: u32,
    /// Share group.
    pub group: String,
    /// Unix milliseconds, for people.
    pub since_ms: i64,
    /// What is held; empty once all is decided.
    pub held: Vec<NearLimitRange>,
}

/// Records that are on the same delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearLimitRange {
    /// Topic name, for people; the id decides.
    pub topic: String,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// Deliveries so far, this one included.
    pub delivery_count: u16,
}

impl NearLimitRange {
    /// Its partition.
    pub fn source(&self) -> SourcePartition {
        SourcePartition { topic_id: self.topic_id, partition: self.partition }
    }
}

impl NearLimitRecord {
    /// The key: one for each source subtask.
    pub fn key(&self) -> String {
        format!("{NEAR_LIMIT_KEY}{}/{}/{}", self.job, self.instance, self.subtask)
    }

    /// The value.
    ///
    /// # Errors
    /// [`RecordFormatError::Json`], which no such record causes.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }
}

/// The last record of a key, and what outcomes behind it decide of it.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) record: NearLimitRecord,
    /// By index of the outcome.
    decided: Vec<(usize, Ranges)>,
}

impl Noted {
    pub(super) fn new(record: NearLimitRecord) -> Self {
        Noted { record, decided: Vec::new() }
    }

    /// The outcome of this index is behind the note.
    pub(super) fn decided_by(&mut self, index: usize, outcome: &OutcomeRecord) {
        let mut decided = Ranges::default();
        for held in &self.record.held {
            let same = outcome.partitions.iter().filter(|partition| {
                (partition.topic_id, partition.partition) == (held.topic_id, held.partition)
            });
            for range in same.flat_map(|partition| &partition.ranges) {
                let (first, last) = (range.first.max(held.first), range.last.min(held.last));
                if first <= last {
                    decided.add(held.source(), first, last);
                }
            }
        }
        if decided.iter().next().is_some() {
            self.decided.push((index, decided));
        }
    }

    /// The first part of each range that no outcome decides of which `is_committed` is true.
    pub(super) fn undecided(&self, is_committed: impl Fn(usize) -> bool) -> Vec<NearLimitRange> {
        let mut left = Ranges::default();
        for held in &self.record.held {
            left.add(held.source(), held.first, held.last);
        }
        for (_, decided) in self.decided.iter().filter(|(index, _)| is_committed(*index)) {
            for (partition, range) in decided.iter() {
                left.remove(partition, range.first, range.last);
            }
        }
        let part = |held: &NearLimitRange| {
            let part = left.within(held.source(), held.first, held.last).next()?;
            Some(NearLimitRange { first: part.first, last: part.last, ..held.clone() })
        };
        self.record.held.iter().filter_map(part).collect()
    }
}
