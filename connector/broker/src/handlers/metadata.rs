//! Metadata: nodes, topics, leaders.

use std::sync::Arc;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::TopicId;

use super::RequestContext;
use crate::access::{Operation, Resource};
use crate::error::ErrorCode;
use crate::node::Node;
use crate::topics::{NewTopic, Topic, TopicConfigs, check_name};

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let cluster = &node.cluster;
    let brokers = cluster.nodes().into_iter().map(|known| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(known.node.0))
            .with_host(StrBytes::from_string(known.address.host))
            .with_port(i32::from(known.address.port))
    });
    // Version 0 has no null: there an empty list asks for all topics.
    let wanted = request.topics.filter(|topics| context.version > 0 || !topics.is_empty());
    let mut topics: Vec<MetadataResponseTopic> = match wanted {
        // What may not be described is not there.
        None => {
            let all = cluster.topics.all();
            let shown = all.iter().filter(|topic| context.may.topic(&topic.name).is_ok());
            shown.map(|topic| describe(topic)).collect()
        }
        Some(wanted) => {
            let create = node.config.auto_create_topics && request.allow_auto_topic_creation;
            wanted.iter().map(|topic| look_up(node, context, topic, create)).collect()
        }
    };
    if request.include_topic_authorized_operations {
        for topic in topics.iter_mut().filter(|topic| topic.error_code == 0) {
            let name = topic.name.as_ref().map_or("", |name| name.as_str());
            topic.topic_authorized_operations = context.may.operations(&Resource::topic(name));
        }
    }
    let response = MetadataResponse::default();
    let response = match request.include_cluster_authorized_operations {
        true => response.with_cluster_authorized_operations(context.may.cluster_operations()),
        false => response,
    };
    response
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(StrBytes::from_string(cluster.id.clone())))
        .with_controller_id(BrokerId(cluster.controller().map_or(-1, |controller| controller.0)))
        .with_topics(topics)
}

fn look_up(
    node: &Node,
    context: &RequestContext,
    wanted: &MetadataRequestTopic,
    create: bool,
) -> MetadataResponseTopic {
    let topics = &node.cluster.topics;
    let unknown = |code: ErrorCode| {
        MetadataResponseTopic::default()
            .with_error_code(code.code())
            .with_name(wanted.name.clone())
            .with_topic_id(wanted.topic_id)
    };
    // A topic is asked for by id or by name; with an id the name is null or empty.
    let name = wanted.name.as_ref().map(|name| name.as_str()).filter(|_| wanted.topic_id.is_nil());
    let Some(name) = name else {
        let found = topics.by_id(TopicId(wanted.topic_id)).ok_or(ErrorCode::UnknownTopicId);
        let found = found.and_then(|topic| context.may.topic(&topic.name).map(|()| topic));
        return found.map_or_else(unknown, |topic| describe(&topic));
    };
    // Asked before anybody looks: whether a topic is there is not for everybody to know.
    if let Err(code) = context.may.topic(name) {
        return unknown(code);
    }
    if let Some(topic) = topics.by_name(name) {
        return describe(&topic);
    }
    if let Err(code) = check_name(name) {
        return unknown(code);
    }
    if !create {
        return unknown(ErrorCode::UnknownTopicOrPartition);
    }
    if let Err(code) = context.may.topic_to(Operation::Create, name) {
        return unknown(code);
    }
    let partitions = node.config.default_partitions;
    let new = NewTopic { name: name.to_owned(), partitions, configs: TopicConfigs::new() };
    match node.cluster.create_topic(new, &node.config) {
        Ok(topic) => describe(&topic),
        // Another connection was faster.
        Err(ErrorCode::TopicAlreadyExists) => unknown(ErrorCode::LeaderNotAvailable),
        Err(code) => unknown(code),
    }
}

fn describe(topic: &Topic) -> MetadataResponseTopic {
    let partitions = topic.partitions().iter().map(|partition| {
        let leadership = partition.leadership();
        let replica = vec![BrokerId(partition.home().0)];
        let described = MetadataResponsePartition::default()
            .with_partition_index(partition.index.0)
            .with_leader_epoch(leadership.epoch.0)
            .with_replica_nodes(replica.clone());
        match leadership.leader {
            Some(leader) => described.with_leader_id(BrokerId(leader.0)).with_isr_nodes(replica),
            None => described
                .with_error_code(ErrorCode::LeaderNotAvailable.code())
                .with_leader_id(BrokerId(-1))
                .with_offline_replicas(replica),
        }
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(topic.name.to_string()))))
        .with_topic_id(topic.id.0)
        .with_is_internal(topic.internal)
        .with_partitions(partitions.collect())
}
