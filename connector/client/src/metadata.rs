//! What the client knows about topics and brokers: a cache. Pure: no socket, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId};
use sharestream_base::{HostPort, Instant};

/// A topic as the brokers describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Identity; a re-created topic has another.
    pub topic_id: TopicId,
    /// Name.
    pub name: Arc<str>,
    /// True for topics of the brokers' own.
    pub is_internal: bool,
    /// Partitions, by index from 0.
    pub partitions: Vec<PartitionInfo>,
}

/// A partition and its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Number within the topic.
    pub index: PartitionIndex,
    /// Leader; `None` while there is none.
    pub leader: Option<NodeId>,
    /// Incarnation of the leadership.
    pub leader_epoch: LeaderEpoch,
}

impl TopicInfo {
    /// The partition with this number.
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionInfo> {
        self.partitions.iter().find(|partition| partition.index == index)
    }

    /// True when every partition has a leader.
    pub(crate) fn has_all_leaders(&self) -> bool {
        self.partitions.iter().all(|partition| partition.leader.is_some())
    }

    /// The leader of the partition with this number, if it is known.
    pub fn leader(&self, index: PartitionIndex) -> Option<NodeId> {
        self.partition(index)?.leader
    }
}

/// Brokers and topics last heard of.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache {
    cluster_id: Option<String>,
    nodes: BTreeMap<NodeId, HostPort>,
    topics: BTreeMap<Arc<str>, Known>,
    names: BTreeMap<TopicId, Arc<str>>,
}

/// A topic and when a broker last told of it.
#[derive(Debug)]
struct Known {
    info: Arc<TopicInfo>,
    asked_at: Instant,
}

/// One answer to a metadata request.
#[derive(Debug, Default)]
pub(crate) struct MetadataUpdate {
    pub(crate) cluster_id: Option<String>,
    pub(crate) nodes: BTreeMap<NodeId, HostPort>,
    pub(crate) topics: Vec<TopicInfo>,
    /// Names that were asked for and do not exist.
    pub(crate) missing: Vec<String>,
    /// The same for ids.
    pub(crate) missing_ids: Vec<TopicId>,
}

impl MetadataCache {
    /// Takes over an answer. Topics that it does not mention stay; an older leader epoch does not replace a newer
    /// one (a broker that lags behind must not send us back to the old leader).
    pub(crate) fn apply(&mut self, update: MetadataUpdate, now: Instant) {
        self.cluster_id = update.cluster_id.or(self.cluster_id.take());
        if !update.nodes.is_empty() {
            self.nodes = update.nodes;
        }
        for name in update.missing {
            if let Some(topic) = self.topics.remove(name.as_str()) {
                self.names.remove(&topic.info.topic_id);
            }
        }
        for id in update.missing_ids {
            // Deleted, and perhaps created again under another id.
            if let Some(name) = self.names.remove(&id) {
                self.topics.remove(&name);
            }
        }
        for mut topic in update.topics {
            if let Some(Known { info: known, .. }) = self.topics.get(&topic.name) {
                if known.topic_id == topic.topic_id {
                    for partition in &mut topic.partitions {
                        match known.partition(partition.index) {
                            Some(newer) if newer.leader_epoch > partition.leader_epoch => *partition = *newer,
                            Some(_) | None => {}
                        }
                    }
                } else {
                    self.names.remove(&known.topic_id);
                }
            }
            self.names.insert(topic.topic_id, Arc::clone(&topic.name));
            let known = Known { info: Arc::new(topic), asked_at: now };
            self.topics.insert(Arc::clone(&known.info.name), known);
        }
    }

