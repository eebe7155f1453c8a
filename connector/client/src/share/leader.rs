//! What the consumer keeps for each leader: session, connection, the request under way, decisions to send.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use sharestream_base::Instant;
use sharestream_base::ids::{NodeId, TopicId};
use sharestream_wire::messages::AcknowledgementBatch as WireBatch;
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
    /// The last request was a fetch, and it found nothing.
    pub(super) came_back_empty: bool,
    /// Partitions to fetch.
    pub(super) wanted: BTreeSet<PartitionKey>,
    /// Partitions that handed out records in this session: their locks go with it.
    pub(super) held: BTreeSet<PartitionKey>,
    /// Ordinary acknowledgements to send, in a request of their own.
    pub(super) to_send: BTreeMap<PartitionKey, Decided>,
    /// Those that may wait for the next fetch and go with it.
    pub(super) with_fetch: BTreeMap<PartitionKey, Decided>,
    pub(super) retry_at: Option<Instant>,
    pub(super) backoff: Option<Backoff>,
}

/// The acknowledgements of one request.
pub(super) type SentBatches = Vec<(PartitionKey, Vec<AcknowledgementBatch>)>;

/// What came of a request under way.
pub(super) enum Answer {
    Fetch { opening: bool, sent: SentBatches, answer: Result<(ShareFetchResponse, Instant)> },
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

    /// True when there is nothing to get from it for now: neither a request under way nor acknowledgements that
    /// wait for the next fetch could bring records.
    pub(super) fn is_dry(&self) -> bool {
        self.wanted.is_empty() || (self.came_back_empty && !self.busy && !self.holds_acknowledgements())
    }

    /// True when there are acknowledgements to send, in whichever request.
    pub(super) fn holds_acknowledgements(&self) -> bool {
        !self.to_send.is_empty() || !self.with_fetch.is_empty()
    }

    /// True when there are acknowledgements to send in a request of their own.
    pub(super) fn has_acknowledgements(&self) -> bool {
        !self.to_send.is_empty() || self.with_fetch.keys().any(|key| !self.wanted.contains(key))
    }

    /// Queues acknowledgements for a request of their own; of two on one offset the later one counts.
    pub(super) fn queue(&mut self, key: PartitionKey, decided: Decided) {
        merge(self.to_send.entry(key).or_default(), decided);
    }

    /// Queues acknowledgements that may wait for the next fetch.
    pub(super) fn queue_with_fetch(&mut self, key: PartitionKey, decided: Decided) {
        merge(self.with_fetch.entry(key).or_default(), decided);
    }

    /// What was to go with a fetch goes in a request of its own: all of it, or what no fetch will carry.
    pub(super) fn separate(&mut self, all: bool) {
        let wanted = &self.wanted;
        let waiting = std::mem::take(&mut self.with_fetch);
        let (separate, stay) = waiting.into_iter().partition(|(key, _)| all || !wanted.contains(key));
        self.with_fetch = stay;
        let mut separate: BTreeMap<PartitionKey, Decided> = separate;
        for (key, later) in std::mem::take(&mut self.to_send) {
            merge(separate.entry(key).or_default(), later);
        }
        self.to_send = separate;
    }

    /// The acknowledgements to send in a request of their own, by partition.
    pub(super) fn acknowledgements(&self) -> SentBatches {
        batches(&self.to_send)
    }

    /// The acknowledgements that the next fetch carries.
    pub(super) fn fetch_acknowledgements(&self) -> SentBatches {
        batches(&self.with_fetch)
    }

    /// Takes them all: they cannot be sent any more.
    pub(super) fn take_acknowledgements(&mut self) -> SentBatches {
        self.separate(true);
        let taken = self.acknowledgements();
        self.to_send.clear();
        taken
    }

    /// Takes what is to be renewed: the leader's version of the protocol cannot.
    pub(super) fn take_renewals(&mut self) -> SentBatches {
        let mut taken = SentBatches::new();
        for (key, decided) in &mut self.to_send {
            let renewals = decided.take(|kind| kind == AcknowledgeType::Renew);
            if !renewals.is_empty() {
                taken.push((*key, renewals));
            }
        }
        self.to_send.retain(|_, decided| !decided.is_empty());
        taken
    }
}

fn merge(into: &mut Decided, mut later: Decided) {
    for batch in later.take(|_| true) {
        for kind in batch.types {
            into.set(batch.first, batch.last, kind);
        }
    }
}

fn batches(decided: &BTreeMap<PartitionKey, Decided>) -> SentBatches {
    let batches = decided.iter().map(|(key, decided)| (*key, decided.clone().take(|_| true)));
    batches.filter(|(_, batches)| !batches.is_empty()).collect()
}

/// The request for a planned fetch, with the acknowledgements that go with it.
pub(super) fn fetch_request(
    plan: &FetchPlan,
    acknowledgements: &SentBatches,
    member: &ShareGroupMetadata,
    config: &ShareConsumerConfig,
    max_wait: Duration,
) -> ShareFetchRequest {
    let mut named: BTreeMap<PartitionKey, Vec<WireBatch>> = BTreeMap::new();
    named.extend(plan.add.iter().map(|key| (*key, Vec::new())));
    named.extend(
        acknowledgements
            .iter()
            .map(|(key, batches)| (*key, batches.iter().map(AcknowledgementBatch::to_wire).collect())),
    );
    let mut add: BTreeMap<TopicId, Vec<FetchPartition>> = BTreeMap::new();
    for ((topic_id, index), acknowledgement_batches) in named {
        let partition = FetchPartition { partition_index: index.0, acknowledgement_batches };
        add.entry(topic_id).or_default().push(partition);
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
        min_bytes: config.fetch_bytes_min,
        max_bytes: config.fetch_bytes_max,
        max_records: config.max_poll_records,
        batch_size: config.batch_size.unwrap_or(config.max_poll_records),
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
