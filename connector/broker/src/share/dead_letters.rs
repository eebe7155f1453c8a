//! The broker's dead letters (KIP-1191), as Apache Kafka 4.4 writes them: a record for each given-up offset, in the
//! partition of the dead letter topic that has the source partition's number (modulo its partitions), with the source
//! in its headers and, if the group asks for it, the original key and value.
//!
//! The record's state is durably `archiving` before the letter is written and `archived` after it, so that an end in
//! between leaves a second letter and never none. A topic that cannot be written to, after a bounded number of tries,
//! costs the letter: the records are archived as without the topic, with a warning that names them. Kafka does the
//! same; a share partition that stands still for ever would be the alternative.
//!
//! `share.version` 2 is the gate of new decisions alone. What is archiving when the level falls gets its letter all the
//! same: at its leader at once, or when it is loaded next, as after any other end of a leader (ADR 0014).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use sharestream_base::TaskKind;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use tracing::warn;

use super::durable::OffsetRange;
use super::leader::{LeaderWrite, ShareLeader};
use super::share_partition::letters::DueLetters;
use crate::error::ErrorCode;
use crate::group::config::GroupSettings;
use crate::log::Isolation;
use crate::node::Node;
use crate::topics::NewTopic;

/// Topic setting that allows letters.
const ENABLE: &str = "errors.deadletterqueue.group.enable";
const PRODUCE_VERSION: i16 = 9;
const ALL_REPLICAS: i16 = -1;
const PRODUCE_TIMEOUT_MS: i32 = 5_000;
/// Letters in one batch.
const LETTERS_PER_BATCH: i64 = 500;
/// Attempts at one batch, further and further apart.
const ATTEMPTS_MAX: u32 = 6;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Bytes that one read of original records takes.
const READ_BYTES: usize = 1024 * 1024;

/// Key and value of an original record.
type Original = (Option<Bytes>, Option<Bytes>);

/// Writes letters, then notes that their records are archived. Ends with the node; whoever leads next begins again.
pub(super) fn write_in_background(node: &Arc<Node>, leader: Arc<ShareLeader>, due: DueLetters) {
    let owner = Arc::clone(node);
    node.spawn("dead-letters", TaskKind::Connection, async move {
        for (range, delivery_count) in &due.runs {
            let mut first = range.first;
            while first <= range.last {
                let last = range.last.min(Offset(first.0 + LETTERS_PER_BATCH - 1));
                let part = OffsetRange { first, last };
                match write_batch(&owner, &leader, part, *delivery_count).await {
                    Ok(()) => owner.metrics.letters_written(part.count()),
                    Err(why) => {
                        owner.metrics.letters_failed(part.count());
                        warn!(share_partition = %leader.key, range = %part, why, "records are archived without a dead letter");
                    }
                }
                first = last.next();
            }
        }
        if let Ok(Some(pending)) = leader.with(|partition| partition.letters_done(&due)) {
            owner.share.manager.finish(&owner, &[(leader, LeaderWrite::Runs(pending))]).await;
        }
    });
}

/// One batch of letters. On `Err` it says why there are none.
async fn write_batch(
    node: &Node,
    leader: &ShareLeader,
    range: OffsetRange,
    delivery_count: u16,
) -> Result<(), String> {
    let group = &leader.key.group;
    let settings = node.cluster.group_settings(group);
    // Whatever level is finalized by now: the letter was promised when the records were given up.
    let name = node.cluster.group_configs.dead_letter_topic(group);
    let name = name.ok_or("the group has no dead letter topic any more")?;
    check_name(node, &name)?;
    let partitions = topic_of(node, &name)?;
    let index = PartitionIndex(leader.key.partition.0 % partitions);
    let records = letters(node, leader, &settings, range, delivery_count)?;
    let data = PartitionProduceData::default().with_index(index.0).with_records(Some(records));
    let topic =
        TopicProduceData::default().with_name(TopicName(name.clone().into())).with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(ALL_REPLICAS)
        .with_timeout_ms(PRODUCE_TIMEOUT_MS)
        .with_topic_data(vec![topic]);
    let mut backoff = BACKOFF_FIRST;
    let mut attempt = 1;
    loop {
        let code = match produce(node, &name, index, request.clone()).await {
            Ok(()) => return Ok(()),
            Err(code) => code,
        };
        if !code.is_retriable() || attempt == ATTEMPTS_MAX {
            return Err(format!("{name}-{index} was not written: {code}"));
        }
        node.env.clock.sleep(backoff).await;
        (attempt, backoff) = (attempt + 1, backoff * 2);
    }
}

