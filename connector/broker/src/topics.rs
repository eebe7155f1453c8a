//! The topics of the cluster, by name and by id.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use sharestream_base::Rng;
use sharestream_base::ids::{NodeId, PartitionIndex, TopicId};

use crate::cluster::{GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use crate::config::BrokerConfig;
use crate::error::ErrorCode;
use crate::log::Partition;

/// Partitions of the topic whose leaders coordinate groups (Kafka: `offsets.topic.num.partitions`).
const GROUP_PARTITIONS: i32 = 8;
/// Most partitions that one topic may have: each one costs memory.
pub(crate) const PARTITIONS_MAX: i32 = 10_000;
/// Longest name of a topic, as in Kafka.
const NAME_CHARS_MAX: usize = 249;

/// Settings of a topic that were set; the others have their defaults.
pub(crate) type TopicConfigs = BTreeMap<String, String>;

/// One topic.
#[derive(Debug)]
pub(crate) struct Topic {
    /// Its id; a re-created topic has another one.
    pub(crate) id: TopicId,
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Owned by the broker itself.
    pub(crate) internal: bool,
    partitions: Vec<Arc<Partition>>,
    configs: RwLock<TopicConfigs>,
}

impl Topic {
    /// Its partitions, by number.
    pub(crate) fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// How many partitions it has.
    pub(crate) fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    /// One partition.
    pub(crate) fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index.0).ok()?)
    }

    /// The settings that were set.
    pub(crate) fn configs(&self) -> TopicConfigs {
        self.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings that were set, and applies those that mean something here.
    pub(crate) fn set_configs(&self, configs: TopicConfigs) {
        let retention_bytes = configs.get("retention.bytes").and_then(|text| text.parse().ok()).unwrap_or(-1);
        for partition in &self.partitions {
            partition.set_retention_bytes(retention_bytes);
        }
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = configs;
    }
}

/// What a topic shall be.
#[derive(Clone, Debug)]
pub(crate) struct NewTopic {
    /// Its name.
    pub(crate) name: String,
    /// How many partitions, at least 1.
    pub(crate) partitions: i32,
    /// Settings that differ from the defaults.
    pub(crate) configs: TopicConfigs,
}

#[derive(Debug, Default)]
struct Registry {
    by_name: BTreeMap<Arc<str>, Arc<Topic>>,
    by_id: BTreeMap<TopicId, Arc<Topic>>,
}

/// The registry of topics.
#[derive(Debug)]
pub(crate) struct Topics {
    registry: RwLock<Registry>,
    rng: Rng,
    /// Partitions given to nodes so far: the next topic begins with the next node.
    dealt: AtomicUsize,
}

impl Topics {
    /// Without topics.
    pub(crate) fn new(rng: Rng) -> Self {
        Topics { registry: RwLock::default(), rng, dealt: AtomicUsize::new(0) }
    }

