//! A batch as bytes with its header read.

use bytes::{Bytes, BytesMut};

use super::compression::{self, Compression, DECOMPRESSED_BYTES_MAX};
use super::decode::Records;
use crate::WireError;

/// Bytes of a batch before its records.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes that `batch_length` does not count: base offset and the length itself.
const LENGTH_PREFIX_BYTES: usize = 12;
pub(super) const MAGIC: u8 = 2;
const MAGIC_AT: usize = 16;
pub(super) const CRC_AT: usize = 17;
pub(super) const ATTRIBUTES_AT: usize = 21;

const COMPRESSION_MASK: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
pub(super) const TRANSACTIONAL: i16 = 1 << 4;
pub(super) const CONTROL: i16 = 1 << 5;

/// Everything that a batch says before its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; of a compacted batch, the offset it once had.
    pub base_offset: i64,
    /// Bytes after this field.
    pub batch_length: i32,
    /// Leader epoch in which the batch was appended, or -1.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from `attributes` on.
    pub crc: u32,
    /// Compression, timestamp type, transactional, control.
    pub attributes: i16,
    /// Last offset minus base offset; kept when compaction drops the last record.
    pub last_offset_delta: i32,
    /// Timestamp that record timestamps are relative to.
    pub base_timestamp: i64,
    /// Greatest timestamp, or the append time of the whole batch.
    pub max_timestamp: i64,
    /// Producer, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub record_count: i32,
}

impl BatchHeader {
    /// Offset of the last record, also when compaction has dropped it.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset right after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence number of the last record; sequence numbers wrap to 0. -1 without sequence numbers.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        // Modulo 2^31, as the Java client counts.
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records, which are not data.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether all records carry the broker's append time (`max_timestamp`).
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// How the records are compressed. Errors: `InvalidInput` (a codec nobody has defined).
    pub fn compression(&self) -> Result<Compression, WireError> {
        let id = self.attributes & COMPRESSION_MASK;
        Compression::from_id(id).ok_or_else(|| {
            WireError::invalid(format!("batch at offset {} has unknown compression {id}", self.base_offset))
        })
    }

    fn read(bytes: &[u8; BATCH_HEADER_BYTES]) -> Self {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| (u32::from(u16_at(at)) << 16) | u32::from(u16_at(at + 2));
        let u64_at = |at: usize| (u64::from(u32_at(at)) << 32) | u64::from(u32_at(at + 4));
        BatchHeader {
            base_offset: u64_at(0) as i64,
            batch_length: u32_at(8) as i32,
            partition_leader_epoch: u32_at(12) as i32,
            crc: u32_at(CRC_AT),
            attributes: u16_at(ATTRIBUTES_AT) as i16,
            last_offset_delta: u32_at(23) as i32,
            base_timestamp: u64_at(27) as i64,
            max_timestamp: u64_at(35) as i64,
            producer_id: u64_at(43) as i64,
            producer_epoch: u16_at(51) as i16,
            base_sequence: u32_at(53) as i32,
            record_count: u32_at(57) as i32,
        }
    }

    /// Writes the header, whose length and CRC the caller has computed.
    pub(super) fn write(&self, bytes: &mut [u8; BATCH_HEADER_BYTES]) {
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.base_offset.to_be_bytes());
        put(8, &self.batch_length.to_be_bytes());
        put(12, &self.partition_leader_epoch.to_be_bytes());
        put(MAGIC_AT, &[MAGIC]);
        put(CRC_AT, &self.crc.to_be_bytes());
        put(ATTRIBUTES_AT, &self.attributes.to_be_bytes());
        put(23, &self.last_offset_delta.to_be_bytes());
        put(27, &self.base_timestamp.to_be_bytes());
        put(35, &self.max_timestamp.to_be_bytes());
        put(43, &self.producer_id.to_be_bytes());
        put(51, &self.producer_epoch.to_be_bytes());
        put(53, &self.base_sequence.to_be_bytes());
        put(57, &self.record_count.to_be_bytes());
    }

    /// Refuses headers whose parts contradict each other, before anyone computes with them.
    fn check(&self) -> Result<(), WireError> {
        let fault = if self.base_offset < 0 {
            "has a negative offset"
        } else if self.last_offset_delta < 0 {
            "ends before it begins"
        } else if self.base_offset.checked_add(i64::from(self.last_offset_delta) + 1).is_none() {
            "ends beyond the last offset there is"
        } else if self.record_count < 0 {
            "has a negative record count"
        } else if self.record_count > self.last_offset_delta.saturating_add(1) {
            "has more records than offsets"
        } else {
            return Ok(());
        };
        Err(WireError::corrupt(format!("batch at offset {} {fault}", self.base_offset)))
    }
}

/// One batch: its header and all its bytes, usually a slice of a fetch or produce buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBatch {
    /// The header, as `bytes` has it.
    pub header: BatchHeader,
    /// The whole batch, header included.
    pub bytes: Bytes,
}

