#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse};
use sharestream_base::Rng;
use sharestream_wire::frame::{encode_request, encode_response};

use super::*;
use crate::plan::{Fault, Plan, TimedFault};
use crate::trace::What;
use crate::world::{RunOptions, run};

/// A small run: one node, one replica, a record each few milliseconds.
fn plan() -> Plan {
    let mut plan = Plan::draw(1);
    plan.nodes = 1;
    plan.source_partitions = 1;
    plan.record_count = 40;
    plan.busy_for = Duration::from_secs(4);
    plan.batches_per_transaction = 0;
    plan.at_least_once = false;
    plan.workers.truncate(1);
    plan.workers[0].starts_at = Duration::ZERO;
    plan.workers[0].has_store = true;
    plan.faults.clear();
    plan
}

fn recorded(plan: &Plan) -> Vec<Event> {
    run(plan, RunOptions { recording: true, ..RunOptions::default() }).events
}

/// A record of each fate is near the beginning: 12 has one output row.
const PLACE: Place = Place { partition: 0, offset: 12 };

fn position(lines: &[String], parts: &[&str]) -> usize {
    lines
        .iter()
        .position(|line| parts.iter().all(|part| line.contains(part)))
        .unwrap_or_else(|| panic!("no line with {parts:?} in\n{}", lines.join("\n")))
}

#[test]
fn a_delivered_record_is_acquired_staged_committed_and_marked_in_that_order() {
    let lines = timeline(&recorded(&plan()), Some(PLACE));
    let order = [
        position(&lines, &["Produce: the record to numbers/0 with value '12,24'"]),
        position(&lines, &["ShareFetch answered: member", "acquires", "delivery 1"]),
        position(&lines, &["Produce: effect 0 to output/"]),
        position(&lines, &["Produce: outcome of checkpoint", "accept", "manifest"]),
        position(&lines, &["TxnShareAcknowledge: stages in producer", "(job.r0."]),
        position(&lines, &["WriteShareGroupState:", "pending in producer"]),
        position(&lines, &["EndTxn: commit producer"]),
        position(&lines, &["EndTxn answered: ok"]),
    ];
    assert!(order.is_sorted(), "{order:?}\n{}", lines.join("\n"));
    let end = position(&lines, &["EndTxn: commit producer"]);
    let marker = position(&lines, &["WriteTxnMarkers: commit marker of producer", "__share_group_state"]);
    assert!(end < marker, "{}", lines.join("\n"));
    position(&lines, &["ShareTxnOutcome: committed by producer", "numbers/0"]);
    position(&lines, &["harness", "store: put", ".pending: done"]);
    assert!(!lines.iter().any(|line| line.contains("undecodable")), "{}", lines.join("\n"));
}

#[test]
fn columns_are_aligned() {
    let lines = timeline(&recorded(&plan()), Some(PLACE));
    let arrows: Vec<usize> = lines.iter().filter_map(|line| line.find(" -> ")).collect();
    assert!(arrows.len() > 10);
    assert!(arrows.iter().all(|arrow| *arrow == arrows[0]), "{}", lines.join("\n"));
}

#[test]
fn a_crash_is_shown_with_and_without_a_record() {
    let mut plan = plan();
    let fault = Fault::KillWorker { worker: 0, down: Duration::from_millis(300), power: false };
    plan.faults.push(TimedFault { at: Duration::from_secs(2), fault });
    let events = recorded(&plan);
    for place in [Some(PLACE), None] {
        let lines = timeline(&events, place);
        let fault = position(&lines, &["harness", "fault: KillWorker"]);
        let death = position(&lines, &["harness", "worker-0.1 is dead"]);
        let start = position(&lines, &["harness", "worker-0.2 starts"]);
        assert!(fault < death && death < start, "{}", lines.join("\n"));
    }
    let lines = timeline(&events, None);
    let before = position(&lines, &["worker-0.1", "commits"]);
    let after = position(&lines, &["worker-0.2", "takes job.r0."]);
    assert!(before < after, "{}", lines.join("\n"));
    assert!(lines.len() < 40, "condensed:\n{}", lines.join("\n"));
}

#[test]
fn a_record_that_does_not_exist_has_only_notes_on_its_line() {
    let lines = timeline(&recorded(&plan()), Some(Place { partition: 0, offset: 9_999 }));
    assert!(lines.iter().all(|line| line.contains("harness") || line.contains("ReadShareGroupState")));
}

/// Chunks of one connection between a worker and a node.
#[derive(Default)]
struct Chunks(Vec<Event>);

impl Chunks {
    fn send(&mut self, at_ms: u64, connection: u64, by_opener: bool, bytes: impl Into<Bytes>) {
        let (worker, node): (Arc<str>, Arc<str>) = (Arc::from("worker-0.1"), Arc::from("node-1"));
        let (from, to) = if by_opener { (worker, node) } else { (node, worker) };
        let what = What::Sent { connection, from, to, by_opener, bytes: bytes.into() };
        self.0.push(Event { at: Duration::from_millis(at_ms), what });
    }

