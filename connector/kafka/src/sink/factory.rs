//! Makes the sinks of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_client::{BatchWriter, Client, TopicInfo, WriterConfig};
use sharestream_core::coordinates::RejectKind;
use sharestream_core::sink::{Router, Sink, SinkFactory};
use sharestream_wire::records::Compression;

use super::kafka_sink::KafkaSink;
use super::keys::Keys;
use super::owned_partitions;
use super::router::KeyRouter;
use super::writer::{OwnedTopic, OwnedTopics, RecordWriter};
use crate::Result;
use crate::attempt::Attempt;
use crate::config::{BadRecords, CompressionChoice, KafkaJobConfig};
use crate::error::invalid_input;
use crate::formats::RowEncoder;
use crate::group::{GroupSettings, RejectPlan};

/// The sink of a job: one output topic, one dead letter topic.
#[derive(Debug)]
pub(crate) struct KafkaSinkFactory {
    pub(crate) client: Client,
    pub(crate) config: Arc<KafkaJobConfig>,
    pub(crate) output: Arc<TopicInfo>,
    pub(crate) dead_letters: Option<Arc<TopicInfo>>,
    pub(crate) parking: Option<Arc<TopicInfo>>,
    pub(crate) bounds: BatchBounds,
    pub(crate) group: GroupSettings,
    pub(crate) attempt: Arc<Attempt>,
}

fn partition_count(topic: &TopicInfo) -> i32 {
    i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)
}

/// The topics of a sink, and what a batch of each may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchBounds(BTreeMap<Arc<str>, usize>);

impl BatchBounds {
    /// Asks for the bounds of `topics` (Kafka: `max.message.bytes`). One that nobody tells is none: then a record that is too
    /// large ends the job.
    pub(crate) async fn of(client: &Client, topics: &[&Arc<TopicInfo>]) -> Self {
        let mut bounds = BTreeMap::new();
        for topic in topics {
            match client.admin().describe_topic_config(&topic.name).await {
                Ok(settings) => {
                    let told = settings.get(MAX_MESSAGE_BYTES).and_then(|text| text.parse().ok());
                    bounds.extend(told.map(|bytes| (topic.name.clone(), bytes)));
                }
                Err(error) => tracing::warn!(
                    %error,
                    topic = %topic.name,
                    "the largest record that the topic takes is not known: a larger one ends the job"
                ),
            }
        }
        BatchBounds(bounds)
    }

    fn of_topic(&self, topic: &TopicInfo) -> usize {
        self.0.get(&topic.name).copied().unwrap_or(usize::MAX)
    }

    /// The smallest.
    fn least(&self) -> usize {
        self.0.values().copied().min().unwrap_or(usize::MAX)
    }
}

/// Kafka: largest batch that a topic takes.
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

impl KafkaSinkFactory {
    fn owned_topic(&self, topic: &TopicInfo, subtask: usize, subtask_count: usize) -> OwnedTopic {
        let count = partition_count(topic);
        let owned = owned_partitions(subtask, subtask_count, count);
        OwnedTopic::new(topic.name.clone(), count, owned, self.bounds.of_topic(topic))
    }
}

#[async_trait]
impl SinkFactory for KafkaSinkFactory {
    fn name(&self) -> &str {
        &self.config.sink.topic
    }

    fn check_schema(&self, input: SchemaRef) -> Result<()> {
        let mut faults = Vec::new();
        faults.extend(RowEncoder::new(&self.config.sink.format, &input).err());
        faults.extend(Keys::check(&self.config.sink.key, &input).err());
        if faults.is_empty() {
            return Ok(());
        }
        Err(invalid_input(format!("sink {}: {}", self.config.sink.topic, faults.join("; "))))
    }

    fn gives_back(&self) -> bool {
        RejectKind::ALL.into_iter().any(|kind| self.config.policy(kind) == BadRecords::Release)
    }

    fn parks(&self) -> bool {
        self.parking.is_some()
    }

    async fn create(&self, subtask: usize, subtask_count: usize) -> Result<Box<dyn Sink>> {
        let config = &self.config.sink;
        let compression = match config.compression {
            CompressionChoice::None => Compression::None,
            CompressionChoice::Gzip => Compression::Gzip,
            CompressionChoice::Snappy => Compression::Snappy,
            CompressionChoice::Lz4 => Compression::Lz4,
            CompressionChoice::Zstd => Compression::Zstd,
        };
        let writer_config = WriterConfig {
            // Batches of small records fit as well.
            batch_bytes_max: config.batch_bytes_max.min(self.bounds.least()),
            in_flight_bytes_max: config.in_flight_bytes_max,
            compression,
            ..WriterConfig::default()
        };
        let plan = RejectPlan::new(&self.config, &self.group);
        let keeps_letters =
            RejectKind::ALL.into_iter().any(|kind| plan.policy(kind) == BadRecords::DeadLetter);
        let dead_letters = self
            .dead_letters
            .as_ref()
            .filter(|_| keeps_letters)
            .map(|topic| self.owned_topic(topic, subtask, subtask_count));
        let parking = self.parking.as_ref().map(|topic| self.owned_topic(topic, subtask, subtask_count));
        for (what, topic) in [("dead letter", &dead_letters), ("parking", &parking)] {
            let Some(topic) = topic.as_ref().filter(|topic| topic.owned.is_empty()) else { continue };
            // Two writers on one partition would spoil each other's sequence numbers.
            return Err(invalid_input(format!(
                "{what} topic {} has {} partitions, but the sink has {subtask_count} subtasks: each needs a \
                 partition of its own; add partitions or lower the parallelism",
                topic.name, topic.partition_count
            )));
        }
        let record_writer = RecordWriter::new(
            BatchWriter::new(self.client.clone(), writer_config),
            compression,
            OwnedTopics {
                output: self.owned_topic(&self.output, subtask, subtask_count),
                dead_letters,
                parking,
            },
            config.key.clone(),
            format!("{}/{}", self.config.job, self.config.instance),
        );
        let sink = KafkaSink::new(
            self.attempt.clone(),
            self.client.env().clock.clone(),
            record_writer,
            config.format.clone(),
            plan,
        );
        Ok(Box::new(sink))
    }

    fn router(&self, subtask_count: usize) -> Result<Box<dyn Router>> {
        let router =
            KeyRouter::new(self.config.sink.key.clone(), partition_count(&self.output), subtask_count);
        Ok(Box::new(router))
    }
}
