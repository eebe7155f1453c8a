//! Record values to Arrow columns and back.
//!
//! Decoding is strict and goes record by record: a record that does not fit the schema leaves no trace in the
//! columns and gives a [`RowError`], so that one bad record never spoils a batch. Encoding is total: what cannot be
//! written is refused once, with the schema.

pub(crate) mod avro;
mod columns;
mod csv;
mod encode;
mod encode_csv;
mod encode_json;
mod json;
mod schema;
mod time;

use arrow_array::ArrayRef;

pub use avro::{
    AvroFormat, AvroFraming, AvroOutput, AvroSchema, SchemaId, SchemaRegistry, WriterSchema, record_name_of,
};
pub(crate) use encode::write_int;
pub use encode::{BoundEncoder, OutputFormat, RowEncoder, UnwritableRow};
pub use encode_csv::CsvOutput;
pub use schema::{Column, ColumnType, CsvFormat, Format, JsonFormat};

/// Why one record is bad: the text that its dead letter carries. Names the column, never the payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// A null value, in a format that needs one.
    #[error("the record has no value")]
    NoValue,
    /// The value is not UTF-8.
    #[error("the value is not UTF-8 (first bad byte at {position})")]
    NotUtf8 {
        /// Byte position.
        position: usize,
    },
    /// Too few or too many columns.
    #[error("expected {expected} columns, found {found}")]
    ColumnCount {
        /// Columns of the schema.
        expected: usize,
        /// Columns of the record.
        found: usize,
    },
    /// Unbalanced quotes, or more than one line.
    #[error("not one CSV line: {what}")]
    BadCsv {
        /// What is wrong.
        what: &'static str,
    },
    /// Not a JSON object.
    #[error("not a JSON object that fits: {what}")]
    BadJson {
        /// What the parser says.
        what: String,
    },
    /// A value of another type.
    #[error("column {column}: not {expected}")]
    BadField {
        /// Column name.
        column: String,
        /// Name of the wanted type.
        expected: &'static str,
    },
    /// Not a datum of its schema.
    #[error("not an Avro datum of its schema: {what}")]
    BadAvro {
        /// What does not fit.
        what: String,
    },
    /// There is no schema to read it with.
    #[error("no schema to read it with: {what}")]
    NoSchema {
        /// Why.
        what: String,
    },
    /// Null where the schema has none.
    #[error("column {column}: null, but the column is not nullable")]
    NullField {
        /// Column name.
        column: String,
    },
}

/// Decodes record values of one format into columns; one per source task, reused for every batch.
#[derive(Debug)]
pub enum RowDecoder {
    /// Comma-separated values.
    Csv(csv::CsvDecoder),
    /// JSON objects.
    Json(json::JsonDecoder),
    /// Avro data.
    Avro(Box<avro::AvroDecoder>),
    /// A format that [`Format::faults`] refuses, and why: every record is bad.
    Refused(String),
    /// No decoding: the one column is the value itself, a view of the fetch buffer.
    Raw,
}

impl RowDecoder {
    /// A decoder for `format`.
    pub fn new(format: &Format) -> Self {
        match format {
            Format::Csv(format) => RowDecoder::Csv(csv::CsvDecoder::new(format)),
            Format::Json(format) => RowDecoder::Json(json::JsonDecoder::new(format)),
            Format::Avro(format) => match avro::AvroDecoder::new(format) {
                Ok(decoder) => RowDecoder::Avro(Box::new(decoder)),
                Err(fault) => RowDecoder::Refused(fault),
            },
            Format::Raw => RowDecoder::Raw,
        }
    }

    /// Adds the row of one record. On error no column has changed.
    pub fn decode(&mut self, value: Option<&[u8]>) -> Result<(), RowError> {
        match self {
            RowDecoder::Csv(decoder) => decoder.decode(text(value)?),
            RowDecoder::Json(decoder) => decoder.decode(text(value)?),
            RowDecoder::Avro(decoder) => decoder.decode(value),
            RowDecoder::Refused(what) => Err(RowError::NoSchema { what: what.clone() }),
            RowDecoder::Raw => Ok(()),
        }
    }

    /// The id of the schema that must be learned before `value` can be decoded.
    #[inline]
    pub fn unknown_schema(&self, value: Option<&[u8]>) -> Option<SchemaId> {
        match self {
            RowDecoder::Avro(decoder) => decoder.unknown(value?),
            RowDecoder::Csv(_) | RowDecoder::Json(_) | RowDecoder::Refused(_) | RowDecoder::Raw => None,
        }
    }

    /// Takes the schema of an id.
    pub fn learn_schema(&mut self, id: SchemaId, schema: &WriterSchema) {
        if let RowDecoder::Avro(decoder) = self {
            decoder.learn(id, schema);
        }
    }

    /// Forgets the ids that had no schema, so that they are asked for again.
    pub fn forget_missing_schemas(&mut self) {
        if let RowDecoder::Avro(decoder) = self {
            decoder.forget_missing();
        }
    }

    /// The columns of all rows since the last call. `values` is the column of the values themselves, which is all
    /// that the raw format has.
    pub fn finish(&mut self, values: &ArrayRef) -> Result<Vec<ArrayRef>, arrow_schema::ArrowError> {
        match self {
            RowDecoder::Csv(decoder) => decoder.finish(),
            RowDecoder::Json(decoder) => decoder.finish(),
            RowDecoder::Avro(decoder) => decoder.finish(),
            RowDecoder::Refused(_) => Ok(Vec::new()),
            RowDecoder::Raw => Ok(vec![values.clone()]),
        }
    }
}

fn text(value: Option<&[u8]>) -> Result<&str, RowError> {
    let value = value.ok_or(RowError::NoValue)?;
    std::str::from_utf8(value).map_err(|error| RowError::NotUtf8 { position: error.valid_up_to() })
}

#[cfg(test)]
mod tests;
