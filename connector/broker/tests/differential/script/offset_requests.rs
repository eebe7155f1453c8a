//! Requests about the offsets of consumer groups, each made of what the script varies.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;

use super::requests::*;
use crate::play::Play;

/// Partition, offset, metadata.
pub(crate) type Commit<'a> = (i32, i64, Option<&'a str>);

/// Topics with partitions; none stands for all.
pub(crate) type Wanted<'a> = Option<&'a [(&'a str, &'a [i32])]>;

/// Member id and generation of who commits.
pub(crate) type Who<'a> = (&'a str, i32);

/// Who is no member.
pub(crate) const NOBODY: Who<'static> = ("", -1);

/// Who says to be a member of a group that has none.
pub(crate) const STRANGERS: [(&str, Who<'static>); 4] = [
    ("as a member", ("stranger", 5)),
    ("with a generation", ("", 5)),
    ("with generation 0", ("", 0)),
    ("with a member id", ("stranger", -1)),
];

pub(crate) fn commit(group: &str, who: Who<'_>, topic: &str, offsets: &[Commit<'_>]) -> OffsetCommitRequest {
    let partitions = offsets.iter().map(|(partition, offset, metadata)| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_metadata(metadata.map(text))
    });
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(partitions.collect());
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(who.0))
        .with_generation_id_or_member_epoch(who.1)
        .with_topics(vec![topic])
}

pub(crate) fn with_leader_epoch(mut request: OffsetCommitRequest, epoch: i32) -> OffsetCommitRequest {
    for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.committed_leader_epoch = epoch;
    }
    request
}

/// From this version on several groups may be asked about at once.
const FETCH_FIRST_BATCHED: i16 = 8;
/// From this version on only stable offsets may be asked for.
const FETCH_FIRST_STABLE: i16 = 7;

pub(crate) fn fetch_offsets(
    version: i16,
    group: &str,
    topics: Wanted<'_>,
    stable: bool,
) -> OffsetFetchRequest {
    let request = OffsetFetchRequest::default();
    let request = if version >= FETCH_FIRST_STABLE { request.with_require_stable(stable) } else { request };
    if version < FETCH_FIRST_BATCHED {
        let one = |(name, partitions): &(&str, &[i32])| {
            OffsetFetchRequestTopic::default()
                .with_name(topic_name(name))
                .with_partition_indexes(partitions.to_vec())
        };
        let topics = topics.map(|topics| topics.iter().map(one).collect());
        return request.with_group_id(GroupId(text(group))).with_topics(topics);
    }
    let one = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopics::default()
            .with_name(topic_name(name))
            .with_partition_indexes(partitions.to_vec())
    };
    let topics = topics.map(|topics| topics.iter().map(one).collect());
    let group = OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(topics);
    request.with_groups(vec![group])
}

/// Groups, each with a member id and a member epoch.
pub(crate) fn fetch_groups(groups: &[(&str, &str, i32)], topic: &str, partition: i32) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(vec![partition]);
    let groups = groups.iter().map(|(group, member, epoch)| {
        OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(text(group)))
            .with_member_id((!member.is_empty()).then(|| text(member)))
            .with_member_epoch(*epoch)
            .with_topics(Some(vec![topic.clone()]))
    });
    OffsetFetchRequest::default().with_groups(groups.collect())
}

/// Notes what OffsetFetch answers of all topics, sorted.
pub(crate) async fn fetched(p: &mut Play, name: &str, request: OffsetFetchRequest, version: i16) {
    let answer = p.call(&request, version).await.map(|mut answer| {
        answer.topics.sort_by(|a, b| a.name.cmp(&b.name));
        answer.topics.iter_mut().for_each(|topic| topic.partitions.sort_by_key(|one| one.partition_index));
        for group in &mut answer.groups {
            group.topics.sort_by(|a, b| a.name.cmp(&b.name));
            group.topics.iter_mut().for_each(|topic| topic.partitions.sort_by_key(|one| one.partition_index));
        }
        answer
    });
    p.note(name, answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
}

pub(crate) fn txn_commit(
    id: &str,
    producer: Producer,
    group: &str,
    who: Who<'_>,
    topic: &str,
    offsets: &[Commit<'_>],
) -> TxnOffsetCommitRequest {
    let partitions = offsets.iter().map(|(partition, offset, metadata)| {
        TxnOffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_metadata(metadata.map(text))
    });
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(partitions.collect());
    TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(who.0))
        .with_generation_id(who.1)
        .with_topics(vec![topic])
}

pub(crate) fn add_offsets(id: &str, producer: Producer, group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_group_id(GroupId(text(group)))
}

pub(crate) fn delete_offsets(group: &str, topic: &str, partitions: &[i32]) -> OffsetDeleteRequest {
    let partitions =
        partitions.iter().map(|index| OffsetDeleteRequestPartition::default().with_partition_index(*index));
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(partitions.collect());
    OffsetDeleteRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
}

pub(crate) fn delete_groups(groups: &[&str]) -> DeleteGroupsRequest {
    DeleteGroupsRequest::default()
        .with_groups_names(groups.iter().map(|group| GroupId(text(group))).collect())
}

pub(crate) fn describe_groups(group: &str) -> DescribeGroupsRequest {
    DescribeGroupsRequest::default().with_groups(vec![GroupId(text(group))])
}

pub(crate) fn list_groups(states: &[&str], types: &[&str]) -> ListGroupsRequest {
    ListGroupsRequest::default()
        .with_states_filter(states.iter().map(|state| text(state)).collect())
        .with_types_filter(types.iter().map(|kind| text(kind)).collect())
}
