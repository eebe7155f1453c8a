//! Rules of the share partition by example, and a property test against a model with one cell for each offset.

mod model;

use sharestream_base::Clock;

use super::super::record_state::TxnOutcome;
use super::*;

const LIMITS: Limits = Limits {
    max_record_locks: 100,
    delivery_count_limit: 3,
    lock_duration: Duration::from_secs(30),
    dead_letters: false,
};
const PRODUCER: (ProducerId, ProducerEpoch) = (ProducerId(9), ProducerEpoch(4));

fn range(first: i64, last: i64) -> OffsetRange {
    OffsetRange { first: Offset(first), last: Offset(last) }
}

fn log(batches: &[(i64, i64)]) -> Vec<LogBatch> {
    batches.iter().map(|(first, last)| LogBatch { range: range(*first, *last), aborted: false }).collect()
}

fn ack(first: i64, last: i64, types: &[i8]) -> AckBatch<'_> {
    AckBatch { first: Offset(first), last: Offset(last), types }
}

fn marker(epoch: i16, outcome: TxnOutcome) -> Marker {
    Marker { producer_id: ProducerId(9), producer_epoch: ProducerEpoch(epoch), outcome }
}

fn acquired(
    partition: &mut SharePartition,
    member: &MemberId,
    batches: &[(i64, i64)],
    now: Instant,
) -> Vec<(i64, i64, u16)> {
    let acquisition = partition.acquire(member, &log(batches), 1_000, AcquireMode::BatchOptimized, now);
    assert_eq!(acquisition.write, None);
    acquisition.acquired.iter().map(|a| (a.range.first.0, a.range.last.0, a.delivery_count)).collect()
}

fn settle(partition: &mut SharePartition, write: Option<PendingWrite>) {
    partition.written(&write.expect("something has to be written"));
}

#[test]
fn the_window_bounds_the_span_but_keeps_the_last_batch_whole() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    assert_eq!(acquired(&mut partition, &alice, &[(0, 59), (60, 119), (120, 179)], now), [(0, 119, 1)]);
    assert_eq!(partition.next_fetch_offset(), None);
    // Accepting the tail does not help: the span starts at the start offset.
    let write = partition.acknowledge(&alice, &[ack(60, 119, &[1])], now).unwrap();
    settle(&mut partition, write);
    assert_eq!((partition.start_offset(), partition.next_fetch_offset()), (Offset(0), None));
    let write = partition.acknowledge(&alice, &[ack(0, 59, &[1])], now).unwrap();
    settle(&mut partition, write);
    assert_eq!((partition.start_offset(), partition.next_fetch_offset()), (Offset(120), Some(Offset(120))));
}

#[test]
fn record_limit_mode_never_passes_the_limits() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    let take = |partition: &mut SharePartition, max| {
        partition.acquire(&alice, &log(&[(0, 199)]), max, AcquireMode::RecordLimit, now).acquired
    };
    assert_eq!(take(&mut partition, 7), [AcquiredRange { range: range(0, 6), delivery_count: 1 }]);
    assert_eq!(take(&mut partition, 500), [AcquiredRange { range: range(7, 99), delivery_count: 1 }]);
}

#[test]
fn types_for_each_offset_become_runs_and_are_all_or_nothing() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    let bob = MemberId::new("bob");
    assert!(matches!(partition.acknowledge(&bob, &[ack(0, 9, &[1])], now), Err(AckError::RecordState(_))));
    for (first, last, types) in [(0, 2, &[1i8, 1][..]), (3, 2, &[1]), (0, 9, &[7]), (0, 10, &[1])] {
        let refused = partition.acknowledge(&alice, &[ack(first, last, types)], now);
        assert!(matches!(refused, Err(AckError::Request(_))), "{first}..={last} {types:?}");
    }
    let types = [1, 1, 2, 2, 3, 0, 1, 1, 1, 1];
    let write = partition.acknowledge(&alice, &[ack(0, 9, &types)], now).unwrap().unwrap();
    let written: Vec<_> = write.batches.iter().map(|b| (b.range, b.state)).collect();
    assert_eq!(
        written,
        [
            (range(0, 1), DurableState::Acknowledged),
            (range(2, 3), DurableState::Available),
            (range(4, 5), DurableState::Archived),
            (range(6, 9), DurableState::Acknowledged),
        ]
    );
    partition.written(&write);
    assert_eq!(partition.start_offset(), Offset(2));
    assert_eq!(acquired(&mut partition, &bob, &[(0, 9)], now), [(2, 3, 2)]);
}

#[test]
fn at_the_delivery_limit_giving_back_archives_but_an_abort_does_not() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    for delivery in 1..=3 {
        assert_eq!(acquired(&mut partition, &alice, &[(0, 9)], now), [(0, 9, delivery)]);
        let write = partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]).unwrap();
        settle(&mut partition, write);
        let before = partition.clone();
        assert!(
            !partition.resolve(marker(4, TxnOutcome::Commit)),
            "a marker of the staged epoch is an older one"
        );
        assert_eq!(partition.window().iter().count(), before.window().iter().count());
        partition.markers.clear();
        assert!(partition.resolve(marker(5, TxnOutcome::Abort)));
        partition.markers.clear();
    }
    assert_eq!(acquired(&mut partition, &alice, &[(0, 9)], now), [(0, 9, 4)]);
    let write = partition.close_session(&alice);
    settle(&mut partition, write);
    assert_eq!(partition.start_offset(), Offset(10));
}

