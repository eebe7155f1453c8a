//! What one transaction may carry of share acknowledgements, and where it takes them (KIP-1289; requirements R1, R4,
//! R6, R8, R9, R14, R19 of `docs/requirements.md`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{
    acknowledge_all, acquired_values, client, poll_count, read_values, share_consumer,
    start_at_the_beginning, topic, unique, wait_until_decided,
};
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::inspect::{DurableStateView, StagedIntent, StagedView};
use sharestream_broker::{Broker, RunningBroker, SHARE_STATE_TOPIC};
use sharestream_client::{
    AcknowledgeType, AcquireMode, BatchWriter, Client, Isolation, Producer, ShareAcknowledgements,
    ShareConsumer, ShareConsumerConfig, ShareGroupMetadata, ShareRecords, StagingOrder, TransactionConfig,
    TransactionSession, WriterConfig,
};

const LIMIT: Duration = Duration::from_secs(20);

struct World {
    broker: RunningBroker,
    client: Client,
    source: String,
    outputs: [String; 2],
    group: String,
}

impl World {
    async fn start(nodes: u16) -> World {
        let broker = Broker::builder(Env::system()).nodes(nodes).start().await.unwrap();
        let client = client(&broker.bootstrap()).await;
        let source = topic(&client, "source", 4).await;
        let outputs = [topic(&client, "left", 1).await, topic(&client, "right", 1).await];
        let world = World { broker, client, source, outputs, group: unique("group") };
        world.produce(0..20).await;
        world
    }

    async fn produce(&self, values: std::ops::Range<i32>) {
        let mut producer = Producer::connect(self.client.clone(), WriterConfig::default()).await.unwrap();
        for n in values {
            let (index, value) = (PartitionIndex(n % 4), n.to_string());
            producer
                .writer()
                .append(&self.source, index, 0, None, Some(value.as_bytes()), &[])
                .await
                .unwrap();
        }
        producer.flush().await.unwrap();
    }

    /// A session of a process of its own: nothing but the bootstrap address is shared.
    async fn elsewhere(&self) -> (Client, TransactionSession) {
        let client = client(&self.broker.bootstrap()).await;
        let config = TransactionConfig::new(unique("txn"));
        let mut session = TransactionSession::new(client.clone(), config).unwrap();
        session.init().await.unwrap();
        (client, session)
    }

