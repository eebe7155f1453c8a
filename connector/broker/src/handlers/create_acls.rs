//! CreateAcls (KIP-140): adds acls, each for itself.

use std::sync::Arc;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::{AccessControl, WireAcl};
use crate::error::ErrorCode;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let results = request.creations.iter().map(|creation| match create(&node.cluster.access, creation) {
        Ok(()) => AclCreationResult::default().with_error_message(None),
        Err((code, text)) => AclCreationResult::default()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(text))),
    });
    CreateAclsResponse::default().with_results(results.collect())
}

fn create(access: &AccessControl, creation: &AclCreation) -> Result<(), (ErrorCode, String)> {
    if !access.is_on() {
        return Err((ErrorCode::SecurityDisabled, ErrorCode::SecurityDisabled.to_string()));
    }
    let acl = WireAcl {
        resource_type: creation.resource_type,
        resource_name: &creation.resource_name,
        pattern_type: creation.resource_pattern_type,
        principal: &creation.principal,
        host: &creation.host,
        operation: creation.operation,
        permission: creation.permission_type,
    };
    let acl = acl.read().map_err(|fault| (ErrorCode::InvalidRequest, fault))?;
    access.add(acl).map_err(|error| (ErrorCode::InvalidRequest, error.to_string()))
}
