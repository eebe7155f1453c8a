//! Polled records to chunks.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;
use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_client::{AcquiredRange, ShareRecords};
use sharestream_core::coordinates;
use sharestream_wire::records::control::{self, ControlMarker, MarkerMeta};
use sharestream_wire::records::{BatchBuilder, BatchMeta, Compression, split};

use super::*;
use crate::config::KafkaJobConfig;
use crate::formats::{AvroFormat, AvroFraming, AvroSchema, Column, ColumnType, CsvFormat, Format};
use crate::group::GroupSettings;
use crate::metadata_columns::TopicNames;

fn plan(policy: BadRecords) -> RejectPlan {
    let config = KafkaJobConfig { bad_records: Some(policy), ..KafkaJobConfig::default() };
    let nothing = std::collections::BTreeMap::new();
    RejectPlan::new(&config, &GroupSettings::of(&nothing, &nothing))
}

fn reader(rows_max: usize) -> Reader {
    let format =
        Format::Csv(CsvFormat { columns: vec![Column::new("n", ColumnType::Int64)], ..CsvFormat::default() });
    let rows = RowsBuilder::new(&format, TopicNames::new([("t", TopicId::default())]));
    Reader::new(
        rows,
        rows_max,
        DeliveryLimit::new(5, 2, BadRecords::DeadLetter),
        plan(BadRecords::DeadLetter),
    )
}

/// Reads everything, in the order in which it came.
fn read(reader: &mut Reader, records: ShareRecords, chunks: &mut VecDeque<Chunk>) -> Result<()> {
    let mut unread = Unread::default();
    records.partitions.into_iter().rev().for_each(|acquired| unread.push_front(acquired));
    while !unread.is_empty() {
        reader.read_on(&mut unread, chunks)?;
    }
    Ok(())
}

/// A batch of these values at `base_offset`.
fn batch(base_offset: i64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(7, Some(b"a key of more than twelve bytes"), Some(value.as_bytes()), &[]).unwrap();
    }
    builder.build(&BatchMeta { base_offset, ..BatchMeta::default() }).unwrap()
}

fn marker(base_offset: i64) -> Bytes {
    let meta = MarkerMeta {
        coordinator_epoch: 0,
        producer_id: 1,
        producer_epoch: 1,
        timestamp_ms: 0,
        base_offset,
        leader_epoch: 0,
    };
    control::encode(ControlMarker::Commit, &meta).unwrap()
}

/// One answer with these batches, in one buffer as a fetch brings them.
fn polled(batches: &[Bytes], acquired: &[(i64, i64, i16)]) -> ShareRecords {
    let blob: Vec<u8> = batches.iter().flatten().copied().collect();
    let range = |(first, last, delivery_count): &(i64, i64, i16)| AcquiredRange {
        first: Offset(*first),
        last: Offset(*last),
        delivery_count: *delivery_count,
    };
    ShareRecords {
        partitions: vec![AcquiredPartition {
            topic: Arc::from("t"),
            topic_id: TopicId::default(),
            partition: PartitionIndex(3),
            batches: split(Bytes::from(blob)).collect::<Result<_, _>>().unwrap(),
            acquired: acquired.iter().map(range).collect(),
            lock_deadline: None,
        }],
    }
}

fn decided(chunk: &Chunk) -> Vec<(i64, i64, Decision)> {
    chunk.decided.iter().map(|(_, range)| (range.first.0, range.last.0, range.decision)).collect()
}

