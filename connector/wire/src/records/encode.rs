//! Builds a batch record by record, straight into the bytes that are sent.

use bytes::Bytes;

use super::batch::{ATTRIBUTES_AT, BATCH_HEADER_BYTES, BatchHeader, CONTROL, CRC_AT, TRANSACTIONAL};
use super::compression::{self, Compression};
use super::decode::HeadersView;
use super::varint::{put_varint, varint_bytes};
use crate::WireError;

/// What a finished batch says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    /// Producer, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// Whether the batch belongs to a transaction.
    pub transactional: bool,
    /// Whether the records are control records.
    pub control: bool,
    /// Codec of the records.
    pub compression: Compression,
    /// Offset of the first record; producers leave 0 and the broker fills it in.
    pub base_offset: i64,
    /// Leader epoch, or -1.
    pub partition_leader_epoch: i32,
}

impl Default for BatchMeta {
    /// Without producer, outside a transaction, not compressed.
    fn default() -> Self {
        BatchMeta {
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
            compression: Compression::None,
            base_offset: 0,
            partition_leader_epoch: -1,
        }
    }
}

/// Collects records of one batch. Offsets are consecutive from the base offset.
///
/// ```
/// use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};
/// let mut builder = BatchBuilder::new();
/// builder.append(1_000, Some(b"UA"), Some(b"1545,EWR,IAH"), &[(b"source", Some(b"nyc"))])?;
/// let batch = RawBatch::from_bytes(builder.build(&BatchMeta::default())?)?;
/// let records = batch.records()?;
/// let record = records.iter().next().expect("one record was appended")?;
/// assert_eq!((record.offset, record.key), (0, Some(&b"UA"[..])));
/// # Ok::<(), sharestream_wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    /// The header's place, then the records.
    buf: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// Capacity to start the next batch with: what the last one needed.
    capacity: usize,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        BatchBuilder::with_capacity(0)
    }

    /// An empty batch with room for so many bytes of records.
    pub fn with_capacity(bytes: usize) -> Self {
        let capacity = bytes + BATCH_HEADER_BYTES;
        BatchBuilder { buf: Vec::new(), count: 0, base_timestamp: 0, max_timestamp: -1, capacity }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch before compression, header included.
    pub fn size_bytes(&self) -> usize {
        self.buf.len().max(BATCH_HEADER_BYTES)
    }

    /// Forgets the records and keeps the buffer.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.count = 0;
        self.max_timestamp = -1;
    }

    /// Appends a record and returns its place in the batch, from 0. On error the batch is as before.
    /// Errors: `InvalidInput` (batch or record over 2 GiB).
    #[inline]
    pub fn append(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<i32, WireError> {
        let headers_bytes = varint_bytes(headers.len() as i64)
            + headers
                .iter()
                .map(|(key, value)| nullable_bytes(Some(key)) + nullable_bytes(*value))
                .sum::<usize>();
        let index = self.begin(timestamp_ms, key, value, headers_bytes)?;
        put_varint(&mut self.buf, headers.len() as i64);
        for (key, value) in headers {
            put_nullable(&mut self.buf, Some(key));
            put_nullable(&mut self.buf, *value);
        }
        Ok(index)
    }

    /// Appends a record with headers copied from another record as they are. Otherwise as [`BatchBuilder::append`].
    #[inline]
    pub fn append_raw_headers(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: HeadersView<'_>,
    ) -> Result<i32, WireError> {
        let index = self.begin(timestamp_ms, key, value, headers.raw().len())?;
        self.buf.extend_from_slice(headers.raw());
        Ok(index)
    }

    /// Writes a record up to its headers, which the caller appends in exactly `headers_bytes`.
    #[inline]
    fn begin(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers_bytes: usize,
    ) -> Result<i32, WireError> {
        let index = self.count;
        let first = index == 0;
        let base_timestamp = if first { timestamp_ms } else { self.base_timestamp };
        let timestamp_delta = timestamp_ms.wrapping_sub(base_timestamp);
        let body_bytes = 1
            + varint_bytes(timestamp_delta)
            + varint_bytes(i64::from(index))
            + nullable_bytes(key)
            + nullable_bytes(value)
            + headers_bytes;
        // The longest length prefix of a record is five bytes.
        if self.size_bytes().saturating_add(body_bytes).saturating_add(5) > i32::MAX as usize
            || index == i32::MAX
        {
            return Err(WireError::invalid(format!(
                "record of {body_bytes} bytes does not fit a batch that has {} bytes",
                self.size_bytes()
            )));
        }
        if first {
            self.buf.clear();
            self.buf.reserve(self.capacity.max(BATCH_HEADER_BYTES + body_bytes + 5));
            self.buf.resize(BATCH_HEADER_BYTES, 0);
            self.base_timestamp = timestamp_ms;
            self.max_timestamp = timestamp_ms;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp_ms);
        self.count += 1;
        let buf = &mut self.buf;
        buf.reserve(body_bytes + 5);
        put_varint(buf, body_bytes as i64);
        buf.push(0);
        put_varint(buf, timestamp_delta);
        put_varint(buf, i64::from(index));
        put_nullable(buf, key);
        put_nullable(buf, value);
        Ok(index)
    }

    /// The finished batch; the builder is empty afterwards and may build the next one. Not compressed, the records
    /// are not copied. Errors: `InvalidInput` (no records, or compressed over 2 GiB).
    pub fn build(&mut self, meta: &BatchMeta) -> Result<Bytes, WireError> {
        if self.count == 0 {
            return Err(WireError::invalid("a batch without records"));
        }
        let mut bytes = match meta.compression {
            Compression::None => {
                self.capacity = self.buf.len();
                std::mem::take(&mut self.buf)
            }
            Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
                let mut bytes = Vec::with_capacity(BATCH_HEADER_BYTES + self.buf.len() / 2);
                bytes.resize(BATCH_HEADER_BYTES, 0);
                compression::compress(meta.compression, &self.buf[BATCH_HEADER_BYTES..], &mut bytes)?;
                bytes
            }
        };
        let batch_length = i32::try_from(bytes.len() - 12)
            .map_err(|_| WireError::invalid(format!("batch of {} bytes is too long", bytes.len())))?;
        let flag = |set: bool, bit: i16| if set { bit } else { 0 };
        let header = BatchHeader {
            base_offset: meta.base_offset,
            batch_length,
            partition_leader_epoch: meta.partition_leader_epoch,
            crc: 0,
            attributes: meta.compression.id()
                | flag(meta.transactional, TRANSACTIONAL)
                | flag(meta.control, CONTROL),
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: meta.producer_id,
            producer_epoch: meta.producer_epoch,
            base_sequence: meta.base_sequence,
            record_count: self.count,
        };
        self.clear();
        if let Some(head) = bytes.first_chunk_mut::<BATCH_HEADER_BYTES>() {
            header.write(head);
        }
        let crc = crc32c::crc32c(&bytes[ATTRIBUTES_AT..]);
        bytes[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
        Ok(Bytes::from(bytes))
    }
}

#[inline]
fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => varint_bytes(bytes.len() as i64) + bytes.len(),
    }
}

#[inline]
fn put_nullable(buf: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(buf, -1),
        Some(bytes) => {
            put_varint(buf, bytes.len() as i64);
            buf.extend_from_slice(bytes);
        }
    }
}
