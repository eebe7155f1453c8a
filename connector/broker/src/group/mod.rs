//! The group coordinator: membership, assignment and settings of share groups (KIP-932).
//!
//! Membership lives in memory, as everything here does: after a restart members are unknown and join again.

pub(crate) mod assignor;
pub(crate) mod config;
pub(crate) mod share_group;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sharestream_base::Instant;
use tracing::info;

use self::assignor::TopicShape;
use self::config::GroupSettings;
use self::share_group::{Heartbeat, MemberLimits, Reply, ShareGroup};
use crate::error::ErrorCode;
use crate::node::Node;
use crate::share::ListedGroup;

/// Most members of a group (Kafka: `group.share.max.size`).
const MEMBERS_MAX: usize = 200;

/// Share groups that this node coordinates.
#[derive(Debug, Default)]
pub(crate) struct GroupCoordinator {
    groups: Mutex<BTreeMap<String, ShareGroup>>,
}

impl GroupCoordinator {
    /// Serves a heartbeat. Errors: NOT_COORDINATOR and those of [`ShareGroup::heartbeat`].
    pub(crate) fn heartbeat(
        &self,
        node: &Node,
        group: &str,
        heartbeat: Heartbeat,
        settings: &GroupSettings,
    ) -> Result<Reply, ErrorCode> {
        check_coordinator(node, group)?;
        if group.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let limits = MemberLimits { session_timeout: settings.session_timeout, members_max: MEMBERS_MAX };
        let now = node.env.clock.now();
        let mut groups = self.lock();
        let group = groups.entry(group.to_owned()).or_default();
        group.heartbeat(heartbeat, limits, now, |name| shape(node, name))
    }

    /// Looks at a group. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND.
    pub(crate) fn with_group<T>(
        &self,
        node: &Node,
        group: &str,
        look: impl FnOnce(&ShareGroup) -> T,
    ) -> Result<T, ErrorCode> {
        check_coordinator(node, group)?;
        self.lock().get(group).map(look).ok_or(ErrorCode::GroupIdNotFound)
    }

    /// Remembers a topic of a group, which begins to exist with it.
    pub(crate) fn note_topic(&self, group: &str, topic: &str) {
        self.lock().entry(group.to_owned()).or_default().note_topic(topic);
    }

    /// Every group.
    pub(crate) fn list(&self) -> Vec<ListedGroup> {
        let groups = self.lock();
        let listed =
            |(id, group): (&String, &ShareGroup)| ListedGroup { group: id.clone(), state: state_of(group) };
        groups.iter().map(listed).collect()
    }

    /// Removes members whose heartbeats stopped and follows changes of topics.
    pub(crate) fn tick(&self, node: &Node, now: Instant) {
        for (id, group) in self.lock().iter_mut() {
            for member in group.expire(now) {
                info!(group = id, member, "a member of a share group timed out");
            }
            group.set_topics(|name| shape(node, name));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ShareGroup>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As Kafka prints it.
pub(crate) fn state_of(group: &ShareGroup) -> &'static str {
    if group.members().is_empty() { "Empty" } else { "Stable" }
}

/// Errors: NOT_COORDINATOR.
pub(crate) fn check_coordinator(node: &Node, group: &str) -> Result<(), ErrorCode> {
    match node.cluster.group_coordinator(group) {
        Some(coordinator) if coordinator == node.id => Ok(()),
        Some(_) | None => Err(ErrorCode::NotCoordinator),
    }
}

fn shape(node: &Node, name: &str) -> Option<TopicShape> {
    let topic = node.cluster.topics.by_name(name)?;
    Some(TopicShape { id: topic.id, partitions: topic.partition_count() })
}
