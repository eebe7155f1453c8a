//! Records of the outcome topic that builds of every format have written stay readable.
//!
//! `tests/formats/v<N>.txt` has the records of a build that writes format N, a line for each: the key, a tab, the value.
//! It is never changed. A build that raises `outcome::FORMAT_VERSION` adds its own:
//! `cargo test -p sharestream-kafka --test stored_formats -- --ignored` writes it, once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use sharestream_base::ids::{
    CheckpointId, JobEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use sharestream_checkpoints::ManifestRef;
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision};
use sharestream_kafka::outcome::{
    FORMAT_VERSION, FloorRecord, GenerationRecord, LogEntry, ModeRecord, NearLimitRange, NearLimitRecord,
    OutcomeCounts, OutcomePartition, OutcomeRecord, OwnerRecord, RecordFormatError, ReplayGeneration,
};

fn file(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/formats/v{version}.txt"))
}

fn outcome(version: u32) -> OutcomeRecord {
    let range = |first, last, decision| DecidedRange { first: Offset(first), last: Offset(last), decision };
    OutcomeRecord {
        format_version: version,
        job: "flights".to_owned(),
        instance: "main".to_owned(),
        job_epoch: JobEpoch(3),
        checkpoint: CheckpointId(8),
        predecessor: Some(CheckpointId(6)),
        manifest: Some(ManifestRef { name: "8.pending".to_owned(), sha256: "ab".repeat(32) }),
        mode: if version < 2 { AckMode::Transactional } else { AckMode::Ledger },
        group: "late".to_owned(),
        partitions: vec![OutcomePartition {
            topic: "flights".to_owned(),
            topic_id: TopicId(uuid::Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            ranges: vec![
                range(0, 9, Decision::Accept),
                range(10, 10, Decision::Gap),
                range(12, 12, Decision::Reject),
            ],
        }],
        transactional_id: "flights.main.0".to_owned(),
        producer_id: ProducerId(4_000),
        producer_epoch: ProducerEpoch(7),
        deadline_ms: 1_767_225_600_000,
        counts: OutcomeCounts { accept: 10, reject: 1, gap: 1 },
        // Ledgers, and with them replays, came with version 2.
        generation: ReplayGeneration(if version < 2 { 0 } else { 1 }),
    }
}

/// Every kind of record that format `version` has.
fn records(version: u32) -> Vec<(String, LogEntry)> {
    let outcome = outcome(version);
    let mode = ModeRecord {
        format_version: version,
        group: "late".to_owned(),
        mode: outcome.mode,
        topic_id: TopicId(uuid::Uuid::from_u128(5)),
        partition_count: 4,
        era: u32::from(version >= 2),
    };
    let ids = ["flights.main.0", "flights.main.1"];
    let owner = OwnerRecord {
        format_version: version,
        job: "flights".to_owned(),
        instance: "main".to_owned(),
        job_epoch: JobEpoch(3),
        incarnation: "00000000-0000-4000-8000-000000000003".to_owned(),
        since_ms: 1_767_225_600_000,
        transactional_ids: ids.iter().filter(|_| version >= 2).map(|id| (*id).to_owned()).collect(),
    };
    let mut records = vec![
        (outcome.key(), LogEntry::Outcome(Box::new(outcome.clone()))),
        (mode.key(), LogEntry::Mode(mode)),
        (owner.key(), LogEntry::Owner(owner)),
    ];
    if version >= 2 {
        let floor = FloorRecord {
            format_version: version,
            group: "late".to_owned(),
            generation: ReplayGeneration(1),
            topic: "flights".to_owned(),
            topic_id: TopicId(uuid::Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            floor: Offset(100),
            initial: Offset(7),
            counts: OutcomeCounts { accept: 80, reject: 1, gap: 2 },
            passed: 10,
        };
        let generation = GenerationRecord {
            format_version: version,
            group: "late".to_owned(),
            generation: ReplayGeneration(1),
            ready: true,
            begins: None,
        };
        records.push((floor.key(), LogEntry::Floor(floor)));
        records.push((generation.key(), LogEntry::Generation(generation)));
        let near_limit = NearLimitRecord {
            format_version: version,
            job: "flights".to_owned(),
            instance: "main".to_owned(),
            subtask: 1,
            group: "late".to_owned(),
            since_ms: 1_767_225_600_000,
            held: vec![NearLimitRange {
                topic: "flights".to_owned(),
                topic_id: TopicId(uuid::Uuid::from_u128(1)),
                partition: PartitionIndex(2),
                first: Offset(5),
                last: Offset(6),
                delivery_count: 4,
            }],
        };
        records.push((near_limit.key(), LogEntry::NearLimit(near_limit)));
    }
    records
}

fn encoded(entry: &LogEntry) -> Vec<u8> {
    match entry {
        LogEntry::Outcome(record) => record.encode().unwrap(),
        LogEntry::Mode(record) => record.encode().unwrap(),
        LogEntry::Owner(record) => record.encode().unwrap(),
        LogEntry::Floor(record) => record.encode().unwrap(),
        LogEntry::Generation(record) => record.encode().unwrap(),
        LogEntry::NearLimit(record) => record.encode().unwrap(),
        LogEntry::Unknown => panic!("nobody writes an unknown record"),
    }
}

#[test]
fn records_of_every_format_are_read_as_they_were_meant() {
    for version in 1..=FORMAT_VERSION {
        let written = fs::read_to_string(file(version))
            .unwrap_or_else(|_| panic!("{}: write it, see the head of this file", file(version).display()));
        let lines: Vec<(&str, &str)> = written.lines().map(|line| line.split_once('\t').unwrap()).collect();
        let expected = records(version);
        assert_eq!(lines.len(), expected.len(), "v{version}");
        for ((key, value), (expected_key, expected)) in lines.into_iter().zip(expected) {
            // A key that changed would be another record to compaction: the old one would never go.
            assert_eq!(key, expected_key, "v{version}");
            let read = LogEntry::decode(key.as_bytes(), value.as_bytes()).unwrap();
            assert_eq!(read, expected, "v{version}: {key}");
        }
    }
}

#[test]
fn a_record_of_a_newer_format_is_refused_by_its_version_and_not_called_damage() {
    let value = br#"{"format_version":1000,"of":"another shape"}"#;
    for key in
        ["flights/main/4000/7", "#mode/late", "#owner/flights/main", "#floor/late/1", "#generation/late/1"]
    {
        let error = LogEntry::decode(key.as_bytes(), value).unwrap_err();
        assert!(matches!(error, RecordFormatError::Version { found: 1000, .. }), "{key}: {error}");
        assert!(error.to_string().contains("newer than"), "{error}");
    }
    // A kind of record that this build does not know is skipped: it says nothing about what this build decides.
    assert_eq!(LogEntry::decode(b"#later/late", value).unwrap(), LogEntry::Unknown);
}

/// Writes the records of this build's format. Refuses to write a file that is there: what was once written is what
/// users have.
#[test]
#[ignore = "writes the fixture of a new format"]
fn the_records_of_this_format_are_written() {
    let path = file(FORMAT_VERSION);
    assert!(!path.exists(), "{} is there and stays as it is", path.display());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines = records(FORMAT_VERSION)
        .into_iter()
        .map(|(key, entry)| format!("{key}\t{}\n", String::from_utf8(encoded(&entry)).unwrap()));
    fs::write(path, lines.collect::<String>()).unwrap();
}
