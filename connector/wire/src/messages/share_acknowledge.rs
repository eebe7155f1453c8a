//! ShareAcknowledge (79), versions 1 (Kafka 4.1) and 2 (Kafka 4.2): acknowledges acquired records.
//!
//! Source: KIP-932; version 2 adds renewal (KIP-1222).

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub use super::shared::{AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint};
use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Acknowledges records outside a transaction.
    pub struct ShareAcknowledgeRequest {
        /// The group.
        group_id: Option<StrBytes> = None;
        /// The member.
        member_id: Option<StrBytes> = None;
        /// -1 closes the session, else one more than in the request before; 0 is not allowed here.
        share_session_epoch: i32 = 0;
        /// Whether acknowledgements of type 4 are here.
        is_renew_ack: bool = false, since 2;
        /// What to acknowledge.
        topics: Vec<AcknowledgeTopic> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct AcknowledgeTopic {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<AcknowledgePartition> = Vec::new();
    }
}

flexible_struct! {
    /// Acknowledgements for a partition.
    pub struct AcknowledgePartition {
        /// The partition.
        partition_index: i32 = 0;
        /// Acknowledgements, ascending.
        acknowledgement_batches: Vec<AcknowledgementBatch> = Vec::new();
    }
}

flexible_struct! {
    /// What became of the acknowledgements.
    pub struct ShareAcknowledgeResponse {
        /// How long the client was or should be throttled.
        throttle_time_ms: i32 = 0;
        /// Error of the whole request.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
        /// How long renewed records stay locked.
        acquisition_lock_timeout_ms: i32 = 0, ignorable_since 2;
        /// Per topic.
        responses: Vec<ShareAcknowledgeTopicResponse> = Vec::new();
        /// Addresses of the leaders that partitions name.
        node_endpoints: Vec<NodeEndpoint> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct ShareAcknowledgeTopicResponse {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionData> = Vec::new();
    }
}

flexible_struct! {
    /// Outcome for a partition.
    pub struct PartitionData {
        /// The partition.
        partition_index: i32 = 0;
        /// Error of the acknowledgements.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
        /// The leader, when the request went to another node.
        current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch::default();
    }
}

flexible_api!(ShareAcknowledgeRequest, ShareAcknowledgeResponse, key 79, versions 1..=2);
