//! The public face of several nodes in one process: start, stop and kill them, move what they lead.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId};
use sharestream_base::{
    CancellationToken, Env, ErrorKind, HostPort, OwnedTask, TaskKind, TaskSet, run_blocking,
};
use tracing::error;

use crate::access::{AccessControl, AccessSettings};
use crate::cluster::{Cluster, SHARE_STATE_TOPIC};
use crate::config::BrokerConfig;
use crate::disk::{Disk, Files, FsyncPolicy, SystemFiles};
use crate::error::{Error, ErrorCode, Result};
use crate::faults::FaultPlan;
use crate::node::Node;
use crate::server;

/// Several nodes of the embedded broker in one process, for tests of what happens when some of them go.
///
/// Each node has its own [`Env`] (clock, chance, sockets, tasks) and its own listener; nodes speak to each other over
/// the network, as clients do. What they share is what Kafka would replicate: the logs, the topics, who is alive and
/// who leads what (ADR 0009).
///
/// - **Every append is durable before it is answered.** What was appended survives any death of any node; a partition
///   without a leader cannot be written or read until somebody leads it.
/// - **What lives in a node's memory dies with it**: connections, share sessions, acquired records and their locks,
///   memberships of groups, verifications under way, states that coordinators have replayed from the logs.
/// - **A leader writes under its leader epoch.** From the moment that [`BrokerCluster::move_leader`],
///   [`BrokerCluster::kill_node`] or [`BrokerCluster::stop_node`] has returned, nothing that the former leader has not
///   appended yet gets into the log, be it paused, slow or on its way. Its waiting requests end with
///   NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR.
///
/// The leaders of `__transaction_state`, `__share_group_state` and `__consumer_offsets` are the coordinators of
/// transactions, share state and groups; moving those moves these.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use sharestream_base::ids::{NodeId, PartitionIndex};
/// use sharestream_base::{Env, HostPort};
/// use sharestream_broker::{BrokerCluster, TRANSACTION_STATE_TOPIC};
///
/// let env = Env::seeded(1);
/// let mut builder = BrokerCluster::builder(env.clone());
/// for node in 1..=3 {
///     builder = builder.node(NodeId(node), HostPort::new(format!("broker-{node}"), 9092), env.clone());
/// }
/// let cluster = builder.start().await?;
/// println!("clients begin at {}", cluster.bootstrap());
///
/// let partition = cluster.transaction_partition("job-0");
/// cluster.move_leader(TRANSACTION_STATE_TOPIC, partition, NodeId(2))?;
/// cluster.kill_node(NodeId(2)).await?;
/// assert_eq!(cluster.leader(TRANSACTION_STATE_TOPIC, partition), None);
/// cluster.fail_over(NodeId(2))?;
/// cluster.start_node(NodeId(2)).await?;
/// cluster.shutdown().await;
/// # Ok::<_, sharestream_broker::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct BrokerCluster {
    pub(crate) cluster: Arc<Cluster>,
    config: BrokerConfig,
    controller: Env,
    fail_over_after: Option<Duration>,
    seats: Arc<Mutex<Seats>>,
    timers: Mutex<TaskSet<()>>,
    syncing: Mutex<Option<OwnedTask<()>>>,
}

type Seats = BTreeMap<NodeId, Seat>;

/// A node's place, taken or not.
#[derive(Debug)]
struct Seat {
    /// Where it listens; with its real port from its first start on.
    address: HostPort,
    env: Env,
    running: Option<Arc<Node>>,
    /// Counts starts, so that a timer knows whether its node has been back.
    incarnation: u64,
}

/// Collects nodes and settings of a cluster.
#[derive(Debug)]
pub struct BrokerClusterBuilder {
    controller: Env,
    config: BrokerConfig,
    access: AccessSettings,
    fail_over_after: Option<Duration>,
    nodes: BTreeMap<NodeId, (HostPort, Env)>,
    files: Option<Arc<dyn Files>>,
}

