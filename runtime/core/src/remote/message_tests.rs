//! The byte forms of control messages: what version 1 wrote, and what is made of anything else.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sharestream_base::ids::{CheckpointId, MemberEpoch, Offset, PartitionIndex, TopicId};
use sharestream_base::{Clock, Instant};
use sharestream_checkpoints::{StatePart, StatePartKind};

use super::Role;
use super::frame::Frame;
use super::gauges::GaugesShown;
use super::message::{Assignment, Hello, Shape, ToCoordinator, ToWorker};
use crate::ErrorKind;
use crate::coordinates::RejectCounts;
use crate::decision::{DecidedRange, Decision, Decisions, MemberDecisions, ShareMember, SourcePartition};
use crate::element::Barrier;
use crate::error::Error;
use crate::sink::SinkReport;
use crate::source::{Delivery, InFlight, PartitionLoad, SourceCounters, SourceMetrics, SourceReport};
use crate::state::StateReport;
use crate::task::context::{OperatorReport, TaskEvent};
use crate::task::gauges::{CallGauge, OldestCall, SourceGauge};
use crate::task::source::SourceCommand;
use crate::watermark::{EventTimes, Watermark};

const ATTEMPT: u64 = 0x1234;

fn partition() -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(3) }
}

fn decisions() -> Decisions {
    let mut decisions = Decisions::new();
    for (first, decision) in [(0, Decision::Accept), (10, Decision::Reject), (20, Decision::Gap)] {
        decisions.set(partition(), DecidedRange { first: Offset(first), last: Offset(first + 5), decision });
    }
    decisions
}

fn to_worker(now: Instant) -> Vec<ToWorker> {
    let waits_until = Some(now + Duration::from_millis(70));
    let barrier = Barrier { checkpoint: CheckpointId(8), waits_until, watermark: Some(Watermark(-5)) };
    let commands = [
        SourceCommand::Barrier(barrier),
        SourceCommand::Deferred(CheckpointId(8), Arc::new(decisions())),
        SourceCommand::Committed(CheckpointId(8)),
        SourceCommand::StopAcquiring,
        SourceCommand::Close,
        SourceCommand::GiveBack(CheckpointId(8), Arc::new(decisions())),
    ];
    let assignment = Assignment {
        first: CheckpointId(9),
        owner: Some((4, "process 12".to_owned())),
        manifest: Some(b"manifest".to_vec()),
        opening: vec![1, 2, 3],
        data_address: Some("localhost:9".to_owned()),
    };
    let mut messages = vec![
        ToWorker::Welcome,
        ToWorker::Refused(Error::new(ErrorKind::InvalidInput, "another job")),
        ToWorker::Connect(assignment),
        ToWorker::Start,
        ToWorker::Opened(CheckpointId(8)),
        ToWorker::BarrierSent(CheckpointId(7)),
        ToWorker::Connector(vec![9, 9]),
        ToWorker::Cancel,
        ToWorker::Ping,
        ToWorker::JobEnded,
    ];
    messages.extend((0u32..).zip(commands).map(|(subtask, command)| ToWorker::Command { subtask, command }));
    messages
}

fn events() -> Vec<TaskEvent> {
    let member =
        ShareMember { group_id: "g".to_owned(), member_id: "m".to_owned(), member_epoch: MemberEpoch(2) };
    let decided = vec![MemberDecisions { member, decisions: decisions() }];
    let part = StatePart {
        name: "part".to_owned(),
        sha256: "00ff".to_owned(),
        bytes: 5,
        rows: 2,
        kind: StatePartKind::Delta,
        checkpoint: CheckpointId(6),
        first_group: 0,
        last_group: 127,
    };
    let state = StateReport {
        operator: "count".to_owned(),
        state_version: 2,
        key_groups: 128,
        parts: vec![part],
        delta_bytes: 5,
        base_bytes: 6,
        state_bytes: 7,
    };
    let counts = RejectCounts { decode: 1, transform: 2, call: 3, delivery_limit: 4, too_large: 5 };
    let sink_report = SinkReport {
        row_count: 3,
        dead_letter_count: 1,
        parked_count: 2,
        reject_counts: counts,
        rejected: decisions(),
        given_back: decisions(),
    };
    let operator_report = OperatorReport { filtered_count: 4, deferred: decisions(), state: Some(state) };
    let event_times = EventTimes::from([(partition(), vec![(Offset(3), -40), (Offset(5), 60)])]);
    let source_report = SourceReport { decided, record_count: 18, byte_count: 900, event_times };
    let checkpoint = CheckpointId(8);
    vec![
        TaskEvent::SourceAcked { subtask: 1, checkpoint, report: source_report },
        TaskEvent::SourceStopped { subtask: 2 },
        TaskEvent::OperatorAcked { subtask: 3, checkpoint, report: operator_report },
        TaskEvent::OperatorAcked { subtask: 3, checkpoint, report: OperatorReport::default() },
        TaskEvent::SinkAcked { subtask: 4, checkpoint, report: sink_report },
        TaskEvent::Failed { task: "sink-1".to_owned(), error: Error::new(ErrorKind::Fenced, "fenced") },
    ]
}

