//! A whole broker whose machine goes down in the middle of transactions: everything that it answered is so, and no
//! transaction is in one partition and not in the other.

use sharestream_base::{Env, HostPort, OwnedTask, TaskKind};

use super::raw::Client;
use super::workload::{self, Shared};
use super::*;
use crate::broker_cluster::BrokerCluster;

async fn broker(env: &Env, files: &FaultyFiles) -> BrokerCluster {
    let builder = BrokerCluster::builder(env.clone()).files(Arc::new(files.clone()));
    builder.node(NODE, HostPort::new("broker", 9092), env.clone()).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_takes_back_nothing_that_was_answered() {
    let (mut answered_commits, mut cuts) = (0, 0);
    for seed in 0..60u64 {
        let mut env = Env::seeded(seed);
        let mut files = FaultyFiles::default();
        let shared = Shared::default();
        let mut cluster = broker(&env, &files).await;
        let mut client = Client::connect(&env, &cluster.address(NODE).unwrap()).await;
        assert_eq!(client.create_topic("t", workload::PARTITIONS).await, 0);
        for round in 0..3 {
            files.die_after(5 + env.rng.below(150));
            let work = workload::run(env.clone(), cluster.address(NODE).unwrap(), shared.clone());
            let mut work = OwnedTask::spawn(&env.spawner, "work", TaskKind::Job, work);
            work.join().await.expect_err("the work ends with its machine");
            cuts += 1;
            cluster.kill_node(NODE).await.unwrap();
            drop(cluster);
            files = files.after_crash(&Rng::seeded(seed * 10 + round));
            // A network of its own: the address is free there.
            env = Env { rng: env.rng.clone(), ..Env::seeded(0) };
            cluster = broker(&env, &files).await;
            let address = cluster.address(NODE).unwrap();
            let answered = shared.lock().unwrap().clone();
            workload::check(&env, &address, &answered).await;
        }
        answered_commits += shared.lock().unwrap().committed.len();
    }
    assert!(answered_commits > 100, "{answered_commits} commits in {cuts} cuts prove little");
}

#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "the disk stands still while others run: that is the test")]
async fn a_node_that_is_paused_in_the_middle_of_a_sync_holds_up_no_other() {
    let (env, files) =
        (Env { clock: sharestream_base::Clock::system(), ..Env::seeded(1) }, FaultyFiles::default());
    let mut builder = BrokerCluster::builder(env.clone()).files(Arc::new(files.clone()));
    for node in [1, 2] {
        builder = builder.node(NodeId(node), HostPort::new(format!("broker-{node}"), 9092), env.clone());
    }
    let cluster = builder.start().await.unwrap();
    let mut first = Client::connect(&env, &cluster.address(NodeId(1)).unwrap()).await;
    let mut second = Client::connect(&env, &cluster.address(NodeId(2)).unwrap()).await;
    assert_eq!(first.create_topic("t", 2).await, 0);
    let closed = files.sync_gate.lock().unwrap();
    let mut stuck = Box::pin(first.create_topic("u", 1));
    let waited = futures::FutureExt::now_or_never(&mut stuck);
    assert!(waited.is_none());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    cluster.pause_node(NodeId(1)).unwrap();
    drop(closed);
    let created = env.clock.timeout(std::time::Duration::from_secs(10), second.create_topic("v", 1)).await;
    assert_eq!(created.expect("the other node does not answer"), 0);
    cluster.resume_node(NodeId(1)).unwrap();
    assert_eq!(stuck.await, 0);
    cluster.shutdown().await;
}
