//! One test for each rule. Replicas A, B, C have the numbers 0, 1, 2; records are offsets of partition 0.

use std::sync::Arc;

use sharestream_base::ids::{Offset, ProducerEpoch};
use sharestream_client::{AcquiredPartition, AcquiredRange};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision};

use super::log::{Claimer, GROUP, Log, decisions, floor_record, partition};
use crate::ledger::arbiter::{OwnClaim, Reason, Verdict, judge, must_arbitrate};
use crate::ledger::decided::{Dropped, Known, take_decided};
use crate::ledger::floor::{Finding, KeeperIs, Plan, StartOffsets, examine, floors_of, plan};
use crate::ledger::view::View;

const A: u8 = 0;
const B: u8 = 1;

/// A claims 0 to 4 first, B claims 3 to 7; what B's view says, after `marker` of A.
struct Pair {
    log: Log,
    first: Offset,
    own: OwnClaim,
}

impl Pair {
    fn new() -> Pair {
        let mut log = Log::default();
        let first = log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 4)]));
        let b = Claimer { deadline_ms: 200, ..Claimer::new(B, 0) };
        let records = decisions(&[(0, 3, 7)]);
        let own = b.own(log.claim(&b, &records), records);
        Pair { log, first, own }
    }

    fn verdict(&self, now_ms: i64) -> Verdict {
        judge(&self.log.view(), &self.own, now_ms, |_| false)
    }

    fn claimed_by_a(&self) -> Verdict {
        Verdict::Abort(Reason::Claimed { by: self.first, owner: "j/0".to_owned() })
    }
}

#[test]
fn rule_1_a_claim_is_not_judged_before_it_was_read() {
    let pair = Pair::new();
    let mut view = View::new(GROUP, Offset(0));
    assert_eq!(judge(&view, &pair.own, 0, |_| false), Verdict::ReadOn);
    pair.log.read(&mut view, 1);
    assert_eq!(judge(&view, &pair.own, 0, |_| false), Verdict::ReadOn);
}

#[test]
fn rules_12_and_f2_a_claim_is_judged_only_when_a_response_ended_at_its_own_high_watermark() {
    let mut pair = Pair::new();
    pair.log.marker(A, false);
    let mut view = View::new(GROUP, Offset(0));
    pair.log.read(&mut view, 2);
    assert_eq!(judge(&view, &pair.own, 0, |_| false), Verdict::ReadOn, "the marker is behind the response");
    pair.log.read(&mut view, 1);
    assert_eq!(judge(&view, &pair.own, 0, |_| false), Verdict::Commit);
}

#[test]
fn rule_2_an_earlier_open_claim_is_waited_for_until_its_deadline() {
    let mut pair = Pair::new();
    assert_eq!(pair.verdict(99), Verdict::Wait { on: pair.first, until_ms: 100 });
    // Neither a later claim nor one of other records is.
    let c = Claimer::new(2, 0);
    let position = pair.log.claim(&c, &decisions(&[(0, 8, 9), (1, 0, 9)]));
    let own = c.own(position, decisions(&[(0, 8, 9), (1, 0, 9)]));
    assert_eq!(judge(&pair.log.view(), &own, 0, |_| false), Verdict::Commit);
    assert_eq!(pair.verdict(99), Verdict::Wait { on: pair.first, until_ms: 100 });
    let a = Claimer::new(A, 0).own(pair.first, decisions(&[(0, 0, 4)]));
    assert_eq!(judge(&pair.log.view(), &a, 0, |_| false), Verdict::Commit, "A came first");
}

#[test]
fn rule_3_an_earlier_committed_claim_means_abort_and_an_aborted_one_nothing() {
    for committed in [true, false] {
        let mut pair = Pair::new();
        pair.log.marker(A, committed);
        let expected = if committed { pair.claimed_by_a() } else { Verdict::Commit };
        assert_eq!(pair.verdict(0), expected);
    }
}

