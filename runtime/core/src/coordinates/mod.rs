//! The hidden columns that carry a row's source coordinates through the graph.
//!
//! Every batch between tasks ends with these columns, in this order, after the user's columns. Operators pass them
//! through whatever they project. They are what a sink writes as provenance and what a dead letter needs.

mod derived;
mod parked;
mod reader;
mod rejected;

use std::sync::Arc;

pub use derived::derived;
pub use parked::{ParkedCopy, ParkedCopyError, parked_schema};
pub use reader::{Coordinates, DictionaryText, bytes};
pub use rejected::{RejectCounts, RejectKind, errors, reject_kinds, rejected_batch, rejected_schema};

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// Topic name. `Dictionary(Int16, Utf8)`.
pub const TOPIC: &str = "_topic";
/// Topic id as Kafka prints it. `Dictionary(Int16, Utf8)`.
pub const TOPIC_ID: &str = "_topic_id";
/// Partition. `Int32`.
pub const PARTITION: &str = "_partition";
/// Offset. `Int64`.
pub const OFFSET: &str = "_offset";
/// Which of the rows that came from this offset this is, from 0. `Int32`.
pub const ORDINAL: &str = "_ordinal";
/// Record timestamp. `Timestamp(ms, UTC)`.
pub const TIMESTAMP: &str = "_timestamp";
/// How often the record was delivered, from 1. `Int16`.
pub const DELIVERY_COUNT: &str = "_delivery_count";
/// Record key; null when the record has none. `BinaryView`, a view of the fetch buffer.
pub const KEY: &str = "_key";
/// Record value; null for tombstones. `BinaryView`, a view of the fetch buffer.
pub const VALUE: &str = "_value";
/// Record headers as the record format encodes them (count, then key and value each); null when there are none.
/// `BinaryView`, a view of the fetch buffer.
pub const HEADERS: &str = "_headers";
/// Where a record that was parked lies now ([`ParkedCopy`]); null for all others. `Utf8`.
pub const PARKED: &str = "_parked";
/// Why a row was rejected; only in rejected batches. `Utf8`.
pub const ERROR: &str = "_error";
/// The kind of that error ([`RejectKind`]); only in rejected batches. `Utf8`.
pub const REJECT_KIND: &str = "_error_kind";

/// Names of the hidden columns, in order.
pub const COLUMNS: [&str; 11] =
    [TOPIC, TOPIC_ID, PARTITION, OFFSET, ORDINAL, TIMESTAMP, DELIVERY_COUNT, KEY, VALUE, HEADERS, PARKED];

/// The hidden columns as Arrow fields, in order.
pub fn fields() -> Vec<Arc<Field>> {
    let dictionary = || DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    let field = |name: &str, data_type, nullable| Arc::new(Field::new(name, data_type, nullable));
    vec![
        field(TOPIC, dictionary(), false),
        field(TOPIC_ID, dictionary(), false),
        field(PARTITION, DataType::Int32, false),
        field(OFFSET, DataType::Int64, false),
        field(ORDINAL, DataType::Int32, false),
        field(TIMESTAMP, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), false),
        field(DELIVERY_COUNT, DataType::Int16, false),
        field(KEY, DataType::BinaryView, true),
        field(VALUE, DataType::BinaryView, true),
        field(HEADERS, DataType::BinaryView, true),
        parked::field(),
    ]
}

/// `user` columns followed by the hidden columns.
pub fn with_coordinates(user: &Schema) -> SchemaRef {
    let fields: Vec<_> = user.fields().iter().cloned().chain(fields()).collect();
    Arc::new(Schema::new(fields))
}

/// True for names that columns of a user cannot have.
pub fn is_reserved(name: &str) -> bool {
    COLUMNS.contains(&name) || name == ERROR || name == REJECT_KIND
}

/// Number of columns in front of the hidden ones.
pub fn user_column_count(schema: &Schema) -> usize {
    schema.fields().len().saturating_sub(COLUMNS.len())
}
