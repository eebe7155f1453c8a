//! DeleteRecords: moves the start of logs forward (KIP-107), never past the last stable offset: what an open
//! transaction may still decide stays, and the answer says where the log starts. Kafka goes up to the high watermark.

use std::sync::Arc;

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use sharestream_base::ids::{Offset, PartitionIndex};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;

/// Stands for the high watermark.
const TO_THE_END: i64 = -1;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let allowed = context.may.topic(&topic.name);
        let partitions = topic.partitions.iter().map(|asked| {
            let result = DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            let index = PartitionIndex(asked.partition_index);
            match allowed.and_then(|()| delete(node, topic.name.as_str(), index, asked.offset)) {
                Ok(log_start) => result.with_low_watermark(log_start.0),
                Err(code) => result.with_low_watermark(-1).with_error_code(code.code()),
            }
        });
        DeleteRecordsTopicResult::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn delete(node: &Node, topic: &str, index: PartitionIndex, offset: i64) -> Result<Offset, ErrorCode> {
    let partition = node.led(topic, index)?;
    let high_watermark = partition.ends().high_watermark;
    let offset = if offset == TO_THE_END { high_watermark } else { Offset(offset) };
    if offset.0 < 0 || offset > high_watermark {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok(partition.delete_before(offset)?.log_start)
}
