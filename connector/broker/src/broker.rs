//! The public face for users: a broker of one node or several, built in one line.

use std::path::PathBuf;
use std::time::Duration;

use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex};
use sharestream_base::{Env, ErrorKind, HostPort};

use crate::access::{AccessControl, AccessSettings, Acl, Operation, Principal, ResourcePattern};
use crate::broker_cluster::BrokerCluster;
use crate::config::BrokerConfig;
use crate::error::{Error, Result};
use crate::faults::FaultPlan;

/// The first node; the others have the next numbers.
const FIRST: NodeId = NodeId(1);
/// Most nodes of one process: each has a listener and timers of its own.
const NODES_MAX: u16 = 100;

/// Embedded broker for development and tests. See the crate's documentation for what it is not.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Starts to build a broker in the given environment: of one node, unless [`BrokerBuilder::nodes`] says
    /// otherwise.
    pub fn builder(env: Env) -> BrokerBuilder {
        BrokerBuilder {
            env,
            config: BrokerConfig::default(),
            access: AccessSettings::default(),
            nodes: 1,
            fail_over_after: None,
        }
    }
}

/// Collects the settings of a broker.
#[derive(Debug)]
pub struct BrokerBuilder {
    env: Env,
    config: BrokerConfig,
    access: AccessSettings,
    nodes: u16,
    fail_over_after: Option<Duration>,
}

impl BrokerBuilder {
    /// Replaces the settings, which hold for all nodes. The first node listens on their port, further ones on
    /// the next ports; with port 0 each takes a free one.
    #[must_use]
    pub fn config(mut self, config: BrokerConfig) -> Self {
        self.config = config;
        self
    }

    /// So many nodes in this process, with ids from 1 on: leaders and coordinators are spread over them. 1 to
    /// 100, default 1.
    #[must_use]
    pub fn nodes(mut self, count: u16) -> Self {
        self.nodes = count;
        self
    }

    /// Lets the others take over what a killed node led, so long after its death, unless it has come back by
    /// then. By default nobody does until it is asked for.
    #[must_use]
    pub fn fail_over_after(mut self, delay: Duration) -> Self {
        self.fail_over_after = Some(delay);
        self
    }

    /// Keeps everything in a folder, which is created when it is not there: what was answered is there again
    /// when a broker is started with the same folder ([`BrokerConfig::data`], [`BrokerConfig::fsync`]).
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.data = Some(folder.into());
        self
    }

    /// Lets users log in, by name and password ([`AccessSettings::user`]). Then every connection must.
    #[must_use]
    pub fn users<N: Into<String>, P: Into<String>>(
        mut self,
        users: impl IntoIterator<Item = (N, P)>,
    ) -> Self {
        let add = |settings: AccessSettings, (name, password): (N, P)| settings.user(name, password);
        self.access = users.into_iter().fold(self.access, add);
        self
    }

    /// Lets somebody do everything. Switches access control on ([`AccessSettings::super_user`]).
    #[must_use]
    pub fn super_user(mut self, principal: Principal) -> Self {
        self.access = self.access.super_user(principal);
        self
    }

    /// Gives a right. Switches access control on ([`AccessSettings::acl`]).
    #[must_use]
    pub fn allow(mut self, principal: Principal, operation: Operation, on: ResourcePattern) -> Self {
        self.access = self.access.acl(Acl::allow(principal, operation, on));
        self
    }

    /// Takes a right away, whatever else gives it. Switches access control on ([`AccessSettings::acl`]).
    #[must_use]
    pub fn deny(mut self, principal: Principal, operation: Operation, on: ResourcePattern) -> Self {
        self.access = self.access.acl(Acl::deny(principal, operation, on));
        self
    }

    /// Listens and serves. Errors: InvalidInput (settings, number of nodes, a data folder that cannot be
    /// used, or an address that cannot be bound), Corrupt (a damaged data folder). Not cancel safe.
    pub async fn start(self) -> Result<RunningBroker> {
        let BrokerBuilder { env, config, access, nodes, fail_over_after } = self;
        if !(1..=NODES_MAX).contains(&nodes) {
            let text = format!("{nodes} nodes are asked for, not 1 to {NODES_MAX}");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let (host, first_port) = (config.host.clone(), config.port);
        let mut cluster = BrokerCluster::builder(env.clone()).config(config).access(access);
        if let Some(delay) = fail_over_after {
            cluster = cluster.fail_over_after(delay);
        }
        for place in 0..nodes {
            let port = match first_port {
                0 => 0,
                first => first.checked_add(place).ok_or_else(|| {
                    let text = format!("{nodes} nodes from port {first} on go beyond port {}", u16::MAX);
                    Error::new(ErrorKind::InvalidInput, text)
                })?,
            };
            let node = NodeId(FIRST.0 + i32::from(place));
            cluster = cluster.node(node, HostPort::new(host.clone(), port), env.clone());
        }
        let cluster = cluster.start().await?;
        let address = cluster.address(FIRST);
        let address = address.ok_or_else(|| Error::new(ErrorKind::Bug, "a started node has no address"))?;
        Ok(RunningBroker { cluster, address })
    }
}

