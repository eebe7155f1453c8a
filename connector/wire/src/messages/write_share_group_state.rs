//! WriteShareGroupState (85), version 10: private to our broker nodes. KIP-932's version 0, except that state
//! batches carry the owner of a staged acknowledgement (KIP-1289).

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub use super::shared::StateBatch;
use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Makes state of share partitions durable.
    pub struct WriteShareGroupStateRequest {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// Per topic.
        topics: Vec<WriteStateData> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct WriteStateData {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionData> = Vec::new();
    }
}

flexible_struct! {
    /// Changed state of a partition.
    pub struct PartitionData {
        /// The partition.
        partition: i32 = 0;
        /// Incarnation of the state.
        state_epoch: i32 = 0;
        /// Leader epoch of the writing leader: fences older leaders.
        leader_epoch: i32 = 0;
        /// Start offset, or -1 for unchanged.
        start_offset: i64 = 0;
        /// Changed states, ascending.
        state_batches: Vec<StateBatch> = Vec::new();
    }
}

flexible_struct! {
    /// Outcome.
    pub struct WriteShareGroupStateResponse {
        /// Per topic.
        results: Vec<WriteStateResult> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct WriteStateResult {
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

flexible_api!(WriteShareGroupStateRequest, WriteShareGroupStateResponse, key 85, versions 10..=10);
