//! Start offsets of share partitions, as an administrator sees and sets them (KIP-932). The group coordinator asks
//! and tells the share coordinators over the protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::DeleteShareGroupStateRequest;
use kafka_protocol::messages::delete_share_group_state_request::{DeleteStateData, PartitionData as Deleted};
use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, StateEpoch, TopicId};
use sharestream_wire::messages::initialize_share_group_state as initialize;

use super::durable::{DurableShare, ShareKey};
use crate::cluster::SHARE_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::group::check_coordinator;
use crate::log::Isolation;
use crate::node::Node;
use crate::share_coordinator::{STATE_VERSION, read_state, state_partition};

/// Topics that a group has or had something to do with.
pub(crate) fn topics_of(node: &Node, group: &str) -> Result<BTreeSet<String>, ErrorCode> {
    node.share.groups.with_group(node, group, |group| group.known_topics().clone())
}

/// The key of a partition of a topic. Errors: UNKNOWN_TOPIC_OR_PARTITION.
pub(crate) fn key_of(node: &Node, group: &str, topic: &str, partition: i32) -> Result<ShareKey, ErrorCode> {
    let topic = node.cluster.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = PartitionIndex(partition);
    topic.partition(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok(ShareKey { group: Arc::from(group), topic_id: topic.id, partition })
}

/// The durable state, without fencing its leader.
pub(crate) async fn describe(node: &Node, key: &ShareKey) -> Result<DurableShare, ErrorCode> {
    read_state(node, key, LeaderEpoch(-1)).await
}

/// Records that are not delivered to the end: those from the start offset to the end of the log, without those that
/// are at an end between (KIP-1226, as Kafka counts it: also control records, and less than nothing where the start
/// offset was set beyond the end). None while there is no start offset. Errors: LEADER_NOT_AVAILABLE,
/// UNKNOWN_TOPIC_OR_PARTITION.
pub(crate) fn lag(node: &Node, key: &ShareKey, share: &DurableShare) -> Result<Option<i64>, ErrorCode> {
    let (Some(start), Some(complete)) = (share.start_offset, share.complete_count()) else {
        return Ok(None);
    };
    let source = node.cluster.topics.partition_by_id(key.topic_id, key.partition);
    let source = source.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    source.leadership().leader.ok_or(ErrorCode::LeaderNotAvailable)?;
    let end = source.ends().readable_end(Isolation::ReadUncommitted);
    Ok(Some(end.0 - start.0 - i64::from(complete)))
}

/// Errors: NOT_COORDINATOR, NON_EMPTY_GROUP (offsets of a group in use are its members' business), GROUP_ID_NOT_FOUND (a
/// consumer group).
pub(crate) fn check_unused(node: &Node, group: &str) -> Result<(), ErrorCode> {
    check_coordinator(node, group)?;
    match node.share.groups.with_group(node, group, |group| group.members().is_empty()) {
        Ok(false) => Err(ErrorCode::NonEmptyGroup),
        Err(_) if node.offsets.has_group(node, group)? => Err(ErrorCode::GroupIdNotFound),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Sets the start offset: a new incarnation of the state, so that whoever leads with the old one is fenced.
pub(crate) async fn reset(node: &Node, key: &ShareKey, start: Offset) -> Result<(), ErrorCode> {
    let known = describe(node, key).await?;
    let partition = initialize::PartitionData {
        partition: key.partition.0,
        state_epoch: StateEpoch(known.state_epoch.0.saturating_add(1)).0,
        start_offset: start.0,
    };
    let topic = initialize::InitializeStateData { topic_id: key.topic_id.0, partitions: vec![partition] };
    let request = initialize::InitializeShareGroupStateRequest {
        group_id: key.group.to_string().into(),
        topics: vec![topic],
    };
    let response = node.peers.call(coordinator_of(node, key)?, request, STATE_VERSION).await;
    let response = response.map_err(|error| error.code())?;
    let mut codes = response.results.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code);
    codes.find_map(ErrorCode::try_from_code).map_or(Ok(()), Err)
}

/// Deletes the state of every partition of a topic.
pub(crate) async fn delete(node: &Node, group: &str, topic_id: TopicId) -> Result<(), ErrorCode> {
    let topic = node.cluster.topics.by_id(topic_id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    for index in 0..topic.partition_count() {
        let key = ShareKey { group: Arc::from(group), topic_id, partition: PartitionIndex(index) };
        let data = DeleteStateData::default()
            .with_topic_id(topic_id.0)
            .with_partitions(vec![Deleted::default().with_partition(index)]);
        let request = DeleteShareGroupStateRequest::default()
            .with_group_id(group.to_owned().into())
            .with_topics(vec![data]);
        let response = node.peers.call(coordinator_of(node, &key)?, request, 0).await;
        let response = response.map_err(|error| error.code())?;
        let mut codes = response.results.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code);
        codes.find_map(ErrorCode::try_from_code).map_or(Ok(()), Err)?;
    }
    Ok(())
}

fn coordinator_of(node: &Node, key: &ShareKey) -> Result<NodeId, ErrorCode> {
    let found = state_partition(node, key).and_then(|index| node.cluster.leader_of(SHARE_STATE_TOPIC, index));
    found.ok_or(ErrorCode::CoordinatorNotAvailable)
}