impl BrokerClusterBuilder {
    /// Replaces the settings, which hold for all nodes. Host and port in them do not count.
    #[must_use]
    pub fn config(mut self, config: BrokerConfig) -> Self {
        self.config = config;
        self
    }

    /// Who may log in and do what; by default there are neither users nor access control.
    #[must_use]
    pub fn access(mut self, access: AccessSettings) -> Self {
        self.access = access;
        self
    }

    /// Adds a node with a listener (port 0 takes a free one, which the node keeps) and an environment of its own.
    #[must_use]
    pub fn node(mut self, node: NodeId, listen: HostPort, env: Env) -> Self {
        self.nodes.insert(node, (listen, env));
        self
    }

    /// Lets the others take over what a killed node led, so long after its death, unless it has come back by then. By
    /// default only [`BrokerCluster::fail_over`] does.
    #[must_use]
    pub fn fail_over_after(mut self, delay: Duration) -> Self {
        self.fail_over_after = Some(delay);
        self
    }

    /// Puts other files under the broker than those of the operating system.
    #[cfg(test)]
    pub(crate) fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = Some(files);
        self
    }

    /// The cluster with every node down. Reads the data folder, if there is one: blocks as long as that takes.
    ///
    /// Errors: InvalidInput (settings; no node; a data folder that is in use or cannot be used), Corrupt (damage in
    /// the data folder that no crash explains).
    pub fn build(self) -> Result<BrokerCluster> {
        let BrokerClusterBuilder { controller, config, access, fail_over_after, nodes, files } = self;
        config.validate()?;
        access.validate()?;
        if nodes.is_empty() || nodes.keys().any(|node| node.0 < 0) {
            return Err(Error::new(ErrorKind::InvalidInput, "a cluster needs nodes with ids of at least 0"));
        }
        let ids: Vec<NodeId> = nodes.keys().copied().collect();
        let files = match (files, &config.data) {
            (Some(files), _) => Some(files),
            (None, Some(folder)) => Some(system_files(folder)?),
            (None, None) => None,
        };
        let opened = files.map(|files| Disk::open(files, config.fsync)).transpose()?;
        let cluster = Arc::new(Cluster::new(&controller.rng.fork("cluster"), &config, access, &ids, opened)?);
        let seat = |(address, env)| Seat { address, env, running: None, incarnation: 0 };
        let seats = nodes.into_iter().map(|(node, at)| (node, seat(at))).collect();
        let timers = Mutex::new(TaskSet::new(&controller.spawner, CancellationToken::new()));
        Ok(BrokerCluster {
            cluster,
            config,
            controller,
            fail_over_after,
            seats: Arc::new(Mutex::new(seats)),
            timers,
            syncing: Mutex::default(),
        })
    }

    /// Builds and starts every node, by id. Errors: as [`BrokerClusterBuilder::build`], and InvalidInput (an address
    /// cannot be bound). Not cancel safe.
    pub async fn start(self) -> Result<BrokerCluster> {
        let in_memory = self.config.data.is_none();
        let cluster = if in_memory {
            self.build()?
        } else {
            let built = run_blocking("recovery", || self.build()).await;
            built.map_err(|panic| Error::new(ErrorKind::Bug, "recovery").with_source(panic))??
        };
        for node in cluster.nodes() {
            cluster.start_node(node).await?;
        }
        Ok(cluster)
    }
}

impl BrokerCluster {
    /// Starts to build a cluster. `controller` is the environment of what no node is: it draws the ids of cluster and
    /// topics and runs the timers of [`BrokerClusterBuilder::fail_over_after`].
    pub fn builder(controller: Env) -> BrokerClusterBuilder {
        let config = BrokerConfig::default();
        BrokerClusterBuilder {
            controller,
            config,
            access: AccessSettings::default(),
            fail_over_after: None,
            nodes: BTreeMap::new(),
            files: None,
        }
    }

