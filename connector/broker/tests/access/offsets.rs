//! Offsets of consumer groups where the rights are to one topic of two: the other is refused or hidden, and
//! nothing is kept of it.

use kafka_protocol::messages::*;
use sharestream_broker::access::Operation::{Delete, Describe, Read, Write};
use sharestream_broker::access::ResourcePattern;
use sharestream_wire::KafkaError;

use crate::fixtures::{Connection, TOPIC};
use crate::hiding::bits;
use crate::world::World;

const REFUSED: i16 = KafkaError::TOPIC_AUTHORIZATION_FAILED.0;
const NO_GROUP: i16 = KafkaError::GROUP_AUTHORIZATION_FAILED.0;
const HIDDEN: &str = "offsets-hidden";
const GROUP: &str = "offsets-group";
const OTHER_GROUP: &str = "offsets-other-group";
const ID: &str = "offsets-job-0";

/// Topics of an answer, each with what is said of its partition.
type Said<T> = Vec<(String, T)>;

fn said<T: Copy>(expected: &[(&str, T)]) -> Said<T> {
    expected.iter().map(|(topic, said)| ((*topic).to_owned(), *said)).collect()
}

fn name(topic: &str) -> TopicName {
    TopicName(topic.to_owned().into())
}

fn group() -> GroupId {
    GroupId(GROUP.into())
}

fn id() -> TransactionalId {
    TransactionalId(ID.to_owned().into())
}

async fn commit(connection: &mut Connection, offset: i64) -> Said<i16> {
    use offset_commit_request as asked;
    let topic = |topic| {
        let partition = asked::OffsetCommitRequestPartition::default().with_committed_offset(offset);
        asked::OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
    };
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_topics([HIDDEN, TOPIC].map(topic).to_vec());
    let answer = connection.call(request, 9).await;
    answer.topics.iter().map(|topic| (topic.name.to_string(), topic.partitions[0].error_code)).collect()
}

/// Offsets with their codes; `by_name` or all of them.
async fn fetch(connection: &mut Connection, by_name: bool) -> Said<(i64, i16)> {
    use offset_fetch_request as asked;
    let topic = |topic| {
        asked::OffsetFetchRequestTopics::default().with_name(name(topic)).with_partition_indexes(vec![0])
    };
    let asked = asked::OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_topics(by_name.then(|| [HIDDEN, TOPIC].map(topic).to_vec()));
    let mut answer = connection.call(OffsetFetchRequest::default().with_groups(vec![asked]), 9).await;
    let group = answer.groups.remove(0);
    assert_eq!(group.error_code, 0);
    let seen = group.topics.iter().map(|topic| {
        let partition = &topic.partitions[0];
        (topic.name.to_string(), (partition.committed_offset, partition.error_code))
    });
    let mut seen: Vec<_> = seen.collect();
    if !by_name {
        // Kafka lists them in no order.
        seen.sort();
    }
    seen
}

async fn delete(connection: &mut Connection) -> Said<i16> {
    use offset_delete_request as asked;
    let topic = |topic| {
        let partition = asked::OffsetDeleteRequestPartition::default();
        asked::OffsetDeleteRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
    };
    let topics = [HIDDEN, TOPIC].map(topic).to_vec();
    let request = OffsetDeleteRequest::default().with_group_id(group()).with_topics(topics);
    let answer = connection.call(request, 0).await;
    assert_eq!(answer.error_code, 0);
    answer.topics.iter().map(|topic| (topic.name.to_string(), topic.partitions[0].error_code)).collect()
}

async fn end_of_epoch(connection: &mut Connection) -> Said<i16> {
    use offset_for_leader_epoch_request as asked;
    let topic = |topic| {
        let partition = asked::OffsetForLeaderPartition::default().with_current_leader_epoch(-1);
        asked::OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![partition])
    };
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(-2))
        .with_topics([HIDDEN, TOPIC].map(topic).to_vec());
    let answer = connection.call(request, 4).await;
    answer.topics.iter().map(|topic| (topic.topic.to_string(), topic.partitions[0].error_code)).collect()
}

/// Groups with their codes and what the caller may do with them.
async fn described(connection: &mut Connection) -> Vec<(String, i16, i32)> {
    let groups = [GROUP, OTHER_GROUP].map(|id| GroupId(id.into())).to_vec();
    let request =
        DescribeGroupsRequest::default().with_groups(groups).with_include_authorized_operations(true);
    let groups = connection.call(request, 6).await.groups;
    groups.iter().map(|one| (one.group_id.to_string(), one.error_code, one.authorized_operations)).collect()
}

