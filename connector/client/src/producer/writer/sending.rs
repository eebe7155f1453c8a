//! Which batches go to which leader, and when.

use std::sync::Arc;

use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use sharestream_base::ErrorKind;
use sharestream_base::ids::NodeId;

use super::{BatchWriter, Sent};
use crate::client::topic_name;
use crate::connection::Connection;
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

    /// Looks the leaders up again where a broker or connection said that they moved.
    async fn refresh_stale(&mut self) -> Result<()> {
        let stale: Vec<Arc<str>> =
            self.topics.iter().filter(|topic| topic.stale).map(|topic| Arc::clone(&topic.name)).collect();
        if stale.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = stale.iter().map(|name| &**name).collect();
        match self.client.refresh_topics(&names).await {
            Ok(()) => {}
            // The partitions' own pauses bring us back here.
            Err(error) if error.is_retriable() => return Ok(()),
            Err(error) => return Err(self.fail(error)),
        }
        for topic in self.topics.iter_mut().filter(|topic| topic.stale) {
            topic.stale = false;
            match self.client.metadata().topic(&topic.name) {
                Some(info) if info.topic_id == topic.info.topic_id => topic.info = info,
                // Deleted, or deleted and created again: the batches answer for it when their time is up.
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// A leader that may get a request, and the slots to put into it. Changes nothing.
    fn next_request(&self) -> Option<(NodeId, Vec<usize>)> {
        let mut chosen: Option<(NodeId, Vec<usize>)> = None;
        let mut bytes = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(batch) = slot.queue.ready().filter(|_| slot.retry_at.is_none()) else { continue };
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
                        TopicProduceData::default()
                            .with_name(topic_name(&self.topics[topic].name))
                            .with_partition_data(partitions)
                    })
                    .collect(),
            );
        (request, batches)
    }
}
