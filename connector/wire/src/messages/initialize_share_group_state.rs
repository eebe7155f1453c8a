//! InitializeShareGroupState (83), version 10: private to our broker nodes; the fields of KIP-932's version 0.

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Creates or resets the state of share partitions.
    pub struct InitializeShareGroupStateRequest {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// Per topic.
        topics: Vec<InitializeStateData> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct InitializeStateData {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionData> = Vec::new();
    }
}

flexible_struct! {
    /// First state of a partition.
    pub struct PartitionData {
        /// The partition.
        partition: i32 = 0;
        /// Incarnation of the state.
        state_epoch: i32 = 0;
        /// Start offset, or -1 for not yet known.
        start_offset: i64 = 0;
    }
}

flexible_struct! {
    /// Outcome.
    pub struct InitializeShareGroupStateResponse {
        /// Per topic.
        results: Vec<InitializeStateResult> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct InitializeStateResult {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionResult> = Vec::new();
    }
}

flexible_struct! {
    /// Outcome for a partition.
    pub struct PartitionResult {
        /// The partition.
        partition: i32 = 0;
        /// Error.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
    }
}

flexible_api!(
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    key 83,
    versions 10..=10
);
