//! Every (state, command) pair, and properties of random histories.

use std::sync::Arc;

use proptest::prelude::*;
use sharestream_base::ids::PartitionIndex;

use super::record::EPOCH_LAST;
use super::*;
use crate::txn::log;

const NOW: Facts = Facts { now_ms: 1_000_000, fresh_id: ProducerId(77) };
const TIMEOUT_MS: i32 = 60_000;

fn identity(producer_id: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(producer_id), epoch: ProducerEpoch(epoch) }
}

fn participants(count: i32) -> BTreeSet<TopicPartition> {
    (0..count).map(|n| TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(n) }).collect()
}

fn machine(identity: Identity, state: State) -> Transaction {
    Transaction::replay(TransactionRecord { identity, timeout_ms: TIMEOUT_MS, state, updated_ms: 0 })
}

fn open(version: TransactionVersion) -> Open {
    Open { version, partitions: participants(2), started_ms: NOW.now_ms - 1 }
}

/// The machine that ran as (7, 3) and is now in the named state.
fn in_state(name: &str, version: TransactionVersion) -> Transaction {
    let ran_as = identity(7, 3);
    let bumped = if version == TransactionVersion::V2 { identity(7, 4) } else { ran_as };
    let ended = |by, marker| Ended { by, version, ran_as, marker };
    let by_producer = ended(EndedBy::Producer, bumped);
    let by_time = ended(EndedBy::TimeOut, identity(7, 4));
    match name {
        "Empty" => machine(ran_as, State::Empty { previous: Some(identity(7, 2)) }),
        "Ongoing" => machine(ran_as, State::Ongoing(open(version))),
        "PrepareCommit" => machine(bumped, State::PrepareCommit(open(version), by_producer)),
        "PrepareAbort" => machine(bumped, State::PrepareAbort(open(version), by_producer)),
        "CompleteCommit" => machine(bumped, State::CompleteCommit(by_producer)),
        "CompleteAbort" => machine(bumped, State::CompleteAbort(by_producer)),
        "TimedOut" => machine(identity(7, 4), State::CompleteAbort(by_time)),
        "TimingOut" => machine(identity(7, 4), State::PrepareAbort(open(version), by_time)),
        "Fenced" => machine(identity(7, 4), State::CompleteAbort(ended(EndedBy::Fence, identity(7, 4)))),
        other => panic!("no state {other}"),
    }
}

/// What a decision comes to: state and epoch of the record, or the kept epoch, or the refusal.
fn outcome(decision: Result<Decision, ErrorCode>) -> String {
    let shown = |record: TransactionRecord| {
        format!("{} {}/{}", record.state.name(), record.identity.producer_id, record.identity.epoch)
    };
    match decision {
        Ok(Decision::Keep(identity)) => format!("keep {}/{}", identity.producer_id, identity.epoch),
        Ok(Decision::Write(record)) => shown(record),
        Ok(Decision::WriteAndSendMarkers(record)) => format!("{} + markers", shown(record)),
        Ok(Decision::AbortFirst(record)) => format!("{} + markers, retry", shown(record)),
        Err(code) => format!("{code:?}"),
    }
}

const STATES: [&str; 9] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "TimingOut",
    "TimedOut",
    "Fenced",
];

fn check(version: TransactionVersion, command: &Command, expected: [&str; 9]) {
    for (name, expected) in STATES.into_iter().zip(expected) {
        let decided = outcome(in_state(name, version).decide(command, NOW));
        assert_eq!(decided, expected, "{version:?} {name} {command:?}");
    }
}

use TransactionVersion::{V1, V2};

fn end(producer: Identity, version: TransactionVersion, outcome: Outcome) -> Command {
    Command::End { identity: producer, version, outcome }
}

