//! InitializeShareGroupState (private version 10): creates or resets share state (KIP-932).

use std::sync::Arc;

use sharestream_base::ids::{Offset, PartitionIndex, StateEpoch, TopicId};
use sharestream_wire::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse, InitializeStateResult,
    PartitionResult,
};

use super::RequestContext;
use crate::error::code_of;
use crate::node::Node;
use crate::share::durable::ShareKey;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
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
            let start = (data.start_offset >= 0).then_some(Offset(data.start_offset));
            let done = node.share.coordinator.initialize(node, &key, StateEpoch(data.state_epoch), start);
            partitions.push(PartitionResult {
                partition: data.partition,
                error_code: code_of(&done),
                ..PartitionResult::default()
            });
        }
        results.push(InitializeStateResult { topic_id: topic.topic_id, partitions });
    }
    InitializeShareGroupStateResponse { results }
}
