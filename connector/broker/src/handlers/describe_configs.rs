//! DescribeConfigs: settings of topics, nodes and groups.

use std::sync::Arc;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;

pub(super) const RESOURCE_TOPIC: i8 = 2;
pub(super) const RESOURCE_BROKER: i8 = 4;
pub(super) const RESOURCE_GROUP: i8 = 32;

const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;
const SOURCE_GROUP: i8 = 8;
const TYPE_STRING: i8 = 2;

/// Topic settings that clients ask for, with the values that hold unless set.
const TOPIC_DEFAULTS: [(&str, &str); 12] = [
    ("cleanup.policy", "delete"),
    ("compression.type", "producer"),
    ("delete.retention.ms", "86400000"),
    ("errors.deadletterqueue.group.enable", "false"),
    ("message.timestamp.type", "CreateTime"),
    ("min.cleanable.dirty.ratio", "0.5"),
    ("min.compaction.lag.ms", "0"),
    ("min.insync.replicas", "1"),
    ("retention.bytes", "-1"),
    ("retention.ms", "-1"),
    ("segment.bytes", "67108864"),
    ("segment.ms", "604800000"),
];

struct Entry {
    name: String,
    value: String,
    source: i8,
    read_only: bool,
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match may(context, resource.resource_type, &resource.resource_name)
            .and_then(|()| entries(node, resource))
        {
            Ok(entries) => {
                let entries = entries.into_iter().filter(|entry| asked(resource, &entry.name));
                result.with_configs(entries.map(describe).collect())
            }
            Err(code) => result
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_string(code.to_string()))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// The right to the settings of a resource; what is no such resource is refused elsewhere.
pub(super) fn may(context: &RequestContext, kind: i8, name: &str) -> Result<(), ErrorCode> {
    match kind {
        RESOURCE_TOPIC => context.may.topic(name),
        RESOURCE_GROUP => context.may.group(name),
        _of_the_cluster => context.may.cluster(),
    }
}

fn asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn entries(node: &Node, resource: &DescribeConfigsResource) -> Result<Vec<Entry>, ErrorCode> {
    match resource.resource_type {
        RESOURCE_TOPIC => topic_entries(node, &resource.resource_name),
        RESOURCE_BROKER => Ok(broker_entries(node)),
        RESOURCE_GROUP => {
            let configs = node.cluster.group_configs.entries(&resource.resource_name).into_iter();
            Ok(configs
                .map(|config| Entry {
                    name: config.name.to_owned(),
                    value: config.value,
                    source: if config.is_default { SOURCE_DEFAULT } else { SOURCE_GROUP },
                    read_only: false,
                })
                .collect())
        }
        _unknown => Err(ErrorCode::InvalidRequest),
    }
}

fn topic_entries(node: &Node, name: &str) -> Result<Vec<Entry>, ErrorCode> {
    let topic = node.cluster.topics.by_name(name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let set = topic.configs();
    let defaults = TOPIC_DEFAULTS.iter().filter(|(name, _)| !set.contains_key(*name));
    let defaults = defaults.map(|(name, value)| Entry {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
        source: SOURCE_DEFAULT,
        read_only: false,
    });
    let mut entries: Vec<_> = defaults.collect();
    entries.extend(set.clone().into_iter().map(|(name, value)| Entry {
        name,
        value,
        source: SOURCE_TOPIC,
        read_only: false,
    }));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn broker_entries(node: &Node) -> Vec<Entry> {
    let config = &node.config;
    let entries = [
        ("auto.create.topics.enable", config.auto_create_topics.to_string()),
        (
            "errors.deadletterqueue.auto.create.topics.enable",
            config.dead_letter_auto_create_topics.to_string(),
        ),
        ("errors.deadletterqueue.topic.name.prefix", config.dead_letter_topic_prefix.clone()),
        ("group.share.delivery.count.limit", config.share.delivery_count_limit.to_string()),
        ("group.share.partition.max.record.locks", config.share.partition_max_record_locks.to_string()),
        ("group.share.record.lock.duration.ms", config.share.record_lock_duration.as_millis().to_string()),
        ("message.max.bytes", config.batch_bytes_max.to_string()),
        ("num.partitions", config.default_partitions.to_string()),
        ("transaction.max.timeout.ms", config.transaction_timeout_max.as_millis().to_string()),
    ];
    let entry = |(name, value): (&str, String)| Entry {
        name: name.to_owned(),
        value,
        source: SOURCE_STATIC_BROKER,
        read_only: true,
    };
    entries.into_iter().map(entry).collect()
}

fn describe(entry: Entry) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_string(entry.name))
        .with_value(Some(StrBytes::from_string(entry.value)))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source)
        .with_config_type(TYPE_STRING)
        .with_documentation(None)
}
