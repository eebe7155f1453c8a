//! What a broker that ended in good order knows when it is started again.

use std::path::Path;
use std::time::Duration;

use sharestream_base::ids::NodeId;
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::{Broker, BrokerConfig, FsyncPolicy, RunningBroker};

use crate::raw::offsets::STAGE_V2;
use crate::raw::{Client, READ_COMMITTED, READ_UNCOMMITTED, batch};
use crate::share::{Cluster, Connection};

const LONG: Duration = Duration::from_secs(10);

async fn start(folder: &Path, nodes: u16) -> RunningBroker {
    Broker::builder(Env::system()).data(folder).nodes(nodes).start().await.unwrap()
}

#[tokio::test]
async fn topics_records_transactions_and_producers_are_there_again_also_with_fewer_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path(), 3).await;
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    assert_eq!(client.create_topic("t", 1).await, 0);
    let leader = broker.cluster().leader("t", 0.into()).unwrap();
    let mut client = Client::connect(&Env::system(), &broker.cluster().address(leader).unwrap()).await;
    let plain = client.init(None).await.unwrap();
    assert_eq!(client.produce(9, None, 0, batch(Some(plain), 0, false, &["a", "b"])).await.base_offset, 0);
    let coordinator =
        broker.cluster().leader("__transaction_state", broker.cluster().transaction_partition("tx"));
    let coordinator = broker.cluster().address(coordinator.unwrap()).unwrap();
    let mut transactions = Client::connect(&Env::system(), &coordinator).await;
    let producer = transactions.init(Some("tx")).await.unwrap();
    assert_eq!(client.produce(12, Some("tx"), 0, batch(Some(producer), 0, true, &["c"])).await.error_code, 0);
    let views = broker.cluster().partitions();
    broker.shutdown().await;

    let broker = start(folder.path(), 1).await;
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    for (before, after) in views.iter().zip(broker.cluster().partitions()) {
        assert_eq!((&before.topic, before.topic_id), (&after.topic, after.topic_id));
        assert_eq!(before.high_watermark, after.high_watermark);
        assert_eq!(after.leader, Some(NodeId(1)));
        assert!(before.leader_epoch < after.leader_epoch, "{}", before.topic);
    }
    let again = client.produce(9, None, 0, batch(Some(plain), 0, false, &["a", "b"])).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0), "a repeated batch is recognised");
    assert!(client.init(None).await.unwrap().id > producer.id, "no producer id is given out twice");
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a", "b"]);
    assert_eq!(client.state("tx").await, "Ongoing");
    assert_eq!(client.produce(12, Some("tx"), 0, batch(Some(producer), 1, true, &["d"])).await.error_code, 0);
    client.end(5, "tx", producer, true).await.unwrap();
    assert_eq!(client.settled("tx").await, "CompleteCommit");
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a", "b", "c", "d"]);
    broker.shutdown().await;
}

