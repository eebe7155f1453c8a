//! IncrementalAlterConfigs: sets and unsets settings of topics and groups (KIP-339).

use std::sync::Arc;

use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use super::describe_configs::{RESOURCE_GROUP, RESOURCE_TOPIC, may};
use crate::error::ErrorCode;
use crate::log::LogSettings;
use crate::node::Node;

const SET: i8 = 0;
const DELETE: i8 = 1;

type Refusal = (ErrorCode, String);

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.iter().map(|resource| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let allowed = may(context, resource.resource_type, &resource.resource_name);
        let allowed = allowed.map_err(|code| (code, code.to_string()));
        match allowed.and_then(|()| alter(node, resource, request.validate_only)) {
            Ok(()) => response,
            Err((code, text)) => {
                response.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(text)))
            }
        }
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn alter(node: &Node, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
    match resource.resource_type {
        RESOURCE_TOPIC => alter_topic(node, resource, validate_only),
        RESOURCE_GROUP => alter_group(node, resource, validate_only),
        kind => {
            Err((ErrorCode::InvalidRequest, format!("settings of resource type {kind} cannot be altered")))
        }
    }
}

/// The new value of a setting; `None` goes back to the default.
fn new_value(config: &AlterableConfig) -> Result<Option<&str>, Refusal> {
    match (config.config_operation, &config.value) {
        (SET, Some(value)) => Ok(Some(value)),
        (DELETE, _) => Ok(None),
        (SET, None) => Err((ErrorCode::InvalidConfig, format!("{} has no value", config.name.as_str()))),
        (operation, _) => {
            let text = format!("{} is no list: operation {operation} does not fit", config.name.as_str());
            Err((ErrorCode::InvalidConfig, text))
        }
    }
}

fn alter_topic(node: &Node, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
    let name = resource.resource_name.as_str();
    let unknown = || (ErrorCode::UnknownTopicOrPartition, format!("topic {name} does not exist"));
    let topic = node.cluster.topics.by_name(name).ok_or_else(unknown)?;
    let mut configs = topic.configs();
    for config in &resource.configs {
        match new_value(config)? {
            Some(value) => configs.insert(config.name.to_string(), value.to_owned()),
            None => configs.remove(config.name.as_str()),
        };
    }
    if validate_only {
        return LogSettings::read(&configs).map(|_| ()).map_err(|text| (ErrorCode::InvalidConfig, text));
    }
    node.cluster.topics.set_configs(&topic, configs)
}

fn alter_group(node: &Node, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
    let group = resource.resource_name.as_str();
    if group.is_empty() {
        return Err((ErrorCode::InvalidRequest, "the group has no name".to_owned()));
    }
    // All are checked before one is applied.
    for only_check in [true, false] {
        for config in &resource.configs {
            node.cluster.group_configs.alter(group, &config.name, new_value(config)?, only_check)?;
        }
        if validate_only {
            break;
        }
    }
    Ok(())
}