#[test]
fn init_without_identity_takes_over_from_every_settled_state_and_aborts_what_is_open() {
    let init = Command::Init { expected: None, timeout_ms: TIMEOUT_MS };
    let concurrent = "ConcurrentTransactions";
    check(
        V2,
        &init,
        [
            "Empty 7/4",
            "PrepareAbort 7/4 + markers, retry",
            concurrent,
            concurrent,
            "Empty 7/5",
            "Empty 7/5",
            concurrent,
            "Empty 7/5",
            "Empty 7/5",
        ],
    );
    check(
        V1,
        &init,
        [
            "Empty 7/4",
            "PrepareAbort 7/4 + markers, retry",
            concurrent,
            concurrent,
            "Empty 7/4",
            "Empty 7/4",
            concurrent,
            "Empty 7/5",
            "Empty 7/5",
        ],
    );
}

#[test]
fn init_with_the_current_identity_goes_on_and_with_an_old_one_is_fenced() {
    let current = Command::Init { expected: Some(identity(7, 3)), timeout_ms: TIMEOUT_MS };
    let (concurrent, fenced) = ("ConcurrentTransactions", "ProducerFenced");
    check(
        V2,
        &current,
        [
            "Empty 7/4",
            "PrepareAbort 7/4 + markers, retry",
            concurrent,
            concurrent,
            fenced,
            fenced,
            concurrent,
            "Empty 7/5",
            fenced,
        ],
    );
    let old = Command::Init { expected: Some(identity(7, 1)), timeout_ms: TIMEOUT_MS };
    check(V2, &old, [fenced, fenced, concurrent, concurrent, fenced, fenced, concurrent, fenced, fenced]);
    let repeated = Command::Init { expected: Some(identity(7, 2)), timeout_ms: TIMEOUT_MS };
    check(
        V2,
        &repeated,
        ["keep 7/3", fenced, concurrent, concurrent, fenced, fenced, concurrent, fenced, fenced],
    );
}

#[test]
fn partitions_are_added_only_by_the_current_identity_and_not_while_markers_are_under_way() {
    let add = |producer, count, version| Command::AddPartitions {
        identity: producer,
        version,
        partitions: participants(count),
    };
    let (concurrent, fenced) = ("ConcurrentTransactions", "ProducerFenced");
    check(
        V2,
        &add(identity(7, 3), 3, V2),
        ["Ongoing 7/3", "Ongoing 7/3", fenced, fenced, fenced, fenced, fenced, fenced, fenced],
    );
    check(
        V2,
        &add(identity(7, 4), 3, V2),
        [
            fenced,
            fenced,
            concurrent,
            concurrent,
            "Ongoing 7/4",
            "Ongoing 7/4",
            concurrent,
            "Ongoing 7/4",
            "Ongoing 7/4",
        ],
    );
    check(
        V1,
        &add(identity(7, 3), 2, V1),
        [
            "Ongoing 7/3",
            "keep 7/3",
            concurrent,
            concurrent,
            "Ongoing 7/3",
            "Ongoing 7/3",
            fenced,
            fenced,
            fenced,
        ],
    );
    check(V2, &add(identity(8, 3), 2, V2), ["InvalidProducerIdMapping"; 9]);
}

#[test]
fn end_is_repeatable_under_version_2_and_a_contradiction_is_refused() {
    let (fenced, invalid) = ("ProducerFenced", "InvalidTxnState");
    check(
        V2,
        &end(identity(7, 3), V2, Outcome::Commit),
        [
            invalid,
            "PrepareCommit 7/4 + markers",
            "keep 7/4",
            invalid,
            "keep 7/4",
            invalid,
            fenced,
            fenced,
            fenced,
        ],
    );
    check(
        V2,
        &end(identity(7, 3), V2, Outcome::Abort),
        [
            "PrepareAbort 7/4 + markers",
            "PrepareAbort 7/4 + markers",
            invalid,
            "keep 7/4",
            invalid,
            "keep 7/4",
            "keep 7/4",
            "keep 7/4",
            fenced,
        ],
    );
}

