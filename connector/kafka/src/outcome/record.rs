//! Codec of the records in the outcome topic: readable JSON with a version.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sharestream_base::ids::{
    CheckpointId, JobEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use sharestream_checkpoints::ManifestRef;
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision, Decisions, SourcePartition};

use super::ledger_record::{
    FLOOR_KEY, FloorRecord, GENERATION_KEY, GenerationRecord, REWIND_FORMAT_VERSION, ReplayGeneration,
};
use super::near_limit_record::{NEAR_LIMIT_KEY, NearLimitRecord};

/// Version that this build writes; it reads this and older ones.
pub const FORMAT_VERSION: u32 = 2;

/// What one transaction decided: the last record that is produced into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Job.
    pub job: String,
    /// Replica of the job.
    pub instance: String,
    /// Incarnation of the replica.
    pub job_epoch: JobEpoch,
    /// Checkpoint that the transaction commits.
    pub checkpoint: CheckpointId,
    /// The checkpoint committed before it; none for the first.
    pub predecessor: Option<CheckpointId>,
    /// The manifest, when the job has a checkpoint store.
    pub manifest: Option<ManifestRef>,
    /// Rule by which the acknowledgements are tied to the transaction.
    pub mode: AckMode,
    /// Share group.
    pub group: String,
    /// Decided ranges by source partition.
    pub partitions: Vec<OutcomePartition>,
    /// Transactional id.
    pub transactional_id: String,
    /// Producer of the transaction.
    pub producer_id: ProducerId,
    /// Epoch of the transaction.
    pub producer_epoch: ProducerEpoch,
    /// Unix milliseconds after which anyone may end this transaction.
    pub deadline_ms: i64,
    /// Offsets by decision.
    pub counts: OutcomeCounts,
    /// Replay generation of the group in which the records were decided. Since version 2; 0 in records without it.
    #[serde(default)]
    pub generation: ReplayGeneration,
}

/// Decided ranges of one source partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomePartition {
    /// Topic name, for people; the id decides.
    pub topic: String,
    /// Topic id.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Ranges in order, written `[first, last, decision]`, both ends inclusive.
    #[serde(with = "ranges")]
    pub ranges: Vec<DecidedRange>,
}

/// Offsets by decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCounts {
    /// Accepted.
    pub accept: u64,
    /// Rejected.
    pub reject: u64,
    /// Without a deliverable record.
    pub gap: u64,
}

impl OutcomeCounts {
    /// Counts of `decisions`.
    pub fn of(decisions: &Decisions) -> Self {
        OutcomeCounts {
            accept: decisions.count(Decision::Accept),
            reject: decisions.count(Decision::Reject),
            gap: decisions.count(Decision::Gap),
        }
    }
}

/// The rule of a group, and the identity of the topic that holds its outcomes: a re-created topic is found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeRecord {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Share group.
    pub group: String,
    /// The rule.
    pub mode: AckMode,
    /// Id of the outcome topic.
    pub topic_id: TopicId,
    /// Partitions of the outcome topic.
    pub partition_count: i32,
    /// Counts the changes of the mode: 0 for the first. Since version 2; 0 in records without it.
    #[serde(default)]
    pub era: u32,
}

/// Who runs a replica: written at each start, before its transactional ids are taken; the last one counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Job.
    pub job: String,
    /// Replica of the job.
    pub instance: String,
    /// Incarnation of the replica as its checkpoint store counts it.
    pub job_epoch: JobEpoch,
    /// A UUID that no other start has.
    pub incarnation: String,
    /// Unix milliseconds of the start, for people.
    pub since_ms: i64,
    /// Every transactional id under which this incarnation or one before it may commit: whoever takes over fences them,
    /// also when it names its own differently. Empty in the records of builds before this field, which named theirs
    /// `job.instance.slot` with slots 0 and 1.
    #[serde(default)]
    pub transactional_ids: BTreeSet<String>,
}

/// Any record of the outcome topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// Outcome of a transaction.
    Outcome(Box<OutcomeRecord>),
    /// Rule of a group.
    Mode(ModeRecord),
    /// Who runs a replica.
    Owner(OwnerRecord),
    /// Floor of a source partition (ledger mode).
    Floor(FloorRecord),
    /// A replay generation began, or its offsets are reset (ledger mode).
    Generation(GenerationRecord),
    /// What a source holds near the delivery limit.
    NearLimit(NearLimitRecord),
    /// A record that a newer build wrote under a key that this one does not know: to be skipped.
    Unknown,
}

