//! Makes the sources of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_client::{AcquireMode, Client, OffsetSpec, ShareConsumer, ShareConsumerConfig, TopicInfo};
use sharestream_core::commit::AckMode;
use sharestream_core::coordinates::RejectKind;
use sharestream_core::decision::SourcePartition;
use sharestream_core::source::{Source, SourceFactory};
use sharestream_core::watermark::Standing;

use super::delivery::DeliveryLimit;
use super::ledger::LedgerFilter;
use super::locks::Locks;
use super::near_limit::NearLimitConfig;
use super::reader::Reader;
use super::rows::RowsBuilder;
use super::share_source::{ShareSource, SourceParts};
use crate::Result;
use crate::attempt::Attempt;
use crate::commit::OutcomeTopic;
use crate::config::KafkaJobConfig;
use crate::error::{client_error, invalid_input};
use crate::formats::avro::registry::WriterSchemas;
use crate::group::{GroupSettings, RejectPlan};
use crate::ledger::{LedgerTail, start_offsets};
use crate::metadata_columns::TopicNames;

/// The source of a job: one share group, as many members as subtasks.
#[derive(Debug)]
pub(crate) struct ShareSourceFactory {
    pub(crate) client: Client,
    pub(crate) config: Arc<KafkaJobConfig>,
    pub(crate) topics: Vec<Arc<TopicInfo>>,
    /// The one of them that holds parked records.
    pub(crate) parking: Option<Arc<TopicInfo>>,
    pub(crate) group: GroupSettings,
    pub(crate) outcomes: OutcomeTopic,
    pub(crate) mode: AckMode,
    pub(crate) attempt: Arc<Attempt>,
    /// Where records name their schemas: one for all subtasks.
    pub(crate) schemas: Option<WriterSchemas>,
    /// Started by the commit protocol when it recovers, where it is needed.
    pub(crate) tail: LedgerTail,
}

impl ShareSourceFactory {
    fn delivery_limit(&self) -> DeliveryLimit {
        let policy = self.config.policy(RejectKind::DeliveryLimit);
        DeliveryLimit::new(self.group.delivery_count_limit, self.config.delivery_reserve, policy)
    }
}

#[async_trait]
impl SourceFactory for ShareSourceFactory {
    fn name(&self) -> &str {
        &self.config.group
    }

    fn schema(&self) -> SchemaRef {
        self.config.format.schema()
    }

    fn maker(&self) -> Option<usize> {
        // Sources know their attempt, and hold it: its address is nobody else's.
        Some(Arc::as_ptr(&self.attempt) as usize)
    }

    /// Start offsets as the group's coordinator has them durably, and high watermarks.
    async fn standing(&self) -> Result<Option<BTreeMap<SourcePartition, Standing>>> {
        let topics = self.topics.iter().map(|topic| (topic.topic_id, &*topic.name));
        let starts = start_offsets(&self.client, &self.config.group, topics).await?;
        let mut standing = BTreeMap::new();
        for topic in &self.topics {
            let place = format!("end offsets of topic {}", topic.name);
            let admin = self.client.admin();
            let ends = admin.list_offsets(&topic.name, &[], OffsetSpec::Latest).await;
            for (partition, end) in ends.map_err(client_error(place))? {
                let source = SourcePartition { topic_id: topic.topic_id, partition };
                if let Some(start_offset) = starts.get(&source).copied() {
                    standing.insert(source, Standing { start_offset, end_offset: Some(end) });
                }
            }
        }
        Ok(Some(standing))
    }

    async fn create(&self, subtask: usize) -> Result<Box<dyn Source>> {
        if self.config.format.names_schemas() && self.schemas.is_none() {
            return Err(invalid_input(
                "the source's records name their schemas, but the job has no schema registry",
            ));
        }
        let delivery_limit = self.delivery_limit();
        let mut consumer_config = ShareConsumerConfig::new(&self.config.group, self.config.acquired_topics());
        consumer_config.max_poll_records = self.config.max_poll_records;
        consumer_config.fetch_bytes_max = self.config.fetch_bytes_max;
        consumer_config.max_wait = self.config.fetch_wait;
        consumer_config.acquire_mode = AcquireMode::BatchOptimized;
        let mut consumer = ShareConsumer::join(self.client.clone(), consumer_config)
            .await
            .map_err(client_error(format!("join share group {}", self.config.group)))?;
        self.attempt.add_member(consumer.metadata_handle());
        // An earlier incarnation may have died of what it acquired: one record shows how often.
        consumer.fetch_singly(self.attempt.is_restarted() && delivery_limit.protects());
        let names = TopicNames::new(self.topics.iter().map(|topic| (&*topic.name, topic.topic_id)));
        let rows = RowsBuilder::new(&self.config.format, names);
        let plan = RejectPlan::new(&self.config, &self.group);
        let parking = self.parking.as_ref().map(|topic| (topic.topic_id, topic.name.clone()));
        let reader = Reader::new(rows, self.config.batch_rows_max, delivery_limit, plan)
            .with_parking(parking)
            .with_record_bytes_max(self.config.record_bytes_max)
            .with_decompressed_bytes_max(
                self.config.decompressed_bytes_max,
                self.config.decompressed_batch_bytes_max,
            );
        let decided = self.attempt.decided();
        let ledger = match self.tail.is_started() {
            true => Some(LedgerFilter::new(self.tail.clone())),
            false if decided.is_empty() => None,
            false => Some(LedgerFilter::fixed(decided)),
        };
        let parts = SourceParts {
            reader,
            topics: self.topics.clone(),
            locks_max: self.group.record_locks_max,
            locks: Locks::new(self.group.lock_duration, self.group.renews_locks),
            near_limit: NearLimitConfig {
                client: self.client.clone(),
                outcome_topic: self.outcomes.name.clone(),
                outcome_partition: self.outcomes.partition,
                job: self.config.job.clone(),
                instance: self.config.instance.clone(),
                subtask: u32::try_from(subtask).unwrap_or(u32::MAX),
                group: self.config.group.clone(),
                delivery_limit,
            },
            attempt: self.attempt.clone(),
            mode: self.mode,
            tail: self.tail.clone(),
            schemas: self.schemas.clone(),
            ledger,
            clock: self.client.env().clock.clone(),
        };
        Ok(Box::new(ShareSource::new(consumer, parts)))
    }
}
