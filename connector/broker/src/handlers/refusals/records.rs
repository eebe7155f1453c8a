//! Refused requests to logs and transactions.

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::*;

use super::Refuse;

impl Refuse for ProduceRequest {
    fn refuse(self, _version: i16, code: i16) -> ProduceResponse {
        let topics = self.topic_data.into_iter().map(|topic| {
            let partitions = topic.partition_data.iter().map(|data| {
                let nowhere = PartitionProduceResponse::default().with_index(data.index).with_base_offset(-1);
                nowhere.with_error_code(code)
            });
            TopicProduceResponse::default()
                .with_partition_responses(partitions.collect())
                .with_name(topic.name)
                .with_topic_id(topic.topic_id)
        });
        ProduceResponse::default().with_responses(topics.collect())
    }
}

impl Refuse for FetchRequest {
    fn refuse(self, _version: i16, code: i16) -> FetchResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                PartitionData::default()
                    .with_partition_index(asked.partition)
                    .with_error_code(code)
                    .with_high_watermark(-1)
                    .with_last_stable_offset(-1)
                    .with_log_start_offset(-1)
                    .with_records(Some(bytes::Bytes::new()))
            });
            FetchableTopicResponse::default()
                .with_partitions(partitions.collect())
                .with_topic(topic.topic)
                .with_topic_id(topic.topic_id)
        });
        FetchResponse::default().with_responses(topics.collect())
    }
}

impl Refuse for ListOffsetsRequest {
    fn refuse(self, _version: i16, code: i16) -> ListOffsetsResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code)
            });
            ListOffsetsTopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }
}

impl Refuse for AddPartitionsToTxnRequest {
    fn refuse(self, _version: i16, code: i16) -> AddPartitionsToTxnResponse {
        let topics = |topics: Vec<AddPartitionsToTxnTopic>| {
            let topic = |topic: AddPartitionsToTxnTopic| {
                let partitions = topic.partitions.iter().map(|index| {
                    AddPartitionsToTxnPartitionResult::default()
                        .with_partition_index(*index)
                        .with_partition_error_code(code)
                });
                AddPartitionsToTxnTopicResult::default()
                    .with_results_by_partition(partitions.collect())
                    .with_name(topic.name)
            };
            topics.into_iter().map(topic).collect::<Vec<_>>()
        };
        let transactions = self.transactions.into_iter().map(|transaction| {
            AddPartitionsToTxnResult::default()
                .with_topic_results(topics(transaction.topics))
                .with_transactional_id(transaction.transactional_id)
        });
        AddPartitionsToTxnResponse::default()
            .with_error_code(code)
            .with_results_by_transaction(transactions.collect())
            .with_results_by_topic_v3_and_below(topics(self.v3_and_below_topics))
    }
}

impl Refuse for WriteTxnMarkersRequest {
    fn refuse(self, _version: i16, code: i16) -> WriteTxnMarkersResponse {
        let markers = self.markers.into_iter().map(|marker| {
            let topics = marker.topics.into_iter().map(|topic| {
                let partitions = topic.partition_indexes.iter().map(|index| {
                    WritableTxnMarkerPartitionResult::default()
                        .with_partition_index(*index)
                        .with_error_code(code)
                });
                WritableTxnMarkerTopicResult::default()
                    .with_partitions(partitions.collect())
                    .with_name(topic.name)
            });
            let topics = topics.collect();
            WritableTxnMarkerResult::default().with_producer_id(marker.producer_id).with_topics(topics)
        });
        WriteTxnMarkersResponse::default().with_markers(markers.collect())
    }
}
