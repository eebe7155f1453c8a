//! What all nodes of one embedded cluster agree on: who they are, which topics exist, which producer ids are taken.
//!
//! In Kafka the controller quorum holds this. Here it is one shared value; records and coordinators' states are not
//! in it.

use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, Ordering};

use sharestream_base::ids::{NodeId, PartitionIndex, ProducerId};
use sharestream_base::{HostPort, Rng};
use sharestream_wire::share_state::state_partition_of_key;

use crate::log::Partition;
use crate::topics::Topics;

/// Name of the topic that keeps the states of transactions.
pub(crate) const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
/// Name of the topic that keeps the states of share partitions.
pub(crate) const SHARE_STATE_TOPIC: &str = "__share_group_state";

/// One node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    /// Its id.
    pub(crate) node: NodeId,
    /// Its listener, as clients are told.
    pub(crate) address: HostPort,
}

/// The shared view of the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Printed like Kafka's: 22 characters.
    pub(crate) id: String,
    /// Every topic with its partitions.
    pub(crate) topics: Topics,
    nodes: RwLock<Vec<NodeAddress>>,
    next_producer_id: AtomicI64,
}

impl Cluster {
    /// An empty cluster.
    pub(crate) fn new(rng: &Rng) -> Self {
        Cluster {
            id: sharestream_base::ids::TopicId(rng.uuid()).to_string(),
            topics: Topics::new(rng.fork("topics")),
            nodes: RwLock::new(Vec::new()),
            next_producer_id: AtomicI64::new(1_000),
        }
    }

    /// Makes a node known, or changes its address.
    pub(crate) fn join(&self, node: NodeId, address: HostPort) {
        let mut nodes = self.nodes.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        nodes.retain(|known| known.node != node);
        nodes.push(NodeAddress { node, address });
        nodes.sort_by_key(|known| known.node);
    }

    /// Every node, by id.
    pub(crate) fn nodes(&self) -> Vec<NodeAddress> {
        self.nodes.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Where a node listens.
    pub(crate) fn address(&self, node: NodeId) -> Option<HostPort> {
        let nodes = self.nodes.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        nodes.iter().find(|known| known.node == node).map(|known| known.address.clone())
    }

    /// A producer id that nobody has had.
    pub(crate) fn allocate_producer_id(&self) -> ProducerId {
        ProducerId(self.next_producer_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The leader of a partition; `None` when there is no such partition.
    pub(crate) fn leader_of(&self, topic: &str, partition: PartitionIndex) -> Option<NodeId> {
        self.topics.partition(topic, partition).map(|partition: std::sync::Arc<Partition>| partition.leader())
    }

    /// The `__transaction_state` partition of a transactional id, by the same hash as share-state keys; its leader is
    /// the coordinator.
    pub(crate) fn transaction_partition(&self, transactional_id: &str) -> Option<PartitionIndex> {
        let count = self.topics.by_name(TRANSACTION_STATE_TOPIC)?.partition_count();
        Some(PartitionIndex(state_partition_of_key(transactional_id, count)))
    }

    /// The transaction coordinator of a transactional id.
    pub(crate) fn transaction_coordinator(&self, transactional_id: &str) -> Option<NodeId> {
        self.leader_of(TRANSACTION_STATE_TOPIC, self.transaction_partition(transactional_id)?)
    }

    /// The node that coordinates a group: it leads the group's slot, taken over the nodes by hash.
    pub(crate) fn group_coordinator(&self, group: &str) -> Option<NodeId> {
        let nodes = self.nodes();
        let count = i32::try_from(nodes.len()).ok().filter(|count| *count > 0)?;
        let index = usize::try_from(state_partition_of_key(group, count)).ok()?;
        nodes.get(index).map(|known| known.node)
    }
}
