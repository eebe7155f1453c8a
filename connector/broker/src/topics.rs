//! The topics of the cluster, by name and by id.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use sharestream_base::Rng;
use sharestream_base::ids::{NodeId, PartitionIndex, TopicId};
use tracing::warn;

use crate::cluster::{GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use crate::config::BrokerConfig;
use crate::disk::{Disk, MetaRecord, PartitionFiles, remove_topic};
use crate::error::ErrorCode;
use crate::log::{LogSettings, Partition, Place, Stored};

mod restore;

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
    fn set_configs(&self, configs: TopicConfigs, settings: LogSettings) {
        for partition in &self.partitions {
            partition.set_settings(settings);
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

impl Registry {
    fn add(&mut self, topic: &Arc<Topic>) {
        self.by_name.insert(Arc::clone(&topic.name), Arc::clone(topic));
        self.by_id.insert(topic.id, Arc::clone(topic));
    }
}

/// The registry of topics.
#[derive(Debug)]
pub(crate) struct Topics {
    registry: RwLock<Registry>,
    rng: Rng,
    /// Partitions given to nodes so far: the next topic begins with the next node.
    dealt: AtomicUsize,
    /// Where topics are kept as well; none live in memory only.
    disk: Option<Arc<Disk>>,
}

impl Topics {
    /// Without topics.
    pub(crate) fn new(rng: Rng, disk: Option<Arc<Disk>>) -> Self {
        Topics { registry: RwLock::default(), rng, dealt: AtomicUsize::new(0), disk }
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
    /// INVALID_PARTITIONS, INVALID_CONFIG.
    pub(crate) fn check(&self, new: &NewTopic) -> Result<(), ErrorCode> {
        check_name(&new.name)?;
        if new.partitions < 1 || new.partitions > PARTITIONS_MAX {
            return Err(ErrorCode::InvalidPartitions);
        }
        if self.read().by_name.contains_key(new.name.as_str()) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        LogSettings::read(&new.configs).map(|_| ()).map_err(|_| ErrorCode::InvalidConfig)
    }

    /// Creates a topic; its partitions are led by `nodes` in turn, over all topics. Errors: as [`Topics::check`], and
    /// BROKER_NOT_AVAILABLE (no node) and KAFKA_STORAGE_ERROR.
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
        let mut turn = nodes.iter().copied().cycle().skip(dealt % nodes.len().max(1));
        let mut homes = Vec::with_capacity(count);
        for _ in 0..count {
            homes.push(turn.next().ok_or(ErrorCode::BrokerNotAvailable)?);
        }
        let settings = LogSettings::read(&new.configs).map_err(|_| ErrorCode::InvalidConfig)?;
        let internal = [TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC, GROUP_TOPIC].contains(&&*new.name);
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        if registry.by_name.contains_key(&name) {
            return Err(ErrorCode::TopicAlreadyExists);
        }
        if let Some(disk) = &self.disk {
            disk.record(MetaRecord::Topic {
                id: id.to_string(),
                name: new.name,
                internal,
                homes: homes.iter().map(|home| home.0).collect(),
                configs: new.configs.clone(),
            })?;
        }
        let partitions = homes.iter().enumerate().map(|(index, home)| {
            let index = PartitionIndex(i32::try_from(index).unwrap_or(i32::MAX));
            let place = Place { topic: Arc::clone(&name), topic_id: id, index };
            let files = self.disk.as_ref().map(|disk| PartitionFiles::new(disk, id, index));
            let stored = Stored { files, ..Stored::default() };
            Arc::new(Partition::new(place, *home, config.batch_bytes_max, stored))
        });
        let partitions = partitions.collect();
        let topic =
            Arc::new(Topic { id, name: Arc::clone(&name), internal, partitions, configs: RwLock::default() });
        topic.set_configs(new.configs, settings);
        registry.add(&topic);
        Ok(topic)
    }

    /// Replaces the settings of a topic. Errors: INVALID_CONFIG, KAFKA_STORAGE_ERROR (nothing has changed), with a
    /// sentence.
    pub(crate) fn set_configs(
        &self,
        topic: &Topic,
        configs: TopicConfigs,
    ) -> Result<(), (ErrorCode, String)> {
        let settings = LogSettings::read(&configs).map_err(|text| (ErrorCode::InvalidConfig, text))?;
        if let Some(disk) = &self.disk {
            let record = MetaRecord::TopicConfigs { id: topic.id.to_string(), configs: configs.clone() };
            disk.record(record).map_err(|code| (code, format!("settings were not written: {code}")))?;
        }
        topic.set_configs(configs, settings);
        Ok(())
    }

    /// Creates the broker's own topics, each partition waiting for its node to start.
    pub(crate) fn create_internal(&self, config: &BrokerConfig, nodes: &[NodeId]) {
        for (name, partitions) in [
            (TRANSACTION_STATE_TOPIC, config.transaction_state_partitions),
            (SHARE_STATE_TOPIC, config.share_state_partitions),
            (GROUP_TOPIC, GROUP_PARTITIONS),
        ] {
            let mut configs = TopicConfigs::new();
            if name != SHARE_STATE_TOPIC {
                // Of each transactional id, and each partition of a group, the last record says everything, as in Kafka.
                configs.insert("cleanup.policy".to_owned(), "compact".to_owned());
            }
            let new = NewTopic { name: name.to_owned(), partitions, configs: configs.clone() };
            if let Err(ErrorCode::TopicAlreadyExists) = self.create_leaderless(new, config, nodes)
                && let Some(topic) = self.by_name(name)
                && topic.configs().is_empty()
                && !configs.is_empty()
                && let Err((code, text)) = self.set_configs(&topic, configs)
            {
                // A folder of an older build, in which this topic was never written to.
                warn!(topic = name, %code, text, "the settings of a topic stay as they were");
            }
        }
    }

    /// Deletes a topic. Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (the broker's own topics),
    /// KAFKA_STORAGE_ERROR.
    pub(crate) fn delete(&self, name: &str) -> Result<TopicId, ErrorCode> {
        let topic = {
            let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
            let topic = registry.by_name.get(name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
            if topic.internal {
                return Err(ErrorCode::InvalidRequest);
            }
            let topic = Arc::clone(topic);
            if let Some(disk) = &self.disk {
                disk.record(MetaRecord::TopicDeleted { id: topic.id.to_string() })?;
            }
            registry.by_name.remove(name);
            registry.by_id.remove(&topic.id);
            topic
        };
        if let Some(disk) = &self.disk {
            topic.partitions.iter().for_each(|partition| partition.retire());
            remove_topic(disk, topic.id);
        }
        Ok(topic.id)
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kafka's rule for topic names.
pub(crate) fn check_name(name: &str) -> Result<(), ErrorCode> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let good = !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name != "."
        && name != ".."
        && name.chars().all(legal);
    if good { Ok(()) } else { Err(ErrorCode::InvalidTopicException) }
}

#[cfg(test)]
mod tests;
