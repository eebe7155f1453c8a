//! Asks a transaction's coordinator, over the protocol, whether partitions are in the transaction, or to add them
//! (KIP-890): what a leader must know before the first batch of a transaction on a partition.

use std::collections::BTreeMap;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::{
    self, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TopicName, TransactionalId,
};

use crate::error::ErrorCode;
use crate::node::Node;
use crate::txn::Identity;

const ADD_PARTITIONS_VERSION: i16 = 5;

/// A partition of a request.
pub(super) type Place = (TopicName, i32);

/// A transaction that is asked about.
#[derive(Clone, Debug)]
pub(super) struct Question<'a> {
    /// Its id.
    pub(super) transactional_id: &'a TransactionalId,
    /// Who writes.
    pub(super) identity: Identity,
    /// Only looks; else partitions that are not there are added.
    pub(super) verify_only: bool,
}

/// What the coordinator says of each partition; none means that it is in the transaction. Errors: nobody coordinates
/// the transaction, or gives no answer.
pub(super) async fn ask(
    node: &Node,
    question: Question<'_>,
    topics: BTreeMap<TopicName, Vec<i32>>,
) -> Result<BTreeMap<Place, Option<ErrorCode>>, ErrorCode> {
    let Question { transactional_id, identity, verify_only } = question;
    let coordinator = node.cluster.transaction_coordinator(transactional_id);
    let coordinator = coordinator.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let topics = topics.into_iter().map(|(name, partitions)| {
        AddPartitionsToTxnTopic::default().with_name(name).with_partitions(partitions)
    });
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(transactional_id.clone())
        .with_producer_id(messages::ProducerId(identity.producer_id.0))
        .with_producer_epoch(identity.epoch.0)
        .with_verify_only(verify_only)
        .with_topics(topics.collect());
    let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
    let response = node.peers.call(coordinator, request, ADD_PARTITIONS_VERSION).await;
    response.map(|response| codes(&response)).map_err(|error| {
        tracing::warn!(transactional_id = transactional_id.as_str(), %error, "the transaction coordinator gave no answer");
        error.code()
    })
}

fn codes(response: &AddPartitionsToTxnResponse) -> BTreeMap<Place, Option<ErrorCode>> {
    let mut codes = BTreeMap::new();
    for topic in response.results_by_transaction.iter().flat_map(|one| &one.topic_results) {
        for result in &topic.results_by_partition {
            let code = ErrorCode::try_from_code(result.partition_error_code);
            codes.insert((topic.name.clone(), result.partition_index), code);
        }
    }
    codes
}