/// A record of the outcome topic cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFormatError {
    /// Not JSON, or not the fields of a record.
    #[error("not an outcome topic record: {0}")]
    Json(#[from] serde_json::Error),
    /// From a newer build.
    #[error("format version {found} is newer than {newest}, the newest that this build reads")]
    Version {
        /// The version found.
        found: u32,
        /// The newest of such a record that this build reads.
        newest: u32,
    },
}

/// Begins the keys of mode records; no job name has this character.
const MODE_KEY: &str = "#mode/";
/// Begins the keys of owner records.
const OWNER_KEY: &str = "#owner/";

#[derive(Deserialize)]
struct VersionOnly {
    format_version: u32,
}

impl OutcomeRecord {
    /// The key: never used twice, as a transaction has a producer epoch of its own.
    pub fn key(&self) -> String {
        format!("{}/{}/{}/{}", self.job, self.instance, self.producer_id, self.producer_epoch)
    }

    /// The value.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Reads a value.
    pub fn decode(value: &[u8]) -> Result<Self, RecordFormatError> {
        check_version(value)?;
        Ok(serde_json::from_slice(value)?)
    }

    /// Whether it stands where an outcome may stand: in a transaction, of the producer that it names. Else what is wrong.
    pub(crate) fn check_batch(&self, producer: ProducerId, transactional: bool) -> Result<(), String> {
        if !transactional {
            return Err("an outcome outside a transaction".to_owned());
        }
        if self.producer_id != producer {
            return Err(format!("written by producer {producer}, but claims producer {}", self.producer_id));
        }
        Ok(())
    }

    /// True when the record belongs to that replica.
    pub fn is_of(&self, job: &str, instance: &str) -> bool {
        self.job == job && self.instance == instance
    }

    /// The decisions of all partitions.
    pub fn decisions(&self) -> Decisions {
        let mut decisions = Decisions::new();
        for partition in &self.partitions {
            let source = SourcePartition { topic_id: partition.topic_id, partition: partition.partition };
            for range in &partition.ranges {
                decisions.set(source, *range);
            }
        }
        decisions
    }
}

impl OutcomePartition {
    /// The partitions of `decisions`; `topic_name` names a topic id.
    pub fn of(decisions: &Decisions, topic_name: impl Fn(TopicId) -> String) -> Vec<OutcomePartition> {
        let partition = |source: SourcePartition| OutcomePartition {
            topic: topic_name(source.topic_id),
            topic_id: source.topic_id,
            partition: source.partition,
            ranges: decisions.of(source).collect(),
        };
        decisions.partitions().map(partition).collect()
    }
}

impl ModeRecord {
    /// The key: one mode for each group.
    pub fn key(&self) -> String {
        format!("{MODE_KEY}{}", self.group)
    }

    /// The value.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }
}

impl OwnerRecord {
    /// The key: one owner for each replica.
    pub fn key(&self) -> String {
        Self::key_of(&self.job, &self.instance)
    }

    /// The key of a replica's owner.
    pub fn key_of(job: &str, instance: &str) -> String {
        format!("{OWNER_KEY}{job}/{instance}")
    }

    /// The value.
    pub fn encode(&self) -> Result<Vec<u8>, RecordFormatError> {
        Ok(serde_json::to_vec(self)?)
    }
}

impl LogEntry {
    /// Reads a record of the outcome topic.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<LogEntry, RecordFormatError> {
        if key.starts_with(MODE_KEY.as_bytes()) {
            check_version(value)?;
            Ok(LogEntry::Mode(serde_json::from_slice(value)?))
        } else if key.starts_with(OWNER_KEY.as_bytes()) {
            check_version(value)?;
            Ok(LogEntry::Owner(serde_json::from_slice(value)?))
        } else if key.starts_with(FLOOR_KEY.as_bytes()) {
            check_version(value)?;
            Ok(LogEntry::Floor(serde_json::from_slice(value)?))
        } else if key.starts_with(GENERATION_KEY.as_bytes()) {
            check_version_up_to(value, REWIND_FORMAT_VERSION)?;
            Ok(LogEntry::Generation(serde_json::from_slice(value)?))
        } else if key.starts_with(NEAR_LIMIT_KEY.as_bytes()) {
            check_version(value)?;
            Ok(LogEntry::NearLimit(serde_json::from_slice(value)?))
        } else if key.starts_with(b"#") {
            Ok(LogEntry::Unknown)
        } else {
            Ok(LogEntry::Outcome(Box::new(OutcomeRecord::decode(value)?)))
        }
    }
}

