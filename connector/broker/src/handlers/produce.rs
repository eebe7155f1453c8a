//! Produce: appends batches of idempotent and transactional producers (KIP-98, KIP-890).
//!
//! The first batch of a transaction on a partition needs the coordinator's word. Under transaction version 2
//! (Produce version 12) this leader adds the partition to the transaction itself, under version 1 it verifies that
//! the client has. One request to the coordinator covers all partitions of a Produce request.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};
use sharestream_wire::records::{self, RawBatch};

use super::RequestContext;
use super::participation::{self, Place, Question};
use crate::error::ErrorCode;
use crate::log::{AppendInfo, Led, Origin, TransactionVersion, VerificationGuard};
use crate::node::Node;
use crate::txn::Identity;

/// From this version on leaders add partitions to transactions.
const FIRST_VERSION_2: i16 = 12;
/// From this version on clients know TRANSACTION_ABORTABLE.
const VERSION_WITH_ABORTABLE: i16 = 11;

/// The right to write to each partition of a request, as it was when the request came. A leadership that moves away
/// and back while the coordinator is asked ends the request: what was verified for the earlier one does not count.
type Rights = BTreeMap<Place, Result<Led, ErrorCode>>;
/// What the coordinator said of each partition that it was asked about.
type Verified = BTreeMap<Place, Result<VerificationGuard, ErrorCode>>;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ProduceRequest,
) -> ProduceResponse {
    let version = version_of(context.version);
    let refused = refusal(context, &request);
    let rights = rights(node, context, &request);
    let verified = match &request.transactional_id {
        Some(id) if refused.is_none() => verify(node, context.version, id, &request, &rights).await,
        Some(_) | None => Verified::new(),
    };
    let responses = request.topic_data.into_iter().map(|topic| {
        let name = topic.name;
        let partitions = topic.partition_data.into_iter().map(|data| {
            let place = (name.clone(), data.index);
            let appended = match refused {
                Some(code) => Err(code),
                None => append(&place, data, version, &rights, &verified),
            };
            // Where the log starts is told with refusals that come from it, not with the coordinator's.
            let looked = refused.is_none() && !matches!(verified.get(&place), Some(Err(_)));
            let log_start = match rights.get(&place) {
                Some(Ok(led)) if looked => led.ends().log_start.0,
                Some(_) | None => -1,
            };
            describe(place.1, appended, log_start)
        });
        TopicProduceResponse::default().with_partition_responses(partitions.collect()).with_name(name.clone())
    });
    ProduceResponse::default().with_responses(responses.collect())
}

/// Why nothing of a request is written.
fn refusal(context: &RequestContext, request: &ProduceRequest) -> Option<ErrorCode> {
    if !matches!(request.acks, -1..=1) {
        return Some(ErrorCode::InvalidRequiredAcks);
    }
    let mut blobs = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let transactional = blobs.any(|data| {
        let batch = data.records.as_ref().and_then(first_batch);
        batch.is_some_and(|batch| batch.header.is_transactional())
    });
    if !transactional {
        return None;
    }
    match &request.transactional_id {
        Some(id) => context.may.transactional_id(id).err(),
        // Kafka takes a batch of nobody's transaction for one of somebody else's.
        None => Some(ErrorCode::TransactionalIdAuthorizationFailed),
    }
}

fn append(
    place: &Place,
    data: PartitionProduceData,
    version: TransactionVersion,
    rights: &Rights,
    verified: &Verified,
) -> Result<AppendInfo, ErrorCode> {
    let led = rights.get(place).ok_or(ErrorCode::UnknownServerError)?.as_ref().map_err(|code| *code)?;
    let guard = match verified.get(place) {
        Some(Ok(guard)) => Some(*guard),
        Some(Err(code)) => return Err(*code),
        None => None,
    };
    let blob = data.records.unwrap_or_default();
    led.append(&blob, Origin::Client { guard, version })
}

