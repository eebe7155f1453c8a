//! FindCoordinator: which node coordinates a group, a transactional id or a share partition (KIP-699, KIP-932).

use std::sync::Arc;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::NodeId;

use super::RequestContext;
use crate::cluster::SHARE_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::node::Node;

const KEY_TYPE_GROUP: i8 = 0;
const KEY_TYPE_TRANSACTION: i8 = 1;
const KEY_TYPE_SHARE: i8 = 2;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let find = |key: &StrBytes| {
        let found = find(node, context, request.key_type, key).and_then(|id| {
            let address = node.cluster.address(id).ok_or(ErrorCode::CoordinatorNotAvailable)?;
            Ok((id, address))
        });
        let coordinator = Coordinator::default().with_key(key.clone());
        match found {
            Ok((id, address)) => coordinator
                .with_node_id(BrokerId(id.0))
                .with_host(StrBytes::from_string(address.host))
                .with_port(i32::from(address.port)),
            Err(code) => coordinator
                .with_node_id(BrokerId(-1))
                .with_port(-1)
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_string(code.to_string()))),
        }
    };
    if context.version >= 4 {
        let coordinators = request.coordinator_keys.iter().map(find).collect();
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    let one = find(&request.key);
    let message = one.error_message.filter(|_| context.version >= 1);
    FindCoordinatorResponse::default()
        .with_error_code(one.error_code)
        .with_error_message(message)
        .with_node_id(one.node_id)
        .with_host(one.host)
        .with_port(one.port)
}

fn find(node: &Node, context: &RequestContext, key_type: i8, key: &str) -> Result<NodeId, ErrorCode> {
    let cluster = &node.cluster;
    match key_type {
        KEY_TYPE_GROUP => context.may.group(key)?,
        KEY_TYPE_TRANSACTION => context.may.transactional_id(key)?,
        _nodes_ask => context.may.cluster()?,
    }
    let found = match key_type {
        KEY_TYPE_GROUP => cluster.group_coordinator(key),
        KEY_TYPE_TRANSACTION => cluster.transaction_coordinator(key),
        KEY_TYPE_SHARE => {
            let index = cluster.partition_of_key(SHARE_STATE_TOPIC, key);
            index.and_then(|index| cluster.leader_of(SHARE_STATE_TOPIC, index))
        }
        _ => return Err(ErrorCode::InvalidRequest),
    };
    found.ok_or(ErrorCode::CoordinatorNotAvailable)
}