pub(super) fn check_version(value: &[u8]) -> Result<(), RecordFormatError> {
    check_version_up_to(value, FORMAT_VERSION)
}

fn check_version_up_to(value: &[u8], newest: u32) -> Result<(), RecordFormatError> {
    let VersionOnly { format_version: found } = serde_json::from_slice(value)?;
    if found > newest { Err(RecordFormatError::Version { found, newest }) } else { Ok(()) }
}

/// Ranges as `[first, last, decision]`.
pub(super) mod ranges {
    use serde::{Deserializer, Serializer};

    use super::*;

    type Compact = (Offset, Offset, Decision);

    pub(in crate::outcome) fn serialize<S: Serializer>(
        ranges: &[DecidedRange],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranges.iter().map(|range| (range.first, range.last, range.decision)))
    }

    pub(in crate::outcome) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<DecidedRange>, D::Error> {
        let ranges = Vec::<Compact>::deserialize(deserializer)?;
        if ranges.iter().any(|(first, last, _)| last < first || first.0 < 0) {
            return Err(serde::de::Error::custom("a range ends before it begins"));
        }
        Ok(ranges.into_iter().map(|(first, last, decision)| DecidedRange { first, last, decision }).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// Written by version 2.
    const V2: &str = r#"{"format_version":2,"job":"flights","instance":"0","job_epoch":3,"checkpoint":7,"predecessor":6,"manifest":{"name":"7-3.pending","sha256":"ab"},"mode":"transactional","group":"g","partitions":[{"topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"ranges":[[0,9,"accept"],[10,10,"reject"],[11,12,"gap"]]}],"transactional_id":"flights.0.1","producer_id":1000,"producer_epoch":5,"deadline_ms":1767225600000,"counts":{"accept":10,"reject":1,"gap":2},"generation":3}"#;
    /// Written by version 1; must stay readable for ever.
    const V1: &str = r#"{"format_version":1,"job":"flights","instance":"0","job_epoch":3,"checkpoint":7,"predecessor":6,"manifest":{"name":"7-3.pending","sha256":"ab"},"mode":"transactional","group":"g","partitions":[{"topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"ranges":[[0,9,"accept"],[10,10,"reject"],[11,12,"gap"]]}],"transactional_id":"flights.0.1","producer_id":1000,"producer_epoch":5,"deadline_ms":1767225600000,"counts":{"accept":10,"reject":1,"gap":2}}"#;

    fn range(first: i64, last: i64, decision: Decision) -> DecidedRange {
        DecidedRange { first: Offset(first), last: Offset(last), decision }
    }

    fn record() -> OutcomeRecord {
        OutcomeRecord {
            format_version: 1,
            job: "flights".to_owned(),
            instance: "0".to_owned(),
            job_epoch: JobEpoch(3),
            checkpoint: CheckpointId(7),
            predecessor: Some(CheckpointId(6)),
            manifest: Some(ManifestRef { name: "7-3.pending".to_owned(), sha256: "ab".to_owned() }),
            mode: AckMode::Transactional,
            group: "g".to_owned(),
            partitions: vec![OutcomePartition {
                topic: "flights".to_owned(),
                topic_id: TopicId(Uuid::from_u128(1)),
                partition: PartitionIndex(2),
                ranges: vec![
                    range(0, 9, Decision::Accept),
                    range(10, 10, Decision::Reject),
                    range(11, 12, Decision::Gap),
                ],
            }],
            transactional_id: "flights.0.1".to_owned(),
            producer_id: ProducerId(1000),
            producer_epoch: ProducerEpoch(5),
            deadline_ms: 1_767_225_600_000,
            counts: OutcomeCounts { accept: 10, reject: 1, gap: 2 },
            generation: ReplayGeneration(0),
        }
    }

    #[test]
    fn version_2_is_written_and_read_as_the_fixture_says_and_version_1_is_read() {
        let newer = OutcomeRecord { format_version: 2, generation: ReplayGeneration(3), ..record() };
        assert_eq!(String::from_utf8(newer.encode().unwrap()).unwrap(), V2);
        assert_eq!(OutcomeRecord::decode(V2.as_bytes()).unwrap(), newer);
        assert_eq!(OutcomeRecord::decode(V1.as_bytes()).unwrap(), record());
        assert_eq!(record().key(), "flights/0/1000/5");
        assert_eq!(OutcomeCounts::of(&record().decisions()), record().counts);
    }

    #[test]
    fn a_newer_version_and_broken_ranges_are_refused() {
        let newer = V1.replace("\"format_version\":1", "\"format_version\":3");
        assert!(
            OutcomeRecord::decode(newer.as_bytes()).unwrap_err().to_string().contains("version 3 is newer")
        );
        let backwards = V1.replace("[0,9,", "[9,0,");
        assert!(OutcomeRecord::decode(backwards.as_bytes()).is_err());
        assert!(OutcomeRecord::decode(b"{}").is_err());
    }

    #[test]
    fn entries_are_told_apart_by_their_keys() {
        let mode = ModeRecord {
            format_version: 1,
            group: "g/h".to_owned(),
            mode: AckMode::AtLeastOnce,
            topic_id: TopicId(Uuid::from_u128(1)),
            partition_count: 4,
            era: 1,
        };
        let read = LogEntry::decode(mode.key().as_bytes(), &mode.encode().unwrap()).unwrap();
        assert_eq!(read, LogEntry::Mode(mode));
        let read = LogEntry::decode(record().key().as_bytes(), V1.as_bytes()).unwrap();
        assert_eq!(read, LogEntry::Outcome(Box::new(record())));
        let owner = OwnerRecord {
            format_version: 1,
            job: "flights".to_owned(),
            instance: "0".to_owned(),
            job_epoch: JobEpoch(3),
            incarnation: "a".to_owned(),
            since_ms: 1_767_225_600_000,
            transactional_ids: ["flights.0.0", "flights.0.1"].map(str::to_owned).into(),
        };
        let read = LogEntry::decode(owner.key().as_bytes(), &owner.encode().unwrap()).unwrap();
        assert_eq!(read, LogEntry::Owner(owner));
        assert_eq!(LogEntry::decode(b"#later/g/9", b"?").unwrap(), LogEntry::Unknown);
    }

    #[test]
    fn owner_records_are_written_as_the_fixture_says_and_those_without_transactional_ids_are_read() {
        let old = r#"{"format_version":1,"job":"flights","instance":"0","job_epoch":3,"incarnation":"a","since_ms":1767225600000}"#;
        let new = old.replace('}', r#","transactional_ids":["flights.0.0","flights.0.1"]}"#);
        let read = |value: &str| match LogEntry::decode(b"#owner/flights/0", value.as_bytes()).unwrap() {
            LogEntry::Owner(owner) => owner,
            other => panic!("{other:?}"),
        };
        assert!(read(old).transactional_ids.is_empty());
        assert_eq!(read(&new).transactional_ids, ["flights.0.0", "flights.0.1"].map(str::to_owned).into());
        assert_eq!(String::from_utf8(read(&new).encode().unwrap()).unwrap(), new);
    }

    proptest! {
        #[test]
        fn decisions_survive_the_record(steps in proptest::collection::vec((0i64..500, 0i64..20, 0u8..3, 0i32..3), 0..40)) {
            let mut decisions = Decisions::new();
            for (first, length, code, partition) in steps {
                let decision = [Decision::Accept, Decision::Reject, Decision::Gap][usize::from(code)];
                let source =
                    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(partition) };
                decisions.set(source, range(first, first + length, decision));
            }
            let partitions = OutcomePartition::of(&decisions, |_| "t".to_owned());
            let record = OutcomeRecord { partitions, counts: OutcomeCounts::of(&decisions), ..record() };
            let read = OutcomeRecord::decode(&record.encode().unwrap()).unwrap();
            prop_assert_eq!(read.decisions(), decisions);
            prop_assert_eq!(read, record);
        }
    }
}
