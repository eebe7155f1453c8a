//! `BatchWriter`: records into batches, batches to partition leaders, pipelined and in order.

mod answers;
mod sending;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use kafka_protocol::messages::{ProduceResponse, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{NodeId, Offset, PartitionIndex};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{ErrorKind, Instant};
use sharestream_wire::records::{BatchBuilder, BatchMeta, Compression};

use super::batch::{PartitionQueue, SealedBatch};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::connection::Connection;
use crate::metadata::TopicInfo;
use crate::transaction::ProducerIdentity;
use crate::{Error, Result};

/// Settings of a writer.
#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// Bytes at which a batch is finished and sent. Default 256 KiB; a longer record gets a batch of its own. At most
    /// the topic's `max.message.bytes`. Kafka: `batch.size`. Since 0.1.
    pub batch_bytes_max: usize,
    /// Codec of the batches. Default none. Kafka: `compression.type`. Since 0.1.
    pub compression: Compression,
    /// Bytes of finished batches that wait for their acknowledgement; beyond it `append` waits. Default 16 MiB.
    /// Kafka: `buffer.memory`. Since 0.1.
    pub in_flight_bytes_max: usize,
    /// Requests in flight to one broker. Default 5; from 1 to 5. Kafka: `max.in.flight.requests.per.connection`.
    /// Since 0.1.
    pub requests_in_flight_max: usize,
    /// Bytes of batches in one request. Default 8 MiB; one batch may exceed it. Kafka: `max.request.size`. Since 0.1.
    pub request_bytes_max: usize,
}

impl Default for WriterConfig {
    fn default() -> Self {
        WriterConfig {
            batch_bytes_max: 256 * 1024,
            compression: Compression::None,
            in_flight_bytes_max: 16 * 1024 * 1024,
            requests_in_flight_max: 5,
            request_bytes_max: 8 * 1024 * 1024,
        }
    }
}

/// A batch that the brokers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: PartitionIndex,
    /// Number of records.
    pub record_count: i32,
    /// Offset of the first record; `None` when the broker knows the batch only as a repeat and no longer where it is.
    pub base_offset: Option<Offset>,
    /// Offset of the last record, inclusive.
    pub last_offset: Option<Offset>,
}

/// Under which identity batches are written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    transactional_id: Option<TransactionalId>,
    producer_id: i64,
    producer_epoch: i16,
}

/// One partition written to.
#[derive(Debug)]
struct Slot {
    topic: usize,
    partition: PartitionIndex,
    builder: BatchBuilder,
    queue: PartitionQueue,
    /// Not before then is anything sent, after a failure.
    retry_at: Option<Instant>,
    backoff: Option<Backoff>,
    /// Times that the first batch of this transaction was refused as not part of it.
    unverified_count: u32,
    /// The producer id whose batches this partition is known to have taken, under whatever epoch.
    known_to: Option<i64>,
}

/// A leader asks the coordinator before it takes the first batch of a transaction; the marker of the transaction
/// before, if it comes in between, voids the answer. The same batch is then offered again, so often at most.
const VERIFY_ATTEMPTS: u32 = 5;

impl Slot {
    /// True when nothing was written under the present identity.
    fn is_untouched(&self) -> bool {
        self.builder.is_empty() && self.queue.next_sequence() == 0
    }

    /// The batch to send next, if one may be sent under this producer id.
    ///
    /// The first batch of a producer goes alone. A partition that knows nothing of a producer takes any sequence number
    /// from it: were the first batch refused (a leader that is not ready yet) and the second one, on its heels, taken,
    /// then the first could never follow.
    fn ready(&self, producer_id: i64) -> Option<&SealedBatch> {
        let alone = self.known_to != Some(producer_id) && self.queue.is_in_flight();
        self.queue.ready().filter(|_| !alone && self.retry_at.is_none())
    }

    /// Counts a refusal; true when the batch may be offered again.
    fn verify_again(&mut self) -> bool {
        self.unverified_count += 1;
        self.unverified_count <= VERIFY_ATTEMPTS
    }
}

