//! OffsetFetch: how far groups are. With `require_stable`, not while an open transaction may still change it (KIP-447).

use std::sync::Arc;

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};
use sharestream_base::ids::PartitionIndex;

use super::RequestContext;
use crate::error::{ErrorCode, code_of};
use crate::group::offsets::Fetched;
use crate::node::Node;
use crate::txn::TopicPartition;

/// From this version on several groups may be asked about.
const FIRST_BATCHED: i16 = 8;
/// From this version on an answer has a code for the whole.
const FIRST_WITH_CODE: i16 = 2;
/// From this version on answers name leader epochs.
const FIRST_WITH_EPOCH: i16 = 5;

/// Topics of a request with their partitions; none asks for everything.
type Topics = Option<Vec<(TopicName, Vec<i32>)>>;
/// The same with what was found.
type Found = Vec<(TopicName, Vec<(i32, Fetched)>)>;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let stable = request.require_stable;
    if context.version >= FIRST_BATCHED {
        let groups = request.groups.into_iter().map(|asked| fetch_group(node, asked, stable));
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    let asked: Topics = request
        .topics
        .map(|topics| topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect());
    let response = OffsetFetchResponse::default();
    let found = match fetch(node, &request.group_id, asked.clone(), stable) {
        Ok(found) => found,
        Err(code) if context.version >= FIRST_WITH_CODE => return response.with_error_code(code.code()),
        Err(code) => refused(asked, code),
    };
    let topics = found.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, fetched)| {
            let seen = Seen::of(fetched);
            let named = context.version >= FIRST_WITH_EPOCH;
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(seen.offset)
                .with_committed_leader_epoch(if named { seen.leader_epoch } else { -1 })
                .with_metadata(Some(seen.metadata.into()))
                .with_error_code(seen.code)
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
    });
    response.with_topics(topics.collect())
}

fn fetch_group(node: &Node, asked: OffsetFetchRequestGroup, stable: bool) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup::default().with_group_id(asked.group_id.clone());
    let topics: Topics = asked
        .topics
        .map(|topics| topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect());
    let found = match fetch(node, &asked.group_id, topics, stable) {
        Ok(found) => found,
        Err(code) => return response.with_error_code(code.code()),
    };
    let topics = found.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, fetched)| {
            let seen = Seen::of(fetched);
            OffsetFetchResponsePartitions::default()
                .with_partition_index(index)
                .with_committed_offset(seen.offset)
                .with_committed_leader_epoch(seen.leader_epoch)
                .with_metadata(Some(seen.metadata.into()))
                .with_error_code(seen.code)
        });
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
    });
    response.with_topics(topics.collect())
}

/// Errors: NOT_COORDINATOR.
fn fetch(node: &Node, group: &str, asked: Topics, stable: bool) -> Result<Found, ErrorCode> {
    let Some(asked) = asked else {
        let mut found = Found::new();
        for (partition, fetched) in node.offsets.fetch_all(node, group, stable)? {
            let name = TopicName(partition.topic.to_string().into());
            let one = (partition.partition.0, fetched);
            match found.last_mut().filter(|(known, _)| *known == name) {
                Some((_, partitions)) => partitions.push(one),
                None => found.push((name, vec![one])),
            }
        }
        return Ok(found);
    };
    let mut found = Found::new();
    for (name, indexes) in asked {
        let topic: Arc<str> = Arc::from(name.as_str());
        let of =
            |index: &i32| TopicPartition { topic: Arc::clone(&topic), partition: PartitionIndex(*index) };
        let partitions: Vec<TopicPartition> = indexes.iter().map(of).collect();
        let fetched = node.offsets.fetch(node, group, &partitions, stable)?;
        found.push((name, indexes.into_iter().zip(fetched).collect()));
    }
    Ok(found)
}

/// One code for everything that was asked.
fn refused(asked: Topics, code: ErrorCode) -> Found {
    let topics = asked.unwrap_or_default().into_iter();
    let topics =
        topics.map(|(name, indexes)| (name, indexes.into_iter().map(|index| (index, Err(code))).collect()));
    topics.collect()
}

/// What an answer says of a partition; -1 stands for an offset or an epoch that is not there.
struct Seen {
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    code: i16,
}

impl Seen {
    fn of(fetched: Fetched) -> Seen {
        match fetched {
            Ok(Some(value)) => Seen {
                offset: value.offset.0,
                leader_epoch: value.leader_epoch.0,
                metadata: value.metadata,
                code: 0,
            },
            nothing @ (Ok(None) | Err(_)) => {
                Seen { offset: -1, leader_epoch: -1, metadata: String::new(), code: code_of(&nothing) }
            }
        }
    }
}
