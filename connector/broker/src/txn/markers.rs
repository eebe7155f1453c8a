//! Tells every participant how a transaction ended, over the protocol, until each has answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{self, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_base::planted::{Bug, is_planted};
use tracing::{debug, warn};

use super::state::{Identity, Outcome, TopicPartition};
use crate::error::ErrorCode;
use crate::log::Led;
use crate::node::Node;

const WRITE_TXN_MARKERS_VERSION: i16 = 1;
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The markers of one transaction.
#[derive(Debug)]
pub(crate) struct Job {
    /// Whose.
    pub(crate) transactional_id: Arc<str>,
    /// What they carry.
    pub(crate) marker: Identity,
    /// Commit or abort.
    pub(crate) outcome: Outcome,
    /// The leadership under which this coordinator decided.
    pub(crate) led: Led,
    /// Where they go.
    pub(crate) partitions: BTreeSet<TopicPartition>,
}

/// Writes all markers, retrying for as long as it takes, then completes the transaction. Ends early only when the
/// node stops or is deposed; the next coordinator then finds the decision in the log and starts again.
pub(crate) async fn write_all(node: Arc<Node>, job: Job) {
    // A marker must not outlive the decision that it tells of.
    if let Err(error) = node.cluster.durable().await {
        warn!(transactional_id = %job.transactional_id, %error, "markers are not sent");
        return;
    }
    let mut left = job.partitions.clone();
    let mut backoff = BACKOFF_FIRST;
    loop {
        if !job.led.is_current() {
            debug!(transactional_id = %job.transactional_id, "markers are left to the next coordinator");
            return;
        }
        left = write_round(&node, &job, left).await;
        if left.is_empty() || is_planted(Bug::MarkersNotRepeated) {
            node.transactions.markers_written(&node, &job.transactional_id, job.marker);
            return;
        }
        debug!(transactional_id = %job.transactional_id, left = left.len(), "markers are sent again");
        tokio::select! {
            biased;
            () = node.stop.cancelled() => return,
            () = node.env.clock.sleep(backoff) => {}
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Sends each leader its markers, all at once; gives the participants that must be asked again.
async fn write_round(
    node: &Node,
    job: &Job,
    partitions: BTreeSet<TopicPartition>,
) -> BTreeSet<TopicPartition> {
    let mut by_leader: BTreeMap<NodeId, BTreeSet<TopicPartition>> = BTreeMap::new();
    let mut leaderless = BTreeSet::new();
    for participant in partitions {
        let Some(partition) = node.cluster.topics.partition(&participant.topic, participant.partition) else {
            // Its topic was deleted, and its records with it.
            debug!(topic = %participant.topic, partition = %participant.partition, "participant is gone");
            continue;
        };
        match partition.leader() {
            Some(leader) => {
                by_leader.entry(leader).or_default().insert(participant);
            }
            None => {
                leaderless.insert(participant);
            }
        }
    }
    let calls = by_leader.into_iter().map(|(leader, asked)| async move {
        let request = request(job, &asked);
        match node.peers.call::<WriteTxnMarkersRequest>(leader, request, WRITE_TXN_MARKERS_VERSION).await {
            Ok(response) => unanswered(job, asked, &response),
            Err(error) => {
                warn!(transactional_id = %job.transactional_id, %leader, %error, "markers got no answer");
                asked
            }
        }
    });
    join_all(calls).await.into_iter().flatten().chain(leaderless).collect()
}

fn request(job: &Job, partitions: &BTreeSet<TopicPartition>) -> WriteTxnMarkersRequest {
    let mut by_topic: BTreeMap<&Arc<str>, Vec<i32>> = BTreeMap::new();
    for participant in partitions {
        by_topic.entry(&participant.topic).or_default().push(participant.partition.0);
    }
    let topics = by_topic.into_iter().map(|(topic, indexes)| {
        WritableTxnMarkerTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_string())))
            .with_partition_indexes(indexes)
    });
    let marker = WritableTxnMarker::default()
        .with_producer_id(messages::ProducerId(job.marker.producer_id.0))
        .with_producer_epoch(job.marker.epoch.0)
        .with_transaction_result(job.outcome == Outcome::Commit)
        .with_coordinator_epoch(job.led.epoch().0)
        .with_topics(topics.collect());
    WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

/// Participants without a final answer.
fn unanswered(
    job: &Job,
    mut asked: BTreeSet<TopicPartition>,
    response: &WriteTxnMarkersResponse,
) -> BTreeSet<TopicPartition> {
    for topic in response.markers.iter().flat_map(|marker| &marker.topics) {
        for result in &topic.partitions {
            let partition = PartitionIndex(result.partition_index);
            let participant = TopicPartition { topic: Arc::from(topic.name.as_str()), partition };
            match ErrorCode::try_from_code(result.error_code) {
                None => {
                    asked.remove(&participant);
                }
                // A newer producer or coordinator has taken over there: this transaction is not open any more.
                Some(code @ (ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced)) => {
                    warn!(
                        transactional_id = %job.transactional_id, topic = %participant.topic, %partition, %code,
                        "a participant refuses a marker"
                    );
                    asked.remove(&participant);
                }
                Some(code) => {
                    debug!(topic = %participant.topic, %partition, %code, "a marker must be sent again");
                }
            }
        }
    }
    asked
}
