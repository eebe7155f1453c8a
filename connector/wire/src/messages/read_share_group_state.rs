//! ReadShareGroupState (84), version 10: private to our broker nodes. KIP-932's version 0, except that state
//! batches carry the owner of a staged acknowledgement (KIP-1289).

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub use super::shared::StateBatch;
use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Asks the share coordinator for the durable state of share partitions.
    pub struct ReadShareGroupStateRequest {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// Per topic.
        topics: Vec<ReadStateData> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct ReadStateData {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionData> = Vec::new();
    }
}

flexible_struct! {
    /// A partition to read.
    pub struct PartitionData {
        /// The partition.
        partition: i32 = 0;
        /// Leader epoch of the asking leader: fences older leaders.
        leader_epoch: i32 = 0;
    }
}

flexible_struct! {
    /// Durable state.
    pub struct ReadShareGroupStateResponse {
        /// Per topic.
        results: Vec<ReadStateResult> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct ReadStateResult {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionResult> = Vec::new();
    }
}

flexible_struct! {
    /// State of a partition.
    pub struct PartitionResult {
        /// The partition.
        partition: i32 = 0;
        /// Error.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
        /// Incarnation of the state.
        state_epoch: i32 = 0;
        /// Start offset, or -1 for not yet known.
        start_offset: i64 = 0;
        /// States from the start offset on, ascending.
        state_batches: Vec<StateBatch> = Vec::new();
    }
}

flexible_api!(ReadShareGroupStateRequest, ReadShareGroupStateResponse, key 84, versions 10..=10);
