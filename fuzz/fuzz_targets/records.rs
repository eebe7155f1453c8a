//! Record batches from a fetch or a produce request: split, decompressed, each record and its headers read.
//!
//! The first byte says with which codec a batch is made of the input; 0 takes the input as batches.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use sharestream_fuzz::bounded;
use sharestream_fuzz::seeds::Seeds;
use sharestream_wire::records::{
    self, BATCH_HEADER_BYTES, BatchBuilder, BatchMeta, Compression, DECOMPRESSED_BYTES_MAX, control,
};

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let blob = match mode % 6 {
        0 => Bytes::copy_from_slice(rest),
        codec => batch_around(rest, codec - 1),
    };
    // What a batch decompresses to is bounded by itself. A vector that grows holds its old and its new bytes at once.
    bounded(blob.len(), 16, 3 * DECOMPRESSED_BYTES_MAX + 64 * 1024, || read(blob));
});

fn read(blob: Bytes) {
    let mut split = records::split(blob);
    for batch in &mut split {
        let Ok(batch) = batch else { return };
        let _ = batch.verify_crc();
        assert!(batch.header.next_offset() > batch.header.base_offset);
        let _ = batch.header.last_sequence();
        if batch.header.is_control() {
            let _ = control::decode(&batch);
        }
        let Ok(records) = batch.records() else { continue };
        assert!(records.payload().len() <= DECOMPRESSED_BYTES_MAX.max(batch.bytes.len()));
        let mut last = batch.header.base_offset - 1;
        for record in &records {
            let Ok(record) = record else { break };
            assert!(record.offset > last && record.offset <= batch.header.last_offset());
            last = record.offset;
            assert_eq!(record.headers.iter().count(), record.headers.len());
            for (key, _) in record.headers.iter() {
                assert!(records.position(key).is_some());
            }
            let _ = record.headers.last(b"k");
        }
        let placed = batch.with_base_offset(7, 1);
        assert_eq!(records::RawBatch::from_bytes(placed.bytes.clone()).as_ref().ok(), Some(&placed));
    }
}

/// A batch whose records section is `section`, compressed or not as its attributes say.
fn batch_around(section: &[u8], codec: u8) -> Bytes {
    let mut batch = BytesMut::zeroed(BATCH_HEADER_BYTES);
    let (counts, section) = section.split_at(section.len().min(2));
    let length = (BATCH_HEADER_BYTES - 12 + section.len()) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = 2;
    batch[22] = codec;
    batch[23..27].copy_from_slice(&[0, 0, 0xff, 0xff]);
    batch[59..59 + counts.len()].copy_from_slice(counts);
    batch.extend_from_slice(section);
    batch.freeze()
}

fn write_seeds() {
    let Some(mut seeds) = Seeds::asked_for() else { return };
    let mut builder = BatchBuilder::new();
    for count in [1usize, 7, 100] {
        for compression in Compression::ALL {
            builder.clear();
            for record in 0..count {
                let key = (record % 3 > 0).then_some(&b"key"[..]);
                let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(&b"value"[..])), (b"n", None)];
                builder
                    .append(record as i64, key, Some(&b"some value"[..]), &headers[..record % 3])
                    .expect("a small batch");
            }
            let meta = BatchMeta { compression, transactional: count == 7, ..BatchMeta::default() };
            let batch = builder.build(&meta).expect("a small batch");
            seeds.put(&[&[0], &batch]);
            let counts = (count as u16).to_be_bytes();
            seeds.put(&[&[compression.id() as u8 + 1], &counts, &batch[BATCH_HEADER_BYTES..]]);
        }
    }
    let meta = control::MarkerMeta {
        coordinator_epoch: 3,
        producer_id: 4,
        producer_epoch: 5,
        timestamp_ms: 6,
        base_offset: 7,
        leader_epoch: 8,
    };
    for marker in [control::ControlMarker::Commit, control::ControlMarker::Abort] {
        seeds.put(&[&[0], &control::encode(marker, &meta).expect("a marker")]);
    }
}