fn rights(node: &Node, context: &RequestContext, request: &ProduceRequest) -> Rights {
    let mut rights = Rights::new();
    for topic in &request.topic_data {
        let allowed = context.may.topic(&topic.name);
        for data in &topic.partition_data {
            let led = allowed.and_then(|()| writable(node, &topic.name, data.index));
            rights.insert((topic.name.clone(), data.index), led);
        }
    }
    rights
}

/// Rules that a transaction follows, by the version of the request.
fn version_of(api_version: i16) -> TransactionVersion {
    if api_version >= FIRST_VERSION_2 { TransactionVersion::V2 } else { TransactionVersion::V1 }
}

/// The broker's own topics are written by the broker only.
fn writable(node: &Node, topic: &TopicName, index: i32) -> Result<Led, ErrorCode> {
    let partition = node.led(topic, PartitionIndex(index))?;
    let internal = node.cluster.topics.by_name(topic).is_some_and(|topic| topic.internal);
    if internal { Err(ErrorCode::InvalidTopicException) } else { Ok(partition) }
}

/// Asks the coordinator about every partition whose batch is the first of its transaction there.
async fn verify(
    node: &Node,
    api_version: i16,
    transactional_id: &TransactionalId,
    request: &ProduceRequest,
    rights: &Rights,
) -> Verified {
    let mut guards = BTreeMap::new();
    let mut identity = None;
    let mut topics: BTreeMap<TopicName, Vec<i32>> = BTreeMap::new();
    for topic in &request.topic_data {
        for data in &topic.partition_data {
            let Some(batch) = data.records.as_ref().and_then(first_batch) else { continue };
            let place = (topic.name.clone(), data.index);
            let Some(Ok(led)) = rights.get(&place) else { continue };
            if !batch.header.is_transactional() {
                continue;
            }
            if let Ok(Some(guard)) = led.verification_guard(&batch, version_of(api_version)) {
                guards.insert(place, guard);
                topics.entry(topic.name.clone()).or_default().push(data.index);
                identity.get_or_insert(batch.header);
            }
        }
    }
    let Some(header) = identity else { return Verified::new() };
    let verify_only = api_version < FIRST_VERSION_2;
    let identity =
        Identity { producer_id: ProducerId(header.producer_id), epoch: ProducerEpoch(header.producer_epoch) };
    let added = participation::ask(node, Question { transactional_id, identity, verify_only }, topics).await;
    let code_of = |key: &Place| match &added {
        Ok(codes) => codes.get(key).copied().unwrap_or(Some(ErrorCode::UnknownServerError)),
        Err(code) => Some(*code),
    };
    let judge = |(key, guard)| {
        let verdict = match code_of(&key) {
            None => Ok(guard),
            Some(code) => Err(for_producer(code, api_version, verify_only)),
        };
        (key, verdict)
    };
    guards.into_iter().map(judge).collect()
}

fn first_batch(blob: &Bytes) -> Option<RawBatch> {
    records::split(blob.clone()).next()?.ok()
}

/// What a producer is told when the coordinator refuses: only codes that Produce may answer with.
fn for_producer(code: ErrorCode, api_version: i16, verify_only: bool) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        // Retriable for every version of every client; the coordinator is looked up again at the next attempt.
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::RequestTimedOut => ErrorCode::NotEnoughReplicas,
        ErrorCode::ConcurrentTransactions if api_version < FIRST_VERSION_2 => ErrorCode::NotEnoughReplicas,
        ErrorCode::InvalidTxnState if verify_only && api_version >= VERSION_WITH_ABORTABLE => {
            ErrorCode::TransactionAbortable
        }
        code => code,
    }
}

/// `log_start` is told with an error that came from looking at the batch amid the log; -1 when there is none.
fn describe(index: i32, appended: Result<AppendInfo, ErrorCode>, log_start: i64) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(-1);
    match appended {
        Ok(info) => response.with_base_offset(info.base_offset.0).with_log_start_offset(info.log_start.0),
        Err(code) => response
            .with_base_offset(-1)
            .with_log_start_offset(if names_log_start(code) { log_start } else { -1 })
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(code.to_string()))),
    }
}

/// False for refusals that do not come from looking at the log.
fn names_log_start(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::CorruptMessage
            | ErrorCode::KafkaStorageError
    )
}
