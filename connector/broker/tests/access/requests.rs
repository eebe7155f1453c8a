//! Every API refuses who has no right, with the error of the resource, and serves who has just the right that the table
//! of requirements names.

use std::collections::BTreeSet;

use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_broker::BrokerConfig;
use sharestream_broker::access::Operation::{
    self, Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use sharestream_broker::access::{Acl, Principal, ResourcePattern, ResourceType};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::initialize_share_group_state::InitializeShareGroupStateRequest;
use sharestream_wire::messages::read_share_group_state::ReadShareGroupStateRequest;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;

use crate::asker::{Ask, Asker, ID};
use crate::fixtures::{Cluster, GROUP, TOPIC};

/// Each ask, with the rights that it takes and what the absence of each is answered with, in the order of the checks.
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

#[tokio::test]
async fn every_api_asks_for_the_rights_of_the_table_and_names_the_one_that_is_missing() {
    let mut cluster = Cluster::start_secured(BrokerConfig::default(), 1).await;
    let worker = Principal::user("worker");
    let mut asker = Asker::new(cluster.open().await, cluster.topic_id);
    let access = cluster.broker.access();
    for (ask, rights) in table() {
        let mut given = Vec::new();
        for (place, (operation, on)) in rights.iter().enumerate() {
            // Where one right does for several things, the one that is asked for is what the answer names.
            let expected = match (ask, place) {
                (Ask::InitIdempotent, _) => KafkaError::CLUSTER_AUTHORIZATION_FAILED.0,
                (Ask::CreateTopics, _) => KafkaError::TOPIC_AUTHORIZATION_FAILED.0,
                _ => code_of(on.kind),
            };
            assert_eq!(asker.ask(ask).await, expected, "{ask:?} without {operation:?} on {on:?}");
            let acl = Acl::allow(worker.clone(), *operation, on.clone());
            access.add(acl.clone()).unwrap();
            given.push(acl);
        }
        let served = asker.ask(ask).await;
        assert!(!is_refusal(served), "{ask:?} with {rights:?}: {served}");
        given.iter().for_each(|acl| assert!(access.remove(acl)));
    }
    let listed = cluster.admin.call(ApiVersionsRequest::default(), 3).await.api_keys;
    let mut served: BTreeSet<i16> = listed.iter().map(|api| api.api_key).chain(HIDDEN).collect();
    ELSEWHERE.iter().for_each(|key| assert!(served.remove(key)));
    assert_eq!(asker.keys, served, "each API was asked");
    cluster.broker.shutdown().await;
}
