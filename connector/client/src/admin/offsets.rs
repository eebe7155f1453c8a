//! Start and end offsets of partitions.

use std::collections::BTreeMap;

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use sharestream_base::ErrorKind;
use sharestream_base::ids::{NodeId, Offset, PartitionIndex};

use super::Admin;
use crate::client::topic_name;
use crate::cluster::Purpose;
use crate::error::ErrorClass;
use crate::metadata::TopicInfo;
use crate::{Error, Result};

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first offset there is.
    Earliest,
    /// The high watermark: the offset after the last record, aborted and open transactions included.
    Latest,
    /// The last stable offset: where a read-committed reader ends.
    LatestStable,
    /// The first record stamped at this moment or later, Unix milliseconds; -1 when there is none.
    Timestamp(i64),
}

impl Admin {
    /// An offset of each of these partitions, or of all when the list is empty. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (no such topic or partition), `Retry` (no leader until the deadline).
    pub async fn list_offsets(
        &self,
        topic: &str,
        partitions: &[PartitionIndex],
        spec: OffsetSpec,
    ) -> Result<BTreeMap<PartitionIndex, Offset>> {
        let mut info = self.client.topic(topic).await?;
        if partitions.is_empty() || partitions.iter().any(|index| info.partition(*index).is_none()) {
            // All partitions means those of now, not those of when we last asked.
            info = self.client.fresh_topic(topic).await?;
        }
        let mut left: Vec<PartitionIndex> = match partitions {
            [] => info.partitions.iter().map(|partition| partition.index).collect(),
            partitions => partitions.to_vec(),
        };
        let mut found = BTreeMap::new();
        let mut backoff = self.client.backoff();
        loop {
            let mut by_leader: BTreeMap<NodeId, Vec<PartitionIndex>> = BTreeMap::new();
            let mut failure = None;
            for index in &left {
                let partition = info.partition(*index).ok_or_else(|| {
                    let count = info.partitions.len();
                    let context = format!("topic '{topic}' has {count} partitions, not a partition {index}");
                    Error::new(ErrorKind::InvalidInput, context)
                })?;
                match partition.leader {
                    Some(leader) => by_leader.entry(leader).or_default().push(*index),
                    None => {
                        failure = Some(Error::new(ErrorKind::Retry, format!("{topic}/{index} has no leader")))
                    }
                }
            }
            for (leader, indexes) in by_leader {
                if let Err(error) = self.list_at(&info, leader, &indexes, spec, &mut found).await {
                    failure = Some(error);
                }
            }
            left.retain(|index| !found.contains_key(index));
            let Some(error) = failure else { return Ok(found) };
            if !error.is_retriable() {
                return Err(error);
            }
            let moved = error.code().is_none() || error.class() == ErrorClass::RefreshMetadata;
            backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
            if moved {
                info = self.client.fresh_topic(topic).await?;
            }
        }
    }

    async fn list_at(
        &self,
        info: &TopicInfo,
        leader: NodeId,
        indexes: &[PartitionIndex],
        spec: OffsetSpec,
        found: &mut BTreeMap<PartitionIndex, Offset>,
    ) -> Result<()> {
        let (timestamp, isolation_level) = match spec {
            OffsetSpec::Earliest => (-2, 0),
            OffsetSpec::Latest => (-1, 0),
            OffsetSpec::LatestStable => (-1, 1),
            OffsetSpec::Timestamp(ms) => (ms.max(0), 0),
        };
        let partitions = indexes
            .iter()
            .map(|index| {
                ListOffsetsPartition::default()
                    .with_partition_index(index.0)
                    .with_current_leader_epoch(-1)
                    .with_timestamp(timestamp)
            })
            .collect();
        let wanted =
            ListOffsetsTopic::default().with_name(topic_name(&info.name)).with_partitions(partitions);
        let timeout_ms = i32::try_from(self.client.config().request_timeout.as_millis()).unwrap_or(i32::MAX);
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(isolation_level)
            .with_topics(vec![wanted])
            .with_timeout_ms(timeout_ms);
        let response = self.client.node(leader, Purpose::General).await?.call(&request).await?;
        let mut failure = Ok(());
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            match partition.error_code {
                0 => {
                    found.insert(PartitionIndex(partition.partition_index), Offset(partition.offset));
                }
                code => {
                    let what = format!("list offsets of {}/{}", info.name, partition.partition_index);
                    failure = Err(Error::from_code(code, what));
                }
            }
        }
        failure
    }
}