async fn produce(
    node: &Node,
    topic: &str,
    index: PartitionIndex,
    request: ProduceRequest,
) -> Result<(), ErrorCode> {
    let leader = node.cluster.leader_of(topic, index).ok_or(ErrorCode::LeaderNotAvailable)?;
    let answer = node.peers.call(leader, request, PRODUCE_VERSION).await.map_err(|error| error.code())?;
    let partition = answer.responses.iter().flat_map(|topic| &topic.partition_responses).next();
    let partition = partition.ok_or(ErrorCode::UnknownServerError)?;
    ErrorCode::try_from_code(partition.error_code).map_or(Ok(()), Err)
}

fn check_name(node: &Node, name: &str) -> Result<(), String> {
    let prefix = &node.config.dead_letter_topic_prefix;
    if name.starts_with("__") || !name.starts_with(prefix.as_str()) {
        return Err(format!("topic {name} does not begin with '{prefix}'"));
    }
    Ok(())
}

/// How many partitions the topic has; it is created if need be and allowed.
fn topic_of(node: &Node, name: &str) -> Result<i32, String> {
    if node.cluster.topics.by_name(name).is_none() {
        if !node.config.dead_letter_auto_create_topics {
            return Err(format!("topic {name} does not exist and is not created"));
        }
        let configs = BTreeMap::from([(ENABLE.to_owned(), "true".to_owned())]);
        let new = NewTopic { name: name.to_owned(), partitions: node.config.default_partitions, configs };
        match node.cluster.create_topic(new, &node.config) {
            Ok(_) | Err(ErrorCode::TopicAlreadyExists) => {}
            Err(code) => return Err(format!("topic {name} was not created: {code}")),
        }
    }
    let topic = node.cluster.topics.by_name(name).ok_or_else(|| format!("topic {name} is gone"))?;
    if topic.configs().get(ENABLE).is_none_or(|value| value != "true") {
        return Err(format!("topic {name} does not allow it: set {ENABLE}=true"));
    }
    Ok(topic.partition_count())
}

fn letters(
    node: &Node,
    leader: &ShareLeader,
    settings: &GroupSettings,
    range: OffsetRange,
    delivery_count: u16,
) -> Result<Bytes, String> {
    let originals = if settings.dead_letters_copy { originals(leader, range) } else { BTreeMap::new() };
    let topic = node.cluster.topics.by_id(leader.key.topic_id);
    let topic = topic.map_or_else(|| leader.key.topic_id.to_string(), |topic| topic.name.to_string());
    let partition = leader.key.partition.to_string();
    let deliveries = delivery_count.to_string();
    let cause = if delivery_count >= settings.delivery_count_limit { AT_LIMIT } else { REJECTED };
    let now_ms = node.env.clock.wall_ms();
    let mut builder = BatchBuilder::new();
    for offset in range.first.0..=range.last.0 {
        let text = offset.to_string();
        let headers = [
            ("__dlq.errors.topic", topic.as_str()),
            ("__dlq.errors.partition", &partition),
            ("__dlq.errors.offset", &text),
            ("__dlq.errors.group", &leader.key.group),
            ("__dlq.errors.delivery.count", &deliveries),
            ("__dlq.errors.message", cause),
        ];
        let headers = headers.map(|(key, value)| (key.as_bytes(), Some(value.as_bytes())));
        let original = originals.get(&offset);
        let key = original.and_then(|(key, _)| key.as_deref());
        let value = original.and_then(|(_, value)| value.as_deref());
        builder.append(now_ms, key, value, &headers).map_err(|error| error.to_string())?;
    }
    builder.build(&BatchMeta::default()).map_err(|error| error.to_string())
}

/// What Kafka says of records that were rejected, and of those that were delivered too often. The cause is not kept
/// with a record; the count tells, as in Kafka after a restart.
const REJECTED: &str = "Offset rejected by client.";
const AT_LIMIT: &str = "Offset delivery count exceeded the threshold.";

/// Original records of a range, as far as the log still has them and they can be decoded.
fn originals(leader: &ShareLeader, range: OffsetRange) -> BTreeMap<i64, Original> {
    let mut found = BTreeMap::new();
    let mut from = range.first;
    while from <= range.last {
        let Ok(read) = leader.log.read(from, READ_BYTES, Isolation::ReadUncommitted) else { break };
        let Some(last) = read.batches.last() else { break };
        from = Offset(last.header.next_offset());
        for batch in read.batches.iter().filter(|batch| !batch.header.is_control()) {
            let Ok(records) = batch.records() else { continue };
            for record in records.iter().filter_map(Result::ok) {
                if (range.first.0..=range.last.0).contains(&record.offset) {
                    let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
                    found.insert(record.offset, (record.key.map(copy), record.value.map(copy)));
                }
            }
        }
    }
    found
}
