//! DeleteGroups: forgets groups without members, and where they stood in every topic.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

use super::RequestContext;
use crate::error::{ErrorCode, code_of};
use crate::node::Node;
use crate::share::offsets;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group in request.groups_names {
        let deleted = match context.may.group(&group) {
            Ok(()) => delete(node, &group).await,
            Err(code) => Err(code),
        };
        results.push(DeletableGroupResult::default().with_group_id(group).with_error_code(code_of(&deleted)));
    }
    node.share.manager.drop_idle();
    DeleteGroupsResponse::default().with_results(results)
}

/// The offsets go before the group, as in Kafka: who asks again after a failure finds a group to go on with. Settings of
/// the group stay. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, those of the share coordinator.
async fn delete(node: &Arc<Node>, group: &GroupId) -> Result<(), ErrorCode> {
    let group: &str = group;
    let topics = match node.share.groups.with_group(node, group, |group| group.known_topics().clone()) {
        Ok(topics) => topics,
        Err(ErrorCode::GroupIdNotFound) => return node.offsets.delete_group(node, group),
        Err(code) => return Err(code),
    };
    offsets::check_unused(node, group)?;
    for topic in topics {
        // State of a topic that is gone went with it.
        if let Some(topic) = node.cluster.topics.by_name(&topic) {
            offsets::delete(node, group, topic.id).await?;
        }
    }
    node.share.groups.forget(node, group)
}