impl RawBatch {
    /// The batch that these bytes are, exactly. Errors: `Corrupt`.
    pub fn from_bytes(bytes: Bytes) -> Result<RawBatch, WireError> {
        let len = bytes.len();
        match split(bytes).next() {
            Some(Ok(batch)) if batch.bytes.len() == len => Ok(batch),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(WireError::corrupt("bytes hold more than one record batch")),
            None => Err(WireError::corrupt(format!("{len} bytes are no whole record batch"))),
        }
    }

    /// Compares the CRC. Errors: `Corrupt`.
    pub fn verify_crc(&self) -> Result<(), WireError> {
        let computed = crc32c::crc32c(&self.bytes[ATTRIBUTES_AT..]);
        if computed == self.header.crc {
            return Ok(());
        }
        Err(WireError::corrupt(format!(
            "batch at offset {} has checksum {:08x}, but its bytes have {computed:08x}",
            self.header.base_offset, self.header.crc
        )))
    }

    /// The batch at another place in the log. The CRC does not cover these fields. Copies the bytes only when
    /// somebody else holds them too.
    #[must_use]
    pub fn with_base_offset(self, base_offset: i64, leader_epoch: i32) -> RawBatch {
        let RawBatch { mut header, bytes } = self;
        header.base_offset = base_offset;
        header.partition_leader_epoch = leader_epoch;
        let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        rewrite_place(&mut bytes, base_offset, leader_epoch);
        RawBatch { header, bytes: bytes.freeze() }
    }

    /// The records section, decompressed; a slice of the batch when it is not compressed.
    /// Errors: `Corrupt` (also when it is more than [`DECOMPRESSED_BYTES_MAX`]), `InvalidInput` (unknown codec).
    pub fn payload(&self) -> Result<Bytes, WireError> {
        self.payload_within(DECOMPRESSED_BYTES_MAX)?.ok_or_else(|| {
            WireError::corrupt(format!(
                "the batch at offset {} decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes",
                self.header.base_offset
            ))
        })
    }

    /// As [`RawBatch::payload`]; `None` when it decompresses to more than `bytes_max`, of which no more than that is ever held.
    /// What is not compressed is held already, and has no bound here. Errors: `Corrupt`, `InvalidInput` (unknown codec).
    pub fn payload_within(&self, bytes_max: usize) -> Result<Option<Bytes>, WireError> {
        let section = self.bytes.slice(BATCH_HEADER_BYTES..);
        let compression = self.header.compression()?;
        compression::decompress(compression, section, bytes_max).map_err(|error| {
            WireError::new(
                error.kind(),
                format!("decompressing the {compression} batch at offset {}", self.header.base_offset),
            )
            .with_source(error)
        })
    }

    /// The records, to iterate over. Does not compare the CRC. Errors: as [`RawBatch::payload`].
    pub fn records(&self) -> Result<Records, WireError> {
        Records::new(self.header, self.payload()?)
    }

    /// As [`RawBatch::records`]; `None` as [`RawBatch::payload_within`] says.
    pub fn records_within(&self, bytes_max: usize) -> Result<Option<Records>, WireError> {
        self.payload_within(bytes_max)?.map(|payload| Records::new(self.header, payload)).transpose()
    }
}

/// Gives a batch, which starts at the front of `bytes`, its place in the log.
///
/// # Panics
/// When `bytes` is shorter than a batch header.
pub fn rewrite_place(bytes: &mut [u8], base_offset: i64, leader_epoch: i32) {
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Splits a blob of batches. A truncated last batch ends it without an error, as brokers cut fetches anywhere; a
/// wrong magic byte or an impossible header is an error, after which nothing more comes.
pub fn split(blob: Bytes) -> Split {
    Split { rest: blob }
}

/// Iterator of [`split`].
#[derive(Clone, Debug)]
pub struct Split {
    rest: Bytes,
}

impl Split {
    /// What has not been returned: after the end, the bytes of a truncated batch.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    fn advance(&mut self) -> Result<Option<RawBatch>, WireError> {
        let Some(magic) = self.rest.get(MAGIC_AT) else {
            return Ok(None);
        };
        if *magic != MAGIC {
            return Err(WireError::corrupt(format!(
                "record batch of format {magic}, only {MAGIC} is supported"
            )));
        }
        let Some(head) = self.rest.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = BatchHeader::read(head);
        let total = usize::try_from(header.batch_length)
            .ok()
            .and_then(|length| length.checked_add(LENGTH_PREFIX_BYTES))
            .filter(|total| *total >= BATCH_HEADER_BYTES)
            .ok_or_else(|| {
                WireError::corrupt(format!(
                    "batch at offset {} has length {}",
                    header.base_offset, header.batch_length
                ))
            })?;
        header.check()?;
        if self.rest.len() < total {
            return Ok(None);
        }
        Ok(Some(RawBatch { header, bytes: self.rest.split_to(total) }))
    }
}

impl Iterator for Split {
    type Item = Result<RawBatch, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if matches!(item, Some(Err(_))) {
            self.rest = Bytes::new();
        }
        item
    }
}