fn load(now: Instant) -> GaugesShown {
    let delivery = Delivery { partition: partition(), offset: Offset(4), count: 3, limit: 5 };
    let in_flight = InFlight {
        record_count: 7,
        byte_count: 70,
        window_fill: 0.25,
        already_decided: 1,
        below_floor: 2,
        counters: SourceCounters { renewals: 1, releases: 2, redeliveries: 3, lost_locks: 4 },
        nearest_limit: Some(delivery),
        wants_barrier: true,
    };
    let oldest_at = Some(now - Duration::from_millis(30));
    let call = CallGauge {
        running_count: 1,
        waiting_count: 2,
        retry_count: 3,
        deferred_count: 8,
        is_holding: true,
        is_saturated: false,
        oldest: Some((OldestCall::Elsewhere("t".to_owned(), 1, 2), now - Duration::from_secs(1))),
        done_count: 5,
        done_at: oldest_at,
    };
    let mut partition = PartitionLoad::new("t".into(), PartitionIndex(1));
    (partition.in_flight, partition.window_fill) = (9, 0.5);
    GaugesShown {
        sources: vec![SourceGauge { in_flight, is_idle: true, oldest_at }, SourceGauge::default()],
        calls: vec![call],
        metrics: Some(vec![SourceMetrics { given_up: 1, partitions: vec![partition] }]),
    }
}

fn to_coordinator(now: Instant) -> Vec<ToCoordinator> {
    let hello = Hello {
        role: Role::Sinks,
        job: "flights".to_owned(),
        instance: "0".to_owned(),
        definition: "abc".to_owned(),
        process: "process 7".to_owned(),
        data_address: Some("localhost:1".to_owned()),
    };
    let mut messages = vec![
        ToCoordinator::Hello(hello),
        ToCoordinator::Connected(Shape { sources: 1, operators: 2, sinks: 3 }),
        ToCoordinator::Failed(Error::new(ErrorKind::Retry, "no broker")),
        ToCoordinator::Gauges(load(now)),
        ToCoordinator::Connector(vec![4]),
        ToCoordinator::TasksEnded,
        ToCoordinator::Ping,
    ];
    messages.extend(events().into_iter().map(ToCoordinator::Event));
    messages
}

fn frames(now: Instant) -> Vec<Frame> {
    let down = to_worker(now).into_iter().map(|message| message.to_frame(ATTEMPT, now));
    let up = to_coordinator(now).into_iter().map(|message| message.to_frame(ATTEMPT, now));
    down.chain(up).collect()
}

/// A frame read and written again.
fn again(frame: Frame, now: Instant) -> Result<Frame, String> {
    let attempt = frame.attempt;
    if frame.kind < 64 {
        let message = ToWorker::of_frame(frame, now).map_err(|error| error.to_string())?;
        return Ok(message.to_frame(attempt, now));
    }
    let message = ToCoordinator::of_frame(frame, now).map_err(|error| error.to_string())?;
    Ok(message.to_frame(attempt, now))
}

/// What version 1 wrote is read for as long as version 1 is spoken.
#[tokio::test]
async fn the_bytes_of_version_1_do_not_change() {
    let now = Clock::system().now();
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let written: Vec<String> = frames(now).iter().map(|frame| hex(frame.encode(1 << 20).unwrap())).collect();
    if std::env::var_os("SHARESTREAM_WRITE_FIXTURES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/messages_v1.txt");
        std::fs::write(path, written.join("\n") + "\n").unwrap();
    }
    let stored = include_str!("messages_v1.txt");
    assert_eq!(stored.lines().collect::<Vec<_>>(), written);
}

#[tokio::test]
async fn messages_read_back_and_no_part_of_one_does() {
    let now = Clock::system().now();
    for frame in frames(now) {
        assert_eq!(again(frame.clone(), now), Ok(frame.clone()));
        if matches!(frame.kind, 8 | 70) {
            // A connector's bytes are its own.
            continue;
        }
        for cut in 0..frame.payload.len() {
            let payload = frame.payload[..cut].to_vec();
            assert!(again(Frame { payload, ..frame.clone() }, now).is_err(), "kind {} at {cut}", frame.kind);
        }
        let payload = [&frame.payload[..], &[0]].concat();
        assert!(again(Frame { payload, ..frame.clone() }, now).is_err(), "kind {}", frame.kind);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        kind in any::<u8>(),
        at in any::<usize>(),
        flip in 1u8..,
    ) {
        let now = Clock::system().now();
        let _message_or_error = again(Frame { kind, attempt: 1, payload }, now);
        for mut frame in frames(now) {
            if frame.payload.is_empty() {
                continue;
            }
            let at = at % frame.payload.len();
            frame.payload[at] ^= flip;
            if let Ok(read) = again(frame, now) {
                prop_assert_eq!(again(read.clone(), now), Ok(read), "what is read is written the same way");
            }
        }
    }
}
