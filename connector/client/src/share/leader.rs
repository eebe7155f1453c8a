//! What the consumer keeps for each leader: session, connection, the request under way, decisions to send.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use sharestream_base::Instant;
use sharestream_base::ids::{NodeId, TopicId};
use sharestream_wire::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharestream_wire::messages::share_fetch::{
    FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest, ShareFetchResponse,
};

use super::acknowledge::{AcknowledgeType, AcknowledgementBatch, Decided};
use super::config::{AcquireMode, ShareConsumerConfig};
use super::membership_task::ShareGroupMetadata;
use super::session::{FetchPlan, PartitionKey, ShareSession};
use crate::Result;
use crate::backoff::Backoff;
use crate::connection::Connection;

/// One leader of assigned partitions.
#[derive(Debug, Default)]
pub(super) struct Leader {
    pub(super) session: ShareSession,
    pub(super) connection: Option<Connection>,
    /// A request is under way: the next one waits, since epochs must arrive in order.
    pub(super) busy: bool,
    /// That request carries acknowledgements.
    pub(super) acknowledging: bool,
    /// An answer with records waits for a poll: the next fetch waits, or locks would pile up here.
    pub(super) has_ready: bool,
    /// Partitions to fetch.
    pub(super) wanted: BTreeSet<PartitionKey>,
    /// Partitions that handed out records in this session: their locks go with it.
    pub(super) held: BTreeSet<PartitionKey>,
    /// Ordinary acknowledgements to send.
    pub(super) to_send: BTreeMap<PartitionKey, Decided>,
    pub(super) retry_at: Option<Instant>,
    pub(super) backoff: Option<Backoff>,
}

/// The acknowledgements of one request.
pub(super) type SentBatches = Vec<(PartitionKey, Vec<AcknowledgementBatch>)>;

/// What came of a request under way.
pub(super) enum Answer {
    Fetch { opening: bool, answer: Result<(ShareFetchResponse, Instant)> },
    Acknowledge(SentBatches, Result<ShareAcknowledgeResponse>),
}

/// An answer and whose it is.
pub(super) struct LeaderAnswer {
    pub(super) node: NodeId,
    pub(super) answer: Answer,
}

impl Leader {
    /// True when nothing may be sent before its pause is over.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| at > now)
    }

    /// True when there is something to fetch and room for the answer.
    pub(super) fn wants_fetch(&self) -> bool {
        !self.has_ready && !self.wanted.is_empty()
    }

    /// True when there are acknowledgements to send.
    pub(super) fn has_acknowledgements(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// The acknowledgements to send, by partition.
    pub(super) fn acknowledgements(&self) -> SentBatches {
        let batches = self.to_send.iter().map(|(key, decided)| (*key, decided.clone().take(|_| true)));
        batches.filter(|(_, batches)| !batches.is_empty()).collect()
    }

    /// Takes them: they cannot be sent any more.
    pub(super) fn take_acknowledgements(&mut self) -> SentBatches {
        let taken = self.acknowledgements();
        self.to_send.clear();
        taken
    }
}

/// The request for a planned fetch.
pub(super) fn fetch_request(
    plan: &FetchPlan,
    member: &ShareGroupMetadata,
    config: &ShareConsumerConfig,
    max_wait: Duration,
) -> ShareFetchRequest {
    let mut add: BTreeMap<TopicId, Vec<FetchPartition>> = BTreeMap::new();
    for (topic_id, index) in &plan.add {
        let partition = FetchPartition { partition_index: index.0, ..FetchPartition::default() };
        add.entry(*topic_id).or_default().push(partition);
    }
    let mut forget: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic_id, index) in &plan.forget {
        forget.entry(*topic_id).or_default().push(index.0);
    }
    ShareFetchRequest {
        group_id: Some(StrBytes::from_string(member.group_id.clone())),
        member_id: Some(StrBytes::from_string(member.member_id.clone())),
        share_session_epoch: plan.epoch,
        max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: 1,
        max_bytes: config.fetch_bytes_max,
        max_records: config.max_poll_records,
        batch_size: config.max_poll_records,
        share_acquire_mode: match config.acquire_mode {
            AcquireMode::BatchOptimized => 0,
            AcquireMode::RecordLimit => 1,
        },
        is_renew_ack: false,
        topics: add
            .into_iter()
            .map(|(topic_id, partitions)| FetchTopic { topic_id: topic_id.0, partitions })
            .collect(),
        forgotten_topics_data: forget
            .into_iter()
            .map(|(topic_id, partitions)| ForgottenTopic { topic_id: topic_id.0, partitions })
            .collect(),
    }
}

/// The request for acknowledgements, or for the end of the session.
pub(super) fn acknowledge_request(
    epoch: i32,
    member: &ShareGroupMetadata,
    batches: &SentBatches,
) -> ShareAcknowledgeRequest {
    let mut topics: BTreeMap<TopicId, Vec<AcknowledgePartition>> = BTreeMap::new();
    let mut is_renew_ack = false;
    for ((topic_id, index), batches) in batches {
        is_renew_ack |= batches.iter().any(|batch| batch.types.contains(&AcknowledgeType::Renew));
        topics.entry(*topic_id).or_default().push(AcknowledgePartition {
            partition_index: index.0,
            acknowledgement_batches: batches.iter().map(AcknowledgementBatch::to_wire).collect(),
        });
    }
    ShareAcknowledgeRequest {
        group_id: Some(StrBytes::from_string(member.group_id.clone())),
        member_id: Some(StrBytes::from_string(member.member_id.clone())),
        share_session_epoch: epoch,
        is_renew_ack,
        topics: topics
            .into_iter()
            .map(|(topic_id, partitions)| AcknowledgeTopic { topic_id: topic_id.0, partitions })
            .collect(),
    }
}
