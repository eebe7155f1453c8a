//! Rows and dead letters as records, into the partitions that one subtask owns.

use std::sync::Arc;

use arrow_array::RecordBatch;
use sharestream_base::ids::{CheckpointId, PartitionIndex};
use sharestream_client::{BatchWriter, ProducerIdentity, Written};
use sharestream_wire::murmur2::partition_for_key;

use super::keys::Keys;
use crate::Result;
use crate::config::SinkKey;
use crate::error::{arrow_error, bug, client_error, invalid_input};
use crate::formats::RowEncoder;
use crate::provenance::{self, Header};
use sharestream_core::coordinates::{Coordinates, RejectKind, bytes, errors};

/// Buffered bytes that are sent when nothing more comes for the moment. Fewer wait for the barrier: at low rates the
/// brokers would get a request for each handful of records, and nothing becomes visible earlier by it.
const IDLE_BYTES_MIN: usize = 64 << 10;

/// A topic, and the partitions of it that are ours.
#[derive(Clone, Debug)]
pub(super) struct OwnedTopic {
    pub(super) name: Arc<str>,
    pub(super) partition_count: i32,
    pub(super) owned: Vec<PartitionIndex>,
    /// By partition.
    is_owned: Vec<bool>,
    /// Whose turn it is for a record without a key.
    turn: usize,
}

impl OwnedTopic {
    pub(super) fn new(name: Arc<str>, partition_count: i32, owned: Vec<PartitionIndex>) -> Self {
        let is_owned =
            (0..partition_count).map(|partition| owned.contains(&PartitionIndex(partition))).collect();
        OwnedTopic { name, partition_count, owned, is_owned, turn: 0 }
    }

    fn next_turn(&mut self) -> Result<PartitionIndex> {
        self.turn = (self.turn + 1) % self.owned.len().max(1);
        self.owned
            .get(self.turn)
            .copied()
            .ok_or_else(|| bug(format!("no partition of {} is ours", self.name)))
    }

    /// The partition of a record's key, which must be ours; a turn without a key.
    fn partition_of(&mut self, key: Option<&[u8]>) -> Result<PartitionIndex> {
        let Some(key) = key else { return self.next_turn() };
        let partition = partition_for_key(key, self.partition_count);
        if self.is_owned.get(usize::try_from(partition).unwrap_or(usize::MAX)) != Some(&true) {
            // Two writers on one partition would spoil each other's sequence numbers.
            return Err(bug(format!("{}/{partition} belongs to another sink subtask", self.name)));
        }
        Ok(PartitionIndex(partition))
    }

    /// One of ours, the same for the same key.
    fn owned_partition_of(&mut self, key: Option<&[u8]>) -> Result<PartitionIndex> {
        let Some(key) = key else { return self.next_turn() };
        let count = i32::try_from(self.owned.len()).unwrap_or(i32::MAX);
        if count == 0 {
            return self.next_turn();
        }
        let index = usize::try_from(partition_for_key(key, count)).unwrap_or(0);
        self.owned.get(index).copied().ok_or_else(|| bug(format!("no partition of {} is ours", self.name)))
    }
}

/// Writes the records of one subtask.
#[derive(Debug)]
pub(super) struct RecordWriter {
    writer: BatchWriter,
    output: OwnedTopic,
    dead_letters: Option<OwnedTopic>,
    key: SinkKey,
    /// `<job>/<instance>`.
    job: String,
    value: Vec<u8>,
    source: Vec<u8>,
}

impl RecordWriter {
    pub(super) fn new(
        writer: BatchWriter,
        output: OwnedTopic,
        dead_letters: Option<OwnedTopic>,
        key: SinkKey,
        job: String,
    ) -> Self {
        RecordWriter { writer, output, dead_letters, key, job, value: Vec::new(), source: Vec::new() }
    }

    pub(super) fn set_identity(&mut self, identity: &ProducerIdentity) {
        self.writer.set_identity(identity);
    }

