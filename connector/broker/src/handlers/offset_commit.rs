//! OffsetCommit: how far a consumer group is, told by somebody who is no member of it.

use std::sync::Arc;

use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use sharestream_base::ids::{LeaderEpoch, Offset};

use super::RequestContext;
use super::offsets::{Asked, Committing, Results, asked};
use super::refusals::Refuse;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    if let Err(code) = context.may.group(&request.group_id) {
        return request.refuse(context.version, code.code());
    }
    let mut committing = Committing::default();
    for topic in request.topics {
        let allowed = context.may.topic(&topic.name);
        for partition in topic.partitions {
            committing.add(node, allowed, asked!(topic.name, partition));
        }
    }
    if !committing.is_empty() {
        let generation = request.generation_id_or_member_epoch;
        let offsets = committing.take_offsets();
        committing.settle(node.offsets.commit(node, &request.group_id, generation, offsets, None));
    }
    OffsetCommitResponse::default().with_topics(committing.results().into_iter().map(topic).collect())
}

fn topic((name, partitions): (TopicName, Results)) -> OffsetCommitResponseTopic {
    let partitions = partitions.into_iter().map(|(index, code)| {
        OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code)
    });
    OffsetCommitResponseTopic::default().with_name(name).with_partitions(partitions.collect())
}
