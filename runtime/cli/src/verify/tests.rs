//! Planted faults: each must be named, counted in its column, and placed.

use std::sync::Arc;

use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_core::decision::{Decision, SourcePartition};

use super::facts::{Claim, Effect, Expected, Facts, OpenTransaction, PartitionFacts, Place, Replay, digest};
use super::report::Fault;
use super::*;

fn source() -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(3) }
}

/// Ten offsets: 0..=2 output, 3 and 4 filtered, 5 dead-lettered, 6 a gap, 7 output twice (ordinals 0 and 1),
/// 8 and 9 not yet processed. Two outcomes: 0..=4 and 5..=7.
fn right() -> Facts {
    let rows = |offset: i64, ordinals: i32| Expected::Rows {
        count: ordinals.unsigned_abs(),
        digest: Some(
            (0..ordinals).fold(0u64, |sum, ordinal| sum.wrapping_add(value_digest(offset, ordinal))),
        ),
    };
    let expected = vec![
        rows(0, 1),
        rows(1, 1),
        rows(2, 1),
        rows(3, 0),
        rows(4, 0),
        Expected::Rejected,
        Expected::NoRecord,
        rows(7, 2),
        rows(8, 1),
        rows(9, 1),
    ];
    Facts {
        exactly_once: true,
        has_ledger: false,
        rejects_leave_letters: true,
        broker_dead_letters: false,
        partitions: vec![PartitionFacts {
            topic: Arc::from("flights"),
            source: source(),
            initial: 0,
            floor: 0,
            start_offset: 8,
            start_offset_after: 8,
            replays: Vec::new(),
            expected,
        }],
        claims: vec![
            claim(1, 0, 4, Decision::Accept),
            claim(2, 5, 5, Decision::Reject),
            claim(2, 6, 6, Decision::Gap),
            claim(2, 7, 7, Decision::Accept),
        ],
        outputs: vec![output(0, 0), output(1, 0), output(2, 0), output(7, 0), output(7, 1)],
        dead_letters: vec![Effect { at: place("rejected", 0), ..output(5, 0) }],
        parked: Vec::new(),
        open_transactions: Vec::new(),
    }
}

fn place(topic: &str, offset: i64) -> Place {
    Place { topic: Arc::from(topic), partition: 0, offset }
}

fn claim(checkpoint: u64, first: i64, last: i64, decision: Decision) -> Claim {
    let at = place("outcomes", i64::try_from(checkpoint).unwrap());
    Claim { at, checkpoint, source: source(), first, last, decision, late: false }
}

fn value_digest(offset: i64, ordinal: i32) -> u64 {
    digest(ordinal, Some(b"UA"), Some(format!("{offset}").as_bytes()))
}

fn output(offset: i64, ordinal: i32) -> Effect {
    let at = place("delayed", offset * 10 + i64::from(ordinal));
    let (source, digest) = (source(), value_digest(offset, ordinal));
    Effect { at, source, offset, origin: (source, offset), stands_in: None, ordinal, digest }
}

#[test]
fn a_right_run_has_no_violations_and_adds_up() {
    let report = check(&right());
    assert!(report.is_right(), "{:?}", report.violations);
    assert_eq!((report.records_in, report.remaining), (7, 2));
    assert_eq!((report.records_out, report.filtered, report.dead_lettered), (5, 2, 1));
}

