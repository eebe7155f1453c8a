//! Every API refuses who has no right, with the error of the resource, and serves who has just the right that
//! the table of requirements names.

use std::collections::BTreeSet;

use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_broker::access::Operation::{
    self, Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use sharestream_broker::access::{ResourcePattern, ResourceType};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::initialize_share_group_state::InitializeShareGroupStateRequest;
use sharestream_wire::messages::read_share_group_state::ReadShareGroupStateRequest;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;

use crate::asker::{Ask, Asker, ID};
use crate::fixtures::{GROUP, TOPIC};
use crate::world::World;

/// Each ask, with the rights that it takes and what the absence of each is answered with, in the order of the
/// checks.
fn table() -> Vec<(Ask, Vec<(Operation, ResourcePattern)>)> {
    let topic = || ResourcePattern::topic(TOPIC);
    let group = || ResourcePattern::group(GROUP);
    let id = || ResourcePattern::transactional_id(ID);
    let cluster = ResourcePattern::cluster;
    vec![
        (Ask::Produce, vec![(Write, topic())]),
        (Ask::ProduceInTransaction, vec![(Write, id()), (Write, topic())]),
        (Ask::Fetch, vec![(Read, topic())]),
        (Ask::FetchById, vec![(Read, topic())]),
        (Ask::ListOffsets, vec![(Describe, topic())]),
        (Ask::DeleteRecords, vec![(Delete, topic())]),
        (Ask::Metadata, vec![(Describe, topic())]),
        (Ask::FindGroup, vec![(Describe, group())]),
        (Ask::FindTransaction, vec![(Describe, id())]),
        (Ask::FindShare, vec![(ClusterAction, cluster())]),
        (Ask::DeleteGroups, vec![(Delete, group())]),
        (Ask::DescribeProducers, vec![(Read, topic())]),
        (Ask::CreateTopics, vec![(Create, ResourcePattern::topic("new").prefixed())]),
        (Ask::CreateTopics, vec![(Create, cluster())]),
        (Ask::DeleteTopics, vec![(Delete, ResourcePattern::topic("new").prefixed())]),
        (Ask::TopicConfigs, vec![(DescribeConfigs, topic())]),
        (Ask::GroupConfigs, vec![(DescribeConfigs, group())]),
        (Ask::NodeConfigs, vec![(DescribeConfigs, cluster())]),
        (Ask::AlterTopicConfigs, vec![(AlterConfigs, topic())]),
        (Ask::AlterGroupConfigs, vec![(AlterConfigs, group())]),
        (Ask::UpdateFeatures, vec![(Alter, cluster())]),
        (Ask::DescribeAcls, vec![(Describe, cluster())]),
        (Ask::CreateAcls, vec![(Alter, cluster())]),
        (Ask::DeleteAcls, vec![(Alter, cluster())]),
        (Ask::InitTransaction, vec![(Write, id())]),
        (Ask::InitIdempotent, vec![(IdempotentWrite, cluster())]),
        (Ask::InitIdempotent, vec![(Write, ResourcePattern::topic("any"))]),
        (Ask::AddPartitions, vec![(Write, id()), (Write, topic())]),
        (Ask::AddPartitionsFromLeader, vec![(ClusterAction, cluster())]),
        (Ask::EndTxn, vec![(Write, id())]),
        (Ask::WriteTxnMarkers, vec![(ClusterAction, cluster())]),
        (Ask::WriteTxnMarkers, vec![(Alter, cluster())]),
        (Ask::DescribeTransactions, vec![(Describe, id())]),
        (Ask::Heartbeat, vec![(Read, group()), (Describe, topic())]),
        (Ask::ShareDescribe, vec![(Describe, group())]),
        (Ask::ShareOffsets, vec![(Describe, group()), (Describe, topic())]),
        (Ask::AlterShareOffsets, vec![(Read, group()), (Read, topic())]),
        (Ask::DeleteShareOffsets, vec![(Delete, group()), (Read, topic())]),
        (Ask::ShareFetch, vec![(Read, group()), (Read, topic())]),
        (Ask::ShareAcknowledge, vec![(Read, group()), (Read, topic())]),
        (Ask::Stage, vec![(Write, id()), (Read, group())]),
        (Ask::InitializeState, vec![(ClusterAction, cluster())]),
        (Ask::ReadState, vec![(ClusterAction, cluster())]),
        (Ask::WriteState, vec![(ClusterAction, cluster())]),
        (Ask::DeleteState, vec![(ClusterAction, cluster())]),
        (Ask::TxnOutcome, vec![(ClusterAction, cluster())]),
    ]
}

/// What is hidden instead of being refused, or open to all: other tests look at these.
const ELSEWHERE: [i16; 6] = [
    ApiVersionsRequest::KEY,
    SaslHandshakeRequest::KEY,
    SaslAuthenticateRequest::KEY,
    DescribeClusterRequest::KEY,
    ListGroupsRequest::KEY,
    ListTransactionsRequest::KEY,
];

/// Keys that clients are not told of.
const HIDDEN: [i16; 4] = [
    InitializeShareGroupStateRequest::KEY,
    ReadShareGroupStateRequest::KEY,
    WriteShareGroupStateRequest::KEY,
    ShareTxnOutcomeRequest::KEY,
];

fn code_of(kind: ResourceType) -> i16 {
    use ResourceType::{Cluster, Group, Topic, TransactionalId};
    match kind {
        Topic => KafkaError::TOPIC_AUTHORIZATION_FAILED.0,
        Group => KafkaError::GROUP_AUTHORIZATION_FAILED.0,
        Cluster => KafkaError::CLUSTER_AUTHORIZATION_FAILED.0,
        TransactionalId => KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.0,
    }
}

fn is_refusal(code: i16) -> bool {
    [29, 30, 31, 53].contains(&code)
}

/// What only our broker serves, or only in private versions.
fn is_ours(ask: Ask) -> bool {
    matches!(ask, Ask::Stage | Ask::InitializeState | Ask::ReadState | Ask::WriteState | Ask::TxnOutcome)
}

/// Asks for everything without rights, then with one after the other; gives the APIs that were asked.
pub(crate) async fn every_right_is_asked_for(world: &mut World) -> BTreeSet<i16> {
    let mut asker = Asker::new(world.worker().await, world.topic_id);
    let is_kafka = world.is_kafka();
    for (ask, rights) in table().into_iter().filter(|(ask, _)| !(is_kafka && is_ours(*ask))) {
        for (operation, on) in &rights {
            // Where several rights do, the one that is asked for first is what the answer names.
            let expected = match ask {
                Ask::InitIdempotent => KafkaError::CLUSTER_AUTHORIZATION_FAILED.0,
                Ask::CreateTopics => KafkaError::TOPIC_AUTHORIZATION_FAILED.0,
                _ => code_of(on.kind),
            };
            let code = world.settled(async || asker.ask(ask).await, |code| *code == expected).await;
            assert_eq!(code, expected, "{ask:?} without {operation:?} on {on:?}");
            world.allow(*operation, on).await;
        }
        let served = world.settled(async || asker.ask(ask).await, |code| !is_refusal(*code)).await;
        assert!(!is_refusal(served), "{ask:?} with {rights:?}: {served}");
        assert_eq!(world.revoke_all().await, rights.len());
    }
    asker.keys
}

#[tokio::test]
async fn every_api_asks_for_the_rights_of_the_table_and_names_the_one_that_is_missing() {
    let mut world = World::embedded().await;
    let asked = every_right_is_asked_for(&mut world).await;
    let listed = world.admin.call(ApiVersionsRequest::default(), 3).await.api_keys;
    let mut served: BTreeSet<i16> = listed.iter().map(|api| api.api_key).chain(HIDDEN).collect();
    ELSEWHERE.iter().for_each(|key| assert!(served.remove(key)));
    assert_eq!(asked, served, "each API was asked");
    world.shutdown().await;
}
