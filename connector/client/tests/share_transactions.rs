//! Share acknowledgements in transactions (KIP-1289), against the embedded broker over TCP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::{
    acknowledge_all, acquired_values, client, poll_count, read_values, share_consumer, topic, unique,
    wait_until_decided,
};
use sharestream_base::ids::{MemberEpoch, Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    AcknowledgeType, AcknowledgementBatch, BatchWriter, Client, Isolation, KafkaError, Producer,
    ShareAcknowledgements, ShareConsumer, ShareGroupMetadata, ShareRecords, StagingOrder, TransactionConfig,
    TransactionSession, WriterConfig,
};

/// A broker, a source topic with twenty records on two partitions, an output topic, and a group that has not read.
struct Fixture {
    broker: RunningBroker,
    client: Client,
    source: String,
    output: String,
    group: String,
}

const LIMIT: Duration = Duration::from_secs(20);

impl Fixture {
    async fn start() -> Fixture {
        let broker = Broker::builder(Env::system()).start().await.unwrap();
        let client = client(&broker.bootstrap()).await;
        let source = topic(&client, "source", 2).await;
        let output = topic(&client, "output", 1).await;
        let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
        for n in 0..20 {
            let value = n.to_string();
            let index = PartitionIndex(n % 2);
            producer.writer().append(&source, index, 0, None, Some(value.as_bytes()), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
        Fixture { broker, client, source, output, group: unique("group") }
    }

    async fn consumer(&self) -> ShareConsumer {
        share_consumer(&self.client, &self.group, &self.source).await
    }

    async fn session(&self) -> TransactionSession {
        let config = TransactionConfig::new(unique("txn"));
        let mut session = TransactionSession::new(self.client.clone(), config).unwrap();
        session.init().await.unwrap();
        session
    }

    /// Begins a transaction and writes what was acquired to the output topic.
    async fn begin_and_write(&self, session: &mut TransactionSession, polls: &[ShareRecords]) {
        let mut writer = BatchWriter::new(self.client.clone(), WriterConfig::default());
        writer.set_identity(&session.begin().unwrap());
        for value in acquired_values(polls).keys() {
            writer
                .append(&self.output, PartitionIndex(0), 0, None, Some(value.as_bytes()), &[])
                .await
                .unwrap();
        }
        writer.flush().await.unwrap();
    }

    async fn output(&self) -> Vec<String> {
        let mut values = read_values(&self.client, &self.output, 0, Isolation::ReadCommitted).await;
        values.sort();
        values
    }
}

fn all() -> Vec<String> {
    let mut values: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    values.sort();
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_acknowledgements_are_final_after_commit() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    let mut session = fixture.session().await;
    fixture.begin_and_write(&mut session, &polls).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    // A repeat, as after a lost answer, is a success too.
    let mut staged = Vec::new();
    let order = StagingOrder::OneByOne;
    session.stage_with(&acknowledgements, &metadata, order, |node| staged.push(node)).await.unwrap();
    assert_eq!(staged.len(), 1, "one broker leads both partitions");
    let mut sent = false;
    session.commit_with(|| sent = true).await.unwrap();
    assert!(sent);
    assert_eq!(fixture.output().await, all());
    wait_until_decided(&fixture.client, &fixture.group, &fixture.source).await;
    assert!(consumer.commit_acknowledgements().await.unwrap().is_empty(), "nothing is acknowledged twice");
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_records_come_back_after_abort() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    let mut session = fixture.session().await;
    fixture.begin_and_write(&mut session, &polls).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    session.abort().await.unwrap();
    assert_eq!(fixture.output().await, Vec::<String>::new());
    let again = poll_count(&mut consumer, 20, LIMIT).await;
    let values = acquired_values(&again);
    assert_eq!(values.len(), 20);
    assert!(values.values().all(|count| *count == 2), "{values:?}");
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_session_of_the_same_id_gives_staged_records_back() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    let mut old = fixture.session().await;
    fixture.begin_and_write(&mut old, &polls).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let metadata = consumer.share_group_metadata();
    old.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap();
    let config = TransactionConfig::new(old.transactional_id());
    let mut new = TransactionSession::new(fixture.client.clone(), config).unwrap();
    new.init().await.unwrap();
    assert_eq!(old.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(
        poll_count(&mut consumer, 20, LIMIT).await.iter().map(ShareRecords::acquired_count).sum::<u64>(),
        20
    );
    assert_eq!(fixture.output().await, Vec::<String>::new());
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_member_does_not_hold_dooms_the_transaction() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    consumer.commit_acknowledgements().await.unwrap();
    // Decided already: the locks are gone.
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let mut session = fixture.session().await;
    fixture.begin_and_write(&mut session, &polls).await;
    let metadata = consumer.share_group_metadata();
    let error =
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert_eq!(session.commit().await.unwrap_err().kind(), ErrorKind::InvalidInput, "it can only be aborted");
    session.abort().await.unwrap();
    assert_eq!(fixture.output().await, Vec::<String>::new());
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_that_a_leader_has_never_given_out_are_lost_locks_and_no_defect() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    let mut session = fixture.session().await;
    fixture.begin_and_write(&mut session, &polls).await;
    // As a leader sees it that has begun anew, with nothing acquired.
    let held = &polls[0].partitions[0];
    let beyond = AcknowledgementBatch::uniform(Offset(1_000), Offset(1_009), AcknowledgeType::Accept);
    let mut acknowledgements = ShareAcknowledgements::default();
    acknowledgements.partitions.insert((held.topic_id, held.partition), vec![beyond]);
    let metadata = consumer.share_group_metadata();
    let error =
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await.unwrap_err();
    assert_eq!(error.code(), Some(KafkaError::INVALID_REQUEST), "{error}");
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    session.abort().await.unwrap();
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_member_epoch_leaves_the_transaction_open_for_another_try() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
    let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
    let mut session = fixture.session().await;
    fixture.begin_and_write(&mut session, &polls).await;
    let live = consumer.share_group_metadata();
    for wrong in [live.member_epoch.0 - 1, live.member_epoch.0 + 1] {
        let metadata = ShareGroupMetadata { member_epoch: MemberEpoch(wrong), ..live.clone() };
        let error = session
            .send_share_acknowledgements_to_transaction(&acknowledgements, &metadata)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    }
    session.send_share_acknowledgements_to_transaction(&acknowledgements, &live).await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(fixture.output().await, all());
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_away_is_a_notice_of_lost_locks() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    poll_count(&mut consumer, 20, LIMIT).await;
    assert!(consumer.lost().is_empty());
    fixture.broker.shutdown().await;
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    let mut lost = consumer.lost();
    while lost.is_empty() && clock.now() < deadline {
        let _unreachable = consumer.poll().await;
        lost = consumer.lost();
    }
    assert_eq!(lost.len(), 2, "both partitions: {lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_and_renew_cannot_be_part_of_a_transaction() {
    let fixture = Fixture::start().await;
    let mut consumer = fixture.consumer().await;
    let polls = poll_count(&mut consumer, 20, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Release);
    assert_eq!(consumer.acknowledgements_for_transaction().unwrap_err().kind(), ErrorKind::InvalidInput);
    let released = consumer.commit_acknowledgements().await.unwrap();
    assert!(released.iter().all(|result| result.error.is_none()), "the decisions are still the consumer's");
    consumer.close().await.unwrap();
    fixture.broker.shutdown().await;
}
