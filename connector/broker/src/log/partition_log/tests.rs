//! The log against a model that keeps one entry for each offset.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sharestream_base::ids::LeaderEpoch;
use sharestream_wire::records::{BatchBuilder, BatchMeta};

use super::*;

const EPOCH: LeaderEpoch = LeaderEpoch(0);
const BYTES_MAX: usize = 1 << 20;

fn batch(producer: i64, epoch: i16, sequence: i32, transactional: bool, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.append(0, None, Some(b"v"), &[]).unwrap();
    }
    let meta = BatchMeta {
        producer_id: producer,
        producer_epoch: epoch,
        base_sequence: sequence,
        transactional,
        ..BatchMeta::default()
    };
    builder.build(&meta).unwrap()
}

fn append(log: &mut PartitionLog, blob: &Bytes) -> Result<AppendInfo, ErrorCode> {
    let raw = RawBatch::from_bytes(blob.clone()).unwrap();
    let verify = raw.header.is_transactional();
    let guard = verify.then(|| log.verification_guard(&raw, TransactionVersion::V2)).flatten();
    append_with(log, blob, guard, TransactionVersion::V2)
}

fn append_with(
    log: &mut PartitionLog,
    blob: &Bytes,
    guard: Option<VerificationGuard>,
    version: TransactionVersion,
) -> Result<AppendInfo, ErrorCode> {
    let origin = Origin::Client { guard, version };
    log.append(split_checked(blob, origin, BYTES_MAX)?, origin, EPOCH)
}

fn marker(producer: i64, epoch: i16, commit: bool) -> Marker {
    Marker {
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: 0,
        commit,
    }
}

#[test]
fn a_first_batch_without_the_coordinators_word_is_refused() {
    let mut log = PartitionLog::default();
    let blob = batch(1, 0, 0, true, 1);
    assert_eq!(append_with(&mut log, &blob, None, TransactionVersion::V2), Err(ErrorCode::InvalidTxnState));
    assert!(append(&mut log, &blob).is_ok());
    // The second batch of the transaction needs none.
    assert!(append_with(&mut log, &batch(1, 0, 1, true, 1), None, TransactionVersion::V2).is_ok());
}

#[test]
fn a_marker_between_the_coordinators_word_and_the_append_makes_the_append_fail() {
    use TransactionVersion::{V1, V2};
    // Under version 2 the marker of epoch 0 belongs to the transaction before, whose end the coordinator waited for.
    let cases = [
        (V1, 0, Err(ErrorCode::InvalidTxnState)),
        (V1, 1, Err(ErrorCode::InvalidProducerEpoch)),
        (V2, 0, Ok(Offset(1))),
        (V2, 1, Err(ErrorCode::InvalidProducerEpoch)),
    ];
    for (version, marker_epoch, expected) in cases {
        let mut log = PartitionLog::default();
        let blob = batch(1, 0, 0, true, 1);
        let guard = log.verification_guard(&RawBatch::from_bytes(blob.clone()).unwrap(), version);
        assert!(guard.is_some());
        log.append_marker(&marker(1, marker_epoch, false), 0, EPOCH).unwrap();
        let appended = append_with(&mut log, &blob, guard, version).map(|info| info.base_offset);
        assert_eq!(appended, expected, "{version:?}, marker of epoch {marker_epoch}");
    }
}

#[test]
fn a_repeated_marker_is_written_once_and_a_late_one_does_not_end_the_next_transaction() {
    let mut log = PartitionLog::default();
    append(&mut log, &batch(1, 0, 0, true, 1)).unwrap();
    assert_eq!(log.append_marker(&marker(1, 1, true), 0, EPOCH), Ok(Offset(1)));
    assert_eq!(log.append_marker(&marker(1, 1, true), 0, EPOCH), Ok(Offset(1)), "repeated");
    append(&mut log, &batch(1, 1, 0, true, 1)).unwrap();
    let late = log.append_marker(&marker(1, 1, true), 0, EPOCH);
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(log.ends().last_stable_offset, Offset(2));
    assert_eq!(log.append_marker(&marker(1, 2, false), 0, EPOCH), Ok(Offset(3)));
    assert_eq!(log.ends().last_stable_offset, Offset(4));
}

