//! Which locks are renewed when, and which are never.

use sharestream_base::Clock;
use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_core::decision::{DecidedRange, Decision};

use super::*;

const LOCK: Duration = Duration::from_secs(30);

fn partition(index: i32) -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) }
}

fn range(first: i64, last: i64) -> OffsetRange {
    OffsetRange { first: Offset(first), last: Offset(last) }
}

fn ranges(of: &[(i32, i64, i64)]) -> Ranges {
    let mut ranges = Ranges::default();
    for (index, first, last) in of {
        ranges.add(partition(*index), Offset(*first), Offset(*last));
    }
    ranges
}

fn decisions(of: &[(i32, i64, i64)]) -> Decisions {
    let mut decisions = Decisions::new();
    for (index, first, last) in of {
        let decision = Decision::Accept;
        decisions
            .set(partition(*index), DecidedRange { first: Offset(*first), last: Offset(*last), decision });
    }
    decisions
}

/// What is renewed now: the epoch, and `(partition, first, last)`.
fn due(locks: &mut Locks, now: Instant) -> Vec<(Option<u64>, i32, i64, i64)> {
    let rounds = locks.rounds(now).unwrap();
    let mut found = Vec::new();
    for Round { sealed_in, ranges } in rounds {
        for (partition, ranges) in ranges {
            let sealed_in = sealed_in.map(|checkpoint| checkpoint.0);
            found.extend(ranges.iter().map(|r| (sealed_in, partition.partition.0, r.first.0, r.last.0)));
        }
    }
    found
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn what_commits_in_time_is_never_renewed() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    for round in 0..1_000u64 {
        let (first, now) = (round as i64 * 10, start + Duration::from_millis(round * 50));
        locks.acquired(partition(0), range(first, first + 9), now + LOCK);
        locks.sealed(CheckpointId(round), ranges(&[(0, first, first + 9)]));
        if round > 0 {
            locks.committed(CheckpointId(round - 1));
        }
        assert_eq!(locks.held_count(partition(0)), 10);
        if locks.due_at().is_some_and(|at| at <= now) {
            assert_eq!(due(&mut locks, now), []);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_when_a_third_of_its_time_is_left_and_then_anew() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    locks.acquired(partition(1), range(5, 5), start + LOCK + secs(5));
    assert_eq!(locks.due_at(), Some(start + secs(20)));
    assert_eq!(due(&mut locks, start + secs(10)), []);
    assert_eq!(due(&mut locks, start + secs(20)), [(None, 0, 0, 9)]);
    assert_eq!(locks.due_at(), Some(start + secs(20)), "until an answer came");
    locks.renewed(partition(0), range(0, 9), start + secs(20));
    assert_eq!(locks.due_at(), Some(start + secs(25)));
    // No verdict: once more in half of the time that is left.
    assert_eq!(due(&mut locks, start + secs(25)), [(None, 1, 5, 5)]);
    locks.not_renewed(partition(1), range(5, 5), start + secs(25));
    assert_eq!(locks.due_at(), Some(start + secs(30)));
    locks.gone(partition(1), range(5, 5));
    assert_eq!(due(&mut locks, start + secs(30)), [], "an early look finds nothing");
    assert_eq!(locks.due_at(), Some(start + secs(40)));
}

#[tokio::test(start_paused = true)]
async fn neighbours_are_one_range_and_part_of_one_may_go() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    for step in 0..10i64 {
        let at = start + Duration::from_millis(step.unsigned_abs() * 100);
        locks.acquired(partition(0), range(step * 10, step * 10 + 9), at + LOCK);
    }
    locks.acquired(partition(0), range(100, 109), start + secs(10) + LOCK);
    locks.gone(partition(0), range(30, 49));
    assert_eq!(due(&mut locks, start + secs(20)), [(None, 0, 0, 29), (None, 0, 50, 99)]);
    locks.renewed(partition(0), range(0, 29), start + secs(20));
    locks.renewed(partition(0), range(50, 99), start + secs(20));
    assert_eq!(due(&mut locks, start + secs(30)), [(None, 0, 100, 109)]);
    assert_eq!(locks.held_count(partition(0)), 90);
    assert!(locks.holds_any(partition(0), Offset(29), Offset(31)));
    assert!(!locks.holds_any(partition(0), Offset(30), Offset(49)));
}

#[tokio::test(start_paused = true)]
async fn a_round_has_a_bound_for_each_partition_and_the_rest_follows() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    for offset in 0..250i64 {
        locks.acquired(partition(0), range(offset * 2, offset * 2), start + LOCK);
    }
    let mut renewed = 0;
    for expected in [100, 100, 50] {
        let found = due(&mut locks, start + secs(20));
        assert_eq!(found.len(), expected);
        for (_, _, first, last) in found {
            locks.renewed(partition(0), range(first, last), start + secs(20));
            renewed += 1;
        }
        assert_eq!(locks.due_at() <= Some(start + secs(20)), renewed < 250);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_be_staged_is_renewed_apart_and_a_refusal_there_says_nothing() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 29), start + LOCK);
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    locks.sealed(CheckpointId(2), ranges(&[(0, 10, 19)]));
    let now = start + secs(20);
    assert_eq!(due(&mut locks, now), [(None, 0, 20, 29), (Some(1), 0, 0, 9), (Some(2), 0, 10, 19)]);
    locks.renewed(partition(0), range(20, 29), now);
    locks.unclear(partition(0), range(0, 9));
    locks.renewed(partition(0), range(10, 19), now);
    assert_eq!(due(&mut locks, start + secs(29)), [], "the commit says what the refusal means");
    locks.committed(CheckpointId(1));
    assert_eq!(locks.held_count(partition(0)), 20);
}

