//! ShareGroupHeartbeat (KIP-932): joins, leaves, stays; tells epoch and assignment.

use std::sync::Arc;

use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use sharestream_base::ids::MemberEpoch;

use super::RequestContext;
use crate::group::share_group::Heartbeat;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse {
    let group = request.group_id.to_string();
    let settings = node.cluster.group_settings(&group);
    let topics = request.subscribed_topic_names;
    let heartbeat = Heartbeat {
        member: request.member_id.to_string(),
        epoch: MemberEpoch(request.member_epoch),
        rack: request.rack_id.map(|rack| rack.to_string()),
        topics: topics.map(|names| names.iter().map(|name| name.to_string()).collect()),
        client_id: context.client_id.clone().unwrap_or_default(),
    };
    let response = ShareGroupHeartbeatResponse::default();
    // Who may not describe one of its topics does not become a member for the others.
    let mut subscribed = heartbeat.topics.iter().flatten();
    let allowed =
        context.may.group(&group).and_then(|()| subscribed.try_for_each(|topic| context.may.topic(topic)));
    match allowed.and_then(|()| node.share.groups.heartbeat(node, &group, heartbeat, &settings)) {
        Err(code) => response.with_error_code(code.code()),
        Ok(reply) => {
            let assignment = reply.assignment.map(|topics| {
                let topic = |topic: crate::group::assignor::AssignedTopic| {
                    TopicPartitions::default().with_topic_id(topic.id.0).with_partitions(topic.partitions)
                };
                Assignment::default().with_topic_partitions(topics.into_iter().map(topic).collect())
            });
            let left = reply.epoch == MemberEpoch(-1);
            response
                .with_member_id(Some(request.member_id))
                .with_member_epoch(reply.epoch.0)
                .with_heartbeat_interval_ms(if left { 0 } else { millis(settings.heartbeat_interval) })
                .with_assignment(assignment)
        }
    }
}

fn millis(duration: std::time::Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
