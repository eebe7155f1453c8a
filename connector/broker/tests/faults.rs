//! Planted faults as a client sees them: every action, and that every API can be refused in every version.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod fixtures;

use std::time::Duration;

use fixtures::{Client, READ_COMMITTED, batch, in_memory, tcp};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Message, Request};
use sharestream_base::Env;
use sharestream_base::ids::NodeId;
use sharestream_broker::faults::{Fault, FaultAction};
use sharestream_broker::{ApiKey, Broker, KafkaError, RunningBroker};

fn plant(broker: &RunningBroker, action: FaultAction) {
    broker.faults().plant(Fault::new(action).api(ApiKey::PRODUCE)).unwrap();
}

async fn produced(client: &mut Client) -> i16 {
    client.produce(9, None, 0, batch(None, -1, false, &["x"])).await.error_code
}

/// How many records there are, seen on another connection.
async fn count(broker: &RunningBroker) -> usize {
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    client.values(0, READ_COMMITTED).await.len()
}

#[tokio::test]
async fn an_error_is_answered_and_nothing_is_written() {
    let (broker, mut client) = tcp().await;
    plant(&broker, FaultAction::Error(KafkaError::NOT_ENOUGH_REPLICAS));
    assert_eq!(produced(&mut client).await, KafkaError::NOT_ENOUGH_REPLICAS.0);
    assert_eq!(count(&broker).await, 0);
    assert_eq!(produced(&mut client).await, 0, "it strikes once");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_lost_answer_leaves_the_write_or_not_and_the_connection_or_not() {
    let cases = [
        (FaultAction::DropBefore, 0, true),
        (FaultAction::DropAfter, 1, true),
        (FaultAction::DisconnectBefore, 0, false),
        (FaultAction::DisconnectAfter, 1, false),
        (FaultAction::PartialWrite { bytes: 9 }, 1, false),
    ];
    for (action, written, stays_open) in cases {
        let (broker, mut client) = tcp().await;
        plant(&broker, action);
        client.send(&fixtures::produce_request(None, vec![(0, batch(None, -1, false, &["x"]))], -1), 9).await;
        if stays_open {
            // The next answer is that of the next request.
            assert!(client.init(None).await.is_ok(), "{action:?}");
        } else {
            assert_eq!(client.receive().await, None, "{action:?}");
            let expected = if matches!(action, FaultAction::PartialWrite { .. }) { 9 } else { 0 };
            assert_eq!(client.unread_bytes(), expected, "{action:?}");
        }
        assert_eq!(count(&broker).await, written, "{action:?}");
        broker.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_served_so_much_later() {
    let (broker, mut client) = in_memory().await;
    plant(&broker, FaultAction::Delay(Duration::from_secs(7)));
    let clock = sharestream_base::Clock::simulated(0);
    let before = clock.now();
    assert_eq!(produced(&mut client).await, 0);
    assert!((7..8).contains(&(clock.now() - before).as_secs()));
    broker.shutdown().await;
}

#[tokio::test]
async fn requests_between_nodes_are_met_by_the_name_of_the_asking_node() {
    let broker = Broker::builder(Env::system()).nodes(2).start().await.unwrap();
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    assert_eq!(client.create_topic("t", 2).await, 0);
    let coordinator =
        broker.cluster().leader("__transaction_state", broker.cluster().transaction_partition("tx"));
    let coordinator = coordinator.unwrap();
    let view = broker.cluster().partitions().into_iter();
    let other = view.clone().find(|view| view.topic == "t" && view.leader != Some(coordinator)).unwrap();
    let leader = other.leader.unwrap();
    let connect = |node: NodeId| broker.cluster().address(node).unwrap();
    let mut transactions = Client::connect(&Env::system(), &connect(coordinator)).await;
    let mut records = Client::connect(&Env::system(), &connect(leader)).await;
    let producer = transactions.init(Some("tx")).await.unwrap();
    let refused = Fault::new(FaultAction::Error(KafkaError::COORDINATOR_LOAD_IN_PROGRESS))
        .api(ApiKey::ADD_PARTITIONS_TO_TXN)
        .node(coordinator)
        .client_id(format!("node-{leader}"));
    let refused = broker.faults().plant(refused).unwrap();
    let first = batch(Some(producer), 0, true, &["x"]);
    let answer = records.produce(12, Some("tx"), other.partition.0, first.clone()).await;
    assert_ne!(answer.error_code, 0);
    assert_eq!(broker.faults().struck(refused), 1);
    assert_eq!(records.produce(12, Some("tx"), other.partition.0, first).await.error_code, 0);
    broker.shutdown().await;
}

macro_rules! refuse_all {
    ($client:ident; $( $request:ty [$min:literal, $max:literal] ),* $(,)?) => {
        $( for version in $min..=$max {
            let answer = refused::<$request>(&mut $client, <$request>::default(), version).await;
            assert!(answer.is_some(), "{} version {version}", stringify!($request));
        } )*
    };
}

async fn refused<R: Request + Message>(client: &mut Client, request: R, version: i16) -> Option<R::Response> {
    client.send(&request, version).await;
    let answer = client.receive().await?;
    Some(sharestream_wire::frame::decode_response::<R>(answer, version).unwrap().1)
}

#[tokio::test]
async fn every_api_can_be_refused_in_every_version() {
    let (broker, mut client) = tcp().await;
    let code = KafkaError::UNKNOWN_SERVER_ERROR;
    broker.faults().plant(Fault::new(FaultAction::Error(code)).times(u64::MAX)).unwrap();
    refuse_all! { client;
        FetchRequest [4, 16], ListOffsetsRequest [1, 10], MetadataRequest [0, 13], FindCoordinatorRequest [0, 6],
        ListGroupsRequest [0, 5], ApiVersionsRequest [0, 4], CreateTopicsRequest [2, 7],
        DeleteTopicsRequest [1, 6], DeleteGroupsRequest [0, 2], DeleteRecordsRequest [0, 2], InitProducerIdRequest [0, 5],
        AddPartitionsToTxnRequest [0, 5], EndTxnRequest [0, 5], WriteTxnMarkersRequest [1, 1],
        DescribeConfigsRequest [1, 4], IncrementalAlterConfigsRequest [0, 1], DescribeClusterRequest [0, 2],
        DescribeProducersRequest [0, 0], DescribeTransactionsRequest [0, 0], ListTransactionsRequest [0, 1],
        ShareGroupHeartbeatRequest [1, 1], ShareGroupDescribeRequest [1, 1],
        AlterShareGroupOffsetsRequest [0, 0], DeleteShareGroupOffsetsRequest [0, 0],
        DeleteShareGroupStateRequest [0, 0],
        OffsetCommitRequest [2, 9], OffsetFetchRequest [1, 9], OffsetDeleteRequest [0, 0],
        OffsetForLeaderEpochRequest [2, 4], AddOffsetsToTxnRequest [0, 4], TxnOffsetCommitRequest [0, 5],
        DescribeGroupsRequest [0, 6],
    }
    let init = refused(&mut client, InitProducerIdRequest::default(), 5).await.unwrap();
    assert_eq!((init.error_code, init.producer_id.0), (code.0, -1));
    let fetched = refused(&mut client, fixtures::fetch_request("t", 2, 0, 0, 0), 12).await.unwrap();
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!((partition.partition_index, partition.error_code), (2, code.0));
    assert_eq!(client.create_topic("u", 1).await, code.0);
    let keys = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec!["a".into()]);
    let found = refused(&mut client, keys, 6).await.unwrap();
    assert_eq!((found.coordinators[0].error_code, found.coordinators[0].node_id.0), (code.0, -1));
    let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(TopicName("t".into())));
    let metadata = MetadataRequest::default().with_topics(Some(vec![topic]));
    assert_eq!(refused(&mut client, metadata, 12).await.unwrap().topics[0].error_code, code.0);
    assert_eq!(client.commit_offset("g", 0, 1).await, code.0);
    assert_eq!(client.offset("g", 0, true).await, Err(code.0));
    let nobody = fixtures::Producer { id: 1, epoch: 0 };
    assert_eq!(client.stage_offset(5, ("tx", nobody), "g", 0, 1).await, code.0);
    broker.shutdown().await;
}
