//! What the writer makes of the brokers' answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::produce_response::{LeaderIdAndEpoch, PartitionProduceResponse};
use sharestream_base::ids::{LeaderEpoch, NodeId, Offset};
use sharestream_base::{ErrorKind, HostPort};
use sharestream_wire::KafkaError;
use uuid::Uuid;

use super::{BatchWriter, Sent, Written};
use crate::error::ErrorClass;
use crate::security::Access;
use crate::{Error, Result};

impl BatchWriter {
    /// Takes one answer.
    pub(super) fn judge(&mut self, sent: Sent, answer: Result<ProduceResponse>) -> Result<()> {
        if let Some(link) = self.links.get_mut(&sent.node) {
            link.in_flight = link.in_flight.saturating_sub(1);
        }
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                // Sequence numbers make the repeat harmless, whether the broker has the batches or not.
                let mut result = Ok(());
                for (slot, base_sequence, _bytes) in sent.batches {
                    self.slots[slot].queue.failed(base_sequence);
                    result = result.and(self.postpone(slot, &error));
                }
                return result;
            }
        };
        for endpoint in &response.node_endpoints {
            let port = u16::try_from(endpoint.port).unwrap_or(0);
            self.client.learn_node(NodeId(endpoint.node_id.0), HostPort::new(endpoint.host.as_str(), port));
        }
        // Topics answer by name up to version 12 and by id from 13 on.
        let mut outcomes = BTreeMap::new();
        for topic in &response.responses {
            for partition in &topic.partition_responses {
                outcomes.insert((topic.topic_id, topic.name.as_str(), partition.index), partition);
            }
        }
        let mut result = Ok(());
        for (slot, base_sequence, bytes) in sent.batches {
            let topic = &self.topics[self.slots[slot].topic];
            let (id, index) = (topic.info.topic_id.0, self.slots[slot].partition.0);
            let by_name = outcomes.get(&(Uuid::nil(), &*topic.name, index));
            let one = match by_name.or_else(|| outcomes.get(&(id, "", index))) {
                Some(answer) => self.judge_batch(slot, base_sequence, bytes, answer),
                None => {
                    let context = format!("the answer leaves out topic '{}'", topic.name);
                    Err(self.fail(Error::new(ErrorKind::Abort, context)))
                }
            };
            result = result.and(one);
        }
        result
    }

    fn judge_batch(
        &mut self,
        slot: usize,
        base_sequence: i32,
        bytes: usize,
        answer: &PartitionProduceResponse,
    ) -> Result<()> {
        let (code, base_offset) = (answer.error_code, answer.base_offset);
        let message = answer.error_message.as_ref().map(|message| message.as_str());
        let topic = Arc::clone(&self.topics[self.slots[slot].topic].name);
        let partition = self.slots[slot].partition;
        let error = Error::from_answer(code, message, format_args!("write to {topic}/{partition}"));
        let error = self.client.refused(error, &Access::topic("Write", &topic));
        let class = error.class();
        if class == ErrorClass::Success {
            if let Some(record_count) = self.slots[slot].queue.acknowledged(base_sequence) {
                let first = (base_offset >= 0).then_some(Offset(base_offset));
                let last = first.map(|first| first.plus(i64::from(record_count) - 1));
                let written =
                    Written { topic, partition, record_count, base_offset: first, last_offset: last };
                self.written.push(written);
            }
            self.unacknowledged_bytes = self.unacknowledged_bytes.saturating_sub(bytes);
            (self.slots[slot].retry_at, self.slots[slot].backoff) = (None, None);
            self.slots[slot].known_to = self.identity.as_ref().map(|identity| identity.producer_id);
            return Ok(());
        }
        let oldest = self.slots[slot].queue.failed(base_sequence);
        if code == KafkaError::INVALID_TXN_STATE.0 && oldest && self.slots[slot].verify_again() {
            let context = format!("write to {topic}/{partition}, the first of a transaction");
            let again = Error::from_code(KafkaError::CONCURRENT_TRANSACTIONS.0, context);
            return self.postpone(slot, &again);
        }
        // What follows a batch that is being repeated fails with it, and closes with it.
        let follows_a_failure = !oldest && follows_from_failure(code);
        if class.is_retriable() || follows_a_failure {
            self.postpone(slot, &error)?;
            self.take_leader_hint(slot, &answer.current_leader);
            return Ok(());
        }
        Err(self.fail(error))
    }

    /// A leader that names its successor spares us the question.
    fn take_leader_hint(&mut self, slot: usize, leader: &LeaderIdAndEpoch) {
        if leader.leader_id.0 < 0 {
            return;
        }
        let (to, epoch) = (NodeId(leader.leader_id.0), LeaderEpoch(leader.leader_epoch));
        let topic = &mut self.topics[self.slots[slot].topic];
        self.client.leader_moved(topic.info.topic_id, self.slots[slot].partition, to, epoch);
        let known = self.client.metadata().topic_by_id(topic.info.topic_id);
        if let Some(info) = known.filter(|info| info.leader(self.slots[slot].partition) == Some(to)) {
            (topic.info, topic.stale) = (info, false);
        }
    }

    /// Pauses a partition before its batches are sent again.
    pub(super) fn postpone(&mut self, slot: usize, error: &Error) -> Result<()> {
        if !error.is_retriable()
            && error.code().is_none_or(|code| code != KafkaError::OUT_OF_ORDER_SEQUENCE_NUMBER)
        {
            let again = Error::new(error.kind(), error.to_string());
            return Err(self.fail(again));
        }
        let now = self.client.env().clock.now();
        let concurrent = error.code() == Some(KafkaError::CONCURRENT_TRANSACTIONS);
        if error.code().is_none() || error.class() == ErrorClass::RefreshMetadata {
            let topic = self.slots[slot].topic;
            self.topics[topic].stale = true;
        }
        let deadline = self.slots[slot].queue.oldest().map_or(now, |batch| batch.deadline);
        let client = &self.client;
        let backoff = self.slots[slot].backoff.get_or_insert_with(|| {
            let backoff = client.backoff_until(deadline);
            // The markers of the transaction before are a round trip away.
            if concurrent { backoff.starting_with(Duration::from_millis(1)) } else { backoff }
        });
        match backoff.next_pause() {
            Some(pause) => {
                self.slots[slot].retry_at = Some(now + pause);
                Ok(())
            }
            None => {
                let transactional = self.identity.as_ref().is_some_and(|id| id.transactional_id.is_some());
                // In a transaction the marker decides, so giving up is safe; outside one the batch may be there.
                let kind = if transactional { ErrorKind::Abort } else { ErrorKind::Indeterminate };
                let context = format!("gave up writing: {error}");
                Err(self.fail(Error::new(kind, context)))
            }
        }
    }

    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.failed = true;
        error
    }
}

/// Codes that a batch may get because the one before it failed: a hole in the sequence, a transaction not begun.
fn follows_from_failure(code: i16) -> bool {
    [KafkaError::OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError::INVALID_TXN_STATE].contains(&KafkaError(code))
}
