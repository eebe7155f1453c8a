//! The group coordinator: membership, assignment and settings of share groups (KIP-932), and offsets of consumer groups
//! ([`offsets`]).
//!
//! A group is coordinated by the leader of its partition of `__consumer_offsets`. Membership lives in memory: after a restart or a move of that leader members are unknown and join again. Kafka stores
//! the group's epoch; here the upper half of it is the coordinator's leader epoch, so that no member epoch of an
//! earlier incarnation is ever mistaken for one of this.

pub(crate) mod assignor;
pub(crate) mod config;
pub(crate) mod offsets;
pub(crate) mod share_group;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sharestream_base::Instant;
use sharestream_base::ids::MemberEpoch;
use tracing::info;

use self::assignor::TopicShape;
use self::config::GroupSettings;
use self::share_group::{Heartbeat, MemberLimits, Reply, ShareGroup};
use crate::cluster::GROUP_TOPIC;
use crate::error::ErrorCode;
use crate::log::Led;
use crate::node::Node;
use crate::share::ListedGroup;

/// Most members of a group (Kafka: `group.share.max.size`).
const MEMBERS_MAX: usize = 200;

/// Bits of a group's epoch that count within one incarnation of its coordinator.
const EPOCH_BITS: u32 = 16;

/// A group under one leadership of its coordinator.
#[derive(Debug)]
struct Coordinated {
    led: Led,
    group: ShareGroup,
}

type Groups = BTreeMap<String, Coordinated>;

/// Share groups that this node coordinates.
#[derive(Debug, Default)]
pub(crate) struct GroupCoordinator {
    groups: Mutex<Groups>,
}

impl GroupCoordinator {
    /// Serves a heartbeat. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND (a consumer group) and those of
    /// [`ShareGroup::heartbeat`].
    pub(crate) fn heartbeat(
        &self,
        node: &Node,
        group: &str,
        heartbeat: Heartbeat,
        settings: &GroupSettings,
    ) -> Result<Reply, ErrorCode> {
        if group.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let led = coordinated(node, group)?;
        let limits = MemberLimits { session_timeout: settings.session_timeout, members_max: MEMBERS_MAX };
        let now = node.env.clock.now();
        let known = self.lock().get(group).is_some_and(|known| known.led.epoch() == led.epoch());
        if !known && heartbeat.epoch.0 != 0 {
            // A group begins with a member that joins. Kafka says GROUP_ID_NOT_FOUND; here the group may be one whose
            // members were forgotten in a move, and this is what makes them join again.
            return Err(ErrorCode::UnknownMemberId);
        }
        let beat = || {
            let mut groups = self.lock();
            of_leadership(&mut groups, group, led).heartbeat(heartbeat, limits, now, |name| shape(node, name))
        };
        // A group that has offsets is a consumer group.
        if known { beat() } else { node.offsets.begin_other(node, group, beat) }
    }

    /// Looks at a group. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND.
    pub(crate) fn with_group<T>(
        &self,
        node: &Node,
        group: &str,
        look: impl FnOnce(&ShareGroup) -> T,
    ) -> Result<T, ErrorCode> {
        check_coordinator(node, group)?;
        let groups = self.lock();
        let known = groups.get(group).filter(|known| known.led.is_current());
        known.map(|known| look(&known.group)).ok_or(ErrorCode::GroupIdNotFound)
    }

    /// Remembers a topic of a group, which begins to exist with it. Nothing to do for one that moved away or that has
    /// become a consumer group meanwhile.
    pub(crate) fn note_topic(&self, node: &Node, group: &str, topic: &str) {
        let Ok(led) = coordinated(node, group) else { return };
        let known = self.lock().get(group).is_some_and(|known| known.led.epoch() == led.epoch());
        let note = || {
            of_leadership(&mut self.lock(), group, led).note_topic(topic);
            Ok(())
        };
        // The group of the other kind is what counts: it was there first.
        let _begun = if known { note() } else { node.offsets.begin_other(node, group, note) };
    }

