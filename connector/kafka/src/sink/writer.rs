//! Rows and dead letters as records, into the partitions that one subtask owns.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::RecordBatch;
use sha2::{Digest as _, Sha256};
use sharestream_base::ids::{CheckpointId, PartitionIndex};
use sharestream_client::{BatchWriter, ProducerIdentity, Written};
use sharestream_wire::murmur2::partition_for_key;
use sharestream_wire::records::{BatchBuilder, BatchMeta, Compression};

use super::keys::Keys;
use crate::Result;
use crate::config::SinkKey;
use crate::error::{arrow_error, bug, client_error, invalid_input};
use crate::formats::RowEncoder;
use crate::parking::{self, CopyHeaders};
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
    /// Bytes of a batch that it takes at most.
    pub(super) batch_bytes_max: usize,
    /// By partition.
    is_owned: Vec<bool>,
    /// Whose turn it is for a record without a key.
    turn: usize,
}

impl OwnedTopic {
    pub(super) fn new(
        name: Arc<str>,
        partition_count: i32,
        owned: Vec<PartitionIndex>,
        batch_bytes_max: usize,
    ) -> Self {
        let is_owned =
            (0..partition_count).map(|partition| owned.contains(&PartitionIndex(partition))).collect();
        OwnedTopic { name, partition_count, owned, batch_bytes_max, is_owned, turn: 0 }
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

/// A record: key, value and headers.
type Record<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, &'a [Header<'a>]);

/// Of a batch around its one record: header, lengths and deltas, generously.
const BATCH_OVERHEAD_BYTES: usize = 128;
/// Of a record header: its lengths.
const HEADER_OVERHEAD_BYTES: usize = 10;

impl OwnedTopic {
    /// The bytes of a batch with this record alone, if they are more than the topic takes. What is not compressed is
    /// measured by its parts; what is, and looks too large, is compressed to see.
    fn exceeded_by(&self, record: Record<'_>, compression: Compression) -> Result<Option<usize>> {
        let (key, value, headers) = record;
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let of_headers: usize =
            headers.iter().map(|(name, value)| name.len() + length(*value) + HEADER_OVERHEAD_BYTES).sum();
        let bytes = length(key) + length(value) + of_headers + BATCH_OVERHEAD_BYTES;
        if bytes <= self.batch_bytes_max {
            return Ok(None);
        }
        if compression == Compression::None {
            return Ok(Some(bytes));
        }
        let mut alone = BatchBuilder::new();
        let built = alone
            .append(0, key, value, headers)
            .and_then(|_| alone.build(&BatchMeta { compression, ..BatchMeta::default() }));
        match built {
            Ok(batch) if batch.len() <= self.batch_bytes_max => Ok(None),
            Ok(batch) => Ok(Some(batch.len())),
            // More than any batch holds.
            Err(_) => Ok(Some(bytes)),
        }
    }
}

fn why_too_large(topic: &OwnedTopic, bytes: usize) -> String {
    let (name, bytes_max) = (&topic.name, topic.batch_bytes_max);
    format!("its output has {bytes} bytes, and topic {name} takes {bytes_max} (max.message.bytes)")
}

/// What is told of a value that a dead letter cannot carry.
struct LeftOut {
    byte_count: String,
    sha256: String,
}

impl LeftOut {
    fn of(value: &[u8]) -> Self {
        let digest = Sha256::digest(value);
        let sha256 = digest.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        LeftOut { byte_count: value.len().to_string(), sha256 }
    }

    fn headers(&self) -> [Header<'_>; 2] {
        [
            (provenance::PAYLOAD_BYTES.as_bytes(), Some(self.byte_count.as_bytes())),
            (provenance::PAYLOAD_SHA256.as_bytes(), Some(self.sha256.as_bytes())),
        ]
    }
}

/// A row that could not be written.
#[derive(Debug)]
pub(super) struct UnwrittenRow {
    pub(super) row: u32,
    pub(super) kind: RejectKind,
    pub(super) error: String,
}

/// Writes the records of one subtask.
#[derive(Debug)]
pub(super) struct RecordWriter {
    writer: BatchWriter,
    compression: Compression,
    output: OwnedTopic,
    dead_letters: Option<OwnedTopic>,
    parking: Option<OwnedTopic>,
    key: SinkKey,
    /// `<job>/<instance>`.
    job: String,
    value: Vec<u8>,
    source: Vec<u8>,
    /// Where a record lies that was parked.
    copy: Vec<u8>,
    copy_headers: CopyHeaders,
}

/// The topics of one subtask.
#[derive(Debug)]
pub(super) struct OwnedTopics {
    pub(super) output: OwnedTopic,
    pub(super) dead_letters: Option<OwnedTopic>,
    pub(super) parking: Option<OwnedTopic>,
}

