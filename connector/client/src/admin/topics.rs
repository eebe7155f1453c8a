//! Creating, deleting and listing topics.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_wire::KafkaError;

use super::Admin;
use crate::client::{topic_missing, topic_name};
use crate::metadata::TopicInfo;
use crate::security::Access;
use crate::{Error, Result};

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// Number of partitions; at least 1, or -1 for the broker's default.
    pub partitions: i32,
    /// Copies of each; -1 for the broker's default.
    pub replication: i16,
    /// Settings, such as `cleanup.policy`.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with the broker's default replication and settings.
    pub fn new(name: impl Into<String>, partitions: i32) -> Self {
        NewTopic { name: name.into(), partitions, replication: -1, configs: Vec::new() }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with_config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((key.into(), value.into()));
        self
    }
}

/// How long brokers may take over a change of topics.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

impl Admin {
    /// Brokers that the cluster has, as far as metadata says.
    pub fn node_count(&self) -> usize {
        self.client.nodes().len()
    }

    /// Creates a topic and waits until its leaders are known.
    ///
    /// # Errors
    /// `InvalidInput` (it exists: code TOPIC_ALREADY_EXISTS; or the settings are refused), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the topic may have been created.
    pub async fn create_topic(&self, topic: NewTopic) -> Result<Arc<TopicInfo>> {
        self.create_topics(vec![topic])
            .await?
            .pop()
            .ok_or_else(|| Error::new(ErrorKind::Bug, "no topic was created"))
    }

    /// Creates a topic unless it is there, whoever made it, and waits until its leaders are known. Replicas of a job that
    /// start together, and a broker that has not heard of a new topic yet, make "look, then create" fail.
    ///
    /// # Errors
    /// `InvalidInput` (the settings are refused), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the topic may have been created.
    pub async fn ensure_topic(&self, topic: NewTopic) -> Result<Arc<TopicInfo>> {
        let name = topic.name.clone();
        match self.create_topic(topic).await {
            Err(error) if error.code() == Some(KafkaError::TOPIC_ALREADY_EXISTS) => self.created(&name).await,
            result => result,
        }
    }

