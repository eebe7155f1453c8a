//! Whether the group reads every record of its parking topic (ADR 0025).
//!
//! A copy that is committed before the group has a start offset in its partition would be passed over where the group begins
//! at the end of what it has never read, which is Kafka's default. So the job does not start before there is one.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, KafkaError, OffsetSpec, StartOffset, TopicInfo};

use crate::Result;
use crate::error::{client_error, invalid_input};
use crate::group::{ISOLATION_LEVEL, OFFSET_RESET, READ_COMMITTED};

/// Checks it, and gives the group start offsets where it has none. `settings`: what the brokers say of the group, if they
/// do. Errors: `InvalidInput` with what to do; `Retry`.
pub(crate) async fn check(
    client: &Client,
    group: &str,
    topic: &TopicInfo,
    settings: Option<&BTreeMap<String, String>>,
) -> Result<()> {
    let setting = |name: &str| settings.and_then(|settings| settings.get(name)).map(String::as_str);
    if let Some(level) = setting(ISOLATION_LEVEL).filter(|level| *level != READ_COMMITTED) {
        return Err(invalid_input(format!(
            "group {group} has {ISOLATION_LEVEL} = {level}: with a parking topic it must be {READ_COMMITTED}, or copies of \
             transactions that aborted would be processed as well"
        )));
    }
    if setting(OFFSET_RESET) == Some("earliest") {
        return Ok(());
    }
    let unread = unread_partitions(client, group, topic).await?;
    if unread.is_empty() {
        return Ok(());
    }
    let doing = || client_error(format!("first offsets of {}", topic.name));
    let firsts =
        client.admin().list_offsets(&topic.name, &unread, OffsetSpec::Earliest).await.map_err(doing())?;
    let start = |partition: &PartitionIndex| StartOffset {
        topic: topic.name.to_string(),
        partition: *partition,
        start_offset: firsts.get(partition).copied().unwrap_or(Offset(0)),
    };
    let starts: Vec<StartOffset> = unread.iter().map(start).collect();
    match client.admin().alter_share_group_offsets(group, &starts).await {
        Ok(()) => Ok(()),
        // Another replica may have done it meanwhile, and joined.
        Err(_) if unread_partitions(client, group, topic).await?.is_empty() => Ok(()),
        Err(error) => Err(invalid_input(format!(
            "group {group} has never read parking topic {}, begins at its end, and no start offset could be set ({error}): \
             stop what is in the group once, or set {OFFSET_RESET} = \"earliest\" for it, or run: sharestream group reset",
            topic.name
        ))),
    }
}

/// The partitions of which the group has no start offset.
async fn unread_partitions(client: &Client, group: &str, topic: &TopicInfo) -> Result<Vec<PartitionIndex>> {
    let described = match client.admin().describe_share_group_offsets(group, &[&topic.name]).await {
        Ok(described) => described,
        Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => Vec::new(),
        Err(error) => return Err(client_error(format!("offsets of group {group}"))(error)),
    };
    let read: BTreeSet<PartitionIndex> = described
        .iter()
        .filter(|offset| offset.start_offset.is_some())
        .map(|offset| offset.partition)
        .collect();
    let all = topic.partitions.iter().map(|partition| partition.index);
    Ok(all.filter(|partition| !read.contains(partition)).collect())
}