#[tokio::test]
async fn staged_acknowledgements_and_settings_of_groups_are_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = BrokerConfig { data: Some(folder.path().to_owned()), ..BrokerConfig::default() };
    let mut cluster =
        Cluster::start_with(config.clone(), 1, &[("share.record.lock.duration.ms", "7000")]).await;
    cluster.produce(0, 10).await;
    let mut alice = cluster.member("alice").await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let mut transaction = cluster.transaction("tx", LONG).await;
    assert_eq!(transaction.stage(&alice, &[(0, 0, 3, 1)]).await, 0);
    assert_eq!(alice.acknowledge(&[(0, 4, 6, 1)]).await, 0);
    let topic_id = cluster.topic_id;
    drop((alice, transaction.connection));
    cluster.broker.shutdown().await;

    let env = Env::system();
    let broker = Broker::builder(env.clone()).config(config).start().await.unwrap();
    let admin = Connection::open(broker.address(), &env).await;
    let mut cluster = Cluster { env: env.clone(), broker, admin, topic_id, user: None };
    let mut bob = cluster.member("bob").await;
    let fetched = bob.fetch_full(&[], LONG).await;
    assert_eq!(fetched.acquisition_lock_timeout_ms, 7_000);
    assert_eq!(
        crate::share::acquired_of(&fetched, 0),
        [(7, 9, 1)],
        "delivery counts are durable with decisions"
    );
    transaction.connection = Connection::open(cluster.broker.address(), &env).await;
    transaction.end(true).await;
    let clock = env.clock.clone();
    let deadline = clock.now() + LONG;
    while cluster.start_offset(0).await != 7 {
        assert!(clock.now() < deadline, "the staged records are not committed");
        clock.sleep(Duration::from_millis(5)).await;
    }
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn offsets_of_groups_are_there_again_and_staged_ones_wait_for_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path(), 3).await;
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    assert_eq!(client.create_topic("t", 2).await, 0);
    let coordinator = broker.cluster().leader("__consumer_offsets", broker.cluster().group_partition("g"));
    let coordinator = broker.cluster().address(coordinator.unwrap()).unwrap();
    let mut groups = Client::connect(&Env::system(), &coordinator).await;
    let coordinator =
        broker.cluster().leader("__transaction_state", broker.cluster().transaction_partition("tx"));
    let coordinator = broker.cluster().address(coordinator.unwrap()).unwrap();
    let producer = Client::connect(&Env::system(), &coordinator).await.init(Some("tx")).await.unwrap();
    assert_eq!(groups.commit_offset("g", 0, 3).await, 0);
    assert_eq!(groups.commit_offset("g", 1, 4).await, 0);
    assert_eq!(groups.stage_offset(STAGE_V2, ("tx", producer), "g", 0, 7).await, 0);
    let views = broker.cluster().consumer_offsets();
    broker.shutdown().await;

    for round in 0..2 {
        let broker = start(folder.path(), 1).await;
        let mut client = Client::connect(&Env::system(), broker.address()).await;
        if round == 0 {
            assert_eq!(broker.cluster().consumer_offsets(), views);
            assert_eq!(client.offset("g", 0, true).await, Err(88), "UNSTABLE_OFFSET_COMMIT");
            assert_eq!(client.offset("g", 0, false).await, Ok(3));
            client.end(5, "tx", producer, true).await.unwrap();
        }
        assert_eq!(client.stable_offset("g").await, 7);
        assert_eq!(client.offset("g", 1, true).await, Ok(4));
        broker.shutdown().await;
    }
}

#[tokio::test]
async fn deleted_and_changed_topics_stay_so_and_retired_records_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path(), 1).await;
    let mut client = Client::connect(&Env::system(), broker.address()).await;
    for name in ["t", "gone"] {
        assert_eq!(client.create_topic(name, 2).await, 0);
    }
    client.produce(9, None, 1, batch(None, -1, false, &["a", "b", "c"])).await;
    client.delete_topic("gone").await;
    client.delete_records(1, 2).await;
    broker.shutdown().await;
    for _ in 0..2 {
        let broker = start(folder.path(), 1).await;
        let mut client = Client::connect(&Env::system(), broker.address()).await;
        assert_eq!(client.fetch(1, 1, READ_UNCOMMITTED).await.error_code, 1, "OFFSET_OUT_OF_RANGE");
        assert_eq!(client.fetch(1, 2, READ_UNCOMMITTED).await.log_start_offset, 2);
        assert!(broker.cluster().partitions().iter().all(|view| view.topic != "gone"));
        broker.shutdown().await;
    }
}

#[tokio::test]
async fn every_policy_keeps_what_an_orderly_end_leaves_and_a_second_broker_is_refused() {
    for policy in ["always", "never", "interval:20"] {
        let folder = tempfile::tempdir().unwrap();
        let fsync: FsyncPolicy = policy.parse().unwrap();
        let config = BrokerConfig { data: Some(folder.path().to_owned()), fsync, ..BrokerConfig::default() };
        let broker = Broker::builder(Env::system()).config(config.clone()).start().await.unwrap();
        let mut client = Client::connect(&Env::system(), broker.address()).await;
        assert_eq!(client.create_topic("t", 1).await, 0);
        assert_eq!(client.produce(9, None, 0, batch(None, -1, false, &["a"])).await.error_code, 0);
        let refused = Broker::builder(Env::system()).config(config.clone()).start().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.context().contains("in use by another broker"), "{refused}");
        broker.shutdown().await;
        let broker = Broker::builder(Env::system()).config(config).start().await.unwrap();
        let mut client = Client::connect(&Env::system(), broker.address()).await;
        assert_eq!(client.values(0, READ_COMMITTED).await, ["a"]);
        broker.shutdown().await;
    }
}
