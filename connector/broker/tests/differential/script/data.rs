//! Topics, records, offsets.

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use uuid::Uuid;

use super::requests::*;
use crate::play::Play;

pub(crate) async fn play(p: &mut Play) {
    create_topics(p).await;
    let data = topic(p, "data", 2).await;
    metadata(p, &data).await;
    write(p, &data).await;
    write_in_sequence(p, &data).await;
    list(p, &data).await;
    read(p, &data).await;
    configs(p, &data).await;
    delete(p, &data).await;
}

async fn create_topics(p: &mut Play) {
    let fresh = p.name("created");
    let twice = p.name("twice");
    let kept: &[(&str, &str)] = &[("retention.ms", "-1")];
    let many: String = "x".repeat(250);
    let cases: Vec<(&str, Vec<create_topics_request::CreatableTopic>)> = vec![
        ("new", vec![create(&fresh, 3, 1, kept)]),
        ("there already", vec![create(&fresh, 3, 1, kept)]),
        ("with an invalid name", vec![create("no good!", 1, 1, &[])]),
        ("with an empty name", vec![create("", 1, 1, &[])]),
        ("called dot", vec![create(".", 1, 1, &[])]),
        ("with a name too long", vec![create(&many, 1, 1, &[])]),
        ("without partitions", vec![create(&p.name("none"), 0, 1, &[])]),
        ("with fewer than none", vec![create(&p.name("minus"), -2, 1, &[])]),
        ("with an unknown config", vec![create(&p.name("odd"), 1, 1, &[("no.such.config", "1")])]),
        ("with a config that is no number", vec![create(&p.name("odd"), 1, 1, &[("retention.ms", "soon")])]),
        ("twice in one request", vec![create(&twice, 1, 1, &[]), create(&twice, 1, 1, &[])]),
        ("of the broker", vec![create("__transaction_state", 1, 1, &[])]),
    ];
    for (what, topics) in cases {
        let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5_000);
        p.step(&format!("create a topic {what}"), request, 7).await;
    }
    for version in 2..=6 {
        let name = p.name(&format!("v{version}"));
        let request = CreateTopicsRequest::default().with_topics(vec![create(&name, 1, 1, kept)]);
        p.step(&format!("create a topic, version {version}"), request.with_timeout_ms(5_000), version).await;
    }
    let only_check = CreateTopicsRequest::default()
        .with_topics(vec![create(&p.name("unmade"), 1, 1, kept)])
        .with_validate_only(true)
        .with_timeout_ms(5_000);
    p.step("create a topic, only to check", only_check, 7).await;
}

async fn metadata(p: &mut Play, data: &Topic) {
    let by_name = |name: &str| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    let by_id = |id: Uuid| MetadataRequestTopic::default().with_topic_id(id).with_name(None);
    let ask =
        |topics| MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false);
    for version in 4..=13 {
        let answer = p.call(&ask(vec![by_name(&data.name)]), version).await;
        let sorted = answer.map(|mut answer| {
            answer.topics[0].partitions.sort_by_key(|partition| partition.partition_index);
            answer
        });
        let name = format!("metadata by name, version {version}");
        p.note(&name, sorted.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
    }
    let unknown = p.name("unknown");
    p.step("metadata of an unknown name", ask(vec![by_name(&unknown)]), 12).await;
    p.step("metadata of an invalid name", ask(vec![by_name("no good!")]), 12).await;
    p.step("metadata of no topic", ask(Vec::new()), 12).await;
    let ids = ask(vec![by_id(Uuid::from_u128(7))]);
    p.step("metadata of an unknown id", ids, 12).await;
}

