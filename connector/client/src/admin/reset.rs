//! Where a share group is to start anew: the plan of a reset, and its execution (KIP-932: AlterShareGroupOffsets).

use std::collections::BTreeMap;
use std::sync::Arc;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_wire::KafkaError;

use super::{Admin, OffsetSpec, StartOffset};
use crate::{Error, Result};

/// Where a share group is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the first record there is.
    Earliest,
    /// Behind the last record.
    Latest,
    /// At the first record stamped at this moment or later, Unix milliseconds; behind the last record when
    /// there is none.
    Timestamp(i64),
    /// At this offset, in every partition; it must be one that the log has, or its end.
    Offset(Offset),
}

/// What a reset changes in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedReset {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// Where the group starts now; `None` when it has not read the partition.
    pub before: Option<Offset>,
    /// Where it is to start.
    pub after: Offset,
    /// First offset of the log.
    pub log_start: Offset,
    /// Offset behind the last record of the log.
    pub log_end: Offset,
}

impl PlannedReset {
    /// What is asked of the broker for it.
    pub fn start_offset(&self) -> StartOffset {
        StartOffset { topic: self.topic.to_string(), partition: self.partition, start_offset: self.after }
    }
}

impl Admin {
    /// Works out what a reset of a share group would change, in these topics or in all that it has read.
    /// Changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` (the group has members, there is no such group and no topic is named, an offset that the log does
    /// not have), `Retry`.
    ///
    /// # Cancel safety
    /// Cancel safe. Members may join after it: the coordinator checks once more when the reset is made.
    pub async fn plan_share_group_reset(
        &self,
        group: &str,
        topics: &[&str],
        to: ResetTo,
    ) -> Result<Vec<PlannedReset>> {
        let described = self.describe_share_group(group).await?;
        if let Some(described) = described.as_ref().filter(|described| !described.members.is_empty()) {
            let mut clients: Vec<&str> = described.members.iter().map(|member| &*member.client_id).collect();
            clients.dedup();
            let context = format!(
                "share group '{group}' has {} members (clients: {}); stop them before its offsets are reset",
                described.members.len(),
                clients.join(", ")
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let known = match self.describe_share_group_offsets(group, topics).await {
            Ok(known) => known,
            Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => Vec::new(),
            Err(error) => return Err(error),
        };
        let before: BTreeMap<(Arc<str>, PartitionIndex), Option<Offset>> =
            known.into_iter().map(|offset| ((offset.topic, offset.partition), offset.start_offset)).collect();
        let mut names: Vec<Arc<str>> = match topics {
            [] => before.keys().map(|(topic, _)| Arc::clone(topic)).collect(),
            topics => topics.iter().map(|topic| Arc::from(*topic)).collect(),
        };
        names.dedup();
        if names.is_empty() {
            let context = format!("share group '{group}' has read no topic; name the topics to reset");
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let mut plan = Vec::new();
        for name in names {
            plan.extend(self.plan_topic(name, &before, to).await?);
        }
        Ok(plan)
    }

    async fn plan_topic(
        &self,
        name: Arc<str>,
        before: &BTreeMap<(Arc<str>, PartitionIndex), Option<Offset>>,
        to: ResetTo,
    ) -> Result<Vec<PlannedReset>> {
        let starts = self.list_offsets(&name, &[], OffsetSpec::Earliest).await?;
        let ends = self.list_offsets(&name, &[], OffsetSpec::Latest).await?;
        let found = match to {
            ResetTo::Timestamp(ms) => self.list_offsets(&name, &[], OffsetSpec::Timestamp(ms)).await?,
            ResetTo::Earliest | ResetTo::Latest | ResetTo::Offset(_) => BTreeMap::new(),
        };
        let mut plan = Vec::new();
        for (partition, log_start) in starts {
            let log_end = ends.get(&partition).copied().unwrap_or(log_start);
            let after = match to {
                ResetTo::Earliest => log_start,
                ResetTo::Latest => log_end,
                // A broker answers -1 when no record is as late.
                ResetTo::Timestamp(_) => {
                    found.get(&partition).copied().filter(|found| found.0 >= 0).unwrap_or(log_end)
                }
                ResetTo::Offset(offset) if log_start <= offset && offset <= log_end => offset,
                ResetTo::Offset(offset) => {
                    let context = format!(
                        "{name}/{partition} has no offset {offset}; its log reaches from {log_start} to {log_end}"
                    );
                    return Err(Error::new(ErrorKind::InvalidInput, context));
                }
            };
            let before = before.get(&(Arc::clone(&name), partition)).copied().flatten();
            plan.push(PlannedReset {
                topic: Arc::clone(&name),
                partition,
                before,
                after,
                log_start,
                log_end,
            });
        }
        Ok(plan)
    }

    /// Makes a planned reset.
    ///
    /// # Errors
    /// `InvalidInput` (the group has members by now: code NON_EMPTY_GROUP), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, it may have been made; making it again does no harm while the group has no members.
    pub async fn reset_share_group(&self, group: &str, plan: &[PlannedReset]) -> Result<()> {
        let offsets: Vec<StartOffset> = plan.iter().map(PlannedReset::start_offset).collect();
        self.alter_share_group_offsets(group, &offsets).await
    }
}
