//! What the writer makes of the brokers' answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ProduceResponse;
use sharestream_base::ErrorKind;
use sharestream_base::ids::Offset;
use sharestream_wire::KafkaError;

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
        let mut outcomes = BTreeMap::new();
        for topic in &response.responses {
            for partition in &topic.partition_responses {
                outcomes.insert((topic.name.as_str().to_owned(), partition.index), partition);
            }
        }
        let mut result = Ok(());
        for (slot, base_sequence, bytes) in sent.batches {
            let name = &self.topics[self.slots[slot].topic].name;
            let outcome = outcomes.get(&(name.to_string(), self.slots[slot].partition.0));
            let one =
                match outcome {
                    Some(answer) => {
                        let message = answer.error_message.as_ref().map(|message| message.as_str());
                        self.judge_batch(
                            slot,
                            base_sequence,
                            bytes,
                            answer.error_code,
                            answer.base_offset,
                            message,
                        )
                    }
                    None => Err(self
                        .fail(Error::new(ErrorKind::Abort, format!("the answer leaves out topic '{name}'")))),
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
        code: i16,
        base_offset: i64,
        message: Option<&str>,
    ) -> Result<()> {
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
            return self.postpone(slot, &error);
        }
        Err(self.fail(error))
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
