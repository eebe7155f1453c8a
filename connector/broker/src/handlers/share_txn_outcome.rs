//! ShareTxnOutcome (private): the share coordinator tells a source leader how a transaction ended (KIP-1289 leaves
//! this path open; kips 1.9).

use std::sync::Arc;

use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use sharestream_wire::messages::share_txn_outcome::{ShareTxnOutcomeRequest, ShareTxnOutcomeResponse};

use super::RequestContext;
use crate::error::{ErrorCode, code_of};
use crate::node::Node;
use crate::share::durable::ShareKey;
use crate::share::record_state::{Marker, TxnOutcome};

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: ShareTxnOutcomeRequest,
) -> ShareTxnOutcomeResponse {
    let key = ShareKey {
        group: Arc::from(&*request.group_id),
        topic_id: TopicId(request.topic_id),
        partition: PartitionIndex(request.partition),
    };
    let marker = Marker {
        producer_id: ProducerId(request.producer_id),
        producer_epoch: ProducerEpoch(request.marker_epoch),
        outcome: if request.commit { TxnOutcome::Commit } else { TxnOutcome::Abort },
    };
    let result = match node.share.manager.resolve(node, &key, marker).await {
        // A deleted topic, or a leader elsewhere that reads the state when it loads: nothing is owed.
        Err(
            ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition | ErrorCode::NotLeaderOrFollower,
        ) => Ok(()),
        result => result,
    };
    ShareTxnOutcomeResponse { error_code: code_of(&result), ..ShareTxnOutcomeResponse::default() }
}