    async fn output(&self, index: usize) -> Vec<String> {
        let mut values = read_values(&self.client, &self.outputs[index], 0, Isolation::ReadCommitted).await;
        values.sort();
        values
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_staged_outside_an_open_transaction() {
    let world = World::start(1).await;
    let mut consumer = share_consumer(&world.client, &world.group, &world.source).await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    let (client, mut session) = world.elsewhere().await;
    let refused =
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let fresh = TransactionSession::new(client, TransactionConfig::new(unique("txn")));
    let refused =
        fresh.unwrap().send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    session.begin().unwrap();
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    session.commit().await.unwrap();
    wait_until_decided(&world.client, &world.group, &world.source).await;
    let refused =
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "its transaction is over: {refused}");
    consumer.close().await.unwrap();
    world.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledgements_alone_are_a_transaction_that_another_process_may_commit() {
    let world = World::start(1).await;
    let mut consumer = share_consumer(&world.client, &world.group, &world.source).await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let taken = consumer.acknowledgements_for_transaction().unwrap();
    assert!(consumer.acknowledgements_for_transaction().unwrap().is_empty(), "taking drains");
    let live = consumer.share_group_metadata();
    // As they arrive in another process: rebuilt from plain values.
    let mut acknowledgements = ShareAcknowledgements::default();
    for (key, batches) in taken.acknowledgements() {
        acknowledgements.partitions.insert(*key, batches.clone());
    }
    let metadata = ShareGroupMetadata {
        group_id: world.group.clone(),
        member_id: live.member_id.clone(),
        member_epoch: live.member_epoch,
    };
    let (_client, mut session) = world.elsewhere().await;
    session.begin().unwrap();
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    consumer.close().await.unwrap();
    session.commit().await.unwrap();
    wait_until_decided(&world.client, &world.group, &world.source).await;
    world.broker.shutdown().await;
}

/// Accepts everything of some polls but one offset, if there is more; gives the values of what it accepted.
fn accept_all_but_one(consumer: &mut ShareConsumer, polls: &[ShareRecords]) -> BTreeSet<String> {
    let mut offsets = Vec::new();
    for partition in polls.iter().flat_map(|poll| &poll.partitions) {
        for range in &partition.acquired {
            let key = (partition.topic_id, partition.partition);
            offsets.extend((range.first.0..=range.last.0).map(|offset| (key, offset)));
        }
    }
    assert!(offsets.len() > 1);
    offsets.pop();
    for ((topic_id, partition), offset) in &offsets {
        let offset = Offset(*offset);
        consumer.acknowledge(*topic_id, *partition, offset, offset, AcknowledgeType::Accept);
    }
    // As `World::produce` spreads them.
    offsets.iter().map(|((_, partition), offset)| (offset * 4 + i64::from(partition.0)).to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subsets_of_several_polls_and_members_with_several_outputs_are_one_transaction() {
    let world = World::start(1).await;
    start_at_the_beginning(&world.client, &world.group).await;
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut config = ShareConsumerConfig::new(&world.group, [&world.source]);
        (config.max_poll_records, config.acquire_mode) = (2, AcquireMode::RecordLimit);
        members.push(ShareConsumer::join(world.client.clone(), config).await.unwrap());
    }
    let mut staged = Vec::new();
    for consumer in &mut members {
        let polls = poll_count(consumer, 3, LIMIT).await;
        assert!(polls.len() > 1);
        staged.push(accept_all_but_one(consumer, &polls));
    }

    let (client, mut session) = world.elsewhere().await;
    let identity = session.begin().unwrap();
    let mut writer = BatchWriter::new(client, WriterConfig::default());
    writer.set_identity(&identity);
    for (output, values) in world.outputs.iter().zip(&staged) {
        for value in values {
            writer.append(output, PartitionIndex(0), 0, None, Some(value.as_bytes()), &[]).await.unwrap();
        }
    }
    writer.flush().await.unwrap();
    for consumer in &mut members {
        let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
        let metadata = consumer.share_group_metadata();
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    }
    session.commit().await.unwrap();
    for (index, values) in staged.iter().enumerate() {
        assert_eq!(world.output(index).await, values.iter().cloned().collect::<Vec<_>>());
    }
    for consumer in members {
        consumer.close().await.unwrap();
    }

    // What was staged never comes again, all else does.
    let is_staged = |value: &String| staged.iter().any(|one| one.contains(value));
    let rest: BTreeSet<String> = (0..20).map(|n| n.to_string()).filter(|value| !is_staged(value)).collect();
    let mut carol = share_consumer(&world.client, &world.group, &world.source).await;
    let again = poll_count(&mut carol, rest.len() as u64, LIMIT).await;
    assert_eq!(acquired_values(&again).into_keys().collect::<BTreeSet<_>>(), rest);
    carol.close().await.unwrap();
    world.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staging_follows_source_leaders_that_moved_and_a_repeat_changes_nothing() {
    let world = World::start(3).await;
    let mut consumer = share_consumer(&world.client, &world.group, &world.source).await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    let (_client, mut session) = world.elsewhere().await;
    session.begin().unwrap();
    let mut leaders = BTreeSet::new();
    let order = StagingOrder::OneByOne;
    session
        .stage_with(&acknowledgements, &metadata, order, |node| {
            leaders.insert(node);
        })
        .await
        .unwrap();
    assert!(leaders.len() > 1, "each leader is asked: {leaders:?}");
    // Every partition goes to another node; the session still believes in the old leaders.
    let cluster = world.broker.cluster();
    for index in 0..4 {
        let leader = cluster.leader(&world.source, PartitionIndex(index));
        let to = cluster.nodes().into_iter().find(|node| Some(*node) != leader).unwrap();
        world.broker.move_leader(&world.source, PartitionIndex(index), to).unwrap();
    }
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    session.commit().await.unwrap();
    wait_until_decided(&world.client, &world.group, &world.source).await;
    consumer.close().await.unwrap();
    world.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_is_registered_and_durable_with_its_intent_before_it_is_answered() {
    let world = World::start(3).await;
    let mut consumer = share_consumer(&world.client, &world.group, &world.source).await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Reject);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    let (_client, mut session) = world.elsewhere().await;
    let identity = session.begin().unwrap();
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();

    let cluster = world.broker.cluster();
    let keys = acknowledgements.acknowledgements().keys();
    let mapped = keys.map(|(topic_id, index)| cluster.share_state_partition(&world.group, *topic_id, *index));
    let mapped: BTreeSet<PartitionIndex> = mapped.collect();
    let transactions = cluster.transactions();
    let transaction = transactions.iter().find(|one| one.transactional_id == session.transactional_id());
    let participants = &transaction.unwrap().participants;
    assert!(participants.iter().all(|(topic, _)| topic == SHARE_STATE_TOPIC), "{participants:?}");
    assert_eq!(participants.iter().map(|(_, index)| *index).collect::<BTreeSet<_>>(), mapped);
    let staged = StagedView {
        producer_id: identity.producer_id,
        producer_epoch: identity.producer_epoch,
        intent: StagedIntent::Reject,
    };
    for share in cluster.share_partitions() {
        let states: Vec<_> = share.runs.iter().map(|run| (run.first.0, run.last.0, run.state)).collect();
        assert_eq!(states, [(0, 4, DurableStateView::TxnPending(staged))], "partition {}", share.partition);
    }
    session.commit().await.unwrap();
    wait_until_decided(&world.client, &world.group, &world.source).await;
    consumer.close().await.unwrap();
    world.broker.shutdown().await;
}
