//! ReadShareGroupState (private version 10): durable share state for a source leader (KIP-932, KIP-1289).

use std::sync::Arc;

use sharestream_base::ids::{LeaderEpoch, PartitionIndex, TopicId};
use sharestream_wire::messages::read_share_group_state::{
    PartitionResult, ReadShareGroupStateRequest, ReadShareGroupStateResponse, ReadStateResult,
};

use super::RequestContext;
use crate::node::Node;
use crate::share::durable::ShareKey;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse {
    let group: Arc<str> = Arc::from(&*request.group_id);
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for data in topic.partitions {
            let key = ShareKey {
                group: Arc::clone(&group),
                topic_id: TopicId(topic.topic_id),
                partition: PartitionIndex(data.partition),
            };
            // State that does not exist reads as state without a start offset.
            let empty = PartitionResult { partition: data.partition, start_offset: -1, ..Default::default() };
            partitions.push(match node.share.coordinator.read(node, &key, LeaderEpoch(data.leader_epoch)) {
                Ok(None) => empty,
                Ok(Some(share)) => PartitionResult {
                    state_epoch: share.state_epoch.0,
                    start_offset: share.start_offset.map_or(-1, |offset| offset.0),
                    state_batches: share.batches.iter().map(|batch| batch.to_wire()).collect(),
                    ..empty
                },
                Err(code) => PartitionResult { error_code: code.code(), ..empty },
            });
        }
        results.push(ReadStateResult { topic_id: topic.topic_id, partitions });
    }
    ReadShareGroupStateResponse { results }
}
