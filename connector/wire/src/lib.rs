//! Kafka protocol layer shared by client and broker: frames, versions, messages, record batches. No I/O.
//!
//! The messages of released Kafka come from [`kafka_protocol`] and are used as they are. This crate adds what
//! that crate lacks or does too dearly for the hot path:
//!
//! ```text
//! bytes --frame::FrameDecoder--> frame --frame::decode_*--> message --records::split--> RawBatch
//!                                                                                         |
//!                              (&[u8] key, &[u8] value, headers) <--Records::iter-- Records
//! ```
//!
//! - [`frame`]: length-prefixed frames with request and response headers, also for keys nobody else knows;
//! - [`messages`] and [`txn_share_acknowledge`]: messages newer than `kafka_protocol` has them, and our own;
//! - [`records`]: record batches without an allocation per record;
//! - [`error_code`], [`versions`], [`murmur2`], [`share_state`]: the small facts both sides must agree on.
//!
//! Guarantee: no input makes a decoder of this crate panic or allocate more than a small multiple of the input's
//! length (decompression: at most [`records::DECOMPRESSED_BYTES_MAX`] for each batch). Messages that `kafka_protocol`
//! decodes have this guarantee when they come in by [`frame`], which holds each against its [`shape`] first; they take
//! at most 64 times their bytes, and hold at most [`shape::ELEMENTS_MAX`] elements.
//!
//! What this crate is not: a client, a server, or a place for retry rules.

pub mod api;
pub mod codec;
mod error;
pub mod error_code;
pub mod frame;
pub mod messages;
pub mod murmur2;
pub mod records;
pub mod shape;
pub mod share_state;
pub mod txn_share_acknowledge;
pub mod versions;

pub use error::WireError;
pub use error_code::KafkaError;
