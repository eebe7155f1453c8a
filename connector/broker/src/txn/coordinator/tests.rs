//! Recovery: what is in the log is what a new coordinator holds, and what was decided is completed.

use sharestream_base::Env;
use sharestream_base::ids::ProducerEpoch;

use super::*;
use crate::broker::Broker;
use crate::cluster::SHARE_STATE_TOPIC;
use crate::txn::state::{Ended, EndedBy, Open};

fn participants() -> BTreeSet<TopicPartition> {
    let partition = |n| sharestream_base::ids::PartitionIndex(n);
    [0, 1]
        .map(|n| TopicPartition { topic: Arc::from(SHARE_STATE_TOPIC), partition: partition(n) })
        .into_iter()
        .collect()
}

fn fresh(node: &Arc<Node>) -> Coordinator {
    let coordinator = Coordinator::new();
    coordinator.follow_leaderships(node);
    coordinator
}

#[tokio::test(start_paused = true)]
async fn a_new_coordinator_holds_what_the_log_says() {
    let broker = Broker::builder(Env::seeded(3)).start().await.unwrap();
    let node = &broker.node();
    for (n, ends) in [(0, None), (1, Some(Outcome::Commit)), (2, Some(Outcome::Abort)), (3, None)] {
        let id = format!("tx-{n}");
        let identity = node.transactions.init(node, &id, None, 60_000).unwrap();
        if n == 3 {
            continue;
        }
        let version = TransactionVersion::V2;
        let add = Command::AddPartitions { identity, version, partitions: participants() };
        node.transactions.add_partitions(node, &id, &add, Duration::ZERO).await.unwrap();
        if let Some(outcome) = ends {
            node.transactions.end(node, &id, identity, version, outcome).unwrap();
        }
    }
    // Time for the markers.
    node.env.clock.sleep(Duration::from_millis(50)).await;
    let live = node.transactions.summaries();
    let states: Vec<_> = live.iter().map(|one| one.state).collect();
    assert_eq!(states, ["Ongoing", "CompleteCommit", "CompleteAbort", "Empty"]);
    assert_eq!(fresh(node).summaries(), live);
    broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_without_completion_is_completed_after_recovery() {
    let broker = Broker::builder(Env::seeded(4)).start().await.unwrap();
    let node = &broker.node();
    let ran_as = node.transactions.init(node, "tx", None, 60_000).unwrap();
    let marker = Identity { epoch: ProducerEpoch(ran_as.epoch.0 + 1), ..ran_as };
    let version = TransactionVersion::V2;
    let open = Open { version, partitions: participants(), started_ms: 0 };
    let ended = Ended { by: EndedBy::Producer, version, ran_as, marker };
    // As if the coordinator had died between the decision and the first marker.
    let record = TransactionRecord {
        identity: marker,
        timeout_ms: 60_000,
        state: State::PrepareCommit(open, ended),
        updated_ms: 0,
    };
    let led = coordinated(node, "tx").unwrap();
    let (topic, index) = (TRANSACTION_STATE_TOPIC, led.index);
    loaded(node, &mut node.transactions.lock(), led).unwrap().write(&Arc::from("tx"), record).unwrap();
    node.cluster.move_leader(topic, index, node.id).unwrap();
    node.env.clock.sleep(Duration::from_millis(50)).await;
    assert_eq!(node.transactions.describe(node, "tx").unwrap().state, "CompleteCommit");
    assert_eq!(fresh(node).summaries()[0].state, "CompleteCommit");
    broker.shutdown().await;
}
