//! Start offsets of share groups, as an administrator sees and sets them.

use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::{AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest, GroupId};
use sharestream_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, RequestGroup, RequestTopic,
};

use super::membership::{heartbeat, join};
use super::requests::*;
use crate::play::Play;

pub(crate) fn describe(group: &str, topics: Option<&[(&str, &[i32])]>) -> DescribeShareGroupOffsetsRequest {
    let topics = topics.map(|topics| {
        let topic = |(name, partitions): &(&str, &[i32])| RequestTopic {
            topic_name: text(name),
            partitions: partitions.to_vec(),
        };
        topics.iter().map(topic).collect()
    });
    DescribeShareGroupOffsetsRequest { groups: vec![RequestGroup { group_id: text(group), topics }] }
}

pub(crate) fn alter(group: &str, topic: &str, offsets: &[(i32, i64)]) -> AlterShareGroupOffsetsRequest {
    let partitions = offsets.iter().map(|(partition, offset)| {
        AlterShareGroupOffsetsRequestPartition::default()
            .with_partition_index(*partition)
            .with_start_offset(*offset)
    });
    let topic = AlterShareGroupOffsetsRequestTopic::default()
        .with_topic_name(topic_name(topic))
        .with_partitions(partitions.collect());
    AlterShareGroupOffsetsRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
}

pub(crate) fn delete(group: &str, topic: &str) -> DeleteShareGroupOffsetsRequest {
    let topic = DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(topic_name(topic));
    DeleteShareGroupOffsetsRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
}

fn start_is(offset: i64) -> impl Fn(&DescribeShareGroupOffsetsResponse) -> bool {
    move |answer| {
        let partitions = answer.groups[0].topics.iter().flat_map(|topic| &topic.partitions);
        partitions.clone().count() > 0 && partitions.clone().all(|partition| partition.start_offset == offset)
    }
}

pub(crate) async fn play(p: &mut Play) {
    let source = topic(p, "offsets", 1).await;
    let request =
        produce(None, &source.name, 0, Some(batch(p.base_ms, NEW, -1, false, &["a", "b", "c"])), -1);
    p.quietly_until(&request, 9, |_| true).await.unwrap();
    let (group, stranger, unknown) = (p.name("offsets"), p.name("stranger"), p.name("unknown"));
    let one: &[i32] = &[0];
    p.settled("offsets of an unknown group", describe(&stranger, Some(&[(&source.name, one)])), 0).await;
    p.settled("all offsets of an unknown group", describe(&stranger, None), 0).await;
    p.settled("set offsets of an unknown group", alter(&stranger, &source.name, &[(0, 1)]), 0).await;
    p.settled("delete offsets of an unknown group", delete(&p.name("nobody"), &source.name), 0).await;
    p.settled("offsets of a group without a name", describe("", None), 0).await;

    let configs = [("share.auto.offset.reset", Some("earliest"))];
    p.call(&alter_configs(GROUP_RESOURCE, &group, &configs), 1).await.unwrap();
    join(p, &group, "alice", &[&source.name]).await;
    p.settled("set offsets of a group in use", alter(&group, &source.name, &[(0, 1)]), 0).await;
    p.settled("delete offsets of a group in use", delete(&group, &source.name), 0).await;
    let topics: &[(&str, &[i32])] = &[(&source.name, one)];
    p.settled("offsets of a group that has not fetched", describe(&group, Some(topics)), 0).await;
    p.settled("offsets of an unknown topic", describe(&group, Some(&[(&unknown, one)])), 0).await;
    p.settled("offsets of an unknown partition", describe(&group, Some(&[(&source.name, &[9])])), 0).await;
    p.settled("offsets of no topics", describe(&group, Some(&[])), 0).await;
    p.settled("the member of the offsets leaves", heartbeat(&group, "alice", -1, None), 1).await;

    p.settled("set an offset", alter(&group, &source.name, &[(0, 2)]), 0).await;
    p.until("the offset is set", describe(&group, Some(topics)), 0, start_is(2)).await;
    p.until("all offsets", describe(&group, None), 0, start_is(2)).await;
    p.settled("set a negative offset", alter(&group, &source.name, &[(0, -4)]), 0).await;
    p.settled("set an offset beyond the end", alter(&group, &source.name, &[(0, 1_000)]), 0).await;
    p.settled("set an offset of an unknown partition", alter(&group, &source.name, &[(9, 0)]), 0).await;
    p.settled("set an offset of an unknown topic", alter(&group, &unknown, &[(0, 0)]), 0).await;
    p.settled("set an offset again", alter(&group, &source.name, &[(0, 1)]), 0).await;
    p.until("the offset is set again", describe(&group, Some(topics)), 0, start_is(1)).await;
    p.settled("delete offsets of an unknown topic", delete(&group, &unknown), 0).await;
    p.settled("delete offsets", delete(&group, &source.name), 0).await;
    p.until("offsets are deleted", describe(&group, Some(topics)), 0, start_is(-1)).await;
    p.settled("all offsets after deletion", describe(&group, None), 0).await;
    p.settled("delete offsets again", delete(&group, &source.name), 0).await;
}
