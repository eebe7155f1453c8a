//! Transactions whose coordinator moves or dies.

use std::time::Duration;

use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_broker::TRANSACTION_STATE_TOPIC;
use sharestream_broker::inspect::Fate;

use crate::cluster::{NOT_COORDINATOR, Nodes};
use crate::raw::{Producer, batch};

const ID: &str = "job-0";

async fn write(nodes: &Nodes, producer: Producer, value: &str) {
    let mut leader = nodes.client(nodes.leader("t", 0)).await;
    let written = leader.produce(12, Some(ID), 0, batch(Some(producer), 0, true, &[value])).await;
    assert_eq!(written.error_code, 0);
}

/// Another coordinator than now, by a move or by the death and return of the one that there is.
async fn disturb(nodes: &Nodes, by_death: bool) {
    if by_death {
        let node = nodes.coordinator(ID);
        nodes.cluster.kill_node(node).await.unwrap();
        nodes.cluster.start_node(node).await.unwrap();
    } else {
        nodes.move_away(TRANSACTION_STATE_TOPIC, nodes.cluster.transaction_partition(ID));
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_survives_a_move_and_a_death_of_its_coordinator_in_every_state() {
    for by_death in [false, true] {
        for commit in [true, false] {
            let nodes = Nodes::start().await;
            // The participant lives elsewhere, so that it can be held back alone.
            let partition = nodes.cluster.transaction_partition(ID);
            let apart = nodes.other(&[nodes.leader("t", 0)]);
            nodes.cluster.move_leader(TRANSACTION_STATE_TOPIC, partition, apart).unwrap();
            let producer = nodes.client(nodes.coordinator(ID)).await.init(Some(ID)).await.unwrap();
            assert_eq!(nodes.state(ID), "Empty");
            disturb(&nodes, by_death).await;
            if nodes.coordinator(ID) == nodes.leader("t", 0) {
                nodes.move_away("t", PartitionIndex(0));
            }

            write(&nodes, producer, "a").await;
            assert_eq!(nodes.state(ID), "Ongoing");
            let started = nodes.cluster.transactions()[0].started_ms;
            disturb(&nodes, by_death).await;
            assert_eq!(nodes.state(ID), "Ongoing");
            assert_eq!(nodes.cluster.transactions()[0].started_ms, started, "its time-out goes on");
            if nodes.coordinator(ID) == nodes.leader("t", 0) {
                nodes.move_away("t", PartitionIndex(0));
            }

            // Nobody takes the marker, so the decision stays open.
            let participant = nodes.leader("t", 0);
            nodes.cluster.kill_node(participant).await.unwrap();
            let mut coordinator = nodes.client(nodes.coordinator(ID)).await;
            let next = coordinator.end(5, ID, producer, commit).await.unwrap();
            nodes.env.clock.sleep(Duration::from_millis(300)).await;
            let prepared = if commit { "PrepareCommit" } else { "PrepareAbort" };
            assert_eq!(nodes.state(ID), prepared);
            let to = nodes.other(&[participant, nodes.coordinator(ID)]);
            if by_death {
                let node = nodes.coordinator(ID);
                nodes.cluster.kill_node(node).await.unwrap();
                nodes.cluster.start_node(node).await.unwrap();
            } else {
                nodes.cluster.move_leader(TRANSACTION_STATE_TOPIC, partition, to).unwrap();
            }
            assert_eq!(nodes.state(ID), prepared);
            let mut coordinator = nodes.client(nodes.coordinator(ID)).await;
            assert_eq!(
                coordinator.end(5, ID, producer, commit).await,
                Ok(next),
                "a repetition is recognised"
            );
            nodes.cluster.start_node(participant).await.unwrap();
            let complete = if commit { "CompleteCommit" } else { "CompleteAbort" };
            nodes.until(complete, |nodes| nodes.state(ID) == complete).await;

            disturb(&nodes, by_death).await;
            assert_eq!(nodes.state(ID), complete);
            let fates: Vec<_> =
                nodes.cluster.batches("t", PartitionIndex(0)).iter().map(|one| one.fate).collect();
            if commit {
                assert_eq!(fates, [Fate::Committed, Fate::CommitMarker], "one marker");
            } else {
                assert_eq!(fates, [Fate::Aborted, Fate::AbortMarker], "one marker");
            }
            let mut coordinator = nodes.client(nodes.coordinator(ID)).await;
            assert_eq!(coordinator.end(5, ID, producer, commit).await, Ok(next));
            nodes.cluster.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_coordinator_refuses_and_the_new_one_keeps_the_time_out() {
    let nodes = Nodes::start().await;
    let former = nodes.coordinator(ID);
    let mut client = nodes.client(former).await;
    let producer = client.init_with(Some(ID), Producer { id: -1, epoch: -1 }, 1_000).await.unwrap();
    write(&nodes, producer, "late").await;
    disturb(&nodes, false).await;
    assert_ne!(nodes.coordinator(ID), former);
    assert_eq!(client.end(5, ID, producer, true).await, Err(NOT_COORDINATOR));
    assert_eq!(client.init(Some(ID)).await, Err(NOT_COORDINATOR));
    nodes.until("the time-out", |nodes| nodes.state(ID) == "CompleteAbort").await;
    assert!(nodes.values("t", 0).is_empty());
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_leads_again_believes_the_log_and_not_its_memory() {
    let nodes = Nodes::start().await;
    let partition = nodes.cluster.transaction_partition(ID);
    let first = nodes.coordinator(ID);
    let old = nodes.client(first).await.init(Some(ID)).await.unwrap();
    let second = nodes.move_away(TRANSACTION_STATE_TOPIC, partition);
    let new = nodes.client(second).await.init(Some(ID)).await.unwrap();
    assert!(new.epoch > old.epoch);
    nodes.cluster.move_leader(TRANSACTION_STATE_TOPIC, partition, first).unwrap();
    let mut leader = nodes.client(nodes.leader("t", 0)).await;
    let fenced = leader.produce(12, Some(ID), 0, batch(Some(old), 0, true, &["zombie"])).await;
    assert_ne!(fenced.error_code, 0);
    let written = leader.produce(12, Some(ID), 0, batch(Some(new), 0, true, &["mine"])).await;
    assert_eq!(written.error_code, 0);
    nodes.client(first).await.end(5, ID, new, true).await.unwrap();
    nodes.until("the commit", |nodes| nodes.values("t", 0) == ["mine"]).await;
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn markers_wait_for_a_participant_without_a_leader() {
    let nodes = Nodes::start().await;
    let participant = nodes.leader("t", 0);
    let partition = nodes.cluster.transaction_partition(ID);
    nodes.cluster.move_leader(TRANSACTION_STATE_TOPIC, partition, nodes.other(&[participant])).unwrap();
    let producer = nodes.client(nodes.coordinator(ID)).await.init(Some(ID)).await.unwrap();
    write(&nodes, producer, "a").await;
    nodes.cluster.kill_node(participant).await.unwrap();
    nodes.client(nodes.coordinator(ID)).await.end(5, ID, producer, true).await.unwrap();
    nodes.env.clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(nodes.state(ID), "PrepareCommit", "not taken for a deleted topic");
    assert!(nodes.values("t", 0).is_empty());
    assert_ne!(nodes.cluster.fail_over(participant).unwrap(), 0);
    nodes.until("the commit", |nodes| nodes.state(ID) == "CompleteCommit").await;
    assert_eq!(nodes.values("t", 0), ["a"]);
    assert_eq!(nodes.cluster.live_nodes().len(), 2);
    assert_ne!(nodes.leader("t", 0), NodeId(participant.0));
    nodes.cluster.shutdown().await;
}