#[test]
fn rules_4_and_13_after_its_deadline_the_owner_of_an_open_claim_is_ended_before_anything_else() {
    let pair = Pair::new();
    match pair.verdict(100) {
        Verdict::EndOther { on, transactional_id, producer_id, producer_epoch } => {
            assert_eq!((on, transactional_id.as_str()), (pair.first, "j.0.0"));
            assert_eq!((producer_id, producer_epoch), (Claimer::new(A, 0).producer(), ProducerEpoch(0)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rule_5_only_the_marker_says_how_an_ended_transaction_ended() {
    for committed in [true, false] {
        let mut pair = Pair::new();
        let ended = |pair: &Pair| judge(&pair.log.view(), &pair.own, 150, |on| on == pair.first);
        assert_eq!(ended(&pair), Verdict::Wait { on: pair.first, until_ms: 200 });
        pair.log.marker(A, committed);
        assert_eq!(ended(&pair), if committed { pair.claimed_by_a() } else { Verdict::Commit });
    }
    let pair = Pair::new();
    let late = judge(&pair.log.view(), &pair.own, 200, |on| on == pair.first);
    assert_eq!(late, Verdict::Abort(Reason::Waited { on: pair.first }), "a wait has an end");
}

#[test]
fn rule_6_earlier_claims_of_the_own_transactional_id_count() {
    let mut log = Log::default();
    let first = log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 4)]));
    log.marker(A, true);
    let again = Claimer::new(A, 1);
    let own = again.own(log.claim(&again, &decisions(&[(0, 4, 4)])), decisions(&[(0, 4, 4)]));
    let expected = Verdict::Abort(Reason::Claimed { by: first, owner: "j/0".to_owned() });
    assert_eq!(judge(&log.view(), &own, 0, |_| false), expected);
}

/// Markers carry a bumped epoch: a claim is settled by its producer and its place, and by no marker before it.
#[test]
fn a_marker_settles_the_claims_of_its_producer_that_lie_before_it() {
    let mut log = Log::default();
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 0)]));
    log.marker(A, true);
    let open = log.claim(&Claimer::new(A, 1), &decisions(&[(0, 1, 1)]));
    log.claim(&Claimer::new(B, 0), &decisions(&[(0, 2, 2)]));
    log.marker(B, false);
    let view = log.view();
    assert_eq!(view.committed(), &decisions(&[(0, 0, 0)]));
    assert_eq!(view.open_claims().map(|(at, _)| at).collect::<Vec<_>>(), [open]);
    assert_eq!(view.position_of(Claimer::new(A, 1).producer(), ProducerEpoch(1)), Some(open));
    assert_eq!(view.position_of(Claimer::new(A, 0).producer(), ProducerEpoch(0)), None);
}

/// An own claim that is no longer open has been ended by somebody else: EndTxn could only be refused.
#[test]
fn adr_0010_a_claim_that_somebody_has_ended_aborts_at_once() {
    let mut pair = Pair::new();
    pair.log.marker(A, false);
    pair.log.marker(B, false);
    assert_eq!(pair.verdict(0), Verdict::Abort(Reason::Ended));
}

fn starts(offsets: &[(i32, i64)]) -> StartOffsets {
    offsets.iter().map(|(index, start)| (partition(*index), Offset(*start))).collect()
}

fn keeper(now_ms: i64) -> KeeperIs<'static> {
    KeeperIs { group: GROUP, job: "j", instance: "0", now_ms }
}

fn planned(view: &View, offsets: &[(i32, i64)]) -> Plan {
    plan(view, keeper(0), &starts(offsets), |_| "t".to_owned())
}

fn floors(plan: &Plan) -> Vec<(i32, i64)> {
    plan.floors.iter().map(|floor| (floor.partition.0, floor.floor.0)).collect()
}

#[test]
fn rule_9a_a_floor_follows_the_start_offset_and_never_a_claim_behind_a_hole() {
    let mut log = Log::default();
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 4), (0, 6, 9)]));
    log.marker(A, true);
    assert_eq!(floors(&planned(&log.view(), &[(0, 5), (1, 0)])), [(0, 5), (1, 0)]);
    assert_eq!(floors(&planned(&log.view(), &[(0, 3)])), [(0, 3)], "not acknowledged yet");
    log.floor_at(0, 5);
    assert_eq!(floors(&planned(&log.view(), &[(0, 5)])), [], "nothing to raise");
}

#[test]
fn rule_9b_a_floor_is_not_raised_over_an_open_claim() {
    let mut log = Log::default();
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 3, 4)]));
    assert_eq!(floors(&planned(&log.view(), &[(0, 9)])), [(0, 3)]);
    log.marker(A, false);
    assert_eq!(floors(&planned(&log.view(), &[(0, 9)])), [(0, 9)]);
}

