//! Settings of groups (KIP-848; a share group has its own start offset, isolation and limits, KIP-932), topics and brokers.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;

use super::Admin;
use crate::cluster::Purpose;
use crate::connection::Connection;
use crate::security::Access;
use crate::{Error, Result};

/// Resource type of a topic.
const TOPIC: i8 = 2;
/// Resource type of a broker.
const BROKER: i8 = 4;
/// Resource type of a group.
const GROUP: i8 = 32;
/// Operation: set to the value.
const SET: i8 = 0;

impl Admin {
    /// Sets settings of a group, such as `share.auto.offset.reset`. It need not exist yet.
    ///
    /// # Errors
    /// `InvalidInput` when a key or value is refused; the broker's words are in the text.
    ///
    /// # Cancel safety
    /// Dropped, they may have been set.
    pub async fn alter_group_config(&self, group: &str, configs: &[(String, String)]) -> Result<()> {
        self.send_group_config(group, configs, false).await
    }

    /// Whether [`Admin::alter_group_config`] would be allowed and its values taken: the brokers check it and change
    /// nothing. Cancel safe.
    ///
    /// # Errors
    /// As there.
    pub async fn check_group_config(&self, group: &str, configs: &[(String, String)]) -> Result<()> {
        self.send_group_config(group, configs, true).await
    }

    async fn send_group_config(
        &self,
        group: &str,
        configs: &[(String, String)],
        validate_only: bool,
    ) -> Result<()> {
        let changes = configs
            .iter()
            .map(|(key, value)| {
                AlterableConfig::default()
                    .with_name(StrBytes::from_string(key.clone()))
                    .with_config_operation(SET)
                    .with_value(Some(StrBytes::from_string(value.clone())))
            })
            .collect();
        let resource = AlterConfigsResource::default()
            .with_resource_type(GROUP)
            .with_resource_name(StrBytes::from_string(group.to_owned()))
            .with_configs(changes);
        let request = IncrementalAlterConfigsRequest::default()
            .with_resources(vec![resource])
            .with_validate_only(validate_only);
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.any().await?.call(&request).await?;
                for answer in &response.responses {
                    if answer.error_code != 0 {
                        let message = answer.error_message.as_ref().map(|message| message.as_str());
                        let what = format!("set the configs of group '{group}'");
                        let error = Error::from_answer(answer.error_code, message, what);
                        return Err(self.client.refused(error, &Access::group("AlterConfigs", group)));
                    }
                }
                Ok(())
            };
            match attempt.await {
                Ok(()) => return Ok(()),
                // Setting the same again is harmless.
                Err(error) if error.is_retriable() => backoff.wait(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The settings of a group, defaults included. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn describe_group_config(&self, group: &str) -> Result<BTreeMap<String, String>> {
        let doing = format!("read the configs of group '{group}'");
        self.describe_config((GROUP, group), &doing, &Access::group("DescribeConfigs", group)).await
    }

    /// The settings of a topic, defaults included. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (no such topic, not allowed), `Retry`.
    pub async fn describe_topic_config(&self, topic: &str) -> Result<BTreeMap<String, String>> {
        let doing = format!("read the settings of topic '{topic}'");
        self.describe_config((TOPIC, topic), &doing, &Access::topic("DescribeConfigs", topic)).await
    }

    /// The settings of a broker, defaults included: of the first that answers, as brokers of one cluster have the same
    /// ones where it matters. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry` (none answers).
    pub async fn describe_broker_config(&self) -> Result<BTreeMap<String, String>> {
        let mut last = None;
        for node in self.client.nodes() {
            // A broker's own settings are told by itself alone.
            let name = node.0.to_string();
            let doing = format!("read the settings of broker {name}");
            let attempt = async {
                let connection = self.client.node(node, Purpose::General).await?;
                let access = Access::cluster("DescribeConfigs");
                self.describe_config_at(&connection, (BROKER, &name), &doing, &access).await
            };
            match attempt.await {
                Ok(configs) => return Ok(configs),
                // Nothing was changed, so nothing is unknown.
                Err(error) if error.is_retriable() => last = Some(error.with_kind(ErrorKind::Retry)),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Retry, "no broker is known")))
    }

    async fn describe_config(
        &self,
        resource: (i8, &str),
        doing: &str,
        access: &Access<'_>,
    ) -> Result<BTreeMap<String, String>> {
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let connection = self.client.any().await?;
                self.describe_config_at(&connection, resource, doing, access).await
            };
            match attempt.await {
                Ok(configs) => return Ok(configs),
                // Nothing was changed, so nothing is unknown.
                Err(error) if error.is_retriable() => {
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn describe_config_at(
        &self,
        connection: &Connection,
        (resource_type, name): (i8, &str),
        doing: &str,
        access: &Access<'_>,
    ) -> Result<BTreeMap<String, String>> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(resource_type)
            .with_resource_name(StrBytes::from_string(name.to_owned()))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let response = connection.call(&request).await?;
        let mut configs = BTreeMap::new();
        for result in &response.results {
            if result.error_code != 0 {
                let message = result.error_message.as_ref().map(|message| message.as_str());
                let error = Error::from_answer(result.error_code, message, doing.to_owned());
                return Err(self.client.refused(error, access));
            }
            for config in &result.configs {
                let value = config.value.as_ref().map(ToString::to_string).unwrap_or_default();
                configs.insert(config.name.to_string(), value);
            }
        }
        Ok(configs)
    }
}