#[test]
fn an_older_coordinator_is_fenced() {
    let mut log = PartitionLog::default();
    append(&mut log, &batch(1, 0, 0, true, 1)).unwrap();
    let newer = Marker { coordinator_epoch: 5, ..marker(1, 1, true) };
    log.append_marker(&newer, 0, EPOCH).unwrap();
    let older = Marker { coordinator_epoch: 4, ..marker(1, 2, true) };
    assert_eq!(log.append_marker(&older, 0, EPOCH), Err(ErrorCode::TransactionCoordinatorFenced));
}

#[test]
fn a_plain_batch_amid_the_producers_own_transaction_is_refused() {
    let mut log = PartitionLog::default();
    append(&mut log, &batch(1, 0, 0, true, 1)).unwrap();
    assert_eq!(append(&mut log, &batch(1, 0, 1, false, 1)), Err(ErrorCode::InvalidTxnState));
}

#[test]
fn sequence_numbers_wrap_to_zero() {
    let mut log = PartitionLog::default();
    append(&mut log, &batch(1, 0, i32::MAX - 1, false, 1)).unwrap();
    append(&mut log, &batch(1, 0, i32::MAX, false, 2)).unwrap();
    append(&mut log, &batch(1, 0, 1, false, 1)).unwrap();
    assert_eq!(append(&mut log, &batch(1, 0, 0, false, 1)), Err(ErrorCode::OutOfOrderSequenceNumber));
    assert!(append(&mut log, &batch(1, 0, i32::MAX, false, 2)).unwrap().duplicate);
}

#[test]
fn retention_never_drops_what_is_open() {
    let mut log = PartitionLog::default();
    append(&mut log, &batch(-1, -1, -1, false, 10)).unwrap();
    append(&mut log, &batch(1, 0, 0, true, 10)).unwrap();
    append(&mut log, &batch(-1, -1, -1, false, 10)).unwrap();
    log.delete_before(log.start_that_keeps(1).unwrap());
    assert_eq!(log.ends().log_start, Offset(10));
    assert_eq!(log.start_that_keeps(1), None);
    assert_eq!(log.delete_before(Offset(25)).log_start, Offset(10), "nor does an administrator");
    log.append_marker(&marker(1, 1, true), 0, EPOCH).unwrap();
    log.delete_before(log.start_that_keeps(1).unwrap());
    assert_eq!(log.ends().log_start, Offset(30), "the last batch stays");
}

#[derive(Clone, Debug)]
enum Step {
    Plain { count: usize },
    Write { producer: usize, count: usize },
    Repeat { producer: usize },
    End { producer: usize, commit: bool },
    Truncate { keep: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1usize..4).prop_map(|count| Step::Plain { count }),
        4 => (0usize..3, 1usize..4).prop_map(|(producer, count)| Step::Write { producer, count }),
        1 => (0usize..3).prop_map(|producer| Step::Repeat { producer }),
        3 => (0usize..3, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
        1 => (0i64..20).prop_map(|keep| Step::Truncate { keep }),
    ]
}

/// What became of one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Visible,
    Open(usize),
    Aborted,
    Control,
}

#[derive(Clone, Debug, Default)]
struct Writer {
    epoch: i16,
    next_sequence: i32,
    last: Option<(Bytes, Offset)>,
}

