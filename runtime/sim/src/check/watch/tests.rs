#![allow(clippy::unwrap_used, reason = "tests end at the first surprise")]

use bytes::Bytes;
use sharestream_base::ids::{
    CheckpointId, JobEpoch, LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, StateEpoch,
};
use sharestream_broker::inspect::{
    DurableRunView, DurableStateView, Fate, MemoryRunView, MemoryStateView, MemoryView,
};

use super::*;

fn watch() -> Watch {
    watch_of(false)
}

fn watch_of(at_least_once: bool) -> Watch {
    let mut plan = Plan::draw(0);
    plan.group.delivery_limit = 5;
    plan.at_least_once = at_least_once;
    Watch::new(&plan)
}

fn log(topic: &str) -> PartitionView {
    PartitionView {
        topic: topic.to_owned(),
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        leader: Some(NodeId(1)),
        leader_epoch: LeaderEpoch(3),
        log_start: Offset(0),
        last_stable_offset: Offset(7),
        high_watermark: Offset(9),
    }
}

fn texts(found: &[Finding]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Shows two states of one log; what was found at the second.
fn logs_in_turn(first: PartitionView, second: PartitionView) -> String {
    let mut watch = watch();
    assert_eq!(texts(&watch.logs.ends(&[first])), "");
    texts(&watch.logs.ends(&[second]))
}

#[test]
fn log_ends_and_leader_epochs_only_rise() {
    let same = log(SOURCE);
    assert_eq!(logs_in_turn(same.clone(), same.clone()), "");
    let back = PartitionView { high_watermark: Offset(8), ..same.clone() };
    assert!(logs_in_turn(same.clone(), back).contains("high watermark of numbers/0 went back from 9 to 8"));
    let back = PartitionView { last_stable_offset: Offset(6), ..same.clone() };
    assert!(logs_in_turn(same.clone(), back).contains("last stable offset"));
    let back = PartitionView { leader_epoch: LeaderEpoch(2), ..same.clone() };
    assert!(logs_in_turn(same.clone(), back).contains("leader epoch"));
    let ahead = PartitionView { log_start: Offset(2), ..same.clone() };
    assert!(logs_in_turn(ahead, same).contains("log start"));
}

#[test]
fn an_epoch_has_one_leader() {
    let other = PartitionView { leader: Some(NodeId(2)), ..log(SOURCE) };
    assert!(logs_in_turn(log(SOURCE), other.clone()).contains("two leaders in epoch 3"));
    assert_eq!(logs_in_turn(log(SOURCE), PartitionView { leader_epoch: LeaderEpoch(4), ..other }), "");
}

#[test]
fn nothing_is_stable_that_is_not_there() {
    let beyond = PartitionView { last_stable_offset: Offset(10), ..log(SOURCE) };
    assert!(texts(&watch().logs.ends(&[beyond])).contains("beyond its high watermark 9"));
}

fn batch(first: i64, fate: Fate, text: &'static str) -> BatchView {
    BatchView {
        first: Offset(first),
        last: Offset(first),
        leader_epoch: LeaderEpoch(3),
        producer: Some((ProducerId(4), ProducerEpoch(5))),
        base_sequence: 0,
        fate,
        bytes: Bytes::from_static(text.as_bytes()),
    }
}

fn fates_in_turn(first: &[BatchView], second: &[BatchView]) -> String {
    let mut watch = watch();
    assert_eq!(texts(&watch.logs.fates(&log(OUTPUT), first, false)), "");
    texts(&watch.logs.fates(&log(OUTPUT), second, false))
}

#[test]
fn what_was_decided_of_a_batch_stays() {
    let committed = batch(0, Fate::Committed, "a");
    let open = batch(0, Fate::Open, "a");
    assert_eq!(fates_in_turn(std::slice::from_ref(&open), &[batch(0, Fate::Aborted, "a")]), "");
    assert!(
        fates_in_turn(std::slice::from_ref(&committed), &[batch(0, Fate::Aborted, "a")])
            .contains("was Committed and is Aborted")
    );
    assert!(fates_in_turn(std::slice::from_ref(&committed), &[open]).contains("was Committed and is Open"));
}

#[test]
fn an_offset_has_one_value_and_stays() {
    let plain = [batch(0, Fate::Plain, "a")];
    assert!(fates_in_turn(&plain, &[batch(0, Fate::Plain, "b")]).contains("another batch at offset 0"));
    assert!(fates_in_turn(&plain, &[]).contains("1 batches of output/0 were there"));
}

fn transaction(epoch: i16, state: &'static str) -> TransactionView {
    TransactionView {
        transactional_id: "id".to_owned(),
        producer_id: ProducerId(4),
        producer_epoch: ProducerEpoch(epoch),
        state,
        timeout_ms: 1,
        started_ms: None,
        participants: Vec::new(),
    }
}

fn transactions_in_turn(views: &[TransactionView]) -> String {
    let mut watch = watch();
    texts(
        &views
            .iter()
            .flat_map(|view| watch.transactions.look(std::slice::from_ref(view)))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn producer_epochs_of_a_transactional_id_only_rise() {
    assert_eq!(transactions_in_turn(&[transaction(4, "Empty"), transaction(5, "Ongoing")]), "");
    let found = transactions_in_turn(&[transaction(5, "Empty"), transaction(4, "Ongoing")]);
    assert!(found.contains("went back from 5 to 4"), "{found}");
    let other = TransactionView { producer_id: ProducerId(9), ..transaction(0, "Empty") };
    assert_eq!(transactions_in_turn(&[transaction(5, "Empty"), other.clone()]), "");
    let found = transactions_in_turn(&[transaction(5, "Empty"), other, transaction(6, "Empty")]);
    assert!(found.contains("its earlier producer id 4 again"), "{found}");
}

#[test]
fn a_transaction_that_was_committed_is_never_aborted() {
    let committing = transaction(5, "PrepareCommit");
    assert_eq!(transactions_in_turn(&[committing.clone(), transaction(5, "CompleteCommit")]), "");
    assert_eq!(transactions_in_turn(&[committing.clone(), transaction(6, "CompleteAbort")]), "");
    let found = transactions_in_turn(&[committing, transaction(5, "CompleteAbort")]);
    assert!(found.contains("was PrepareCommit at epoch 5 and is CompleteAbort"), "{found}");
}

fn run(first: i64, last: i64, delivery_count: u16, state: DurableStateView) -> DurableRunView {
    DurableRunView { first: Offset(first), last: Offset(last), delivery_count, state }
}

fn share(start: i64, runs: &[DurableRunView]) -> SharePartitionView {
    SharePartitionView {
        group: GROUP.to_owned(),
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        state_epoch: StateEpoch(1),
        leader_epoch: LeaderEpoch(3),
        start_offset: Some(Offset(start)),
        runs: runs.to_vec(),
        memory: None,
    }
}

fn shares_in_turn(views: &[SharePartitionView]) -> String {
    let mut watch = watch();
    let leader_epoch = Some(LeaderEpoch(3));
    texts(&views.iter().flat_map(|view| watch.shares.look(view, leader_epoch).findings).collect::<Vec<_>>())
}

#[test]
fn start_offsets_and_epochs_of_share_partitions_only_rise_but_for_a_reset() {
    assert!(shares_in_turn(&[share(4, &[]), share(3, &[])]).contains("start offset went back from 4 to 3"));
    let reset = SharePartitionView { state_epoch: StateEpoch(2), ..share(0, &[]) };
    assert_eq!(shares_in_turn(&[share(4, &[]), reset.clone()]), "");
    assert!(shares_in_turn(&[reset, share(4, &[])]).contains("state epoch went back"));
    let fenced = SharePartitionView { leader_epoch: LeaderEpoch(2), ..share(4, &[]) };
    assert!(shares_in_turn(&[share(4, &[]), fenced]).contains("leader epoch went back"));
}

#[test]
fn what_is_done_is_never_available_again() {
    for done in [DurableStateView::Acknowledged, DurableStateView::Archived] {
        let first = share(0, &[run(1, 2, 1, done)]);
        assert_eq!(shares_in_turn(&[first.clone(), share(3, &[])]), "");
        let found = shares_in_turn(&[first.clone(), share(0, &[run(1, 1, 1, done)])]);
        assert!(found.contains("record 0/2: it was") && found.contains("available again"), "{found}");
        let found = shares_in_turn(&[first, share(0, &[run(1, 2, 1, DurableStateView::Available)])]);
        assert!(found.contains("record 0/1: it was"), "{found}");
    }
}

#[test]
fn the_way_in_which_a_record_ended_stays() {
    let acknowledged = share(0, &[run(0, 0, 1, DurableStateView::Acknowledged)]);
    let archived = share(0, &[run(0, 0, 1, DurableStateView::Archived)]);
    assert!(
        shares_in_turn(&[acknowledged.clone(), archived.clone()])
            .contains("it was acknowledged and is archived")
    );
    assert!(shares_in_turn(&[archived, acknowledged]).contains("it was archived and is acknowledged"));
}

#[test]
fn runs_do_not_overlap() {
    let runs = [run(0, 3, 1, DurableStateView::Available), run(3, 4, 1, DurableStateView::Archived)];
    assert!(shares_in_turn(&[share(0, &runs)]).contains("its durable runs overlap"));
}

#[test]
fn deliveries_keep_to_their_limit() {
    assert_eq!(shares_in_turn(&[share(0, &[run(0, 0, 5, DurableStateView::Available)])]), "");
    let found = shares_in_turn(&[share(0, &[run(0, 0, 6, DurableStateView::Available)])]);
    assert!(found.contains("offset 0 was delivered 6 times, and the limit is 5"), "{found}");
}

fn with_memory(mut view: SharePartitionView, start: i64, state: MemoryStateView) -> SharePartitionView {
    view.memory = Some(MemoryView {
        node: NodeId(1),
        leader_epoch: LeaderEpoch(3),
        state_epoch: StateEpoch(1),
        start_offset: Offset(start),
        runs: vec![MemoryRunView { first: Offset(1), last: Offset(1), delivery_count: 1, state }],
    });
    view
}

#[test]
fn a_leader_hands_out_nothing_that_is_done_durably() {
    let done = share(0, &[run(1, 1, 1, DurableStateView::Acknowledged)]);
    let found = shares_in_turn(&[with_memory(done.clone(), 0, MemoryStateView::Available)]);
    assert!(found.contains("record 0/1: it is Acknowledged durably, and Available"), "{found}");
    assert_eq!(shares_in_turn(&[with_memory(done.clone(), 0, MemoryStateView::Settling)]), "");
    let mut old = with_memory(done, 0, MemoryStateView::Available);
    old.memory.as_mut().unwrap().leader_epoch = LeaderEpoch(2);
    assert_eq!(shares_in_turn(&[old]), "", "an older leader can hand out nothing");
}

#[test]
fn a_plain_acknowledgement_whose_write_was_not_answered_may_be_repeated() {
    let done = share(0, &[run(1, 1, 1, DurableStateView::Acknowledged)]);
    let view = with_memory(done, 0, MemoryStateView::Available);
    assert!(watch_of(true).shares.look(&view, Some(LeaderEpoch(3))).findings.is_empty());
}

#[test]
fn a_leader_passes_only_what_is_done_durably() {
    let done = share(0, &[run(0, 0, 1, DurableStateView::Archived)]);
    assert_eq!(shares_in_turn(&[with_memory(done.clone(), 1, MemoryStateView::Available)]), "");
    let open = share(0, &[run(0, 0, 1, DurableStateView::Available)]);
    let found = shares_in_turn(&[with_memory(open, 1, MemoryStateView::Available)]);
    assert!(found.contains("its leader stands at 1, and offset 0 is not done durably"), "{found}");
}

/// A batch with the outcome of a transaction that accepts record 0/1.
fn outcome(fate: Fate) -> BatchView {
    use sharestream_core::commit::AckMode;
    use sharestream_core::decision::{DecidedRange, Decision};
    use sharestream_kafka::outcome::{
        FORMAT_VERSION, OutcomeCounts, OutcomePartition, OutcomeRecord, ReplayGeneration,
    };
    use sharestream_wire::records::{BatchBuilder, BatchMeta};

    let range = DecidedRange { first: Offset(1), last: Offset(1), decision: Decision::Accept };
    let record = OutcomeRecord {
        format_version: FORMAT_VERSION,
        job: "job".to_owned(),
        instance: "r0".to_owned(),
        job_epoch: JobEpoch(1),
        checkpoint: CheckpointId(1),
        predecessor: None,
        manifest: None,
        mode: AckMode::Transactional,
        group: GROUP.to_owned(),
        partitions: vec![OutcomePartition {
            topic: SOURCE.to_owned(),
            topic_id: TopicId::default(),
            partition: PartitionIndex(0),
            ranges: vec![range],
        }],
        transactional_id: "id".to_owned(),
        producer_id: ProducerId(4),
        producer_epoch: ProducerEpoch(5),
        deadline_ms: 0,
        counts: OutcomeCounts::default(),
        generation: ReplayGeneration::default(),
    };
    let mut builder = BatchBuilder::default();
    let (key, value) = (record.key(), record.encode().unwrap());
    builder.append(0, Some(key.as_bytes()), Some(&value), &[]).unwrap();
    BatchView { bytes: builder.build(&BatchMeta::default()).unwrap(), ..batch(0, fate, "") }
}

fn acknowledged_with(fate: Fate, state: &'static str) -> String {
    let sample = Sample {
        partitions: vec![log(SOURCE)],
        shares: vec![share(0, &[run(1, 1, 1, DurableStateView::Acknowledged)])],
        transactions: vec![transaction(6, state)],
        batches: vec![(log(OUTCOMES), vec![outcome(fate)])],
    };
    texts(&watch().judge(&sample))
}

#[test]
fn a_record_is_acknowledged_only_by_a_transaction_that_was_decided_to_commit() {
    assert_eq!(acknowledged_with(Fate::Committed, "Ongoing"), "");
    assert_eq!(acknowledged_with(Fate::Open, "PrepareCommit"), "", "the markers are under way");
    let found = acknowledged_with(Fate::Open, "Ongoing");
    assert!(found.contains("record 0/1: it is acknowledged durably and no transaction"), "{found}");
    let found = acknowledged_with(Fate::Aborted, "CompleteAbort");
    assert!(found.contains("was committed: Aborted (CompleteAbort)"), "{found}");
}

#[test]
fn a_record_that_no_outcome_accepts_is_not_acknowledged() {
    let sample = Sample {
        partitions: vec![log(SOURCE)],
        shares: vec![share(0, &[run(1, 2, 1, DurableStateView::Acknowledged)])],
        batches: vec![(log(OUTCOMES), vec![outcome(Fate::Committed)])],
        ..Sample::default()
    };
    let found = texts(&watch().judge(&sample));
    assert!(found.contains("record 0/2") && found.contains("none decides it"), "{found}");
    assert!(!found.contains("record 0/1"), "{found}");
}

#[test]
fn a_full_look_follows_a_write_and_is_rarer_the_longer_the_logs_are() {
    let mut pace = Pace::default();
    assert!(pace.is_due(&[log(SOURCE)]));
    pace.looked_at(&[log(SOURCE)]);
    assert!(!pace.is_due(&[log(SOURCE)]), "nothing was written");
    let grown = PartitionView { high_watermark: Offset(10), ..log(SOURCE) };
    assert!(pace.is_due(std::slice::from_ref(&grown)));
    let long = PartitionView { high_watermark: Offset(RECORDS_PER_STEP * 5), ..log(SHARE_STATE_TOPIC) };
    pace.looked_at(&[grown, log(SHARE_STATE_TOPIC)]);
    let steps = (0..).position(|_| pace.is_due(std::slice::from_ref(&long)));
    assert_eq!(steps, Some(5));
}