/// A has committed 0..=4 and, under the same id, 5..=9 and 10..=14.
fn three_commits() -> Log {
    let mut log = Log::default();
    for n in 0..3 {
        log.claim(&Claimer::new(A, n as i16), &decisions(&[(0, n * 5, n * 5 + 4)]));
        log.marker(A, true);
    }
    log
}

#[test]
fn rule_10a_a_claim_is_tombstoned_only_after_a_floor_that_covers_it_was_read_back() {
    let mut log = three_commits();
    let first = planned(&log.view(), &[(0, 10)]);
    assert_eq!((floors(&first), first.tombstones), (vec![(0, 10)], vec![]));
    log.floor_at(0, 10);
    let second = planned(&log.view(), &[(0, 10)]);
    assert_eq!(second.tombstones, ["j/0/0/0", "j/0/0/1"]);
}

#[test]
fn rule_10b_a_claim_that_the_floors_cover_in_part_stays() {
    let mut log = Log::default();
    for n in 0..2 {
        log.claim(&Claimer::new(A, n as i16), &decisions(&[(0, n * 5, n * 5 + 4), (1, n * 5, n * 5 + 4)]));
        log.marker(A, true);
    }
    log.floor_at(0, 5);
    assert_eq!(planned(&log.view(), &[]).tombstones, Vec::<String>::new());
    log.floor_at(1, 4);
    assert_eq!(planned(&log.view(), &[]).tombstones, Vec::<String>::new());
    log.floor_at(1, 5);
    assert_eq!(planned(&log.view(), &[]).tombstones, ["#floor/g/0/AAAAAAAAAAAAAAAAAAAAAA/1/4", "j/0/0/0"]);
}

#[test]
fn rule_10c_the_floor_is_consulted_like_a_committed_claim() {
    let mut log = Log::default();
    log.floor_at(0, 5);
    let verdict = |log: &mut Log, first| {
        let records = decisions(&[(0, first, 9)]);
        let own = Claimer::new(B, 0).own(log.claim(&Claimer::new(B, 0), &records), records);
        judge(&log.view(), &own, 0, |_| false)
    };
    assert_eq!(verdict(&mut log.clone(), 4), Verdict::Abort(Reason::BelowFloor(partition(0), Offset(5))));
    assert_eq!(verdict(&mut log, 5), Verdict::Commit);
}

#[test]
fn rule_11_a_key_that_comes_again_would_take_a_committed_claim_away() {
    // What would be: the second claim replaces the first for the cleaner.
    let mut log = Log::default();
    for epoch in [0, 1] {
        log.claim_as(&Claimer::new(A, epoch), &decisions(&[(0, i64::from(epoch), i64::from(epoch))]), "j/0");
        log.marker(A, true);
    }
    log.floor_at(1, 0);
    assert!(log.removable().contains(&0));
    // What is: keys hold producer id and epoch.
    let mut log = three_commits();
    log.floor_at(1, 0);
    assert_eq!(log.removable(), Vec::<usize>::new());
}

#[test]
fn f1_the_highest_floor_counts_and_a_lower_one_goes_after_it_was_read_back() {
    let mut log = Log::default();
    log.floor_at(0, 2);
    log.floor_at(0, 1);
    let view = log.view();
    assert_eq!(view.floor(partition(0)), Some(Offset(2)), "a lagging writer takes nothing back");
    assert_ne!(floor_record(0, 1, 0).key(), floor_record(0, 2, 0).key(), "each value has a key of its own");
    assert_eq!(planned(&view, &[]).tombstones, [floor_record(0, 1, 0).key()]);
    // One that is only about to be written overtakes nothing.
    assert_eq!(planned(&view, &[(0, 7)]).tombstones, [floor_record(0, 1, 0).key()]);
    log.tombstone(&floor_record(0, 1, 0).key());
    assert!(planned(&log.view(), &[]).tombstones.is_empty(), "once is enough");
}

#[test]
fn f3_the_newest_claim_of_a_transactional_id_stays() {
    let mut log = three_commits();
    log.floor_at(0, 15);
    assert_eq!(planned(&log.view(), &[]).tombstones, ["j/0/0/0", "j/0/0/1"]);
    // An aborted later claim does not take its place: recovery would find no committed outcome at all.
    log.claim(&Claimer::new(A, 3), &decisions(&[(0, 15, 19)]));
    log.marker(A, false);
    assert_eq!(planned(&log.view(), &[]).tombstones, ["j/0/0/0", "j/0/0/1"]);
    log.tombstone("j/0/0/0");
    assert_eq!(planned(&log.view(), &[]).tombstones, ["j/0/0/1"]);
}

