//! Which partitions are fetched from which leader, and what is lost when that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_base::ids::{NodeId, TopicId};
use sharestream_wire::KafkaError;

use super::ShareConsumer;
use crate::share::leader::Leader;
use crate::share::lost::{LostLocks, LostReason};
use crate::share::session::PartitionKey;
use crate::{Error, Result};

/// Pause before leaders are looked up again.
pub(super) const ROUTE_PAUSE: Duration = Duration::from_millis(20);

impl ShareConsumer {
    /// Takes over what the heartbeats brought.
    pub(super) fn take_membership(&mut self) -> Result<()> {
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
    pub(super) fn notice_closed_connections(&mut self) {
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
    pub(super) fn end_session(&mut self, node: NodeId, reason: LostReason, error: KafkaError) {
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
            self.lose(key, reason);
        }
        self.push_results(unsent, |_| Some(error));
        self.route_at = Some(self.client.env().clock.now());
    }

    /// Assigns partitions to their leaders, when something changed.
    pub(super) async fn route(&mut self) -> Result<()> {
        let now = self.client.env().clock.now();
        if self.route_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.refresh_stale(now).await?;
        let mut by_leader: BTreeMap<NodeId, BTreeSet<PartitionKey>> = BTreeMap::new();
        let mut leaderless = false;
        for key in &self.assignment {
            let leader = self.client.metadata().topic_by_id(key.0).and_then(|topic| topic.leader(key.1));
            match leader {
                Some(node) => {
                    by_leader.entry(node).or_default().insert(*key);
                }
                // A topic that was deleted is taken from the assignment by the group; until then we ask now and then.
                None => {
                    self.stale.insert(key.0);
                    leaderless = true;
                }
            }
        }
        if leaderless {
            self.route_at = Some(now + self.next_route_pause());
        } else if self.stale.is_empty() {
            self.route_backoff = None;
        }
        for (node, leader) in &mut self.leaders {
            leader.wanted = by_leader.remove(node).unwrap_or_default();
            if leader.wanted.is_empty() {
                // Nothing is asked of it any more: should it lead again, its time to recover begins anew.
                (leader.retry_at, leader.backoff) = (None, None);
            }
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
        if self.stale.is_empty() {
            return Ok(());
        }
        let stale: Vec<TopicId> = self.stale.iter().copied().collect();
        match self.client.refresh_topic_ids(&stale).await {
            Ok(()) => self.stale.clear(),
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "metadata is not to be had");
                self.route_at = Some(now + self.next_route_pause());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The pause before leaders are looked up again. There is no last one: while a partition has no leader the
    /// others are read, and only the group takes it away.
    fn next_route_pause(&mut self) -> Duration {
        let client = &self.client;
        let backoff = self.route_backoff.get_or_insert_with(|| client.backoff().starting_with(ROUTE_PAUSE));
        backoff.next_pause().unwrap_or(client.config().retry.max)
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
                leader.separate(true);
                let unsent = leader.to_send.remove(&key).map(|mut unsent| unsent.take(|_| true));
                moved.push((key, unsent));
            }
        }
        for (key, unsent) in moved {
            self.holders.remove(&key);
            for (_, records) in &mut self.ready {
                records.partitions.retain(|partition| (partition.topic_id, partition.partition) != key);
            }
            self.lose(key, LostReason::LeaderMoved);
            let unsent = unsent.map(|batches| (key, batches));
            self.push_results(unsent.into_iter().collect(), |_| Some(KafkaError::NOT_LEADER_OR_FOLLOWER));
        }
    }

    /// What is held of a partition is lost: whoever polls hears of it first.
    fn lose(&mut self, (topic_id, partition): PartitionKey, reason: LostReason) {
        self.lost.push(LostLocks { topic_id, partition, reason });
        self.has_new_loss = true;
    }
}
