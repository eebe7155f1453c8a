//! Keeps what is held near the delivery limit, and writes it down where the next start reads it (ADR 0019).

use std::sync::Arc;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, ShareRecords};
use sharestream_core::decision::SourcePartition;
use sharestream_core::source::Delivery;

use super::delivery::DeliveryLimit;
use super::locks::Locks;
use crate::Result;
use crate::error::bug;
use crate::outcome::{FORMAT_VERSION, NearLimitRange, NearLimitRecord, write_record};

/// Whose notes, and where they go.
#[derive(Clone, Debug)]
pub(super) struct NearLimitConfig {
    pub(super) client: Client,
    pub(super) outcome_topic: Arc<str>,
    pub(super) outcome_partition: PartitionIndex,
    pub(super) job: String,
    pub(super) instance: String,
    pub(super) subtask: u32,
    pub(super) group: String,
    pub(super) delivery_limit: DeliveryLimit,
}

/// The protected records that a source holds undecided.
#[derive(Debug)]
pub(super) struct NearLimit {
    config: NearLimitConfig,
    held: Vec<NearLimitRange>,
    /// What the note says that was written last.
    noted: Vec<NearLimitRange>,
}

impl NearLimit {
    pub(super) fn new(config: NearLimitConfig) -> Self {
        NearLimit { config, held: Vec::new(), noted: Vec::new() }
    }

    /// Looks for protected records in what a poll brought; true when there are some. Asked again about the same records,
    /// it changes nothing.
    pub(super) fn look_at(&mut self, records: &ShareRecords) -> bool {
        let limit = self.config.delivery_limit;
        let mut found = false;
        for partition in &records.partitions {
            for range in &partition.acquired {
                if !limit.treatment(range.delivery_count).is_protected() {
                    continue;
                }
                found = true;
                let held = NearLimitRange {
                    topic: partition.topic.to_string(),
                    topic_id: partition.topic_id,
                    partition: partition.partition,
                    first: range.first,
                    last: range.last,
                    delivery_count: u16::try_from(range.delivery_count).unwrap_or(0),
                };
                if !self.held.contains(&held) {
                    self.held.push(held);
                }
            }
        }
        found
    }

    /// Writes down which records must not be delivered again before somebody has looked, if that has changed. Before it
    /// is done none of them may be handed on. Cancel safe: done anew.
    pub(super) async fn write_down(&mut self) -> Result<()> {
        let limit = self.config.delivery_limit;
        let grave = |held: &&NearLimitRange| limit.must_not_be_delivered_again(held.delivery_count);
        let grave: Vec<NearLimitRange> = self.held.iter().filter(grave).cloned().collect();
        if grave == self.noted {
            return Ok(());
        }
        let NearLimitConfig { client, job, instance, subtask, group, .. } = &self.config;
        let record = NearLimitRecord {
            format_version: FORMAT_VERSION,
            job: job.clone(),
            instance: instance.clone(),
            subtask: *subtask,
            group: group.clone(),
            since_ms: client.env().clock.wall_ms(),
            held: grave.clone(),
        };
        let value = record.encode().map_err(|error| bug("near-limit record").with_source(error))?;
        let place = (&*self.config.outcome_topic, self.config.outcome_partition);
        write_record(client, place, (&record.key(), &value), "write down what is near the delivery limit")
            .await?;
        if let Some(first) = grave.first() {
            let NearLimitRange { topic, partition, first, delivery_count, .. } = first;
            let limit = limit.limit();
            tracing::warn!(
                topic, %partition, offset = %first, delivery_count, limit,
                "records are near their last delivery: decided now, and not delivered again if that fails"
            );
        }
        self.noted = grave;
        Ok(())
    }

    /// Forgets what is decided: `locks` no longer holds it.
    pub(super) fn forget_decided(&mut self, locks: &Locks) {
        self.held.retain(|held| locks.holds_any(held.source(), held.first, held.last));
    }

    /// True while the note says something that is no longer held.
    pub(super) fn is_note_old(&self) -> bool {
        !self.noted.is_empty() && !self.noted.iter().any(|noted| self.held.contains(noted))
    }

    /// True while nothing protected is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The one with the fewest deliveries left.
    pub(super) fn nearest(&self) -> Option<Delivery> {
        let limit = self.config.delivery_limit.limit();
        let deliveries = self.held.iter().map(|held| Delivery {
            partition: SourcePartition { topic_id: held.topic_id, partition: held.partition },
            offset: Offset(held.first.0),
            count: held.delivery_count,
            limit,
        });
        deliveries.min_by_key(Delivery::left)
    }
}
