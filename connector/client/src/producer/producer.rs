//! `Producer`: records outside transactions, without duplicates from retries (KIP-98).

use kafka_protocol::messages::{InitProducerIdRequest, ProducerId as WireProducerId};

use super::partitioner::Partitioner;
use super::writer::{BatchWriter, WriterConfig, Written};
use crate::client::Client;
use crate::security::Access;
use crate::{Error, Result};

/// An idempotent producer with a partitioner: for tools and tests.
#[derive(Debug)]
pub struct Producer {
    writer: BatchWriter,
    partitioner: Partitioner,
    client: Client,
}

impl Producer {
    /// Takes a producer id.
    ///
    /// # Errors
    /// `Retry` when no broker can be reached until the deadline.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(client: Client, config: WriterConfig) -> Result<Producer> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(i32::MAX)
            .with_producer_id(WireProducerId(-1))
            .with_producer_epoch(-1);
        let mut backoff = client.backoff();
        let response = loop {
            let attempt = async {
                let response = client.any().await?.call(&request).await?;
                match response.error_code {
                    0 => Ok(response),
                    code => {
                        let error = Error::from_code(code, "take a producer id");
                        Err(client.refused(error, &Access::cluster("IdempotentWrite")))
                    }
                }
            };
            match attempt.await {
                Ok(response) => break response,
                Err(error) if error.is_retriable() => backoff.wait(error).await?,
                Err(error) => return Err(error),
            }
        };
        let mut writer = BatchWriter::new(client.clone(), config);
        writer.set_idempotent_identity(response.producer_id.0, response.producer_epoch);
        let partitioner = Partitioner::new(client.env().rng.fork("partitioner"));
        Ok(Producer { writer, partitioner, client })
    }

    /// Adds a record, stamped now, to the partition of its key. Errors and cancel safety as
    /// [`BatchWriter::append`].
    pub async fn send(
        &mut self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        let partition_count = self.writer.partition_count(topic).await?;
        let partition = self.partitioner.partition(key, partition_count);
        let now_ms = self.client.env().clock.wall_ms();
        self.writer.append(topic, partition, now_ms, key, value, headers).await
    }

    /// The writer below, for records whose partition or timestamp the caller chooses.
    pub fn writer(&mut self) -> &mut BatchWriter {
        &mut self.writer
    }

    /// Waits until the brokers have everything. Errors and cancel safety as [`BatchWriter::flush`].
    pub async fn flush(&mut self) -> Result<Vec<Written>> {
        self.writer.flush().await
    }
}