/// A broker that serves. Dropping it without [`RunningBroker::shutdown`] stops it as well, without waiting.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use sharestream_base::ids::{NodeId, PartitionIndex};
/// use sharestream_broker::{Broker, TRANSACTION_STATE_TOPIC};
///
/// let broker = Broker::builder(sharestream_base::Env::system()).nodes(3).start().await?;
/// println!("bootstrap.servers={}", broker.bootstrap());
///
/// // What does my application do when its transaction coordinator moves, then stops?
/// let partition = broker.cluster().transaction_partition("my-app");
/// broker.move_leader(TRANSACTION_STATE_TOPIC, partition, NodeId(2))?;
/// broker.pause_node(NodeId(2))?;
/// broker.resume_node(NodeId(2))?;
/// broker.stop_node(NodeId(2)).await?;
/// assert_ne!(broker.cluster().leader(TRANSACTION_STATE_TOPIC, partition), Some(NodeId(2)));
/// broker.start_node(NodeId(2)).await?;
/// broker.shutdown().await;
/// # Ok::<_, sharestream_broker::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct RunningBroker {
    cluster: BrokerCluster,
    address: HostPort,
}

impl RunningBroker {
    /// `host:port` of every node, separated by commas, for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    /// Where the first node listens.
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// Where each node listens, by id.
    pub fn addresses(&self) -> Vec<(NodeId, HostPort)> {
        let nodes = self.cluster.nodes().into_iter();
        nodes.filter_map(|node| Some((node, self.cluster.address(node)?))).collect()
    }

    /// The cluster of these nodes: all that can be done to them and seen in them.
    pub fn cluster(&self) -> &BrokerCluster {
        &self.cluster
    }

    /// See [`BrokerCluster::move_leader`].
    pub fn move_leader(&self, topic: &str, partition: PartitionIndex, node: NodeId) -> Result<LeaderEpoch> {
        self.cluster.move_leader(topic, partition, node)
    }

    /// See [`BrokerCluster::stop_node`].
    pub async fn stop_node(&self, node: NodeId) -> Result<()> {
        self.cluster.stop_node(node).await
    }

    /// See [`BrokerCluster::kill_node`].
    pub async fn kill_node(&self, node: NodeId) -> Result<()> {
        self.cluster.kill_node(node).await
    }

    /// See [`BrokerCluster::start_node`].
    pub async fn start_node(&self, node: NodeId) -> Result<()> {
        self.cluster.start_node(node).await
    }

    /// See [`BrokerCluster::pause_node`].
    pub fn pause_node(&self, node: NodeId) -> Result<()> {
        self.cluster.pause_node(node)
    }

    /// See [`BrokerCluster::resume_node`].
    pub fn resume_node(&self, node: NodeId) -> Result<()> {
        self.cluster.resume_node(node)
    }

    /// See [`BrokerCluster::access`].
    pub fn access(&self) -> &AccessControl {
        self.cluster.access()
    }

    /// See [`BrokerCluster::faults`].
    pub fn faults(&self) -> &FaultPlan {
        self.cluster.faults()
    }

    /// What is inside, for tests of this crate.
    #[cfg(test)]
    pub(crate) fn node(&self) -> std::sync::Arc<crate::node::Node> {
        self.cluster.running(FIRST).unwrap()
    }

    /// Closes all connections and waits until every task is gone. Records that live in memory are lost.
    pub async fn shutdown(self) {
        self.cluster.shutdown().await;
    }
}
