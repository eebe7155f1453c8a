//! OffsetDelete (KIP-496): forgets how far a group is in partitions, staged offsets included.

use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

use super::RequestContext;
use super::offsets::{Results, by_topic, known};
use crate::error::ErrorCode;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let response = OffsetDeleteResponse::default();
    if request.group_id.is_empty() {
        return response.with_error_code(ErrorCode::InvalidGroupId.code());
    }
    let (mut unknown, mut asked, mut partitions) = (Vec::new(), Vec::new(), Vec::new());
    for topic in request.topics {
        for index in topic.partitions.iter().map(|partition| partition.partition_index) {
            match known(node, &topic.name, index) {
                Ok(partition) => {
                    partitions.push(partition);
                    asked.push((topic.name.clone(), index, 0));
                }
                Err(code) => unknown.push((topic.name.clone(), index, code.code())),
            }
        }
    }
    if let Err(code) = node.offsets.delete_offsets(node, &request.group_id, &partitions) {
        return response.with_error_code(code.code());
    }
    let topics = by_topic(unknown.into_iter().chain(asked));
    response.with_topics(topics.into_iter().map(topic).collect())
}

fn topic((name, partitions): (TopicName, Results)) -> OffsetDeleteResponseTopic {
    let partitions = partitions.into_iter().map(|(index, code)| {
        OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(code)
    });
    OffsetDeleteResponseTopic::default().with_name(name).with_partitions(partitions.collect())
}
