//! What may not be described is not there: lists leave it out, and names that are asked for are refused
//! without a look.

use kafka_protocol::messages::*;
use sharestream_broker::access::Operation::{
    self, Create, Describe, DescribeConfigs, IdempotentWrite, Read, Write,
};
use sharestream_broker::access::ResourcePattern;
use sharestream_wire::KafkaError;
use uuid::Uuid;

use crate::authentication::connections_say_who_they_are;
use crate::fixtures::{Connection, GROUP, TOPIC};
use crate::offsets::offsets_are_checked_topic_by_topic;
use crate::requests::every_right_is_asked_for;
use crate::world::World;

const REFUSED: i16 = KafkaError::TOPIC_AUTHORIZATION_FAILED.0;
const ID: &str = "job-0";
/// As Kafka's clients make them.
const MEMBER: &str = "bQ0jY0T8Rk2yTj0nU3m1xw";

fn named(name: &str) -> metadata_request::MetadataRequestTopic {
    metadata_request::MetadataRequestTopic::default().with_name(Some(TopicName(name.to_owned().into())))
}

async fn all_topics(connection: &mut Connection) -> Vec<String> {
    let answer = connection.call(MetadataRequest::default().with_topics(None), 12).await;
    answer.topics.iter().map(|topic| topic.name.as_ref().unwrap().to_string()).collect()
}

/// Topics, by name, by id and in a list, before and after `worker` may describe one of two.
async fn topics_are_hidden(world: &mut World) {
    world.create_topic("secret").await;
    let mut worker = world.worker().await;
    assert_eq!(all_topics(&mut worker).await, Vec::<String>::new());
    for name in [TOPIC, "no-such-topic", "not a name"] {
        let request = MetadataRequest::default().with_topics(Some(vec![named(name)]));
        let topic = worker.call(request, 12).await.topics.remove(0);
        assert_eq!((topic.error_code, topic.partitions.len()), (REFUSED, 0), "{name}");
        assert_eq!((topic.topic_id, topic.is_internal), (Uuid::nil(), false), "{name}");
    }
    // An id is no secret, its name is.
    let by_id = |id| metadata_request::MetadataRequestTopic::default().with_name(None).with_topic_id(id);
    let ids = vec![by_id(world.topic_id), by_id(Uuid::from_u128(7))];
    let answer = worker.call(MetadataRequest::default().with_topics(Some(ids)), 12).await;
    let mut found: Vec<_> =
        answer.topics.iter().map(|topic| (topic.error_code, topic.name.clone())).collect();
    found.sort_by_key(|(code, _)| *code);
    assert_eq!(found, [(REFUSED, None), (KafkaError::UNKNOWN_TOPIC_ID.0, None)]);
    world.allow(Read, &ResourcePattern::topic(TOPIC)).await;
    let ask = async || all_topics(&mut worker).await;
    assert_eq!(world.settled(ask, |topics| !topics.is_empty()).await, [TOPIC]);
    world.revoke_all().await;
}

async fn allowed_operations(connection: &mut Connection) -> (i32, i32, i32) {
    let request = MetadataRequest::default()
        .with_topics(Some(vec![named(TOPIC)]))
        .with_include_topic_authorized_operations(true)
        .with_include_cluster_authorized_operations(true);
    let answer = connection.call(request, 10).await;
    let request = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
    let cluster = connection.call(request.with_endpoint_type(1), 1).await.cluster_authorized_operations;
    (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations, cluster)
}

pub(crate) fn bits(operations: &[Operation]) -> i32 {
    operations.iter().fold(0, |bits, operation| bits | (1 << operation.code()))
}

