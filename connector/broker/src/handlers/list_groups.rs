//! ListGroups: the share groups of this node.

use std::sync::Arc;

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let asked = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(value))
    };
    let groups = node.share.list_groups().into_iter().filter(|group| {
        asked(&request.states_filter, group.state)
            && asked(&request.types_filter, "share")
            && context.may.group(&group.group).is_ok()
    });
    let groups = groups.map(|group| {
        let listed = ListedGroup::default()
            .with_group_id(GroupId(StrBytes::from_string(group.group)))
            .with_protocol_type(StrBytes::from_static_str("share"));
        let listed = if context.version >= 4 {
            listed.with_group_state(StrBytes::from_static_str(group.state))
        } else {
            listed
        };
        if context.version >= 5 { listed.with_group_type(StrBytes::from_static_str("share")) } else { listed }
    });
    ListGroupsResponse::default().with_groups(groups.collect())
}
