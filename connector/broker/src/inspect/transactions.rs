//! Transactional ids.

use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use crate::broker_cluster::BrokerCluster;
use crate::cluster::TRANSACTION_STATE_TOPIC;
use crate::txn;

/// A transactional id, as the last record in `__transaction_state` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView {
    /// The id.
    pub transactional_id: String,
    /// Who may go on with it.
    pub producer_id: ProducerId,
    /// In which incarnation.
    pub producer_epoch: ProducerEpoch,
    /// As Kafka prints it: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`,
    /// `CompleteAbort`.
    pub state: &'static str,
    /// Time-out of each transaction, in milliseconds.
    pub timeout_ms: i32,
    /// Wall time at which the open transaction began, in Unix milliseconds; none when none is open.
    pub started_ms: Option<i64>,
    /// Participants that may lack the marker of the open transaction, by topic and number.
    pub participants: Vec<(String, PartitionIndex)>,
}

impl TransactionView {
    /// True while a transaction is open or its markers are under way.
    pub fn is_open(&self) -> bool {
        self.started_ms.is_some()
    }
}

impl BrokerCluster {
    /// Every transactional id, by name. Those in a damaged log are left out.
    pub fn transactions(&self) -> Vec<TransactionView> {
        let logs = self.cluster.topics.by_name(TRANSACTION_STATE_TOPIC);
        let logs = logs.iter().flat_map(|topic| topic.partitions());
        let mut all: Vec<TransactionView> =
            logs.flat_map(|log| txn::recorded(log)).map(transaction_view).collect();
        all.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        all
    }
}

fn transaction_view(summary: txn::TransactionSummary) -> TransactionView {
    let participants = summary.partitions.iter();
    TransactionView {
        transactional_id: summary.transactional_id.to_string(),
        producer_id: summary.identity.producer_id,
        producer_epoch: summary.identity.epoch,
        state: summary.state,
        timeout_ms: summary.timeout_ms,
        started_ms: summary.started_ms,
        participants: participants.map(|one| (one.topic.to_string(), one.partition)).collect(),
    }
}