/// KIP-430: answers list what the caller may do.
async fn operations_are_those_of_the_caller(world: &mut World) {
    let mut worker = world.worker().await;
    world.allow(Write, &ResourcePattern::topic(TOPIC)).await;
    world.allow(IdempotentWrite, &ResourcePattern::cluster()).await;
    let topic = bits(&[Write, Describe]);
    let ask = async || allowed_operations(&mut worker).await;
    assert_eq!(world.settled(ask, |found| found.0 == topic).await, (topic, 0, 0), "the cluster is hidden");
    world.allow(Describe, &ResourcePattern::cluster()).await;
    let cluster = bits(&[IdempotentWrite, Describe]);
    let ask = async || allowed_operations(&mut worker).await;
    let all = (topic, cluster, cluster);
    assert_eq!(world.settled(ask, |found| *found == all).await, all);
    let everything = allowed_operations(&mut world.admin).await;
    assert_eq!(everything, (0b1101_1111_1000, 0b1_1111_1010_0000, 0b1_1111_1010_0000));
    world.revoke_all().await;
}

async fn listed(connection: &mut Connection) -> (Vec<String>, Vec<String>) {
    let groups = connection.call(ListGroupsRequest::default(), 5).await.groups;
    let ids = connection.call(ListTransactionsRequest::default().with_duration_filter(-1), 1).await;
    let groups = groups.iter().map(|group| group.group_id.to_string());
    let ids = ids.transaction_states.iter().map(|state| state.transactional_id.to_string());
    (groups.collect(), ids.collect())
}

/// Groups and transactional ids.
async fn groups_and_transactions_are_hidden(world: &mut World) {
    // A fresh Kafka makes the topics of its coordinators when they are looked for.
    for (kind, key) in [(0, GROUP), (1, ID)] {
        let request =
            FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(vec![key.into()]);
        let found = |answer: &FindCoordinatorResponse| answer.coordinators[0].error_code == 0;
        assert!(found(&world.settled_as_admin(request, 6, found).await), "{key}");
    }
    join(world).await;
    begin(world).await;
    assert_eq!(listed(&mut world.admin).await, (vec![GROUP.to_owned()], vec![ID.to_owned()]));
    let mut worker = world.worker().await;
    assert_eq!(listed(&mut worker).await, (vec![], vec![]));
    for on in [ResourcePattern::group(GROUP), ResourcePattern::transactional_id("job").prefixed()] {
        world.allow(Describe, &on).await;
    }
    let both = (vec![GROUP.to_owned()], vec![ID.to_owned()]);
    let ask = async || listed(&mut worker).await;
    assert_eq!(world.settled(ask, |found| *found == both).await, both);
    // The topics in them are left out, or hide the whole.
    let ids = vec![TransactionalId(ID.to_owned().into())];
    let asked = DescribeTransactionsRequest::default().with_transactional_ids(ids);
    let state = worker.call(asked.clone(), 0).await.transaction_states.remove(0);
    assert_eq!((state.error_code, state.topics.len()), (0, 0));
    let described = ShareGroupDescribeRequest::default()
        .with_group_ids(vec![GroupId(GROUP.into())])
        .with_include_authorized_operations(true);
    let group = worker.call(described.clone(), 1).await.groups.remove(0);
    let error = share_group_describe_response::DescribedGroup::default()
        .with_group_id(GroupId(GROUP.into()))
        .with_error_code(REFUSED)
        .with_error_message(group.error_message.clone());
    assert_eq!(group, error, "an error, and nothing of the group or of the caller's rights");
    world.allow(Describe, &ResourcePattern::topic(TOPIC)).await;
    let ask = async || worker.call(described.clone(), 1).await.groups.remove(0);
    let group = world.settled(ask, |group| group.error_code == 0).await;
    assert_eq!((group.error_code, group.members.len()), (0, 1));
    assert_eq!(group.authorized_operations, bits(&[Describe]));
    let state = worker.call(asked, 0).await.transaction_states.remove(0);
    assert_eq!((state.error_code, state.topics.len()), (0, 1));
    world.revoke_all().await;
    let leave = ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(GROUP.into()))
        .with_member_id(MEMBER.into())
        .with_member_epoch(-1);
    assert_eq!(world.admin.call(leave, 1).await.error_code, 0);
}

