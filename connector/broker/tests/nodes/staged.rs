//! Staged acknowledgements (KIP-1289) whose source leader, share coordinator or transaction coordinator goes.

use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_broker::{SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};

use crate::cluster::{LONG, NOT_LEADER, Nodes};
use crate::share::{Member, TOPIC, Transaction};

const ID: &str = "job-0";

/// Alice holds the ten records of partition 0 and has staged them.
async fn staged(nodes: &Nodes) -> (Member, Transaction) {
    nodes.produce(0).await;
    let mut alice = nodes.member("alice", 0).await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let mut transaction = nodes.producer(ID).await;
    assert_eq!(nodes.stage(&mut transaction, &alice, 0).await, 0);
    assert!(nodes.is_pending(0));
    (alice, transaction)
}

/// The outcome, at whoever leads and coordinates now.
async fn check_outcome(nodes: &Nodes, mut transaction: Transaction, commit: bool) {
    assert!(nodes.is_pending(0));
    let mut bob = nodes.member("bob", 0).await;
    assert_eq!(bob.fetch(std::time::Duration::ZERO).await, [], "pending records are not delivered");
    nodes.end(&mut transaction, commit).await;
    if commit {
        nodes.until("the commit", |nodes| nodes.share(0).start_offset.unwrap().0 == 10).await;
        assert_eq!(bob.fetch(std::time::Duration::ZERO).await, []);
    } else {
        assert_eq!(bob.fetch(LONG).await, [(0, 9, 2)]);
    }
    nodes.until("the end", |nodes| nodes.state(ID).starts_with("Complete")).await;
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Source,
    ShareCoordinator,
    TransactionCoordinator,
}

impl Role {
    const ALL: [Role; 3] = [Role::Source, Role::ShareCoordinator, Role::TransactionCoordinator];

    fn partition(self, nodes: &Nodes) -> (&'static str, PartitionIndex) {
        match self {
            Role::Source => (TOPIC, PartitionIndex(0)),
            Role::ShareCoordinator => (SHARE_STATE_TOPIC, nodes.state_partition(0)),
            Role::TransactionCoordinator => {
                (TRANSACTION_STATE_TOPIC, nodes.cluster.transaction_partition(ID))
            }
        }
    }

    fn node(self, nodes: &Nodes) -> NodeId {
        let (topic, partition) = self.partition(nodes);
        nodes.leader(topic, partition.0)
    }
}

#[tokio::test(start_paused = true)]
async fn staged_records_survive_a_move_of_each_role() {
    for role in Role::ALL {
        for commit in [true, false] {
            let nodes = Nodes::start().await;
            let (_alice, transaction) = staged(&nodes).await;
            let (topic, partition) = role.partition(&nodes);
            nodes.move_away(topic, partition);
            check_outcome(&nodes, transaction, commit).await;
            nodes.cluster.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn staged_records_survive_death_and_return_of_each_role() {
    for role in Role::ALL {
        for commit in [true, false] {
            let nodes = Nodes::start().await;
            let (_alice, transaction) = staged(&nodes).await;
            let node = role.node(&nodes);
            nodes.cluster.kill_node(node).await.unwrap();
            nodes.cluster.start_node(node).await.unwrap();
            check_outcome(&nodes, transaction, commit).await;
            nodes.cluster.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn staged_records_survive_death_and_replacement_of_each_role() {
    for role in Role::ALL {
        for commit in [true, false] {
            let nodes = Nodes::start().await;
            let (_alice, transaction) = staged(&nodes).await;
            let node = role.node(&nodes);
            nodes.cluster.kill_node(node).await.unwrap();
            nodes.cluster.fail_over(node).unwrap();
            check_outcome(&nodes, transaction, commit).await;
            nodes.cluster.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_decided_reaches_whoever_leads_when_everybody_was_dead() {
    let nodes = Nodes::start().await;
    let (_alice, mut transaction) = staged(&nodes).await;
    nodes.end(&mut transaction, true).await;
    for node in crate::cluster::NODES {
        nodes.cluster.kill_node(node).await.unwrap();
    }
    for node in crate::cluster::NODES {
        nodes.cluster.start_node(node).await.unwrap();
    }
    nodes.until("the commit", |nodes| nodes.share(0).start_offset.unwrap().0 == 10).await;
    nodes.until("the end", |nodes| nodes.state(ID) == "CompleteCommit").await;
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_former_source_leader_neither_delivers_nor_acknowledges_nor_stages() {
    let nodes = Nodes::start().await;
    nodes.produce(0).await;
    let mut alice = nodes.member("alice", 0).await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let mut transaction = nodes.producer(ID).await;
    transaction.connection = nodes.connection(nodes.leader(TOPIC, 0)).await;
    nodes.move_away(TOPIC, PartitionIndex(0));
    assert_eq!(transaction.try_stage(&alice, &[(0, 0, 9, 1)]).await, NOT_LEADER);
    assert_eq!(alice.acknowledge(&[(0, 0, 9, 1)]).await, NOT_LEADER);
    assert_eq!(alice.fetch_code(LONG).await, NOT_LEADER);
    assert_eq!(nodes.share(0).start_offset.unwrap().0, 0);
    assert!(nodes.share(0).memory.is_none());
    let mut bob = nodes.member("bob", 0).await;
    assert_eq!(bob.fetch(LONG).await, [(0, 9, 1)]);
    assert_eq!(nodes.share(0).memory.unwrap().node, nodes.leader(TOPIC, 0));
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_find_a_share_coordinator_that_moves() {
    let nodes = Nodes::start().await;
    nodes.produce(0).await;
    let mut alice = nodes.member("alice", 0).await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let partition = nodes.state_partition(0);
    let node = nodes.leader(SHARE_STATE_TOPIC, partition.0);
    if node == nodes.leader(TOPIC, 0) {
        nodes.move_away(SHARE_STATE_TOPIC, partition);
    }
    let node = nodes.leader(SHARE_STATE_TOPIC, partition.0);
    nodes.cluster.kill_node(node).await.unwrap();
    let heals = async {
        nodes.env.clock.sleep(std::time::Duration::from_millis(500)).await;
        nodes.cluster.fail_over(node).unwrap();
    };
    let (code, ()) = tokio::join!(alice.acknowledge(&[(0, 0, 9, 1)]), heals);
    assert_eq!(code, 0);
    assert_eq!(nodes.share(0).start_offset.unwrap().0, 10);
    nodes.cluster.shutdown().await;
}
