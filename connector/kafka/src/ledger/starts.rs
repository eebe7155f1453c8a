//! Durable start offsets of a group.

use std::collections::BTreeMap;

use sharestream_base::ids::TopicId;
use sharestream_client::{Client, KafkaError};
use sharestream_core::decision::SourcePartition;

use super::floor::StartOffsets;
use crate::Result;
use crate::error::client_error;

/// Start offsets of the group in these topics, as its coordinator has them durably; partitions that it has not read are
/// left out, and so is a topic that was created again since. Cancel safe.
pub(crate) async fn start_offsets(
    client: &Client,
    group: &str,
    topics: impl Iterator<Item = (TopicId, &str)>,
) -> Result<StartOffsets> {
    let topics: BTreeMap<TopicId, &str> = topics.collect();
    let names: Vec<&str> = topics.values().copied().collect();
    let described = match client.admin().describe_share_group_offsets(group, &names).await {
        Ok(described) => described,
        // Nobody has joined yet.
        Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => Vec::new(),
        Err(error) => return Err(client_error(format!("start offsets of group {group}"))(error)),
    };
    let known = described.into_iter().filter(|offset| topics.contains_key(&offset.topic_id));
    let starts = known.filter_map(|offset| {
        let partition = SourcePartition { topic_id: offset.topic_id, partition: offset.partition };
        Some((partition, offset.start_offset?))
    });
    Ok(starts.collect())
}