    /// Whether [`Admin::create_topic`] would be allowed and its settings taken: the brokers check it and create nothing.
    /// Cancel safe.
    ///
    /// # Errors
    /// As there.
    pub async fn check_new_topic(&self, topic: NewTopic) -> Result<()> {
        let request = CreateTopicsRequest::default()
            .with_timeout_ms(i32::try_from(CHANGE_TIMEOUT.as_millis()).unwrap_or(i32::MAX))
            .with_topics(vec![creatable(topic)])
            .with_validate_only(true);
        let mut backoff = self.client.backoff();
        loop {
            match self.create_once(&request, false).await {
                Ok(()) => return Ok(()),
                // Nothing was changed, so nothing is unknown.
                Err(error) if error.is_retriable() => {
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates topics and waits until their leaders are known. Errors and cancel safety as [`Admin::create_topic`].
    pub async fn create_topics(&self, topics: Vec<NewTopic>) -> Result<Vec<Arc<TopicInfo>>> {
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        let request = CreateTopicsRequest::default()
            .with_timeout_ms(i32::try_from(CHANGE_TIMEOUT.as_millis()).unwrap_or(i32::MAX))
            .with_topics(topics.into_iter().map(creatable).collect());
        let mut backoff = self.client.backoff();
        let mut unknown = false;
        loop {
            let error = match self.create_once(&request, unknown).await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => error,
                Err(error) => return Err(error),
            };
            unknown |= error.kind() == ErrorKind::Indeterminate;
            backoff.wait(error).await?;
        }
        let mut created = Vec::with_capacity(names.len());
        for name in names {
            created.push(self.created(&name).await?);
        }
        Ok(created)
    }

    /// One attempt. After an attempt of unknown outcome, a topic that exists is the one asked for.
    async fn create_once(&self, request: &CreateTopicsRequest, unknown: bool) -> Result<()> {
        let response = self.client.any().await?.call(request).await?;
        for topic in &response.topics {
            let exists = topic.error_code == KafkaError::TOPIC_ALREADY_EXISTS.0;
            if topic.error_code != 0 && !(unknown && exists) {
                let message = topic.error_message.as_ref().map(|message| message.as_str());
                let what = format!("create topic '{}'", topic.name.as_str());
                let error = Error::from_answer(topic.error_code, message, what);
                return Err(self.client.refused(error, &Access::topic("Create", &topic.name)));
            }
        }
        Ok(())
    }

    /// Waits until a broker that we ask knows the new topic.
    async fn created(&self, name: &str) -> Result<Arc<TopicInfo>> {
        let mut backoff = self.client.backoff();
        loop {
            match self.client.fresh_topic(name).await {
                Ok(topic) => return Ok(topic),
                // Not yet everywhere.
                Err(error) if error.kind() == ErrorKind::InvalidInput => backoff.wait(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Raises the number of partitions of a topic and waits until all have leaders.
    ///
    /// # Errors
    /// `InvalidInput` when it does not exist or has as many already; `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, they may have been added.
    pub async fn create_partitions(&self, name: &str, count: i32) -> Result<Arc<TopicInfo>> {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name(name))
            .with_count(count)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_timeout_ms(i32::try_from(CHANGE_TIMEOUT.as_millis()).unwrap_or(i32::MAX))
            .with_topics(vec![topic]);
        let mut backoff = self.client.backoff();
        let mut unknown = false;
        loop {
            let attempt = async {
                let response = self.client.any().await?.call(&request).await?;
                let Some(answer) = response.results.first().filter(|answer| answer.error_code != 0) else {
                    return Ok(());
                };
                if unknown && answer.error_code == KafkaError::INVALID_PARTITIONS.0 {
                    // After an attempt of unknown outcome: it has them, by that one.
                    return Ok(());
                }
                let message = answer.error_message.as_ref().map(|message| message.as_str());
                Err(Error::from_answer(answer.error_code, message, format!("add partitions to '{name}'")))
            };
            let error = match attempt.await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => error,
                Err(error) => return Err(error),
            };
            unknown |= error.kind() == ErrorKind::Indeterminate;
            backoff.wait(error).await?;
        }
        let mut backoff = self.client.backoff();
        loop {
            let topic = self.client.fresh_topic(name).await?;
            if topic.partitions.len() >= usize::try_from(count).unwrap_or(0) {
                return Ok(topic);
            }
            let context = format!("the new partitions of '{name}' are not known everywhere yet");
            backoff.wait(Error::new(ErrorKind::Retry, context)).await?;
        }
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// `InvalidInput` when it does not exist or must not be deleted; `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the topic may have been deleted.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        // Names in both forms: a list up to version 5, states from 6 on.
        let request = |by_state: bool| {
            let request = DeleteTopicsRequest::default()
                .with_timeout_ms(i32::try_from(CHANGE_TIMEOUT.as_millis()).unwrap_or(i32::MAX));
            if by_state {
                request.with_topics(vec![DeleteTopicState::default().with_name(Some(topic_name(name)))])
            } else {
                request.with_topic_names(vec![topic_name(name)])
            }
        };
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let connection = self.client.any().await?;
                let version = connection.versions().of::<DeleteTopicsRequest>(connection.address())?;
                let response = connection.call(&request(version >= 6)).await?;
                let answer = response.responses.first();
                match answer.map_or(0, |answer| answer.error_code) {
                    0 => Ok(()),
                    code if code == KafkaError::UNKNOWN_TOPIC_OR_PARTITION.0 => Err(topic_missing(name)),
                    code => {
                        let error = Error::from_code(code, format_args!("delete topic '{name}'"));
                        Err(self.client.refused(error, &Access::topic("Delete", name)))
                    }
                }
            };
            match attempt.await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => backoff.wait(error).await?,
                Err(error) => return Err(error),
            }
        }
        // Forget it here too; what is left of it elsewhere shows itself soon enough.
        self.client.refresh_topics(&[name]).await
    }

    /// Every topic, by name. Cancel safe.
    pub async fn list_topics(&self) -> Result<Vec<Arc<TopicInfo>>> {
        self.client.all_topics().await
    }
}

fn creatable(topic: NewTopic) -> CreatableTopic {
    let configs = topic
        .configs
        .into_iter()
        .map(|(key, value)| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_string(key))
                .with_value(Some(StrBytes::from_string(value)))
        })
        .collect();
    CreatableTopic::default()
        .with_name(topic_name(&topic.name))
        .with_num_partitions(topic.partitions)
        .with_replication_factor(topic.replication)
        .with_configs(configs)
}
