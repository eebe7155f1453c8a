use std::collections::BTreeSet;

use proptest::prelude::*;
use sharestream_wire::records::{BatchBuilder, BatchMeta};

use super::*;

fn dense(base_offset: i64, count: i64, control: bool) -> RawBatch {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.append(0, None, Some(b"v"), &[]).unwrap();
    }
    let meta = BatchMeta { base_offset, control, ..BatchMeta::default() };
    RawBatch::from_bytes(builder.build(&meta).unwrap()).unwrap()
}

fn partition(batches: Vec<RawBatch>, acquired: &[(i64, i64)]) -> AcquiredPartition {
    AcquiredPartition {
        topic: "t".into(),
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        batches,
        acquired: acquired
            .iter()
            .map(|(first, last)| AcquiredRange {
                first: Offset(*first),
                last: Offset(*last),
                delivery_count: 1,
            })
            .collect(),
        lock_deadline: None,
    }
}

fn gaps(partition: &AcquiredPartition) -> Vec<(i64, i64)> {
    partition.gaps().unwrap().iter().map(|gap| (gap.first.0, gap.last.0)).collect()
}

#[test]
fn a_marker_is_a_gap() {
    let partition = partition(vec![dense(0, 10, false), dense(10, 1, true), dense(11, 5, false)], &[(0, 15)]);
    assert_eq!(gaps(&partition), [(10, 10)]);
}

#[test]
fn what_no_batch_covers_is_a_gap() {
    let partition = partition(vec![dense(5, 2, false)], &[(0, 9), (12, 13)]);
    assert_eq!(gaps(&partition), [(0, 4), (7, 9), (12, 13)]);
}

#[test]
fn offsets_of_others_are_no_gaps() {
    let partition = partition(vec![dense(0, 10, false)], &[(2, 3), (8, 8)]);
    assert_eq!(gaps(&partition), []);
    assert_eq!(partition.delivery_count(Offset(3)), Some(1));
    assert_eq!(partition.delivery_count(Offset(4)), None);
    assert_eq!(partition.acquired_count(), 3);
}

proptest! {
    #[test]
    fn gaps_are_what_is_acquired_and_not_deliverable(
        kinds in proptest::collection::vec((0u8..3, 1i64..5), 1..12),
        owned in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let (mut batches, mut deliverable, mut next) = (Vec::new(), BTreeSet::new(), 0);
        for (kind, length) in kinds {
            match kind {
                0 => {
                    batches.push(dense(next, length, false));
                    deliverable.extend(next..next + length);
                }
                1 => batches.push(dense(next, length, true)),
                _hole => {}
            }
            next += length;
        }
        let ours: BTreeSet<i64> = (0..next).filter(|offset| owned[*offset as usize]).collect();
        let single: Vec<(i64, i64)> = ours.iter().map(|offset| (*offset, *offset)).collect();
        let partition = partition(batches, &single);
        let mut found = BTreeSet::new();
        for (first, last) in gaps(&partition) {
            found.extend((first..=last).filter(|offset| ours.contains(offset)));
        }
        let expected: BTreeSet<i64> = ours.difference(&deliverable).copied().collect();
        prop_assert_eq!(found, expected);
    }
}