#[derive(Debug)]
struct TopicSlots {
    name: Arc<str>,
    info: Arc<TopicInfo>,
    /// Index of the slot by partition.
    slots: Vec<Option<usize>>,
    /// The leaders are to be asked for before the next request.
    stale: bool,
    /// When it was last asked for; at `metadata_age_max` it is asked for again, since it may have got partitions.
    asked_at: Instant,
}

/// Our own connection to one leader.
#[derive(Debug, Default)]
struct Link {
    connection: Option<Connection>,
    in_flight: usize,
}

/// One request that was sent.
#[derive(Debug)]
struct Sent {
    node: NodeId,
    /// Slot, base sequence and bytes of each batch.
    batches: Vec<(usize, i32, usize)>,
}

/// Writes records to partitions that no other writer of the same identity writes to. One task owns it.
///
/// Batches go out when they are full, at [`BatchWriter::flush`], and when [`BatchWriter::send_buffered`] says so; there
/// is no lingering. Sequence numbers start at 0
/// for each identity. After an error the writer takes a new identity only.
pub struct BatchWriter {
    client: Client,
    config: WriterConfig,
    identity: Option<Identity>,
    /// The identity before, whose batches were dropped.
    given_up: Option<Identity>,
    topics: Vec<TopicSlots>,
    slots: Vec<Slot>,
    links: BTreeMap<NodeId, Link>,
    answers: FuturesUnordered<BoxFuture<'static, (Sent, Result<ProduceResponse>)>>,
    written: Vec<Written>,
    unacknowledged_bytes: usize,
    failed: bool,
}

impl std::fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchWriter")
            .field("identity", &self.identity)
            .field("partitions", &self.slots.len())
            .field("unacknowledged_bytes", &self.unacknowledged_bytes)
            .finish_non_exhaustive()
    }
}

/// Bytes that a record needs beside its key, value and headers, at most.
const RECORD_OVERHEAD_BYTES: usize = 40;

impl BatchWriter {
    /// A writer without an identity.
    pub fn new(client: Client, config: WriterConfig) -> Self {
        BatchWriter {
            client,
            config,
            identity: None,
            given_up: None,
            topics: Vec::new(),
            slots: Vec::new(),
            links: BTreeMap::new(),
            answers: FuturesUnordered::new(),
            written: Vec::new(),
            unacknowledged_bytes: 0,
            failed: false,
        }
    }

    /// Writes into the transaction of `identity` from now on. What an earlier identity has not flushed is dropped: its
    /// transaction is over, so the brokers refuse it anyway. The same identity again changes nothing; neither does one
    /// that was given up.
    pub fn set_identity(&mut self, identity: &ProducerIdentity) {
        self.take_identity(Identity {
            transactional_id: Some(TransactionalId(StrBytes::from_string(
                identity.transactional_id.to_string(),
            ))),
            producer_id: identity.producer_id.0,
            producer_epoch: identity.producer_epoch.0,
        });
    }

    /// Writes outside transactions, under a producer id of the writer's own.
    pub(super) fn set_idempotent_identity(&mut self, producer_id: i64, producer_epoch: i16) {
        self.take_identity(Identity { transactional_id: None, producer_id, producer_epoch });
    }

    fn take_identity(&mut self, identity: Identity) {
        // Sequence numbers start at 0 only once for each identity: a second start would make brokers take new batches
        // for repeats and drop them.
        let known = [self.identity.as_ref(), self.given_up.as_ref()].contains(&Some(&identity));
        if !known {
            self.reset();
            self.identity = Some(identity);
        }
    }

    /// Drops everything not acknowledged and gives the identity up: after an abort. Requests in flight may still
    /// arrive; the epoch that follows the abort makes the brokers refuse them.
    pub fn discard(&mut self) {
        self.reset();
        self.given_up = self.identity.take().or(self.given_up.take());
    }

