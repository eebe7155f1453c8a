//! Record batches, format version 2 (KIP-98), without an allocation per record.
//!
//! ```text
//! base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 = 2 | crc u32 | attributes i16
//! | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16
//! | base_sequence i32 | record_count i32 | records (compressed as a whole)
//!
//! record: length | attributes i8 | timestamp_delta | offset_delta | key | value | header_count | headers
//! ```
//! Numbers of a record are zigzag varints. The CRC-32C covers everything from `attributes` on, so that a broker
//! gives a batch its offset and leader epoch without computing it again.

mod batch;
mod compression;
pub mod control;
mod decode;
mod encode;
mod snappy;
mod varint;

pub use batch::{BATCH_HEADER_BYTES, BatchHeader, RawBatch, Split, rewrite_place, split};
pub use compression::{Compression, DECOMPRESSED_BYTES_MAX};
pub use decode::{HeadersIter, HeadersView, RecordView, Records, RecordsIter};
pub use encode::{BatchBuilder, BatchMeta};

#[cfg(test)]
mod tests;
