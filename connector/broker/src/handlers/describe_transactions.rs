//! DescribeTransactions (KIP-664).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{self, DescribeTransactionsRequest, DescribeTransactionsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::error::ErrorCode;
use crate::node::Node;
use crate::txn::TransactionSummary;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let states = request.transactional_ids.into_iter().map(|id| {
        let found = context.may.transactional_id(&id).and_then(|()| match id.is_empty() {
            true => Err(ErrorCode::InvalidRequest),
            false => node.transactions.describe(node, &id),
        });
        let state = match found {
            Ok(summary) => describe(context, &summary),
            Err(code) => TransactionState::default().with_error_code(code.code()),
        };
        state.with_transactional_id(id)
    });
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

fn describe(context: &RequestContext, summary: &TransactionSummary) -> TransactionState {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    let shown = |topic: &str| context.may.topic(topic).is_ok();
    for participant in summary.partitions.iter().filter(|one| shown(&one.topic)) {
        by_topic.entry(&participant.topic).or_default().push(participant.partition.0);
    }
    let topics = by_topic.into_iter().map(|(topic, partitions)| {
        TopicData::default()
            .with_topic(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partitions(partitions)
    });
    TransactionState::default()
        .with_transaction_state(StrBytes::from_static_str(summary.state))
        .with_transaction_timeout_ms(summary.timeout_ms)
        .with_transaction_start_time_ms(summary.started_ms.unwrap_or(-1))
        .with_producer_id(messages::ProducerId(summary.identity.producer_id.0))
        .with_producer_epoch(summary.identity.epoch.0)
        .with_topics(topics.collect())
}
