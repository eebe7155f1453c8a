//! DescribeProducers: who writes to a partition, and which transactions hang there (KIP-664).

use std::sync::Arc;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{self, DescribeProducersRequest, DescribeProducersResponse};
use sharestream_base::ids::PartitionIndex;

use super::RequestContext;
use crate::log::ProducerSummary;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let allowed = context.may.topic(&topic.name);
        let partitions = topic.partition_indexes.iter().map(|index| {
            let response = PartitionResponse::default().with_partition_index(*index);
            match allowed.and_then(|()| node.led(topic.name.as_str(), PartitionIndex(*index))) {
                Ok(partition) => {
                    response.with_active_producers(partition.producers().iter().map(describe).collect())
                }
                Err(code) => response.with_error_code(code.code()),
            }
        });
        TopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn describe(producer: &ProducerSummary) -> ProducerState {
    ProducerState::default()
        .with_producer_id(messages::ProducerId(producer.producer_id.0))
        .with_producer_epoch(i32::from(producer.producer_epoch.0))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp_ms)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(producer.open_from.map_or(-1, |offset| offset.0))
}
