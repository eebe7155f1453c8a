//! Rules of the shard by example, and: replaying its records gives its state, whatever was decided.

use std::sync::Arc;

use proptest::prelude::*;
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, TopicId};

use super::*;
use crate::share::record_state::{Intent, Staged};

fn key(partition: i32) -> ShareKey {
    ShareKey { group: Arc::from("g"), topic_id: TopicId::default(), partition: PartitionIndex(partition) }
}

fn batch(first: i64, last: i64, state: DurableState) -> StateBatch {
    StateBatch { range: OffsetRange { first: Offset(first), last: Offset(last) }, state, delivery_count: 1 }
}

fn pending(epoch: i16, intent: Intent) -> DurableState {
    DurableState::TxnPending(Staged {
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(epoch),
        intent,
    })
}

fn write(batches: Vec<StateBatch>) -> Write {
    Write { state_epoch: StateEpoch(0), leader_epoch: LeaderEpoch(0), start_offset: None, batches }
}

fn marker(epoch: i16, outcome: TxnOutcome) -> Marker {
    Marker { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(epoch), outcome }
}

fn apply(shard: &mut Shard, records: Vec<Record>) -> Vec<Record> {
    for record in records.clone() {
        // What is replayed went through the codec, as at recovery.
        let (key, value) = record.encode();
        shard.replay(Record::decode(&key, value.as_deref()).unwrap());
        if let Record::Update { key, start_offset, complete_count, .. } = record {
            let after = shard.read(&key).unwrap();
            assert_eq!((start_offset, complete_count), (after.start_offset, after.complete_count()));
        }
    }
    records
}

fn started() -> Shard {
    let mut shard = Shard::default();
    let records = shard.decide_initialize(&key(0), StateEpoch(0), Some(Offset(0))).unwrap();
    apply(&mut shard, records);
    shard
}

#[test]
fn an_update_says_the_start_offset_and_the_ends_behind_it_that_it_leads_to() {
    let mut shard = started();
    for (changed, start, complete) in [
        (batch(3, 4, DurableState::Acknowledged), 0, 2),
        (batch(6, 6, DurableState::Archived), 0, 3),
        (batch(8, 8, DurableState::Archiving), 0, 3),
        (batch(0, 2, DurableState::Acknowledged), 5, 1),
        (batch(5, 5, DurableState::Available), 5, 1),
        (batch(5, 5, DurableState::Acknowledged), 7, 0),
    ] {
        let records = shard.decide_write(&key(0), write(vec![changed])).unwrap();
        let Record::Update { start_offset, complete_count, .. } = &records[0] else { unreachable!() };
        assert_eq!((*start_offset, *complete_count), (Some(Offset(start)), Some(complete)), "{changed:?}");
        apply(&mut shard, records);
    }
}

#[test]
fn a_late_write_does_not_open_again_what_is_done() {
    let mut shard = started();
    let done = vec![batch(0, 4, DurableState::Acknowledged), batch(8, 9, DurableState::Archived)];
    let records = shard.decide_write(&key(0), write(done)).unwrap();
    apply(&mut shard, records);
    for late in [
        batch(0, 4, DurableState::Available),
        batch(3, 6, pending(3, Intent::Accept)),
        batch(7, 8, DurableState::Available),
    ] {
        let refused = shard.decide_write(&key(0), write(vec![late]));
        assert_eq!(refused, Err(ErrorCode::InvalidRecordState), "{late:?}");
    }
    assert!(shard.decide_write(&key(0), write(vec![batch(5, 7, DurableState::Available)])).is_ok());
    assert!(
        shard.decide_write(&key(0), write(vec![batch(8, 9, DurableState::Archived)])).is_ok(),
        "repeated"
    );
}

#[test]
fn commit_finalises_by_intent_and_abort_makes_available() {
    for (outcome, expected) in [
        (TxnOutcome::Commit, (Some(Offset(10)), vec![])),
        (TxnOutcome::Abort, (Some(Offset(0)), vec![batch(0, 9, DurableState::Available)])),
    ] {
        let mut shard = started();
        let staged = vec![batch(0, 4, pending(3, Intent::Accept)), batch(5, 9, pending(3, Intent::Reject))];
        let records = shard.decide_write(&key(0), write(staged)).unwrap();
        apply(&mut shard, records);
        assert_eq!(shard.awaiting(&marker(4, outcome)), [(key(0), StateEpoch(0))]);
        assert_eq!(shard.awaiting(&marker(3, outcome)), []);
        let records = shard.decide_complete(marker(4, outcome), 1);
        apply(&mut shard, records);
        let share = shard.read(&key(0)).unwrap();
        assert_eq!((share.start_offset, share.batches), expected);
        assert_eq!(shard.decide_complete(marker(4, outcome), 1), [], "a repeat needs no record");
    }
}

#[test]
fn a_stage_below_a_remembered_marker_is_refused_even_without_anything_pending() {
    let mut shard = started();
    let records = shard.decide_complete(marker(4, TxnOutcome::Abort), 1);
    apply(&mut shard, records);
    assert_eq!(shard.marker_epoch(ProducerId(7)), Some(ProducerEpoch(4)));
    let late = write(vec![batch(0, 9, pending(3, Intent::Accept))]);
    assert_eq!(shard.decide_write(&key(0), late), Err(ErrorCode::InvalidProducerEpoch));
    assert!(shard.decide_write(&key(0), write(vec![batch(0, 9, pending(4, Intent::Accept))])).is_ok());
}