#[test]
fn the_successor_waits_for_the_markers_then_may_abort_nothing_but_not_commit_it() {
    let (concurrent, fenced, invalid) = ("ConcurrentTransactions", "ProducerFenced", "InvalidTxnState");
    let abort = "PrepareAbort 7/5 + markers";
    check(
        V2,
        &end(identity(7, 4), V2, Outcome::Abort),
        [fenced, fenced, concurrent, concurrent, abort, abort, concurrent, abort, abort],
    );
    check(
        V2,
        &end(identity(7, 4), V2, Outcome::Commit),
        [fenced, fenced, concurrent, concurrent, invalid, invalid, concurrent, invalid, invalid],
    );
}

#[test]
fn end_under_version_1_keeps_the_epoch_and_waits_for_the_markers() {
    let (concurrent, fenced, invalid) = ("ConcurrentTransactions", "ProducerFenced", "InvalidTxnState");
    check(
        V1,
        &end(identity(7, 3), V1, Outcome::Commit),
        [
            invalid,
            "PrepareCommit 7/3 + markers",
            concurrent,
            invalid,
            "keep 7/3",
            invalid,
            fenced,
            fenced,
            fenced,
        ],
    );
    check(
        V1,
        &end(identity(7, 3), V1, Outcome::Abort),
        [
            invalid,
            "PrepareAbort 7/3 + markers",
            invalid,
            concurrent,
            invalid,
            "keep 7/3",
            fenced,
            fenced,
            fenced,
        ],
    );
}

#[test]
fn only_an_open_transaction_times_out_and_only_when_its_time_is_up() {
    let keep = [
        "keep 7/3", "keep 7/3", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4",
        "keep 7/4",
    ];
    check(V2, &Command::CheckTimeOut, keep);
    let late = Facts { now_ms: NOW.now_ms - 1 + i64::from(TIMEOUT_MS), ..NOW };
    let decided = in_state("Ongoing", V1).decide(&Command::CheckTimeOut, late);
    assert_eq!(outcome(decided), "PrepareAbort 7/4 + markers", "the bump fences, under version 1 as well");
    let decided = in_state("PrepareCommit", V2).decide(&Command::CheckTimeOut, late);
    assert_eq!(outcome(decided), "keep 7/4", "a decided commit is never turned");
}

#[test]
fn markers_complete_only_the_transaction_that_they_belong_to() {
    let right = Command::MarkersWritten { marker: identity(7, 4) };
    check(
        V2,
        &right,
        [
            "keep 7/3",
            "keep 7/3",
            "CompleteCommit 7/4",
            "CompleteAbort 7/4",
            "keep 7/4",
            "keep 7/4",
            "CompleteAbort 7/4",
            "keep 7/4",
            "keep 7/4",
        ],
    );
    let late = Command::MarkersWritten { marker: identity(7, 3) };
    check(
        V2,
        &late,
        [
            "keep 7/3", "keep 7/3", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4", "keep 7/4",
            "keep 7/4",
        ],
    );
}

#[test]
fn a_used_up_epoch_gives_the_producer_a_fresh_id_and_the_markers_the_last_epoch() {
    let last = identity(7, EPOCH_LAST);
    let machine = machine(last, State::Ongoing(open(V2)));
    let decision = machine.decide(&end(last, V2, Outcome::Commit), NOW).unwrap();
    let Decision::WriteAndSendMarkers(record) = decision else { panic!("{decision:?}") };
    assert_eq!(record.identity, identity(77, 0));
    let State::PrepareCommit(_, ended) = &record.state else { panic!("{record:?}") };
    assert_eq!(ended.marker, identity(7, i16::MAX));
    let prepared = Transaction::replay(record);
    let again = prepared.decide(&end(last, V2, Outcome::Commit), NOW);
    assert_eq!(outcome(again), "keep 77/0", "a repetition gets the same answer");
}

#[test]
fn verification_tells_apart_what_is_in_the_transaction() {
    let [known, unknown] =
        [1, 5].map(|n| TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(n) });
    let ongoing = in_state("Ongoing", V1);
    assert_eq!(ongoing.verify(identity(7, 3), &known), Ok(()));
    assert_eq!(ongoing.verify(identity(7, 3), &unknown), Err(ErrorCode::InvalidTxnState));
    assert_eq!(ongoing.verify(identity(7, 2), &known), Err(ErrorCode::ProducerFenced));
    let pending = in_state("PrepareCommit", V1);
    assert_eq!(pending.verify(identity(7, 3), &known), Err(ErrorCode::ConcurrentTransactions));
}

