//! Records of the outcome topic beside outcomes: floors, which only ledger mode writes, and replay generations.
//!
//! Each has its value in its key, so that a record of a lagging writer never replaces a higher one (F1).

use std::fmt;

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_core::decision::{DecidedRange, Decisions, SourcePartition};

use super::record::{OutcomeCounts, RecordFormatError, ranges};

/// Version of a generation record that begins with a rewind: a build that reads only [`super::FORMAT_VERSION`] would
/// process again what the rewind has decided, so it must not start.
pub const REWIND_FORMAT_VERSION: u32 = 3;

/// Begins the keys of floor records; no job name has this character.
pub(super) const FLOOR_KEY: &str = "#floor/";
/// Begins the keys of generation records.
pub(super) const GENERATION_KEY: &str = "#generation/";

/// Whether the record of this key is one of these: recovery has no use for them.
pub(super) fn is_of_ledger(key: &[u8]) -> bool {
    key.starts_with(FLOOR_KEY.as_bytes()) || key.starts_with(GENERATION_KEY.as_bytes())
}

/// True for the key of a replay generation.
pub(super) fn is_generation(key: &[u8]) -> bool {
    key.starts_with(GENERATION_KEY.as_bytes())
}

/// How often a group was reset: claims and floors count only in the generation in which they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplayGeneration(pub u32);

impl ReplayGeneration {
    /// The generation after this one.
    pub fn next(self) -> Self {
        ReplayGeneration(self.0.saturating_add(1))
    }
}

impl fmt::Display for ReplayGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything below an offset of a source partition is decided, and the claims that decided it may be gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorRecord {
    /// [`super::FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Share group.
    pub group: String,
    /// Generation in which it holds.
    pub generation: ReplayGeneration,
    /// Topic name, for people; the id decides.
    pub topic: String,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// The floor, exclusive end of what is decided.
    pub floor: Offset,
    /// Where the group began in this generation, as far as claims tell.
    pub initial: Offset,
    /// Offsets of `initial..floor` by the decision of their claims.
    pub counts: OutcomeCounts,
    /// Offsets of `initial..floor` that the group's start offset passed without a claim: removed by retention, of
    /// aborted transactions, archived by the broker, or decided by a foreign consumer.
    pub passed: u64,
}

impl FloorRecord {
    /// The share partition.
    pub fn source(&self) -> SourcePartition {
        SourcePartition { topic_id: self.topic_id, partition: self.partition }
    }

    /// The key: another one for each value.
    pub fn key(&self) -> String {
        let FloorRecord { group, generation, topic_id, partition, floor, .. } = self;
        format!("{FLOOR_KEY}{group}/{generation}/{topic_id}/{partition}/{floor}")
    }

    /// The value.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }
}

/// One of the two steps of a reset: the generation begins before the offsets are reset, and is ready after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationRecord {
    /// [`super::FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Share group.
    pub group: String,
    /// The generation, above every one before it.
    pub generation: ReplayGeneration,
    /// False: it begins, nobody follows the start offsets. True: they are reset.
    pub ready: bool,
    /// Where the generation begins, in the first of its two records; `None` in those of builds before it. Since version 3
    /// for a rewind, which older builds must not pass over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<Box<Beginning>>,
}

/// Where a group begins a generation, and what of it stays decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// Unix milliseconds, for people.
    pub since_ms: i64,
    /// The savepoint that a job goes back to; `None` for a plain reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewind: Option<RewindTo>,
    /// By source partition.
    pub partitions: Vec<BegunPartition>,
}

/// A savepoint that a job goes back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewindTo {
    /// Job that goes back.
    pub job: String,
    /// Name of the savepoint.
    pub savepoint: String,
    /// SHA-256 of its document, which identifies it.
    pub sha256: String,
    /// Where it lay, for people.
    pub place: String,
}

/// Where a generation begins in one source partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunPartition {
    /// Topic name, for people; the id decides.
    pub topic: String,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Everything below is decided.
    pub start_offset: Offset,
    /// Decided ranges above it: delivered once more, and acknowledged without effects.
    #[serde(default, with = "ranges", skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<DecidedRange>,
}

impl BegunPartition {
    /// The share partition.
    pub fn source(&self) -> SourcePartition {
        SourcePartition { topic_id: self.topic_id, partition: self.partition }
    }
}

