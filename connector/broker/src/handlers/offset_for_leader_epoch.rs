//! OffsetForLeaderEpoch (KIP-320): where the records of a leader epoch end, so that consumers see that a log was cut.

use std::sync::Arc;

use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use sharestream_base::ids::{LeaderEpoch, PartitionIndex};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::log::EpochEnd;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            match find(node, &topic.topic, asked) {
                Ok(Some(end)) => answer.with_leader_epoch(end.epoch.0).with_end_offset(end.end.0),
                Ok(None) => answer.with_leader_epoch(-1).with_end_offset(-1),
                Err(code) => answer.with_leader_epoch(-1).with_end_offset(-1).with_error_code(code.code()),
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_partitions(partitions).with_topic(topic.topic)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

/// None when no such epoch is known. Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
/// UNKNOWN_LEADER_EPOCH.
fn find(node: &Node, topic: &str, asked: &OffsetForLeaderPartition) -> Result<Option<EpochEnd>, ErrorCode> {
    let led = node.led(topic, PartitionIndex(asked.partition))?;
    led.check_known_epoch(LeaderEpoch(asked.current_leader_epoch))?;
    led.end_of_epoch(LeaderEpoch(asked.leader_epoch))
}
