//! DeleteAcls (KIP-140): removes the acls that pass one of the filters, and says which.

use std::sync::Arc;

use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use kafka_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::{AccessControl, Acl, EVERY_HOST, Filter, pattern_type_of};
use crate::error::ErrorCode;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let results = request.filters.iter().map(|filter| match delete(&node.cluster.access, filter) {
        Ok(acls) => {
            let acls = acls.into_iter().map(describe).collect();
            DeleteAclsFilterResult::default().with_error_message(None).with_matching_acls(acls)
        }
        Err(code) => DeleteAclsFilterResult::default()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(code.to_string()))),
    });
    DeleteAclsResponse::default().with_filter_results(results.collect())
}

/// Each acl is removed by one filter: by the first that it passes.
fn delete(access: &AccessControl, asked: &DeleteAclsFilter) -> Result<Vec<Acl>, ErrorCode> {
    let filter = Filter {
        resource_type: asked.resource_type_filter,
        resource_name: asked.resource_name_filter.as_deref(),
        pattern_type: asked.pattern_type_filter,
        principal: asked.principal_filter.as_deref(),
        host: asked.host_filter.as_deref(),
        operation: asked.operation,
        permission: asked.permission_type,
    };
    match (access.is_on(), filter.is_valid()) {
        (false, _) => Err(ErrorCode::SecurityDisabled),
        (true, false) => Err(ErrorCode::InvalidRequest),
        (true, true) => {
            let meant = access.acls().into_iter().filter(|acl| filter.passes(acl));
            Ok(meant.filter(|acl| access.remove(acl)).collect())
        }
    }
}

fn describe(acl: Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(acl.on.kind.code())
        .with_pattern_type(pattern_type_of(&acl.on))
        .with_resource_name(StrBytes::from_string(acl.on.name))
        .with_principal(StrBytes::from_string(acl.principal.as_str().to_owned()))
        .with_host(StrBytes::from_static_str(EVERY_HOST))
        .with_operation(acl.operation.code())
        .with_permission_type(acl.permission.code())
}
