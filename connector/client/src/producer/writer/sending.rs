//! Which batches go to which leader, and when.

use std::sync::Arc;

use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use sharestream_base::ErrorKind;
use sharestream_base::ids::NodeId;

use super::{BatchWriter, Sent, Slot, TopicSlots};
use crate::client::topic_name;
use crate::connection::Connection;
use crate::metadata::TopicInfo;
use crate::{Error, Result};

impl BatchWriter {
    /// Sends everything that may be sent now.
    pub(super) async fn send_ready(&mut self) -> Result<()> {
        let now = self.client.env().clock.now();
        for slot in &mut self.slots {
            if slot.retry_at.is_some_and(|at| at <= now) {
                slot.retry_at = None;
            }
        }
        self.refresh_stale().await?;
        self.postpone_leaderless()?;
        while let Some((node, slots)) = self.next_request() {
            if let Err(error) = self.send_to(node, &slots).await {
                for slot in slots {
                    self.postpone(slot, &error)?;
                }
            }
        }
        Ok(())
    }

    /// Partitions without a leader wait for one; their pauses make us look again.
    fn postpone_leaderless(&mut self) -> Result<()> {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let waits = slot.queue.ready().is_some() && slot.retry_at.is_none();
            let topic = &self.topics[slot.topic];
            if waits && topic.info.leader(slot.partition).is_none() {
                let context = format!("{}/{} has no leader", topic.name, slot.partition);
                self.postpone(index, &Error::new(ErrorKind::Retry, context))?;
            }
        }
        Ok(())
    }

    /// Looks topics up again where a broker or connection said that leaders moved, and where what we know is old.
    async fn refresh_stale(&mut self) -> Result<()> {
        let now = self.client.env().clock.now();
        let age_max = self.client.config().metadata_age_max;
        let is_due = |topic: &TopicSlots| topic.stale || now >= topic.asked_at + age_max;
        let due: Vec<usize> = (0..self.topics.len()).filter(|index| is_due(&self.topics[*index])).collect();
        if due.is_empty() {
            return Ok(());
        }
        let names: Vec<Arc<str>> = due.iter().map(|index| Arc::clone(&self.topics[*index].name)).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        match self.client.refresh_topics(&names).await {
            Ok(()) => {}
            // The partitions' own pauses bring us back here.
            Err(error) if error.is_retriable() => return Ok(()),
            Err(error) => return Err(self.fail(error)),
        }
        for index in due {
            let topic = &mut self.topics[index];
            (topic.stale, topic.asked_at) = (false, now);
            // Deleted topics answer for themselves: their batches fail when their time is up.
            let known = self.client.metadata().topic(&topic.name);
            if let Some(info) = known {
                self.adopt(index, info)?;
            }
        }
        Ok(())
    }

    /// Takes over what is known of a topic now: leaders, and partitions that were added.
    ///
    /// A topic that was deleted and created again is another topic: what this identity wrote to the first is gone.
    pub(super) fn adopt(&mut self, index: usize, info: Arc<TopicInfo>) -> Result<()> {
        let topic = &mut self.topics[index];
        let is_another = topic.info.topic_id != info.topic_id;
        let count = topic.slots.len().max(info.partitions.len());
        topic.slots.resize(count, None);
        topic.info = info;
        let is_written = |slot: &Slot| slot.topic == index && !slot.is_untouched();
        if is_another && self.slots.iter().any(is_written) {
            let transactional = self.identity.as_ref().is_some_and(|id| id.transactional_id.is_some());
            let kind = if transactional { ErrorKind::Abort } else { ErrorKind::InvalidInput };
            let context = format!(
                "topic '{}' was deleted and created again while it was written to; what was written to the first one \
                 is gone",
                self.topics[index].name
            );
            return Err(self.fail(Error::new(kind, context)));
        }
        if is_another {
            for slot in self.slots.iter_mut().filter(|slot| slot.topic == index) {
                slot.known_to = None;
            }
        }
        Ok(())
    }

    /// A leader that may get a request, and the slots to put into it. Changes nothing.
    fn next_request(&self) -> Option<(NodeId, Vec<usize>)> {
        let producer_id = self.identity.as_ref()?.producer_id;
        let mut chosen: Option<(NodeId, Vec<usize>)> = None;
        let mut bytes = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(batch) = slot.ready(producer_id) else { continue };
            let topic = &self.topics[slot.topic];
            let Some(leader) = topic.info.leader(slot.partition) else { continue };
            match &mut chosen {
                None => {
                    let in_flight = self.links.get(&leader).map_or(0, |link| link.in_flight);
                    if in_flight < self.config.requests_in_flight_max {
                        bytes = batch.bytes.len();
                        chosen = Some((leader, vec![index]));
                    }
                }
                Some((node, slots)) if *node == leader => {
                    bytes += batch.bytes.len();
                    if bytes > self.config.request_bytes_max {
                        break;
                    }
                    slots.push(index);
                }
                Some(_other_leader) => {}
            }
        }
        chosen
    }

    /// Sends one batch of each slot. On `Err` nothing was sent and nothing has changed.
    async fn send_to(&mut self, node: NodeId, slots: &[usize]) -> Result<()> {
        let open = self.links.get(&node).and_then(|link| link.connection.clone()).filter(Connection::is_open);
        let connection = match open {
            Some(connection) => connection,
            None => {
                let connection = self.client.open(node).await?;
                self.links.entry(node).or_default().connection = Some(connection.clone());
                connection
            }
        };
        let (request, batches) = self.request(slots);
        let mut pending = connection.send(&request).await?;
        for (slot, base_sequence, _bytes) in &batches {
            self.slots[*slot].queue.sent(*base_sequence);
        }
        self.links.entry(node).or_default().in_flight += 1;
        let sent = Sent { node, batches };
        self.answers.push(Box::pin(async move {
            let answer = pending.answer().await;
            (sent, answer)
        }));
        Ok(())
    }

    fn request(&self, slots: &[usize]) -> (ProduceRequest, Vec<(usize, i32, usize)>) {
        let mut batches = Vec::with_capacity(slots.len());
        let mut topics: Vec<(usize, Vec<PartitionProduceData>)> = Vec::new();
        for index in slots {
            let slot = &self.slots[*index];
            let Some(batch) = slot.queue.ready() else { continue };
            batches.push((*index, batch.base_sequence, batch.bytes.len()));
            let data = PartitionProduceData::default()
                .with_index(slot.partition.0)
                .with_records(Some(batch.bytes.clone()));
            match topics.iter_mut().find(|(topic, _)| *topic == slot.topic) {
                Some((_, partitions)) => partitions.push(data),
                None => topics.push((slot.topic, vec![data])),
            }
        }
        let timeout_ms = i32::try_from(self.client.config().request_timeout.as_millis()).unwrap_or(i32::MAX);
        let request = ProduceRequest::default()
            .with_transactional_id(
                self.identity.as_ref().and_then(|identity| identity.transactional_id.clone()),
            )
            .with_acks(-1)
            .with_timeout_ms(timeout_ms)
            .with_topic_data(
                topics
                    .into_iter()
                    .map(|(topic, partitions)| {
                        // The name up to version 12, the id from 13 on: then a topic that was created again refuses
                        // what was meant for the first.
                        TopicProduceData::default()
                            .with_name(topic_name(&self.topics[topic].name))
                            .with_topic_id(self.topics[topic].info.topic_id.0)
                            .with_partition_data(partitions)
                    })
                    .collect(),
            );
        (request, batches)
    }
}