    fn close(&mut self, at_ms: u64, connection: u64) {
        self.0.push(Event { at: Duration::from_millis(at_ms), what: What::Closed { connection } });
    }
}

fn end_txn(correlation_id: i32) -> Bytes {
    encode_request(&EndTxnRequest::default().with_committed(true), 5, correlation_id, "test").unwrap()
}

fn ended(correlation_id: i32) -> Bytes {
    encode_response(&EndTxnResponse::default(), 5, correlation_id).unwrap()
}

#[test]
fn frames_are_put_together_from_any_chunks() {
    let whole: Vec<u8> = [end_txn(1), end_txn(2)].concat();
    for cut in 0..=whole.len() {
        let mut chunks = Chunks::default();
        chunks.send(1, 7, true, whole[..cut].to_vec());
        chunks.send(2, 7, true, whole[cut..].to_vec());
        // Answers of another connection do not belong to these requests.
        chunks.send(3, 7, false, [ended(2), ended(1)].concat());
        let recording = Recording::of(&chunks.0);
        assert_eq!(recording.exchanges.len(), 2);
        assert!(recording.exchanges.iter().all(|exchange| exchange.answer.is_some()), "cut at {cut}");
        assert!(recording.unreadable.is_empty());
    }
}

#[test]
fn a_frame_that_a_reset_cut_is_left_out() {
    let mut chunks = Chunks::default();
    chunks.send(1, 7, true, end_txn(1));
    let answer = ended(1);
    chunks.send(2, 7, false, answer.slice(..answer.len() - 1));
    chunks.close(3, 7);
    let recording = Recording::of(&chunks.0);
    assert!(recording.exchanges[0].answer.is_none());
    assert_eq!(no_answer(&recording.exchanges[0]), " [no answer; connection closed at 0.003]");
}

#[test]
fn an_answer_is_lost_when_the_same_is_asked_again_on_another_connection() {
    let mut chunks = Chunks::default();
    for (connection, correlation_id) in [(7, 1), (8, 5)] {
        chunks.send(connection, connection, true, end_txn(correlation_id));
        chunks.send(connection, connection, false, ended(correlation_id));
    }
    let recording = Recording::of(&chunks.0);
    let decoded = Decoded::all(&recording);
    let repetitions = Repetitions::of(&decoded);
    assert!(repetitions.lost(&decoded[0]));
    assert!(!repetitions.lost(&decoded[1]));
}

#[test]
fn garbage_is_shown_by_its_length() {
    let mut chunks = Chunks::default();
    chunks.send(1, 1, true, vec![0xff; 30]);
    // Whole frames that are no messages: an EndTxn without a body, an answer to nothing, and an empty frame.
    chunks.send(2, 2, true, end_txn(1).slice(4..17).to_vec());
    let mut short = 15u32.to_be_bytes().to_vec();
    short.extend_from_slice(&end_txn(1)[4..19]);
    chunks.send(3, 3, true, short);
    chunks.send(4, 4, false, ended(9));
    chunks.send(5, 5, true, vec![0; 4]);
    for place in [Some(PLACE), None] {
        let lines = timeline(&chunks.0, place);
        position(&lines, &["0.001", "worker-0.1 -> node-1", "undecodable (30 bytes)"]);
        position(&lines, &["0.004", "node-1", "undecodable"]);
        position(&lines, &["0.005", "undecodable (0 bytes)"]);
    }
    position(&timeline(&chunks.0, Some(PLACE)), &["0.003", "EndTxn: undecodable", "[no answer]"]);
}

#[test]
fn no_cut_and_no_noise_in_a_run_makes_it_panic() {
    let mut events = recorded(&plan());
    events.truncate(4_000);
    let rng = Rng::seeded(3);
    for event in &mut events {
        let What::Sent { bytes, .. } = &mut event.what else { continue };
        match rng.below(60) {
            0 => bytes.truncate(usize::try_from(rng.below(bytes.len() as u64)).unwrap()),
            1 => *bytes = (0..bytes.len()).map(|_| u8::try_from(rng.below(256)).unwrap()).collect(),
            _ => {}
        }
    }
    assert!(!timeline(&events, Some(PLACE)).is_empty());
    assert!(!timeline(&events, None).is_empty());
}

#[test]
fn repetitions_are_folded() {
    let mut chunks = Chunks::default();
    for at in 1..=10 {
        chunks.send(at, at, true, vec![0xff; 30]);
    }
    chunks.send(11, 11, true, vec![0xff; 31]);
    let lines = timeline(&chunks.0, None);
    assert_eq!(
        lines,
        [
            "0.001  worker-0.1 -> node-1  undecodable (30 bytes)",
            "0.010  ... 9 more",
            "0.011  worker-0.1 -> node-1  undecodable (31 bytes)",
        ]
    );
}

#[test]
fn nothing_recorded_has_no_lines() {
    assert!(timeline(&[], Some(PLACE)).is_empty());
    assert!(timeline(&[], None).is_empty());
}
