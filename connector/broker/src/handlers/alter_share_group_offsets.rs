//! AlterShareGroupOffsets (KIP-932): sets share-partition start offsets of a group without members.

use std::sync::Arc;

use kafka_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use kafka_protocol::messages::{AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse};
use sharestream_base::ids::Offset;

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;
use crate::share::offsets;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse {
    let response = AlterShareGroupOffsetsResponse::default();
    let group = &*request.group_id;
    let allowed = context.may.group(group);
    if let Err(code) = allowed.and_then(|()| offsets::check_unused(node, group)) {
        return response.with_error_code(code.code()).with_error_message(Some(code.to_string().into()));
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let name = &*topic.topic_name;
        let allowed = context.may.topic(name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let answer = AlterShareGroupOffsetsResponsePartition::default().with_partition_index(index);
            let start = Offset(partition.start_offset);
            let altered = match allowed.and_then(|()| offsets::key_of(node, group, name, index)) {
                Ok(_) if start.0 < 0 => Err(ErrorCode::InvalidRequest),
                Ok(key) => offsets::reset(node, &key, start).await,
                Err(code) => Err(code),
            };
            partitions.push(match altered {
                Ok(()) => answer,
                Err(code) => {
                    answer.with_error_code(code.code()).with_error_message(Some(code.to_string().into()))
                }
            });
        }
        let mut id = uuid::Uuid::nil();
        if allowed.is_ok() {
            node.share.groups.note_topic(node, group, name);
            id = node.cluster.topics.by_name(name).map(|topic| topic.id.0).unwrap_or_default();
        }
        topics.push(
            AlterShareGroupOffsetsResponseTopic::default()
                .with_topic_name(topic.topic_name.clone())
                .with_topic_id(id)
                .with_partitions(partitions),
        );
    }
    // What a leader has in memory of the old incarnation is of no use any more.
    node.share.manager.drop_idle();
    response.with_responses(topics)
}
