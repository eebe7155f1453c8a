//! `PartitionReader`: reads a partition from any offset, at either isolation level, without a group (KIP-98).

mod committed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerId, TopicId};
use sharestream_base::{ErrorKind, HostPort};
use sharestream_wire::records::{self, RawBatch};

use crate::client::{Client, topic_name};
use crate::connection::Connection;
use crate::error::ErrorClass;
use crate::metadata::TopicInfo;
use crate::security::Access;
use crate::{Error, Result};

pub use committed::committed_records;

/// Which records a fetch returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Everything below the high watermark: open and aborted transactions too.
    ReadUncommitted,
    /// Everything below the last stable offset. Aborted records still come; [`committed_records`] leaves them out.
    ReadCommitted,
}

/// What one fetch returned.
///
/// It may end below its own high watermark: a broker reads no further than its limit of bytes and the end of a
/// log segment. Who needs everything up to now reads on until [`FetchedPartition::next_offset`] is the high
/// watermark of the same answer.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    /// Whole batches in order of offset, slices of the answer; the first may begin below the offset asked for. Control
    /// batches are among them, at either isolation level.
    pub batches: Vec<RawBatch>,
    /// The offset after the last record that is safe in the log.
    pub high_watermark: Offset,
    /// The first offset of the oldest open transaction, or the high watermark; told at either isolation level.
    pub last_stable_offset: Offset,
    /// Transactions with aborted records in the answer: producer id, and the first offset of theirs that is aborted.
    pub aborted: Vec<(ProducerId, Offset)>,
    /// The first offset there is.
    pub log_start: Offset,
}

impl FetchedPartition {
    /// Where to read on; `from` when nothing came.
    pub fn next_offset(&self, from: Offset) -> Offset {
        self.batches.last().map_or(from, |batch| from.max(Offset(batch.header.next_offset())))
    }
}

/// Reads partitions over connections of its own. One task owns it.
///
/// A topic keeps its identity for the life of a reader: one that was deleted and created again is another topic, in
/// which the offsets of the first mean nothing.
#[derive(Debug)]
pub struct PartitionReader {
    client: Client,
    connections: BTreeMap<NodeId, Connection>,
    /// What was first read under each name.
    read: BTreeMap<String, TopicId>,
}

impl PartitionReader {
    /// A reader that has not connected yet.
    pub fn new(client: Client) -> Self {
        PartitionReader { client, connections: BTreeMap::new(), read: BTreeMap::new() }
    }

