//! Fetch: whole batches from the log, at both isolation levels; waits on the partitions when there is too little.
//!
//! No fetch sessions are kept: every answer carries session id 0, which tells a client to send full requests
//! (KIP-227). A request within a session that we cannot know is answered FETCH_SESSION_ID_NOT_FOUND.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{FutureExt, select_all};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{self, BrokerId, FetchRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use sharestream_base::watch;

use super::RequestContext;
use crate::error::ErrorCode;
use crate::log::{Isolation, Led, LogEnds, ReadInfo};
use crate::node::Node;

/// From this version on topics are named by id.
const FIRST_VERSION_BY_ID: i16 = 13;
/// The epoch of a request outside sessions, and of one that would begin a session.
const EPOCHS_WITHOUT_SESSION: [i32; 2] = [-1, 0];

/// One asked partition and what there is to say of it.
struct Asked {
    topic: usize,
    index: i32,
    offset: Offset,
    bytes_max: usize,
    partition: Result<Led, ErrorCode>,
    read: Option<Result<ReadInfo, ErrorCode>>,
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    if request.session_id != 0 || !EPOCHS_WITHOUT_SESSION.contains(&request.session_epoch) {
        return FetchResponse::default().with_error_code(ErrorCode::FetchSessionIdNotFound.code());
    }
    let isolation = Isolation::from_wire(request.isolation_level);
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(node.config.fetch_bytes_max);
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = node.env.clock.now() + wait;
    let mut asked = resolve(node, context, &request.topics);
    // Subscribed before the read, so that what is appended after it is noticed.
    let mut watches: Vec<watch::Receiver<LogEnds>> = asked
        .iter()
        .filter_map(|one| one.partition.as_ref().ok())
        .map(|partition| partition.watch())
        .collect();
    loop {
        watches.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let found = read_all(&mut asked, bytes_max, isolation);
        let failed = asked.iter().any(|one| one.partition.is_err() || matches!(one.read, Some(Err(_))));
        if found >= bytes_min || failed || watches.is_empty() {
            break;
        }
        let changed = select_all(watches.iter_mut().map(|watch| watch.changed().boxed()));
        tokio::select! {
            biased;
            () = context.closed.cancelled() => break,
            () = node.env.clock.sleep_until(deadline) => break,
            _changed = changed => {}
        }
    }
    respond(context.version, isolation, request.topics, asked)
}

fn resolve(node: &Node, context: &RequestContext, topics: &[FetchTopic]) -> Vec<Asked> {
    let mut asked = Vec::new();
    for (topic_place, topic) in topics.iter().enumerate() {
        let by_id = context.version >= FIRST_VERSION_BY_ID;
        let id = TopicId(topic.topic_id);
        let allowed = if by_id { context.may_topic_id(node, id) } else { context.may.topic(&topic.topic) };
        for one in &topic.partitions {
            let index = PartitionIndex(one.partition);
            let led = || if by_id { node.led_by_id(id, index) } else { node.led(&topic.topic, index) };
            let partition = allowed.and_then(|()| led()).and_then(|partition| check_epoch(one, partition));
            asked.push(Asked {
                topic: topic_place,
                index: one.partition,
                offset: Offset(one.fetch_offset),
                bytes_max: usize::try_from(one.partition_max_bytes).unwrap_or(0),
                partition,
                read: None,
            });
        }
    }
    asked
}

fn check_epoch(asked: &FetchPartition, partition: Led) -> Result<Led, ErrorCode> {
    partition.check_known_epoch(LeaderEpoch(asked.current_leader_epoch)).map(|()| partition)
}

/// Reads every partition, within the limit of all; gives the bytes found. The first batch of an answer may be larger
/// than any limit, else its reader would never get past it.
fn read_all(asked: &mut [Asked], bytes_max: usize, isolation: Isolation) -> usize {
    let mut found = 0;
    for one in asked {
        let Ok(partition) = &one.partition else { continue };
        // Once the limit is used up, a read of nothing still tells the log's ends.
        let left = bytes_max.saturating_sub(found).min(one.bytes_max);
        let mut read = partition.read(one.offset, left, isolation);
        if let Ok(read) = &mut read {
            let bytes = read.bytes_len();
            if found > 0 && bytes > left {
                read.batches.clear();
                read.aborted.clear();
            } else {
                found += bytes;
            }
        }
        one.read = Some(read);
    }
    found
}

fn respond(version: i16, isolation: Isolation, topics: Vec<FetchTopic>, asked: Vec<Asked>) -> FetchResponse {
    let mut responses: Vec<_> = topics
        .into_iter()
        .map(|topic| {
            let named = if version >= FIRST_VERSION_BY_ID {
                TopicName(StrBytes::from_static_str(""))
            } else {
                topic.topic
            };
            FetchableTopicResponse::default().with_topic(named).with_topic_id(topic.topic_id)
        })
        .collect();
    for one in asked {
        let place = one.topic;
        let data = partition_data(one, isolation);
        responses[place].partitions.push(data);
    }
    FetchResponse::default().with_responses(responses)
}

/// Only those who read committed are told of aborted transactions; others get null.
fn partition_data(one: Asked, isolation: Isolation) -> PartitionData {
    let data = PartitionData::default()
        .with_partition_index(one.index)
        .with_preferred_read_replica(BrokerId(-1))
        .with_aborted_transactions(None);
    let read = match (one.partition, one.read) {
        (Err(code), _) | (Ok(_), Some(Err(code))) => Err(code),
        (Ok(_), Some(Ok(read))) => Ok(read),
        (Ok(_), None) => Err(ErrorCode::UnknownServerError),
    };
    match read {
        Ok(read) => {
            let aborted = read.aborted.iter().map(|aborted| {
                AbortedTransaction::default()
                    .with_producer_id(messages::ProducerId(aborted.producer_id.0))
                    .with_first_offset(aborted.first_offset.0)
            });
            let told = isolation == Isolation::ReadCommitted;
            data.with_high_watermark(read.ends.high_watermark.0)
                .with_last_stable_offset(read.ends.last_stable_offset.0)
                .with_log_start_offset(read.ends.log_start.0)
                .with_aborted_transactions(told.then(|| aborted.collect()))
                .with_records(Some(read.records()))
        }
        Err(code) => data
            .with_error_code(code.code())
            .with_high_watermark(-1)
            .with_last_stable_offset(-1)
            .with_log_start_offset(-1)
            .with_records(Some(bytes::Bytes::new())),
    }
}
