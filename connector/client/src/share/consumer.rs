//! `ShareConsumer`: poll, decide, acknowledge (KIP-932, KIP-1222, KIP-1289).

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

use super::acknowledge::{AckResult, AcknowledgeType, Decided, OffsetRange, ShareAcknowledgements};
use super::acquired::ShareRecords;
use super::membership_task::{MetadataHandle, ShareGroupMetadata};
use crate::client::Client;
use crate::{Error, Result};

/// How the broker cuts what it hands out (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AcquireMode {
    /// Whole batches; may exceed `max_poll_records`.
    #[default]
    BatchOptimized,
    /// Never more than `max_poll_records`; needs ShareFetch version 2.
    RecordLimit,
}

/// Settings of a share consumer.
#[derive(Clone, Debug)]
pub struct ShareConsumerConfig {
    /// The share group. Kafka: `group.id`. Since 0.1.
    pub group: String,
    /// Topics to subscribe to; at least one. Since 0.1.
    pub topics: Vec<String>,
    /// Rack of this consumer. Default none. Kafka: `client.rack`. Since 0.1.
    pub client_rack: Option<String>,
    /// Records acquired by one fetch from one leader. Default 10,000; at least 1. Kafka: `max.poll.records`. Since 0.1.
    pub max_poll_records: i32,
    /// Bytes of one fetch from one leader; one batch may exceed it. Default 8 MiB. Kafka: `fetch.max.bytes`. Since 0.1.
    pub fetch_bytes_max: i32,
    /// Longest wait of a poll. An acknowledgement to a leader waits for the fetch that is under way there, so this is
    /// also its longest delay. Default 100 ms. Kafka: `fetch.max.wait.ms`. Since 0.1.
    pub max_wait: Duration,
    /// How the broker cuts what it hands out. Default whole batches. Kafka: `share.acquire.mode`. Since 0.1.
    pub acquire_mode: AcquireMode,
    /// Fetch the next records while the last ones are processed: at most one answer per leader waits. Their locks run
    /// meanwhile. Default true. Since 0.1.
    pub prefetch: bool,
}

impl ShareConsumerConfig {
    /// The defaults for this group and these topics.
    pub fn new(group: impl Into<String>, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        ShareConsumerConfig {
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            client_rack: None,
            max_poll_records: 10_000,
            fetch_bytes_max: 8 * 1024 * 1024,
            max_wait: Duration::from_millis(100),
            acquire_mode: AcquireMode::default(),
            prefetch: true,
        }
    }
}

/// Why locks are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A member of a share group. One task owns it.
pub struct ShareConsumer {
    client: Client,
    config: ShareConsumerConfig,
    decided: BTreeMap<(TopicId, PartitionIndex), Decided>,
    lost: Vec<LostLocks>,
    metadata: MetadataHandle,
    lock_timeout: Option<Duration>,
}

impl std::fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareConsumer").field("group", &self.config.group).finish_non_exhaustive()
    }
}

impl ShareConsumer {
    /// Joins the group. Records come only from topics that exist; the group's settings decide where it starts.
    ///
    /// # Errors
    /// `InvalidInput` (a topic that does not exist, settings out of bounds, a cluster without share groups).
    ///
    /// # Cancel safety
    /// Cancel safe: the group forgets a member that was dropped.
    pub async fn join(client: Client, config: ShareConsumerConfig) -> Result<ShareConsumer> {
        let _ = (client, config);
        Err(unfinished())
    }

    /// The next records of one leader; empty when there are none until `max_wait`.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed, topic deleted), `Corrupt` (batches that cannot be read), `Retry` (no leader can be
    /// reached until the deadline).
    ///
    /// # Cancel safety
    /// Cancel safe: nothing acquired is lost, the next call returns it.
    pub async fn poll(&mut self) -> Result<ShareRecords> {
        Err(unfinished())
    }

    /// Decides on offsets `first..=last`, which must have been handed out by `poll`. Local; the later decision wins.
    pub fn acknowledge(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        first: Offset,
        last: Offset,
        kind: AcknowledgeType,
    ) {
        self.decided.entry((topic_id, partition)).or_default().set(first, last, kind);
    }

    /// Sends all decisions to the leaders as ordinary, final acknowledgements. A partition's own error is in its
    /// result, not an error of the call.
    ///
    /// # Errors
    /// Those of `poll`.
    ///
    /// # Cancel safety
    /// Cancel safe: what was sent stays sent, the next call returns its results.
    pub async fn commit_acknowledgements(&mut self) -> Result<Vec<AckResult>> {
        Err(unfinished())
    }

    /// Takes the decisions for a transaction. They are no longer the consumer's: it sends no acknowledgement for them.
    ///
    /// # Errors
    /// `InvalidInput` when a RELEASE or RENEW is among them: a transaction cannot carry it; nothing is taken.
    pub fn acknowledgements_for_transaction(&mut self) -> Result<ShareAcknowledgements> {
        let wanted = |kind| matches!(kind, AcknowledgeType::Release | AcknowledgeType::Renew);
        for ((topic_id, partition), decided) in &self.decided {
            if let Some((range, kind)) = decided.find(wanted) {
                let context = format!(
                    "{kind} of offsets {} to {} of {topic_id}/{partition} cannot be part of a transaction",
                    range.first, range.last
                );
                return Err(Error::new(ErrorKind::InvalidInput, context));
            }
        }
        let mut acknowledgements = ShareAcknowledgements::default();
        for (key, mut decided) in std::mem::take(&mut self.decided) {
            let batches = decided.take(|_| true);
            if !batches.is_empty() {
                acknowledgements.partitions.insert(key, batches);
            }
        }
        Ok(acknowledgements)
    }

    /// Group, member and live member epoch.
    pub fn share_group_metadata(&self) -> ShareGroupMetadata {
        self.metadata.current()
    }

    /// The same, readable from another task.
    pub fn metadata_handle(&self) -> MetadataHandle {
        self.metadata.clone()
    }

    /// Gives these offsets back to the group at once; it costs them the delivery that they had. Other decisions stay.
    /// Errors and cancel safety as [`ShareConsumer::commit_acknowledgements`].
    pub async fn release(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        ranges: &[OffsetRange],
    ) -> Result<Vec<AckResult>> {
        let _ = (topic_id, partition, ranges);
        Err(unfinished())
    }

    /// Starts the locks of these offsets anew (KIP-1222; needs ShareAcknowledge version 2). INVALID_RECORD_STATE in a
    /// result: the lock is lost, the epoch that holds the record cannot commit it. Errors and cancel safety as
    /// [`ShareConsumer::commit_acknowledgements`].
    pub async fn renew(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        ranges: &[OffsetRange],
    ) -> Result<Vec<AckResult>> {
        let _ = (topic_id, partition, ranges);
        Err(unfinished())
    }

    /// Takes the notices of lost locks since the last call. Not empty: the epoch that holds such records cannot commit.
    pub fn lost(&mut self) -> Vec<LostLocks> {
        std::mem::take(&mut self.lost)
    }

    /// How long acquired records stay locked, once a broker has said so.
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// Closes the sessions, which releases everything acquired and not staged, and leaves the group. Decisions that
    /// were not committed are dropped. Bounded by the request time-out; the group forgets the member in any case.
    ///
    /// # Cancel safety
    /// Dropped, the group forgets the member after its session time-out.
    pub async fn close(self) -> Result<()> {
        let _ = self.client;
        Err(unfinished())
    }
}

fn unfinished() -> Error {
    Error::new(ErrorKind::Bug, "the share consumer is not finished")
}