    /// Reads from `from` on: at least one batch when there is one, about `max_bytes` of them, after at most
    /// `max_wait` when there is none.
    ///
    /// # Errors
    /// `InvalidInput` (no such topic or partition), `Corrupt` (the offset is below the log's start or above
    /// its end, the batches cannot be read, or the topic was deleted and created again), `Retry` (no leader
    /// until the deadline).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fetch(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        from: Offset,
        isolation: Isolation,
        max_bytes: i32,
        max_wait: Duration,
    ) -> Result<FetchedPartition> {
        let mut backoff = self.client.backoff();
        let mut info = self.client.topic(topic).await?;
        if info.partition(partition).is_none() {
            // It may have got more partitions since we last asked.
            info = self.client.fresh_topic(topic).await?;
        }
        loop {
            self.check_identity(&info)?;
            if info.partition(partition).is_none() {
                let context = format!(
                    "topic '{topic}' has {} partitions, not a partition {partition}",
                    info.partitions.len()
                );
                return Err(Error::new(ErrorKind::InvalidInput, context));
            }
            let request = request(&info, partition, from, isolation, max_bytes, max_wait);
            let error = match self.attempt(&info, partition, &request, max_wait).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) if error.is_retriable() => error,
                Err(error) => return Err(error.within(format_args!("read {topic}/{partition} from {from}"))),
            };
            let moved = error.code().is_none() || error.class() == ErrorClass::RefreshMetadata;
            // Reading changes nothing: a lost answer is as good as none.
            backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
            if moved {
                info = self.client.fresh_topic(topic).await?;
            }
        }
    }

    /// Notes the topic's id, or compares it with the one that was read before.
    fn check_identity(&mut self, info: &TopicInfo) -> Result<()> {
        match self.read.get(&*info.name) {
            Some(known) if *known == info.topic_id => Ok(()),
            Some(known) => {
                let context = format!(
                    "topic '{}' was deleted and created again while it was being read (its id was {known} and is {})",
                    info.name, info.topic_id
                );
                Err(Error::new(ErrorKind::Corrupt, context))
            }
            None => {
                self.read.insert(info.name.to_string(), info.topic_id);
                Ok(())
            }
        }
    }

    async fn attempt(
        &mut self,
        info: &TopicInfo,
        partition: PartitionIndex,
        request: &FetchRequest,
        max_wait: Duration,
    ) -> Result<FetchedPartition> {
        let leader = info.leader(partition).ok_or_else(|| {
            Error::new(ErrorKind::Retry, format!("{}/{partition} has no leader", info.name))
        })?;
        let connection = match self.connections.get(&leader).filter(|connection| connection.is_open()) {
            Some(connection) => connection.clone(),
            None => {
                let connection = self.client.open(leader).await?;
                self.connections.insert(leader, connection.clone());
                connection
            }
        };
        let timeout = self.client.config().request_timeout + max_wait;
        let response = connection.send_with(request, timeout).await?.answer().await?;
        if response.error_code != 0 {
            return Err(Error::from_code(response.error_code, format_args!("fetch from broker {leader}")));
        }
        for endpoint in &response.node_endpoints {
            let port = u16::try_from(endpoint.port).unwrap_or(0);
            self.client.learn_node(NodeId(endpoint.node_id.0), HostPort::new(endpoint.host.as_str(), port));
        }
        let data =
            response.responses.into_iter().next().and_then(|topic| topic.partitions.into_iter().next());
        let data = data.ok_or_else(|| Error::new(ErrorKind::Retry, "the answer to a fetch is empty"))?;
        if data.error_code != 0 {
            let leader = &data.current_leader;
            if leader.leader_id.0 >= 0 {
                let (to, epoch) = (NodeId(leader.leader_id.0), LeaderEpoch(leader.leader_epoch));
                self.client.leader_moved(info.topic_id, partition, to, epoch);
            }
            let error = Error::from_code(data.error_code, "fetch");
            return Err(self.client.refused(error, &Access::topic("Read", &info.name)));
        }
        read_partition(data)
    }
}

fn request(
    info: &Arc<TopicInfo>,
    partition: PartitionIndex,
    from: Offset,
    isolation: Isolation,
    max_bytes: i32,
    max_wait: Duration,
) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition.0)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(from.0)
        .with_last_fetched_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(max_bytes);
    // The name for versions up to 12, the id from 13 on.
    let topic = FetchTopic::default()
        .with_topic(topic_name(&info.name))
        .with_topic_id(info.topic_id.0)
        .with_partitions(vec![wanted]);
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_isolation_level(match isolation {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        })
        // Without a fetch session (KIP-227): one partition needs none.
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

fn read_partition(data: PartitionData) -> Result<FetchedPartition> {
    let blob = data.records.unwrap_or_default();
    let unreadable =
        |error| Error::new(ErrorKind::Corrupt, "fetched batches cannot be read").with_source(error);
    let batches = records::split(blob).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    for batch in &batches {
        batch.verify_crc().map_err(unreadable)?;
    }
    let aborted = data.aborted_transactions.unwrap_or_default();
    Ok(FetchedPartition {
        batches,
        high_watermark: Offset(data.high_watermark),
        last_stable_offset: Offset(data.last_stable_offset),
        aborted: aborted
            .iter()
            .map(|txn| (ProducerId(txn.producer_id.0), Offset(txn.first_offset)))
            .collect(),
        log_start: Offset(data.log_start_offset),
    })
}
