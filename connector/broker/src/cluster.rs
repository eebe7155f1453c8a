//! What all nodes of one embedded cluster agree on: who is alive, who leads what, which topics exist, which producer
//! ids are taken, how groups are set.
//!
//! In Kafka the controller quorum holds this and tells the brokers; here it is one shared value that every node reads
//! at once. Records are in it as well, behind [`Topics`], since nothing is replicated (ADR 0009); what coordinators
//! and leaders keep in memory is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, ProducerId};
use sharestream_base::{HostPort, Rng, watch};
use sharestream_wire::share_state::state_partition_of_key;
use tracing::info;

use crate::access::{AccessControl, AccessSettings};
use crate::config::BrokerConfig;
use crate::disk::{Disk, DiskFailed, MetaRecord, Opened};
use crate::error::{ErrorCode, Result as BrokerResult};
use crate::faults::FaultPlan;
use crate::features::{DEAD_LETTERS, Features, SHARE_VERSION};
use crate::group::config::{GroupConfigs, GroupSettings};
use crate::log::Partition;
use crate::topics::{NewTopic, Topic, Topics};

/// Name of the topic that keeps the states of transactions.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
/// Name of the topic that keeps the states of share partitions.
pub const SHARE_STATE_TOPIC: &str = "__share_group_state";
/// Name of the topic whose leaders coordinate groups. It keeps the offsets of consumer groups; memberships of share groups
/// live in memory.
pub const GROUP_TOPIC: &str = "__consumer_offsets";

/// Smaller ids are easily taken for something else in a log.
const FIRST_PRODUCER_ID: i64 = 1_000;
/// Producer ids that one note on disk covers; those that are left of it at the broker's end are never given out.
const PRODUCER_ID_BLOCK: i64 = 10_000;

/// One node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    /// Its id.
    pub(crate) node: NodeId,
    /// Its listener, as clients are told.
    pub(crate) address: HostPort,
}

/// Who is there. Leaderships change under its lock only.
#[derive(Debug, Default)]
struct Members {
    alive: BTreeMap<NodeId, HostPort>,
    /// Nodes that left and whose partitions anybody may take over.
    given_up: BTreeSet<NodeId>,
}

/// The shared view of the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Printed like Kafka's: 22 characters.
    pub(crate) id: String,
    /// Every topic with its partitions.
    pub(crate) topics: Topics,
    /// Settings of groups.
    pub(crate) group_configs: GroupConfigs,
    /// Finalized feature levels.
    pub(crate) features: Features,
    /// Who may do what.
    pub(crate) access: Arc<AccessControl>,
    /// What tests have planted.
    pub(crate) faults: FaultPlan,
    members: RwLock<Members>,
    next_producer_id: AtomicI64,
    /// End of the producer ids that are noted on disk as given out.
    reserved_producer_ids: Mutex<i64>,
    disk: Option<Arc<Disk>>,
    /// Counts changes of leaderships.
    changes: watch::Sender<u64>,
}

impl Cluster {
    /// A cluster of nodes that are not there yet, with the broker's own topics dealt out among them, and with what an
    /// opened data folder has. Reads the whole folder: blocks.
    ///
    /// Errors: Corrupt, InvalidInput (the folder cannot be used).
    pub(crate) fn new(
        rng: &Rng,
        config: &BrokerConfig,
        access: AccessSettings,
        nodes: &[NodeId],
        opened: Option<Opened>,
    ) -> BrokerResult<Self> {
        let disk = opened.as_ref().map(|opened| Arc::clone(&opened.disk));
        let topics = Topics::new(rng.fork("topics"), disk.clone());
        let group_configs = GroupConfigs::new(&config.share, disk.clone());
        let mut id = sharestream_base::ids::TopicId(rng.uuid()).to_string();
        let mut next_producer_id = FIRST_PRODUCER_ID;
        let mut share_version = None;
        if let Some(Opened { disk, state, clean }) = opened {
            topics.restore(&disk, &state, clean, config, nodes)?;
            next_producer_id = next_producer_id.max(state.producer_ids_end);
            match state.cluster_id {
                Some(known) => id = known,
                // What cannot be written now cannot be written by the first topic either, which says so.
                None => drop(disk.record(MetaRecord::Cluster { id: id.clone() })),
            }
            share_version = state.features.get(SHARE_VERSION).copied();
            group_configs.restore(state.group_configs);
        }
        topics.create_internal(config, nodes);
        Ok(Cluster {
            id,
            topics,
            group_configs,
            features: Features::new(config.share_version, share_version, disk.clone()),
            access: Arc::new(AccessControl::new(access, &rng.fork("access"))),
            faults: FaultPlan::default(),
            members: RwLock::default(),
            next_producer_id: AtomicI64::new(next_producer_id),
            reserved_producer_ids: Mutex::new(next_producer_id),
            changes: watch::Sender::new(0),
            disk,
        })
    }

    /// Waits until everything written by now is as safe as the fsync policy asks; without a data folder there is
    /// nothing to wait for. Errors: the disk has failed, and nobody knows what is on it. Cancel safe.
    pub(crate) async fn durable(&self) -> Result<(), DiskFailed> {
        match &self.disk {
            None => Ok(()),
            Some(disk) => disk.durable().await,
        }
    }

    /// The settings that hold for a group at the finalized level.
    pub(crate) fn group_settings(&self, group: &str) -> GroupSettings {
        let mut settings = self.group_configs.settings(group);
        settings.dead_letters &= self.features.share_version() >= DEAD_LETTERS;
        settings
    }

