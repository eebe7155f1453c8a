//! Refused requests of source leaders to share coordinators.

use kafka_protocol::messages::delete_share_group_state_response::{DeleteStateResult, PartitionResult};
use kafka_protocol::messages::{DeleteShareGroupStateRequest, DeleteShareGroupStateResponse};
use sharestream_wire::messages::initialize_share_group_state as initialize;
use sharestream_wire::messages::read_share_group_state as read;
use sharestream_wire::messages::write_share_group_state as write;

use super::Refuse;

impl Refuse for initialize::InitializeShareGroupStateRequest {
    fn refuse(self, _version: i16, error_code: i16) -> initialize::InitializeShareGroupStateResponse {
        let results = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|data| initialize::PartitionResult {
                partition: data.partition,
                error_code,
                ..initialize::PartitionResult::default()
            });
            let partitions = partitions.collect();
            initialize::InitializeStateResult { topic_id: topic.topic_id, partitions }
        });
        initialize::InitializeShareGroupStateResponse { results: results.collect() }
    }
}

impl Refuse for read::ReadShareGroupStateRequest {
    fn refuse(self, _version: i16, error_code: i16) -> read::ReadShareGroupStateResponse {
        let results = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|data| read::PartitionResult {
                partition: data.partition,
                error_code,
                ..read::PartitionResult::default()
            });
            read::ReadStateResult { topic_id: topic.topic_id, partitions: partitions.collect() }
        });
        read::ReadShareGroupStateResponse { results: results.collect() }
    }
}

impl Refuse for write::WriteShareGroupStateRequest {
    fn refuse(self, _version: i16, error_code: i16) -> write::WriteShareGroupStateResponse {
        let results = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|data| write::PartitionResult {
                partition: data.partition,
                error_code,
                ..write::PartitionResult::default()
            });
            write::WriteStateResult { topic_id: topic.topic_id, partitions: partitions.collect() }
        });
        write::WriteShareGroupStateResponse { results: results.collect() }
    }
}

impl Refuse for DeleteShareGroupStateRequest {
    fn refuse(self, _version: i16, code: i16) -> DeleteShareGroupStateResponse {
        let results = self.topics.into_iter().map(|topic| {
            let partitions = topic
                .partitions
                .iter()
                .map(|data| PartitionResult::default().with_partition(data.partition).with_error_code(code));
            let partitions = partitions.collect();
            DeleteStateResult::default().with_topic_id(topic.topic_id).with_partitions(partitions)
        });
        DeleteShareGroupStateResponse::default().with_results(results.collect())
    }
}