#[test]
fn staging_stops_the_lock_and_a_failed_write_arms_it_again() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    let write = partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]).unwrap().unwrap();
    let expired = now + Duration::from_secs(31);
    assert_eq!(partition.expire_locks(expired), None);
    assert_eq!(partition.close_session(&MemberId::new("bob")), None);
    partition.write_failed(&write, expired);
    assert_eq!(partition.expire_locks(expired), None);
    let write = partition.expire_locks(expired + LIMITS.lock_duration);
    settle(&mut partition, write);
    assert_eq!(partition.next_fetch_offset(), Some(Offset(0)));
}

#[test]
fn what_nobody_holds_is_written_again_until_it_is_durable() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    let aborted = [LogBatch { range: range(0, 9), aborted: true }];
    let write = partition.acquire(&alice, &aborted, 100, AcquireMode::BatchOptimized, now).write.unwrap();
    partition.write_failed(&write, now);
    assert_eq!(partition.start_offset(), Offset(0), "in memory nothing is done before it is durable");
    let again = partition.unsent_writes();
    assert_eq!(again, [write]);
    assert_eq!(partition.unsent_writes(), []);
    partition.written(&again[0]);
    assert_eq!(partition.start_offset(), Offset(10));
}

#[test]
fn staging_again_is_a_success_without_a_write_also_after_a_leader_change() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    let first = partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]).unwrap().unwrap();
    // While the first write is on its way a repeat writes again: it must not answer before it is durable.
    let second = partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]).unwrap().unwrap();
    partition.write_failed(&first, now);
    partition.written(&second);
    assert_eq!(partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]), Ok(None));
    assert!(partition.stage(&alice, PRODUCER, &[ack(0, 9, &[3])]).is_err(), "another intent");

    let durable = DurableShare {
        state_epoch: sharestream_base::ids::StateEpoch(0),
        leader_epoch: sharestream_base::ids::LeaderEpoch(0),
        start_offset: Some(Offset(0)),
        batches: second.batches.clone(),
    };
    let mut moved = SharePartition::load(&durable, Offset(0), LIMITS);
    assert_eq!(acquired(&mut moved, &alice, &[(0, 9)], now), []);
    assert_eq!(moved.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]), Ok(None));
    assert!(moved.resolve(marker(5, TxnOutcome::Commit)));
    assert_eq!(moved.start_offset(), Offset(10));
    assert!(!moved.resolve(marker(5, TxnOutcome::Commit)), "a repeat changes nothing");
}

#[test]
fn a_stage_after_the_marker_of_its_epoch_is_refused() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    partition.resolve(marker(5, TxnOutcome::Abort));
    assert_eq!(partition.stage(&alice, PRODUCER, &[ack(0, 9, &[1])]), Err(AckError::ProducerEpoch));
    let newer = (ProducerId(9), ProducerEpoch(5));
    assert!(partition.stage(&alice, newer, &[ack(0, 9, &[1])]).unwrap().is_some());
}

#[test]
fn release_and_renew_cannot_be_staged() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    for kind in [2, 4, -1] {
        assert!(matches!(
            partition.stage(&alice, PRODUCER, &[ack(0, 9, &[kind])]),
            Err(AckError::Request(_))
        ));
    }
}

#[test]
fn aborted_data_is_archived_not_delivered() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    let batches =
        [LogBatch { range: range(0, 9), aborted: true }, LogBatch { range: range(10, 19), aborted: false }];
    let acquisition = partition.acquire(&alice, &batches, 100, AcquireMode::BatchOptimized, now);
    assert_eq!(acquisition.acquired, [AcquiredRange { range: range(10, 19), delivery_count: 1 }]);
    settle(&mut partition, acquisition.write);
    assert_eq!(partition.start_offset(), Offset(10));
}

#[test]
fn renewing_moves_the_deadline_and_writes_nothing() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    let later = now + Duration::from_secs(20);
    assert_eq!(partition.acknowledge(&alice, &[ack(0, 9, &[4])], later), Ok(None));
    assert_eq!(partition.expire_locks(now + Duration::from_secs(40)), None);
    assert!(partition.expire_locks(now + Duration::from_secs(51)).is_some());
}

#[test]
fn retention_moves_the_start_offset_over_records_in_flight() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    acquired(&mut partition, &alice, &[(0, 9)], now);
    assert!(partition.drop_below(Offset(5)));
    let write = partition.acknowledge(&alice, &[ack(0, 9, &[1])], now).unwrap();
    settle(&mut partition, write);
    assert_eq!(partition.start_offset(), Offset(10));
}

#[test]
fn what_is_enough_for_a_fetch_is_counted_in_available_offsets() {
    let now = Clock::system().now();
    let (mut partition, alice) = (SharePartition::new(Offset(0), LIMITS), MemberId::new("alice"));
    assert_eq!(partition.behind_available(Offset(0), 50), Offset(50), "nothing was acquired yet");
    acquired(&mut partition, &alice, &[(0, 9), (10, 19), (20, 29)], now);
    let write = partition.acknowledge(&alice, &[ack(5, 9, &[2]), ack(20, 24, &[2])], now).unwrap();
    settle(&mut partition, write);
    let enough: Vec<i64> =
        [1, 5, 6, 10, 11].iter().map(|count| partition.behind_available(Offset(5), *count).0).collect();
    assert_eq!(enough, [6, 10, 21, 25, 31], "held ones lie between");
    assert_eq!(partition.behind_available(Offset(5), i64::MAX), Offset(i64::MAX));
}
