//! EndTxn: commits or aborts. From version 5 on the answer carries the identity to go on with (KIP-890).

use std::sync::Arc;

use kafka_protocol::messages::{self, EndTxnRequest, EndTxnResponse};
use sharestream_base::ids::{ProducerEpoch, ProducerId};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::log::TransactionVersion;
use crate::node::Node;
use crate::txn::{Identity, Outcome};

/// Clients of transaction version 2 use this version and later ones.
const FIRST_VERSION_2: i16 = 5;
/// From this version on clients know PRODUCER_FENCED here.
const VERSION_WITH_FENCED: i16 = 2;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: EndTxnRequest,
) -> EndTxnResponse {
    let identity = Identity {
        producer_id: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let version =
        if context.version >= FIRST_VERSION_2 { TransactionVersion::V2 } else { TransactionVersion::V1 };
    let outcome = if request.committed { Outcome::Commit } else { Outcome::Abort };
    let id = &request.transactional_id;
    let allowed = context.may.transactional_id(id);
    match allowed.and_then(|()| node.transactions.end(node, id, identity, version, outcome)) {
        Ok(next) if version == TransactionVersion::V2 => EndTxnResponse::default()
            .with_producer_id(messages::ProducerId(next.producer_id.0))
            .with_producer_epoch(next.epoch.0),
        Ok(_) => EndTxnResponse::default(),
        Err(ErrorCode::ProducerFenced) if context.version < VERSION_WITH_FENCED => {
            EndTxnResponse::default().with_error_code(ErrorCode::InvalidProducerEpoch.code())
        }
        Err(code) => EndTxnResponse::default().with_error_code(code.code()),
    }
}