type Plant = fn(&mut Facts);
/// Name, fault to plant, fault to find, its first and last offset, and the counts lost, doubled, torn, wrong.
type Case = (&'static str, Plant, Fault, i64, i64, [u64; 4]);

#[test]
fn every_planted_fault_is_named_and_placed() {
    let cases: [Case; 14] = [
        (
            "decided range dropped",
            |f| drop(f.claims.remove(0)),
            Fault::PassedWithoutOutcome,
            0,
            4,
            [5, 0, 3, 0],
        ),
        (
            "dropped range, its outputs",
            |f| drop(f.claims.remove(0)),
            Fault::OutputWithoutOutcome,
            0,
            2,
            [5, 0, 3, 0],
        ),
        ("output missing", |f| drop(f.outputs.remove(1)), Fault::OutputMissing, 1, 1, [1, 0, 0, 0]),
        ("one ordinal missing", |f| drop(f.outputs.pop()), Fault::OutputMissing, 7, 7, [1, 0, 0, 0]),
        ("output doubled", |f| f.outputs.push(output(2, 0)), Fault::OutputDoubled, 2, 2, [0, 1, 0, 0]),
        (
            "output without outcome",
            |f| f.outputs.push(output(8, 0)),
            Fault::OutputWithoutOutcome,
            8,
            8,
            [0, 0, 1, 0],
        ),
        ("dead letter missing", |f| f.dead_letters.clear(), Fault::DeadLetterMissing, 5, 5, [1, 0, 0, 0]),
        (
            "dead letter doubled",
            |f| f.dead_letters.push(f.dead_letters[0].clone()),
            Fault::DeadLetterDoubled,
            5,
            5,
            [0, 1, 0, 0],
        ),
        (
            "dead letter of an accepted record",
            |f| f.dead_letters.push(output(3, 0)),
            Fault::DeadLetterWithoutOutcome,
            3,
            3,
            [0, 0, 1, 0],
        ),
        (
            "record called a gap",
            |f| f.claims[3].decision = Decision::Gap,
            Fault::RecordAsGap,
            7,
            7,
            [1, 0, 1, 0],
        ),
        (
            "acknowledgement not applied",
            |f| f.partitions[0].start_offset_after = 6,
            Fault::OutcomeNotAcknowledged,
            6,
            7,
            [0, 0, 2, 0],
        ),
        ("content changed", |f| f.outputs[0].digest = 1, Fault::OutputDiffers, 0, 0, [0, 0, 0, 1]),
        (
            "bad record swallowed",
            |f| {
                f.claims[1].decision = Decision::Accept;
                f.dead_letters.clear();
            },
            Fault::FaultyRecordAccepted,
            5,
            5,
            [1, 0, 0, 0],
        ),
        (
            "filtered record output",
            |f| f.outputs.push(output(4, 0)),
            Fault::OutputDiffers,
            4,
            4,
            [0, 0, 0, 1],
        ),
    ];
    for (name, plant, fault, first, last, counts) in cases {
        let mut facts = right();
        plant(&mut facts);
        let report = check(&facts);
        assert!(!report.is_right(), "{name}");
        let found = report.violations.iter().find(|v| v.fault == fault && v.first == first);
        let found = found.unwrap_or_else(|| panic!("{name}: {:?}", report.violations));
        assert_eq!((&*found.topic, found.partition, found.last), ("flights", 3, last), "{name}");
        assert_eq!([report.lost, report.doubled, report.torn, report.wrong], counts, "{name}");
    }
}

#[test]
fn deciding_twice_is_a_violation_only_where_exactly_once_is_promised() {
    let mut facts = right();
    facts.claims.push(claim(3, 4, 5, Decision::Accept));
    facts.claims.push(claim(4, 5, 5, Decision::Reject));
    let report = check(&facts);
    assert_eq!((report.decided_twice, report.violation_count), (2, 2));
    assert_eq!(
        report.violations[0].to_string(),
        "flights[3] offsets 4 to 5 (2): decided twice: two committed outcomes claim it (checkpoint 1 at \
         outcomes[0]@1, checkpoint 3 at outcomes[0]@3)"
    );
    facts.exactly_once = false;
    let report = check(&facts);
    assert_eq!((report.decided_twice, report.is_right()), (2, true));
}

#[test]
fn an_open_transaction_is_counted_and_only_an_overdue_one_is_a_violation() {
    let mut facts = right();
    let open = OpenTransaction { transactional_id: "late".into(), state: "Ongoing".into(), overdue: false };
    facts.open_transactions.push(open);
    let report = check(&facts);
    assert_eq!((report.open_transactions, report.is_right()), (1, true), "a job that runs has one");
    facts.open_transactions[0].overdue = true;
    assert!(!check(&facts).is_right());
}

#[test]
fn an_outcome_that_came_after_the_effects_explains_them_and_owes_none() {
    let mut facts = right();
    facts.outputs.push(output(8, 0));
    assert_eq!(check(&facts).torn, 1);
    facts.claims.push(Claim { late: true, ..claim(3, 8, 9, Decision::Accept) });
    let report = check(&facts);
    assert!(report.is_right(), "{:?}", report.violations);
    assert_eq!(report.remaining, 2, "not decided when the check began");
}

#[test]
fn outcomes_below_what_retention_kept_are_not_judged_against_the_input() {
    let mut facts = right();
    facts.partitions[0].initial = 3;
    facts.partitions[0].expected.drain(..3);
    let report = check(&facts);
    assert!(report.is_right(), "{:?}", report.violations);
    assert_eq!(report.records_in, 4);
}

#[test]
fn a_doubled_output_is_placed_where_a_reader_finds_it() {
    let mut facts = right();
    let mut copy = output(2, 0);
    copy.at.offset = 99;
    facts.outputs.push(copy);
    let text = check(&facts).violations[0].to_string();
    assert_eq!(
        text,
        "flights[3] offset 2: doubled: its output is there more than once (at delayed[0]@20, delayed[0]@99)"
    );
}

/// The right run in ledger mode: claims below 7 were removed under a floor, the last acknowledgement is on its way.
fn with_ledger() -> Facts {
    let mut facts = right();
    facts.has_ledger = true;
    facts.partitions[0].floor = 7;
    facts.partitions[0].start_offset = 7;
    facts.partitions[0].start_offset_after = 7;
    facts.claims.retain(|claim| claim.first == 7);
    facts
}

#[test]
fn below_a_floor_the_effects_tell_what_was_decided() {
    let report = check(&with_ledger());
    assert!(report.is_right(), "{:?}", report.violations);
    assert_eq!((report.records_in, report.remaining, report.below_floor), (7, 2, 7));
    assert_eq!(report.unacknowledged, 1, "decided, and the group still holds it");
}

#[test]
fn below_a_floor_an_effect_that_is_missing_or_doubled_is_found() {
    let mut facts = with_ledger();
    facts.outputs.remove(1);
    facts.outputs.push(Effect { at: place("delayed", 900), ..output(2, 0) });
    facts.dead_letters.clear();
    let report = check(&facts);
    let found: Vec<(Fault, i64)> =
        report.violations.iter().map(|violation| (violation.fault, violation.first)).collect();
    let expected = [(Fault::OutputDoubled, 2), (Fault::OutputMissing, 1), (Fault::FaultyRecordAccepted, 5)];
    assert_eq!(found, expected);
}

#[test]
fn below_a_floor_a_record_has_an_output_or_a_dead_letter_and_not_both() {
    let mut facts = with_ledger();
    facts.dead_letters.push(Effect { at: place("rejected", 1), ..output(0, 0) });
    let report = check(&facts);
    assert_eq!(report.violations.len(), 1, "{:?}", report.violations);
    assert_eq!(report.violations[0].fault, Fault::OutputWithoutOutcome);
}

#[test]
fn records_that_were_wanted_again_may_be_there_twice_and_not_three_times() {
    let mut facts = right();
    facts.partitions[0].replays = vec![Replay::default()];
    let again = |offset: i64| Effect { at: place("delayed", 900 + offset), ..output(1, 0) };
    facts.outputs.push(again(0));
    assert!(check(&facts).is_right());
    facts.outputs.push(again(1));
    assert_eq!(check(&facts).doubled, 1);
}

#[test]
fn what_a_savepoint_had_decided_may_not_be_there_twice() {
    let mut facts = right();
    facts.partitions[0].replays = vec![Replay { start: 1, decided: vec![(2, 6)] }];
    let again = |of: i64| Effect { at: place("delayed", 900 + of), ..output(of, 0) };
    for (offset, doubled) in [(0, 1), (1, 0), (2, 1), (7, 0)] {
        let mut facts = facts.clone();
        facts.outputs.push(again(offset));
        assert_eq!(check(&facts).doubled, doubled, "offset {offset}");
    }
}

#[test]
fn rows_of_services_are_counted_where_their_contents_cannot_be_known() {
    let mut facts = right();
    for expected in &mut facts.partitions[0].expected {
        if let Expected::Rows { digest, .. } = expected {
            *digest = None;
        }
    }
    facts.outputs[0].digest = 1;
    assert!(check(&facts).is_right(), "whatever a service answers is right");
    facts.outputs.remove(1);
    let report = check(&facts);
    assert_eq!((report.lost, report.wrong), (1, 0));
}

#[test]
fn a_dead_letter_is_accepted_where_the_broker_would_keep_a_second_one() {
    let mut facts = right();
    facts.claims[1].decision = Decision::Accept;
    assert!(!check(&facts).is_right(), "elsewhere it must be rejected");
    facts.broker_dead_letters = true;
    assert!(check(&facts).is_right(), "{:?}", check(&facts).violations);
    facts.dead_letters.clear();
    let faults: Vec<Fault> = check(&facts).violations.iter().map(|violation| violation.fault).collect();
    assert_eq!(faults, [Fault::FaultyRecordAccepted], "it went nowhere");
}

#[test]
fn only_errors_whose_policy_keeps_none_are_without_a_dead_letter() {
    let mut facts = right();
    facts.dead_letters.clear();
    assert!(!check(&facts).is_right());
    facts.partitions[0].expected[5] = Expected::RejectedUnkept;
    assert!(check(&facts).is_right(), "{:?}", check(&facts).violations);
    // A record without a fault that is rejected still needs one, unless the policy at the limit keeps none.
    facts.claims[0].last = 3;
    facts.claims.push(claim(1, 4, 4, Decision::Reject));
    let faults: Vec<Fault> = check(&facts).violations.iter().map(|violation| violation.fault).collect();
    assert_eq!(faults, [Fault::DeadLetterMissing]);
    facts.rejects_leave_letters = false;
    assert!(check(&facts).is_right());
}

fn parking(partition: i32) -> SourcePartition {
    SourcePartition {
        topic_id: "AAAAAAAAAAAAAAAAAAAAAQ".parse().unwrap(),
        partition: PartitionIndex(partition),
    }
}

/// The right run, but offset 1 was parked, and offset 0 of the parking topic was parked again and came out of its copy at 1.
fn with_parking() -> Facts {
    let mut facts = right();
    let copy = |offset: i64, source: SourcePartition, of: i64| {
        let at = Place { topic: Arc::from("late.parked"), partition: 0, offset };
        Effect {
            at,
            source,
            offset: of,
            origin: (self::source(), 1),
            stands_in: Some(parking(0)),
            ..output(1, 0)
        }
    };
    facts.parked = vec![copy(0, source(), 1), copy(1, parking(0), 0)];
    let row = facts.partitions[0].expected[1];
    facts.partitions.push(PartitionFacts {
        topic: Arc::from("late.parked"),
        source: parking(0),
        start_offset: 2,
        start_offset_after: 2,
        expected: vec![row, row],
        ..facts.partitions[0].clone()
    });
    facts.claims.push(Claim { source: parking(0), ..claim(3, 0, 1, Decision::Accept) });
    let mut made = facts.outputs.remove(1);
    (made.source, made.offset) = (parking(0), 1);
    facts.outputs.push(made);
    facts
}

#[test]
fn a_parked_record_has_one_outcome_by_one_chain_of_copies() {
    let report = check(&with_parking());
    assert!(report.is_right(), "{:?}", report.violations);
    assert_eq!((report.records_in, report.records_out, report.parked, report.filtered), (9, 5, 2, 2));
}

#[test]
fn every_fault_of_a_chain_is_named_and_placed() {
    type Plant = fn(&mut Facts);
    let cases: [(&str, Plant, Fault, &str, i64); 7] = [
        (
            "the output of the copy is missing",
            |f| drop(f.outputs.pop()),
            Fault::OutputMissing,
            "late.parked",
            1,
        ),
        ("the copy is missing", |f| drop(f.parked.remove(0)), Fault::OutputMissing, "flights", 1),
        ("parked and emitted", |f| f.outputs.push(output(1, 0)), Fault::ParkedAndProcessed, "flights", 1),
        ("parked twice", |f| f.parked.push(f.parked[0].clone()), Fault::ParkedTwice, "flights", 1),
        (
            "parked without an outcome",
            |f| {
                f.parked.push(Effect {
                    source: source(),
                    offset: 8,
                    origin: (source(), 8),
                    ..f.parked[0].clone()
                });
            },
            Fault::ParkedWithoutOutcome,
            "flights",
            8,
        ),
        ("another record's name", |f| f.outputs[4].origin.1 = 2, Fault::ChainBroken, "late.parked", 1),
        (
            "the copy was never processed",
            |f| {
                f.claims.retain(|claim| claim.source != parking(0));
                f.outputs.pop();
            },
            Fault::PassedWithoutOutcome,
            "late.parked",
            0,
        ),
    ];
    for (name, plant, fault, topic, offset) in cases {
        let mut facts = with_parking();
        plant(&mut facts);
        let report = check(&facts);
        let is_it = |v: &&report::Violation| (v.fault, &*v.topic, v.first) == (fault, topic, offset);
        assert!(report.violations.iter().any(|v| is_it(&v)), "{name}: {:?}", report.violations);
    }
}
