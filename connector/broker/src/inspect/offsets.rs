//! Offsets of consumer groups.

use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex};

use crate::broker_cluster::BrokerCluster;
use crate::cluster::GROUP_TOPIC;
use crate::group::offsets::recorded;

/// How far a consumer group is in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOffsetView {
    /// The group.
    pub group: String,
    /// Topic by name.
    pub topic: String,
    /// Number within the topic.
    pub partition: PartitionIndex,
    /// What is committed: the next record to read. None while the group has only staged offsets there.
    pub offset: Option<Offset>,
    /// Leader epoch that was committed with it; -1 without one.
    pub leader_epoch: LeaderEpoch,
    /// An open transaction may still change it.
    pub staged: bool,
}

impl BrokerCluster {
    /// Offsets of every consumer group, by group, topic and partition, as the log of groups has them.
    pub fn consumer_offsets(&self) -> Vec<ConsumerOffsetView> {
        let topic = self.cluster.topics.by_name(GROUP_TOPIC);
        let logs = topic.iter().flat_map(|topic| topic.partitions());
        let mut all: Vec<ConsumerOffsetView> = logs.flat_map(|log| recorded(log)).collect();
        all.sort_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
        all
    }
}
