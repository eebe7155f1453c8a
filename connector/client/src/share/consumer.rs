//! `ShareConsumer`: poll, decide, acknowledge (KIP-932, KIP-1222, KIP-1289).
//!
//! A leader gets one request at a time, fetch or acknowledgement, over a connection of its own. Answers are owned by
//! the consumer, not by the call that waits for them: a dropped `poll` loses nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use sharestream_base::ids::{NodeId, Offset, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, HostPort, Instant};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeResponse;
use sharestream_wire::messages::share_fetch::ShareFetchResponse;

use super::acknowledge::{AckResult, AcknowledgeType, Decided, OffsetRange, ShareAcknowledgements};
use super::acquired::ShareRecords;
use super::config::ShareConsumerConfig;
use super::leader::{self, Answer, Leader, LeaderAnswer, SentBatches};
use super::lost::{LostLocks, LostReason};
use super::membership_task::{MembershipHandle, MembershipOptions, MetadataHandle, ShareGroupMetadata};
use super::records::{PartitionError, read_fetch};
use super::session::{CLOSING, OPENING, PartitionKey};
use crate::client::Client;
use crate::connection::Connection;
use crate::error::ErrorClass;
use crate::{Error, Result};

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
    lock_timeout: Option<Duration>,
}

impl std::fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareConsumer")
            .field("group", &self.config.group)
            .field("leaders", &self.leaders.len())
            .finish_non_exhaustive()
    }
}

/// Pause before leaders are looked up again.
const ROUTE_PAUSE: Duration = Duration::from_millis(20);

