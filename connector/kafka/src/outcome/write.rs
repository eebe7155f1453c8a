//! Writes to the outcome partition outside transactions: owners, modes, generations.

use sharestream_base::ids::PartitionIndex;
use sharestream_client::{Client, Producer, WriterConfig};

use crate::Result;
use crate::error::client_error;

/// Writes one record and waits until it is there. `doing` names it in errors.
pub(crate) async fn write_record(
    client: &Client,
    (topic, partition): (&str, PartitionIndex),
    (key, value): (&str, &[u8]),
    doing: &str,
) -> Result<()> {
    let mut producer =
        Producer::connect(client.clone(), WriterConfig::default()).await.map_err(client_error(doing))?;
    let now_ms = client.env().clock.wall_ms();
    producer
        .writer()
        .append(topic, partition, now_ms, Some(key.as_bytes()), Some(value), &[])
        .await
        .map_err(client_error(doing))?;
    producer.flush().await.map_err(client_error(doing))?;
    Ok(())
}
