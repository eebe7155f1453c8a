//! What is kept of what was handed on.

use bytes::Bytes;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_core::decision::Decision;

use super::*;
use crate::formats::Format;
use crate::metadata_columns::{RecordBytes, RecordCoordinates, TopicNames};
use crate::source::RowsBuilder;

fn partition() -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(0) }
}

fn chunk(first: i64, last: i64) -> Chunk {
    let mut rows = RowsBuilder::new(&Format::Raw, TopicNames::new([("words", TopicId::default())]));
    let block = Bytes::from_static(b"word");
    rows.add_block(&block);
    for offset in first..=last {
        let coordinates = RecordCoordinates {
            partition: PartitionIndex(0),
            offset: Offset(offset),
            timestamp_ms: 0,
            delivery_count: 1,
        };
        let bytes = RecordBytes { value: Some(&block), ..RecordBytes::default() };
        // Every fifth record is a bad one.
        if offset % 5 == 0 {
            let error = (sharestream_core::coordinates::RejectKind::Decode, "bad".to_owned());
            rows.push_rejected(0, &coordinates, &bytes, error);
        } else {
            rows.push(0, &coordinates, &bytes).unwrap();
        }
    }
    let finished = rows.finish().unwrap();
    let range = DecidedRange { first: Offset(first), last: Offset(last), decision: Decision::Accept };
    let record_count = (last - first + 1) as u64;
    Chunk {
        rows: finished.rows,
        rejected: finished.rejected,
        decided: vec![(partition(), range)],
        record_count,
        byte_count: record_count * 4,
        ..Chunk::default()
    }
}

fn ranges(of: &[(i64, i64)]) -> Ranges {
    let mut ranges = Ranges::default();
    for (first, last) in of {
        ranges.add(partition(), Offset(*first), Offset(*last));
    }
    ranges
}

fn offsets(chunks: &[Chunk]) -> Vec<i64> {
    let mut offsets = Vec::new();
    for chunk in chunks {
        for (batch, before) in [(&chunk.rows, 1), (&chunk.rejected, 0)] {
            if let Some(batch) = batch {
                let coordinates = Coordinates::behind(batch, before).unwrap();
                offsets.extend(coordinates.offsets.values().iter().copied());
            }
        }
    }
    offsets.sort_unstable();
    offsets
}

#[test]
fn a_commit_drops_what_it_decided_and_no_more() {
    let mut handed = Handed::default();
    let none = Ranges::default();
    handed.hand_on(&chunk(0, 9));
    handed.barrier(CheckpointId(4));
    handed.hand_on(&chunk(10, 19));
    handed.hand_on(&chunk(20, 29));
    handed.barrier(CheckpointId(5));
    handed.hand_on(&chunk(30, 39));
    assert_eq!(handed.record_count(), 40);
    assert!(!handed.holds_sealed(CheckpointId(3)) && handed.holds_sealed(CheckpointId(4)));
    handed.settled(CheckpointId(4), &none).unwrap();
    assert_eq!(handed.record_count(), 30);
    assert!(!handed.holds_sealed(CheckpointId(4)));
    handed.settled(CheckpointId(5), &none).unwrap();
    assert_eq!(handed.record_count(), 10, "two epochs are kept at most");
    assert_eq!(offsets(&handed.take()), (30..40).collect::<Vec<_>>());
    assert_eq!(handed.record_count(), 0);
}

#[test]
fn what_a_commit_left_to_a_later_one_is_kept_alone() {
    let mut handed = Handed::default();
    handed.hand_on(&chunk(0, 9));
    handed.barrier(CheckpointId(1));
    handed.hand_on(&chunk(10, 19));
    handed.settled(CheckpointId(1), &ranges(&[(3, 3), (5, 6)])).unwrap();
    assert_eq!(handed.record_count(), 13);
    handed.barrier(CheckpointId(2));
    handed.settled(CheckpointId(2), &ranges(&[(6, 6), (10, 19)])).unwrap();
    let chunks = handed.take();
    assert_eq!(offsets(&chunks), [vec![6], (10..20).collect()].concat());
    assert_eq!((chunks[0].record_count, chunks[0].byte_count), (1, 4));
    assert_eq!(chunks[0].decided.len(), 1);
    assert_eq!((chunks[1].record_count, chunks[1].byte_count), (10, 40), "a whole chunk is not copied");
}
