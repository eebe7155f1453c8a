//! AddOffsetsToTxn: a client of transaction version 1 adds a group to its transaction (KIP-98). The participant is the
//! group's partition of `__consumer_offsets`.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use sharestream_base::ids::{ProducerEpoch, ProducerId};

use super::RequestContext;
use super::add_partitions_to_txn::PATIENCE;
use crate::cluster::GROUP_TOPIC;
use crate::error::{ErrorCode, code_of};
use crate::log::TransactionVersion;
use crate::node::Node;
use crate::txn::{Command, Identity, TopicPartition};

/// From this version on clients know PRODUCER_FENCED here.
const VERSION_WITH_FENCED: i16 = 2;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let added = match add(node, &request).await {
        Err(ErrorCode::ProducerFenced) if context.version < VERSION_WITH_FENCED => {
            Err(ErrorCode::InvalidProducerEpoch)
        }
        added => added,
    };
    AddOffsetsToTxnResponse::default().with_error_code(code_of(&added))
}

/// Errors: INVALID_REQUEST and those of [`Coordinator::add_partitions`](crate::txn::Coordinator::add_partitions).
async fn add(node: &Arc<Node>, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    if request.transactional_id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let partition =
        node.cluster.group_partition(&request.group_id).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let identity = Identity {
        producer_id: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let partitions = BTreeSet::from([TopicPartition { topic: Arc::from(GROUP_TOPIC), partition }]);
    let command = Command::AddPartitions { identity, version: TransactionVersion::V1, partitions };
    node.transactions.add_partitions(node, &request.transactional_id, &command, PATIENCE).await.map(|_| ())
}
