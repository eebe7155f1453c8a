//! DeleteShareGroupOffsets (KIP-932): forgets the share state of topics, for a group without members.

use std::sync::Arc;

use kafka_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use kafka_protocol::messages::{DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;
use crate::share::offsets;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse {
    let response = DeleteShareGroupOffsetsResponse::default();
    let group = &*request.group_id;
    let allowed = context.may.group(group);
    if let Err(code) = allowed.and_then(|()| offsets::check_unused(node, group)) {
        return response.with_error_code(code.code()).with_error_message(Some(code.to_string().into()));
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let allowed = context.may.topic(&topic.topic_name);
        let known = allowed.ok().and_then(|()| node.cluster.topics.by_name(&topic.topic_name));
        let id = known.map(|topic| topic.id);
        let deleted = match (allowed, id) {
            (Err(code), _) => Err(code),
            (Ok(()), Some(id)) => offsets::delete(node, group, id).await,
            (Ok(()), None) => Err(ErrorCode::UnknownTopicOrPartition),
        };
        let answer = DeleteShareGroupOffsetsResponseTopic::default()
            .with_topic_name(topic.topic_name)
            .with_topic_id(id.map(|id| id.0).unwrap_or_default());
        topics.push(match deleted {
            Ok(()) => {
                node.share.groups.forget_topic(node, group, &answer.topic_name);
                answer
            }
            Err(code) => {
                answer.with_error_code(code.code()).with_error_message(Some(code.to_string().into()))
            }
        });
    }
    node.share.manager.drop_idle();
    response.with_responses(topics)
}
