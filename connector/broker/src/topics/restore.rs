//! Topics as a data folder has them.

use std::sync::{Arc, PoisonError, RwLock};

use sharestream_base::ErrorKind;
use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId};
use tracing::warn;

use super::{Topic, Topics};
use crate::config::BrokerConfig;
use crate::disk::{Disk, MetaState, PartitionFiles, TopicMeta, remove_topic};
use crate::error::{Error, Result};
use crate::log::{LogSettings, Partition, PartitionLog, Place, Stored};

impl Topics {
    /// Reads every topic of the folder, each partition waiting for its node to start; those of nodes that do not exist
    /// any more are dealt out anew. `clean`: nothing may be torn. Blocks.
    ///
    /// Errors: Corrupt, InvalidInput (files that cannot be used).
    pub(crate) fn restore(
        &self,
        disk: &Arc<Disk>,
        state: &MetaState,
        clean: bool,
        config: &BrokerConfig,
        nodes: &[NodeId],
    ) -> Result<()> {
        for gone in &state.deleted {
            remove_topic(disk, topic_id(gone)?);
        }
        for (id, meta) in &state.topics {
            let topic = restore_topic(disk, topic_id(id)?, meta, clean, config, nodes)?;
            self.dealt.fetch_add(topic.partitions.len(), std::sync::atomic::Ordering::Relaxed);
            self.registry.write().unwrap_or_else(PoisonError::into_inner).add(&Arc::new(topic));
        }
        Ok(())
    }
}

fn topic_id(text: &str) -> Result<TopicId> {
    text.parse().map_err(|source| {
        Error::new(ErrorKind::Corrupt, format!("the journal names a topic by '{text}'")).with_source(source)
    })
}

fn restore_topic(
    disk: &Arc<Disk>,
    id: TopicId,
    meta: &TopicMeta,
    clean: bool,
    config: &BrokerConfig,
    nodes: &[NodeId],
) -> Result<Topic> {
    let name: Arc<str> = Arc::from(meta.name.as_str());
    let mut turn = nodes.iter().copied().cycle();
    let mut partitions = Vec::with_capacity(meta.partitions.len());
    for (index, (home, epoch)) in meta.partitions.iter().enumerate() {
        let index = PartitionIndex(i32::try_from(index).unwrap_or(i32::MAX));
        let place = Place { topic: Arc::clone(&name), topic_id: id, index };
        let mut log = PartitionLog::default();
        let files = PartitionFiles::recover(disk, id, index, clean, |event| log.recover(event));
        let context = || format!("cannot read partition {index} of topic {name}");
        let files = files.map_err(|source| Error::new(source.kind(), format!("{}: {source}", context())))?;
        let dealt = turn.next().unwrap_or(NodeId(0));
        let home = Some(NodeId(*home)).filter(|home| nodes.contains(home)).unwrap_or(dealt);
        let stored = Stored { log, epoch: LeaderEpoch(*epoch), files: Some(files) };
        partitions.push(Arc::new(Partition::new(place, home, config.batch_bytes_max, stored)));
    }
    let settings = LogSettings::read(&meta.configs).unwrap_or_else(|text| {
        warn!(topic = %name, text, "a stored setting means nothing to this build");
        LogSettings::default()
    });
    let topic = Topic { id, name, internal: meta.internal, partitions, configs: RwLock::default() };
    topic.set_configs(meta.configs.clone(), settings);
    Ok(topic)
}
