//! Rows to record values: the columns are bound once for each batch, then each row is written from them.

use std::io::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int64Array,
    RecordBatch, StringArray, StringViewArray, UInt64Array,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Schema, TimeUnit};
use serde::{Deserialize, Serialize};
use sharestream_core::coordinates;

use super::avro::{AvroEncoder, AvroOutput, AvroRows, AvroSchema};
use super::encode_csv::{CsvOutput, CsvRows};
use super::encode_json::JsonRows;
use super::time;

/// Format of the output's record values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum OutputFormat {
    /// One JSON object in each record, every column a field; null is written as `null`.
    #[default]
    Json,
    /// One CSV line in each record, without a header and without a line end.
    Csv(CsvOutput),
    /// One Avro datum in each record.
    Avro(AvroOutput),
    /// The value of the only column (text or binary), byte for byte; null gives a record without a value.
    Raw,
}

/// Writes the rows of batches of one schema.
#[derive(Debug)]
pub struct RowEncoder {
    format: OutputFormat,
    names: Vec<String>,
    /// With the format Avro.
    avro: Option<AvroEncoder>,
}

/// A [`RowEncoder`] with the columns of one batch.
#[derive(Debug)]
pub struct BoundEncoder(Bound);

/// Why a row has no value in the format. Names the column, never its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("output column {column}: {what}")]
#[non_exhaustive]
pub struct UnwritableRow {
    /// Column name.
    pub column: String,
    /// What is wrong with the value.
    pub what: String,
}

#[derive(Debug)]
enum Bound {
    Json(JsonRows),
    Csv(CsvRows),
    Avro(AvroRows, Vec<String>),
    Raw(Cells),
}

impl RowEncoder {
    /// An encoder for the user's columns of `schema` (the hidden ones at its end are not written).
    ///
    /// # Errors
    /// What the format cannot write, for the user.
    pub fn new(format: &OutputFormat, schema: &Schema) -> Result<Self, String> {
        let user_columns = &schema.fields()[..coordinates::user_column_count(schema)];
        let names: Vec<String> = user_columns.iter().map(|field| field.name().clone()).collect();
        if let OutputFormat::Avro(avro) = format {
            let text = avro.schema_of(user_columns)?;
            let schema = AvroSchema::parse(&text).map_err(|fault| format!("the Avro schema: {fault}"))?;
            let encoder = AvroEncoder::new(&schema, user_columns, avro.prefix())?;
            return Ok(RowEncoder { format: format.clone(), names, avro: Some(encoder) });
        }
        for field in user_columns {
            check_type(field.name(), field.data_type())?;
        }
        if *format == OutputFormat::Raw {
            let only = match user_columns {
                [only] => only,
                _ => {
                    return Err(format!(
                        "format raw writes one column, but there are {}",
                        user_columns.len()
                    ));
                }
            };
            use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
            if !matches!(only.data_type(), Binary | BinaryView | LargeBinary | LargeUtf8 | Utf8 | Utf8View) {
                return Err(format!(
                    "format raw writes text or binary, but {} is {}",
                    only.name(),
                    only.data_type()
                ));
            }
        }
        if let OutputFormat::Csv(csv) = format {
            csv.check()?;
        }
        Ok(RowEncoder { format: format.clone(), names, avro: None })
    }

    /// Binds the columns of `rows`, which has the schema that the encoder was made for.
    pub fn bind(&self, rows: &RecordBatch) -> Result<BoundEncoder, ArrowError> {
        if let Some(avro) = &self.avro {
            return Ok(BoundEncoder(Bound::Avro(avro.bind(rows)?, self.names.clone())));
        }
        let columns = &rows.columns()[..self.names.len()];
        let cells = || columns.iter().map(Cells::bind).collect::<Result<Vec<_>, _>>();
        Ok(BoundEncoder(match &self.format {
            OutputFormat::Json => Bound::Json(JsonRows::new(&self.names, cells()?)),
            OutputFormat::Csv(csv) => Bound::Csv(CsvRows::new(csv, cells()?)),
            OutputFormat::Raw | OutputFormat::Avro(_) => {
                let binary = cast(&columns[0], &DataType::BinaryView)?;
                Bound::Raw(Cells::Binary(binary.as_binary_view().clone()))
            }
        }))
    }
}

impl BoundEncoder {
    /// Appends the value of `row` to `out`; false when the record has no value.
    ///
    /// # Errors
    /// A value of the row that the format has no place for, such as a text that is no symbol of an Avro enum; what was
    /// appended means nothing then. Only Avro has such.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<bool, UnwritableRow> {
        match &self.0 {
            Bound::Json(rows) => rows.write(row, out),
            Bound::Csv(rows) => rows.write(row, out),
            Bound::Avro(rows, names) => rows.write(row, out).map_err(|(column, what)| UnwritableRow {
                column: column.and_then(|index| names.get(index)).cloned().unwrap_or_default(),
                what: what.into_owned(),
            })?,
            Bound::Raw(cells) => {
                if cells.is_null(row) {
                    return Ok(false);
                }
                if let Cells::Binary(values) = cells {
                    out.extend_from_slice(values.value(row));
                }
            }
        }
        Ok(true)
    }
}

