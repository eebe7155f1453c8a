//! ListTransactions: the transactional ids of this coordinator (KIP-664).

use std::sync::Arc;

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{self, ListTransactionsRequest, ListTransactionsResponse, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::node::Node;
use crate::txn::TransactionSummary;

const STATES: [&str; 6] =
    ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"];

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let unknown = request.state_filters.iter().filter(|state| !STATES.contains(&state.as_str()));
    let unknown: Vec<_> = unknown.cloned().collect();
    let now_ms = node.env.clock.wall_ms();
    let shown = |one: &TransactionSummary| {
        asked(&request, one, now_ms) && context.may.transactional_id(&one.transactional_id).is_ok()
    };
    let states = node.transactions.summaries();
    let states = states.into_iter().filter(shown).map(|one| {
        TransactionState::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string(one.transactional_id.to_string())))
            .with_producer_id(messages::ProducerId(one.identity.producer_id.0))
            .with_transaction_state(StrBytes::from_static_str(one.state))
    });
    ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown)
        .with_transaction_states(states.collect())
}

fn asked(request: &ListTransactionsRequest, one: &TransactionSummary, now_ms: i64) -> bool {
    let state = request.state_filters.is_empty()
        || request.state_filters.iter().any(|state| state.as_str() == one.state);
    let producer = request.producer_id_filters.is_empty()
        || request.producer_id_filters.iter().any(|id| id.0 == one.identity.producer_id.0);
    let duration = request.duration_filter < 0
        || one.started_ms.is_some_and(|started_ms| now_ms - started_ms >= request.duration_filter);
    state && producer && duration
}
