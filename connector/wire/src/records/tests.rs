//! Tests of record batches: round trips, faults, and bytes from nowhere.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sharestream_base::ErrorKind;

use super::*;

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedRecord {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

fn build(records: &[OwnedRecord], meta: &BatchMeta) -> Bytes {
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        builder.append(record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers).unwrap();
    }
    assert_eq!(builder.len(), records.len());
    builder.build(meta).unwrap()
}

fn read(batch: &RawBatch) -> Result<Vec<OwnedRecord>, crate::WireError> {
    batch
        .records()?
        .iter()
        .map(|record| {
            record.map(|record| OwnedRecord {
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
            })
        })
        .collect()
}

fn simple(count: i64) -> Vec<OwnedRecord> {
    (0..count)
        .map(|n| OwnedRecord {
            timestamp: 1_000 + n,
            key: (n % 3 != 0).then(|| n.to_string().into_bytes()),
            value: (n % 5 != 0).then(|| vec![b'v'; n as usize]),
            headers: (0..n % 3)
                .map(|h| (format!("h{h}").into_bytes(), (h == 0).then(|| vec![1, 2, 3])))
                .collect(),
        })
        .collect()
}

/// Changes bytes of a batch and makes its CRC right again, so that only the fault under test is seen.
fn patched(bytes: &Bytes, at: usize, patch: &[u8]) -> Bytes {
    let mut bytes = BytesMut::from(&bytes[..]);
    bytes[at..at + patch.len()].copy_from_slice(patch);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

fn records_strategy() -> impl Strategy<Value = Vec<OwnedRecord>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let headers = proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..4);
    let record = (any::<i32>(), proptest::option::of(bytes()), proptest::option::of(bytes()), headers);
    let record = record.prop_map(|(timestamp, key, value, headers)| OwnedRecord {
        timestamp: i64::from(timestamp) * 1_000,
        key,
        value,
        headers,
    });
    proptest::collection::vec(record, 1..30)
}

fn meta_strategy() -> impl Strategy<Value = BatchMeta> {
    let compression = proptest::sample::select(&Compression::ALL[..]);
    (any::<i64>(), any::<i16>(), any::<i32>(), any::<bool>(), 0..1i64 << 60, any::<i32>(), compression)
        .prop_map(
            |(
                producer_id,
                producer_epoch,
                base_sequence,
                transactional,
                base_offset,
                leader_epoch,
                compression,
            )| {
                BatchMeta {
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    transactional,
                    control: false,
                    compression,
                    base_offset,
                    partition_leader_epoch: leader_epoch,
                }
            },
        )
}