impl Beginning {
    /// What is decided above the start offsets.
    pub fn decisions(&self) -> Decisions {
        let mut decisions = Decisions::new();
        for partition in &self.partitions {
            for range in &partition.decided {
                decisions.set(partition.source(), *range);
            }
        }
        decisions
    }
}

impl GenerationRecord {
    /// The key: another one for each generation and step.
    pub fn key(&self) -> String {
        let step = if self.ready { "/ready" } else { "" };
        format!("{GENERATION_KEY}{}/{}{step}", self.group, self.generation)
    }

    /// The value.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use sharestream_core::decision::Decision;
    use uuid::Uuid;

    use super::super::LogEntry;
    use super::*;

    #[test]
    fn floors_and_generations_are_written_as_the_fixtures_say() {
        let floor = FloorRecord {
            format_version: 2,
            group: "g/h".to_owned(),
            generation: ReplayGeneration(1),
            topic: "flights".to_owned(),
            topic_id: TopicId(Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            floor: Offset(100),
            initial: Offset(7),
            counts: OutcomeCounts { accept: 80, reject: 1, gap: 2 },
            passed: 10,
        };
        let text = r#"{"format_version":2,"group":"g/h","generation":1,"topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"floor":100,"initial":7,"counts":{"accept":80,"reject":1,"gap":2},"passed":10}"#;
        assert_eq!(String::from_utf8(floor.encode().unwrap()).unwrap(), text);
        assert_eq!(floor.key(), "#floor/g/h/1/AAAAAAAAAAAAAAAAAAAAAQ/2/100");
        let read = LogEntry::decode(floor.key().as_bytes(), text.as_bytes()).unwrap();
        assert_eq!(read, LogEntry::Floor(floor));

        let begun = GenerationRecord {
            format_version: 2,
            group: "g".to_owned(),
            generation: ReplayGeneration(1),
            ready: false,
            begins: None,
        };
        let text = r#"{"format_version":2,"group":"g","generation":1,"ready":false}"#;
        assert_eq!(String::from_utf8(begun.encode().unwrap()).unwrap(), text);
        let ready = GenerationRecord { ready: true, ..begun.clone() };
        assert_eq!(
            (begun.key().as_str(), ready.key().as_str()),
            ("#generation/g/1", "#generation/g/1/ready")
        );
        let read = LogEntry::decode(begun.key().as_bytes(), text.as_bytes()).unwrap();
        assert_eq!(read, LogEntry::Generation(begun.clone()));

        let partition = BegunPartition {
            topic: "flights".to_owned(),
            topic_id: TopicId(Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            start_offset: Offset(10),
            decided: vec![DecidedRange { first: Offset(12), last: Offset(19), decision: Decision::Reject }],
        };
        let rewind = RewindTo {
            job: "late".to_owned(),
            savepoint: "savepoint-8-ab".to_owned(),
            sha256: "ab".to_owned(),
            place: "s3://b/x".to_owned(),
        };
        let begins = Beginning { since_ms: 17, rewind: Some(rewind), partitions: vec![partition] };
        let rewound = GenerationRecord {
            format_version: REWIND_FORMAT_VERSION,
            begins: Some(Box::new(begins)),
            ..begun.clone()
        };
        let text = concat!(
            r#"{"format_version":3,"group":"g","generation":1,"ready":false,"begins":{"since_ms":17,"#,
            r#""rewind":{"job":"late","savepoint":"savepoint-8-ab","sha256":"ab","place":"s3://b/x"},"partitions":["#,
            r#"{"topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"start_offset":10,"#,
            r#""decided":[[12,19,"reject"]]}]}}"#
        );
        assert_eq!(String::from_utf8(rewound.encode().unwrap()).unwrap(), text);
        let read = LogEntry::decode(begun.key().as_bytes(), text.as_bytes()).unwrap();
        assert_eq!(read, LogEntry::Generation(rewound.clone()));
        assert_eq!(rewound.begins.unwrap().decisions().offset_count(), 8);
        let newer = text.replace("\"format_version\":3", "\"format_version\":4");
        assert!(LogEntry::decode(begun.key().as_bytes(), newer.as_bytes()).is_err());
    }
}
