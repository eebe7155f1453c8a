//! CreateTopics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::RequestContext;
use crate::access::Operation;
use crate::error::ErrorCode;
use crate::log::LogSettings;
use crate::node::Node;
use crate::topics::{NewTopic, TopicConfigs};

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *named.entry(topic.name.as_str()).or_default() += 1;
    }
    // A name has one answer, however often it is there.
    let mut answered = BTreeSet::new();
    let topics = request.topics.iter().filter(|topic| answered.insert(topic.name.as_str()));
    let results = topics.map(|topic| {
        let created = if named.get(topic.name.as_str()).is_some_and(|count| *count > 1) {
            Err((ErrorCode::InvalidRequest, "topic is named twice".to_owned()))
        } else {
            let allowed = context.may.topic(&topic.name);
            let allowed = allowed.map_err(|code| (code, "Authorization failed.".to_owned()));
            allowed.and_then(|()| create(node, topic, request.validate_only))
        };
        let result = CreatableTopicResult::default().with_name(topic.name.clone());
        match created {
            // Whoever may not see its settings is not told what the new topic looks like, but its id.
            Ok((id, _)) if context.may.topic_to(Operation::DescribeConfigs, &topic.name).is_err() => result
                .with_topic_id(id)
                .with_topic_config_error_code(ErrorCode::TopicAuthorizationFailed.code()),
            Ok((id, partitions)) => result
                .with_topic_id(id)
                .with_num_partitions(partitions)
                .with_replication_factor(1)
                .with_configs(Some(Vec::new())),
            Err((code, text)) => {
                result.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(text)))
            }
        }
    });
    CreateTopicsResponse::default().with_topics(results.collect())
}

fn create(
    node: &Node,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<(Uuid, i32), (ErrorCode, String)> {
    // Without replication a factor above 1 cannot be kept, but clients that ask for 3 are made for real clusters.
    let partitions = match topic.num_partitions {
        _ if !topic.assignments.is_empty() => i32::try_from(topic.assignments.len()).unwrap_or(i32::MAX),
        -1 => node.config.default_partitions,
        count => count,
    };
    let mut configs = TopicConfigs::new();
    for config in &topic.configs {
        if let Some(value) = &config.value {
            configs.insert(config.name.to_string(), value.to_string());
        }
    }
    let new = NewTopic { name: topic.name.to_string(), partitions, configs };
    let topics = &node.cluster.topics;
    LogSettings::read(&new.configs).map_err(|text| (ErrorCode::InvalidConfig, text))?;
    let refused = |code: ErrorCode| (code, format!("topic {} is not created: {code}", topic.name.as_str()));
    if validate_only {
        topics.check(&new).map_err(refused)?;
        return Ok((Uuid::nil(), partitions));
    }
    let created = node.cluster.create_topic(new, &node.config).map_err(refused)?;
    Ok((created.id.0, partitions))
}
