//! Record batches against two other implementations: ours read theirs, theirs read ours, all codecs.

use bytes::{Bytes, BytesMut};
use kacrab_protocol::record::{Record as KacrabRecord, RecordBatch as KacrabBatch, RecordHeader};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as kp;
use proptest::prelude::*;
use sharestream_wire::records::{BatchBuilder, BatchMeta, Compression, RawBatch, control};

#[derive(Clone, Debug)]
struct Row {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    /// Keys are text and differ: the other implementations ask for that.
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
    let header_values = proptest::collection::vec(bytes(), 0..4);
    let row = (0..1000i64, bytes(), bytes(), header_values).prop_map(|(step, key, value, values)| {
        let headers = values.into_iter().enumerate().map(|(n, value)| (format!("h{n}"), value)).collect();
        Row { timestamp: step, key, value, headers }
    });
    proptest::collection::vec(row, 1..40).prop_map(|mut rows| {
        let mut now = 1_700_000_000_000;
        for row in &mut rows {
            now += row.timestamp;
            row.timestamp = now;
        }
        rows
    })
}

fn meta(compression: Compression) -> BatchMeta {
    BatchMeta {
        producer_id: 4000,
        producer_epoch: 7,
        base_sequence: 11,
        transactional: true,
        control: false,
        compression,
        base_offset: 100,
        partition_leader_epoch: 5,
    }
}

fn ours(rows: &[Row], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new();
    for row in rows {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            row.headers.iter().map(|(key, value)| (key.as_bytes(), value.as_deref())).collect();
        builder.append(row.timestamp, row.key.as_deref(), row.value.as_deref(), &headers).unwrap();
    }
    builder.build(&meta(compression)).unwrap()
}

fn kafka_protocol_records(rows: &[Row]) -> Vec<kp::Record> {
    let record = |(index, row): (usize, &Row)| kp::Record {
        transactional: true,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 5,
        producer_id: 4000,
        producer_epoch: 7,
        timestamp_type: kp::TimestampType::Creation,
        offset: 100 + index as i64,
        sequence: 11 + index as i32,
        timestamp: row.timestamp,
        key: row.key.clone().map(Bytes::from),
        value: row.value.clone().map(Bytes::from),
        headers: row
            .headers
            .iter()
            .map(|(key, value)| (StrBytes::from_string(key.clone()), value.clone().map(Bytes::from)))
            .collect(),
    };
    rows.iter().enumerate().map(record).collect()
}

fn kacrab_batch(rows: &[Row], compression: Compression) -> KacrabBatch {
    let first_timestamp = rows[0].timestamp;
    let record = |(index, row): (usize, &Row)| KacrabRecord {
        attributes: 0,
        timestamp_delta: row.timestamp - first_timestamp,
        offset_delta: index as i32,
        key: row.key.clone().map(Bytes::from),
        value: row.value.clone().map(Bytes::from),
        headers: row
            .headers
            .iter()
            .map(|(key, value)| RecordHeader {
                key: Bytes::from(key.clone()),
                value: value.clone().map(Bytes::from),
            })
            .collect(),
    };
    KacrabBatch {
        base_offset: 100,
        partition_leader_epoch: 5,
        magic: 2,
        attributes: compression.id() | 1 << 4,
        last_offset_delta: rows.len() as i32 - 1,
        first_timestamp,
        max_timestamp: rows[rows.len() - 1].timestamp,
        producer_id: 4000,
        producer_epoch: 7,
        base_sequence: 11,
        records: rows.iter().enumerate().map(record).collect(),
    }
}

/// What we read from a batch, as plain rows.
fn read(bytes: Bytes) -> Vec<Row> {
    let batch = RawBatch::from_bytes(bytes).unwrap();
    batch.verify_crc().unwrap();
    let records = batch.records().unwrap();
    records
        .iter()
        .map(|record| {
            let record = record.unwrap();
            Row {
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .iter()
                    .map(|(key, value)| (String::from_utf8(key.to_vec()).unwrap(), value.map(<[u8]>::to_vec)))
                    .collect(),
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn uncompressed_batch_has_the_bytes_of_others(rows in rows()) {
        let bytes = ours(&rows, Compression::None);
        let mut theirs = BytesMut::new();
        kacrab_batch(&rows, Compression::None).encode(&mut theirs).unwrap();
        prop_assert_eq!(&bytes, &theirs);
        let mut theirs = BytesMut::new();
        let options = kp::RecordEncodeOptions { version: 2, compression: kp::Compression::None };
        kp::RecordBatchEncoder::encode(&mut theirs, &kafka_protocol_records(&rows), &options).unwrap();
        prop_assert_eq!(&bytes, &theirs);
    }

    #[test]
    fn kafka_protocol_reads_our_batch(rows in rows()) {
        let mut bytes = ours(&rows, Compression::None);
        let decoded = kp::RecordBatchDecoder::decode(&mut bytes).unwrap();
        prop_assert_eq!(decoded.records, kafka_protocol_records(&rows));
    }

    #[test]
    fn compressed_batches_are_read_both_ways(
        rows in rows(),
        compression in proptest::sample::select(&Compression::ALL[..]),
    ) {
        let theirs = kacrab_batch(&rows, compression);
        let mut bytes = ours(&rows, compression);
        let decoded = KacrabBatch::decode(&mut bytes).unwrap();
        prop_assert_eq!(&decoded, &theirs);
        let mut bytes = BytesMut::new();
        theirs.encode(&mut bytes).unwrap();
        prop_assert_eq!(format!("{:?}", read(bytes.freeze())), format!("{rows:?}"));
    }
}

#[test]
fn kafka_protocol_reads_our_marker() {
    let meta = control::MarkerMeta {
        coordinator_epoch: 1,
        producer_id: 4000,
        producer_epoch: 7,
        timestamp_ms: 1_700_000_000_000,
        base_offset: 9,
        leader_epoch: 0,
    };
    let mut bytes = control::encode(control::ControlMarker::Commit, &meta).unwrap();
    let record = kp::RecordBatchDecoder::decode(&mut bytes).unwrap().records.remove(0);
    assert!(record.control && record.transactional);
    assert_eq!((record.offset, record.producer_id, record.producer_epoch), (9, 4000, 7));
    // Key: version 0, type 1 (commit). Value: version 0, coordinator epoch.
    assert_eq!(record.key.as_deref(), Some(&[0, 0, 0, 1][..]));
    assert_eq!(record.value.as_deref(), Some(&[0, 0, 0, 0, 0, 1][..]));
}
