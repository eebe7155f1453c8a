//! `ShareConsumer`: poll, decide, acknowledge (KIP-932, KIP-1222, KIP-1289).
//!
//! A leader gets one request at a time, fetch or acknowledgement, over a connection of its own. Answers are owned by
//! the consumer, not by the call that waits for them: a dropped `poll` loses nothing.

mod answers;
mod routing;
mod sending;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use sharestream_base::ids::{NodeId, Offset, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, Instant};
use sharestream_wire::KafkaError;

use super::acknowledge::{AckResult, AcknowledgeType, Decided, OffsetRange, ShareAcknowledgements};
use super::acquired::ShareRecords;
use super::config::ShareConsumerConfig;
use super::leader::{self, Leader, LeaderAnswer, SentBatches};
use super::lost::LostLocks;
use super::membership_task::{MembershipHandle, MembershipOptions, MetadataHandle, ShareGroupMetadata};
use super::session::{CLOSING, PartitionKey};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::connection::Connection;
use crate::{Error, Result};
use sending::Requests;

/// A member of a share group. One task owns it.
pub struct ShareConsumer {
    client: Client,
    config: ShareConsumerConfig,
    membership: MembershipHandle,
    /// What the group gave us when we last looked.
    assignment: BTreeSet<PartitionKey>,
    removed_count: u64,
    /// Leaders have to be looked up again, not before then.
    route_at: Option<Instant>,
    /// Grows while partitions stay without a leader that we know.
    route_backoff: Option<Backoff>,
    /// Topics whose leaders have to be asked for: what we know is old.
    stale: BTreeSet<TopicId>,
    leaders: BTreeMap<NodeId, Leader>,
    answers: FuturesUnordered<BoxFuture<'static, LeaderAnswer>>,
    /// Answers with records that no poll has returned yet: at most one per leader.
    ready: VecDeque<(NodeId, ShareRecords)>,
    /// Which leader handed out a partition's records: it gets the acknowledgements.
    holders: BTreeMap<PartitionKey, NodeId>,
    decided: BTreeMap<PartitionKey, Decided>,
    results: Vec<AckResult>,
    lost: Vec<LostLocks>,
    /// Some of them came since a poll last came back empty because of that.
    has_new_loss: bool,
    lock_timeout: Option<Duration>,
    /// Records are fetched one at a time; the leader that was asked last.
    singly: Option<NodeId>,
    is_singly: bool,
}

impl std::fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareConsumer")
            .field("group", &self.config.group)
            .field("leaders", &self.leaders.len())
            .finish_non_exhaustive()
    }
}

/// When acknowledgements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// In a request of their own.
    Now,
    /// With the next fetch.
    NextFetch,
}

