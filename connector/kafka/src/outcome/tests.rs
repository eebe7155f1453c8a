//! Verdicts of outcome records, and what recovery makes of them.

use bytes::Bytes;
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, ProducerEpoch, ProducerId, TopicId};
use sharestream_checkpoints::ManifestRef;
use sharestream_core::ErrorKind;
use sharestream_core::commit::AckMode;
use sharestream_wire::records::control::{self, ControlMarker, MarkerMeta};
use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};

use super::*;

fn record(
    instance: &str,
    checkpoint: u64,
    predecessor: Option<u64>,
    producer: i64,
    epoch: i16,
) -> OutcomeRecord {
    OutcomeRecord {
        format_version: FORMAT_VERSION,
        job: "j".to_owned(),
        instance: instance.to_owned(),
        job_epoch: JobEpoch(1),
        checkpoint: CheckpointId(checkpoint),
        predecessor: predecessor.map(CheckpointId),
        manifest: Some(ManifestRef { name: format!("{checkpoint}"), sha256: String::new() }),
        mode: AckMode::Transactional,
        group: "g".to_owned(),
        partitions: Vec::new(),
        transactional_id: format!("j.{instance}.0"),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(epoch),
        deadline_ms: 0,
        counts: OutcomeCounts::default(),
        generation: ReplayGeneration::default(),
    }
}

/// An outcome partition under construction.
#[derive(Default)]
struct Log {
    batches: Vec<RawBatch>,
}

impl Log {
    fn next_offset(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.header.next_offset())
    }

    fn push(&mut self, key: &str, value: Option<&[u8]>, producer: i64, transactional: bool) {
        let mut builder = BatchBuilder::new();
        builder.append(0, Some(key.as_bytes()), value, &[]).unwrap();
        let meta = BatchMeta {
            producer_id: producer,
            transactional,
            base_offset: self.next_offset(),
            ..BatchMeta::default()
        };
        self.push_bytes(builder.build(&meta).unwrap());
    }

    fn push_bytes(&mut self, bytes: Bytes) {
        self.batches.push(RawBatch::from_bytes(bytes).unwrap());
    }

    fn outcome(mut self, record: OutcomeRecord) -> Self {
        let value = record.encode().unwrap();
        self.push(&record.key(), Some(&value), record.producer_id.0, true);
        self
    }

    /// A marker of the transaction of `epoch`, with the bumped epoch of transaction version 2.
    fn marker(mut self, marker: ControlMarker, producer_id: i64, epoch: i16) -> Self {
        let meta = MarkerMeta {
            coordinator_epoch: 0,
            producer_id,
            producer_epoch: epoch + 1,
            timestamp_ms: 0,
            base_offset: self.next_offset(),
            leader_epoch: 0,
        };
        self.push_bytes(control::encode(marker, &meta).unwrap());
        self
    }

    fn read(&self) -> crate::Result<OutcomeLog> {
        let mut log = OutcomeLog::of("j", "0");
        for batch in &self.batches {
            log.apply(batch)?;
        }
        Ok(log)
    }
}

#[test]
fn a_record_is_judged_by_the_next_marker_of_its_producer() {
    let log = Log::default()
        .outcome(record("0", 1, None, 10, 0))
        .outcome(record("0", 2, Some(1), 11, 0))
        .marker(ControlMarker::Abort, 11, 0)
        .marker(ControlMarker::Commit, 10, 0)
        .outcome(record("0", 3, Some(1), 10, 1))
        .read()
        .unwrap();
    let verdicts: Vec<_> = log.outcomes().iter().map(|judged| (judged.offset.0, judged.verdict)).collect();
    assert_eq!(verdicts, [(0, Verdict::Committed), (1, Verdict::Aborted), (4, Verdict::Open)]);
}

/// A process stands still while it reads, for longer than markers are kept: the record's own is compacted away, and the
/// next one of its producer is that of a later transaction. It must not commit what was aborted.
#[test]
fn a_commit_of_a_later_transaction_says_nothing_of_a_record_whose_marker_is_gone() {
    let error = Log::default()
        .outcome(record("0", 1, None, 10, 0))
        .outcome(record("0", 2, None, 10, 1))
        .marker(ControlMarker::Commit, 10, 1)
        .read()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "the next reading finds neither record nor marker: {error}");
}

/// The coordinator that ends a transaction of its own accord fences the producer too, so its marker may be further on.
#[test]
fn an_abort_may_carry_the_epoch_of_a_fence() {
    let log = Log::default()
        .outcome(record("0", 1, None, 10, 0))
        .marker(ControlMarker::Abort, 10, 1)
        .read()
        .unwrap();
    assert_eq!(log.outcomes()[0].verdict, Verdict::Aborted);
}

