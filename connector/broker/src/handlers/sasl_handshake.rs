//! SaslHandshake (KIP-43): agrees on how a client says who it is.

use std::sync::Arc;

use kafka_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::{Authentication, PLAIN};
use crate::error::ErrorCode;
use crate::node::Node;

/// On a connection on which there is nothing to agree on.
pub(super) async fn handle(
    _node: &Arc<Node>,
    _context: &RequestContext,
    _request: SaslHandshakeRequest,
) -> SaslHandshakeResponse {
    SaslHandshakeResponse::default().with_error_code(ErrorCode::IllegalSaslState.code())
}

/// The answer, and false when the connection ends with it.
pub(super) fn step(
    state: &mut Authentication,
    request: &SaslHandshakeRequest,
) -> (SaslHandshakeResponse, bool) {
    let response = SaslHandshakeResponse::default();
    let offered = vec![StrBytes::from_static_str(PLAIN)];
    match state.shake_hands(&request.mechanism) {
        Ok(()) => (response.with_mechanisms(offered), true),
        Err(code @ ErrorCode::UnsupportedSaslMechanism) => {
            (response.with_error_code(code.code()).with_mechanisms(offered), false)
        }
        Err(code) => (response.with_error_code(code.code()), true),
    }
}