/// `admin` becomes a member of the group and waits for an assignment, which Kafka gives some heartbeats
/// later.
async fn join(world: &mut World) {
    let mut epoch = 0;
    for _ in 0..200 {
        let topics = (epoch == 0).then(|| vec![TopicName(TOPIC.into())]);
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(GROUP.into()))
            .with_member_id(MEMBER.into())
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(topics);
        let answer = world.settled_as_admin(request, 1, |answer| answer.error_code == 0).await;
        assert_eq!(answer.error_code, 0);
        epoch = answer.member_epoch;
        if answer.assignment.is_some_and(|assigned| !assigned.topic_partitions.is_empty()) {
            return;
        }
        world.env.clock.sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("nothing was assigned");
}

/// `admin` begins a transaction in the topic.
async fn begin(world: &mut World) {
    let id = TransactionalId(ID.to_owned().into());
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let producer = world.settled_as_admin(request, 4, |answer| answer.error_code == 0).await;
    assert_eq!(producer.error_code, 0);
    let topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(TopicName(TOPIC.into()))
        .with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id)
        .with_v3_and_below_producer_id(producer.producer_id)
        .with_v3_and_below_producer_epoch(producer.producer_epoch)
        .with_v3_and_below_topics(vec![topic]);
    let added = world.admin.call(request, 3).await;
    let topic = &added.results_by_topic_v3_and_below[0];
    assert_eq!(topic.results_by_partition[0].partition_error_code, 0);
}

/// A new topic is described to its creator as far as they may see its settings.
async fn settings_of_a_new_topic_are_hidden(world: &mut World) {
    let mut worker = world.worker().await;
    world.allow(Create, &ResourcePattern::topic("new-").prefixed()).await;
    let request = |name: &'static str| {
        let topic = create_topics_request::CreatableTopic::default()
            .with_name(TopicName(name.into()))
            .with_num_partitions(2)
            .with_replication_factor(1);
        CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000)
    };
    let ask = async || worker.call(request("new-1"), 7).await.topics.remove(0);
    let created = world.settled(ask, |topic| topic.error_code != REFUSED).await;
    assert_eq!((created.error_code, created.topic_config_error_code), (0, REFUSED));
    assert_eq!((created.num_partitions, created.replication_factor), (-1, -1));
    assert_ne!(created.topic_id, Uuid::nil());
    world.allow(DescribeConfigs, &ResourcePattern::topic("new-2")).await;
    let seen = KafkaError::TOPIC_ALREADY_EXISTS.0;
    // Kafka's node hears of it a little later: a topic that was described too early is made anew.
    let delete = || {
        let topic = delete_topics_request::DeleteTopicState::default();
        let topic = topic.with_name(Some(TopicName("new-2".into())));
        DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000)
    };
    world.admin.call(delete(), 6).await;
    for _ in 0..50 {
        let created = worker.call(request("new-2"), 7).await.topics.remove(0);
        assert_ne!(created.error_code, seen);
        if created.topic_config_error_code == 0 {
            assert_eq!((created.num_partitions, created.replication_factor), (2, 1));
            break;
        }
        assert!(world.is_kafka(), "{created:?}");
        world.admin.call(delete(), 6).await;
    }
    world.revoke_all().await;
}

async fn what_may_not_be_described_is_hidden(world: &mut World) {
    topics_are_hidden(world).await;
    operations_are_those_of_the_caller(world).await;
    groups_and_transactions_are_hidden(world).await;
    settings_of_a_new_topic_are_hidden(world).await;
}

#[tokio::test]
async fn what_may_not_be_described_is_left_out_or_refused() {
    let mut world = World::embedded().await;
    what_may_not_be_described_is_hidden(&mut world).await;
    world.shutdown().await;
}

// One node for all four, in this order: what is asked for below leaves groups and ids behind.
#[tokio::test]
async fn apache_kafka_hides_the_same_and_asks_for_the_same_passwords_and_rights() {
    let Some(mut world) = World::kafka().await else { return };
    connections_say_who_they_are(&world).await;
    what_may_not_be_described_is_hidden(&mut world).await;
    offsets_are_checked_topic_by_topic(&mut world).await;
    every_right_is_asked_for(&mut world).await;
    world.shutdown().await;
}
