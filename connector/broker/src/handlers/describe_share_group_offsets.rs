//! DescribeShareGroupOffsets (KIP-932): share-partition start offsets of groups, and from version 1 their lag (KIP-1226).
//! -1 means that nobody has fetched yet.

use std::sync::Arc;

use sharestream_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, RequestGroup, RequestTopic,
    ResponseGroup, ResponsePartition, ResponseTopic,
};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::group::check_coordinator;
use crate::node::Node;
use crate::share::durable::ShareKey;
use crate::share::offsets;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse {
    let groups = request.groups.iter().map(|group| async move {
        let answer = ResponseGroup { group_id: group.group_id.clone(), ..ResponseGroup::default() };
        match describe_group(node, context, group).await {
            Ok(topics) => ResponseGroup { topics, ..answer },
            Err(code) => ResponseGroup {
                error_code: code.code(),
                error_message: Some(code.to_string().into()),
                ..answer
            },
        }
    });
    let groups = futures::future::join_all(groups).await;
    DescribeShareGroupOffsetsResponse { groups, ..DescribeShareGroupOffsetsResponse::default() }
}

async fn describe_group(
    node: &Arc<Node>,
    context: &RequestContext,
    group: &RequestGroup,
) -> Result<Vec<ResponseTopic>, ErrorCode> {
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
            match allowed.and_then(|()| offsets::key_of(node, &group.group_id, name, *partition)) {
                Ok(key) => describe_partition(node, &key).await,
                Err(code) => refused(*partition, -1, code),
            }
        });
        let partitions = futures::future::join_all(partitions).await;
        let known = allowed.ok().and_then(|()| node.cluster.topics.by_name(name));
        let topic_id = known.map(|topic| topic.id.0).unwrap_or_default();
        topics.push(ResponseTopic { topic_name: topic.topic_name, topic_id, partitions });
    }
    Ok(topics)
}

async fn describe_partition(node: &Arc<Node>, key: &ShareKey) -> ResponsePartition {
    let share = match offsets::describe(node, key).await {
        Ok(share) => share,
        Err(code) => return refused(key.partition.0, -1, code),
    };
    match offsets::lag(node, key, &share) {
        Ok(lag) => ResponsePartition {
            partition_index: key.partition.0,
            start_offset: share.start_offset.map_or(-1, |offset| offset.0),
            leader_epoch: share.leader_epoch.0.max(0),
            lag: lag.unwrap_or(-1),
            ..ResponsePartition::default()
        },
        // Kafka, too, says no start offset where it does not know the end of the log, in any version.
        Err(code) => refused(key.partition.0, 0, code),
    }
}

fn refused(partition_index: i32, start_offset: i64, code: ErrorCode) -> ResponsePartition {
    ResponsePartition {
        partition_index,
        start_offset,
        error_code: code.code(),
        error_message: Some(code.to_string().into()),
        ..ResponsePartition::default()
    }
}

fn all_topics(node: &Node, group: &str) -> Result<Vec<RequestTopic>, ErrorCode> {
    let known = match offsets::topics_of(node, group) {
        // A group that nobody knows has no offsets.
        Err(ErrorCode::GroupIdNotFound) => return Ok(Vec::new()),
        known => known?,
    };
    let existing = known.into_iter().filter_map(|name| {
        let count = node.cluster.topics.by_name(&name)?.partition_count();
        Some(RequestTopic { topic_name: name.into(), partitions: (0..count).collect() })
    });
    Ok(existing.collect())
}
