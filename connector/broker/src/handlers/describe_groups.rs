//! DescribeGroups: consumer groups, which have offsets here and no members.

use std::sync::Arc;

use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::RequestContext;
use crate::access::Resource;
use crate::error::ErrorCode;
use crate::node::Node;

/// From this version on a group that is not there is an error.
const FIRST_WITH_NOT_FOUND: i16 = 6;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    // What may not be described is told first, as Kafka does it.
    let groups = request.groups.into_iter();
    let (allowed, refused): (Vec<_>, Vec<_>) = groups.partition(|id| context.may.group(id).is_ok());
    let refused = refused.into_iter().map(|id| {
        DescribedGroup::default()
            .with_group_id(id)
            .with_error_code(ErrorCode::GroupAuthorizationFailed.code())
    });
    let describe = |id: GroupId| {
        let described = DescribedGroup::default();
        let described = match node.offsets.has_group(node, &id) {
            Ok(true) => described.with_group_state("Empty".into()),
            Ok(false) if context.version >= FIRST_WITH_NOT_FOUND => described
                .with_group_state("Dead".into())
                .with_error_code(ErrorCode::GroupIdNotFound.code())
                .with_error_message(Some(format!("Group {} has no offsets.", id.as_str()).into())),
            Ok(false) => described.with_group_state("Dead".into()),
            Err(code) => described.with_error_code(code.code()),
        };
        // KIP-430.
        let described = match request.include_authorized_operations && described.error_code == 0 {
            true => described.with_authorized_operations(context.may.operations(&Resource::group(&id))),
            false => described,
        };
        described.with_group_id(id)
    };
    let groups = refused.chain(allowed.into_iter().map(describe));
    DescribeGroupsResponse::default().with_groups(groups.collect())
}