    /// The data folder, if there is one.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref()
    }

    /// A node is there: it is listed, and leads again what waits for it and what nobody else was there to take.
    pub(crate) fn join(&self, node: NodeId, address: HostPort) {
        let mut members = self.members_mut();
        members.alive.insert(node, address);
        members.given_up.remove(&node);
        for partition in self.partitions() {
            let home = partition.home();
            let waits = partition.leader().is_none() && (home == node || members.given_up.contains(&home));
            if partition.leader() == Some(node) || waits {
                partition.lead(Some(node));
            }
        }
        self.changed();
    }

    /// A node is gone: it is not listed any more, and what it led has no leader. From now on nothing of it gets into
    /// a log.
    pub(crate) fn leave(&self, node: NodeId) {
        let mut members = self.members_mut();
        members.alive.remove(&node);
        for partition in self.partitions().filter(|partition| partition.leader() == Some(node)) {
            partition.lead(None);
        }
        self.changed();
    }

    /// Deals what a node leads or led last out among the others that are alive; gives the number of partitions that
    /// moved. With no other node alive the first one that starts takes those of a dead node.
    pub(crate) fn give_up(&self, node: NodeId) -> usize {
        let mut members = self.members_mut();
        if !members.alive.contains_key(&node) {
            members.given_up.insert(node);
        }
        let others: Vec<NodeId> = members.alive.keys().copied().filter(|other| *other != node).collect();
        let mut turn = others.iter().copied().cycle();
        let mut moved = 0;
        for partition in self.partitions() {
            let waits = partition.leader().is_none() && partition.home() == node;
            if (waits || partition.leader() == Some(node))
                && let Some(leader) = turn.next()
            {
                partition.lead(Some(leader));
                moved += 1;
            }
        }
        info!(%node, moved, "leaderships were moved off a node");
        self.changed();
        moved
    }

    /// Makes `node` the leader of a partition under the next leader epoch. Errors: UNKNOWN_TOPIC_OR_PARTITION,
    /// BROKER_NOT_AVAILABLE (the node is not alive).
    pub(crate) fn move_leader(
        &self,
        topic: &str,
        index: PartitionIndex,
        node: NodeId,
    ) -> Result<LeaderEpoch, ErrorCode> {
        let members = self.members_mut();
        let partition = self.topics.partition(topic, index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !members.alive.contains_key(&node) {
            return Err(ErrorCode::BrokerNotAvailable);
        }
        let epoch = partition.lead(Some(node));
        self.changed();
        Ok(epoch)
    }

    /// Creates a topic, led by the live nodes in turn. Errors: as [`Topics::create`].
    pub(crate) fn create_topic(&self, new: NewTopic, config: &BrokerConfig) -> Result<Arc<Topic>, ErrorCode> {
        // Held, so that no node that dies meanwhile is made a leader.
        let members = self.members();
        let nodes: Vec<NodeId> = members.alive.keys().copied().collect();
        self.topics.create(new, config, &nodes)
    }

    /// Every live node, by id.
    pub(crate) fn nodes(&self) -> Vec<NodeAddress> {
        let members = self.members();
        let nodes = members.alive.iter();
        nodes.map(|(node, address)| NodeAddress { node: *node, address: address.clone() }).collect()
    }

    /// The node that clients are told is the controller: every node serves its requests.
    pub(crate) fn controller(&self) -> Option<NodeId> {
        self.members().alive.keys().next().copied()
    }

    /// Where a live node listens.
    pub(crate) fn address(&self, node: NodeId) -> Option<HostPort> {
        self.members().alive.get(&node).cloned()
    }

    /// Told of every change of leaderships.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A producer id that nobody has had.
    pub(crate) fn allocate_producer_id(&self) -> ProducerId {
        let id = self.next_producer_id.fetch_add(1, Ordering::Relaxed);
        if let Some(disk) = &self.disk {
            let mut reserved = self.reserved_producer_ids.lock().unwrap_or_else(PoisonError::into_inner);
            if id >= *reserved {
                *reserved = id + PRODUCER_ID_BLOCK;
                disk.record_or_fail(MetaRecord::ProducerIds { end: *reserved });
            }
        }
        ProducerId(id)
    }

    /// The leader of a partition; `None` when there is no such partition, or no leader.
    pub(crate) fn leader_of(&self, topic: &str, partition: PartitionIndex) -> Option<NodeId> {
        self.topics.partition(topic, partition).and_then(|partition| partition.leader())
    }

    /// The `__transaction_state` partition of a transactional id, by the same hash as share-state keys; its leader is
    /// the coordinator.
    pub(crate) fn transaction_partition(&self, transactional_id: &str) -> Option<PartitionIndex> {
        self.partition_of_key(TRANSACTION_STATE_TOPIC, transactional_id)
    }

    /// The transaction coordinator of a transactional id.
    pub(crate) fn transaction_coordinator(&self, transactional_id: &str) -> Option<NodeId> {
        self.leader_of(TRANSACTION_STATE_TOPIC, self.transaction_partition(transactional_id)?)
    }

    /// The partition of [`GROUP_TOPIC`] whose leader coordinates a group.
    pub(crate) fn group_partition(&self, group: &str) -> Option<PartitionIndex> {
        self.partition_of_key(GROUP_TOPIC, group)
    }

    /// The node that coordinates a group.
    pub(crate) fn group_coordinator(&self, group: &str) -> Option<NodeId> {
        self.leader_of(GROUP_TOPIC, self.group_partition(group)?)
    }

    /// The partition of one of the broker's own topics that a key belongs to.
    pub(crate) fn partition_of_key(&self, topic: &str, key: &str) -> Option<PartitionIndex> {
        let count = self.topics.by_name(topic)?.partition_count();
        Some(PartitionIndex(state_partition_of_key(key, count)))
    }

    /// Every partition, by topic name and number.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Arc<Partition>> {
        self.topics.all().into_iter().flat_map(|topic| topic.partitions().to_vec())
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn members_mut(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}
