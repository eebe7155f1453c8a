use sharestream_base::ids::{
    LeaderEpoch, MemberEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, StateEpoch, TopicId,
};
use sharestream_broker::inspect::{DurableRunView, MemoryRunView, MemoryView, StagedIntent, StagedView};

use super::*;

fn list_of(remains: Remains) -> String {
    remains.list().join("; ")
}

fn staged() -> StagedView {
    let (producer_id, producer_epoch) = (ProducerId(4), ProducerEpoch(5));
    StagedView { producer_id, producer_epoch, intent: StagedIntent::Accept }
}

fn share(durable: DurableStateView, memory: MemoryStateView) -> Remains {
    let (first, last) = (Offset(1), Offset(2));
    let memory = MemoryView {
        node: NodeId(1),
        leader_epoch: LeaderEpoch(0),
        state_epoch: StateEpoch(0),
        start_offset: Offset(0),
        runs: vec![MemoryRunView { first, last, delivery_count: 1, state: memory }],
    };
    let view = SharePartitionView {
        group: "group".to_owned(),
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        state_epoch: StateEpoch(0),
        leader_epoch: LeaderEpoch(0),
        start_offset: Some(Offset(0)),
        runs: vec![DurableRunView { first, last, delivery_count: 1, state: durable }],
        memory: Some(memory),
    };
    Remains { shares: vec![view], ..Remains::default() }
}

#[test]
fn no_record_is_held_or_pending() {
    let done = MemoryStateView::Archived;
    assert_eq!(list_of(share(DurableStateView::Acknowledged, MemoryStateView::Acknowledged)), "");
    assert_eq!(list_of(share(DurableStateView::Archived, MemoryStateView::Available)), "");
    let pending = list_of(share(DurableStateView::TxnPending(staged()), done));
    assert!(
        pending.contains("1 to 2 are durably pending in the transaction of producer 4 epoch 5"),
        "{pending}"
    );
    for held in
        [MemoryStateView::Settling, MemoryStateView::Staging(staged()), MemoryStateView::TxnPending(staged())]
    {
        assert!(list_of(share(DurableStateView::Available, held.clone())).contains("1 to 2 are"), "{held:?}");
    }
}

#[test]
fn no_transaction_is_open() {
    let view = |started_ms| TransactionView {
        transactional_id: "id".to_owned(),
        producer_id: ProducerId(4),
        producer_epoch: ProducerEpoch(5),
        state: "Ongoing",
        timeout_ms: 1,
        started_ms,
        participants: Vec::new(),
    };
    let of = |view| Remains { transactions: vec![view], ..Remains::default() };
    assert_eq!(list_of(of(view(None))), "");
    assert_eq!(list_of(of(view(Some(1)))), "transaction id is Ongoing");
}

#[test]
fn no_member_and_no_session_is_left() {
    let group = |members| GroupView { group: "group".to_owned(), coordinator: NodeId(1), members };
    let of = |members| Remains { groups: vec![group(members)], ..Remains::default() };
    assert_eq!(list_of(of(Vec::new())), "");
    assert!(list_of(of(vec![("m".to_owned(), MemberEpoch(2))])).contains("member m of group group"));
    let sessions = |count| Remains { sessions: [(NodeId(1), count)].into(), ..Remains::default() };
    assert_eq!(list_of(sessions(0)), "");
    assert!(list_of(sessions(2)).contains("node 1 has 2 open share sessions"));
}

#[test]
fn only_nodes_and_outsiders_have_connections_and_outsiders_few() {
    let link = |from: &str, to: &str, count| {
        list_of(Remains { links: [((from.into(), to.into()), count)].into(), ..Remains::default() })
    };
    assert_eq!(link("checker", "node-1", 1), "");
    assert_eq!(link("node-2", "node-1", 30), "");
    assert!(link("worker-0.1", "node-1", 1).contains("worker-0.1 has ended"));
    assert!(link("loader", "node-1", 1).contains("loader has ended"));
    assert!(link("reader", "node-1", CONNECTIONS_MAX + 1).contains("5 connections from reader to node-1"));
}
