//! Growing columns with rollback: a row is appended field by field, and a bad row is cut off again.

use std::sync::Arc;

use arrow_array::types::{Date32Type, Float64Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::schema::{Column, ColumnType};
use super::{RowError, time};

/// One column under construction.
#[derive(Debug)]
pub(super) struct ColumnBuilder {
    name: String,
    nullable: bool,
    validity: Validity,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float64(Vec<f64>),
    Boolean(BooleanBufferBuilder),
    Utf8 { ends: Vec<i32>, bytes: Vec<u8> },
    Date(Vec<i32>),
    Timestamp(Vec<i64>),
}

/// Null bits, made only when the first null comes.
#[derive(Debug, Default)]
pub(super) struct Validity {
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    pub(super) fn push_valid(&mut self) {
        if let Some(bits) = &mut self.bits {
            bits.append(true);
        }
    }

    pub(super) fn push_null(&mut self, row_count: usize) {
        let bits = self.bits.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(row_count + 64);
            bits.append_n(row_count, true);
            bits
        });
        bits.append(false);
    }

    pub(super) fn truncate(&mut self, row_count: usize) {
        if let Some(bits) = &mut self.bits {
            bits.truncate(row_count);
        }
    }

    pub(super) fn finish(&mut self) -> Option<NullBuffer> {
        self.bits.take().map(|mut bits| NullBuffer::new(bits.finish())).filter(|nulls| nulls.null_count() > 0)
    }
}