    /// Every node, dead or alive, by id.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.seats().keys().copied().collect()
    }

    /// Every live node, by id.
    pub fn live_nodes(&self) -> Vec<NodeId> {
        self.cluster.nodes().into_iter().map(|known| known.node).collect()
    }

    /// Where a node listens, or would. `None` for a node that does not exist.
    pub fn address(&self, node: NodeId) -> Option<HostPort> {
        self.seats().get(&node).map(|seat| seat.address.clone())
    }

    /// `host:port,host:port` of every node, dead or alive, for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self.seats().values().map(|seat| seat.address.to_string()).collect();
        addresses.join(",")
    }

    /// Starts a node that is down, as a new incarnation in the environment that it had. It leads again, under the
    /// next leader epochs, what has no leader and waits for it; what a fail-over or a move gave to others stays
    /// there.
    ///
    /// Errors: InvalidInput (no such node; it is up; its address cannot be bound). Calls that start or end the same
    /// node must not overlap. Not cancel safe.
    pub async fn start_node(&self, node: NodeId) -> Result<()> {
        let env = self.seats().get(&node).map(|seat| seat.env.clone());
        self.start_node_in(node, env.ok_or_else(|| unknown(node))?).await
    }

    /// Starts a node as [`BrokerCluster::start_node`] does, in another environment: that of its new process.
    pub async fn start_node_in(&self, node: NodeId, env: Env) -> Result<()> {
        let wanted = {
            let seats = self.seats();
            let seat = seats.get(&node).ok_or_else(|| unknown(node))?;
            if seat.running.is_some() {
                return Err(Error::new(ErrorKind::InvalidInput, format!("node {node} is up already")));
            }
            seat.address.clone()
        };
        let listener = env.network.bind(&wanted).await.map_err(|source| {
            Error::new(ErrorKind::InvalidInput, format!("cannot listen on {wanted}")).with_source(source)
        })?;
        let address = listener.local_address();
        let config = BrokerConfig { host: address.host.clone(), port: address.port, ..self.config.clone() };
        let running = Node::new(node, env.clone(), config, Arc::clone(&self.cluster));
        if let Some(seat) = self.seats().get_mut(&node) {
            seat.running = Some(Arc::clone(&running));
            seat.incarnation += 1;
            (seat.address, seat.env) = (address.clone(), env);
        }
        self.sync_now_and_then();
        self.cluster.join(node, address);
        running.transactions.start(&running);
        running.offsets.start(&running);
        running.share.start(&running);
        running.spawn("accept", TaskKind::Service, server::accept(Arc::clone(&running), listener));
        Ok(())
    }

    /// Stops a node in good order: the others take over what it leads, or nobody when it was the last; its
    /// connections are closed and its tasks are joined.
    ///
    /// Errors: InvalidInput (no such node; it is down). Cancel safe: the node is down at once, only the wait is cut.
    pub async fn stop_node(&self, node: NodeId) -> Result<()> {
        let running = self.take(node)?;
        running.stop.cancel();
        self.cluster.leave(node);
        self.cluster.give_up(node);
        running.stop().await;
        Ok(())
    }

    /// Ends a node as a crash does: everything that only lived in its memory is gone, and its half done work with it.
    /// What it led has no leader until it is started again or somebody takes over ([`BrokerCluster::fail_over`],
    /// [`BrokerClusterBuilder::fail_over_after`], [`BrokerCluster::move_leader`]).
    ///
    /// Errors: InvalidInput (no such node; it is down). Cancel safe: the node is dead at once, only the wait for the
    /// remains of its tasks is cut.
    pub async fn kill_node(&self, node: NodeId) -> Result<()> {
        let running = self.take(node)?;
        running.stop.cancel();
        self.cluster.leave(node);
        self.fail_over_later(node);
        running.stop().await;
        Ok(())
    }

    /// Makes a node stand still with all that it holds, as a stopped process does: it answers nothing, its timers pass
    /// unheard, its connections stay open, and it still leads what it led. Its clients and peers wait until their own
    /// patience ends. Pausing a paused node changes nothing.
    ///
    /// Errors: InvalidInput (no such node; it is down).
    pub fn pause_node(&self, node: NodeId) -> Result<()> {
        self.up(node)?.pause.pause();
        Ok(())
    }

    /// Lets a paused node go on where it stood, not knowing what happened meanwhile. For one that is not paused
    /// nothing changes.
    ///
    /// Errors: InvalidInput (no such node; it is down).
    pub fn resume_node(&self, node: NodeId) -> Result<()> {
        self.up(node)?.pause.resume();
        Ok(())
    }

    /// Deals what a dead node led out among the live ones, and gives the number of partitions that moved. With no
    /// node alive the first one that starts takes all.
    ///
    /// Errors: InvalidInput (no such node; it is up: move its leaderships instead).
    pub fn fail_over(&self, node: NodeId) -> Result<usize> {
        let seats = self.seats();
        let seat = seats.get(&node).ok_or_else(|| unknown(node))?;
        if seat.running.is_some() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("node {node} is up")));
        }
        Ok(self.cluster.give_up(node))
    }

    /// Deals what a live node leads out among the other live ones, and gives the number of partitions that moved:
    /// what a controller does that has not heard of a node for too long. The node stays listed and may be given
    /// leaderships again. With no other node alive nothing moves.
    ///
    /// Errors: InvalidInput (no such node; it is down: fail it over instead).
    pub fn move_off(&self, node: NodeId) -> Result<usize> {
        let seats = self.seats();
        let seat = seats.get(&node).ok_or_else(|| unknown(node))?;
        if seat.running.is_none() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("node {node} is down")));
        }
        Ok(self.cluster.give_up(node))
    }

    /// Makes a live node the leader of a partition, under the next leader epoch, which is given. Also when it leads
    /// already: then it loses what it had in memory of that partition, as in an election that it wins.
    ///
    /// Errors: InvalidInput (no such topic or partition; the node is not alive).
    pub fn move_leader(&self, topic: &str, partition: PartitionIndex, node: NodeId) -> Result<LeaderEpoch> {
        self.cluster.move_leader(topic, partition, node).map_err(|code| {
            let context = format!("cannot move {topic}-{partition} to node {node}");
            let kind = match code {
                ErrorCode::UnknownTopicOrPartition | ErrorCode::BrokerNotAvailable => ErrorKind::InvalidInput,
                _ => ErrorKind::Bug,
            };
            Error::new(kind, context).with_source(code)
        })
    }

    /// Who may do what. Acls may be added and removed while the nodes run.
    pub fn access(&self) -> &AccessControl {
        &self.cluster.access
    }

    /// Faults that requests to these nodes meet: none, until some are planted.
    pub fn faults(&self) -> &FaultPlan {
        &self.cluster.faults
    }

    /// The leader of a partition; `None` when it has none or does not exist.
    pub fn leader(&self, topic: &str, partition: PartitionIndex) -> Option<NodeId> {
        self.cluster.leader_of(topic, partition)
    }

    /// The partition of [`crate::TRANSACTION_STATE_TOPIC`] whose leader coordinates a transactional id.
    pub fn transaction_partition(&self, transactional_id: &str) -> PartitionIndex {
        self.cluster.transaction_partition(transactional_id).unwrap_or(PartitionIndex(0))
    }

    /// The partition of [`crate::GROUP_TOPIC`] whose leader coordinates a group.
    pub fn group_partition(&self, group: &str) -> PartitionIndex {
        self.cluster.group_partition(group).unwrap_or(PartitionIndex(0))
    }

    /// The partition of [`crate::SHARE_STATE_TOPIC`] whose leader keeps the state of a share partition.
    pub fn share_state_partition(
        &self,
        group: &str,
        topic: TopicId,
        partition: PartitionIndex,
    ) -> PartitionIndex {
        let count = self.cluster.topics.by_name(SHARE_STATE_TOPIC).map_or(1, |topic| topic.partition_count());
        PartitionIndex(sharestream_wire::share_state::state_partition(group, topic, partition, count))
    }

    /// Stops every node and waits until every task is gone. Without a data folder records are lost; with one everything
    /// is synced and the folder is free for the next broker.
    pub async fn shutdown(self) {
        for node in self.live_nodes() {
            if let Ok(running) = self.take(node) {
                running.stop.cancel();
                self.cluster.leave(node);
                running.stop().await;
            }
        }
        if let Some(disk) = self.cluster.disk().cloned() {
            let closed = run_blocking("close the data folder", move || disk.close()).await;
            if let Err(panic) = closed {
                error!(%panic, "the data folder was not closed");
            }
        }
    }

    /// The running incarnation of a node.
    #[cfg(test)]
    pub(crate) fn running(&self, node: NodeId) -> Option<Arc<Node>> {
        self.seats().get(&node).and_then(|seat| seat.running.clone())
    }

    /// Every running node, by id.
    pub(crate) fn all_running(&self) -> Vec<Arc<Node>> {
        self.seats().values().filter_map(|seat| seat.running.clone()).collect()
    }

    fn up(&self, node: NodeId) -> Result<Arc<Node>> {
        let seats = self.seats();
        let seat = seats.get(&node).ok_or_else(|| unknown(node))?;
        let down = || Error::new(ErrorKind::InvalidInput, format!("node {node} is down"));
        seat.running.clone().ok_or_else(down)
    }

    fn take(&self, node: NodeId) -> Result<Arc<Node>> {
        let mut seats = self.seats();
        let seat = seats.get_mut(&node).ok_or_else(|| unknown(node))?;
        let down = || Error::new(ErrorKind::InvalidInput, format!("node {node} is down already"));
        seat.running.take().ok_or_else(down)
    }

    fn fail_over_later(&self, node: NodeId) {
        let Some(delay) = self.fail_over_after else { return };
        let incarnation = self.seats().get(&node).map(|seat| seat.incarnation);
        let (clock, cluster, seats) =
            (self.controller.clock.clone(), Arc::clone(&self.cluster), Arc::clone(&self.seats));
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        // Finished timers are joined here, so that the set only grows with what runs.
        while let Some(Some(_exit)) = timers.join_next().now_or_never() {}
        timers.spawn(format!("fail-over {node}"), TaskKind::Service, async move {
            clock.sleep(delay).await;
            let seats = lock(&seats);
            let still = |seat: &Seat| seat.running.is_none() && Some(seat.incarnation) == incarnation;
            if seats.get(&node).is_some_and(still) {
                cluster.give_up(node);
            }
        });
    }

    /// Starts what the fsync policy `interval` asks for, once.
    fn sync_now_and_then(&self) {
        let Some(disk) = self.cluster.disk().cloned() else { return };
        let FsyncPolicy::Interval(interval) = disk.policy() else { return };
        let mut syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = self.controller.clock.clone();
        syncing.get_or_insert_with(|| {
            OwnedTask::spawn(&self.controller.spawner, "fsync", TaskKind::Service, async move {
                // A disk that fails says so itself, and every later write is refused.
                while disk.sync().await.is_ok() {
                    clock.sleep(interval).await;
                }
            })
        });
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        lock(&self.seats)
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system_files(folder: &Path) -> Result<Arc<dyn Files>> {
    let files = SystemFiles::new(folder).map_err(|source| {
        let text = format!("data folder {} cannot be created or read: {source}", folder.display());
        Error::new(ErrorKind::InvalidInput, text).with_source(source)
    })?;
    Ok(Arc::new(files))
}

fn unknown(node: NodeId) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("the cluster has no node {node}"))
}

impl Drop for BrokerCluster {
    fn drop(&mut self) {
        for node in self.all_running() {
            self.cluster.leave(node.id);
            node.abort();
        }
    }
}