async fn write(p: &mut Play, data: &Topic) {
    for version in 3..=12 {
        let values = [format!("a{version}"), format!("b{version}")];
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let request = produce(None, &data.name, 0, Some(batch(p.base_ms, NEW, -1, false, &values)), -1);
        p.settled(&format!("produce, version {version}"), request, version).await;
    }
    let base_ms = p.base_ms;
    let one = || Some(batch(base_ms, NEW, -1, false, &["x"]));
    let mut damaged = batch(p.base_ms, NEW, -1, false, &["x"]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let unknown = p.name("unknown");
    let cases = [
        ("to an unknown topic", produce(None, &unknown, 0, one(), -1)),
        ("to an unknown partition", produce(None, &data.name, 9, one(), -1)),
        ("to partition -1", produce(None, &data.name, -1, one(), -1)),
        ("with acks 2", produce(None, &data.name, 0, one(), 2)),
        ("with acks 1", produce(None, &data.name, 0, one(), 1)),
        ("of a damaged batch", produce(None, &data.name, 0, Some(Bytes::from(damaged)), -1)),
        ("to a topic of the broker", produce(None, "__transaction_state", 0, one(), -1)),
        (
            "in a transaction without one",
            produce(
                None,
                &data.name,
                0,
                Some(batch(p.base_ms, Producer { id: 1, epoch: 0 }, 0, true, &["x"])),
                -1,
            ),
        ),
    ];
    for (what, request) in cases {
        p.step(&format!("produce {what}"), request, 9).await;
    }
}

async fn write_in_sequence(p: &mut Play, data: &Topic) {
    let answer = p.settled("init without a transactional id", init(None, NEW, 60_000), 5).await.unwrap();
    let producer = Producer { id: answer.producer_id.0, epoch: answer.producer_epoch };
    let next = Producer { epoch: 1, ..producer };
    let steps = [
        ("the first", producer, 0, 2),
        ("the first again", producer, 0, 2),
        ("the second", producer, 2, 2),
        ("one after a gap", producer, 9, 1),
        ("the first again, later", producer, 0, 2),
        ("half of the second", producer, 3, 1),
        ("the next epoch not from 0", next, 5, 1),
        ("the next epoch", next, 0, 1),
        ("the epoch before", producer, 4, 1),
    ];
    for (what, who, sequence, count) in steps {
        let values = ["s", "t"];
        let records = batch(p.base_ms, who, sequence, false, &values[..count]);
        let request = produce(None, &data.name, 1, Some(records), -1);
        p.step(&format!("produce in sequence: {what}"), request, 9).await;
    }
    producers(p, "producers of a partition", &data.name, &[1]).await;
    producers(p, "producers of an unknown partition", &data.name, &[7]).await;
    for version in 0..=5 {
        let request = match version {
            3.. => init(None, NEW, 60_000),
            _ => InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(60_000),
        };
        p.settled(&format!("init without a transactional id, version {version}"), request, version).await;
    }
}

async fn list(p: &mut Play, data: &Topic) {
    for version in 1..=10 {
        let isolation = if version >= 2 { READ_COMMITTED } else { READ_UNCOMMITTED };
        let request = list_offsets(&data.name, 0, -1, isolation);
        p.step(&format!("list offsets: latest, version {version}"), request, version).await;
    }
    let times = [
        ("earliest", -2),
        ("of the highest timestamp", -3),
        ("earliest local", -4),
        ("latest tiered", -5),
        ("at the first", p.base_ms),
        ("at the second", p.base_ms + 1),
        ("at 0", 0),
        ("in the future", 5_000_000_000_000),
    ];
    for (what, timestamp) in times {
        let request = list_offsets(&data.name, 0, timestamp, READ_UNCOMMITTED);
        p.step(&format!("list offsets: {what}"), request, 9).await;
    }
    let unknown = p.name("unknown");
    p.step("list offsets of an unknown partition", list_offsets(&data.name, 9, -1, 0), 9).await;
    p.step("list offsets of an unknown topic", list_offsets(&unknown, 0, -1, 0), 9).await;
    p.step("list offsets of an unknown time", list_offsets(&data.name, 0, -99, 0), 9).await;
}

async fn read(p: &mut Play, data: &Topic) {
    for version in 4..=16 {
        let request = fetch(version, data, (0, 0), READ_UNCOMMITTED, -1);
        p.fetch(&format!("fetch, version {version}"), request, version).await;
    }
    let nowhere = Topic { name: p.name("unknown"), id: Uuid::from_u128(9) };
    let cases = [
        ("from the middle of a batch", data, (0, 3), -1),
        ("from the end", data, (0, 21), -1),
        ("from beyond the end", data, (0, 1_000), -1),
        ("from a negative offset", data, (0, -5), -1),
        ("with the leader epoch", data, (0, 0), 0),
        ("with a leader epoch of the future", data, (0, 0), 99),
        ("of an unknown partition", data, (9, 0), -1),
        ("of an unknown topic", &nowhere, (0, 0), -1),
    ];
    for (what, topic, place, leader_epoch) in cases {
        for version in [12, 16] {
            let request = fetch(version, topic, place, READ_UNCOMMITTED, leader_epoch);
            p.fetch(&format!("fetch {what}, version {version}"), request, version).await;
        }
    }
    let request = fetch(12, data, (1, 0), READ_COMMITTED, -1);
    p.fetch("fetch what an idempotent producer wrote", request, 12).await;
    let request = fetch(12, data, (0, 0), READ_UNCOMMITTED, -1).with_session_id(77).with_session_epoch(3);
    p.fetch("fetch in a session that nobody knows", request, 12).await;
}

async fn configs(p: &mut Play, data: &Topic) {
    let unknown = p.name("unknown");
    let alter = |name: &str, configs: &[(&str, Option<&str>)]| alter_configs(TOPIC_RESOURCE, name, configs);
    let steps = [
        ("set", alter(&data.name, &[("retention.bytes", Some("1000000"))])),
        ("to no number", alter(&data.name, &[("retention.bytes", Some("much"))])),
        ("unknown", alter(&data.name, &[("no.such.config", Some("1"))])),
        ("of an unknown topic", alter(&unknown, &[("retention.bytes", Some("1"))])),
    ];
    for (what, request) in steps {
        p.step(&format!("alter a topic config: {what}"), request, 1).await;
    }
    p.settings_arrive().await;
    for (what, name) in
        [("set", "retention.bytes"), ("default", "cleanup.policy"), ("unknown", "no.such.config")]
    {
        let request = describe_configs(TOPIC_RESOURCE, &data.name, Some(&[name]));
        p.step(&format!("describe a topic config: {what}"), request, 4).await;
    }
    let back = alter(&data.name, &[("retention.bytes", None)]);
    p.step("alter a topic config: back to the default", back, 1).await;
    p.settings_arrive().await;
    let request = describe_configs(TOPIC_RESOURCE, &data.name, Some(&["retention.bytes"]));
    p.step("describe a topic config: default again", request, 4).await;
    let request = describe_configs(TOPIC_RESOURCE, &unknown, Some(&["retention.bytes"]));
    p.step("describe a config of an unknown topic", request, 4).await;
}

async fn delete(p: &mut Play, data: &Topic) {
    let cases = [
        ("up to 4", 0, 4),
        ("up to 2, which is less", 0, 2),
        ("beyond the end", 0, 1_000),
        ("below 0", 0, -7),
        ("up to the end", 0, -1),
        ("of an unknown partition", 9, 0),
    ];
    for (what, partition, offset) in cases {
        let partition = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
        let topic =
            DeleteRecordsTopic::default().with_name(topic_name(&data.name)).with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
        p.step(&format!("delete records {what}"), request, 2).await;
    }
    p.step("list offsets after deletion", list_offsets(&data.name, 0, -2, 0), 9).await;
    p.fetch("fetch what was deleted", fetch(12, data, (0, 0), READ_UNCOMMITTED, -1), 12).await;
    let names = [("one that is there", p.name("created")), ("an unknown one", p.name("unknown"))];
    for (what, name) in names {
        let topic = DeleteTopicState::default().with_name(Some(topic_name(&name)));
        let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
        p.step(&format!("delete a topic: {what}"), request, 6).await;
    }
    let topic = DeleteTopicState::default().with_name(None).with_topic_id(Uuid::from_u128(5));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
    p.step("delete a topic: an unknown id", request, 6).await;
}