    /// The reverse of [`GroupCoordinator::note_topic`], for a group without members.
    pub(crate) fn forget_topic(&self, node: &Node, group: &str, topic: &str) {
        if let Ok(led) = coordinated(node, group)
            && let Some(known) = self.lock().get_mut(group)
            && known.led.epoch() == led.epoch()
        {
            known.group.forget_topic(topic);
        }
    }

    /// Forgets a group. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (somebody has joined meanwhile).
    pub(crate) fn forget(&self, node: &Node, group: &str) -> Result<(), ErrorCode> {
        let led = coordinated(node, group)?;
        let mut groups = self.lock();
        let known = groups.get(group).filter(|known| known.led.epoch() == led.epoch());
        if !known.ok_or(ErrorCode::GroupIdNotFound)?.group.members().is_empty() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        groups.remove(group);
        Ok(())
    }

    /// Every group.
    pub(crate) fn list(&self) -> Vec<ListedGroup> {
        let groups = self.lock();
        let listed = |(id, known): (&String, &Coordinated)| ListedGroup {
            group: id.clone(),
            state: state_of(&known.group),
        };
        groups.iter().filter(|(_, known)| known.led.is_current()).map(listed).collect()
    }

    /// Every group with its members and their epochs.
    pub(crate) fn memberships(&self) -> Vec<(String, Vec<(String, MemberEpoch)>)> {
        let groups = self.lock();
        let members_of = |known: &Coordinated| {
            let members = known.group.members().iter();
            members.map(|(id, member)| (id.clone(), member.epoch)).collect()
        };
        let current = groups.iter().filter(|(_, known)| known.led.is_current());
        current.map(|(id, known)| (id.clone(), members_of(known))).collect()
    }

    /// Forgets groups that moved away, removes members whose heartbeats stopped and follows changes of topics.
    pub(crate) fn tick(&self, node: &Node, now: Instant) {
        let mut groups = self.lock();
        groups.retain(|_, known| known.led.is_current());
        for (id, Coordinated { group, .. }) in groups.iter_mut() {
            for member in group.expire(now) {
                info!(group = id, member, "a member of a share group timed out");
            }
            group.set_topics(|name| shape(node, name));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As Kafka prints it.
pub(crate) fn state_of(group: &ShareGroup) -> &'static str {
    if group.members().is_empty() { "Empty" } else { "Stable" }
}

/// Errors: NOT_COORDINATOR.
pub(crate) fn check_coordinator(node: &Node, group: &str) -> Result<(), ErrorCode> {
    coordinated(node, group).map(|_| ())
}

/// The leadership under which this node coordinates a group. Errors: NOT_COORDINATOR.
fn coordinated(node: &Node, group: &str) -> Result<Led, ErrorCode> {
    let index = node.cluster.group_partition(group).ok_or(ErrorCode::NotCoordinator)?;
    node.led(GROUP_TOPIC, index).map_err(|_| ErrorCode::NotCoordinator)
}

/// The group as this leadership knows it: what an earlier one knew is forgotten.
fn of_leadership<'a>(groups: &'a mut Groups, id: &str, led: Led) -> &'a mut ShareGroup {
    let fresh = |led: Led| {
        let group = ShareGroup::starting_at((led.epoch().0 & i32::from(i16::MAX)) << EPOCH_BITS);
        Coordinated { led, group }
    };
    let known = match groups.entry(id.to_owned()) {
        Entry::Vacant(entry) => entry.insert(fresh(led)),
        Entry::Occupied(mut entry) => {
            if entry.get().led.epoch() != led.epoch() {
                entry.insert(fresh(led));
            }
            entry.into_mut()
        }
    };
    &mut known.group
}

fn shape(node: &Node, name: &str) -> Option<TopicShape> {
    let topic = node.cluster.topics.by_name(name)?;
    Some(TopicShape { id: topic.id, partitions: topic.partition_count() })
}