    /// The topic of that name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Topic>> {
        self.read().by_name.get(name).cloned()
    }

    /// The topic of that id.
    pub(crate) fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.read().by_id.get(&id).cloned()
    }

    /// One partition, by its topic's name.
    pub(crate) fn partition(&self, topic: &str, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.read().by_name.get(topic)?.partition(index).cloned()
    }

    /// One partition, by its topic's id.
    pub(crate) fn partition_by_id(&self, topic: TopicId, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.read().by_id.get(&topic)?.partition(index).cloned()
    }

    /// Every topic, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.read().by_name.values().cloned().collect()
    }

    /// Checks what [`Topics::create`] would check. Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
    /// INVALID_PARTITIONS.
    pub(crate) fn check(&self, new: &NewTopic) -> Result<(), ErrorCode> {
        check_name(&new.name)?;
        if new.partitions < 1 || new.partitions > PARTITIONS_MAX {
            return Err(ErrorCode::InvalidPartitions);
        }
        if self.read().by_name.contains_key(new.name.as_str()) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        Ok(())
    }

    /// Creates a topic; its partitions are led by `nodes` in turn, over all topics. Errors: as [`Topics::check`], and
    /// BROKER_NOT_AVAILABLE (no node).
    pub(crate) fn create(
        &self,
        new: NewTopic,
        config: &BrokerConfig,
        nodes: &[NodeId],
    ) -> Result<Arc<Topic>, ErrorCode> {
        let topic = self.create_leaderless(new, config, nodes)?;
        for partition in topic.partitions() {
            partition.lead(Some(partition.home()));
        }
        Ok(topic)
    }

    fn create_leaderless(
        &self,
        new: NewTopic,
        config: &BrokerConfig,
        nodes: &[NodeId],
    ) -> Result<Arc<Topic>, ErrorCode> {
        self.check(&new)?;
        let (id, name) = (TopicId(self.rng.uuid()), Arc::<str>::from(new.name.as_str()));
        let count = usize::try_from(new.partitions).unwrap_or(0);
        let dealt = self.dealt.fetch_add(count, Ordering::Relaxed);
        let mut homes = nodes.iter().copied().cycle().skip(dealt % nodes.len().max(1));
        let mut partitions = Vec::with_capacity(count);
        for index in 0..new.partitions {
            let home = homes.next().ok_or(ErrorCode::BrokerNotAvailable)?;
            let index = PartitionIndex(index);
            let bytes_max = config.batch_bytes_max;
            partitions.push(Arc::new(Partition::new(Arc::clone(&name), id, index, home, bytes_max)));
        }
        let internal = [TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC, GROUP_TOPIC].contains(&&*new.name);
        let topic =
            Arc::new(Topic { id, name: Arc::clone(&name), internal, partitions, configs: RwLock::default() });
        topic.set_configs(new.configs);
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        if registry.by_name.contains_key(&name) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        registry.by_name.insert(name, Arc::clone(&topic));
        registry.by_id.insert(id, Arc::clone(&topic));
        Ok(topic)
    }

    /// Creates the broker's own topics, each partition waiting for its node to start.
    pub(crate) fn create_internal(&self, config: &BrokerConfig, nodes: &[NodeId]) {
        for (name, partitions) in [
            (TRANSACTION_STATE_TOPIC, config.transaction_state_partitions),
            (SHARE_STATE_TOPIC, config.share_state_partitions),
            (GROUP_TOPIC, GROUP_PARTITIONS),
        ] {
            let new = NewTopic { name: name.to_owned(), partitions, configs: TopicConfigs::new() };
            // They can only be there already, which is fine.
            let _existing = self.create_leaderless(new, config, nodes);
        }
    }

    /// Deletes a topic. Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (the broker's own topics).
    pub(crate) fn delete(&self, name: &str) -> Result<TopicId, ErrorCode> {
        let topic = {
            let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
            let topic = registry.by_name.get(name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
            if topic.internal {
                return Err(ErrorCode::InvalidRequest);
            }
            let topic = Arc::clone(topic);
            registry.by_name.remove(name);
            registry.by_id.remove(&topic.id);
            topic
        };
        Ok(topic.id)
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kafka's rule for topic names.
fn check_name(name: &str) -> Result<(), ErrorCode> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let good = !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name != "."
        && name != ".."
        && name.chars().all(legal);
    if good { Ok(()) } else { Err(ErrorCode::InvalidTopicException) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Topics {
        Topics::new(Rng::seeded(1))
    }

    fn create(topics: &Topics, name: &str, partitions: i32) -> Result<Arc<Topic>, ErrorCode> {
        let new = NewTopic { name: name.to_owned(), partitions, configs: TopicConfigs::new() };
        topics.create(new, &BrokerConfig::default(), &[NodeId(1), NodeId(2)])
    }

    #[test]
    fn a_re_created_topic_has_another_id() {
        let topics = topics();
        let first = create(&topics, "orders", 2).unwrap().id;
        assert_eq!(create(&topics, "orders", 2).unwrap_err(), ErrorCode::TopicAlreadyExists);
        assert_eq!(topics.delete("orders"), Ok(first));
        assert!(topics.by_id(first).is_none());
        assert_ne!(create(&topics, "orders", 2).unwrap().id, first);
    }

    #[test]
    fn partitions_are_led_by_the_nodes_in_turn() {
        let topic = create(&topics(), "orders", 3).unwrap();
        let leaders: Vec<_> =
            topic.partitions().iter().map(|partition| partition.leader().unwrap().0).collect();
        assert_eq!(leaders, [1, 2, 1]);
    }

    #[test]
    fn bad_names_and_counts_are_refused() {
        let topics = topics();
        for name in ["", ".", "..", "a b", "a/b", &"x".repeat(250)] {
            assert_eq!(create(&topics, name, 1).unwrap_err(), ErrorCode::InvalidTopicException, "{name}");
        }
        for partitions in [0, -1, PARTITIONS_MAX + 1] {
            assert_eq!(create(&topics, "t", partitions).unwrap_err(), ErrorCode::InvalidPartitions);
        }
    }
}