#[test]
fn pending_runs_are_moved_by_their_marker_only() {
    let mut shard = started();
    let stage = write(vec![batch(0, 9, pending(3, Intent::Accept))]);
    let records = shard.decide_write(&key(0), stage.clone()).unwrap();
    apply(&mut shard, records);
    for state in [DurableState::Available, DurableState::Acknowledged, pending(3, Intent::Reject)] {
        let refused = shard.decide_write(&key(0), write(vec![batch(9, 9, state)]));
        assert_eq!(refused, Err(ErrorCode::InvalidRecordState));
    }
    assert!(shard.decide_write(&key(0), stage).is_ok(), "the same stage again");
}

#[test]
fn a_share_partition_with_pending_runs_cannot_be_reset_or_removed() {
    let mut shard = started();
    let records = shard.decide_write(&key(0), write(vec![batch(0, 9, pending(3, Intent::Accept))])).unwrap();
    apply(&mut shard, records);
    let reset = shard.decide_initialize(&key(0), StateEpoch(1), Some(Offset(0)));
    assert_eq!(reset, Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(shard.decide_remove(&key(0)), Err(ErrorCode::ConcurrentTransactions));
}

#[test]
fn older_leaders_and_older_states_are_fenced() {
    let mut shard = started();
    let records = shard.decide_read(&key(0), LeaderEpoch(2)).unwrap();
    apply(&mut shard, records);
    assert_eq!(shard.decide_write(&key(0), write(vec![])), Err(ErrorCode::FencedLeaderEpoch));
    assert_eq!(shard.decide_read(&key(0), LeaderEpoch(1)), Err(ErrorCode::FencedLeaderEpoch));
    let records = shard.decide_initialize(&key(0), StateEpoch(1), Some(Offset(3))).unwrap();
    apply(&mut shard, records);
    let old = Write { leader_epoch: LeaderEpoch(2), ..write(vec![]) };
    assert_eq!(shard.decide_write(&key(0), old), Err(ErrorCode::FencedStateEpoch));
    assert_eq!(shard.decide_initialize(&key(0), StateEpoch(0), None), Err(ErrorCode::FencedStateEpoch));
}

#[derive(Clone, Debug)]
enum Op {
    Write { partition: i32, first: i64, count: i64, state: DurableState },
    Complete(Marker),
    Remove(i32),
    Snapshot,
}

fn op() -> impl Strategy<Value = Op> {
    let state = prop_oneof![
        Just(DurableState::Available),
        Just(DurableState::Acknowledged),
        Just(DurableState::Archived),
        (0..4i16).prop_map(|epoch| pending(epoch, Intent::Accept)),
        (0..4i16).prop_map(|epoch| pending(epoch, Intent::Reject)),
    ];
    prop_oneof![
        6 => (0..2i32, 0..30i64, 1..8i64, state)
            .prop_map(|(partition, first, count, state)| Op::Write { partition, first, count, state }),
        2 => (1..6i16, any::<bool>()).prop_map(|(epoch, commit)| {
            Op::Complete(marker(epoch, if commit { TxnOutcome::Commit } else { TxnOutcome::Abort }))
        }),
        1 => (0..2i32).prop_map(Op::Remove),
        1 => Just(Op::Snapshot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn replaying_the_records_gives_the_state(ops in prop::collection::vec(op(), 1..60)) {
        let mut live = started();
        let records = live.decide_initialize(&key(1), StateEpoch(0), Some(Offset(5))).unwrap();
        apply(&mut live, records);
        let mut log = live.snapshot(1, i64::MAX);
        for op in ops {
            let decided = match op {
                Op::Write { partition, first, count, state } => {
                    live.decide_write(&key(partition), write(vec![batch(first, first + count - 1, state)]))
                }
                Op::Complete(marker) => Ok(live.decide_complete(marker, 1)),
                Op::Remove(partition) => live.decide_remove(&key(partition)),
                Op::Snapshot => {
                    log = live.snapshot(1, i64::MAX);
                    Ok(Vec::new())
                }
            };
            if let Ok(records) = decided {
                log.extend(apply(&mut live, records));
            }
        }
        let mut recovered = Shard::default();
        apply(&mut recovered, log);
        for partition in 0..2 {
            let share = live.read(&key(partition));
            prop_assert_eq!(recovered.read(&key(partition)), share.clone());
            for pair in share.iter().flat_map(|share| share.batches.windows(2)) {
                prop_assert!(pair[0].range.last < pair[1].range.first);
            }
        }
        prop_assert_eq!(recovered.marker_epoch(ProducerId(7)), live.marker_epoch(ProducerId(7)));
    }
}

#[test]
fn a_marker_is_remembered_for_its_time_and_forgotten_at_the_next_snapshot() {
    let remembered = |shard: &Shard| shard.marker_epoch(ProducerId(7)).is_some();
    let mut shard = Shard::default();
    for record in shard.decide_complete(marker(4, TxnOutcome::Commit), 1_000) {
        shard.replay(record);
    }
    let log = shard.snapshot(1_500, 500);
    assert!(remembered(&shard), "its time is not over");
    // Snapshots and new leaders do not make it younger.
    let mut next = Shard::default();
    log.into_iter().for_each(|record| next.replay(record));
    assert!(remembered(&next));
    assert_eq!(next.snapshot(1_501, 500), []);
    assert!(!remembered(&next) && next.marker_count() == 0);
    // One of an older build has no time: it counts from the first snapshot on.
    let old = Record::Ended { marker: marker(4, TxnOutcome::Abort), ended_ms: None };
    let (key, value) = old.encode();
    assert_eq!(Record::decode(&key, value.as_deref()), Ok(old.clone()));
    next.replay(old);
    assert_eq!(next.snapshot(9_000, 500).len(), 1);
    assert_eq!(next.snapshot(9_501, 500), []);
}