/// What is left of a replica's outcomes has no hole: recovery checks that each names the one before.
#[test]
fn tombstones_take_the_claims_of_a_replica_in_their_order() {
    let mut log = Log::default();
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 4), (1, 0, 0)]));
    log.marker(A, true);
    for n in 1..4 {
        log.claim(&Claimer::new(A, n as i16), &decisions(&[(0, n * 5, n * 5 + 4)]));
        log.marker(A, true);
    }
    log.floor_at(0, 20);
    assert!(planned(&log.view(), &[]).tombstones.is_empty(), "the first is covered in part only");
    log.floor_at(1, 1);
    assert_eq!(planned(&log.view(), &[]).tombstones, ["j/0/0/0", "j/0/0/1", "j/0/0/2"]);
}

#[test]
fn claims_of_others_are_left_to_their_keepers_until_their_deadline() {
    let mut log = Log::default();
    for n in 0..2 {
        log.claim(&Claimer::new(B, n as i16), &decisions(&[(0, n, n)]));
        log.marker(B, true);
    }
    log.floor_at(0, 2);
    let tombstones = |now_ms| plan(&log.view(), keeper(now_ms), &starts(&[]), |_| "t".to_owned()).tombstones;
    assert!(tombstones(100).is_empty());
    assert_eq!(tombstones(101), ["j/1/1/0"]);
}

/// F6: each of the conditions is needed by itself.
#[test]
fn f6_a_transactional_replica_arbitrates_until_no_ledger_claim_can_concern_it() {
    let must = |log: &Log, offsets: &[(i32, i64)]| must_arbitrate(&log.view(), &starts(offsets));
    let mut log = Log::default();
    log.floor_at(0, 3);
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 3, 7)]));
    assert!(must(&log, &[(0, 9)]), "no mode record yet");
    log.mode(AckMode::Transactional, 1);
    assert!(must(&log, &[(0, 9)]), "F6a: a ledger claim has no marker");
    log.marker(A, true);
    assert!(must(&log, &[(0, 7)]), "F6b: the start offset has not passed it");
    assert!(must(&log, &[]), "F6b: no start offset is known");
    assert!(!must(&log, &[(0, 8)]));
    // A claim of a transactional replica is no reason.
    log.claim(&Claimer { mode: AckMode::Transactional, ..Claimer::new(B, 0) }, &decisions(&[(0, 8, 9)]));
    assert!(!must(&log, &[(0, 8)]));
    log.floor_at(0, 9);
    assert!(must(&log, &[(0, 8)]), "F6c: the start offset is below the floor");
    let mut view = View::new(GROUP, Offset(0));
    log.read(&mut view, 3);
    assert!(must_arbitrate(&view, &starts(&[(0, 99)])), "F6c: not caught up beyond the mode record");
    log.mode(AckMode::Ledger, 2);
    assert!(must(&log, &[(0, 99)]), "back in ledger mode");
}

#[test]
fn f7_a_view_is_rebuilt_when_it_is_caught_up_and_the_marker_below_the_stable_offset_was_not_met() {
    let mut pair = Pair::new();
    let mut waiting = View::new(GROUP, Offset(0));
    pair.log.read(&mut waiting, 2);
    pair.log.marker(A, false);
    pair.log.claim(&Claimer::new(2, 0), &decisions(&[(1, 0, 0)]));
    // Behind the open claim of B nothing is stable yet: the marker may still come.
    pair.log.read(&mut waiting, 0);
    assert!(!waiting.must_be_rebuilt());
    pair.log.marker(B, false);
    // The cleaner takes the claim of A and then its marker before they are read.
    for at in [0, 2] {
        assert!(pair.log.removable().contains(&at), "{at}");
        pair.log.remove(at);
    }
    assert!(pair.log.is_hole(pair.first));
    pair.log.read(&mut waiting, 1);
    assert!(!waiting.must_be_rebuilt(), "not caught up");
    pair.log.read(&mut waiting, usize::MAX);
    assert!(waiting.must_be_rebuilt());
    assert!(!pair.log.view().must_be_rebuilt());
}