/// Makes a group with an offset of 7 in each topic, as `admin`.
async fn begin(world: &mut World) {
    world.create_topic(HIDDEN).await;
    let key = FindCoordinatorRequest::default().with_coordinator_keys(vec![GROUP.into()]);
    let found = world.settled_as_admin(key, 6, |answer| answer.coordinators[0].error_code == 0).await;
    assert_eq!(found.coordinators[0].error_code, 0);
    for _ in 0..200 {
        let committed = commit(&mut world.admin, 7).await;
        if committed.iter().all(|(_, code)| *code == 0) {
            return;
        }
        // Kafka's node hears of the topic, and loads the group, a little later.
        assert!(world.is_kafka(), "{committed:?}");
        world.env.clock.sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("nothing is committed");
}

/// Commit, fetch, delete, and where epochs end.
async fn one_topic_of_two(world: &mut World) {
    let mut worker = world.worker().await;
    world.allow(Read, &ResourcePattern::group(GROUP)).await;
    world.allow(Read, &ResourcePattern::topic(TOPIC)).await;
    let partly = said(&[(HIDDEN, REFUSED), (TOPIC, 0)]);
    assert_eq!(world.settled(async || commit(&mut worker, 9).await, |found| *found == partly).await, partly);
    let all = said(&[(HIDDEN, (7, 0)), (TOPIC, (9, 0))]);
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(fetch(&mut world.admin, false).await, sorted, "nothing is kept for the other topic");
    assert_eq!(fetch(&mut worker, false).await, said(&[(TOPIC, (9, 0))]), "the other topic is not there");
    let by_name = said(&[(TOPIC, (9, 0)), (HIDDEN, (-1, REFUSED))]);
    assert_eq!(fetch(&mut worker, true).await, by_name);
    assert_eq!(end_of_epoch(&mut worker).await, said(&[(TOPIC, 0), (HIDDEN, REFUSED)]));

    let nothing_told = i32::MIN;
    let other = (OTHER_GROUP.to_owned(), NO_GROUP, nothing_told);
    assert_eq!(described(&mut worker).await, [other, (GROUP.to_owned(), 0, bits(&[Read, Describe]))]);
    world.allow(Delete, &ResourcePattern::group(GROUP)).await;
    let ask = async || described(&mut worker).await.remove(1).2;
    let rights = bits(&[Read, Delete, Describe]);
    assert_eq!(world.settled(ask, |found| *found == rights).await, rights);
    assert_eq!(delete(&mut worker).await, partly);
    assert_eq!(fetch(&mut world.admin, false).await, said(&[(HIDDEN, (7, 0))]));
    world.revoke_all().await;
}

async fn stage(connection: &mut Connection, (producer_id, epoch): (ProducerId, i16)) -> Said<i16> {
    use txn_offset_commit_request as asked;
    let topic = |topic| {
        let partition = asked::TxnOffsetCommitRequestPartition::default().with_committed_offset(11);
        asked::TxnOffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
    };
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(id())
        .with_producer_id(producer_id)
        .with_producer_epoch(epoch)
        .with_group_id(group())
        .with_generation_id(-1)
        .with_topics([HIDDEN, TOPIC].map(topic).to_vec());
    let answer = connection.call(request, 5).await;
    answer.topics.iter().map(|topic| (topic.name.to_string(), topic.partitions[0].error_code)).collect()
}

async fn transaction(world: &mut World) -> (String, usize) {
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
    let state = world.admin.call(request, 0).await.transaction_states.remove(0);
    (state.transaction_state.to_string(), state.topics.len())
}

/// Offsets in transactions: without the right to the group or to any topic no transaction begins.
async fn one_topic_of_two_in_a_transaction(world: &mut World) {
    let mut worker = world.worker().await;
    world.allow(Write, &ResourcePattern::transactional_id(ID)).await;
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id()))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let ask = async || worker.call(request.clone(), 4).await;
    let producer = world.settled(ask, |answer| answer.error_code == 0).await;
    assert_eq!(producer.error_code, 0);
    let producer = (producer.producer_id, producer.producer_epoch);
    let add = AddOffsetsToTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(producer.0)
        .with_producer_epoch(producer.1)
        .with_group_id(group());
    assert_eq!(worker.call(add, 4).await.error_code, NO_GROUP);
    assert_eq!(stage(&mut worker, producer).await, said(&[(HIDDEN, NO_GROUP), (TOPIC, NO_GROUP)]));
    world.allow(Read, &ResourcePattern::group(GROUP)).await;
    let none = said(&[(HIDDEN, REFUSED), (TOPIC, REFUSED)]);
    assert_eq!(
        world.settled(async || stage(&mut worker, producer).await, |found| *found == none).await,
        none
    );
    assert_eq!(transaction(world).await, ("Empty".to_owned(), 0), "nothing has begun");

    world.allow(Read, &ResourcePattern::topic(TOPIC)).await;
    let partly = said(&[(HIDDEN, REFUSED), (TOPIC, 0)]);
    let ask = async || stage(&mut worker, producer).await;
    assert_eq!(world.settled(ask, |found| *found == partly).await, partly);
    assert_eq!(transaction(world).await, ("Ongoing".to_owned(), 1));
    let end = EndTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(producer.0)
        .with_producer_epoch(producer.1)
        .with_committed(true);
    assert_eq!(worker.call(end, 5).await.error_code, 0);
    let all = said(&[(HIDDEN, (7, 0)), (TOPIC, (11, 0))]);
    for _ in 0..200 {
        if fetch(&mut world.admin, false).await == all {
            break;
        }
        // The marker is under way.
        world.env.clock.sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(fetch(&mut world.admin, false).await, all);
    world.revoke_all().await;
}

pub(crate) async fn offsets_are_checked_topic_by_topic(world: &mut World) {
    begin(world).await;
    one_topic_of_two(world).await;
    one_topic_of_two_in_a_transaction(world).await;
}

#[tokio::test]
async fn rights_to_one_topic_keep_and_tell_offsets_of_that_topic_only() {
    let mut world = World::embedded().await;
    offsets_are_checked_topic_by_topic(&mut world).await;
    world.shutdown().await;
}
