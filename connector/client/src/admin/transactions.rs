//! Open and past transactions (KIP-664).

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::{
    DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use super::Admin;
use crate::cluster::Purpose;
use crate::coordinator::CoordinatorKey;
use crate::{Error, Result};

/// A transactional id that a coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionListing {
    /// Transactional id.
    pub transactional_id: String,
    /// Producer id.
    pub producer_id: ProducerId,
    /// State in Kafka's words: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, ...
    pub state: String,
}

/// One transactional id in detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// Transactional id.
    pub transactional_id: String,
    /// Producer id.
    pub producer_id: ProducerId,
    /// Producer epoch.
    pub producer_epoch: ProducerEpoch,
    /// State in Kafka's words.
    pub state: String,
    /// Transaction time-out.
    pub timeout: Duration,
    /// When the transaction began, Unix milliseconds; `None` when none is open.
    pub start_ms: Option<i64>,
    /// Partitions in it.
    pub partitions: Vec<(Arc<str>, PartitionIndex)>,
}

/// What became of an open transaction that was ended from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTransaction {
    /// As it was before.
    pub before: TransactionDescription,
    /// As it is now: `CompleteAbort`, or `CompleteCommit` when its commit had already been decided.
    pub after: TransactionDescription,
}

impl TransactionDescription {
    /// True while its outcome is not in every partition.
    pub fn is_open(&self) -> bool {
        ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"].contains(&&*self.state)
    }
}

impl Admin {
    /// Ends the open transaction of a transactional id and fences its producer, as a new producer with this id would:
    /// by InitProducerId, which Kafka's `kafka-transactions.sh forceTerminateTransaction` uses as well. The coordinator
    /// aborts it in every partition, or completes a commit that was already decided: it is never torn, which
    /// WriteTxnMarkers to one partition after another (`kafka-transactions.sh abort`) could not promise. `None` when
    /// there is nothing to end.
    ///
    /// # Errors
    /// `InvalidInput` (no such transactional id; not allowed), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the producer may be fenced and the transaction ended; call it again.
    pub async fn abort_transaction(&self, transactional_id: &str) -> Result<Option<EndedTransaction>> {
        let unknown = || {
            let context = format!("no coordinator knows the transactional id '{transactional_id}'");
            Error::new(ErrorKind::InvalidInput, context)
        };
        let before = self.describe_transaction(transactional_id).await?.ok_or_else(unknown)?;
        if !before.is_open() {
            return Ok(None);
        }
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(transactional_id.to_owned()))))
            // The id keeps its time-out.
            .with_transaction_timeout_ms(i32::try_from(before.timeout.as_millis()).unwrap_or(i32::MAX))
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let key = CoordinatorKey::Transaction(transactional_id.to_owned());
        // It succeeds when the markers are written; until then the coordinator puts it off.
        let fenced = self.client.ask_coordinator(&key, &request, |response| match response.error_code {
            0 => Ok(()),
            code => Err(Error::from_code(code, format_args!("fence transactional id '{transactional_id}'"))),
        });
        fenced.await.map_err(|error| match error.kind() {
            // Fencing once more does no harm.
            ErrorKind::Indeterminate => error.with_kind(ErrorKind::Retry),
            _other => error,
        })?;
        let after = self.describe_transaction(transactional_id).await?.ok_or_else(unknown)?;
        Ok(Some(EndedTransaction { before, after }))
    }

    /// Every transactional id that any coordinator knows. Cancel safe.
    ///
    /// # Errors
    /// `Retry` when a broker cannot be asked.
    pub async fn list_transactions(&self) -> Result<Vec<TransactionListing>> {
        let request = ListTransactionsRequest::default().with_duration_filter(-1);
        let mut listings = Vec::new();
        for node in self.client.nodes() {
            let mut backoff = self.client.backoff();
            let response = loop {
                let attempt = async {
                    let response = self.client.node(node, Purpose::General).await?.call(&request).await?;
                    match response.error_code {
                        0 => Ok(response),
                        code => {
                            Err(Error::from_code(code, format_args!("list transactions of broker {node}")))
                        }
                    }
                };
                match attempt.await {
                    Ok(response) => break response,
                    Err(error) if error.is_retriable() => {
                        backoff.wait(error.with_kind(ErrorKind::Retry)).await?
                    }
                    Err(error) => return Err(error),
                }
            };
            listings.extend(response.transaction_states.iter().map(|state| TransactionListing {
                transactional_id: state.transactional_id.to_string(),
                producer_id: ProducerId(state.producer_id.0),
                state: state.transaction_state.to_string(),
            }));
        }
        listings.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        Ok(listings)
    }

    /// The state of these transactional ids; unknown ones are left out. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn describe_transactions(
        &self,
        transactional_ids: &[&str],
    ) -> Result<Vec<TransactionDescription>> {
        let mut descriptions = Vec::with_capacity(transactional_ids.len());
        for id in transactional_ids {
            descriptions.extend(self.describe_transaction(id).await?);
        }
        Ok(descriptions)
    }

    async fn describe_transaction(&self, id: &str) -> Result<Option<TransactionDescription>> {
        const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;
        let request = DescribeTransactionsRequest::default()
            .with_transactional_ids(vec![TransactionalId(StrBytes::from_string(id.to_owned()))]);
        let key = CoordinatorKey::Transaction(id.to_owned());
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.coordinator(&key).await?.call(&request).await?;
                let state = response.transaction_states.into_iter().next();
                let state =
                    state.ok_or_else(|| Error::new(ErrorKind::Retry, format!("no answer about '{id}'")))?;
                match state.error_code {
                    0 => Ok(Some(state)),
                    TRANSACTIONAL_ID_NOT_FOUND => Ok(None),
                    code => Err(Error::from_code(code, format_args!("describe transactional id '{id}'"))),
                }
            };
            let state = match attempt.await {
                Ok(Some(state)) => state,
                Ok(None) => return Ok(None),
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&key, &error);
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut partitions = Vec::new();
            for topic in &state.topics {
                let name: Arc<str> = topic.topic.as_str().into();
                partitions
                    .extend(topic.partitions.iter().map(|index| (Arc::clone(&name), PartitionIndex(*index))));
            }
            return Ok(Some(TransactionDescription {
                transactional_id: id.to_owned(),
                producer_id: ProducerId(state.producer_id.0),
                producer_epoch: ProducerEpoch(state.producer_epoch),
                state: state.transaction_state.to_string(),
                timeout: Duration::from_millis(u64::try_from(state.transaction_timeout_ms).unwrap_or(0)),
                start_ms: (state.transaction_start_time_ms >= 0).then_some(state.transaction_start_time_ms),
                partitions,
            }));
        }
    }
}
