//! AddPartitionsToTxn: versions 0 to 3 from clients (version 1 transactions), from 4 on batched from partition
//! leaders, which also verify (KIP-890).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    self, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TransactionalId,
};
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use super::RequestContext;
use crate::error::ErrorCode;
use crate::log::TransactionVersion;
use crate::node::Node;
use crate::txn::{Command, Identity, TopicPartition};

const FIRST_LEADER_VERSION: i16 = 4;
/// From this version on clients know PRODUCER_FENCED here.
const VERSION_WITH_FENCED: i16 = 2;
/// Longest wait for the markers of the transaction before; they take about a millisecond.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    if context.version < FIRST_LEADER_VERSION {
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics);
        let results = one(node, context, &transaction, TransactionVersion::V1).await;
        return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in &request.transactions {
        let topics = one(node, context, transaction, TransactionVersion::V2).await;
        results.push(
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id.clone())
                .with_topic_results(topics),
        );
    }
    AddPartitionsToTxnResponse::default().with_results_by_transaction(results)
}

async fn one(
    node: &Arc<Node>,
    context: &RequestContext,
    transaction: &AddPartitionsToTxnTransaction,
    version: TransactionVersion,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let api_version = context.version;
    let from_client = api_version < FIRST_LEADER_VERSION;
    let TransactionalId(transactional_id) = &transaction.transactional_id;
    // A leader has checked the rights of whoever it adds partitions for.
    if from_client && let Err(code) = context.may.transactional_id(transactional_id) {
        return results(api_version, &transaction.topics, |_| Err(code));
    }
    let messages::ProducerId(producer_id) = transaction.producer_id;
    let identity =
        Identity { producer_id: ProducerId(producer_id), epoch: ProducerEpoch(transaction.producer_epoch) };
    if transaction.verify_only {
        return results(api_version, &transaction.topics, |partition| {
            node.transactions.verify(node, transactional_id, identity, partition)
        });
    }
    let partitions: BTreeSet<_> = transaction.topics.iter().flat_map(participants).collect();
    let exists =
        |asked: &TopicPartition| node.cluster.topics.partition(&asked.topic, asked.partition).is_some();
    // Leaders add what they lead, `__share_group_state` too (KIP-1289); a client may not write to the broker's topics.
    let refusal = |asked: &TopicPartition| {
        let internal = || node.cluster.topics.by_name(&asked.topic).is_some_and(|topic| topic.internal);
        if from_client && (internal() || context.may.topic(&asked.topic).is_err()) {
            Some(ErrorCode::TopicAuthorizationFailed)
        } else {
            (!exists(asked)).then_some(ErrorCode::UnknownTopicOrPartition)
        }
    };
    if partitions.iter().any(|asked| refusal(asked).is_some()) {
        // All or nothing: nothing is added when one partition is refused.
        return results(api_version, &transaction.topics, |partition| {
            Err(refusal(partition).unwrap_or(ErrorCode::OperationNotAttempted))
        });
    }
    let command = Command::AddPartitions { identity, version, partitions };
    let added = node.transactions.add_partitions(node, transactional_id, &command, PATIENCE).await;
    results(api_version, &transaction.topics, |_| added.map(|_| ()))
}

fn participants(topic: &AddPartitionsToTxnTopic) -> Vec<TopicPartition> {
    let name: Arc<str> = Arc::from(topic.name.as_str());
    let participant =
        |index: &i32| TopicPartition { topic: Arc::clone(&name), partition: PartitionIndex(*index) };
    topic.partitions.iter().map(participant).collect()
}

fn results(
    api_version: i16,
    topics: &[AddPartitionsToTxnTopic],
    result_of: impl Fn(&TopicPartition) -> Result<(), ErrorCode>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let topic_result = |topic: &AddPartitionsToTxnTopic| {
        let partitions = participants(topic).into_iter().map(|participant| {
            let code = match result_of(&participant) {
                Ok(()) => 0,
                Err(ErrorCode::ProducerFenced) if api_version < VERSION_WITH_FENCED => {
                    ErrorCode::InvalidProducerEpoch.code()
                }
                Err(code) => code.code(),
            };
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(participant.partition.0)
                .with_partition_error_code(code)
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    };
    topics.iter().map(topic_result).collect()
}