fn check_type(name: &str, data_type: &DataType) -> Result<(), String> {
    match data_type {
        DataType::Dictionary(_, value_type) => check_type(name, value_type),
        nested if nested.is_nested() => {
            Err(format!("column {name} is {nested}; the sink writes flat columns only: select its parts"))
        }
        _ => Ok(()),
    }
}

/// One column in one of the few shapes that are written.
#[derive(Debug)]
pub(super) enum Cells {
    Null,
    Boolean(BooleanArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    Float32(Float32Array),
    Text(StringArray),
    TextView(StringViewArray),
    Date(Date32Array),
    Timestamp { values: Int64Array, per_second: i64, zulu: bool },
    Binary(BinaryViewArray),
}

impl Cells {
    pub(super) fn bind(column: &ArrayRef) -> Result<Cells, ArrowError> {
        use DataType::*;
        Ok(match column.data_type() {
            DataType::Null => Cells::Null,
            Boolean => Cells::Boolean(column.as_boolean().clone()),
            Int64 => Cells::Int(column.as_primitive::<Int64Type>().clone()),
            Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => {
                Cells::Int(cast(column, &Int64)?.as_primitive::<Int64Type>().clone())
            }
            UInt64 => Cells::UInt(column.as_primitive::<UInt64Type>().clone()),
            Float64 => Cells::Float(column.as_primitive::<Float64Type>().clone()),
            Float32 => Cells::Float32(column.as_primitive::<Float32Type>().clone()),
            Float16 => Cells::Float32(cast(column, &Float32)?.as_primitive::<Float32Type>().clone()),
            Utf8 => Cells::Text(column.as_string::<i32>().clone()),
            Utf8View => Cells::TextView(column.as_string_view().clone()),
            LargeUtf8 => Cells::TextView(cast(column, &Utf8View)?.as_string_view().clone()),
            Date32 => Cells::Date(column.as_primitive::<Date32Type>().clone()),
            Date64 => return Cells::bind(&cast(column, &Timestamp(TimeUnit::Millisecond, None))?),
            Timestamp(unit, zone) => {
                let per_second = match unit {
                    TimeUnit::Second => 1,
                    TimeUnit::Millisecond => 1_000,
                    TimeUnit::Microsecond => 1_000_000,
                    TimeUnit::Nanosecond => 1_000_000_000,
                };
                let values = cast(column, &Int64)?.as_primitive::<Int64Type>().clone();
                Cells::Timestamp { values, per_second, zulu: zone.is_some() }
            }
            Binary | LargeBinary | FixedSizeBinary(_) | BinaryView => {
                Cells::Binary(cast(column, &BinaryView)?.as_binary_view().clone())
            }
            Dictionary(_, value_type) => return Cells::bind(&cast(column, value_type)?),
            // Decimals, times, durations, intervals: as arrow prints them.
            _ => Cells::Text(cast(column, &Utf8)?.as_string::<i32>().clone()),
        })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Cells::Null => true,
            Cells::Boolean(values) => values.is_null(row),
            Cells::Int(values) => values.is_null(row),
            Cells::UInt(values) => values.is_null(row),
            Cells::Float(values) => values.is_null(row),
            Cells::Float32(values) => values.is_null(row),
            Cells::Text(values) => values.is_null(row),
            Cells::TextView(values) => values.is_null(row),
            Cells::Date(values) => values.is_null(row),
            Cells::Timestamp { values, .. } => values.is_null(row),
            Cells::Binary(values) => values.is_null(row),
        }
    }

    /// The text of a text column.
    pub(super) fn text(&self, row: usize) -> Option<&str> {
        match self {
            Cells::Text(values) => Some(values.value(row)),
            Cells::TextView(values) => Some(values.value(row)),
            _ => None,
        }
    }

    /// Writes a cell that is neither null nor text; needs no escaping in any format. Binary is written as lower-case
    /// hex.
    pub(super) fn write_plain(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Cells::Null | Cells::Text(_) | Cells::TextView(_) => {}
            Cells::Boolean(values) => {
                let text: &[u8] = if values.value(row) { b"true" } else { b"false" };
                out.extend_from_slice(text);
            }
            Cells::Int(values) => write_int(out, values.value(row)),
            Cells::UInt(values) => write_uint(out, values.value(row)),
            Cells::Float(values) => write_serialized(out, &values.value(row)),
            Cells::Float32(values) => write_serialized(out, &values.value(row)),
            Cells::Date(values) => time::write_date(out, i64::from(values.value(row))),
            Cells::Timestamp { values, per_second, zulu } => {
                time::write_timestamp(out, values.value(row), *per_second, *zulu);
            }
            Cells::Binary(values) => {
                for byte in values.value(row) {
                    // Writing to a vector cannot fail.
                    let _ = write!(out, "{byte:02x}");
                }
            }
        }
    }
}

/// Writes a number or a string as JSON has it.
pub(super) fn write_serialized<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Numbers, strings and a vector: neither serialising nor writing can fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes a decimal integer.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    write_uint(out, value.unsigned_abs());
}

fn write_uint(out: &mut Vec<u8>, value: u64) {
    /// Digits of `u64::MAX`.
    const DIGITS_MAX: usize = 20;
    let mut digits = [0u8; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    let mut rest = value;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
