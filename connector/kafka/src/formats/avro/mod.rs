//! Avro: one datum in each record, its schema known beforehand or named by an id in front of it (`docs/formats.md`).
//!
//! ```text
//! bytes --cursor--> plan (writer's schema resolved to the reader's) --decode--> columns --> batch
//! batch --derive, fit--> schema; --encode--> bytes
//! ```
//!
//! The decoder is our own because a record that does not fit must not touch the others of its batch: columns are cut back to
//! the row before ([`decode`]). The schemas of ids come from outside of it: a decoder says which id it does not know
//! ([`AvroDecoder::unknown`]), and whoever has it asks a [`registry`] and tells it (ADR 0028).

mod arrow;
mod columns;
mod cursor;
mod decode;
mod decoder;
mod default;
mod derive;
mod encode;
mod fit;
mod parse;
mod plan;
pub(crate) mod registry;
mod schema;
mod settings;
#[cfg(test)]
mod tests;

pub(super) use decoder::AvroDecoder;
pub use derive::record_name_of;
pub(super) use encode::{AvroEncoder, AvroRows};
pub use registry::{SchemaId, SchemaRegistry, WriterSchema};
pub use schema::AvroSchema;
pub use settings::{AvroFormat, AvroFraming, AvroOutput};
