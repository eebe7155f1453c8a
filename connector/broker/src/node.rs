//! One node: what its connections, coordinators and partitions share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use sharestream_base::ids::{NodeId, PartitionIndex, TopicId};
use sharestream_base::{CancellationToken, Env, TaskKind, TaskSet, run_blocking};
use tracing::error;

use crate::cluster::Cluster;
use crate::config::BrokerConfig;
use crate::error::ErrorCode;
use crate::group::offsets::OffsetCoordinator;
use crate::handlers::ConnectionId;
use crate::log::{Led, Partition};
use crate::metrics::Metrics;
use crate::pause::Pause;
use crate::peer::Peers;
use crate::share::ShareServices;
use crate::txn::Coordinator;

/// What everything on one node shares. Held by `Arc`.
#[derive(Debug)]
pub(crate) struct Node {
    /// This node's id.
    pub(crate) id: NodeId,
    /// Time, chance, sockets.
    pub(crate) env: Env,
    /// Settings.
    pub(crate) config: BrokerConfig,
    /// Topics, nodes, producer ids.
    pub(crate) cluster: Arc<Cluster>,
    /// Connections to the nodes of the cluster, this one included.
    pub(crate) peers: Peers,
    /// Transactions that this node coordinates.
    pub(crate) transactions: Coordinator,
    /// Offsets of consumer groups that this node coordinates.
    pub(crate) offsets: OffsetCoordinator,
    /// Share groups, share partitions and the share coordinator of this node.
    pub(crate) share: ShareServices,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Triggered when the node stops.
    pub(crate) stop: CancellationToken,
    /// Holds its tasks while it is paused.
    pub(crate) pause: Arc<Pause>,
    connections: AtomicU64,
    tasks: Mutex<TaskSet<()>>,
}

impl Node {
    /// A node that does not listen yet.
    pub(crate) fn new(id: NodeId, env: Env, config: BrokerConfig, cluster: Arc<Cluster>) -> Arc<Node> {
        let stop = CancellationToken::new();
        Arc::new(Node {
            id,
            peers: Peers::new(env.clone(), Arc::clone(&cluster), id),
            transactions: Coordinator::new(),
            offsets: OffsetCoordinator::default(),
            share: ShareServices::new(),
            metrics: Metrics::default(),
            connections: AtomicU64::new(0),
            tasks: Mutex::new(TaskSet::new(&env.spawner, stop.clone())),
            env,
            config,
            cluster,
            stop,
            pause: Arc::default(),
        })
    }

    /// A number for a connection that no other of this node has.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts a task that the node owns: it is joined at the latest when the node stops, and should watch
    /// [`Node::stop`].
    pub(crate) fn spawn(
        &self,
        name: impl Into<String>,
        kind: TaskKind,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Finished tasks are joined here, so that the set only grows with what runs.
        while let Some(Some(exit)) = tasks.join_next().now_or_never() {
            if let Err(panic) = exit.result {
                error!(node = %self.id, task = exit.name, %panic, "a broker task panicked");
            }
        }
        if !self.stop.is_cancelled() {
            tasks.spawn(name, kind, Arc::clone(&self.pause).admit(task));
        }
    }

    /// A partition that this node leads, by its topic's name. Errors: UNKNOWN_TOPIC_OR_PARTITION,
    /// NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn led(&self, topic: &str, index: PartitionIndex) -> Result<Led, ErrorCode> {
        let partition = self.cluster.topics.partition(topic, index);
        self.check_led(&partition.ok_or(ErrorCode::UnknownTopicOrPartition)?)
    }

    /// A partition that this node leads, by its topic's id. Errors: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    /// NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn led_by_id(&self, topic: TopicId, index: PartitionIndex) -> Result<Led, ErrorCode> {
        let topic = self.cluster.topics.by_id(topic).ok_or(ErrorCode::UnknownTopicId)?;
        self.check_led(topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?)
    }

    fn check_led(&self, partition: &Arc<Partition>) -> Result<Led, ErrorCode> {
        // A stopped node has no say, also while some of its work is still running out.
        if self.stop.is_cancelled() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        partition.led_by(self.id).ok_or(ErrorCode::NotLeaderOrFollower)
    }

    /// Applies retention to the logs that this node leads, and compacts those that ask for it.
    pub(crate) fn keep_logs(&self) {
        let now_ms = self.env.clock.wall_ms();
        for partition in self.cluster.partitions() {
            let Some(cleaning) = partition.led_by(self.id).and_then(|led| led.keep_up(now_ms)) else {
                continue;
            };
            if cleaning.writes_files() {
                self.spawn("compaction", TaskKind::Blocking, async move {
                    if let Err(panic) = run_blocking("compaction", move || cleaning.run()).await {
                        error!(%panic, "a compaction panicked");
                    }
                });
            } else {
                cleaning.run();
            }
        }
    }

    /// Stops every task and waits until all are gone; none runs any further from now on. Cancel safe: what is left
    /// of them is dropped then.
    pub(crate) async fn stop(&self) {
        // Whatever does not heed the token is waiting for a peer that stops as well.
        self.end_tasks().abort_all().await;
        self.peers.close();
    }

    /// Ends every task without waiting until it is gone.
    pub(crate) fn abort(&self) {
        drop(self.end_tasks());
        self.peers.close();
    }

    fn end_tasks(&self) -> TaskSet<()> {
        self.stop.cancel();
        let fresh = TaskSet::new(&self.env.spawner, self.stop.clone());
        std::mem::replace(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner), fresh)
    }
}