impl RecordWriter {
    pub(super) fn new(
        writer: BatchWriter,
        compression: Compression,
        topics: OwnedTopics,
        key: SinkKey,
        job: String,
    ) -> Self {
        let OwnedTopics { output, dead_letters, parking } = topics;
        RecordWriter {
            writer,
            compression,
            output,
            dead_letters,
            parking,
            key,
            job,
            value: Vec::new(),
            source: Vec::new(),
            copy: Vec::new(),
            copy_headers: CopyHeaders::default(),
        }
    }

    pub(super) fn set_identity(&mut self, identity: &ProducerIdentity) {
        self.writer.set_identity(identity);
    }

    /// Writes every row of `rows` that the format and the topic take; gives the others, and why. A row that comes from state
    /// names the checkpoint, in place of a source record.
    pub(super) async fn write_rows(
        &mut self,
        checkpoint: CheckpointId,
        encoder: &RowEncoder,
        rows: &RecordBatch,
    ) -> Result<Vec<UnwrittenRow>> {
        let mut unwritten = Vec::new();
        let bound = encoder.bind(rows).map_err(arrow_error("output columns"))?;
        let keys = Keys::bind(&self.key, rows).map_err(arrow_error("output keys"))?;
        let hidden = Coordinates::of(rows)?;
        for row in 0..rows.num_rows() {
            self.value.clear();
            self.source.clear();
            let has_value = match bound.write(row, &mut self.value) {
                Ok(has_value) => has_value,
                Err(error) => {
                    let kind = RejectKind::Transform;
                    unwritten.push(UnwrittenRow { row: row as u32, kind, error: error.to_string() });
                    continue;
                }
            };
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
            self.copy.clear();
            if let Some(copy) = hidden.parked_copy(row)? {
                parking::write_copy(&mut self.copy, &copy, hidden.ordinals.value(row));
            }
            let headers: [Header<'_>; 2] =
                [(name.as_bytes(), Some(&self.source)), (provenance::PARKED.as_bytes(), Some(&self.copy))];
            let headers = if self.copy.is_empty() { &headers[..1] } else { &headers[..] };
            let value = has_value.then_some(&self.value[..]);
            if let Some(bytes) = self.output.exceeded_by((key, value, headers), self.compression)? {
                let error = why_too_large(&self.output, bytes);
                unwritten.push(UnwrittenRow { row: row as u32, kind: RejectKind::TooLarge, error });
                continue;
            }
            self.writer
                .append(&self.output.name, target, timestamp_ms, key, value, headers)
                .await
                .map_err(client_error("write output"))?;
        }
        Ok(unwritten)
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
            self.copy.clear();
            if let Some(copy) = hidden.parked_copy(row)? {
                parking::write_copy(&mut self.copy, &copy, hidden.ordinals.value(row));
                headers.push((provenance::PARKED.as_bytes(), Some(&self.copy)));
            }
            let (mut key, mut value) = (bytes(hidden.keys, row), bytes(hidden.values, row));
            let target = topic.owned_partition_of(key)?;
            let fits =
                |record: Record<'_>| topic.exceeded_by(record, self.compression).map(|bytes| bytes.is_none());
            let left_out;
            if !fits((key, value, &headers))? {
                // Where it came from and what was in it is worth more than nothing.
                left_out = LeftOut::of(value.take().unwrap_or_default());
                headers.extend(left_out.headers());
                if !fits((key, value, &headers))? {
                    key = None;
                    headers.retain(|(name, _)| provenance::is_ours(name));
                }
            }
            let timestamp_ms = hidden.timestamps.value(row);
            self.writer
                .append(&topic.name, target, timestamp_ms, key, value, &headers)
                .await
                .map_err(client_error("write dead letter"))?;
        }
        Ok(())
    }

    /// Copies the records of `parked` to the parking topic, at `now_ms`.
    pub(super) async fn write_parked(
        &mut self,
        checkpoint: CheckpointId,
        parked: &RecordBatch,
        now_ms: i64,
    ) -> Result<()> {
        let Some(topic) = &mut self.parking else {
            return Err(bug("a record to park, and there is no parking topic"));
        };
        let hidden = Coordinates::behind(parked, 0)?;
        for row in 0..parked.num_rows() {
            self.copy_headers.write(&hidden, row, (&self.job, checkpoint), now_ms)?;
            let mut headers: Vec<Header<'_>> = Vec::new();
            if let Some(raw) = bytes(hidden.headers, row) {
                provenance::parse_headers(raw, &mut headers);
            }
            self.copy_headers.append_to(&mut headers);
            let (key, value) = (bytes(hidden.keys, row), bytes(hidden.values, row));
            if let Some(bytes) = topic.exceeded_by((key, value, &headers), self.compression)? {
                return Err(invalid_input(format!(
                    "a record to park has {bytes} bytes, and topic {} takes {} (max.message.bytes): raise that to what the \
                     source topics take",
                    topic.name, topic.batch_bytes_max
                )));
            }
            let target = topic.owned_partition_of(key)?;
            self.writer
                .append(&topic.name, target, now_ms, key, value, &headers)
                .await
                .map_err(client_error("park a record"))?;
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