#[test]
fn records_of_other_replicas_are_skipped_even_when_they_cannot_be_read() {
    let mut log = Log::default().outcome(record("1", 1, None, 10, 0));
    log.push("j/00/5/5", Some(b"nonsense"), 5, true);
    log.push("#floor/g/3", Some(b"from the future"), -1, false);
    log.push("j/0/5/6", None, 5, true);
    assert!(log.read().unwrap().outcomes().is_empty());
}

#[test]
fn a_record_that_cannot_be_trusted_is_corrupt() {
    let mut nonsense = Log::default();
    nonsense.push("j/0/5/5", Some(b"nonsense"), 5, true);
    let mut outside = Log::default();
    let value = record("0", 1, None, 5, 0).encode().unwrap();
    outside.push("j/0/5/0", Some(&value), 5, false);
    let mut forged = Log::default();
    forged.push("j/0/5/0", Some(&value), 6, true);
    for (log, expected) in
        [(nonsense, "not an outcome"), (outside, "outside a transaction"), (forged, "claims producer")]
    {
        let error = log.read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_mode_record_of_the_group_is_found() {
    let mode = ModeRecord {
        format_version: FORMAT_VERSION,
        group: "g".to_owned(),
        mode: AckMode::Transactional,
        topic_id: TopicId::default(),
        partition_count: 4,
        era: 0,
    };
    let mut log = Log::default();
    log.push(&mode.key(), Some(&mode.encode().unwrap()), -1, false);
    let log = log.read().unwrap();
    assert_eq!((log.mode("g"), log.mode("h")), (Some(&mode), None));
}

fn judged(checkpoint: u64, predecessor: Option<u64>, verdict: Verdict) -> JudgedOutcome {
    JudgedOutcome { offset: Offset(0), verdict, record: record("0", checkpoint, predecessor, 1, 0) }
}

#[test]
fn recovery_takes_the_last_committed_checkpoint_and_never_reuses_an_id() {
    use Verdict::{Aborted, Committed, Open};
    type Case<'a> = (&'a [(u64, Option<u64>, Verdict)], Option<(Option<u64>, Option<u64>)>);
    let cases: [Case<'_>; 6] = [
        (&[], Some((None, None))),
        (&[(1, None, Committed)], Some((Some(1), Some(1)))),
        (&[(1, None, Aborted)], Some((None, Some(1)))),
        (&[(1, None, Committed), (2, Some(1), Aborted), (4, Some(1), Committed)], Some((Some(4), Some(4)))),
        (&[(1, None, Committed), (2, Some(1), Committed), (3, Some(2), Aborted)], Some((Some(2), Some(3)))),
        (&[(1, None, Committed), (2, Some(1), Open)], None),
    ];
    for (outcomes, expected) in cases {
        let outcomes: Vec<_> =
            outcomes.iter().map(|(id, predecessor, verdict)| judged(*id, *predecessor, *verdict)).collect();
        let found = last_committed(&outcomes).unwrap();
        let ids = found.as_ref().map(|last| {
            (last.checkpoint.map(|checkpoint| checkpoint.0), last.highest_seen.map(|checkpoint| checkpoint.0))
        });
        assert_eq!(ids, expected);
        if let Some(last) = found {
            let named = last.manifest.map(|manifest| manifest.name);
            assert_eq!(named, last.checkpoint.map(|checkpoint| checkpoint.to_string()));
        }
    }
}

#[test]
fn committed_checkpoints_that_do_not_follow_one_another_are_corrupt() {
    for (second, predecessor) in [(3, Some(2)), (2, None), (2, Some(7))] {
        let outcomes = [judged(1, None, Verdict::Committed), judged(second, predecessor, Verdict::Committed)];
        assert_eq!(last_committed(&outcomes).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// Tombstones are written in one generation only, so the next one may follow on a hole; within one there is none.
#[test]
fn a_new_replay_generation_may_follow_on_tombstoned_outcomes() {
    use Verdict::Committed;
    let of = |generation, judged: JudgedOutcome| JudgedOutcome {
        record: OutcomeRecord { generation: ReplayGeneration(generation), ..judged.record },
        ..judged
    };
    let first = of(0, judged(3, Some(2), Committed));
    let hole = judged(9, Some(8), Committed);
    let last = last_committed(&[first.clone(), of(1, hole.clone())]).unwrap().unwrap();
    assert_eq!(last.checkpoint, Some(CheckpointId(9)));
    let error = last_committed(&[first, of(0, hole)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