    /// A broker named the new leader of a partition in its refusal: cheaper than asking.
    pub(crate) fn leader_moved(
        &mut self,
        topic: TopicId,
        index: PartitionIndex,
        to: NodeId,
        epoch: LeaderEpoch,
    ) {
        let Some(name) = self.names.get(&topic) else { return };
        let Some(known) = self.topics.get_mut(name) else { return };
        let mut topic = TopicInfo::clone(&known.info);
        let Some(partition) = topic.partitions.iter_mut().find(|partition| partition.index == index) else {
            return;
        };
        if epoch > partition.leader_epoch {
            (partition.leader, partition.leader_epoch) = (Some(to), epoch);
            known.info = Arc::new(topic);
        }
    }

    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &HostPort)> {
        self.nodes.iter().map(|(id, address)| (*id, address))
    }

    pub(crate) fn add_node(&mut self, node: NodeId, address: HostPort) {
        self.nodes.insert(node, address);
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<&HostPort> {
        self.nodes.get(&node)
    }

    pub(crate) fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.topics.get(name).map(|known| Arc::clone(&known.info))
    }

    /// The same, with how long ago a broker told it.
    pub(crate) fn topic_and_age(&self, name: &str, now: Instant) -> Option<(Arc<TopicInfo>, Duration)> {
        let known = self.topics.get(name)?;
        Some((Arc::clone(&known.info), now.saturating_duration_since(known.asked_at)))
    }

    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.topic(self.names.get(&id)?)
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::Clock;
    use uuid::Uuid;

    use super::*;

    fn topic(id: u128, leader: i32, epoch: i32) -> TopicInfo {
        TopicInfo {
            topic_id: TopicId(Uuid::from_u128(id)),
            name: "flights".into(),
            is_internal: false,
            partitions: vec![PartitionInfo {
                index: PartitionIndex(0),
                leader: Some(NodeId(leader)),
                leader_epoch: LeaderEpoch(epoch),
            }],
        }
    }

    fn now() -> Instant {
        Clock::system().now()
    }

    fn update(topics: Vec<TopicInfo>) -> MetadataUpdate {
        MetadataUpdate { topics, ..MetadataUpdate::default() }
    }

    #[test]
    fn an_older_leader_epoch_does_not_replace_a_newer_one() {
        let mut cache = MetadataCache::default();
        cache.apply(update(vec![topic(1, 1, 7)]), now());
        cache.apply(update(vec![topic(1, 2, 6)]), now());
        assert_eq!(cache.topic("flights").unwrap().leader(PartitionIndex(0)), Some(NodeId(1)));
        cache.leader_moved(TopicId(Uuid::from_u128(1)), PartitionIndex(0), NodeId(3), LeaderEpoch(8));
        assert_eq!(cache.topic("flights").unwrap().leader(PartitionIndex(0)), Some(NodeId(3)));
    }

    #[test]
    fn a_recreated_topic_is_another_topic() {
        let mut cache = MetadataCache::default();
        cache.apply(update(vec![topic(1, 1, 7)]), now());
        cache.apply(update(vec![topic(2, 2, 0)]), now());
        assert_eq!(cache.topic_by_id(TopicId(Uuid::from_u128(1))), None);
        let found = cache.topic_by_id(TopicId(Uuid::from_u128(2))).unwrap();
        assert_eq!(found.leader(PartitionIndex(0)), Some(NodeId(2)));
    }

    #[test]
    fn a_topic_that_nobody_knows_by_its_id_is_forgotten_and_its_age_is_known() {
        let (mut cache, start) = (MetadataCache::default(), now());
        cache.apply(update(vec![topic(1, 1, 7)]), start);
        let later = start + Duration::from_secs(9);
        assert_eq!(cache.topic_and_age("flights", later).unwrap().1, Duration::from_secs(9));
        let id = TopicId(Uuid::from_u128(1));
        cache.apply(MetadataUpdate { missing_ids: vec![id], ..MetadataUpdate::default() }, later);
        assert_eq!((cache.topic_by_id(id), cache.topic("flights")), (None, None));
    }

    #[test]
    fn a_missing_topic_is_forgotten() {
        let mut cache = MetadataCache::default();
        cache.apply(update(vec![topic(1, 1, 7)]), now());
        cache.apply(
            MetadataUpdate { missing: vec!["flights".to_owned()], ..MetadataUpdate::default() },
            now(),
        );
        assert_eq!(cache.topic("flights"), None);
    }
}