proptest! {
    /// At every point a read-committed reader sees exactly the visible records below the first open one, and a
    /// read-uncommitted reader every offset.
    #[test]
    fn readers_see_what_the_model_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut log = PartitionLog::default();
        let mut fates: BTreeMap<i64, Fate> = BTreeMap::new();
        let mut writers: [Writer; 3] = Default::default();
        for step in steps {
            let end = log.ends().high_watermark;
            match step {
                Step::Plain { count } => {
                    append(&mut log, &batch(-1, -1, -1, false, count)).unwrap();
                    fates.extend((end.0..end.0 + count as i64).map(|offset| (offset, Fate::Visible)));
                }
                Step::Write { producer, count } => {
                    let writer = &mut writers[producer];
                    let blob = batch(producer as i64, writer.epoch, writer.next_sequence, true, count);
                    let info = append(&mut log, &blob).unwrap();
                    prop_assert_eq!(info.base_offset, end);
                    writer.next_sequence += count as i32;
                    writer.last = Some((blob, end));
                    fates.extend((end.0..end.0 + count as i64).map(|offset| (offset, Fate::Open(producer))));
                }
                Step::Repeat { producer } => {
                    if let Some((blob, at)) = writers[producer].last.clone() {
                        let info = append(&mut log, &blob).unwrap();
                        prop_assert_eq!((info.duplicate, info.base_offset), (true, at));
                        prop_assert_eq!(log.ends().high_watermark, end);
                    }
                }
                Step::End { producer, commit } => {
                    let writer = &mut writers[producer];
                    *writer = Writer { epoch: writer.epoch + 1, ..Writer::default() };
                    let offset = log.append_marker(&marker(producer as i64, writer.epoch, commit), 0, EPOCH).unwrap();
                    prop_assert_eq!(offset, end);
                    let fate = if commit { Fate::Visible } else { Fate::Aborted };
                    fates.values_mut().filter(|open| **open == Fate::Open(producer)).for_each(|open| *open = fate);
                    fates.insert(end.0, Fate::Control);
                }
                Step::Truncate { keep } => {
                    let stable = log.ends().last_stable_offset;
                    log.delete_before(stable.plus(-keep));
                }
            }
            let ends = log.ends();
            let first_open = fates.iter().find(|(_, fate)| matches!(fate, Fate::Open(_))).map(|(offset, _)| *offset);
            prop_assert_eq!(ends.last_stable_offset, Offset(first_open.unwrap_or(ends.high_watermark.0)));
            let expected: Vec<i64> = fates
                .range(ends.log_start.0..ends.last_stable_offset.0)
                .filter(|(_, fate)| **fate == Fate::Visible)
                .map(|(offset, _)| *offset)
                .collect();
            prop_assert_eq!(read_committed(&log, ends.log_start), expected);
            let all = read_offsets(&log, ends.log_start, Isolation::ReadUncommitted);
            let expected: Vec<i64> = (ends.log_start.0..ends.high_watermark.0).collect();
            prop_assert_eq!(all, expected);
        }
    }
}

fn read_offsets(log: &PartitionLog, from: Offset, isolation: Isolation) -> Vec<i64> {
    let read = log.read(from, BYTES_MAX, isolation).unwrap();
    let offsets = read.batches.iter().flat_map(|batch| batch.header.base_offset..batch.header.next_offset());
    offsets.filter(|offset| *offset >= from.0).collect()
}

/// As a consumer filters: in small reads, taking in aborted transactions by their first offsets.
fn read_committed(log: &PartitionLog, start: Offset) -> Vec<i64> {
    let mut from = start;
    let mut seen = Vec::new();
    loop {
        let read = log.read(from, 1, Isolation::ReadCommitted).unwrap();
        let Some(batch) = read.batches.first() else { return seen };
        assert_eq!(read.batches.len(), 1, "one batch is more than the limit");
        let header = &batch.header;
        let aborted = read.aborted.iter().any(|aborted| {
            aborted.producer_id.0 == header.producer_id
                && aborted.first_offset.0 <= header.last_offset()
                && aborted.marker_offset.0 >= header.base_offset
        });
        if !header.is_control() && !aborted {
            seen.extend((header.base_offset..header.next_offset()).filter(|offset| *offset >= start.0));
        }
        from = Offset(header.next_offset());
    }
}

#[test]
fn a_read_goes_no_further_than_is_enough() {
    let mut log = PartitionLog::default();
    for _ in 0..4 {
        append(&mut log, &batch(-1, -1, -1, false, 10)).unwrap();
    }
    let batches = |from, enough| {
        let read = log.read_until(Offset(from), Offset(enough), BYTES_MAX, Isolation::ReadUncommitted);
        read.unwrap().batches.iter().map(|batch| batch.header.base_offset).collect::<Vec<_>>()
    };
    assert_eq!(batches(5, 10), [0]);
    assert_eq!(batches(5, 11), [0, 10], "a batch is whole");
    assert_eq!(batches(5, 0), [0], "at least one");
    assert_eq!(batches(5, i64::MAX), [0, 10, 20, 30]);
}
