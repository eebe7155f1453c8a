//! Batches that the Java implementation (kafka-clients 4.4.0, `MemoryRecordsBuilder`) has written, all codecs.
//!
//! `java_batches.bin` holds a batch of 20 records for none, gzip, snappy, lz4 and zstd in this order, then a commit
//! and an abort marker; producer 4000, epoch 7, leader epoch 5, coordinator epoch 9, sequence equal to the offset.

use bytes::Bytes;
use sharestream_wire::records::control::{self, ControlMarker, MarkerMeta};
use sharestream_wire::records::{BatchBuilder, BatchMeta, Compression, RawBatch, split};

const JAVA_BATCHES: &[u8] = include_bytes!("java_batches.bin");
const TIMESTAMP_MS: i64 = 1_700_000_000_000;
const HEADERS: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"x")), (b"n", None)];

fn java_batches() -> Vec<RawBatch> {
    split(Bytes::from_static(JAVA_BATCHES)).map(Result::unwrap).collect()
}

fn key(index: i64) -> Option<String> {
    (index % 3 != 0).then(|| format!("key{}", index % 3))
}

fn value(compression: Compression, index: i64) -> Option<String> {
    (index % 7 != 6).then(|| format!("{compression} value {index}"))
}

fn headers(index: i64) -> &'static [(&'static [u8], Option<&'static [u8]>)] {
    if index % 2 == 0 { &[] } else { &HEADERS }
}

#[test]
fn batches_of_java_are_read() {
    for (compression, batch) in Compression::ALL.into_iter().zip(java_batches()) {
        batch.verify_crc().unwrap();
        let header = batch.header;
        assert_eq!(header.compression().unwrap(), compression);
        assert_eq!((header.producer_id, header.producer_epoch), (4000, 7));
        assert_eq!(i64::from(header.base_sequence), header.base_offset);
        assert!(header.is_transactional() && !header.is_control());
        let records = batch.records().unwrap();
        assert_eq!(records.len(), 20);
        for (index, record) in (0..).zip(&records) {
            let record = record.unwrap();
            assert_eq!(record.offset, header.base_offset + index);
            assert_eq!(record.timestamp, TIMESTAMP_MS + index);
            assert_eq!(record.key, key(index).as_deref().map(str::as_bytes), "{compression} {index}");
            assert_eq!(record.value, value(compression, index).as_deref().map(str::as_bytes));
            assert!(record.headers.iter().eq(headers(index).iter().copied()));
        }
    }
}

#[test]
fn uncompressed_batch_has_the_bytes_of_java() {
    let java = &java_batches()[0];
    let mut builder = BatchBuilder::new();
    for index in 0..20 {
        let (key, value) = (key(index), value(Compression::None, index));
        let (key, value) = (key.as_deref().map(str::as_bytes), value.as_deref().map(str::as_bytes));
        builder.append(TIMESTAMP_MS + index, key, value, headers(index)).unwrap();
    }
    let meta = BatchMeta {
        producer_id: 4000,
        producer_epoch: 7,
        base_sequence: 0,
        transactional: true,
        partition_leader_epoch: 5,
        ..BatchMeta::default()
    };
    assert_eq!(builder.build(&meta).unwrap(), java.bytes);
}

#[test]
fn markers_have_the_bytes_of_java() {
    for (marker, java) in [ControlMarker::Commit, ControlMarker::Abort].into_iter().zip(&java_batches()[5..])
    {
        assert_eq!(control::decode(java).unwrap(), (marker, 9));
        let meta = MarkerMeta {
            coordinator_epoch: 9,
            producer_id: 4000,
            producer_epoch: 7,
            timestamp_ms: TIMESTAMP_MS,
            base_offset: java.header.base_offset,
            leader_epoch: 5,
        };
        assert_eq!(control::encode(marker, &meta).unwrap(), java.bytes);
    }
}