    /// Writes every row of `rows`. One that comes from state names the checkpoint, in place of a source record.
    pub(super) async fn write_rows(
        &mut self,
        checkpoint: CheckpointId,
        encoder: &RowEncoder,
        rows: &RecordBatch,
    ) -> Result<()> {
        let bound = encoder.bind(rows).map_err(arrow_error("output columns"))?;
        let keys = Keys::bind(&self.key, rows).map_err(arrow_error("output keys"))?;
        let hidden = Coordinates::of(rows)?;
        for row in 0..rows.num_rows() {
            self.value.clear();
            self.source.clear();
            let has_value = bound.write(row, &mut self.value);
            let mut timestamp_ms = hidden.timestamps.value(row);
            let name = if hidden.is_derived(row) {
                self.source.extend_from_slice(checkpoint.to_string().as_bytes());
                // A window may end before 1970; to the brokers that is no timestamp.
                timestamp_ms = timestamp_ms.max(0);
                provenance::CHECKPOINT
            } else {
                let (partition, offset) = (hidden.partitions.value(row), hidden.offsets.value(row));
                provenance::write_source(
                    &mut self.source,
                    hidden.topic_ids.text(row),
                    partition,
                    offset,
                    hidden.ordinals.value(row),
                );
                provenance::SOURCE
            };
            let key = keys.key(row);
            let target = self.output.partition_of(key)?;
            let headers: [Header<'_>; 1] = [(name.as_bytes(), Some(&self.source))];
            let value = has_value.then_some(&self.value[..]);
            self.writer
                .append(&self.output.name, target, timestamp_ms, key, value, &headers)
                .await
                .map_err(client_error("write output"))?;
        }
        Ok(())
    }

    /// Writes these rows of `rejected`, whose kinds are `kinds`, as dead letters: the record as it was, and why it is here.
    pub(super) async fn write_dead_letters(
        &mut self,
        checkpoint: CheckpointId,
        rejected: &RecordBatch,
        kinds: &[RejectKind],
        rows: &[usize],
    ) -> Result<()> {
        let Some(topic) = &mut self.dead_letters else {
            return Err(invalid_input("there is no dead letter topic"));
        };
        let hidden = Coordinates::behind(rejected, 0)?;
        let errors = errors(rejected)?;
        let checkpoint = checkpoint.to_string();
        for row in rows.iter().copied() {
            self.source.clear();
            let (partition, offset) = (hidden.partitions.value(row), hidden.offsets.value(row));
            let topic_id = hidden.topic_ids.text(row);
            provenance::write_source(
                &mut self.source,
                topic_id,
                partition,
                offset,
                hidden.ordinals.value(row),
            );
            let delivery_count = hidden.delivery_counts.value(row).to_string();
            let mut headers: Vec<Header<'_>> = Vec::new();
            if let Some(raw) = bytes(hidden.headers, row) {
                provenance::parse_headers(raw, &mut headers);
                // A dead letter that is replayed and dies again carries the headers of its last death only.
                headers.retain(|(key, _)| !provenance::is_ours(key));
            }
            let kind =
                kinds.get(row).copied().ok_or_else(|| bug("a rejected row without its kind".to_owned()))?;
            let ours: [(&str, &[u8]); 7] = [
                (provenance::SOURCE, &self.source),
                (provenance::TOPIC, hidden.topics.text(row).as_bytes()),
                (provenance::DELIVERY_COUNT, delivery_count.as_bytes()),
                (provenance::ERROR, errors.value(row).as_bytes()),
                (provenance::ERROR_KIND, kind.name().as_bytes()),
                (provenance::JOB, self.job.as_bytes()),
                (provenance::CHECKPOINT, checkpoint.as_bytes()),
            ];
            headers.extend(ours.iter().map(|(key, value)| (key.as_bytes(), Some(*value))));
            let key = bytes(hidden.keys, row);
            let target = topic.owned_partition_of(key)?;
            let timestamp_ms = hidden.timestamps.value(row);
            self.writer
                .append(&topic.name, target, timestamp_ms, key, bytes(hidden.values, row), &headers)
                .await
                .map_err(client_error("write dead letter"))?;
        }
        Ok(())
    }

    /// Sends what is buffered where it is worth a request.
    pub(super) async fn send_buffered(&mut self) -> Result<()> {
        self.writer.send_buffered(IDLE_BYTES_MIN).await.map_err(client_error("send output"))
    }

    pub(super) async fn flush(&mut self) -> Result<Vec<Written>> {
        self.writer.flush().await.map_err(client_error("flush output"))
    }
}