/// A replica stands still for longer than deletions and markers are kept, and reads on: the first marker of the producer
/// that it meets is that of a later transaction. Taken for the claim's own, records that nobody has decided would be
/// dropped, and lost.
#[test]
fn f7_a_later_commit_of_the_same_producer_says_nothing_of_a_claim_whose_marker_is_gone() {
    for later_claim_is_gone in [false, true] {
        let mut log = Log::default();
        log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 9)]));
        let mut waiting = View::new(GROUP, Offset(0));
        log.read(&mut waiting, usize::MAX);
        log.marker(A, false);
        let later = log.claim(&Claimer::new(A, 1), &decisions(&[(1, 0, 0)]));
        log.marker(A, true);
        log.tombstone("other");
        let removed = if later_claim_is_gone { vec![0, 1, 2] } else { vec![0, 1] };
        removed.into_iter().for_each(|at| log.remove(at));
        log.read(&mut waiting, usize::MAX);
        assert!(!waiting.committed().overlaps(partition(0), Offset(0), Offset(9)), "they were aborted");
        assert!(waiting.must_be_rebuilt());
        let rebuilt = log.view();
        assert!(!rebuilt.must_be_rebuilt());
        assert_eq!(rebuilt.claim(later).is_some(), !later_claim_is_gone);
    }
}

#[test]
fn r1_claims_and_floors_of_an_older_generation_do_not_count() {
    let mut log = three_commits();
    log.floor_at(0, 5);
    log.generation(1, false);
    log.generation(1, true);
    // Late ones of those who have not read the record.
    log.floor_at(0, 9);
    log.claim(&Claimer::new(B, 0), &decisions(&[(0, 0, 4)]));
    let view = log.view();
    assert!(view.committed().is_empty() && view.floors().is_empty());
    assert_eq!(view.claims().count(), 0);
    let c = Claimer { generation: 1, ..Claimer::new(2, 0) };
    let own = c.own(log.claim(&c, &decisions(&[(0, 0, 14)])), decisions(&[(0, 0, 14)]));
    assert_eq!(judge(&log.view(), &own, 0, |_| false), Verdict::Commit);
}

#[test]
fn r2_a_claim_of_an_older_generation_aborts_wherever_it_lies() {
    for generation_first in [true, false] {
        let mut log = Log::default();
        if generation_first {
            log.generation(1, false);
        }
        let position = log.claim(&Claimer::new(B, 0), &decisions(&[(0, 0, 4)]));
        if !generation_first {
            log.generation(1, false);
        }
        let own = Claimer::new(B, 0).own(position, decisions(&[(0, 0, 4)]));
        let expected = Verdict::Abort(Reason::OlderGeneration(log.view().generation()));
        assert_eq!(judge(&log.view(), &own, 0, |_| false), expected);
    }
}

#[test]
fn r6_nobody_follows_a_start_offset_between_the_two_steps_of_a_reset() {
    let mut log = three_commits();
    log.generation(1, false);
    assert_eq!(floors(&planned(&log.view(), &[(0, 15)])), []);
    log.generation(1, true);
    assert_eq!(floors(&planned(&log.view(), &[(0, 2)])), [(0, 2)]);
    log.generation(1, false);
    assert!(log.view().is_generation_ready(), "a step that is written again takes nothing back");
}

#[test]
fn m1_a_ledger_claim_aborts_when_the_mode_has_changed() {
    let mut log = Log::default();
    log.mode(AckMode::Ledger, 0);
    let own = Claimer::new(A, 0)
        .own(log.claim(&Claimer::new(A, 0), &decisions(&[(0, 0, 0)])), decisions(&[(0, 0, 0)]));
    assert_eq!(judge(&log.view(), &own, 0, |_| false), Verdict::Commit);
    // Another replica that starts at the same time writes the same again.
    log.mode(AckMode::Ledger, 0);
    assert_eq!(judge(&log.view(), &own, 0, |_| false), Verdict::Commit);
    log.mode(AckMode::Transactional, 1);
    let barred = |mode| Verdict::Abort(Reason::OtherMode(mode));
    assert_eq!(judge(&log.view(), &own, 0, |_| false), barred(AckMode::Transactional));
    // The way back does not revive it: transactional replicas have not looked at it.
    log.mode(AckMode::Ledger, 2);
    assert_eq!(judge(&log.view(), &own, 0, |_| false), barred(AckMode::Ledger));
    // A late record of an earlier era takes nothing back.
    log.mode(AckMode::Transactional, 1);
    assert_eq!(log.view().era(), 2);
}