proptest! {
    #[test]
    fn batch_reads_what_it_writes(records in records_strategy(), meta in meta_strategy()) {
        let batch = RawBatch::from_bytes(build(&records, &meta)).unwrap();
        batch.verify_crc().unwrap();
        let header = batch.header;
        prop_assert_eq!(header.record_count as usize, records.len());
        prop_assert_eq!(header.base_offset, meta.base_offset);
        prop_assert_eq!(header.next_offset(), meta.base_offset + records.len() as i64);
        prop_assert_eq!(header.partition_leader_epoch, meta.partition_leader_epoch);
        prop_assert_eq!(
            (header.producer_id, header.producer_epoch, header.base_sequence),
            (meta.producer_id, meta.producer_epoch, meta.base_sequence)
        );
        prop_assert_eq!(header.is_transactional(), meta.transactional);
        prop_assert_eq!(header.compression().unwrap(), meta.compression);
        prop_assert_eq!(header.max_timestamp, records.iter().map(|record| record.timestamp).max().unwrap());
        prop_assert_eq!(read(&batch).unwrap(), records);
        for (index, record) in batch.records().unwrap().iter().enumerate() {
            prop_assert_eq!(record.unwrap().offset, meta.base_offset + index as i64);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for batch in split(Bytes::from(bytes)) {
            let Ok(batch) = batch else { break };
            let _ = batch.verify_crc();
            let _ = read(&batch);
            let _ = control::decode(&batch);
        }
    }

    #[test]
    fn damaged_batch_never_panics(
        records in records_strategy(),
        meta in meta_strategy(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut bytes = BytesMut::from(&build(&records, &meta)[..]);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        for batch in split(bytes.freeze()) {
            let Ok(batch) = batch else { break };
            // What the CRC covers cannot change unseen.
            prop_assert!(at < 21 || batch.verify_crc().is_err());
            let _ = batch.header.last_sequence();
            let _ = read(&batch);
        }
    }

    #[test]
    fn arbitrary_payload_behind_a_good_header_never_panics(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        count in 1..40i32,
        codec in 0..5i16,
    ) {
        let header = build(&simple(40), &BatchMeta::default());
        let mut bytes = BytesMut::from(&header[..61]);
        bytes.extend_from_slice(&payload);
        bytes[8..12].copy_from_slice(&(payload.len() as i32 + 49).to_be_bytes());
        bytes[21..23].copy_from_slice(&codec.to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        let _ = read(&RawBatch::from_bytes(bytes.freeze()).unwrap());
    }
}

#[test]
fn raw_headers_are_copied_as_they_are() {
    let batch = RawBatch::from_bytes(build(&simple(10), &BatchMeta::default())).unwrap();
    let mut builder = BatchBuilder::new();
    for record in batch.records().unwrap().iter() {
        let record = record.unwrap();
        builder.append_raw_headers(record.timestamp, record.key, record.value, record.headers).unwrap();
    }
    assert_eq!(builder.build(&BatchMeta::default()).unwrap(), batch.bytes);
}

#[test]
fn builder_is_reusable_and_refuses_an_empty_batch() {
    let mut builder = BatchBuilder::with_capacity(1024);
    assert!(builder.build(&BatchMeta::default()).is_err());
    assert_eq!(builder.size_bytes(), BATCH_HEADER_BYTES);
    for _ in 0..3 {
        builder.append(5, None, Some(b"x"), &[]).unwrap();
        let size_bytes = builder.size_bytes();
        let bytes = builder.build(&BatchMeta::default()).unwrap();
        assert_eq!(bytes.len(), size_bytes);
        assert!(builder.is_empty());
    }
    builder.append(5, None, Some(b"dropped"), &[]).unwrap();
    builder.clear();
    builder.append(9, None, None, &[]).unwrap();
    let batch = RawBatch::from_bytes(builder.build(&BatchMeta::default()).unwrap()).unwrap();
    assert_eq!((batch.header.record_count, batch.header.base_timestamp), (1, 9));
}

#[test]
fn blob_is_split_and_a_truncated_last_batch_ends_it() {
    let one = build(&simple(3), &BatchMeta::default());
    let two = build(&simple(5), &BatchMeta { base_offset: 3, ..BatchMeta::default() });
    let blob = [&one[..], &two[..]].concat();
    for cut in 0..=two.len() {
        let mut batches = split(Bytes::copy_from_slice(&blob[..blob.len() - cut]));
        let offsets: Vec<i64> = batches.by_ref().map(|batch| batch.unwrap().header.base_offset).collect();
        assert_eq!(offsets, if cut == 0 { vec![0, 3] } else { vec![0] }, "cut {cut}");
        assert_eq!(batches.rest().len(), if cut == 0 { 0 } else { two.len() - cut });
    }
}

#[test]
fn contradicting_headers_are_corrupt() {
    let good = build(&simple(3), &BatchMeta::default());
    let cases: [(&str, usize, &[u8]); 7] = [
        ("magic", 16, &[1]),
        ("length too small", 8, &48i32.to_be_bytes()),
        ("length negative", 8, &(-1i32).to_be_bytes()),
        ("offset negative", 0, &(-1i64).to_be_bytes()),
        ("offset overflows", 0, &i64::MAX.to_be_bytes()),
        ("last offset delta negative", 23, &(-1i32).to_be_bytes()),
        ("record count negative", 57, &(-1i32).to_be_bytes()),
    ];
    for (what, at, patch) in cases {
        let mut batches = split(patched(&good, at, patch));
        let error = batches.next().unwrap().expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}");
        assert!(batches.next().is_none(), "nothing follows an error");
    }
}

#[test]
fn record_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
    let good = build(&simple(3), &BatchMeta::default());
    let lying = patched(&good, 23, &(i32::MAX - 1).to_be_bytes());
    let lying = patched(&lying, 57, &i32::MAX.to_be_bytes());
    let batch = RawBatch::from_bytes(lying).unwrap();
    batch.verify_crc().unwrap();
    let error = batch.records().unwrap_err();
    assert!(error.to_string().contains("claims 2147483647 records"), "{error}");
}

#[test]
fn records_that_do_not_fill_or_overrun_the_batch_are_corrupt() {
    let good = build(&simple(3), &BatchMeta::default());
    for count in [2i32, 0] {
        let batch = RawBatch::from_bytes(patched(&good, 57, &count.to_be_bytes())).unwrap();
        assert_eq!(read(&batch).is_err(), count > 0, "{count} records of 3");
    }
    // The second record repeats the offset delta of the first.
    let mut repeated = good.to_vec();
    let second = 61 + 1 + usize::from(good[61] / 2);
    repeated[second + 3] = 0;
    let batch = RawBatch::from_bytes(Bytes::from(repeated)).unwrap();
    let results: Vec<bool> = batch.records().unwrap().iter().map(|record| record.is_ok()).collect();
    assert_eq!(results, [true, false]);
}

#[test]
fn log_append_time_is_the_timestamp_of_every_record() {
    let good = build(&simple(3), &BatchMeta::default());
    let stamped = patched(&good, 35, &77_777i64.to_be_bytes());
    let stamped = patched(&stamped, 21, &8i16.to_be_bytes());
    let batch = RawBatch::from_bytes(stamped).unwrap();
    for record in batch.records().unwrap().iter() {
        assert_eq!(record.unwrap().timestamp, 77_777);
    }
}

#[test]
fn place_is_rewritten_without_touching_the_crc_or_a_shared_buffer() {
    let bytes = build(&simple(3), &BatchMeta::default());
    let batch = RawBatch::from_bytes(bytes.clone()).unwrap();
    let moved = batch.clone().with_base_offset(500, 7);
    moved.verify_crc().unwrap();
    assert_eq!((moved.header.base_offset, moved.header.next_offset()), (500, 503));
    assert_eq!(RawBatch::from_bytes(moved.bytes.clone()).unwrap(), moved, "header and bytes agree");
    assert_eq!(batch.bytes, bytes, "the shared bytes are as before");
}

#[test]
fn sequence_wraps_to_zero_as_the_java_client_counts() {
    let meta = BatchMeta { base_sequence: i32::MAX, ..BatchMeta::default() };
    let batch = RawBatch::from_bytes(build(&simple(3), &meta)).unwrap();
    assert_eq!(batch.header.last_sequence(), 1);
    let batch = RawBatch::from_bytes(build(&simple(3), &BatchMeta::default())).unwrap();
    assert_eq!(batch.header.last_sequence(), -1);
}

#[test]
fn views_are_slices_of_the_payload() {
    let batch = RawBatch::from_bytes(build(&simple(6), &BatchMeta::default())).unwrap();
    let records = batch.records().unwrap();
    for record in &records {
        let record = record.unwrap();
        if let Some(value) = record.value {
            let start = records.position(value).unwrap();
            assert_eq!(&records.payload()[start..start + value.len()], value);
        }
    }
    assert_eq!(records.position(b"elsewhere"), None);
    assert_eq!(records.payload().as_ptr(), batch.bytes[61..].as_ptr(), "not compressed: not copied");
}

#[test]
fn last_header_of_a_key_wins() {
    let mut builder = BatchBuilder::new();
    builder.append(1, None, None, &[(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"2"))]).unwrap();
    let batch = RawBatch::from_bytes(builder.build(&BatchMeta::default()).unwrap()).unwrap();
    let records = batch.records().unwrap();
    let headers = records.iter().next().unwrap().unwrap().headers;
    assert_eq!(headers.last(b"a"), Some(Some(&b"2"[..])));
    assert_eq!(headers.last(b"b"), Some(None));
    assert_eq!(headers.last(b"c"), None);
    assert_eq!(headers.iter().count(), headers.len());
}

