//! DescribeAcls (KIP-140): the acls that pass a filter, by what they are for.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::access::{Acl, EVERY_HOST, Filter, ResourcePattern, pattern_type_of};
use crate::error::ErrorCode;
use crate::node::Node;

pub(super) async fn handle(
    node: &Arc<Node>,
    _context: &RequestContext,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    let filter = Filter {
        resource_type: request.resource_type_filter,
        resource_name: request.resource_name_filter.as_deref(),
        pattern_type: request.pattern_type_filter,
        principal: request.principal_filter.as_deref(),
        host: request.host_filter.as_deref(),
        operation: request.operation,
        permission: request.permission_type,
    };
    let access = &node.cluster.access;
    let response = DescribeAclsResponse::default().with_error_message(None);
    let refused = match (access.is_on(), filter.is_valid()) {
        (false, _) => ErrorCode::SecurityDisabled,
        (true, false) => ErrorCode::InvalidRequest,
        (true, true) => {
            let acls = access.acls().into_iter().filter(|acl| filter.passes(acl));
            return response.with_resources(by_resource(acls));
        }
    };
    response
        .with_error_code(refused.code())
        .with_error_message(Some(StrBytes::from_string(refused.to_string())))
}

fn by_resource(acls: impl Iterator<Item = Acl>) -> Vec<DescribeAclsResource> {
    let mut found: BTreeMap<ResourcePattern, Vec<AclDescription>> = BTreeMap::new();
    for acl in acls {
        let described = AclDescription::default()
            .with_principal(StrBytes::from_string(acl.principal.as_str().to_owned()))
            .with_host(StrBytes::from_static_str(EVERY_HOST))
            .with_operation(acl.operation.code())
            .with_permission_type(acl.permission.code());
        found.entry(acl.on).or_default().push(described);
    }
    let resource = |(on, acls): (ResourcePattern, Vec<AclDescription>)| {
        DescribeAclsResource::default()
            .with_resource_type(on.kind.code())
            .with_pattern_type(pattern_type_of(&on))
            .with_resource_name(StrBytes::from_string(on.name))
            .with_acls(acls)
    };
    found.into_iter().map(resource).collect()
}
