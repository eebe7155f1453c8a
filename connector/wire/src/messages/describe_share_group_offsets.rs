//! DescribeShareGroupOffsets (90), versions 0 and 1: start offsets of share partitions; version 1 adds the lag
//! (KIP-1226).

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Asks for start offsets.
    pub struct DescribeShareGroupOffsetsRequest {
        /// The groups.
        groups: Vec<RequestGroup> = Vec::new();
    }
}

flexible_struct! {
    /// A group to describe.
    pub struct RequestGroup {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// Its topics, or null for all.
        topics: Option<Vec<RequestTopic>> = Some(Vec::new());
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct RequestTopic {
        /// The topic.
        topic_name: StrBytes = StrBytes::new();
        /// Its partitions.
        partitions: Vec<i32> = Vec::new();
    }
}

flexible_struct! {
    /// Start offsets.
    pub struct DescribeShareGroupOffsetsResponse {
        /// How long the client was or should be throttled.
        throttle_time_ms: i32 = 0;
        /// Per group.
        groups: Vec<ResponseGroup> = Vec::new();
    }
}

flexible_struct! {
    /// A group.
    pub struct ResponseGroup {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// Its topics.
        topics: Vec<ResponseTopic> = Vec::new();
        /// Error of the group.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct ResponseTopic {
        /// The topic.
        topic_name: StrBytes = StrBytes::new();
        /// Its id.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<ResponsePartition> = Vec::new();
    }
}

flexible_struct! {
    /// A share partition.
    pub struct ResponsePartition {
        /// The partition.
        partition_index: i32 = 0;
        /// Start offset, or -1 when there is none yet.
        start_offset: i64 = 0;
        /// Leader epoch of the partition.
        leader_epoch: i32 = 0;
        /// Records not yet delivered to completion, or -1 when unknown.
        lag: i64 = -1, ignorable_since 1;
        /// Error of the partition.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
    }
}

flexible_api!(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, key 90, versions 0..=1);
