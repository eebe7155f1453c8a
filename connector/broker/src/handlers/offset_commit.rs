//! OffsetCommit: how far a consumer group is, told by somebody who is no member of it.

use std::sync::Arc;

use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use sharestream_base::ids::{LeaderEpoch, Offset};

use super::RequestContext;
use super::offsets::{Asked, Committing, Results};
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let mut committing = Committing::default();
    for topic in request.topics {
        for asked in topic.partitions {
            let asked = Asked {
                topic: topic.name.clone(),
                partition: asked.partition_index,
                offset: Offset(asked.committed_offset),
                leader_epoch: LeaderEpoch(asked.committed_leader_epoch),
                metadata: asked.committed_metadata,
            };
            committing.add(node, asked);
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
