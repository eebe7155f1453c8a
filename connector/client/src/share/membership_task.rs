//! The task that keeps this member in its group.

use sharestream_base::ids::MemberEpoch;
use tokio::sync::watch;

/// A member of a share group as brokers know it: a plain value that may travel to another process (KIP-1289).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupMetadata {
    /// Group id.
    pub group_id: String,
    /// Member id, chosen by the client.
    pub member_id: String,
    /// Member epoch; 0 before the group has answered.
    pub member_epoch: MemberEpoch,
}

/// Reads the live member epoch from any task.
#[derive(Clone, Debug)]
pub struct MetadataHandle {
    pub(super) receiver: watch::Receiver<ShareGroupMetadata>,
}

impl MetadataHandle {
    /// The metadata as of the last heartbeat.
    pub fn current(&self) -> ShareGroupMetadata {
        self.receiver.borrow().clone()
    }
}
