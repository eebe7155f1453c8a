//! ShareFetch (78), versions 1 (Kafka 4.1) and 2 (Kafka 4.2): acquires records and may acknowledge others.
//!
//! Source: KIP-932; version 2 adds the acquire mode (KIP-1206) and renewal (KIP-1222).

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub use super::shared::{AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint};
use crate::codec::{flexible_api, flexible_struct};

flexible_struct! {
    /// Asks a leader for records and acknowledges records acquired before.
    pub struct ShareFetchRequest {
        /// The group.
        group_id: Option<StrBytes> = None;
        /// The member.
        member_id: Option<StrBytes> = Some(StrBytes::new());
        /// 0 opens a session, -1 closes it, else one more than in the request before.
        share_session_epoch: i32 = 0;
        /// Longest wait for `min_bytes`.
        max_wait_ms: i32 = 0;
        /// Bytes to wait for.
        min_bytes: i32 = 0;
        /// Most bytes to return; one batch may exceed it.
        max_bytes: i32 = i32::MAX;
        /// Most records to acquire; see `share_acquire_mode`.
        max_records: i32 = 0;
        /// Best number of records for a range of acquired records.
        batch_size: i32 = 0;
        /// 0 keeps whole batches and may exceed `max_records`, 1 never exceeds it.
        share_acquire_mode: i8 = 0, since 2;
        /// Whether acknowledgements of type 4 are here; then nothing is fetched.
        is_renew_ack: bool = false, since 2;
        /// What to fetch and acknowledge.
        topics: Vec<FetchTopic> = Vec::new();
        /// What to take out of the session.
        forgotten_topics_data: Vec<ForgottenTopic> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic to fetch.
    pub struct FetchTopic {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<FetchPartition> = Vec::new();
    }
}

flexible_struct! {
    /// A partition to fetch, with acknowledgements for it.
    pub struct FetchPartition {
        /// The partition.
        partition_index: i32 = 0;
        /// Acknowledgements, ascending.
        acknowledgement_batches: Vec<AcknowledgementBatch> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic to take out of the session.
    pub struct ForgottenTopic {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<i32> = Vec::new();
    }
}

flexible_struct! {
    /// Records and which of their offsets the member now holds.
    pub struct ShareFetchResponse {
        /// How long the client was or should be throttled.
        throttle_time_ms: i32 = 0;
        /// Error of the whole request.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
        /// How long the acquired records stay locked.
        acquisition_lock_timeout_ms: i32 = 0;
        /// Per topic.
        responses: Vec<ShareFetchableTopicResponse> = Vec::new();
        /// Addresses of the leaders that partitions name.
        node_endpoints: Vec<NodeEndpoint> = Vec::new();
    }
}

flexible_struct! {
    /// Partitions of a topic.
    pub struct ShareFetchableTopicResponse {
        /// The topic.
        topic_id: Uuid = Uuid::nil();
        /// Its partitions.
        partitions: Vec<PartitionData> = Vec::new();
    }
}

flexible_struct! {
    /// Records of a partition, the member's part of them, and what became of its acknowledgements.
    pub struct PartitionData {
        /// The partition.
        partition_index: i32 = 0;
        /// Error of the fetch.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
        /// Error of the acknowledgements.
        acknowledge_error_code: i16 = 0;
        /// Its text.
        acknowledge_error_message: Option<StrBytes> = None;
        /// The leader, when the request went to another node.
        current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch::default();
        /// Whole batches, zero copy; they may hold offsets that were not acquired.
        records: Option<Bytes> = None;
        /// The offsets that were acquired.
        acquired_records: Vec<AcquiredRecords> = Vec::new();
    }
}

flexible_struct! {
    /// Acquired offsets of equal delivery count.
    pub struct AcquiredRecords {
        /// First offset of the range.
        first_offset: i64 = 0;
        /// Last offset of the range, inclusive.
        last_offset: i64 = 0;
        /// How often the records were delivered, this time included.
        delivery_count: i16 = 0;
    }
}

flexible_api!(ShareFetchRequest, ShareFetchResponse, key 78, versions 1..=2);