fn offsets(batch: &Option<RecordBatch>) -> Vec<i64> {
    let Some(batch) = batch else { return Vec::new() };
    batch.column_by_name(coordinates::OFFSET).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn only_acquired_records_are_handed_on_and_every_acquired_offset_is_decided() {
    use Decision::{Accept, Gap, Reject};
    let records = polled(
        &[batch(0, &["0", "1", "NA", "3"]), marker(4), batch(7, &["7", "8"])],
        &[(1, 3, 1), (4, 8, 2)],
    );
    let mut chunks = VecDeque::new();
    let mut reader = reader(100);
    read(&mut reader, records, &mut chunks).unwrap();
    assert_eq!(reader.given_up_count(), 0, "a record that does not decode is not given up");
    let chunk = chunks.pop_front().unwrap();
    assert!(chunks.is_empty());
    assert_eq!(offsets(&chunk.rows), [1, 3, 7, 8]);
    assert_eq!(offsets(&chunk.rejected), [2]);
    assert_eq!(
        decided(&chunk),
        [(1, 1, Accept), (2, 2, Reject), (3, 3, Accept), (4, 6, Gap), (7, 8, Accept)]
    );
    assert_eq!(chunk.record_count, 5);
    let rows = chunk.rows.unwrap();
    let keys = rows.column_by_name(coordinates::KEY).unwrap().as_binary_view();
    assert!(keys.iter().all(|key| key == Some(b"a key of more than twelve bytes")));
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 3, 7, 8]);
}

