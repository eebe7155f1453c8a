//! ShareGroupDescribe (KIP-932): groups with members, epochs and assignments. Source leaders ask it for member
//! epochs too (KIP-1289).

use std::sync::Arc;

use kafka_protocol::messages::share_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use kafka_protocol::messages::{GroupId, ShareGroupDescribeRequest, ShareGroupDescribeResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::Resource;
use crate::error::ErrorCode;
use crate::group::assignor::{self, AssignedTopic};
use crate::group::share_group::ShareGroup;
use crate::group::state_of;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse {
    let groups = request.group_ids.into_iter();
    let groups = groups.map(|id| describe(node, context, id, request.include_authorized_operations));
    ShareGroupDescribeResponse::default().with_groups(groups.collect())
}

/// An answer with an error says nothing else, as in Kafka.
fn describe(node: &Node, context: &RequestContext, id: GroupId, with_operations: bool) -> DescribedGroup {
    let described = DescribedGroup::default().with_group_id(id.clone());
    let found = context.may.group(&id).and_then(|()| match id.is_empty() {
        true => Err(ErrorCode::InvalidGroupId),
        false => node.share.groups.with_group(node, &id, |group| describe_group(&described, group)),
    });
    let group = match found {
        Ok(group) => group,
        Err(code) => return described.with_error_code(code.code()),
    };
    let mut topics = group.members.iter().flat_map(|member| &member.assignment.topic_partitions);
    if topics.any(|topic| context.may.topic(&topic.topic_name).is_err()) {
        let text = "The group has described topic(s) that the client is not authorized to describe.";
        return described
            .with_error_code(ErrorCode::TopicAuthorizationFailed.code())
            .with_error_message(Some(StrBytes::from_static_str(text)));
    }
    match with_operations {
        true => group.with_authorized_operations(context.may.operations(&Resource::group(&id))),
        false => group,
    }
}

fn describe_group(described: &DescribedGroup, group: &ShareGroup) -> DescribedGroup {
    let topic = |topic: AssignedTopic| {
        TopicPartitions::default()
            .with_topic_id(topic.id.0)
            .with_topic_name(TopicName(topic.name.into()))
            .with_partitions(topic.partitions)
    };
    let members = group.members().iter().map(|(id, member)| {
        let assigned = group.assignment(member).into_iter().map(topic).collect();
        let topics = member.topics.iter().map(|name| TopicName(name.clone().into())).collect();
        Member::default()
            .with_member_id(id.clone().into())
            .with_rack_id(member.rack.clone().map(Into::into))
            .with_member_epoch(member.epoch.0)
            .with_client_id(member.client_id.clone().into())
            .with_client_host("/127.0.0.1".into())
            .with_subscribed_topic_names(topics)
            .with_assignment(Assignment::default().with_topic_partitions(assigned))
    });
    described
        .clone()
        .with_group_state(state_of(group).into())
        .with_group_epoch(group.epoch())
        .with_assignment_epoch(group.epoch())
        .with_assignor_name(assignor::NAME.into())
        .with_members(members.collect())
}
