//! What moves when leaders do, and what a node without leadership answers.

use std::time::Duration;

use kafka_protocol::messages::{DescribeClusterRequest, MetadataRequest};
use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex};
use sharestream_broker::inspect::Fate;

use crate::cluster::{LONG, NODES, NOT_LEADER, Nodes, builder};
use crate::raw::{READ_COMMITTED, batch, fetch_request};
use crate::share::{TOPIC, acquired_of};

#[tokio::test(start_paused = true)]
async fn three_nodes_share_the_partitions_and_each_serves_its_own() {
    let nodes = Nodes::start().await;
    let leaders: Vec<NodeId> = (0..3).map(|partition| nodes.leader("t", partition)).collect();
    for node in NODES {
        assert!(leaders.contains(&node), "one each: {leaders:?}");
    }
    for partition in 0..3 {
        let mut leader = nodes.client(nodes.leader("t", partition)).await;
        let value = format!("to {partition}");
        let produced = leader.produce(12, None, partition, batch(None, -1, false, &[&value])).await;
        assert_eq!(produced.error_code, 0);
        assert_eq!(leader.values(partition, READ_COMMITTED).await, [value.as_str()]);
        assert_eq!(nodes.values("t", partition), [value.as_str()]);
        let mut stranger = nodes.client(nodes.other(&[nodes.leader("t", partition)])).await;
        let refused = stranger.produce(12, None, partition, batch(None, -1, false, &["no"])).await;
        assert_eq!(refused.error_code, NOT_LEADER);
        assert_eq!(stranger.fetch(partition, 0, READ_COMMITTED).await.error_code, NOT_LEADER);
    }
    for partition in 0..3 {
        nodes.produce(partition).await;
        let mut member = nodes.member(&format!("member-{partition}"), partition).await;
        let response = member.fetch_full(&[], LONG).await;
        assert_eq!(acquired_of(&response, partition), [(0, 9, 1)]);
        assert_eq!(member.acknowledge(&[(partition, 0, 9, 1)]).await, 0);
        assert_eq!(nodes.share(partition).start_offset.unwrap().0, 10);
    }
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_names_live_nodes_only_and_partitions_of_the_dead_have_no_leader() {
    let nodes = Nodes::start().await;
    let dead = NodeId(2);
    nodes.cluster.kill_node(dead).await.unwrap();
    assert!(nodes.env.network.connect(&nodes.cluster.address(dead).unwrap()).await.is_err());
    let mut client = nodes.client(NodeId(1)).await;
    let described = client.call(DescribeClusterRequest::default(), 1).await;
    assert_eq!(described.brokers.iter().map(|broker| broker.broker_id.0).collect::<Vec<_>>(), [1, 3]);
    let metadata = client.call(MetadataRequest::default().with_topics(None), 12).await;
    assert_eq!(metadata.brokers.iter().map(|broker| broker.node_id.0).collect::<Vec<_>>(), [1, 3]);
    let partitions: Vec<_> = metadata.topics.iter().flat_map(|topic| &topic.partitions).collect();
    assert!(partitions.iter().all(|one| one.leader_id.0 != dead.0));
    assert!(partitions.iter().any(|one| one.leader_id.0 == -1 && one.error_code == 5));

    assert!(nodes.cluster.fail_over(NodeId(1)).is_err(), "it is alive");
    assert!(nodes.cluster.fail_over(dead).unwrap() > 0);
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader.is_some_and(|leader| leader != dead)));
    nodes.cluster.start_node(dead).await.unwrap();
    assert_eq!(nodes.cluster.live_nodes(), NODES);
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader != Some(dead)), "others lead them now");
    assert!(nodes.cluster.move_off(NodeId(1)).unwrap() > 0);
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader != Some(NodeId(1))));
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_hands_over_and_the_last_node_leaves_everything_to_the_first_that_starts() {
    let nodes = Nodes::start().await;
    nodes.cluster.stop_node(NodeId(1)).await.unwrap();
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader.is_some_and(|leader| leader.0 != 1)));
    assert!(nodes.cluster.stop_node(NodeId(1)).await.is_err(), "it is down already");
    nodes.cluster.stop_node(NodeId(2)).await.unwrap();
    nodes.cluster.stop_node(NodeId(3)).await.unwrap();
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader.is_none()));
    for node in NODES {
        assert!(nodes.env.network.connect(&nodes.cluster.address(node).unwrap()).await.is_err());
    }
    nodes.cluster.start_node(NodeId(1)).await.unwrap();
    assert!(nodes.cluster.partitions().iter().all(|one| one.leader == Some(NodeId(1))));
    assert!(nodes.cluster.start_node(NodeId(1)).await.is_err(), "it is up already");
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_replaced_after_the_delay_unless_it_comes_back_before() {
    let (builder, env) = builder(7);
    let delay = Duration::from_secs(5);
    let nodes = Nodes::with_topics(builder.fail_over_after(delay).start().await.unwrap(), env).await;
    let led =
        |nodes: &Nodes, node| nodes.cluster.partitions().iter().filter(|one| one.leader == node).count();
    let own = led(&nodes, Some(NodeId(1)));
    nodes.cluster.kill_node(NodeId(1)).await.unwrap();
    assert_eq!(led(&nodes, None), own);
    nodes.env.clock.sleep(delay / 2).await;
    nodes.cluster.start_node(NodeId(1)).await.unwrap();
    nodes.env.clock.sleep(delay).await;
    assert_eq!(led(&nodes, Some(NodeId(1))), own, "it was back in time");
    nodes.cluster.kill_node(NodeId(1)).await.unwrap();
    nodes.env.clock.sleep(delay * 2).await;
    assert_eq!((led(&nodes, None), led(&nodes, Some(NodeId(1)))), (0, 0));
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_at_a_leader_are_told_at_once_that_it_is_none_any_more() {
    let nodes = Nodes::start().await;
    let mut client = nodes.client(nodes.leader("t", 0)).await;
    client.send(&fetch_request("t", 0, 0, READ_COMMITTED, 60_000), 12).await;
    let mut member = nodes.member("alice", 1).await;
    let request = member.fetch_request(&[], Duration::from_secs(60));
    member.connection.send(&request, 2).await;
    nodes.env.clock.sleep(Duration::from_millis(100)).await;

    let before = nodes.env.clock.now();
    nodes.move_away("t", PartitionIndex(0));
    nodes.move_away(TOPIC, PartitionIndex(1));
    let answer = client.receive().await.unwrap();
    let (_, response) =
        sharestream_wire::frame::decode_response::<kafka_protocol::messages::FetchRequest>(answer, 12)
            .unwrap();
    assert_eq!(response.responses[0].partitions[0].error_code, NOT_LEADER);
    let response =
        member.connection.receive::<sharestream_wire::messages::share_fetch::ShareFetchRequest>(2).await;
    let data = &response.responses[0].partitions[0];
    assert_eq!(data.error_code, NOT_LEADER);
    assert_eq!(data.current_leader.leader_id, nodes.leader(TOPIC, 1).0, "and whom to ask");
    assert!(nodes.env.clock.now() - before < Duration::from_secs(1));
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn records_and_producer_states_outlive_their_leader_and_acquired_records_do_not() {
    let nodes = Nodes::start().await;
    nodes.produce(0).await;
    let mut alice = nodes.member("alice", 0).await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let mut client = nodes.client(nodes.leader("t", 0)).await;
    let producer = client.init(None).await.unwrap();
    let first = batch(Some(producer), 0, false, &["a"]);
    assert_eq!(client.produce(12, None, 0, first.clone()).await.error_code, 0);

    let leader = nodes.move_away("t", PartitionIndex(0));
    let mut client = nodes.client(leader).await;
    let again = client.produce(12, None, 0, first).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0), "recognised as a repetition");
    assert_eq!(client.produce(12, None, 0, batch(Some(producer), 1, false, &["b"])).await.error_code, 0);
    assert_eq!(nodes.values("t", 0), ["a", "b"]);
    let epochs: Vec<_> =
        nodes.cluster.batches("t", PartitionIndex(0)).iter().map(|one| one.leader_epoch).collect();
    assert_eq!(epochs, [LeaderEpoch(0), LeaderEpoch(1)]);
    assert!(nodes.cluster.batches("t", PartitionIndex(0)).iter().all(|one| one.fate == Fate::Plain));

    let node = nodes.leader(TOPIC, 0);
    nodes.cluster.kill_node(node).await.unwrap();
    nodes.cluster.start_node(node).await.unwrap();
    let mut bob = nodes.member("bob", 0).await;
    assert_eq!(bob.fetch(LONG).await, [(0, 9, 1)], "nobody holds them any more");
    assert_eq!(bob.acknowledge(&[(0, 0, 9, 1)]).await, 0);
    assert_eq!(nodes.share(0).start_offset.unwrap().0, 10);
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_cluster() {
    let run = || async {
        let nodes = Nodes::start().await;
        nodes.produce(0).await;
        let mut alice = nodes.member("alice", 0).await;
        assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
        let mut transaction = nodes.producer("job-0").await;
        assert_eq!(nodes.stage(&mut transaction, &alice, 0).await, 0);
        nodes.end(&mut transaction, true).await;
        nodes
            .until("the commit", |nodes| nodes.share(0).start_offset.is_some_and(|start| start.0 == 10))
            .await;
        let partitions = nodes.cluster.partitions();
        let batches: Vec<_> =
            partitions.iter().map(|one| nodes.cluster.batches(&one.topic, one.partition)).collect();
        let seen = (partitions, batches, nodes.cluster.transactions());
        nodes.cluster.shutdown().await;
        seen
    };
    assert_eq!(run().await, run().await);
}
