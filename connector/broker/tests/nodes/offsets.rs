//! Offsets of consumer groups whose coordinator moves or dies, and where leader epochs end.

use std::time::Duration;

use kafka_protocol::messages::TxnOffsetCommitRequest;
use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_broker::{GROUP_TOPIC, TRANSACTION_STATE_TOPIC};
use sharestream_wire::frame::decode_response;

use crate::cluster::{NOT_COORDINATOR, Nodes};
use crate::raw::offsets::{STAGE_V2, stage_request};
use crate::raw::{Client, batch};

const ID: &str = "job-0";
const READERS: &str = "readers";
const UNSTABLE: i16 = 88;

impl Nodes {
    fn coordinator_of(&self, group: &str) -> NodeId {
        self.leader(GROUP_TOPIC, self.cluster.group_partition(group).0)
    }

    /// At whoever coordinates the group now.
    async fn group_client(&self) -> Client {
        self.client(self.coordinator_of(READERS)).await
    }

    /// Another leader of a partition than now, by a move or by the death and return of the one that there is.
    async fn disturb(&self, topic: &str, partition: PartitionIndex, by_death: bool) {
        if by_death {
            let node = self.cluster.leader(topic, partition).unwrap();
            self.cluster.kill_node(node).await.unwrap();
            self.cluster.start_node(node).await.unwrap();
        } else {
            self.move_away(topic, partition);
        }
    }

    async fn complete(&self, commit: bool) {
        let complete = if commit { "CompleteCommit" } else { "CompleteAbort" };
        self.until(complete, |nodes| nodes.state(ID) == complete).await;
    }
}