    fn reset(&mut self) {
        self.failed = false;
        self.answers = FuturesUnordered::new();
        self.written.clear();
        self.unacknowledged_bytes = 0;
        for link in self.links.values_mut() {
            link.in_flight = 0;
        }
        for slot in &mut self.slots {
            slot.builder.clear();
            slot.queue = PartitionQueue::default();
            (slot.retry_at, slot.backoff, slot.unverified_count) = (None, None, 0);
        }
    }

    /// Number of partitions of a topic, for a partitioner. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` when the topic does not exist.
    pub async fn partition_count(&mut self, topic: &str) -> Result<i32> {
        let index = self.topic_index(topic).await?;
        let count = self.topics.get(index).map_or(0, |topic| topic.slots.len());
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Adds a record. Returns at once while its batch has room; else sends the batch, and waits while too many bytes
    /// are unacknowledged.
    ///
    /// # Errors
    /// `InvalidInput` (no such topic or partition, no identity, record too long), and those of `flush` for batches
    /// sent before.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the record may have been added; drop the transaction then.
    pub async fn append(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        let slot = match self.known_slot(topic, partition) {
            Some(slot) => slot,
            None => self.new_slot(topic, partition).await?,
        };
        let bytes = key.map_or(0, <[u8]>::len)
            + value.map_or(0, <[u8]>::len)
            + headers
                .iter()
                .map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 10)
                .sum::<usize>()
            + RECORD_OVERHEAD_BYTES;
        let builder = &self.slots[slot].builder;
        if !builder.is_empty() && builder.size_bytes() + bytes > self.config.batch_bytes_max {
            self.seal(slot)?;
            self.make_room().await?;
        }
        match self.slots[slot].builder.append(timestamp_ms, key, value, headers) {
            Ok(_index) => Ok(()),
            Err(error) => {
                let context = format!("record for {topic}/{partition} does not fit a batch");
                Err(Error::new(ErrorKind::InvalidInput, context).with_source(error))
            }
        }
    }

    /// Finishes and sends the batches that are begun, once they hold `bytes_min` together; a request has a price at the
    /// broker, whatever is in it. Does not wait for answers, but for room as [`BatchWriter::append`] does.
    ///
    /// # Errors
    /// Those of `flush`.
    ///
    /// # Cancel safety
    /// Cancel safe: what was finished and not sent goes with the next batches, at [`BatchWriter::flush`] at the latest.
    pub async fn send_buffered(&mut self, bytes_min: usize) -> Result<()> {
        let begun = self.slots.iter().filter(|slot| !slot.builder.is_empty());
        let bytes: usize = begun.map(|slot| slot.builder.size_bytes()).sum();
        if bytes < bytes_min.max(1) {
            return Ok(());
        }
        for slot in 0..self.slots.len() {
            self.seal(slot)?;
        }
        self.make_room().await
    }

