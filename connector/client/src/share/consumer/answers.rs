//! What the consumer makes of the leaders' answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, HostPort, Instant};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeResponse;
use sharestream_wire::messages::share_fetch::ShareFetchResponse;

use super::ShareConsumer;
use super::routing::ROUTE_PAUSE;
use crate::client::Client;
use crate::error::{ErrorClass, classify};
use crate::security::Access;
use crate::share::acknowledge::AckResult;
use crate::share::acquired::ShareRecords;
use crate::share::leader::{Answer, LeaderAnswer, SentBatches};
use crate::share::lost::LostReason;
use crate::share::records::{PartitionError, read_fetch};
use crate::share::session::PartitionKey;
use crate::{Error, Result};

impl ShareConsumer {
    pub(super) fn take_answer(&mut self, LeaderAnswer { node, answer }: LeaderAnswer) -> Result<()> {
        if let Some(leader) = self.leaders.get_mut(&node) {
            leader.busy = false;
            leader.acknowledging = false;
        }
        match answer {
            Answer::Fetch { opening, sent, answer: Ok((response, arrived)) } => {
                self.take_acknowledged_by_fetch(sent, &response);
                self.take_fetch(node, opening, response, arrived)
            }
            Answer::Fetch { opening: _, sent, answer: Err(error) } => {
                // They may have been taken; the records that were not come back.
                self.results.extend(failed(sent, KafkaError::NETWORK_EXCEPTION));
                self.request_failed(node, error)
            }
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

    /// The results of acknowledgements that went with a fetch.
    fn take_acknowledged_by_fetch(&mut self, sent: SentBatches, response: &ShareFetchResponse) {
        if response.error_code != 0 {
            self.results.extend(failed(sent, KafkaError(response.error_code)));
            return;
        }
        let partitions = response.responses.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let key = (TopicId(topic.topic_id), PartitionIndex(partition.partition_index));
                (key, partition.acknowledge_error_code)
            })
        });
        let codes: BTreeMap<PartitionKey, i16> = partitions.collect();
        self.push_results(sent, |key| match codes.get(key) {
            Some(0) => None,
            Some(code) => Some(KafkaError(*code)),
            None => Some(KafkaError::UNKNOWN_SERVER_ERROR),
        });
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
            let error = self.client.refused(error, &Access::group("Read", &self.config.group));
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
            leader.came_back_empty = !found_some && answer.errors.is_empty();
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
                return Err(self.client.refused(error, &Access::topic("Read", &name(key.0))));
            }
            tracing::debug!(%error, "partition could not be fetched");
            if error.class() == ErrorClass::RefreshMetadata {
                self.leader_is_elsewhere(key, leader, ROUTE_PAUSE);
            }
            if !found_some {
                self.pause(node, error)?;
            }
        }
        Ok(())
    }

    /// A partition has another leader: the one that the answer names, or one to be asked for.
    fn leader_is_elsewhere(
        &mut self,
        key: PartitionKey,
        hint: Option<(NodeId, LeaderEpoch)>,
        pause: Duration,
    ) {
        let leader_of = |client: &Client| {
            let topic = client.metadata().topic_by_id(key.0);
            topic.and_then(|topic| topic.leader(key.1))
        };
        let before = leader_of(&self.client);
        if let Some((to, epoch)) = hint {
            self.client.leader_moved(key.0, key.1, to, epoch);
        }
        let now = self.client.env().clock.now();
        if hint.is_some() && leader_of(&self.client) != before {
            self.route_at = Some(now);
        } else {
            self.stale.insert(key.0);
            self.route_at = Some(now + pause);
        }
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
            match classify(response.error_code) {
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
        for endpoint in &response.node_endpoints {
            let port = u16::try_from(endpoint.port).unwrap_or(0);
            self.client.learn_node(NodeId(endpoint.node_id), HostPort::new(endpoint.host.as_str(), port));
        }
        let mut codes = BTreeMap::new();
        for topic in &response.responses {
            for partition in &topic.partitions {
                let key = (TopicId(topic.topic_id), PartitionIndex(partition.partition_index));
                codes.insert(key, partition.error_code);
                if classify(partition.error_code) == ErrorClass::RefreshMetadata {
                    let leader = &partition.current_leader;
                    let hint = (NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch));
                    let hint = (leader.leader_epoch > 0).then_some(hint);
                    self.leader_is_elsewhere(key, hint, Duration::ZERO);
                }
            }
        }
        self.push_results(sent, |key| match codes.get(key) {
            Some(0) => None,
            Some(code) => Some(KafkaError(*code)),
            None => Some(KafkaError::UNKNOWN_SERVER_ERROR),
        });
    }

    pub(super) fn push_results(
        &mut self,
        sent: SentBatches,
        error: impl Fn(&PartitionKey) -> Option<KafkaError>,
    ) {
        for (key, batches) in sent {
            let (topic_id, partition) = key;
            self.results.push(AckResult { topic_id, partition, batches, error: error(&key) });
        }
    }

    /// A request got no answer: the session is gone, the leader may be too.
    pub(super) fn request_failed(&mut self, node: NodeId, error: Error) -> Result<()> {
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

/// Acknowledgements that failed with one code.
pub(super) fn failed(sent: SentBatches, code: KafkaError) -> impl Iterator<Item = AckResult> {
    sent.into_iter().map(move |((topic_id, partition), batches)| AckResult {
        topic_id,
        partition,
        batches,
        error: Some(code),
    })
}