#[test]
fn a_full_chunk_is_cut_inside_a_batch() {
    let values: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut chunks = VecDeque::new();
    read(&mut reader(4), polled(&[batch(0, &values)], &[(0, 9, 1)]), &mut chunks).unwrap();
    let all: Vec<_> = chunks.iter().map(|chunk| offsets(&chunk.rows)).collect();
    assert_eq!(all, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    for chunk in &chunks {
        let offsets = offsets(&chunk.rows);
        assert_eq!(decided(chunk), [(offsets[0], offsets[offsets.len() - 1], Decision::Accept)]);
        let keys =
            chunk.rows.as_ref().unwrap().column_by_name(coordinates::KEY).unwrap().as_binary_view().clone();
        assert!(
            keys.iter().all(|key| key == Some(b"a key of more than twelve bytes")),
            "views of the right block"
        );
    }
}

#[test]
fn an_answer_of_nothing_but_gaps_still_decides() {
    let mut chunks = VecDeque::new();
    read(&mut reader(4), polled(&[marker(5)], &[(5, 5, 1)]), &mut chunks).unwrap();
    let chunk = chunks.pop_front().unwrap();
    assert!(chunk.rows.is_none() && chunk.rejected.is_none());
    assert_eq!(decided(&chunk), [(5, 5, Decision::Gap)]);
    assert_eq!(chunk.record_count, 0);
}

#[test]
fn acquired_offsets_whose_batch_was_cut_off_are_no_gaps() {
    let error =
        read(&mut reader(4), polled(&[batch(0, &["0"])], &[(0, 3, 1)]), &mut VecDeque::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Abort);
    assert!(error.to_string().contains("t/3: offset 1 was acquired"), "{error}");
}

#[test]
fn records_near_their_limit_are_in_chunks_of_their_own_and_those_given_up_are_not_decoded() {
    use Decision::{Accept, Gap, Reject};
    let values: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let records = polled(&[batch(0, &values), marker(9)], &[(0, 1, 1), (2, 3, 3), (4, 6, 4), (7, 9, 2)]);
    let mut chunks = VecDeque::new();
    let mut reader = reader(100);
    read(&mut reader, records, &mut chunks).unwrap();
    assert_eq!(reader.given_up_count(), 3);
    let read: Vec<_> = chunks
        .iter()
        .map(|chunk| (chunk.treatment, offsets(&chunk.rows), offsets(&chunk.rejected), decided(chunk)))
        .collect();
    assert_eq!(
        read,
        [
            (Treatment::Usual, vec![0, 1], vec![], vec![(0, 1, Accept)]),
            (Treatment::Alone, vec![2], vec![], vec![(2, 2, Accept)]),
            (Treatment::Alone, vec![3], vec![], vec![(3, 3, Accept)]),
            (Treatment::GiveUp, vec![], vec![4, 5, 6], vec![(4, 6, Reject)]),
            (Treatment::Usual, vec![7, 8], vec![], vec![(7, 8, Accept), (9, 9, Gap)]),
        ]
    );
    assert_eq!(chunks.iter().map(|chunk| chunk.record_count).sum::<u64>(), 9);
}

#[test]
fn what_becomes_of_a_record_that_was_delivered_too_often_is_the_users_choice() {
    let read = |policy| {
        let format = Format::Raw;
        let rows = RowsBuilder::new(&format, TopicNames::new([("t", TopicId::default())]));
        let mut reader = Reader::new(rows, 10, DeliveryLimit::new(5, 2, policy), plan(policy));
        let mut chunks = VecDeque::new();
        let result = super::tests::read(&mut reader, polled(&[batch(0, &["0"])], &[(0, 0, 4)]), &mut chunks);
        result.map(|()| chunks.pop_front().unwrap())
    };
    let dropped = read(BadRecords::Reject).unwrap();
    assert!(dropped.rows.is_none());
    let kinds = coordinates::reject_kinds(&dropped.rejected.clone().unwrap()).unwrap();
    assert_eq!(kinds, [RejectKind::DeliveryLimit], "the sink counts it");
    assert_eq!(decided(&dropped), [(0, 0, Decision::Reject)]);
    let error = read(BadRecords::Fail).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for part in ["t: ", "partition 3 offset 0", "4 times of at most 5", "raise"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_record_of_too_many_bytes_is_rejected_without_being_decoded() {
    // The key has 31 bytes.
    let records = polled(&[batch(0, &["1", "123456789012", "2"])], &[(0, 2, 1)]);
    let mut chunks = VecDeque::new();
    read(&mut reader(100).with_record_bytes_max(42), records, &mut chunks).unwrap();
    let chunk = chunks.pop_front().unwrap();
    assert_eq!((offsets(&chunk.rows), offsets(&chunk.rejected)), (vec![0, 2], vec![1]));
    let rejected = chunk.rejected.unwrap();
    assert_eq!(coordinates::reject_kinds(&rejected).unwrap(), [RejectKind::TooLarge]);
    let errors = coordinates::errors(&rejected).unwrap();
    assert_eq!(errors.value(0), "it has 43 bytes, at most 42 are processed");
}

#[test]
fn a_row_of_a_copy_is_as_its_record_was_and_the_copy_is_decided() {
    let first = TopicId(uuid::Uuid::from_u128(5));
    let source = format!("{first}/7/40/0");
    let ours = [
        (crate::parking::SOURCE, source.as_str()),
        (crate::parking::TOPIC, "orders"),
        (crate::parking::TIMESTAMP, "12"),
        (crate::parking::TIMES, "1"),
        (crate::parking::FIRST_AT, "34"),
        (crate::parking::VIA, source.as_str()),
        (crate::parking::JOB, "job/0"),
        (crate::parking::CHECKPOINT, "3"),
    ];
    let headers: Vec<(&[u8], Option<&[u8]>)> =
        ours.iter().map(|(key, value)| (key.as_bytes(), Some(value.as_bytes()))).collect();
    let mut builder = BatchBuilder::new();
    builder.append(7, None, Some(b"1"), &headers).unwrap();
    builder.append(7, None, Some(b"2"), &[]).unwrap();
    builder.append(7, None, Some(b"NA"), &headers).unwrap();
    let bytes = builder.build(&BatchMeta { base_offset: 20, ..BatchMeta::default() }).unwrap();
    let mut chunks = VecDeque::new();
    let mut reader = reader(100).with_parking(Some((TopicId::default(), Arc::from("t"))));
    read(&mut reader, polled(&[bytes], &[(20, 22, 1)]), &mut chunks).unwrap();
    let chunk = chunks.pop_front().unwrap();
    assert_eq!(decided(&chunk), [(20, 21, Decision::Accept), (22, 22, Decision::Reject)]);
    let (rows, rejected) = (chunk.rows.unwrap(), chunk.rejected.unwrap());
    let hidden = coordinates::Coordinates::of(&rows).unwrap();
    assert_eq!(
        (hidden.topics.text(0), hidden.partitions.value(0), hidden.offsets.value(0)),
        ("orders", 7, 40)
    );
    assert_eq!((hidden.timestamps.value(0), coordinates::bytes(hidden.headers, 0)), (12, None));
    let copy = hidden.parked_copy(0).unwrap().unwrap();
    assert_eq!((&*copy.topic, copy.offset, copy.times, copy.first_at_ms), ("t", Offset(20), 1, 34));
    assert_eq!(hidden.source(0).unwrap().1, Offset(20));
    // What somebody put there by hand is a record of that topic.
    assert_eq!((hidden.topics.text(1), hidden.offsets.value(1)), ("t", 21));
    assert_eq!(hidden.parked_copy(1).unwrap(), None);
    let hidden = coordinates::Coordinates::behind(&rejected, 0).unwrap();
    assert_eq!((hidden.offsets.value(0), hidden.source(0).unwrap().1), (40, Offset(22)));
}

const MIB: usize = 1 << 20;

/// Batches of one record of 1 MB each. They are all made of the first, so that a test does not compress them one by one.
fn large_batches(count: i64, compression: Compression) -> Vec<Bytes> {
    let mut builder = BatchBuilder::new();
    builder.append(7, None, Some(&vec![b'x'; 1_000_000]), &[]).unwrap();
    let first = builder.build(&BatchMeta { compression, ..BatchMeta::default() }).unwrap();
    let placed = |offset| RawBatch::from_bytes(first.clone()).unwrap().with_base_offset(offset, 0).bytes;
    (0..count).map(placed).collect()
}

/// Bytes that the chunks hold in memory: each buffer once.
fn held(chunks: &VecDeque<Chunk>) -> usize {
    let batches = chunks.iter().flat_map(|chunk| [&chunk.rows, &chunk.rejected]).flatten();
    let mut buffers = std::collections::BTreeMap::new();
    for batch in batches {
        let values = batch.column_by_name(coordinates::VALUE).unwrap().as_binary_view();
        buffers.extend(values.data_buffers().iter().map(|buffer| (buffer.as_ptr() as usize, buffer.len())));
    }
    buffers.values().sum()
}

fn raw_reader() -> Reader {
    let rows = RowsBuilder::new(&Format::Raw, TopicNames::new([("t", TopicId::default())]));
    let limit = DeliveryLimit::new(5, 2, BadRecords::DeadLetter);
    Reader::new(rows, 4_096, limit, plan(BadRecords::DeadLetter))
}

#[test]
fn what_is_decompressed_at_a_time_is_bounded_and_every_record_comes_once() {
    const COUNT: i64 = 200;
    for (compression, fetched_max) in [(Compression::Lz4, 2 * MIB), (Compression::None, 200 * MIB)] {
        let records = polled(&large_batches(COUNT, compression), &[(0, COUNT - 1, 1)]);
        let fetched: usize = records.partitions[0].batches.iter().map(|batch| batch.bytes.len()).sum();
        assert!(fetched < fetched_max, "{compression}: {fetched}");
        let mut unread = Unread::default();
        unread.add(records, DeliveryLimit::new(5, 2, BadRecords::DeadLetter));
        let mut reader = raw_reader().with_decompressed_bytes_max(4 * MIB, DECOMPRESSED_BYTES_MAX);
        let (mut seen, mut peak) = (Vec::new(), 0);
        while !unread.is_empty() {
            let mut chunks = VecDeque::new();
            reader.read_on(&mut unread, &mut chunks).unwrap();
            peak = peak.max(held(&chunks));
            for chunk in &chunks {
                assert_eq!(decided(chunk).len(), 1, "{:?}", decided(chunk));
                seen.extend(offsets(&chunk.rows));
            }
        }
        assert_eq!(seen, (0..COUNT).collect::<Vec<_>>(), "{compression}");
        assert!((4 * MIB..=5 * MIB).contains(&peak), "{compression}: {peak}");
    }
}

#[test]
fn what_is_left_of_a_partition_is_read_on_from_where_it_was_left() {
    use Decision::{Accept, Gap};
    let batches =
        [batch(0, &["0", "1"]), batch(4, &["4", "5"]), marker(6), batch(7, &["7"]), batch(8, &["8", "9"])];
    let records = polled(&batches, &[(0, 4, 1), (6, 9, 2)]);
    let mut unread = Unread::default();
    unread.add(records, DeliveryLimit::new(5, 2, BadRecords::DeadLetter));
    let mut reader = reader(100).with_decompressed_bytes_max(1, DECOMPRESSED_BYTES_MAX);
    let mut read = Vec::new();
    while !unread.is_empty() {
        let mut chunks = VecDeque::new();
        reader.read_on(&mut unread, &mut chunks).unwrap();
        read.extend(chunks.iter().map(|chunk| (offsets(&chunk.rows), decided(chunk))));
    }
    let expected = [
        (vec![0, 1], vec![(0, 1, Accept)]),
        (vec![4], vec![(2, 3, Gap), (4, 4, Accept)]),
        (vec![7], vec![(6, 6, Gap), (7, 7, Accept)]),
        (vec![8, 9], vec![(8, 9, Accept)]),
    ];
    assert_eq!(read, expected);
}

#[test]
fn records_of_a_batch_that_unfolds_beyond_its_bound_are_too_large_each_and_the_others_are_read() {
    use Decision::{Accept, Reject};
    for compression in Compression::ALL.into_iter().filter(|codec| *codec != Compression::None) {
        let mut builder = BatchBuilder::new();
        for _ in 0..3 {
            builder.append(7, None, Some(&vec![b'x'; 50_000]), &[]).unwrap();
        }
        let meta = BatchMeta { base_offset: 10, compression, ..BatchMeta::default() };
        let bomb = builder.build(&meta).unwrap();
        // The first of its records is with somebody else, the last is near its limit, and what comes after it is ours.
        let records = polled(&[bomb, batch(13, &["13"])], &[(11, 11, 1), (12, 12, 4), (13, 13, 1)]);
        let mut unread = Unread::default();
        unread.add(records, DeliveryLimit::new(5, 2, BadRecords::DeadLetter));
        let mut reader = reader(100).with_decompressed_bytes_max(MIB, 100_000);
        let mut chunks = VecDeque::new();
        while !unread.is_empty() {
            reader.read_on(&mut unread, &mut chunks).unwrap();
        }
        let read: Vec<_> = chunks.iter().map(|chunk| (chunk.treatment, decided(chunk))).collect();
        let expected = [
            (Treatment::GiveUp, vec![(12, 12, Reject)]),
            (Treatment::Usual, vec![(11, 11, Reject), (13, 13, Accept)]),
        ];
        assert_eq!(read, expected, "{compression}");
        let (given_up, usual) = (chunks[0].rejected.clone().unwrap(), chunks[1].rejected.clone().unwrap());
        assert_eq!(coordinates::reject_kinds(&given_up).unwrap(), [RejectKind::DeliveryLimit]);
        assert_eq!(coordinates::reject_kinds(&usual).unwrap(), [RejectKind::TooLarge]);
        let errors = coordinates::errors(&usual).unwrap();
        for part in ["t/3", "offsets 10 to 12", "more than 100000 bytes"] {
            assert!(errors.value(0).contains(part), "{}", errors.value(0));
        }
        assert_eq!(offsets(&chunks[1].rows), [13]);
    }
}

#[test]
fn a_batch_of_very_many_records_is_read_in_parts() {
    const COUNT: i64 = 70_000;
    for (batch_bytes_max, compression) in
        [(DECOMPRESSED_BYTES_MAX, Compression::None), (1_000, Compression::Lz4)]
    {
        let mut builder = BatchBuilder::new();
        for _ in 0..COUNT {
            builder.append(7, None, Some(b"1"), &[]).unwrap();
        }
        let bytes = builder.build(&BatchMeta { compression, ..BatchMeta::default() }).unwrap();
        let mut unread = Unread::default();
        let limit = DeliveryLimit::new(5, 2, BadRecords::DeadLetter);
        unread.add(polled(&[bytes], &[(0, COUNT - 1, 1)]), limit);
        let mut reader = raw_reader().with_decompressed_bytes_max(8 * MIB, batch_bytes_max);
        let mut counts = Vec::new();
        while !unread.is_empty() {
            let mut chunks = VecDeque::new();
            reader.read_on(&mut unread, &mut chunks).unwrap();
            counts.push(chunks.iter().map(|chunk| chunk.record_count).sum::<u64>());
        }
        assert_eq!(counts, [AHEAD_RECORDS_MAX, COUNT as u64 - AHEAD_RECORDS_MAX], "{batch_bytes_max}");
    }
}

/// A reader of values that name their schema, of one `long`.
fn avro_reader() -> (Reader, WriterSchema) {
    let schema = r#"{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}"#;
    let format = AvroFormat { schema: schema.to_owned(), framing: AvroFraming::Registry };
    let rows = RowsBuilder::new(&Format::Avro(format), TopicNames::new([("t", TopicId::default())]));
    let limit = DeliveryLimit::new(5, 2, BadRecords::DeadLetter);
    let reader = Reader::new(rows, 100, limit, plan(BadRecords::DeadLetter));
    (reader, WriterSchema::Known(Arc::new(AvroSchema::parse(schema).unwrap())))
}

#[test]
fn reading_stops_in_front_of_a_record_whose_schema_is_not_known_and_goes_on_with_it() {
    use Decision::{Accept, Gap, Reject};
    let value = |id: u8, n: u8| String::from_utf8(vec![0, 0, 0, 0, id, 2 * n]).unwrap();
    // Offset 13 is a hole, 16 is with somebody else, 17 is no longer worth a question.
    let first = batch(10, &[&value(1, 0), &value(1, 1), &value(2, 2)]);
    let second = batch(14, &[&value(2, 3), &value(1, 4), &value(3, 5), &value(3, 6)]);
    let records = polled(&[first, second], &[(10, 15, 1), (17, 17, 5)]);
    let (mut reader, schema) = avro_reader();
    let mut unread = Unread::default();
    unread.add(records, reader.delivery_limit());
    let mut chunks = VecDeque::new();
    let mut wanted = Vec::new();
    while !unread.is_empty() {
        reader.read_on(&mut unread, &mut chunks).unwrap();
        let Some(id) = reader.wanted_schema() else { continue };
        // Asked again without an answer, it stops at the same place and does nothing twice.
        let count = chunks.len();
        reader.read_on(&mut unread, &mut chunks).unwrap();
        assert_eq!((reader.wanted_schema(), chunks.len()), (Some(id), count));
        wanted.push(id.0);
        let missing = WriterSchema::Missing("nobody has it".to_owned());
        reader.learn_schema(id, if id.0 == 2 { &missing } else { &schema });
    }
    assert_eq!(wanted, [1, 2]);
    let read: Vec<_> = chunks.iter().map(|chunk| (decided(chunk), offsets(&chunk.rows))).collect();
    let expected = [
        (vec![(17, 17, Reject)], vec![]),
        (vec![(10, 11, Accept)], vec![10, 11]),
        (vec![(12, 12, Reject), (13, 13, Gap), (14, 14, Reject), (15, 15, Accept)], vec![15]),
    ];
    assert_eq!(read, expected);
    // The next poll asks again for what was missing, and not for the others.
    reader.forget_missing_schemas();
    for (id, expected) in [(1, None), (2, Some(SchemaId(2)))] {
        unread.add(polled(&[batch(30, &[&value(id, 0)])], &[(30, 30, 1)]), reader.delivery_limit());
        reader.read_on(&mut unread, &mut chunks).unwrap();
        assert_eq!(reader.wanted_schema(), expected);
    }
}