#[test]
fn marker_reads_what_it_writes() {
    for marker in [control::ControlMarker::Commit, control::ControlMarker::Abort] {
        let meta = control::MarkerMeta {
            coordinator_epoch: 9,
            producer_id: 4000,
            producer_epoch: 3,
            timestamp_ms: 1_700_000_000_000,
            base_offset: 88,
            leader_epoch: 2,
        };
        let batch = RawBatch::from_bytes(control::encode(marker, &meta).unwrap()).unwrap();
        batch.verify_crc().unwrap();
        assert!(batch.header.is_control() && batch.header.is_transactional());
        assert_eq!((batch.header.producer_id, batch.header.producer_epoch), (4000, 3));
        assert_eq!((batch.header.base_offset, batch.header.base_sequence), (88, -1));
        assert_eq!(control::decode(&batch).unwrap(), (marker, 9));
    }
}

#[test]
fn a_compressed_marker_is_refused() {
    let meta = BatchMeta { control: true, compression: Compression::Gzip, ..BatchMeta::default() };
    let mut builder = BatchBuilder::new();
    builder.append(0, Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 3]), &[]).unwrap();
    let batch = RawBatch::from_bytes(builder.build(&meta).unwrap()).unwrap();
    let error = control::decode(&batch).unwrap_err();
    assert!(error.to_string().contains("is compressed"), "{error}");
}

#[test]
fn data_batch_is_no_marker() {
    let batch = RawBatch::from_bytes(build(&simple(1), &BatchMeta::default())).unwrap();
    assert!(control::decode(&batch).is_err());
    let batch = RawBatch::from_bytes(build(&simple(2), &BatchMeta { control: true, ..BatchMeta::default() }))
        .unwrap();
    assert!(control::decode(&batch).is_err(), "a control record of another kind");
}

#[test]
fn a_batch_is_decompressed_no_further_than_to_its_bound() {
    for compression in Compression::ALL {
        let mut builder = BatchBuilder::new();
        builder.append(0, None, Some(&vec![7; 100_000]), &[]).unwrap();
        let bytes = builder.build(&BatchMeta { compression, ..BatchMeta::default() }).unwrap();
        let batch = RawBatch::from_bytes(bytes).unwrap();
        let whole = batch.payload().unwrap();
        assert_eq!(batch.payload_within(whole.len()).unwrap(), Some(whole.clone()), "{compression}");
        let is_held_already = compression == Compression::None;
        let within = batch.payload_within(whole.len() - 1).unwrap();
        assert_eq!(within, is_held_already.then_some(whole), "{compression}");
    }
}
