//! What is written is read, also by another schema, as a second implementation has it; bad bytes touch nothing but themselves.

mod resolution;
mod types;

use std::sync::Arc;

use apache_avro::Schema as WitnessSchema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Schema;

use super::*;
use crate::formats::{Format, OutputFormat, RowDecoder, RowEncoder};
use sharestream_core::coordinates;

/// The bytes that the other implementation makes of a value.
fn witness_bytes(schema: &WitnessSchema, value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = GenericDatumWriter::builder(schema).build().unwrap();
    writer.write_value_ref(&mut bytes, value).unwrap();
    bytes
}

/// What the other implementation reads, by the rules of schema resolution.
fn witness_value(writer: &WitnessSchema, reader: &WitnessSchema, mut bytes: &[u8]) -> Option<Value> {
    let datums = GenericDatumReader::builder(writer).reader_schema(reader).build().ok()?;
    datums.read_value(&mut bytes).ok()
}

/// A decoder of plain datums.
fn decoder(schema: &str) -> RowDecoder {
    RowDecoder::new(&Format::Avro(AvroFormat { schema: schema.to_owned(), framing: AvroFraming::None }))
}

/// A decoder of datums with the ids of these writers, from 0 on.
fn decoder_of(reader: &str, writers: &[&str]) -> RowDecoder {
    let format = AvroFormat { schema: reader.to_owned(), framing: AvroFraming::Registry };
    let mut decoder = RowDecoder::new(&Format::Avro(format));
    for (id, writer) in writers.iter().enumerate() {
        let schema = AvroSchema::parse(writer).unwrap();
        decoder.learn_schema(SchemaId(id as u32), &WriterSchema::Known(Arc::new(schema)));
    }
    decoder
}

fn framed(id: u32, datum: &[u8]) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice(), datum].concat()
}

/// All rows of a decoder.
fn finish(decoder: &mut RowDecoder) -> Vec<ArrayRef> {
    let no_values: ArrayRef = Arc::new(arrow_array::Int32Array::new_null(0));
    decoder.finish(&no_values).unwrap()
}

/// Columns of a schema as a batch, without hidden columns.
fn batch(schema: &str, columns: Vec<ArrayRef>) -> RecordBatch {
    let fields = AvroFormat { schema: schema.to_owned(), ..AvroFormat::default() }.columns().unwrap();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Every row as a datum of `output`.
fn encoded(output: AvroOutput, rows: &RecordBatch) -> Vec<Vec<u8>> {
    // The hidden columns end a schema; the encoder does not look at them.
    let schema = coordinates::with_coordinates(rows.schema_ref());
    let bound = RowEncoder::new(&OutputFormat::Avro(output), &schema).unwrap().bind(rows).unwrap();
    let write = |row| {
        let mut value = Vec::new();
        assert!(bound.write(row, &mut value).unwrap());
        value
    };
    (0..rows.num_rows()).map(write).collect()
}

fn given(schema: &str) -> AvroOutput {
    AvroOutput { schema: Some(schema.to_owned()), ..AvroOutput::default() }
}
