//! Refused requests to the coordinators of consumer groups, and about leader epochs.

use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::*;

use super::Refuse;

impl Refuse for OffsetCommitRequest {
    fn refuse(self, _version: i16, code: i16) -> OffsetCommitResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code)
            });
            OffsetCommitResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        OffsetCommitResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for TxnOffsetCommitRequest {
    fn refuse(self, _version: i16, code: i16) -> TxnOffsetCommitResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code)
            });
            TxnOffsetCommitResponseTopic::default()
                .with_partitions(partitions.collect())
                .with_name(topic.name)
        });
        TxnOffsetCommitResponse::default().with_topics(topics.collect())
    }
}

/// From this version on OffsetFetch asks for several groups at once.
const OFFSET_FETCH_FIRST_BATCHED: i16 = 8;
/// From this version on its answer has a code for the whole.
const OFFSET_FETCH_FIRST_WITH_CODE: i16 = 2;

impl Refuse for OffsetFetchRequest {
    fn refuse(self, version: i16, code: i16) -> OffsetFetchResponse {
        let response = OffsetFetchResponse::default();
        if version >= OFFSET_FETCH_FIRST_BATCHED {
            let groups = self.groups.into_iter().map(|group| {
                OffsetFetchResponseGroup::default().with_group_id(group.group_id).with_error_code(code)
            });
            return response.with_groups(groups.collect());
        }
        if version >= OFFSET_FETCH_FIRST_WITH_CODE {
            return response.with_error_code(code);
        }
        let topics = self.topics.unwrap_or_default().into_iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|index| {
                OffsetFetchResponsePartition::default()
                    .with_partition_index(*index)
                    .with_committed_offset(-1)
                    .with_error_code(code)
            });
            OffsetFetchResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        response.with_topics(topics.collect())
    }
}

impl Refuse for OffsetForLeaderEpochRequest {
    fn refuse(self, _version: i16, code: i16) -> OffsetForLeaderEpochResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                EpochEndOffset::default()
                    .with_partition(asked.partition)
                    .with_leader_epoch(-1)
                    .with_end_offset(-1)
                    .with_error_code(code)
            });
            OffsetForLeaderTopicResult::default()
                .with_partitions(partitions.collect())
                .with_topic(topic.topic)
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for DescribeGroupsRequest {
    fn refuse(self, _version: i16, code: i16) -> DescribeGroupsResponse {
        let groups = self.groups.into_iter();
        let groups = groups.map(|id| DescribedGroup::default().with_group_id(id).with_error_code(code));
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }
}
