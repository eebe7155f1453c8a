//! TxnShareAcknowledge: stages share acknowledgements into a producer's transaction.
//!
//! Source: KIP-1289, unreleased. Two drafts exist; this is the one whose batches carry an array of types, with 0
//! for gaps. The only file that knows the API key and the version.

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::codec::{flexible_api, flexible_struct};
pub use crate::messages::AcknowledgementBatch;

/// The API key, not yet assigned by Kafka.
pub const KEY: i16 = 95;

/// The version that we speak.
pub const VERSION: i16 = 0;

flexible_struct! {
    /// Stages acknowledgements of one member into the open transaction of a producer.
    pub struct TxnShareAcknowledgeRequest {
        /// The transactional id; null is refused.
        transactional_id: Option<StrBytes> = None;
        /// The share group.
        group_id: StrBytes = StrBytes::new();
        /// The producer.
        producer_id: i64 = -1;
        /// Its epoch.
        producer_epoch: i16 = -1;
        /// The member that acquired the records.
        member_id: StrBytes = StrBytes::new();
        /// Its epoch, for fencing.
        member_epoch: i32 = 0;
        /// What to stage.
        topics: Vec<TxnAcknowledgeTopic> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct TxnAcknowledgeTopic {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<TxnAcknowledgePartition> = Vec::new();
    }
}

flexible_struct! {
    /// Acknowledgements for a partition. Types: 1 accept, 3 reject, 0 gap.
    pub struct TxnAcknowledgePartition {
        /// The partition.
        partition_index: i32 = 0;
        /// Acknowledgements, ascending.
        acknowledgement_batches: Vec<AcknowledgementBatch> = Vec::new();
    }
}

flexible_struct! {
    /// What was staged. One partition's error dooms the whole transaction.
    pub struct TxnShareAcknowledgeResponse {
        /// How long the client was or should be throttled.
        throttle_time_ms: i32 = 0;
        /// Error of the whole request.
        error_code: i16 = 0;
        /// Per topic.
        responses: Vec<TxnAcknowledgeTopicResponse> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct TxnAcknowledgeTopicResponse {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<TxnAcknowledgePartitionResponse> = Vec::new();
    }
}

flexible_struct! {
    /// Outcome for a partition.
    pub struct TxnAcknowledgePartitionResponse {
        /// The partition.
        partition_index: i32 = 0;
        /// Error.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
    }
}

flexible_api!(TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse, key KEY, versions 0..=0);
