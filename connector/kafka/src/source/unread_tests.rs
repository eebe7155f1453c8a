//! What is read first, and what is given back unread.

use std::sync::Arc;

use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

use super::*;
use crate::config::BadRecords;

fn limit() -> DeliveryLimit {
    DeliveryLimit::new(5, 2, BadRecords::DeadLetter)
}

/// First and last offset, and the delivery.
type Acquired = (i64, i64, i16);

fn polled(partitions: &[(i32, &[Acquired])]) -> ShareRecords {
    let partitions = partitions.iter().map(|(partition, acquired)| AcquiredPartition {
        topic: Arc::from("t"),
        topic_id: TopicId::default(),
        partition: PartitionIndex(*partition),
        batches: Vec::new(),
        acquired: acquired
            .iter()
            .map(|(first, last, delivery_count)| AcquiredRange {
                first: Offset(*first),
                last: Offset(*last),
                delivery_count: *delivery_count,
            })
            .collect(),
        lock_deadline: None,
    });
    ShareRecords { partitions: partitions.collect() }
}

fn order(unread: &mut Unread) -> Vec<(i32, Vec<(i64, i64)>)> {
    let parts = std::iter::from_fn(|| unread.pop_front());
    let ranges = |acquired: AcquiredPartition| {
        acquired.acquired.iter().map(|range| (range.first.0, range.last.0)).collect()
    };
    parts.map(|acquired| (acquired.partition.0, ranges(acquired))).collect()
}

#[test]
fn records_near_their_limit_are_read_first_wherever_they_lie() {
    let mut unread = Unread::default();
    unread.add(polled(&[(0, &[(0, 4, 1), (5, 5, 3), (6, 9, 2)]), (1, &[(0, 0, 3), (1, 1, 4)])]), limit());
    let expected = [(1, vec![(1, 1)]), (0, vec![(5, 5)]), (1, vec![(0, 0)]), (0, vec![(0, 4), (6, 9)])];
    assert_eq!(order(&mut unread), expected);
    unread.add(polled(&[(0, &[(0, 4, 1), (5, 5, 2)]), (1, &[(0, 0, 1)])]), limit());
    assert_eq!(order(&mut unread), [(0, vec![(0, 4), (5, 5)]), (1, vec![(0, 0)])]);
    assert!(unread.is_empty());
}

#[test]
fn all_but_what_is_kept_is_given_back_unread() {
    let mut unread = Unread::default();
    unread.add(polled(&[(0, &[(0, 4, 1), (5, 5, 3)]), (1, &[(7, 8, 1)])]), limit());
    let taken = unread.take_releasable(|range| range.delivery_count == 3);
    let taken: Vec<_> =
        taken.iter().map(|(source, range)| (source.partition.0, range.first.0, range.last.0)).collect();
    assert_eq!(taken, [(0, 0, 4), (1, 7, 8)]);
    assert_eq!(order(&mut unread), [(0, vec![(5, 5)])]);
}
