//! Refused requests of administrators.

use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, TopicResponse};
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::share_group_describe_response::DescribedGroup;
use kafka_protocol::messages::*;
// Newer than kafka_protocol has it: the name wins over that of the glob above.
use sharestream_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, ResponseGroup,
};

use super::Refuse;

impl Refuse for MetadataRequest {
    fn refuse(self, _version: i16, code: i16) -> MetadataResponse {
        let topics = self.topics.unwrap_or_default().into_iter().map(|topic| {
            MetadataResponseTopic::default()
                .with_error_code(code)
                .with_name(topic.name)
                .with_topic_id(topic.topic_id)
        });
        MetadataResponse::default().with_topics(topics.collect()).with_error_code(code)
    }
}

impl Refuse for CreateTopicsRequest {
    fn refuse(self, _version: i16, code: i16) -> CreateTopicsResponse {
        let topics = self.topics.into_iter();
        let topics =
            topics.map(|topic| CreatableTopicResult::default().with_name(topic.name).with_error_code(code));
        CreateTopicsResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for DeleteTopicsRequest {
    fn refuse(self, _version: i16, code: i16) -> DeleteTopicsResponse {
        let by_name = self.topic_names.into_iter().map(|name| (Some(name), uuid::Uuid::nil()));
        let topics = self.topics.into_iter().map(|topic| (topic.name, topic.topic_id)).chain(by_name);
        let responses = topics.map(|(name, id)| {
            DeletableTopicResult::default().with_name(name).with_topic_id(id).with_error_code(code)
        });
        DeleteTopicsResponse::default().with_responses(responses.collect())
    }
}

impl Refuse for DeleteGroupsRequest {
    fn refuse(self, _version: i16, code: i16) -> DeleteGroupsResponse {
        let groups = self.groups_names.into_iter();
        let groups =
            groups.map(|group| DeletableGroupResult::default().with_group_id(group).with_error_code(code));
        DeleteGroupsResponse::default().with_results(groups.collect())
    }
}

impl Refuse for DeleteRecordsRequest {
    fn refuse(self, _version: i16, code: i16) -> DeleteRecordsResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                DeleteRecordsPartitionResult::default()
                    .with_partition_index(asked.partition_index)
                    .with_low_watermark(-1)
                    .with_error_code(code)
            });
            DeleteRecordsTopicResult::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        DeleteRecordsResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for DescribeConfigsRequest {
    fn refuse(self, _version: i16, code: i16) -> DescribeConfigsResponse {
        let results = self.resources.into_iter().map(|resource| {
            DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
                .with_error_code(code)
        });
        DescribeConfigsResponse::default().with_results(results.collect())
    }
}

impl Refuse for IncrementalAlterConfigsRequest {
    fn refuse(self, _version: i16, code: i16) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.into_iter().map(|resource| {
            AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
                .with_error_code(code)
        });
        IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
    }
}

impl Refuse for DescribeProducersRequest {
    fn refuse(self, _version: i16, code: i16) -> DescribeProducersResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partition_indexes.iter();
            let partitions = partitions
                .map(|index| PartitionResponse::default().with_partition_index(*index).with_error_code(code));
            TopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        DescribeProducersResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for DescribeTransactionsRequest {
    fn refuse(self, _version: i16, code: i16) -> DescribeTransactionsResponse {
        let states = self.transactional_ids.into_iter();
        let states =
            states.map(|id| TransactionState::default().with_transactional_id(id).with_error_code(code));
        DescribeTransactionsResponse::default().with_transaction_states(states.collect())
    }
}

impl Refuse for ShareGroupDescribeRequest {
    fn refuse(self, _version: i16, code: i16) -> ShareGroupDescribeResponse {
        let groups = self.group_ids.into_iter();
        let groups = groups.map(|id| DescribedGroup::default().with_group_id(id).with_error_code(code));
        ShareGroupDescribeResponse::default().with_groups(groups.collect())
    }
}

impl Refuse for DescribeShareGroupOffsetsRequest {
    fn refuse(self, _version: i16, code: i16) -> DescribeShareGroupOffsetsResponse {
        let groups = self.groups.into_iter();
        let groups = groups.map(|group| ResponseGroup {
            group_id: group.group_id,
            error_code: code,
            ..ResponseGroup::default()
        });
        DescribeShareGroupOffsetsResponse { groups: groups.collect(), ..Default::default() }
    }
}
