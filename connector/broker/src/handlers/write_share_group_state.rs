//! WriteShareGroupState (private version 10): a source leader makes share state durable (KIP-932, KIP-1289).

use std::sync::Arc;

use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, StateEpoch, TopicId};
use sharestream_wire::messages::write_share_group_state::{
    PartitionData, PartitionResult, WriteShareGroupStateRequest, WriteShareGroupStateResponse,
    WriteStateResult,
};

use super::RequestContext;
use crate::error::{ErrorCode, code_of};
use crate::node::Node;
use crate::share::durable::{ShareKey, StateBatch};
use crate::share_coordinator::Write;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse {
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
            let partition = data.partition;
            let written = write_of(data).and_then(|write| node.share.coordinator.write(node, &key, write));
            partitions.push(PartitionResult {
                partition,
                error_code: code_of(&written),
                ..PartitionResult::default()
            });
        }
        results.push(WriteStateResult { topic_id: topic.topic_id, partitions });
    }
    WriteShareGroupStateResponse { results }
}

fn write_of(data: PartitionData) -> Result<Write, ErrorCode> {
    let batches: Result<Vec<StateBatch>, _> = data.state_batches.iter().map(StateBatch::from_wire).collect();
    Ok(Write {
        state_epoch: StateEpoch(data.state_epoch),
        leader_epoch: LeaderEpoch(data.leader_epoch),
        start_offset: (data.start_offset >= 0).then_some(Offset(data.start_offset)),
        batches: batches.map_err(|_| ErrorCode::InvalidRequest)?,
    })
}
