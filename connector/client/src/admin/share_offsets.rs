//! Start offsets of share groups (KIP-932).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::{AlterShareGroupOffsetsRequest, GroupId};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use sharestream_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, RequestGroup, RequestTopic,
};

use super::Admin;
use crate::client::topic_name;
use crate::coordinator::CoordinatorKey;
use crate::{Error, Result};

/// Where a share group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupOffset {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Its id.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Everything below is decided; `None` while the group has not read the partition.
    pub start_offset: Option<Offset>,
    /// Records not yet decided; `None` when the broker does not say (before Kafka 4.2).
    pub lag: Option<i64>,
    /// Leader epoch in which the state was last written.
    pub leader_epoch: LeaderEpoch,
}

/// A start offset to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOffset {
    /// Name of the topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The new start offset.
    pub start_offset: Offset,
}

fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

impl Admin {
    /// Where a share group stands, in these topics or in all that it has read when the list is empty.
    /// Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (no such group: code GROUP_ID_NOT_FOUND; not allowed), `Retry`.
    pub async fn describe_share_group_offsets(
        &self,
        group: &str,
        topics: &[&str],
    ) -> Result<Vec<ShareGroupOffset>> {
        let mut wanted = Vec::with_capacity(topics.len());
        for name in topics {
            let info = self.client.topic(name).await?;
            wanted.push(RequestTopic {
                topic_name: StrBytes::from_string((*name).to_owned()),
                partitions: info.partitions.iter().map(|partition| partition.index.0).collect(),
            });
        }
        let described = RequestGroup {
            group_id: StrBytes::from_string(group.to_owned()),
            topics: (!topics.is_empty()).then_some(wanted),
        };
        let request = DescribeShareGroupOffsetsRequest { groups: vec![described] };
        let key = CoordinatorKey::Group(group.to_owned());
        let mut backoff = self.client.backoff();
        loop {
            match self.describe_share_once(&key, group, &request).await {
                Ok(offsets) => return Ok(offsets),
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&key, &error);
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn describe_share_once(
        &self,
        key: &CoordinatorKey,
        group: &str,
        request: &DescribeShareGroupOffsetsRequest,
    ) -> Result<Vec<ShareGroupOffset>> {
        let response = self.client.coordinator(key).await?.call(request).await?;
        let answer = response.groups.first();
        let answer =
            answer.ok_or_else(|| Error::new(ErrorKind::Retry, format!("no answer about group '{group}'")))?;
        if answer.error_code != 0 {
            let message = answer.error_message.as_ref().map(|message| message.as_str());
            return Err(Error::from_answer(
                answer.error_code,
                message,
                format_args!("offsets of share group '{group}'"),
            ));
        }
        let mut offsets = Vec::new();
        for topic in &answer.topics {
            let name: Arc<str> = topic.topic_name.as_str().into();
            for partition in &topic.partitions {
                if partition.error_code != 0 {
                    let message = partition.error_message.as_ref().map(|message| message.as_str());
                    let what =
                        format!("offsets of share group '{group}' in {name}/{}", partition.partition_index);
                    return Err(Error::from_answer(partition.error_code, message, what));
                }
                offsets.push(ShareGroupOffset {
                    topic: Arc::clone(&name),
                    topic_id: TopicId(topic.topic_id),
                    partition: PartitionIndex(partition.partition_index),
                    start_offset: (partition.start_offset >= 0).then_some(Offset(partition.start_offset)),
                    lag: (partition.lag >= 0).then_some(partition.lag),
                    leader_epoch: LeaderEpoch(partition.leader_epoch),
                });
            }
        }
        Ok(offsets)
    }

    /// Moves start offsets of a share group that has no members.
    ///
    /// # Errors
    /// `InvalidInput` (the group has members, or an offset is refused), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, they may have been moved.
    pub async fn alter_share_group_offsets(&self, group: &str, offsets: &[StartOffset]) -> Result<()> {
        let mut topics: BTreeMap<&str, Vec<AlterShareGroupOffsetsRequestPartition>> = BTreeMap::new();
        for offset in offsets {
            topics.entry(&offset.topic).or_default().push(
                AlterShareGroupOffsetsRequestPartition::default()
                    .with_partition_index(offset.partition.0)
                    .with_start_offset(offset.start_offset.0),
            );
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| {
                AlterShareGroupOffsetsRequestTopic::default()
                    .with_topic_name(topic_name(name))
                    .with_partitions(partitions)
            })
            .collect();
        let request =
            AlterShareGroupOffsetsRequest::default().with_group_id(group_id(group)).with_topics(topics);
        let key = CoordinatorKey::Group(group.to_owned());
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.coordinator(&key).await?.call(&request).await?;
                let what = format!("move the offsets of share group '{group}'");
                if response.error_code != 0 {
                    let message = response.error_message.as_ref().map(|message| message.as_str());
                    return Err(Error::from_answer(response.error_code, message, what));
                }
                for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
                    if partition.error_code != 0 {
                        let message = partition.error_message.as_ref().map(|message| message.as_str());
                        return Err(Error::from_answer(partition.error_code, message, what));
                    }
                }
                Ok(())
            };
            match attempt.await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&key, &error);
                    backoff.wait(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