impl ShareConsumer {
    /// Joins the group. Topics named must exist; with a pattern, those that match may come later. The group's settings
    /// decide where it starts.
    ///
    /// # Errors
    /// `InvalidInput` (a topic that does not exist, settings out of bounds, a cluster without share groups).
    ///
    /// # Cancel safety
    /// Cancel safe: the group forgets a member that was dropped.
    pub async fn join(client: Client, config: ShareConsumerConfig) -> Result<ShareConsumer> {
        config.validate()?;
        let level = client.features().share_version;
        if level < 1 {
            let context =
                "the cluster has no share groups (finalized share.version is 0; Kafka 4.2 or later has them)";
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        for topic in &config.topics {
            client.topic(topic).await?;
        }
        let options = MembershipOptions {
            group: config.group.clone(),
            subscription: config.subscription()?,
            rack: config.client_rack.clone(),
        };
        let membership = MembershipHandle::start(client.clone(), options);
        Ok(ShareConsumer {
            client,
            config,
            membership,
            assignment: BTreeSet::new(),
            removed_count: 0,
            route_at: None,
            route_backoff: None,
            stale: BTreeSet::new(),
            leaders: BTreeMap::new(),
            answers: FuturesUnordered::new(),
            ready: VecDeque::new(),
            holders: BTreeMap::new(),
            decided: BTreeMap::new(),
            results: Vec::new(),
            lost: Vec::new(),
            has_new_loss: false,
            lock_timeout: None,
            singly: None,
            is_singly: false,
        })
    }

    /// The next records of one leader; empty when there are none until `max_wait`, or at once when locks were lost since
    /// the last call (see [`ShareConsumer::lost`]): nothing more is acquired before the caller knows.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed, topic deleted), `Corrupt` (batches that cannot be read), `Retry` (no leader can be
    /// reached until the deadline).
    ///
    /// # Cancel safety
    /// Cancel safe: nothing acquired is lost, the next call returns it.
    pub async fn poll(&mut self) -> Result<ShareRecords> {
        self.poll_within(self.config.max_wait).await
    }

    /// As [`ShareConsumer::poll`], with fetches that wait at most `fetch_wait`. Shorter than `max_wait`, it returns as
    /// soon as every leader was asked and has nothing. To be used while records are held: their acknowledgement waits
    /// for the fetch that is under way, and where the lock window is full nothing else makes records available.
    ///
    /// # Errors
    /// Those of `poll`.
    ///
    /// # Cancel safety
    /// As `poll`.
    pub async fn poll_within(&mut self, fetch_wait: Duration) -> Result<ShareRecords> {
        let deadline = self.client.env().clock.now() + self.config.max_wait;
        loop {
            self.take_membership()?;
            self.notice_closed_connections();
            self.route().await?;
            if std::mem::take(&mut self.has_new_loss) {
                // Whoever must give up what it holds hears of it before more is acquired, at a delivery for each record.
                return Ok(ShareRecords::default());
            }
            if let Some((node, _)) = self.ready.front() {
                let node = *node;
                if self.config.prefetch && !self.is_singly {
                    // The next fetch of this leader runs while the application works on this answer.
                    self.leaders.entry(node).or_default().has_ready = false;
                    self.send_fetch_ahead(node).await?;
                }
                // Sending may have found the connection closed and dropped the answer with its locks.
                if let Some((node, records)) = self.ready.pop_front() {
                    self.leaders.entry(node).or_default().has_ready = false;
                    return Ok(records);
                }
            }
            if fetch_wait < self.config.max_wait && self.take_dryness() {
                return Ok(ShareRecords::default());
            }
            self.send_requests(Requests::All(fetch_wait)).await?;
            if self.client.env().clock.now() >= deadline {
                return Ok(ShareRecords::default());
            }
            self.wait(deadline).await?;
        }
    }

    /// True when every leader was asked since the last time, and had nothing; asked once.
    fn take_dryness(&mut self) -> bool {
        let was_asked = self.leaders.values().any(|leader| leader.came_back_empty);
        let is_dry = was_asked && self.leaders.values().all(Leader::is_dry);
        if is_dry {
            self.leaders.values_mut().for_each(|leader| leader.came_back_empty = false);
        }
        is_dry
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
        self.commit_acknowledgements_async();
        for leader in self.leaders.values_mut() {
            leader.separate(true);
        }
        self.drive_acknowledgements().await
    }

    /// Hands all decisions to the leaders as ordinary, final acknowledgements that go with the next fetch from
    /// each: they cost no request of their own, and their results come later, from
    /// [`ShareConsumer::acknowledgement_results`]. Renewals still go in a request of their own (KIP-1222), and
    /// [`ShareConsumer::commit_acknowledgements`] sends whatever still waits. Local.
    pub fn acknowledge_with_next_fetch(&mut self) {
        for (key, mut decided) in std::mem::take(&mut self.decided) {
            let mut renewed = Decided::default();
            for batch in decided.take(|kind| kind == AcknowledgeType::Renew) {
                renewed.set(batch.first, batch.last, AcknowledgeType::Renew);
            }
            self.hand_to_leader(key, decided, When::NextFetch);
            self.hand_to_leader(key, renewed, When::Now);
        }
    }

    /// Hands all decisions to the leaders as ordinary, final acknowledgements that the next poll sends, in requests of
    /// their own and before any fetch; what they release is there for the fetch behind them. Their results come later,
    /// from [`ShareConsumer::acknowledgement_results`]. Local; Kafka: `commitAsync`.
    pub fn commit_acknowledgements_async(&mut self) {
        for (key, decided) in std::mem::take(&mut self.decided) {
            self.hand_to_leader(key, decided, When::Now);
        }
    }

    /// True while acknowledgements wait for their request or its answer. Local.
    pub fn awaits_acknowledgement_results(&self) -> bool {
        self.acknowledging() || self.leaders.values().any(Leader::holds_acknowledgements)
    }

    /// Takes the results of acknowledgements that have come since the last call. Local.
    pub fn acknowledgement_results(&mut self) -> Vec<AckResult> {
        std::mem::take(&mut self.results)
    }

    /// Takes the decisions for a transaction. They are no longer the consumer's: it sends no acknowledgement for them.
    ///
    /// # Errors
    /// `InvalidInput` when a RELEASE or RENEW is among them: a transaction cannot carry it; nothing is taken.
    pub fn acknowledgements_for_transaction(&mut self) -> Result<ShareAcknowledgements> {
        let ordinary = |kind| match kind {
            AcknowledgeType::Release | AcknowledgeType::Renew => true,
            AcknowledgeType::Accept | AcknowledgeType::Reject | AcknowledgeType::Gap => false,
        };
        for ((topic_id, partition), decided) in &self.decided {
            if let Some((range, kind)) = decided.find(ordinary) {
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
        self.membership.view.borrow().metadata.clone()
    }

    /// The same, readable from another task.
    pub fn metadata_handle(&self) -> MetadataHandle {
        self.membership.metadata_handle()
    }

    /// Gives these offsets back to the group at once; it costs them the delivery that they had. What was decided on
    /// them is dropped, other decisions stay. Errors and cancel safety as [`ShareConsumer::commit_acknowledgements`].
    pub async fn release(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        ranges: &[OffsetRange],
    ) -> Result<Vec<AckResult>> {
        let key = (topic_id, partition);
        let mut released = Decided::default();
        for range in ranges {
            released.set(range.first, range.last, AcknowledgeType::Release);
            if let Some(decided) = self.decided.get_mut(&key) {
                decided.forget(*range);
            }
        }
        self.hand_to_leader(key, released, When::Now);
        self.drive_acknowledgements().await
    }

    /// Starts the locks of these offsets anew (KIP-1222). INVALID_RECORD_STATE in a result: the lock is lost, the epoch
    /// that holds the record cannot commit it; UNSUPPORTED_VERSION: the leader has no ShareAcknowledge 2.
    /// Errors and cancel safety as [`ShareConsumer::commit_acknowledgements`].
    pub async fn renew(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        ranges: &[OffsetRange],
    ) -> Result<Vec<AckResult>> {
        let mut renewed = Decided::default();
        for range in ranges {
            renewed.set(range.first, range.last, AcknowledgeType::Renew);
        }
        self.hand_to_leader((topic_id, partition), renewed, When::Now);
        self.drive_acknowledgements().await
    }

    /// As [`ShareConsumer::renew`] for many partitions, in one request to each leader. What was decided before and not
    /// sent is sent first, so that one refusal is not about both. Errors and cancel safety as
    /// [`ShareConsumer::commit_acknowledgements`].
    pub async fn renew_all(
        &mut self,
        ranges: &BTreeMap<(TopicId, PartitionIndex), Vec<OffsetRange>>,
    ) -> Result<Vec<AckResult>> {
        let before = self.commit_acknowledgements().await?;
        for (key, ranges) in ranges {
            let mut renewed = Decided::default();
            for range in ranges {
                renewed.set(range.first, range.last, AcknowledgeType::Renew);
            }
            self.hand_to_leader(*key, renewed, When::Now);
        }
        let renewed = self.drive_acknowledgements().await;
        // Whoever asks for results of ordinary acknowledgements finds them where they always are.
        self.results.extend(before);
        renewed
    }

    /// Takes what fetches have brought that no poll has returned. Sends nothing and does not wait; the locks of these
    /// records run already.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn take_fetched(&mut self) -> Result<Vec<ShareRecords>> {
        while let Some(Some(answer)) = self.answers.next().now_or_never() {
            self.take_answer(answer)?;
        }
        self.notice_closed_connections();
        self.leaders.values_mut().for_each(|leader| leader.has_ready = false);
        Ok(self.ready.drain(..).map(|(_, records)| records).collect())
    }

    /// Waits for the fetches that are under way, and takes what they bring; sends none. For whoever fetches no more, and
    /// must not leave behind what he cannot see.
    ///
    /// # Errors
    /// Those of `poll`.
    ///
    /// # Cancel safety
    /// Cancel safe: what came stays.
    pub async fn settle_fetches(&mut self) -> Result<Vec<ShareRecords>> {
        // A request ends with an answer or at its time-out.
        while self.leaders.values().any(|leader| leader.busy) {
            let deadline = self.client.env().clock.now() + self.client.config().request_timeout;
            self.wait(deadline).await?;
        }
        self.take_fetched()
    }

    /// From now on fetches ask for one record, one leader after another, and none is sent ahead: for records of which
    /// nobody must hold more than one. False: as configured. A leader without a record limit (ShareFetch 2, Kafka 4.2)
    /// may hand out the whole batch of the record. Local.
    pub fn fetch_singly(&mut self, singly: bool) {
        self.is_singly = singly;
    }

    /// Takes the notices of lost locks since the last call. Not empty: the epoch that holds such records cannot commit.
    pub fn lost(&mut self) -> Vec<LostLocks> {
        self.notice_closed_connections();
        std::mem::take(&mut self.lost)
    }

    /// How long acquired records stay locked, once a broker has said so.
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// Closes the sessions, which releases everything acquired and not staged, and leaves the group. Decisions that
    /// were not committed are dropped. Bounded by the request time-out; the group forgets the member in any case.
    ///
    /// # Errors
    /// `Retry` when the time was up.
    ///
    /// # Cancel safety
    /// Dropped, the group forgets the member after its session time-out.
    pub async fn close(self) -> Result<()> {
        let ShareConsumer { client, config, membership, mut leaders, .. } = self;
        let member = membership.view.borrow().metadata.clone();
        let leaving = async {
            let mut closing = FuturesUnordered::new();
            for leader in leaders.values_mut() {
                let Some(connection) = leader.connection.take().filter(Connection::is_open) else { continue };
                if !leader.session.close() {
                    continue;
                }
                let request = leader::acknowledge_request(CLOSING, &member, &SentBatches::new());
                // Behind the fetch that may be under way: the broker takes requests of a connection in order.
                closing.push(async move { connection.call(&request).await });
            }
            while let Some(closed) = closing.next().await {
                // The session ends with the connection in any case.
                if let Err(error) = closed {
                    tracing::debug!(%error, "share session did not close in order");
                }
            }
            membership.leave().await
        };
        match client.env().clock.timeout(client.config().request_timeout, leaving).await {
            Ok(result) => result,
            Err(_elapsed) => {
                let context = format!("leaving share group '{}' took too long", config.group);
                Err(Error::new(ErrorKind::Retry, context))
            }
        }
    }

    /// Sends what was handed to the leaders, and waits for its results.
    async fn drive_acknowledgements(&mut self) -> Result<Vec<AckResult>> {
        loop {
            self.notice_closed_connections();
            self.send_requests(Requests::Acknowledgements).await?;
            let under_way = self.leaders.values().any(Leader::has_acknowledgements);
            if !under_way && !self.acknowledging() {
                return Ok(std::mem::take(&mut self.results));
            }
            let deadline = self.client.env().clock.now() + self.client.config().request_timeout;
            self.wait(deadline).await?;
        }
    }

    /// True while a request with acknowledgements is under way.
    fn acknowledging(&self) -> bool {
        self.leaders.values().any(|leader| leader.acknowledging)
    }

    /// Queues acknowledgements at the leader that handed the records out; without it they fail at once.
    fn hand_to_leader(&mut self, key: PartitionKey, mut decided: Decided, when: When) {
        if decided.is_empty() {
            return;
        }
        let holder = self.holders.get(&key).and_then(|node| self.leaders.get_mut(node));
        match holder.filter(|leader| leader.session.is_open()) {
            Some(leader) => match when {
                When::Now => leader.queue(key, decided),
                When::NextFetch => leader.queue_with_fetch(key, decided),
            },
            None => self.results.push(AckResult {
                topic_id: key.0,
                partition: key.1,
                batches: decided.take(|_| true),
                error: Some(KafkaError::SHARE_SESSION_NOT_FOUND),
            }),
        }
    }
}
