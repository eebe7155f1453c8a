//! Topics, groups, offsets and transactions: what an operator or a job's start needs.

mod access;
mod brokers;
mod configs;
mod groups;
mod offsets;
mod reset;
mod share_members;
mod share_offsets;
mod topic_description;
mod topics;
mod transactions;

use crate::client::Client;

pub use access::{AclOperation, Operations};
pub use brokers::BrokerFeatures;
pub use groups::{
    AssignedPartitions, GroupListing, ShareGroupDescription, ShareGroupListing, ShareGroupMember,
};
pub use offsets::OffsetSpec;
pub use reset::{PlannedReset, ResetTo};
pub use share_offsets::{ShareGroupOffset, StartOffset};
pub use topic_description::TopicDescription;
pub use topics::NewTopic;
pub use transactions::{EndedTransaction, TransactionDescription, TransactionListing};

/// Administration of a cluster. Cheap to make from a [`Client`].
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Admin {
    pub(crate) fn new(client: Client) -> Self {
        Admin { client }
    }

    /// The cluster's id, if it told one.
    pub fn cluster_id(&self) -> Option<String> {
        self.client.cluster_id()
    }
}
