//! TxnShareAcknowledge asks for WRITE on the transactional id, READ on the group and READ on each topic
//! (KIP-1289, requirement R21 of `docs/requirements.md`), and what becomes of the staged when a right goes.

use std::time::Duration;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use sharestream_broker::BrokerConfig;
use sharestream_broker::access::{Acl, Operation, Principal, ResourcePattern};
use sharestream_broker::inspect::DurableStateView;
use sharestream_wire::KafkaError;
use sharestream_wire::txn_share_acknowledge::TxnAcknowledgeTopic;
use uuid::Uuid;

use crate::fixtures::{Cluster, GROUP, Member, TOPIC, Transaction};

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(10);
const ID: &str = "job-0";

fn right(operation: Operation, on: ResourcePattern) -> Acl {
    Acl::allow(Principal::user("worker"), operation, on)
}

/// The three rights of the requirement, each with what its absence is answered with.
fn rights() -> [(Acl, KafkaError); 3] {
    [
        (
            right(Operation::Write, ResourcePattern::transactional_id(ID)),
            KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (right(Operation::Read, ResourcePattern::group(GROUP)), KafkaError::GROUP_AUTHORIZATION_FAILED),
        (right(Operation::Read, ResourcePattern::topic(TOPIC)), KafkaError::TOPIC_AUTHORIZATION_FAILED),
    ]
}

/// A member, who is `worker`, with ten acquired records, and a transaction with nothing in it.
async fn ready(timeout: Duration) -> (Cluster, Member, Transaction) {
    let mut cluster = Cluster::start_secured(BrokerConfig::default(), 1).await;
    rights().into_iter().for_each(|(acl, _)| cluster.broker.access().add(acl).unwrap());
    cluster.produce(0, 10).await;
    let mut member = cluster.member("alice").await;
    assert_eq!(member.fetch(LONG).await, [(0, 9, 1)]);
    let transaction = cluster.transaction(ID, timeout).await;
    (cluster, member, transaction)
}

/// Runs of offsets that are staged, by the share coordinator's log, and partitions in open transactions.
fn staged(cluster: &Cluster) -> (usize, usize) {
    let inside = cluster.broker.cluster();
    let shares = inside.share_partitions();
    let runs = shares.iter().flat_map(|share| &share.runs);
    let pending = runs.filter(|run| matches!(run.state, DurableStateView::TxnPending(_)));
    let participants = inside.transactions().iter().map(|one| one.participants.len()).sum();
    (pending.count(), participants)
}

#[tokio::test]
async fn each_of_the_three_rights_is_asked_for_and_without_it_nothing_is_staged() {
    let (mut cluster, member, mut transaction) = ready(LONG).await;
    let access = cluster.broker.access();
    for (acl, code) in rights() {
        assert!(access.remove(&acl));
        assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, code.0, "without {acl:?}");
        assert_eq!(staged(&cluster), (0, 0), "without {acl:?}");
        access.add(acl).unwrap();
    }
    for (acl, code) in rights() {
        let denial = Acl::deny(Principal::everybody(), acl.operation, acl.on);
        access.add(denial.clone()).unwrap();
        assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, code.0, "with {denial:?}");
        assert!(access.remove(&denial));
    }
    assert_eq!(staged(&cluster), (0, 0));
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0, "these three are enough");
    assert_eq!(staged(&cluster), (1, 1));
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 10).await;
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_topic_that_may_not_be_read_is_refused_whole_and_the_others_are_staged() {
    let (mut cluster, member, transaction) = ready(LONG).await;
    let secret = CreatableTopic::default()
        .with_name(TopicName("secret".into()))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let created = cluster.admin.call(CreateTopicsRequest::default().with_topics(vec![secret]), 7).await;
    let mut request = transaction.stage_request(&member, &[(0, 0, 4, 1)]);
    let hidden = TxnAcknowledgeTopic {
        topic_id: created.topics[0].topic_id,
        partitions: request.topics[0].partitions.clone(),
    };
    let unknown = TxnAcknowledgeTopic { topic_id: Uuid::from_u128(7), ..hidden.clone() };
    let mut nowhere = hidden.clone();
    nowhere.partitions[0].partition_index = 99;
    request.topics.splice(0..0, [hidden, nowhere, unknown]);
    let mut transaction = transaction;
    let response = transaction.connection.call(request, 0).await;
    assert_eq!(response.error_code, 0);
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let codes: Vec<i16> = partitions.map(|partition| partition.error_code).collect();
    let refused = KafkaError::TOPIC_AUTHORIZATION_FAILED.0;
    // Which partitions a topic has is not told either.
    assert_eq!(codes, [refused, refused, KafkaError::UNKNOWN_TOPIC_ID.0, 0]);
    let shares = cluster.broker.cluster().share_partitions();
    assert_eq!(shares.len(), 1, "nothing was loaded for the refused topic");
    transaction.end(false).await;
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn the_right_to_read_that_goes_after_the_stage_does_not_stop_the_commit() {
    let (mut cluster, member, mut transaction) = ready(LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    let access = cluster.broker.access();
    rights().into_iter().skip(1).for_each(|(acl, _)| assert!(access.remove(&acl)));
    // Not even the same stage again, which would change nothing.
    let refused = KafkaError::GROUP_AUTHORIZATION_FAILED.0;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, refused);
    transaction.end(true).await;
    eventually_start_offset(&mut cluster, 10).await;
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn the_right_to_the_transactional_id_that_goes_after_the_stage_leaves_it_to_its_time_out() {
    let (cluster, mut member, mut transaction) = ready(Duration::from_millis(400)).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1)]).await, 0);
    let [(write, code), ..] = rights();
    assert!(cluster.broker.access().remove(&write));
    assert_eq!(transaction.try_end(true).await, code.0, "no commit");
    assert_eq!(transaction.try_end(false).await, code.0, "nor an abort");
    assert_eq!(staged(&cluster), (1, 1), "it is still open");
    assert_eq!(member.fetch(NO_WAIT).await, [], "and still holds its records");
    assert_eq!(member.fetch(LONG).await, [(0, 9, 2)], "until the coordinator aborts it");
    cluster.broker.shutdown().await;
}

async fn eventually_start_offset(cluster: &mut Cluster, expected: i64) {
    for _ in 0..500 {
        if cluster.start_offset(0).await == expected {
            return;
        }
        cluster.env.clock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(cluster.start_offset(0).await, expected);
}