#[tokio::test(start_paused = true)]
async fn staged_offsets_survive_a_move_and_a_death_of_either_coordinator_before_the_end() {
    for by_death in [false, true] {
        for commit in [true, false] {
            for topic in [GROUP_TOPIC, TRANSACTION_STATE_TOPIC] {
                let nodes = Nodes::start().await;
                let partition = match topic {
                    GROUP_TOPIC => nodes.cluster.group_partition(READERS),
                    _ => nodes.cluster.transaction_partition(ID),
                };
                assert_eq!(nodes.group_client().await.commit_offset(READERS, 0, 3).await, 0);
                let producer = nodes.client(nodes.coordinator(ID)).await.init(Some(ID)).await.unwrap();
                let mut former = nodes.group_client().await;
                assert_eq!(former.stage_offset(STAGE_V2, (ID, producer), READERS, 0, 7).await, 0);
                nodes.disturb(topic, partition, by_death).await;
                assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Err(UNSTABLE));
                assert_eq!(nodes.group_client().await.offset(READERS, 0, false).await, Ok(3));
                // The transaction goes on at the new coordinator, without another word of the transaction's.
                let mut now = nodes.group_client().await;
                assert_eq!(now.stage_offset(STAGE_V2, (ID, producer), READERS, 0, 8).await, 0);
                nodes.disturb(topic, partition, by_death).await;
                let mut coordinator = nodes.client(nodes.coordinator(ID)).await;
                coordinator.end(5, ID, producer, commit).await.unwrap();
                nodes.complete(commit).await;
                let expected = if commit { 8 } else { 3 };
                assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Ok(expected));
                nodes.disturb(topic, partition, by_death).await;
                assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Ok(expected));
                let view = nodes.cluster.consumer_offsets().remove(0);
                assert_eq!((view.offset.unwrap().0, view.staged), (expected, false));
                nodes.cluster.shutdown().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_coordinator_of_a_group_refuses_everything_and_changes_nothing() {
    let nodes = Nodes::start().await;
    let mut former = nodes.group_client().await;
    assert_eq!(former.commit_offset(READERS, 0, 3).await, 0);
    let producer = nodes.client(nodes.coordinator(ID)).await.init(Some(ID)).await.unwrap();
    nodes.move_away(GROUP_TOPIC, nodes.cluster.group_partition(READERS));
    assert_eq!(former.commit_offset(READERS, 0, 4).await, NOT_COORDINATOR);
    let staged = former.stage_offset(STAGE_V2, (ID, producer), READERS, 0, 4).await;
    assert_eq!(staged, NOT_COORDINATOR);
    assert_eq!(nodes.state(ID), "Empty", "the group was not added to the transaction");
    assert_eq!(former.offset(READERS, 0, false).await, Err(NOT_COORDINATOR));
    assert_eq!(former.delete_group(READERS).await, NOT_COORDINATOR);
    assert!(former.groups().await.is_empty());
    assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Ok(3));
    assert_eq!(nodes.group_client().await.groups().await.len(), 1);
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_word_that_was_asked_for_under_an_earlier_leadership_stages_nothing() {
    let nodes = Nodes::start().await;
    let partition = nodes.cluster.group_partition(READERS);
    let asked = nodes.coordinator(ID);
    let home = nodes.other(&[asked]);
    nodes.cluster.move_leader(GROUP_TOPIC, partition, home).unwrap();
    let producer = nodes.client(asked).await.init(Some(ID)).await.unwrap();
    let mut client = nodes.client(home).await;
    nodes.cluster.pause_node(asked).unwrap();
    client.send(&stage_request((ID, producer), READERS, 0, 7), STAGE_V2).await;
    nodes.env.clock.sleep(Duration::from_millis(50)).await;
    let away = nodes.other(&[asked, home]);
    nodes.cluster.move_leader(GROUP_TOPIC, partition, away).unwrap();
    nodes.cluster.move_leader(GROUP_TOPIC, partition, home).unwrap();
    nodes.cluster.resume_node(asked).unwrap();
    let answer = client.receive().await.unwrap();
    let (_, answer) = decode_response::<TxnOffsetCommitRequest>(answer, STAGE_V2).unwrap();
    assert_eq!(answer.topics[0].partitions[0].error_code, NOT_COORDINATOR);
    assert!(nodes.cluster.consumer_offsets().is_empty());
    assert_eq!(client.stage_offset(STAGE_V2, (ID, producer), READERS, 0, 8).await, 0, "it asks again");
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_for_a_group_without_a_coordinator() {
    let nodes = Nodes::start().await;
    let partition = nodes.cluster.group_partition(READERS);
    let apart = nodes.other(&[nodes.coordinator(ID)]);
    nodes.cluster.move_leader(GROUP_TOPIC, partition, apart).unwrap();
    let producer = nodes.client(nodes.coordinator(ID)).await.init(Some(ID)).await.unwrap();
    let staged = nodes.group_client().await.stage_offset(STAGE_V2, (ID, producer), READERS, 0, 7).await;
    assert_eq!(staged, 0);
    nodes.cluster.kill_node(apart).await.unwrap();
    nodes.client(nodes.coordinator(ID)).await.end(5, ID, producer, true).await.unwrap();
    nodes.env.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(nodes.state(ID), "PrepareCommit");
    assert!(nodes.cluster.consumer_offsets()[0].staged);
    assert_ne!(nodes.cluster.fail_over(apart).unwrap(), 0);
    nodes.complete(true).await;
    assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Ok(7));
    nodes.cluster.shutdown().await;
}

/// Copies of a job that reads where its group is, writes that number and moves the group on, in one transaction, while
/// leaders and coordinators change between its steps: each number is there once, and the group is behind the last.
#[tokio::test(start_paused = true)]
async fn a_copy_with_offsets_in_its_transactions_is_exactly_once_whatever_moves() {
    const ROUNDS: u64 = 60;
    let nodes = Nodes::start().await;
    let chance = nodes.env.rng.fork("disturbances");
    let places = [
        (GROUP_TOPIC, nodes.cluster.group_partition(READERS)),
        (TRANSACTION_STATE_TOPIC, nodes.cluster.transaction_partition(ID)),
        ("t", PartitionIndex(0)),
    ];
    let mut disturbed = 0;
    let mut committed = 0;
    let mut fenced = 0;
    let mut producer = nodes.client(nodes.coordinator(ID)).await.init_patiently(ID).await;
    for _ in 0..ROUNDS {
        for step in 0..3 {
            if chance.below(4) == 0 {
                let (topic, partition) = places[usize::try_from(chance.below(3)).unwrap()];
                nodes.disturb(topic, partition, chance.below(2) == 0).await;
                disturbed += 1;
            }
            let offset = nodes.group_client().await.offset(READERS, 0, false).await.unwrap().max(0);
            let code = match step {
                0 => {
                    // Not before the markers of the last round are there: what it committed must be seen.
                    nodes.until("the markers", |nodes| !nodes.state(ID).starts_with("Prepare")).await;
                    let offset = nodes.group_client().await.stable_offset(READERS).await.max(0);
                    let mut leader = nodes.client(nodes.leader("t", 0)).await;
                    let record = batch(Some(producer), 0, true, &[&offset.to_string()]);
                    leader.produce(12, Some(ID), 0, record).await.error_code
                }
                1 => nodes.group_client().await.stage_patiently((ID, producer), READERS, offset + 1).await,
                _ => {
                    let commit = chance.below(3) != 0;
                    let mut coordinator = nodes.client(nodes.coordinator(ID)).await;
                    match coordinator.end(5, ID, producer, commit).await {
                        Ok(next) => {
                            committed += i64::from(commit);
                            producer = next;
                            0
                        }
                        Err(code) => code,
                    }
                }
            };
            if code != 0 {
                fenced += 1;
                producer = nodes.client(nodes.coordinator(ID)).await.init_patiently(ID).await;
                break;
            }
        }
    }
    nodes.client(nodes.coordinator(ID)).await.init_patiently(ID).await;
    let expected: Vec<String> = (0..committed).map(|number| number.to_string()).collect();
    assert_eq!(nodes.values("t", 0), expected);
    assert_eq!(nodes.group_client().await.offset(READERS, 0, true).await, Ok(committed));
    assert!(disturbed > 30 && committed > 20, "{disturbed} {committed} {fenced}");
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_leader_epoch_ends_where_the_next_one_began_to_write() {
    use kafka_protocol::messages::offset_for_leader_epoch_request::{
        OffsetForLeaderPartition, OffsetForLeaderTopic,
    };
    use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest, TopicName};
    let nodes = Nodes::start().await;
    let ends = async |epoch: i32, current: i32| {
        let asked = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic =
            OffsetForLeaderTopic::default().with_topic(TopicName("t".into())).with_partitions(vec![asked]);
        let request =
            OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let response = nodes.client(nodes.leader("t", 0)).await.call(request, 4).await;
        let end = &response.topics[0].partitions[0];
        (end.error_code, end.leader_epoch, end.end_offset)
    };
    let write = async |count: usize| {
        let values = vec!["x"; count];
        let mut leader = nodes.client(nodes.leader("t", 0)).await;
        assert_eq!(leader.produce(12, None, 0, batch(None, -1, false, &values)).await.error_code, 0);
    };
    write(3).await;
    nodes.move_away("t", PartitionIndex(0));
    nodes.move_away("t", PartitionIndex(0));
    write(4).await;
    nodes.move_away("t", PartitionIndex(0));
    assert_eq!(ends(0, -1).await, (0, 0, 3));
    assert_eq!(ends(1, -1).await, (0, 0, 3), "nobody wrote in it");
    assert_eq!(ends(2, 3).await, (0, 2, 7));
    assert_eq!(ends(3, 3).await, (0, 3, 7), "the current one");
    assert_eq!(ends(4, 3).await, (0, -1, -1), "not yet");
    assert_eq!(ends(0, 2).await, (74, -1, -1), "FENCED_LEADER_EPOCH");
    assert_eq!(ends(0, 4).await, (75, -1, -1), "UNKNOWN_LEADER_EPOCH");
    nodes.cluster.shutdown().await;
}
