//! Settings of topics, and the size of the cluster: what a job's start checks.

use std::collections::BTreeMap;

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;

use super::Admin;
use crate::{Error, Result};

/// Resource type of a topic.
const TOPIC: i8 = 2;

impl Admin {
    /// The settings of a topic, defaults included. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (no such topic, not allowed), `Retry`.
    pub async fn describe_topic_config(&self, topic: &str) -> Result<BTreeMap<String, String>> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(StrBytes::from_string(topic.to_owned()))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.any().await?.call(&request).await?;
                let mut configs = BTreeMap::new();
                for result in &response.results {
                    if result.error_code != 0 {
                        let message = result.error_message.as_ref().map(|message| message.as_str());
                        let what = format!("read the settings of topic '{topic}'");
                        return Err(Error::from_answer(result.error_code, message, what));
                    }
                    for config in &result.configs {
                        let value = config.value.as_ref().map(ToString::to_string).unwrap_or_default();
                        configs.insert(config.name.to_string(), value);
                    }
                }
                Ok(configs)
            };
            match attempt.await {
                Ok(configs) => return Ok(configs),
                Err(error) if error.is_retriable() => {
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Brokers that the cluster has, as far as metadata says.
    pub fn node_count(&self) -> usize {
        self.client.nodes().len()
    }
}