impl ColumnBuilder {
    pub(super) fn new(column: &Column) -> Self {
        let values = match column.column_type {
            ColumnType::Int32 => Values::Int32(Vec::new()),
            ColumnType::Int64 => Values::Int64(Vec::new()),
            ColumnType::Float64 => Values::Float64(Vec::new()),
            ColumnType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            ColumnType::String => Values::Utf8 { ends: vec![0], bytes: Vec::new() },
            ColumnType::Date => Values::Date(Vec::new()),
            ColumnType::Timestamp => Values::Timestamp(Vec::new()),
        };
        ColumnBuilder {
            name: column.name.clone(),
            nullable: column.nullable,
            validity: Validity::default(),
            values,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Appends the value that `text` spells. On error nothing is appended.
    #[inline]
    pub(super) fn push_text(&mut self, text: &str) -> Result<(), RowError> {
        let parsed = match &mut self.values {
            Values::Int64(values) => push_some(values, parse_int64(text.as_bytes())),
            Values::Utf8 { ends, bytes } => {
                bytes.extend_from_slice(text.as_bytes());
                ends.push(bytes.len() as i32);
                true
            }
            Values::Int32(values) => {
                push_some(values, parse_int64(text.as_bytes()).and_then(|value| i32::try_from(value).ok()))
            }
            Values::Float64(values) => push_some(values, text.parse().ok()),
            Values::Boolean(values) => match text {
                "true" | "TRUE" | "True" => push_bit(values, true),
                "false" | "FALSE" | "False" => push_bit(values, false),
                _ => false,
            },
            Values::Date(values) => push_some(values, time::parse_date(text)),
            Values::Timestamp(values) => push_some(values, time::parse_timestamp_ms(text)),
        };
        if !parsed {
            return Err(self.bad_field());
        }
        self.validity.push_valid();
        Ok(())
    }

    /// Appends an integer, where the column holds such.
    pub(super) fn push_int(&mut self, value: i64) -> Result<(), RowError> {
        let fits = match &mut self.values {
            Values::Int64(values) | Values::Timestamp(values) => push_some(values, Some(value)),
            Values::Int32(values) => push_some(values, i32::try_from(value).ok()),
            Values::Float64(values) => push_some(values, Some(value as f64)),
            Values::Boolean(_) | Values::Utf8 { .. } | Values::Date(_) => false,
        };
        if !fits {
            return Err(self.bad_field());
        }
        self.validity.push_valid();
        Ok(())
    }

    /// Appends a floating-point number, where the column holds such.
    pub(super) fn push_float(&mut self, value: f64) -> Result<(), RowError> {
        let Values::Float64(values) = &mut self.values else { return Err(self.bad_field()) };
        values.push(value);
        self.validity.push_valid();
        Ok(())
    }

    /// Appends a truth value, where the column holds such.
    pub(super) fn push_bool(&mut self, value: bool) -> Result<(), RowError> {
        let Values::Boolean(values) = &mut self.values else { return Err(self.bad_field()) };
        values.append(value);
        self.validity.push_valid();
        Ok(())
    }

    /// Appends text that came as text (a JSON string): numbers are not read from it.
    pub(super) fn push_string(&mut self, text: &str) -> Result<(), RowError> {
        match self.values {
            Values::Utf8 { .. } | Values::Date(_) | Values::Timestamp(_) => self.push_text(text),
            Values::Int32(_) | Values::Int64(_) | Values::Float64(_) | Values::Boolean(_) => {
                Err(self.bad_field())
            }
        }
    }

    /// Appends null. On error nothing is appended.
    pub(super) fn push_null(&mut self) -> Result<(), RowError> {
        if !self.nullable {
            return Err(RowError::NullField { column: self.name.clone() });
        }
        self.validity.push_null(self.row_count());
        match &mut self.values {
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Timestamp(values) => values.push(0),
            Values::Float64(values) => values.push(0.0),
            Values::Boolean(values) => values.append(false),
            Values::Utf8 { ends, bytes } => ends.push(bytes.len() as i32),
        }
        Ok(())
    }

    /// Cuts the column back to `row_count` rows; it may have fewer.
    pub(super) fn truncate(&mut self, row_count: usize) {
        if self.row_count() <= row_count {
            return;
        }
        self.validity.truncate(row_count);
        match &mut self.values {
            Values::Int32(values) | Values::Date(values) => values.truncate(row_count),
            Values::Int64(values) | Values::Timestamp(values) => values.truncate(row_count),
            Values::Float64(values) => values.truncate(row_count),
            Values::Boolean(values) => values.truncate(row_count),
            Values::Utf8 { ends, bytes } => {
                ends.truncate(row_count + 1);
                bytes.truncate(ends[row_count] as usize);
            }
        }
    }

    fn row_count(&self) -> usize {
        match &self.values {
            Values::Int32(values) | Values::Date(values) => values.len(),
            Values::Int64(values) | Values::Timestamp(values) => values.len(),
            Values::Float64(values) => values.len(),
            Values::Boolean(values) => values.len(),
            Values::Utf8 { ends, .. } => ends.len() - 1,
        }
    }

    fn bad_field(&self) -> RowError {
        let expected = match self.values {
            Values::Int32(_) => "an int32",
            Values::Int64(_) => "an int64",
            Values::Float64(_) => "a float64",
            Values::Boolean(_) => "a boolean",
            Values::Utf8 { .. } => "a string",
            Values::Date(_) => "a date (like 2013-01-31)",
            Values::Timestamp(_) => "a timestamp (like 2013-01-31T10:00:00Z)",
        };
        RowError::BadField { column: self.name.clone(), expected }
    }

    /// Takes all rows out as an array.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.validity.finish();
        Ok(match &mut self.values {
            Values::Int32(values) => primitive::<Int32Type>(values, nulls)?,
            Values::Int64(values) => primitive::<Int64Type>(values, nulls)?,
            Values::Float64(values) => primitive::<Float64Type>(values, nulls)?,
            Values::Date(values) => primitive::<Date32Type>(values, nulls)?,
            Values::Timestamp(values) => {
                let array = PrimitiveArray::<TimestampMillisecondType>::try_new(take(values), nulls)?;
                Arc::new(array.with_timezone("UTC"))
            }
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Utf8 { ends, bytes } => {
                let capacity = ends.len();
                let offsets = std::mem::replace(ends, Vec::with_capacity(capacity));
                ends.push(0);
                let capacity = bytes.len();
                let bytes = std::mem::replace(bytes, Vec::with_capacity(capacity));
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?)
            }
        })
    }
}

/// Takes the values; the next batch is probably as large.
fn take<T: arrow_buffer::ArrowNativeType>(values: &mut Vec<T>) -> ScalarBuffer<T> {
    let capacity = values.len();
    ScalarBuffer::from(std::mem::replace(values, Vec::with_capacity(capacity)))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(PrimitiveArray::<T>::try_new(take(values), nulls)?))
}

#[inline]
fn push_some<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    values.push(value);
    true
}

fn push_bit(values: &mut BooleanBufferBuilder, value: bool) -> bool {
    values.append(value);
    true
}

/// A decimal integer with an optional sign.
#[inline]
fn parse_int64(text: &[u8]) -> Option<i64> {
    /// Digits that cannot overflow.
    const SAFE_DIGITS: usize = 18;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > SAFE_DIGITS {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_standard_library_reads_them() {
        let texts = [
            "0",
            "-0",
            "+7",
            "-1",
            "007",
            "9223372036854775807",
            "-9223372036854775808",
            "123456789012345678",
        ];
        for text in texts {
            assert_eq!(parse_int64(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in ["", "-", "+", "NA", "1.0", " 1", "1 ", "9223372036854775808", "12a", "--1"] {
            assert_eq!(parse_int64(text.as_bytes()), None, "{text}");
        }
    }
}
