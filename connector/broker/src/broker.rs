//! The public face: build a broker, start it, stop it.

use std::sync::Arc;

use sharestream_base::ids::NodeId;
use sharestream_base::{Env, ErrorKind, HostPort, TaskKind};

use crate::cluster::Cluster;
use crate::config::BrokerConfig;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::server;

/// Embedded broker for development and tests. See the crate's documentation for what it is not.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Starts to build a broker in the given environment.
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
        self.config.validate()?;
        let cluster = Arc::new(Cluster::new(&self.env.rng.fork("cluster")));
        let wanted = HostPort::new(self.config.host.clone(), self.config.port);
        let listener = self.env.network.bind(&wanted).await.map_err(|source| {
            Error::new(ErrorKind::InvalidInput, format!("cannot listen on {wanted}")).with_source(source)
        })?;
        let address = listener.local_address();
        let node = Node::new(NodeId(1), self.env, self.config, Arc::clone(&cluster));
        cluster.join(node.id, address.clone());
        cluster.topics.create_internal(&node.config, &[node.id]);
        node.transactions.start(&node);
        node.share.start(&node);
        node.spawn("accept", TaskKind::Service, server::accept(Arc::clone(&node), listener));
        Ok(RunningBroker { node, address })
    }
}

/// A broker that serves. Dropping it without [`RunningBroker::shutdown`] stops it as well, without waiting.
#[derive(Debug)]
pub struct RunningBroker {
    node: Arc<Node>,
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

    /// What is inside, for tests of this crate.
    #[cfg(test)]
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Closes all connections and waits until every task is gone. Records are lost: they live in memory.
    pub async fn shutdown(self) {
        self.node.stop().await;
    }
}

impl Drop for RunningBroker {
    fn drop(&mut self) {
        self.node.stop.cancel();
    }
}
