//! What each broker says of itself.

use sharestream_base::HostPort;
use sharestream_base::ids::NodeId;

use super::Admin;
use crate::Result;
use crate::features::Features;

/// A broker of the cluster and what it can do.
#[derive(Debug)]
pub struct BrokerFeatures {
    /// Its id.
    pub node: NodeId,
    /// Where it says that it listens.
    pub address: HostPort,
    /// What it can do, or why it could not be asked.
    pub features: Result<Features>,
}

impl Admin {
    /// Asks each broker of the cluster, over a connection of its own, by the address that it advertises; one attempt each,
    /// all at once. Cancel safe.
    pub async fn broker_features(&self) -> Vec<BrokerFeatures> {
        let nodes = self.client.nodes().into_iter();
        let asked =
            nodes.filter_map(|node| {
                let address = self.client.address(node).ok()?;
                Some(async move {
                    BrokerFeatures { node, address, features: self.client.features_of(node).await }
                })
            });
        futures::future::join_all(asked).await
    }
}