#[tokio::test(start_paused = true)]
async fn deferred_offsets_are_held_and_renewed_until_the_epoch_that_decides_them() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    assert!(locks.is_committing());
    // Offset 50 is of another subtask.
    locks.deferred(CheckpointId(1), &decisions(&[(0, 3, 4), (0, 50, 50), (1, 0, 9)]), start);
    assert!(locks.is_deferred(partition(0), Offset(0), Offset(3)));
    assert!(!locks.is_deferred(partition(0), Offset(5), Offset(99)));
    // Replaced: 4 came to its end before the epoch was cut.
    locks.deferred(CheckpointId(1), &decisions(&[(0, 3, 3)]), start);
    locks.committed(CheckpointId(1));
    assert_eq!(locks.held_count(partition(0)), 1);
    assert!(locks.is_deferred(partition(0), Offset(3), Offset(3)));
    assert!(!locks.is_committing());
    assert_eq!(due(&mut locks, start + secs(20)), [(None, 0, 3, 3)]);
    locks.renewed(partition(0), range(3, 3), start + secs(20));

    // Carried over the next epoch, too, and decided by the third.
    locks.acquired(partition(0), range(10, 19), start + secs(20) + LOCK);
    locks.sealed(CheckpointId(2), ranges(&[(0, 10, 19)]));
    locks.deferred(CheckpointId(2), &decisions(&[(0, 3, 3)]), start);
    locks.committed(CheckpointId(2));
    assert_eq!(locks.carried(), &ranges(&[(0, 3, 3)]));
    locks.sealed(CheckpointId(3), Ranges::default());
    locks.committed(CheckpointId(3));
    assert_eq!(locks.carried(), &Ranges::default());
    assert_eq!(locks.held_count(partition(0)), 0);
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_deferred_everything_commits_nothing_and_the_next_one_takes_it_over() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    locks.deferred(CheckpointId(1), &decisions(&[(0, 0, 9)]), start);
    assert!(!locks.is_committing(), "nothing of ours waits for it");
    locks.acquired(partition(0), range(10, 11), start + LOCK);
    locks.sealed(CheckpointId(2), ranges(&[(0, 10, 11)]));
    locks.deferred(CheckpointId(2), &decisions(&[(0, 8, 10)]), start);
    locks.committed(CheckpointId(2));
    assert_eq!(locks.carried(), &ranges(&[(0, 8, 10)]));
    assert_eq!(locks.held_count(partition(0)), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_said_nothing_is_asked_again_when_the_offset_is_deferred() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    locks.unclear(partition(0), range(0, 9));
    assert_eq!(locks.due_at(), None);
    let now = start + secs(21);
    locks.deferred(CheckpointId(1), &decisions(&[(0, 7, 7)]), now);
    assert_eq!(locks.due_at(), Some(now));
    assert_eq!(due(&mut locks, now), [(None, 0, 7, 7)]);
}

#[tokio::test(start_paused = true)]
async fn where_the_leader_cannot_renew_a_lock_is_lost_when_it_ends() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    locks.not_renewable(partition(0), range(0, 9));
    assert_eq!(locks.due_at(), Some(start + LOCK));
    assert_eq!(due(&mut locks, start + secs(29)), []);
    assert_eq!(locks.rounds(start + LOCK), Err((partition(0), range(0, 9))));
    // Sealed, it is for the commit to say.
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    assert_eq!(due(&mut locks, start + LOCK), []);
    assert_eq!(locks.due_at(), None, "nobody asks again and again while it commits");
    // Unless the commit leaves it: then nobody has staged it.
    locks.deferred(CheckpointId(1), &decisions(&[(0, 3, 3)]), start + LOCK);
    assert_eq!(due(&mut locks, start + LOCK), [(None, 0, 3, 3)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_staged_is_forgotten_and_the_rest_is_as_if_just_acquired() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 29), start + LOCK);
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    locks.deferred(CheckpointId(1), &decisions(&[(0, 3, 3)]), start);
    locks.sealed(CheckpointId(2), ranges(&[(0, 10, 19)]));
    assert_eq!(locks.forget(CheckpointId(1)), ranges(&[(0, 0, 2), (0, 4, 9)]));
    assert_eq!(locks.carried(), &ranges(&[(0, 3, 3)]));
    for (first, last, holds) in [
        (3, 3, true),
        (2, 3, false),
        (3, 4, false),
        (10, 29, true),
        (9, 29, false),
        (10, 30, false),
        (40, 41, false),
    ] {
        assert_eq!(locks.holds_all(partition(0), range(first, last)), holds, "{first} to {last}");
    }
    assert!(!locks.holds_all(partition(1), range(10, 10)));
    assert!(locks.go_back(start));
    assert!(!locks.is_committing() && locks.carried() == &Ranges::default());
    // No epoch has them any more: all are renewed alike.
    let now = start + secs(20);
    assert_eq!(due(&mut locks, now), [(None, 0, 3, 3), (None, 0, 10, 29)]);
    assert_eq!(locks.forget(CheckpointId(2)), Ranges::default());
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_back_under_a_lock_that_may_be_lost() {
    let start = Clock::system().now();
    let mut locks = Locks::new(LOCK, true);
    locks.acquired(partition(0), range(0, 9), start + LOCK);
    assert!(locks.go_back(start + LOCK - Duration::from_millis(1)));
    assert!(!locks.go_back(start + LOCK), "it has run out");
    locks.sealed(CheckpointId(1), ranges(&[(0, 0, 9)]));
    locks.unclear(partition(0), range(4, 4));
    assert!(!locks.go_back(start), "a renewal was refused");
}
