//! WriteTxnMarkers: a coordinator tells this leader how transactions ended (KIP-98).
//!
//! For `__share_group_state` the share coordinator resolves what is pending before this answers (KIP-1289), for
//! `__consumer_offsets` the group coordinator (KIP-98).

use std::sync::Arc;

use futures::future::join_all;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use super::RequestContext;
use crate::cluster::{GROUP_TOPIC, SHARE_STATE_TOPIC};
use crate::error::{ErrorCode, code_of};
use crate::log::Marker;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let markers = join_all(request.markers.iter().map(|marker| write(node, marker))).await;
    WriteTxnMarkersResponse::default().with_markers(markers)
}

async fn write(node: &Arc<Node>, asked: &WritableTxnMarker) -> WritableTxnMarkerResult {
    let marker = Marker {
        producer_id: ProducerId(asked.producer_id.0),
        producer_epoch: ProducerEpoch(asked.producer_epoch),
        coordinator_epoch: asked.coordinator_epoch,
        commit: asked.transaction_result,
    };
    let topics = join_all(asked.topics.iter().map(|topic| write_topic(node, marker, topic))).await;
    WritableTxnMarkerResult::default().with_producer_id(asked.producer_id).with_topics(topics)
}

async fn write_topic(
    node: &Arc<Node>,
    marker: Marker,
    topic: &WritableTxnMarkerTopic,
) -> WritableTxnMarkerTopicResult {
    let name = topic.name.as_str();
    let partitions = topic.partition_indexes.iter().map(|index| async move {
        let index = PartitionIndex(*index);
        let written = write_partition(node, marker, name, index).await;
        WritableTxnMarkerPartitionResult::default()
            .with_partition_index(index.0)
            .with_error_code(code_of(&written))
    });
    WritableTxnMarkerTopicResult::default()
        .with_name(topic.name.clone())
        .with_partitions(join_all(partitions).await)
}

async fn write_partition(
    node: &Arc<Node>,
    marker: Marker,
    topic: &str,
    index: PartitionIndex,
) -> Result<(), ErrorCode> {
    let partition = node.led(topic, index)?;
    if topic == SHARE_STATE_TOPIC {
        // Pending entries are plain records that later ones replace: the log needs no control batch.
        let Marker { producer_id, producer_epoch, commit, .. } = marker;
        return node.share.complete_transaction(node, index, producer_id, producer_epoch, commit).await;
    }
    if topic == GROUP_TOPIC {
        return node.offsets.complete_transaction(node, index, &marker);
    }
    partition.append_marker(&marker, node.env.clock.wall_ms()).map(|_| ())
}
