//! InitProducerId: gives a producer its identity; with a transactional id, fences older incarnations (KIP-98, KIP-360).

use std::sync::Arc;

use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};
use sharestream_base::ids::{ProducerEpoch, ProducerId};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;
use crate::txn::Identity;

/// From this version on clients know PRODUCER_FENCED here.
const VERSION_WITH_FENCED: i16 = 4;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    match init(node, context, &request) {
        Ok(identity) => InitProducerIdResponse::default()
            .with_producer_id(messages::ProducerId(identity.producer_id.0))
            .with_producer_epoch(identity.epoch.0),
        Err(code) => {
            let code = match code {
                ErrorCode::ProducerFenced if context.version < VERSION_WITH_FENCED => {
                    ErrorCode::InvalidProducerEpoch
                }
                code => code,
            };
            InitProducerIdResponse::default()
                .with_error_code(code.code())
                .with_producer_id(messages::ProducerId(-1))
                .with_producer_epoch(-1)
        }
    }
}

fn init(
    node: &Arc<Node>,
    context: &RequestContext,
    request: &InitProducerIdRequest,
) -> Result<Identity, ErrorCode> {
    let fresh = || Identity { producer_id: node.cluster.allocate_producer_id(), epoch: ProducerEpoch(0) };
    let Some(transactional_id) = &request.transactional_id else {
        context.may.cluster()?;
        return Ok(fresh());
    };
    context.may.transactional_id(transactional_id)?;
    if transactional_id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let expected = match (request.producer_id.0, request.producer_epoch) {
        (-1, -1) => None,
        (id, epoch) if id >= 0 && epoch >= 0 => {
            Some(Identity { producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) })
        }
        _half => return Err(ErrorCode::InvalidRequest),
    };
    node.transactions.init(node, transactional_id, expected, request.transaction_timeout_ms)
}