impl ShareConsumer {
    /// Joins the group. Records come only from topics that exist; the group's settings decide where it starts.
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
            topics: config.topics.clone(),
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
            stale: BTreeSet::new(),
            leaders: BTreeMap::new(),
            answers: FuturesUnordered::new(),
            ready: VecDeque::new(),
            holders: BTreeMap::new(),
            decided: BTreeMap::new(),
            results: Vec::new(),
            lost: Vec::new(),
            lock_timeout: None,
        })
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
        let deadline = self.client.env().clock.now() + self.config.max_wait;
        loop {
            self.take_membership()?;
            self.notice_closed_connections();
            self.route().await?;
            if let Some((node, _)) = self.ready.front() {
                let node = *node;
                if self.config.prefetch {
                    // The next fetch of this leader runs while the application works on this answer.
                    self.leaders.entry(node).or_default().has_ready = false;
                    self.send_requests(Some(node)).await?;
                }
                // Sending may have found the connection closed and dropped the answer with its locks.
                if let Some((node, records)) = self.ready.pop_front() {
                    self.leaders.entry(node).or_default().has_ready = false;
                    return Ok(records);
                }
            }
            self.send_requests(None).await?;
            if self.client.env().clock.now() >= deadline {
                return Ok(ShareRecords::default());
            }
            self.wait(deadline).await?;
        }
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
        for (key, decided) in std::mem::take(&mut self.decided) {
            self.hand_to_leader(key, decided);
        }
        self.drive_acknowledgements().await
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
        self.hand_to_leader(key, released);
        self.drive_acknowledgements().await
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
        let mut renewed = Decided::default();
        for range in ranges {
            renewed.set(range.first, range.last, AcknowledgeType::Renew);
        }
        self.hand_to_leader((topic_id, partition), renewed);
        self.drive_acknowledgements().await
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
            self.send_requests(None).await?;
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
    fn hand_to_leader(&mut self, key: PartitionKey, mut decided: Decided) {
        if decided.is_empty() {
            return;
        }
        let holder = self.holders.get(&key).and_then(|node| self.leaders.get_mut(node));
        match holder.filter(|leader| leader.session.is_open()) {
            Some(leader) => {
                let to_send = leader.to_send.entry(key).or_default();
                for batch in decided.take(|_| true) {
                    for kind in batch.types {
                        to_send.set(batch.first, batch.last, kind);
                    }
                }
            }
            None => self.results.push(AckResult {
                topic_id: key.0,
                partition: key.1,
                batches: decided.take(|_| true),
                error: Some(KafkaError::SHARE_SESSION_NOT_FOUND),
            }),
        }
    }

    /// Takes over what the heartbeats brought.
    fn take_membership(&mut self) -> Result<()> {
        let view = self.membership.view.borrow_and_update();
        if let Some(failure) = &view.failure {
            return Err(Error::new(failure.kind(), failure.to_string()));
        }
        let removed = view.removed_count != self.removed_count;
        self.removed_count = view.removed_count;
        if view.assignment != self.assignment {
            self.assignment = view.assignment.clone();
            self.route_at = Some(self.client.env().clock.now());
        }
        drop(view);
        if removed {
            let nodes: Vec<NodeId> = self.leaders.keys().copied().collect();
            for node in nodes {
                self.end_session(node, LostReason::MemberRemoved, KafkaError::UNKNOWN_MEMBER_ID);
            }
        }
        Ok(())
    }

    /// A connection may end while nothing is under way on it.
    fn notice_closed_connections(&mut self) {
        let closed: Vec<NodeId> = self
            .leaders
            .iter()
            .filter(|(_, leader)| leader.connection.as_ref().is_some_and(|connection| !connection.is_open()))
            .map(|(node, _)| *node)
            .collect();
        for node in closed {
            self.end_session(node, LostReason::ConnectionLost, KafkaError::NETWORK_EXCEPTION);
        }
    }

    /// The session with a leader is over: its locks, its waiting answer and its unsent acknowledgements go with it.
    fn end_session(&mut self, node: NodeId, reason: LostReason, error: KafkaError) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        leader.session.close();
        leader.connection = None;
        leader.has_ready = false;
        let held = std::mem::take(&mut leader.held);
        let unsent = leader.take_acknowledgements();
        self.ready.retain(|(of, _)| *of != node);
        self.holders.retain(|_, holder| *holder != node);
        for key in held {
            tracing::warn!(broker = %node, partition = %key.1, %reason, "share locks lost");
            self.lost.push(LostLocks { topic_id: key.0, partition: key.1, reason });
        }
        self.push_results(unsent, |_| Some(error));
        self.route_at = Some(self.client.env().clock.now());
    }

    /// Assigns partitions to their leaders, when something changed.
    async fn route(&mut self) -> Result<()> {
        let now = self.client.env().clock.now();
        if self.route_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.refresh_stale(now).await?;
        let mut by_leader: BTreeMap<NodeId, BTreeSet<PartitionKey>> = BTreeMap::new();
        for key in &self.assignment {
            let leader = self.client.metadata().topic_by_id(key.0).and_then(|topic| topic.leader(key.1));
            match leader {
                Some(node) => {
                    by_leader.entry(node).or_default().insert(*key);
                }
                // A topic that was deleted is taken from the assignment by the group; until then we ask now and then.
                None => {
                    self.stale.insert(key.0);
                    self.route_at = Some(now + ROUTE_PAUSE);
                }
            }
        }
        for (node, leader) in &mut self.leaders {
            leader.wanted = by_leader.remove(node).unwrap_or_default();
        }
        for (node, wanted) in by_leader {
            self.leaders.insert(node, Leader { wanted, ..Leader::default() });
        }
        self.notice_moved_leaders();
        Ok(())
    }

    /// Asks for the leaders of topics whose leaders moved.
    async fn refresh_stale(&mut self, now: Instant) -> Result<()> {
        self.route_at = None;
        for topic_id in self.stale.clone() {
            match self.client.refresh_topic_id(topic_id).await {
                Ok(()) => {
                    self.stale.remove(&topic_id);
                }
                Err(error) if error.is_retriable() => {
                    tracing::debug!(%error, "metadata is not to be had");
                    self.route_at = Some(now + ROUTE_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Locks stay with the leader that gave them; where another leads now, they are lost.
    fn notice_moved_leaders(&mut self) {
        let mut moved = Vec::new();
        for (node, leader) in &mut self.leaders {
            let gone: Vec<PartitionKey> = leader
                .held
                .iter()
                .filter(|key| {
                    let topic = self.client.metadata().topic_by_id(key.0);
                    topic.and_then(|topic| topic.leader(key.1)).is_some_and(|leads| leads != *node)
                })
                .copied()
                .collect();
            for key in gone {
                leader.held.remove(&key);
                if let Some(mut unsent) = leader.to_send.remove(&key) {
                    moved.push((key, Some(unsent.take(|_| true))));
                } else {
                    moved.push((key, None));
                }
            }
        }
        for (key, unsent) in moved {
            self.holders.remove(&key);
            for (_, records) in &mut self.ready {
                records.partitions.retain(|partition| (partition.topic_id, partition.partition) != key);
            }
            let (topic_id, partition) = key;
            self.lost.push(LostLocks { topic_id, partition, reason: LostReason::LeaderMoved });
            let unsent = unsent.map(|batches| (key, batches));
            self.push_results(unsent.into_iter().collect(), |_| Some(KafkaError::NOT_LEADER_OR_FOLLOWER));
        }
    }

    /// Sends to every leader (or to one) what is due: acknowledgements first, else a fetch.
    async fn send_requests(&mut self, only: Option<NodeId>) -> Result<()> {
        let now = self.client.env().clock.now();
        let due: Vec<NodeId> = self
            .leaders
            .iter()
            .filter(|(node, leader)| {
                let fetches = !leader.has_ready && !leader.wanted.is_empty();
                only.is_none_or(|only| only == **node)
                    && !leader.busy
                    && !leader.is_paused(now)
                    && (leader.has_acknowledgements() || fetches)
            })
            .map(|(node, _)| *node)
            .collect();
        for node in due {
            if let Err(error) = self.send_to(node).await {
                self.request_failed(node, error)?;
            }
        }
        Ok(())
    }

    async fn send_to(&mut self, node: NodeId) -> Result<()> {
        let open = self.leaders.get(&node).and_then(|leader| leader.connection.clone());
        let connection = match open {
            Some(connection) => connection,
            None => {
                let opened = self.client.open(node).await?;
                self.leaders.entry(node).or_default().connection = Some(opened.clone());
                opened
            }
        };
        let member = self.share_group_metadata();
        let Some(leader) = self.leaders.get_mut(&node) else { return Ok(()) };
        // The session moves on only when the request is on its way: a dropped call has sent nothing.
        let mut session = leader.session.clone();
        let answer: BoxFuture<'static, LeaderAnswer> = if leader.has_acknowledgements() {
            let Some(epoch) = session.acknowledge() else {
                // The session ended before they were sent.
                let unsent = leader.take_acknowledgements();
                self.push_results(unsent, |_| Some(KafkaError::SHARE_SESSION_NOT_FOUND));
                return Ok(());
            };
            let sent = leader.acknowledgements();
            let request = leader::acknowledge_request(epoch, &member, &sent);
            let mut pending = connection.send(&request).await?;
            leader.to_send.clear();
            leader.acknowledging = true;
            Box::pin(async move {
                let answer = pending.answer().await;
                LeaderAnswer { node, answer: Answer::Acknowledge(sent, answer) }
            })
        } else {
            let plan = session.fetch(&leader.wanted);
            let request = leader::fetch_request(&plan, &member, &self.config, self.config.max_wait);
            let timeout = self.client.config().request_timeout + self.config.max_wait;
            let mut pending = connection.send_with(&request, timeout).await?;
            let opening = plan.epoch == OPENING;
            Box::pin(async move {
                let answer = pending.answer_with_arrival().await;
                LeaderAnswer { node, answer: Answer::Fetch { opening, answer } }
            })
        };
        leader.session = session;
        leader.busy = true;
        self.answers.push(answer);
        Ok(())
    }

    /// Waits for an answer, news of the membership, or the end of a pause, until `deadline`.
    async fn wait(&mut self, deadline: Instant) -> Result<()> {
        let now = self.client.env().clock.now();
        let pauses = self.leaders.values().filter_map(|leader| leader.retry_at);
        let wake_at = pauses.chain(self.route_at).filter(|at| *at > now).fold(deadline, Instant::min);
        let clock = &self.client.env().clock;
        let answer = tokio::select! {
            biased;
            Some(answer) = self.answers.next() => answer,
            _changed_or_ended = self.membership.view.changed() => return Ok(()),
            () = clock.sleep_until(wake_at) => return Ok(()),
        };
        self.take_answer(answer)
    }

    fn take_answer(&mut self, LeaderAnswer { node, answer }: LeaderAnswer) -> Result<()> {
        if let Some(leader) = self.leaders.get_mut(&node) {
            leader.busy = false;
            leader.acknowledging = false;
        }
        match answer {
            Answer::Fetch { opening, answer: Ok((response, arrived)) } => {
                self.take_fetch(node, opening, response, arrived)
            }
            Answer::Fetch { opening: _, answer: Err(error) } => self.request_failed(node, error),
            Answer::Acknowledge(sent, Ok(response)) => {
                self.take_acknowledge(node, sent, &response);
                Ok(())
            }
            Answer::Acknowledge(sent, Err(error)) => {
                // They may have been taken; the records that were not come back.
                self.push_results(sent, |_| Some(KafkaError::NETWORK_EXCEPTION));
                self.request_failed(node, error)
            }
        }
    }

    fn take_fetch(
        &mut self,
        node: NodeId,
        opening: bool,
        response: ShareFetchResponse,
        arrived: Instant,
    ) -> Result<()> {
        if response.error_code != 0 {
            let message = response.error_message.as_ref().map(|message| message.as_str());
            let what = format!("share fetch of group '{}' from broker {node}", self.config.group);
            let error = Error::from_answer(response.error_code, message, what);
            return self.fetch_refused(node, opening, error);
        }
        for endpoint in &response.node_endpoints {
            let port = u16::try_from(endpoint.port).unwrap_or(0);
            self.client.learn_node(NodeId(endpoint.node_id), HostPort::new(endpoint.host.as_str(), port));
        }
        let client = self.client.clone();
        let name = |id: TopicId| -> Arc<str> {
            let topic = client.metadata().topic_by_id(id);
            topic.map_or_else(|| id.to_string().into(), |topic| Arc::clone(&topic.name))
        };
        let answer = read_fetch(response, arrived, name)?;
        self.lock_timeout = answer.lock_timeout.or(self.lock_timeout);
        let found_some = !answer.partitions.is_empty();
        if let Some(leader) = self.leaders.get_mut(&node) {
            if found_some || answer.errors.is_empty() {
                (leader.retry_at, leader.backoff) = (None, None);
            }
            leader.has_ready |= found_some;
            for partition in &answer.partitions {
                let key = (partition.topic_id, partition.partition);
                leader.held.insert(key);
                self.holders.insert(key, node);
            }
        }
        if found_some {
            self.ready.push_back((node, ShareRecords { partitions: answer.partitions }));
        }
        for PartitionError { key, error, leader } in answer.errors {
            if !error.is_retriable() {
                return Err(error);
            }
            tracing::debug!(%error, "partition could not be fetched");
            if let Some((to, epoch)) = leader {
                self.client.leader_moved(key.0, key.1, to, epoch);
            }
            if error.class() == ErrorClass::RefreshMetadata {
                self.stale.insert(key.0);
                self.route_at = Some(self.client.env().clock.now() + ROUTE_PAUSE);
            }
            if !found_some {
                self.pause(node, error)?;
            }
        }
        Ok(())
    }

    fn fetch_refused(&mut self, node: NodeId, opening: bool, error: Error) -> Result<()> {
        match error.class() {
            ErrorClass::ResetSession | ErrorClass::Rejoin => {
                let code = error.code().unwrap_or(KafkaError::SHARE_SESSION_NOT_FOUND);
                self.end_session(node, LostReason::SessionLost, code);
                self.pause(node, error)
            }
            ErrorClass::Retry
            | ErrorClass::RefreshMetadata
            | ErrorClass::FindCoordinator
            | ErrorClass::Indeterminate => {
                if let Some(leader) = self.leaders.get_mut(&node).filter(|_| opening) {
                    // The session did not come about. Otherwise the epoch has moved on all the same.
                    leader.session.close();
                }
                self.pause(node, error)
            }
            ErrorClass::Success | ErrorClass::Abort | ErrorClass::Fenced | ErrorClass::Fatal(_) => Err(error),
        }
    }

    fn take_acknowledge(&mut self, node: NodeId, sent: SentBatches, response: &ShareAcknowledgeResponse) {
        if let Ok(ms @ 1..) = u64::try_from(response.acquisition_lock_timeout_ms) {
            self.lock_timeout = Some(Duration::from_millis(ms));
        }
        if response.error_code != 0 {
            let code = KafkaError(response.error_code);
            self.push_results(sent, |_| Some(code));
            match crate::error::classify(response.error_code) {
                ErrorClass::ResetSession | ErrorClass::Rejoin => {
                    self.end_session(node, LostReason::SessionLost, code);
                }
                ErrorClass::Success
                | ErrorClass::Retry
                | ErrorClass::RefreshMetadata
                | ErrorClass::FindCoordinator
                | ErrorClass::Abort
                | ErrorClass::Fenced
                | ErrorClass::Indeterminate
                | ErrorClass::Fatal(_) => {}
            }
            return;
        }
        let mut codes = BTreeMap::new();
        for topic in &response.responses {
            for partition in &topic.partitions {
                let key = (TopicId(topic.topic_id), PartitionIndex(partition.partition_index));
                codes.insert(key, partition.error_code);
                if crate::error::classify(partition.error_code) == ErrorClass::RefreshMetadata {
                    self.stale.insert(key.0);
                    self.route_at = Some(self.client.env().clock.now());
                }
            }
        }
        self.push_results(sent, |key| match codes.get(key) {
            Some(0) => None,
            Some(code) => Some(KafkaError(*code)),
            None => Some(KafkaError::UNKNOWN_SERVER_ERROR),
        });
    }

    fn push_results(&mut self, sent: SentBatches, error: impl Fn(&PartitionKey) -> Option<KafkaError>) {
        for (key, batches) in sent {
            let (topic_id, partition) = key;
            self.results.push(AckResult { topic_id, partition, batches, error: error(&key) });
        }
    }

    /// A request got no answer: the session is gone, the leader may be too.
    fn request_failed(&mut self, node: NodeId, error: Error) -> Result<()> {
        if !error.is_retriable() {
            return Err(error);
        }
        if let Some(leader) = self.leaders.get(&node) {
            self.stale.extend(leader.wanted.iter().map(|key| key.0));
        }
        self.end_session(node, LostReason::ConnectionLost, KafkaError::NETWORK_EXCEPTION);
        self.pause(node, error)
    }

    /// Nothing is sent to this leader for a while; the error comes back when its time is up.
    fn pause(&mut self, node: NodeId, error: Error) -> Result<()> {
        let now = self.client.env().clock.now();
        let client = &self.client;
        let Some(leader) = self.leaders.get_mut(&node) else { return Ok(()) };
        let backoff = leader.backoff.get_or_insert_with(|| client.backoff());
        match backoff.next_pause() {
            Some(pause) => {
                leader.retry_at = Some(now + pause);
                Ok(())
            }
            None => {
                leader.backoff = None;
                Err(error.with_kind(ErrorKind::Retry))
            }
        }
    }
}
