//! A topic with its copies, and what may be done with it.

use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use sharestream_base::ErrorKind;
use sharestream_base::ids::TopicId;
use sharestream_wire::KafkaError;

use super::Admin;
use super::access::Operations;
use crate::client::topic_name;
use crate::security::Access;
use crate::{Error, Result};

/// A topic as an operator looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Name.
    pub name: String,
    /// Identity; a re-created topic has another.
    pub topic_id: TopicId,
    /// How many partitions it has.
    pub partition_count: usize,
    /// Copies of the partition that has the fewest.
    pub replicas_min: usize,
    /// The same of those that are in sync.
    pub in_sync_min: usize,
    /// Partitions without a leader.
    pub leaderless_count: usize,
    /// What we may do with it; `None` when the broker does not tell.
    pub operations: Option<Operations>,
}

impl Admin {
    /// Describes a topic, with partitions that have no leader; `None` when there is none. What the client has cached stays as
    /// it is. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn describe_topic(&self, name: &str) -> Result<Option<TopicDescription>> {
        let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![wanted]))
            .with_allow_auto_topic_creation(false)
            .with_include_topic_authorized_operations(true);
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.any().await?.call(&request).await?;
                let topic = response.topics.first();
                let topic = topic
                    .ok_or_else(|| Error::new(ErrorKind::Retry, format!("no answer about topic '{name}'")))?;
                match KafkaError(topic.error_code) {
                    KafkaError::NONE => Ok(Some(described(name, topic))),
                    KafkaError::UNKNOWN_TOPIC_OR_PARTITION => Ok(None),
                    KafkaError(code) => {
                        let error = Error::from_code(code, format_args!("describe topic '{name}'"));
                        Err(self.client.refused(error, &Access::topic("Describe", name)))
                    }
                }
            };
            match attempt.await {
                Ok(described) => return Ok(described),
                Err(error) if error.is_retriable() => {
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn described(name: &str, topic: &MetadataResponseTopic) -> TopicDescription {
    let partitions = &topic.partitions;
    let least = |counts: &mut dyn Iterator<Item = usize>| counts.min().unwrap_or(0);
    TopicDescription {
        name: name.to_owned(),
        topic_id: TopicId(topic.topic_id),
        partition_count: partitions.len(),
        replicas_min: least(&mut partitions.iter().map(|partition| partition.replica_nodes.len())),
        in_sync_min: least(&mut partitions.iter().map(|partition| partition.isr_nodes.len())),
        leaderless_count: partitions.iter().filter(|partition| partition.leader_id.0 < 0).count(),
        operations: Operations::told(topic.topic_authorized_operations),
    }
}
