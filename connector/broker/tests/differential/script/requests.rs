//! Requests, each made of what the script varies.

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use uuid::Uuid;

use super::offsets as share_offsets;
use crate::play::Play;

pub(crate) const READ_UNCOMMITTED: i8 = 0;
pub(crate) const READ_COMMITTED: i8 = 1;

/// Producer id and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// Nobody yet.
pub(crate) const NEW: Producer = Producer { id: -1, epoch: -1 };

/// A topic by both its names.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) id: Uuid,
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

pub(crate) fn transactional(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

pub(crate) fn create(
    name: &str,
    partitions: i32,
    replication: i16,
    configs: &[(&str, &str)],
) -> CreatableTopic {
    let config = |(name, value): &(&str, &str)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replication)
        .with_configs(configs.iter().map(config).collect())
}

/// Creates a topic whose old records are kept, and waits until it can be used. No step.
pub(crate) async fn topic(p: &mut Play, name: &str, partitions: i32) -> Topic {
    let name = p.name(name);
    let new = create(&name, partitions, 1, &[("retention.ms", "-1")]);
    let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(5_000);
    let created = p.call(&request, 7).await.unwrap();
    assert_eq!(created.topics[0].error_code, 0);
    let wanted = metadata_request::MetadataRequestTopic::default().with_name(Some(topic_name(&name)));
    let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
    let ready = |answer: &MetadataResponse| answer.topics[0].error_code == 0;
    p.quietly_until(&request, 12, ready).await;
    let id = created.topics[0].topic_id;
    coordinators_know(p, &name, id).await;
    p.know_topic(id, &name);
    Topic { name, id }
}

/// Waits until group coordinators know a topic: in Kafka they learn of it after the part of a broker that answers
/// Metadata, each from its own queue.
async fn coordinators_know(p: &mut Play, topic: &str, id: Uuid) {
    let request = share_offsets::describe(&p.name("passer-by"), Some(&[(topic, &[0])]));
    p.quietly_until(&request, 0, |answer| {
        answer.groups.iter().flat_map(|group| &group.topics).any(|topic| topic.topic_id == id)
    })
    .await;
}

/// A batch of values, a millisecond apart from `base_ms` on.
pub(crate) fn batch(
    base_ms: i64,
    producer: Producer,
    sequence: i32,
    transactional: bool,
    values: &[&str],
) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (place, value) in values.iter().enumerate() {
        builder.append(base_ms + place as i64, None, Some(value.as_bytes()), &[]).unwrap();
    }
    let meta = match producer {
        NEW => BatchMeta::default(),
        Producer { id, epoch } => BatchMeta {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: sequence,
            transactional,
            ..BatchMeta::default()
        },
    };
    builder.build(&meta).unwrap()
}

/// For topics by name, so for versions up to 12.
pub(crate) fn produce(
    transactional_id: Option<&str>,
    topic: &str,
    partition: i32,
    batch: Option<Bytes>,
    acks: i16,
) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(batch);
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_transactional_id(transactional_id.map(transactional))
        .with_acks(acks)
        .with_timeout_ms(5_000)
        .with_topic_data(vec![topic])
}

pub(crate) fn fetch(
    version: i16,
    topic: &Topic,
    (partition, offset): (i32, i64),
    isolation: i8,
    leader_epoch: i32,
) -> FetchRequest {
    let mut asked = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    if version >= 9 {
        asked = asked.with_current_leader_epoch(leader_epoch);
    }
    let topic = match version {
        ..13 => FetchTopic::default().with_topic(topic_name(&topic.name)),
        13.. => FetchTopic::default().with_topic_id(topic.id),
    };
    let request = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 24)
        .with_isolation_level(isolation)
        .with_topics(vec![topic.with_partitions(vec![asked])]);
    if version >= 7 { request.with_session_epoch(-1) } else { request }
}

pub(crate) fn list_offsets(topic: &str, partition: i32, timestamp: i64, isolation: i8) -> ListOffsetsRequest {
    let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked]);
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(vec![topic])
}

pub(crate) fn init(id: Option<&str>, known: Producer, timeout_ms: i32) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(id.map(transactional))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(ProducerId(known.id))
        .with_producer_epoch(known.epoch)
}

pub(crate) fn end(id: &str, producer: Producer, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(transactional(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(commit)
}

/// As clients of transaction version 1 send it, in versions up to 3.
pub(crate) fn add_partitions(
    id: &str,
    producer: Producer,
    topics: &[(&str, &[i32])],
) -> AddPartitionsToTxnRequest {
    let topics = topics.iter().map(|(name, partitions)| {
        AddPartitionsToTxnTopic::default().with_name(topic_name(name)).with_partitions(partitions.to_vec())
    });
    AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional(id))
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(topics.collect())
}

pub(crate) fn describe_transactions(ids: &[&str]) -> DescribeTransactionsRequest {
    let ids = ids.iter().map(|id| transactional(id)).collect();
    DescribeTransactionsRequest::default().with_transactional_ids(ids)
}

pub(crate) fn describe_producers(topic: &str, partitions: &[i32]) -> DescribeProducersRequest {
    let topic = describe_producers_request::TopicRequest::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(partitions.to_vec());
    DescribeProducersRequest::default().with_topics(vec![topic])
}

/// Notes the producers of partitions, sorted by what can be compared.
pub(crate) async fn producers(p: &mut Play, name: &str, topic: &str, partitions: &[i32]) {
    let answer = p.call(&describe_producers(topic, partitions), 0).await.map(|mut answer| {
        for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            // Ids rise in the order in which they were given out.
            partition.active_producers.sort_by_key(|producer| producer.producer_id.0);
        }
        answer
    });
    p.note(name, answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
}

/// Notes what DescribeTransactions says, its partitions sorted.
pub(crate) async fn describe(p: &mut Play, name: &str, ids: &[&str]) {
    let answer = p.call(&describe_transactions(ids), 0).await.map(|mut answer| {
        for state in &mut answer.transaction_states {
            state.topics.sort_by(|a, b| a.topic.cmp(&b.topic));
            state.topics.iter_mut().for_each(|topic| topic.partitions.sort_unstable());
        }
        answer
    });
    p.note(name, answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
}

pub(crate) const TOPIC_RESOURCE: i8 = 2;
pub(crate) const GROUP_RESOURCE: i8 = 32;

/// Sets configs; none goes back to the default.
pub(crate) fn alter_configs(
    kind: i8,
    name: &str,
    configs: &[(&str, Option<&str>)],
) -> IncrementalAlterConfigsRequest {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    let configs = configs.iter().map(|(name, value)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(if value.is_some() { SET } else { DELETE })
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

pub(crate) fn describe_configs(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    let keys = keys.map(|keys| keys.iter().map(|key| text(key)).collect());
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys);
    DescribeConfigsRequest::default().with_resources(vec![resource])
}
