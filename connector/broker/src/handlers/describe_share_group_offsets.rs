//! DescribeShareGroupOffsets (KIP-932): share-partition start offsets of groups. -1 means that nobody has fetched yet.

use std::sync::Arc;

use kafka_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use kafka_protocol::messages::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, TopicName,
};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::group::check_coordinator;
use crate::node::Node;
use crate::share::offsets;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse {
    let groups = request.groups.iter().map(|group| async move {
        let answer = DescribeShareGroupOffsetsResponseGroup::default().with_group_id(group.group_id.clone());
        match describe_group(node, context, group).await {
            Ok(topics) => answer.with_topics(topics),
            Err(code) => {
                answer.with_error_code(code.code()).with_error_message(Some(code.to_string().into()))
            }
        }
    });
    DescribeShareGroupOffsetsResponse::default().with_groups(futures::future::join_all(groups).await)
}

async fn describe_group(
    node: &Arc<Node>,
    context: &RequestContext,
    group: &DescribeShareGroupOffsetsRequestGroup,
) -> Result<Vec<DescribeShareGroupOffsetsResponseTopic>, ErrorCode> {
    context.may.group(&group.group_id)?;
    check_coordinator(node, &group.group_id)?;
    let asked = match &group.topics {
        Some(topics) => topics.clone(),
        // What may not be described is not there; asked for by name it is refused.
        None => {
            let mut topics = all_topics(node, &group.group_id)?;
            topics.retain(|topic| context.may.topic(&topic.topic_name).is_ok());
            topics
        }
    };
    let mut topics = Vec::with_capacity(asked.len());
    for topic in asked {
        let name = &topic.topic_name;
        let allowed = context.may.topic(name);
        let partitions = topic.partitions.iter().map(|partition| async move {
            let answer =
                DescribeShareGroupOffsetsResponsePartition::default().with_partition_index(*partition);
            let described =
                match allowed.and_then(|()| offsets::key_of(node, &group.group_id, name, *partition)) {
                    Ok(key) => offsets::describe(node, &key).await,
                    Err(code) => Err(code),
                };
            match described {
                Ok(share) => answer
                    .with_start_offset(share.start_offset.map_or(-1, |offset| offset.0))
                    .with_leader_epoch(share.leader_epoch.0.max(0)),
                Err(code) => answer
                    .with_start_offset(-1)
                    .with_error_code(code.code())
                    .with_error_message(Some(code.to_string().into())),
            }
        });
        let partitions = futures::future::join_all(partitions).await;
        let known = allowed.ok().and_then(|()| node.cluster.topics.by_name(name));
        let id = known.map(|topic| topic.id.0).unwrap_or_default();
        topics.push(
            DescribeShareGroupOffsetsResponseTopic::default()
                .with_topic_name(topic.topic_name.clone())
                .with_topic_id(id)
                .with_partitions(partitions),
        );
    }
    Ok(topics)
}

fn all_topics(node: &Node, group: &str) -> Result<Vec<DescribeShareGroupOffsetsRequestTopic>, ErrorCode> {
    let known = match offsets::topics_of(node, group) {
        // A group that nobody knows has no offsets.
        Err(ErrorCode::GroupIdNotFound) => return Ok(Vec::new()),
        known => known?,
    };
    let existing = known.into_iter().filter_map(|name| {
        let count = node.cluster.topics.by_name(&name)?.partition_count();
        Some(
            DescribeShareGroupOffsetsRequestTopic::default()
                .with_topic_name(TopicName(name.into()))
                .with_partitions((0..count).collect()),
        )
    });
    Ok(existing.collect())
}
