//! The public face of one node: build a broker, start it, stop it.

use sharestream_base::ids::NodeId;
use sharestream_base::{Env, ErrorKind, HostPort};

use crate::broker_cluster::BrokerCluster;
use crate::config::BrokerConfig;
use crate::error::{Error, Result};

/// The only node.
const NODE: NodeId = NodeId(1);

/// Embedded broker for development and tests. See the crate's documentation for what it is not.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Starts to build a broker in the given environment. For several nodes see [`BrokerCluster`].
    pub fn builder(env: Env) -> BrokerBuilder {
        BrokerBuilder { env, config: BrokerConfig::default() }
    }
}

/// Collects the settings of a broker.
#[derive(Debug)]
pub struct BrokerBuilder {
    env: Env,
    config: BrokerConfig,
}

impl BrokerBuilder {
    /// Replaces the settings.
    #[must_use]
    pub fn config(mut self, config: BrokerConfig) -> Self {
        self.config = config;
        self
    }

    /// Listens and serves. Errors: InvalidInput (settings, or the address cannot be bound). Not cancel safe.
    pub async fn start(self) -> Result<RunningBroker> {
        let address = HostPort::new(self.config.host.clone(), self.config.port);
        let cluster = BrokerCluster::builder(self.env.clone()).config(self.config);
        let cluster = cluster.node(NODE, address, self.env).start().await?;
        let address = cluster.address(NODE);
        let address = address.ok_or_else(|| Error::new(ErrorKind::Bug, "a started node has no address"))?;
        Ok(RunningBroker { cluster, address })
    }
}

/// A broker that serves. Dropping it without [`RunningBroker::shutdown`] stops it as well, without waiting.
#[derive(Debug)]
pub struct RunningBroker {
    cluster: BrokerCluster,
    address: HostPort,
}

impl RunningBroker {
    /// `host:port` for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Where it listens.
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// The cluster of this one node, to stop and start it or to look into it.
    pub fn cluster(&self) -> &BrokerCluster {
        &self.cluster
    }

    /// What is inside, for tests of this crate.
    #[cfg(test)]
    pub(crate) fn node(&self) -> std::sync::Arc<crate::node::Node> {
        self.cluster.running(NODE).unwrap()
    }

    /// Closes all connections and waits until every task is gone. Records are lost: they live in memory.
    pub async fn shutdown(self) {
        self.cluster.shutdown().await;
    }
}