#[test]
fn a_start_offset_below_the_floor_was_moved_back() {
    let mut log = Log::default();
    log.floor_at(0, 5);
    let view = log.view();
    let moved = (partition(0), Finding::MovedBack { start: Offset(4), floor: Offset(5) });
    assert_eq!(examine(&view, &floors_of(&view), &starts(&[(0, 4)])), [moved]);
    assert_eq!(examine(&view, &floors_of(&view), &starts(&[(0, 5)])), []);
    // Another keeper may have followed a later start offset meanwhile.
    assert_eq!(examine(&view, &starts(&[(0, 3)]), &starts(&[(0, 4)])), []);
}

#[test]
fn a_start_offset_that_passed_records_without_a_claim_tells_of_a_foreign_consumer() {
    let mut log = Log::default();
    log.floor_at(0, 5);
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 5, 6), (0, 9, 9)]));
    log.marker(A, true);
    // Acknowledged, but its marker is not written yet.
    log.claim(&Claimer::new(B, 0), &decisions(&[(0, 10, 11)]));
    let view = log.view();
    let passed =
        |first, last| (partition(0), Finding::PassedUndecided { first: Offset(first), last: Offset(last) });
    let found = |start| examine(&view, &floors_of(&view), &starts(&[(0, start)]));
    assert_eq!(found(7), []);
    assert_eq!(found(8), [passed(7, 7)]);
    assert_eq!(found(12), [passed(7, 8)]);
    assert_eq!(found(14), [passed(7, 8), passed(12, 13)]);
    assert_eq!(examine(&view, &starts(&[]), &starts(&[(1, 100)])), [], "nobody knows where the group began");
}

#[test]
fn a_floor_keeps_the_counts_of_what_it_covers() {
    let mut log = Log::default();
    log.claim(&Claimer::new(A, 0), &decisions(&[(0, 10, 14)]));
    log.marker(A, true);
    let first = planned(&log.view(), &[(0, 12)]).floors.remove(0);
    assert_eq!((first.initial, first.counts.accept, first.passed), (Offset(10), 2, 0));
    log.floor(&first);
    let second = planned(&log.view(), &[(0, 17)]).floors.remove(0);
    assert_eq!((second.initial, second.counts.accept, second.passed), (Offset(10), 5, 2));
}

#[test]
fn a_delivery_that_is_decided_is_taken_out_with_its_decision() {
    let mut log = Log::default();
    log.floor_at(0, 3);
    let mut records = decisions(&[(0, 5, 6)]);
    let gap = DecidedRange { first: Offset(8), last: Offset(8), decision: Decision::Gap };
    records.set(partition(0), gap);
    log.claim(&Claimer::new(A, 0), &records);
    log.marker(A, true);
    log.claim(&Claimer::new(B, 0), &decisions(&[(0, 9, 9)]));
    let range = |first, last| AcquiredRange { first: Offset(first), last: Offset(last), delivery_count: 2 };
    let mut acquired = AcquiredPartition {
        topic: Arc::from("t"),
        topic_id: partition(0).topic_id,
        partition: partition(0).partition,
        batches: Vec::new(),
        acquired: vec![range(0, 1), range(2, 10), range(12, 13)],
        lock_deadline: None,
    };
    let mut dropped = Dropped::default();
    let decided = take_decided(Known::of(&log.view()), &mut acquired, &mut dropped);
    assert_eq!(acquired.acquired, [range(3, 4), range(7, 7), range(9, 10), range(12, 13)]);
    assert_eq!(dropped, Dropped { already_decided: 3, below_floor: 3 });
    let told: Vec<_> =
        decided.iter().map(|(_, range)| (range.first.0, range.last.0, range.decision)).collect();
    use Decision::{Accept, Gap};
    assert_eq!(told, [(0, 1, Accept), (2, 2, Accept), (5, 6, Accept), (8, 8, Gap)]);
}

#[test]
fn records_of_other_groups_in_the_same_partition_say_nothing() {
    let mut log = three_commits();
    log.mode(AckMode::Ledger, 0);
    let mut view = View::new("another", Offset(0));
    log.read(&mut view, usize::MAX);
    assert!(view.committed().is_empty() && view.mode().is_none() && view.backlog() == 0);
    assert_eq!(view.caught_up_to(), Some(log.end()));
}
