//! ListOffsets: first, last, by time.

use std::sync::Arc;

use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::log::{Isolation, TimestampOffset, TimestampQuery};
use crate::node::Node;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The record with the latest timestamp (KIP-734).
const MAX_TIMESTAMP: i64 = -3;
/// The same as earliest where nothing is tiered (KIP-405).
const EARLIEST_LOCAL: i64 = -4;
/// Of tiered records only: there are none (KIP-1005, KIP-1023).
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// What there is to say of one partition.
struct Found {
    at: TimestampOffset,
    leader_epoch: LeaderEpoch,
}

/// From this version on answers name the leader epoch; earlier ones have no place for it.
const FIRST_VERSION_WITH_EPOCH: i16 = 4;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = Isolation::from_wire(request.isolation_level);
    let topics = request.topics.into_iter().map(|topic| {
        let allowed = context.may.topic(&topic.name);
        let partitions = topic.partitions.iter().map(|asked| {
            let index = PartitionIndex(asked.partition_index);
            let response = ListOffsetsPartitionResponse::default().with_partition_index(index.0);
            let found =
                allowed.and_then(|()| find(node, topic.name.as_str(), index, asked.timestamp, isolation));
            match found {
                Ok(found) => {
                    let response =
                        response.with_timestamp(found.at.timestamp_ms).with_offset(found.at.offset.0);
                    let named = context.version >= FIRST_VERSION_WITH_EPOCH && found.at.offset.0 >= 0;
                    if named { response.with_leader_epoch(found.leader_epoch.0) } else { response }
                }
                Err(code) => response.with_error_code(code.code()).with_timestamp(-1).with_offset(-1),
            }
        });
        ListOffsetsTopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn find(
    node: &Node,
    topic: &str,
    index: PartitionIndex,
    timestamp: i64,
    isolation: Isolation,
) -> Result<Found, ErrorCode> {
    let partition = node.led(topic, index)?;
    let ends = partition.ends();
    let place = |offset| Some(TimestampOffset { timestamp_ms: -1, offset });
    let found = match timestamp {
        LATEST => place(ends.readable_end(isolation)),
        EARLIEST | EARLIEST_LOCAL => place(ends.log_start),
        MAX_TIMESTAMP => partition.find_by_time(TimestampQuery::Latest)?,
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        timestamp_ms if timestamp_ms >= 0 => {
            let found = partition.find_by_time(TimestampQuery::AtOrAfter(timestamp_ms))?;
            found.filter(|found| found.offset < ends.readable_end(isolation))
        }
        _unknown => return Err(ErrorCode::UnsupportedVersion),
    };
    // Nothing found is no error: timestamp and offset are -1.
    let at = found.unwrap_or(TimestampOffset { timestamp_ms: -1, offset: Offset(-1) });
    Ok(Found { at, leader_epoch: partition.epoch() })
}
