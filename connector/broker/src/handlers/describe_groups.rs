//! DescribeGroups: consumer groups, which have offsets here and no members.

use std::sync::Arc;

use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;

/// From this version on a group that is not there is an error.
const FIRST_WITH_NOT_FOUND: i16 = 6;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let describe = |id: GroupId| {
        let described = DescribedGroup::default();
        let described = match node.offsets.has_group(node, &id) {
            Ok(true) => described.with_group_state("Empty".into()),
            Ok(false) if context.version >= FIRST_WITH_NOT_FOUND => described
                .with_group_state("Dead".into())
                .with_error_code(ErrorCode::GroupIdNotFound.code())
                .with_error_message(Some(format!("Group {id:?} has no offsets.").into())),
            Ok(false) => described.with_group_state("Dead".into()),
            Err(code) => described.with_error_code(code.code()),
        };
        described.with_group_id(id)
    };
    DescribeGroupsResponse::default().with_groups(request.groups.into_iter().map(describe).collect())
}