    /// Sends what is not sent and waits until the brokers have everything; the batches written since the last flush.
    ///
    /// # Errors
    /// `Abort` (the transaction cannot take it, or time is up), `Fenced`, `InvalidInput` (a record too long for the
    /// topic, a deleted topic); outside transactions `Indeterminate` when a batch may or may not be there.
    ///
    /// # Cancel safety
    /// Cancel safe: call it again.
    pub async fn flush(&mut self) -> Result<Vec<Written>> {
        for slot in 0..self.slots.len() {
            self.seal(slot)?;
        }
        let transactional =
            self.identity.as_ref().is_some_and(|identity| identity.transactional_id.is_some());
        if is_planted(Bug::FlushDoesNotWait) && transactional {
            self.send_ready().await?;
        } else {
            self.drive(0).await?;
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// The slot of a partition that was written to before.
    #[inline]
    fn known_slot(&self, topic: &str, partition: PartitionIndex) -> Option<usize> {
        let topic = self.topics.iter().find(|known| *known.name == *topic)?;
        *topic.slots.get(usize::try_from(partition.0).ok()?)?
    }

    async fn new_slot(&mut self, topic: &str, partition: PartitionIndex) -> Result<usize> {
        let index = self.topic_index(topic).await?;
        let slot = self.slots.len();
        if usize::try_from(partition.0).is_ok_and(|at| at >= self.topics[index].slots.len()) {
            // It may have got more partitions since we last asked.
            let info = self.client.fresh_topic(topic).await?;
            self.adopt(index, info)?;
        }
        let place = usize::try_from(partition.0).ok().and_then(|at| self.topics[index].slots.get_mut(at));
        let Some(place) = place else {
            let count = self.topics[index].slots.len();
            let context = format!("topic '{topic}' has {count} partitions, not a partition {partition}");
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        *place = Some(slot);
        self.slots.push(Slot {
            topic: index,
            partition,
            builder: BatchBuilder::new(),
            queue: PartitionQueue::default(),
            retry_at: None,
            backoff: None,
            unverified_count: 0,
            known_to: None,
        });
        Ok(slot)
    }

    async fn topic_index(&mut self, name: &str) -> Result<usize> {
        if let Some(index) = self.topics.iter().position(|known| *known.name == *name) {
            return Ok(index);
        }
        let info = self.client.topic(name).await?;
        self.topics.push(TopicSlots {
            name: Arc::clone(&info.name),
            slots: vec![None; info.partitions.len()],
            info,
            stale: false,
            asked_at: self.client.env().clock.now(),
        });
        Ok(self.topics.len() - 1)
    }

    /// Finishes the batch of a slot, if it has records.
    fn seal(&mut self, slot: usize) -> Result<()> {
        if self.failed {
            let context = "the writer failed; it needs the identity of the next transaction";
            return Err(Error::new(ErrorKind::Abort, context));
        }
        let slot = &mut self.slots[slot];
        if slot.builder.is_empty() {
            return Ok(());
        }
        let identity = self.identity.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "the writer has no identity; begin a transaction first")
        })?;
        let record_count = i32::try_from(slot.builder.len()).unwrap_or(i32::MAX);
        let meta = BatchMeta {
            producer_id: identity.producer_id,
            producer_epoch: identity.producer_epoch,
            base_sequence: slot.queue.next_sequence(),
            transactional: identity.transactional_id.is_some(),
            compression: self.config.compression,
            ..BatchMeta::default()
        };
        let bytes = slot.builder.build(&meta).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "cannot build a record batch").with_source(error)
        })?;
        self.unacknowledged_bytes += bytes.len();
        let deadline = self.client.env().clock.now() + self.client.config().operation_timeout;
        slot.queue.seal(bytes, record_count, deadline);
        Ok(())
    }

    /// Sends what is ready and takes answers that are there, waiting only while too much is unacknowledged.
    async fn make_room(&mut self) -> Result<()> {
        self.send_ready().await?;
        while let Some(Some((sent, answer))) = futures::FutureExt::now_or_never(self.answers.next()) {
            self.judge(sent, answer)?;
        }
        if self.unacknowledged_bytes > self.config.in_flight_bytes_max {
            return self.drive(self.config.in_flight_bytes_max / 2).await;
        }
        Ok(())
    }

    /// Sends and takes answers until at most `bytes` are unacknowledged.
    async fn drive(&mut self, bytes: usize) -> Result<()> {
        // Every request has a time-out and every batch a deadline, so this one is never met; but a wait that
        // rests on our own count of bytes has to have a bound of its own.
        let config = self.client.config();
        let patience = config.operation_timeout + config.request_timeout * 2;
        let mut give_up_at = self.client.env().clock.now() + patience;
        while self.unacknowledged_bytes > bytes {
            self.send_ready().await?;
            let wake_at = self.slots.iter().filter_map(|slot| slot.retry_at).min();
            let clock = self.client.env().clock.clone();
            let retry = clock.sleep_until_any(wake_at);
            tokio::select! {
                biased;
                Some((sent, answer)) = self.answers.next() => {
                    self.judge(sent, answer)?;
                    give_up_at = clock.now() + patience;
                }
                () = retry => {}
                () = clock.sleep_until(give_up_at) => {
                    let context = format!("{} bytes wait for nothing", self.unacknowledged_bytes);
                    return Err(self.fail(Error::new(ErrorKind::Bug, context)));
                }
            }
        }
        Ok(())
    }
}
