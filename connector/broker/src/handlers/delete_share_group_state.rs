//! DeleteShareGroupState (KIP-932): the share coordinator forgets share partitions.

use std::sync::Arc;

use kafka_protocol::messages::delete_share_group_state_response::{DeleteStateResult, PartitionResult};
use kafka_protocol::messages::{DeleteShareGroupStateRequest, DeleteShareGroupStateResponse};
use sharestream_base::ids::{PartitionIndex, TopicId};

use super::RequestContext;
use crate::error::code_of;
use crate::node::Node;
use crate::share::durable::ShareKey;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse {
    let group: Arc<str> = Arc::from(&*request.group_id);
    let results = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|data| {
            let key = ShareKey {
                group: Arc::clone(&group),
                topic_id: TopicId(topic.topic_id),
                partition: PartitionIndex(data.partition),
            };
            let removed = node.share.coordinator.remove(node, &key);
            PartitionResult::default().with_partition(data.partition).with_error_code(code_of(&removed))
        });
        let partitions = partitions.collect();
        DeleteStateResult::default().with_topic_id(topic.topic_id).with_partitions(partitions)
    });
    DeleteShareGroupStateResponse::default().with_results(results.collect())
}
