//! What a checkpoint is sealed with, and what it refuses.

use sharestream_base::Clock;
use sharestream_base::ids::{MemberEpoch, PartitionIndex, TopicId};

use super::*;
use crate::decision::ShareMember;

fn partition() -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(3) }
}

fn ranges(ranges: &[(i64, i64, Decision)]) -> Decisions {
    let mut decisions = Decisions::new();
    for (first, last, decision) in ranges {
        let range = DecidedRange { first: Offset(*first), last: Offset(*last), decision: *decision };
        decisions.set(partition(), range);
    }
    decisions
}

fn source(member: &str, decided: &[(i64, i64, Decision)]) -> Report {
    let member =
        ShareMember { group_id: "g".to_owned(), member_id: member.to_owned(), member_epoch: MemberEpoch(1) };
    let decided = vec![MemberDecisions { member, decisions: ranges(decided) }];
    Report::Source(SourceReport { decided, record_count: 5, byte_count: 50, ..SourceReport::default() })
}

fn sink(rejected: &[(i64, i64, Decision)]) -> Report {
    let rejected = ranges(rejected);
    Report::Sink(SinkReport { row_count: 4, dead_letter_count: 1, rejected, ..SinkReport::default() })
}

fn pending(subtasks: &[Subtask]) -> PendingCheckpoint {
    PendingCheckpoint::new(CheckpointId(7), Clock::system().now(), subtasks.iter().copied(), Vec::new())
}

#[tokio::test(start_paused = true)]
async fn rejections_keep_the_member_that_holds_the_offset() {
    use Decision::{Accept, Gap, Reject};
    let mut pending = pending(&[Subtask::Source(0), Subtask::Source(1), Subtask::Sink(0)]);
    let id = CheckpointId(7);
    assert!(
        !pending.acknowledge(Subtask::Source(0), id, source("a", &[(0, 9, Accept), (10, 10, Gap)])).unwrap()
    );
    assert!(
        !pending
            .acknowledge(Subtask::Source(1), id, source("b", &[(11, 20, Accept), (30, 31, Reject)]))
            .unwrap()
    );
    assert_eq!(pending.waiting_for(), "sink-0");
    let rejected =
        sink(&[(2, 3, Reject), (9, 9, Reject), (11, 11, Reject), (20, 20, Reject), (31, 31, Reject)]);
    assert!(pending.acknowledge(Subtask::Sink(0), id, rejected).unwrap());
    let (sealed, undecided) = pending.seal().unwrap();
    assert_eq!(undecided, Undecided::default());
    assert_eq!(sealed.decided.len(), 2);
    assert_eq!(
        sealed.decided[0].decisions,
        ranges(&[(0, 1, Accept), (2, 3, Reject), (4, 8, Accept), (9, 9, Reject), (10, 10, Gap)])
    );
    assert_eq!(
        sealed.decided[1].decisions,
        ranges(&[(11, 11, Reject), (12, 19, Accept), (20, 20, Reject), (30, 31, Reject)])
    );
    let counts = EpochCounts {
        records_in: 10,
        rows_out: 4,
        dead_letters: 1,
        payload_bytes: 100,
        ..EpochCounts::default()
    };
    assert_eq!(sealed.counts, counts);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_decided_by_nobody() {
    use Decision::{Accept, Reject};
    let id = CheckpointId(7);
    let back = |given_back| Report::Sink(SinkReport { given_back, row_count: 2, ..SinkReport::default() });
    let of_one_source = |decided: &[(i64, i64, Decision)], given_back| {
        let mut pending = pending(&[Subtask::Source(0), Subtask::Sink(0)]);
        pending.acknowledge(Subtask::Source(0), id, source("a", decided)).unwrap();
        pending.acknowledge(Subtask::Sink(0), id, back(given_back)).unwrap();
        pending.seal()
    };
    let given_back = ranges(&[(3, 4, Reject), (9, 9, Reject)]);
    // The source has called one of them bad already.
    let (sealed, undecided) = of_one_source(&[(0, 8, Accept), (9, 9, Reject)], given_back.clone()).unwrap();
    assert_eq!(sealed.decided[0].decisions, ranges(&[(0, 2, Accept), (5, 8, Accept)]));
    assert_eq!((undecided.given_back, sealed.counts.records_in), (given_back, 2));
    let error = of_one_source(&[(0, 8, Accept)], ranges(&[(8, 9, Reject)])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_two_members_decided_aborts_the_epoch_also_without_a_dead_letter() {
    use Decision::{Accept, Reject};
    for rejected in [&[][..], &[(5, 5, Reject)]] {
        let mut pending = pending(&[Subtask::Source(0), Subtask::Source(1), Subtask::Sink(0)]);
        let id = CheckpointId(7);
        pending.acknowledge(Subtask::Source(0), id, source("a", &[(0, 5, Accept)])).unwrap();
        pending.acknowledge(Subtask::Source(1), id, source("b", &[(5, 9, Accept)])).unwrap();
        pending.acknowledge(Subtask::Sink(0), id, sink(rejected)).unwrap();
        let error = pending.seal().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Abort);
        assert!(error.to_string().contains("member a"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_the_sources_is_a_bug() {
    use Decision::{Accept, Gap, Reject};
    let id = CheckpointId(7);
    type Reports = Vec<(Subtask, u64, Report)>;
    let table: Vec<(&str, Reports)> = vec![
        ("another checkpoint", vec![(Subtask::Source(0), 8, source("a", &[]))]),
        ("twice", vec![(Subtask::Source(0), 7, source("a", &[])), (Subtask::Source(0), 7, source("a", &[]))]),
        (
            "dead letter of nobody's offset",
            vec![
                (Subtask::Source(0), 7, source("a", &[(0, 4, Accept)])),
                (Subtask::Sink(0), 7, sink(&[(4, 5, Reject)])),
            ],
        ),
        (
            "dead letter of a gap",
            vec![
                (Subtask::Source(0), 7, source("a", &[(0, 4, Gap)])),
                (Subtask::Sink(0), 7, sink(&[(4, 4, Reject)])),
            ],
        ),
        (
            "rows without decisions",
            vec![(Subtask::Source(0), 7, source("a", &[])), (Subtask::Sink(0), 7, sink(&[]))],
        ),
    ];
    for (name, reports) in table {
        let mut pending = pending(&[Subtask::Source(0), Subtask::Sink(0)]);
        assert_eq!(pending.checkpoint, id);
        let mut result = Ok(false);
        for (subtask, checkpoint, report) in reports {
            result = pending.acknowledge(subtask, CheckpointId(checkpoint), report);
        }
        let error = match result {
            Err(error) => error,
            Ok(_) => pending.seal().err().unwrap_or_else(|| panic!("{name}: sealed")),
        };
        assert_eq!(error.kind(), ErrorKind::Bug, "{name}");
    }
}