#[test]
fn every_state_survives_the_log() {
    for name in STATES {
        for version in [V1, V2] {
            let record = in_state(name, version).record().clone();
            let read = log::decode_value(&log::encode_value(&record)).unwrap();
            // A version is kept only where it matters.
            assert_eq!(read, record, "{name} {version:?}");
        }
    }
    assert_eq!(log::decode_key(&log::encode_key("my-tx")).unwrap(), "my-tx");
    for cut in 0..40 {
        let value = log::encode_value(in_state("PrepareCommit", V2).record());
        assert!(log::decode_value(&value[..cut]).is_err(), "cut at {cut}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Init(bool),
    Add(bool),
    End(bool, bool),
    MarkersWritten,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => any::<bool>().prop_map(Step::Init),
        4 => any::<bool>().prop_map(Step::Add),
        4 => any::<(bool, bool)>().prop_map(|(commit, stale)| Step::End(commit, stale)),
        4 => Just(Step::MarkersWritten),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Random histories: an identity never comes back once it is left, a decided outcome never turns, markers always
    /// carry an identity that fences the transaction's own under version 2, and the log replays to the same machine.
    #[test]
    fn histories_never_turn_back(steps in steps(), first_epoch in prop_oneof![Just(0i16), Just(EPOCH_LAST - 2)]) {
        let mut facts = Facts { now_ms: 0, fresh_id: ProducerId(100) };
        let mut machine = machine(identity(7, first_epoch), State::Empty { previous: None });
        let mut before = machine.record().identity;
        let mut left: BTreeSet<(i64, i16)> = BTreeSet::new();
        for step in steps {
            facts.now_ms += 10;
            facts.fresh_id = ProducerId(facts.fresh_id.0 + 1);
            let current = machine.record().identity;
            let command = match step {
                Step::Init(known) => Command::Init { expected: known.then_some(current), timeout_ms: 1_000 },
                Step::Add(stale) => Command::AddPartitions {
                    identity: if stale { before } else { current }, version: V2, partitions: participants(2),
                },
                Step::End(commit, stale) => Command::End {
                    identity: if stale { before } else { current },
                    version: V2,
                    outcome: if commit { Outcome::Commit } else { Outcome::Abort },
                },
                Step::MarkersWritten => match &machine.record().state {
                    State::PrepareCommit(_, ended) | State::PrepareAbort(_, ended) => {
                        Command::MarkersWritten { marker: ended.marker }
                    }
                    _ => continue,
                },
                Step::Wait => { facts.now_ms += 1_000; Command::CheckTimeOut }
            };
            let Ok(decision) = machine.decide(&command, facts) else { continue };
            let record = match decision {
                Decision::Keep(_) => continue,
                Decision::Write(record)
                | Decision::WriteAndSendMarkers(record)
                | Decision::AbortFirst(record) => record,
            };
            match (&machine.record().state, &record.state) {
                (State::PrepareCommit(..), next) => prop_assert!(matches!(next, State::CompleteCommit(_))),
                (State::PrepareAbort(..), next) => prop_assert!(matches!(next, State::CompleteAbort(_))),
                _ => {}
            }
            if let State::PrepareCommit(_, ended) | State::PrepareAbort(_, ended) = &record.state {
                prop_assert_eq!(ended.marker.producer_id, ended.ran_as.producer_id);
                prop_assert!(ended.marker.epoch > ended.ran_as.epoch);
            }
            if record.identity != current {
                left.insert((current.producer_id.0, current.epoch.0));
                before = current;
            }
            prop_assert!(!left.contains(&(record.identity.producer_id.0, record.identity.epoch.0)));
            let read = log::decode_value(&log::encode_value(&record)).unwrap();
            prop_assert_eq!(&read, &record);
            machine = Transaction::replay(read);
        }
    }
}
