//! Notices of lost locks: what was acquired and is not final may be handed to others (DESIGN section 2, Abort).

use sharestream_base::ids::{PartitionIndex, TopicId};

/// Why locks are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The connection to the leader ended: the session, and with it every lock, is gone.
    ConnectionLost,
    /// Another broker leads the partition now.
    LeaderMoved,
    /// The leader no longer knows the session.
    SessionLost,
    /// The group removed this member.
    MemberRemoved,
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LostReason::ConnectionLost => "the connection to the leader ended",
            LostReason::LeaderMoved => "another broker leads the partition now",
            LostReason::SessionLost => "the leader no longer knows the share session",
            LostReason::MemberRemoved => "the share group removed this member",
        })
    }
}

/// Everything that was acquired from this partition and is neither acknowledged nor staged may be handed to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLocks {
    /// Topic.
    pub topic_id: TopicId,
    /// Partition.
    pub partition: PartitionIndex,
    /// Why.
    pub reason: LostReason,
}
