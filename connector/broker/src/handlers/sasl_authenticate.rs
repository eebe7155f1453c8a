//! SaslAuthenticate (KIP-152): takes name and password. What they were is in no answer and no log.

use std::sync::Arc;

use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::{AccessControl, Authentication};
use crate::error::ErrorCode;
use crate::node::Node;

/// On a connection that is authenticated, or need not be.
pub(super) async fn handle(
    _node: &Arc<Node>,
    _context: &RequestContext,
    _request: SaslAuthenticateRequest,
) -> SaslAuthenticateResponse {
    let text = "SaslAuthenticate request received after successful authentication";
    SaslAuthenticateResponse::default()
        .with_error_code(ErrorCode::IllegalSaslState.code())
        .with_error_message(Some(StrBytes::from_static_str(text)))
}

/// The answer, and false when the connection ends with it.
pub(super) fn step(
    control: &AccessControl,
    state: &mut Authentication,
    request: &SaslAuthenticateRequest,
) -> (SaslAuthenticateResponse, bool) {
    let response = SaslAuthenticateResponse::default();
    match state.authenticate(control, &request.auth_bytes) {
        Ok(()) => (response, true),
        Err(text) => {
            let response = response.with_error_code(ErrorCode::SaslAuthenticationFailed.code());
            (response.with_error_message(Some(StrBytes::from_static_str(text))), false)
        }
    }
}
