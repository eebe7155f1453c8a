//! What a user's own test does with the nodes of a broker on real sockets.

use std::collections::BTreeSet;
use std::time::Duration;

use sharestream_base::ids::NodeId;
use sharestream_base::{Env, ErrorKind, HostPort};
use sharestream_broker::{
    Broker, BrokerConfig, GROUP_TOPIC, RunningBroker, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC,
};

use crate::raw::{Client, READ_UNCOMMITTED, batch};

async fn three() -> RunningBroker {
    Broker::builder(Env::system()).nodes(3).start().await.unwrap()
}

async fn client(broker: &RunningBroker, node: NodeId) -> Client {
    Client::connect(&Env::system(), &broker.cluster().address(node).unwrap()).await
}

#[tokio::test]
async fn three_nodes_are_ready_in_under_50_ms_each_with_its_listener_and_its_leaderships() {
    let clock = Env::system().clock;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let before = clock.now();
        let broker = three().await;
        best = best.min(clock.now() - before);
        let ports: BTreeSet<u16> = broker.addresses().iter().map(|(_, address)| address.port).collect();
        assert_eq!(ports.len(), 3);
        assert_eq!(broker.bootstrap().split(',').count(), 3);
        for topic in [TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC, GROUP_TOPIC] {
            let views = broker.cluster().partitions();
            let leaders: BTreeSet<_> =
                views.iter().filter(|view| view.topic == topic).map(|view| view.leader).collect();
            assert_eq!(leaders.len(), 3, "{topic} is led by {leaders:?}");
        }
        for (node, _) in broker.addresses() {
            client(&broker, node).await.init(None).await.unwrap();
        }
        broker.shutdown().await;
    }
    assert!(best < Duration::from_millis(50), "the fastest of three starts took {best:?}");
}

#[tokio::test]
async fn further_nodes_take_the_next_ports() {
    // Somebody else may have taken one of them: another first port is tried then.
    for attempt in 0..20u16 {
        let first = 41_000 + attempt * 97;
        let config = BrokerConfig { port: first, ..BrokerConfig::default() };
        let Ok(broker) = Broker::builder(Env::system()).config(config).nodes(3).start().await else {
            continue;
        };
        let ports: Vec<u16> = broker.addresses().iter().map(|(_, address)| address.port).collect();
        assert_eq!(ports, [first, first + 1, first + 2]);
        broker.shutdown().await;
        return;
    }
    panic!("no three ports in a row are free");
}

#[tokio::test]
async fn a_bad_number_of_nodes_is_refused_in_one_sentence() {
    let error = Broker::builder(Env::system()).nodes(0).start().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.context()),
        (ErrorKind::InvalidInput, "0 nodes are asked for, not 1 to 100")
    );
    let config = BrokerConfig { port: 65_535, ..BrokerConfig::default() };
    let error = Broker::builder(Env::system()).config(config).nodes(2).start().await.unwrap_err();
    assert_eq!(error.context(), "2 nodes from port 65535 on go beyond port 65535");
}

#[tokio::test]
async fn a_paused_node_answers_nothing_keeps_what_it_leads_and_goes_on_when_resumed() {
    let broker = three().await;
    let mut other = client(&broker, NodeId(1)).await;
    assert_eq!(other.create_topic("t", 3).await, 0);
    let partition = broker.cluster().partitions().into_iter();
    let led_by_2 = partition.clone().find(|view| view.topic == "t" && view.leader == Some(NodeId(2)));
    let index = led_by_2.unwrap().partition;
    let mut client = client(&broker, NodeId(2)).await;
    broker.pause_node(NodeId(2)).unwrap();
    let clock = Env::system().clock;
    let produce = client.produce(9, None, index.0, batch(None, -1, false, &["x"]));
    let mut produce = std::pin::pin!(produce);
    assert!(clock.timeout(Duration::from_millis(100), &mut produce).await.is_err(), "a paused node answered");
    assert_eq!(broker.cluster().leader("t", index), Some(NodeId(2)));
    broker.resume_node(NodeId(2)).unwrap();
    let answer = clock.timeout(Duration::from_secs(10), produce).await.unwrap();
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));

    broker.pause_node(NodeId(2)).unwrap();
    broker.stop_node(NodeId(2)).await.unwrap();
    let leader = broker.cluster().leader("t", index).unwrap();
    assert_ne!(leader, NodeId(2), "the others take over what a stopped node led");
    let mut heir = Client::connect(&Env::system(), &broker.cluster().address(leader).unwrap()).await;
    assert_eq!(heir.fetch(index.0, 0, READ_UNCOMMITTED).await.high_watermark, 1);
    for refused in
        [broker.pause_node(NodeId(2)), broker.resume_node(NodeId(9)), broker.stop_node(NodeId(2)).await]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    broker.start_node(NodeId(2)).await.unwrap();
    let address: HostPort = broker.cluster().address(NodeId(2)).unwrap();
    let mut back = Client::connect(&Env::system(), &address).await;
    assert!(back.fetch(index.0, 0, READ_UNCOMMITTED).await.error_code > 0, "it leads nothing of t any more");
    broker.shutdown().await;
}
