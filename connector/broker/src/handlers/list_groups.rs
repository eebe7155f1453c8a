//! ListGroups: the groups that this node coordinates: share groups, and consumer groups, which have no members here.

use std::sync::Arc;

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::node::Node;

/// From this version on answers name states.
const FIRST_WITH_STATE: i16 = 4;
/// From this version on answers name types.
const FIRST_WITH_TYPE: i16 = 5;

struct Group {
    id: String,
    state: &'static str,
    kind: &'static str,
    protocol: &'static str,
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let asked = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(value))
    };
    let sharing = node.share.list_groups().into_iter().map(|group| Group {
        id: group.group,
        state: group.state,
        kind: "share",
        protocol: "share",
    });
    let offsets = node.offsets.groups(node).into_iter();
    let offsets = offsets.map(|id| Group { id, state: "Empty", kind: "classic", protocol: "" });
    let groups = sharing.chain(offsets).filter(|group| {
        asked(&request.states_filter, group.state)
            && asked(&request.types_filter, group.kind)
            && context.may.group(&group.id).is_ok()
    });
    let groups = groups.map(|group| {
        let listed = ListedGroup::default()
            .with_group_id(GroupId(StrBytes::from_string(group.id)))
            .with_protocol_type(StrBytes::from_static_str(group.protocol));
        let listed = if context.version >= FIRST_WITH_STATE {
            listed.with_group_state(StrBytes::from_static_str(group.state))
        } else {
            listed
        };
        if context.version >= FIRST_WITH_TYPE {
            listed.with_group_type(StrBytes::from_static_str(group.kind))
        } else {
            listed
        }
    });
    ListGroupsResponse::default().with_groups(groups.collect())
}
