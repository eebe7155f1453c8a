//! Ending a transaction of somebody else: of a producer that is believed to be dead.

use std::time::Duration;

use kafka_protocol::messages::{InitProducerIdRequest, ProducerId as WireProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;

use super::ProducerIdentity;
use super::session::SHORT_PAUSE;
use crate::client::Client;
use crate::coordinator::CoordinatorKey;
use crate::error::ErrorClass;
use crate::{Error, Result};

/// Ends the transaction that `identity` runs, if it still runs: InitProducerId with its producer id and epoch (KIP-360).
/// A transaction whose end is decided already is completed, not aborted.
///
/// Success says that the transaction is over, not how: only its marker tells. Whoever is alive after all is fenced, and
/// has to initialize its transactional id again. `timeout` becomes that of the id's next transaction.
///
/// # Errors
/// `Retry` when the coordinator cannot be reached until the deadline, `InvalidInput` (not allowed).
///
/// # Cancel safety
/// May be dropped and called again.
pub async fn end_transaction_of(
    client: &Client,
    identity: &ProducerIdentity,
    timeout: Duration,
) -> Result<()> {
    let ProducerIdentity { transactional_id, producer_id, producer_epoch } = identity;
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_string(transactional_id.to_string()))))
        .with_transaction_timeout_ms(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX))
        .with_producer_id(WireProducerId(producer_id.0))
        .with_producer_epoch(producer_epoch.0);
    let what = format!(
        "end the transaction of '{transactional_id}' (producer id {producer_id}, epoch {producer_epoch})"
    );
    let coordinator = CoordinatorKey::Transaction(transactional_id.to_string());
    let mut backoff = client.backoff().starting_with(SHORT_PAUSE);
    loop {
        let attempt = async {
            let response = client.coordinator(&coordinator).await?.call(&request).await?;
            match response.error_code {
                0 => Ok(()),
                code => Err(Error::from_code(code, &what)),
            }
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            // Its producer has gone on, or somebody else has ended it: it is over.
            Err(error) if error.class() == ErrorClass::Fenced => return Ok(()),
            Err(error) if error.is_retriable() => {
                client.reroute(&coordinator, &error);
                backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}
