//! A value of a row as text and as JSON.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

/// A value that cannot be put into a request: the record is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueError(pub(crate) String);

impl ValueError {
    pub(crate) fn null(batch: &RecordBatch, index: usize) -> Self {
        ValueError(format!("column '{}' is null, and the request needs it", name(batch, index)))
    }
}

fn name(batch: &RecordBatch, index: usize) -> &str {
    batch.schema_ref().field(index).name()
}

/// The one name of a zone that is known.
const UTC: &str = "UTC";

/// Whether a value of this type has one text and one JSON.
pub(crate) fn is_plain(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_plain(values),
        // Names of zones need a table that is not in the tree.
        DataType::Timestamp(_, Some(zone)) => zone.as_ref() == UTC || zone.starts_with(['+', '-']),
        other => !other.is_nested() && !matches!(other, DataType::Interval(_)),
    }
}

/// The value as text (bytes as they are); `None` for null.
pub(crate) fn text(
    batch: &RecordBatch,
    index: usize,
    row: usize,
) -> Result<Option<Cow<'_, [u8]>>, ValueError> {
    let column = batch.column(index);
    if column.is_null(row) {
        return Ok(None);
    }
    let bytes: Cow<'_, [u8]> = match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes().into(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).as_bytes().into(),
        DataType::Utf8View => column.as_string_view().value(row).as_bytes().into(),
        DataType::Binary => column.as_binary::<i32>().value(row).into(),
        DataType::LargeBinary => column.as_binary::<i64>().value(row).into(),
        DataType::BinaryView => column.as_binary_view().value(row).into(),
        _ => formatted(batch, index, row)?.into_bytes().into(),
    };
    Ok(Some(bytes))
}

fn formatted(batch: &RecordBatch, index: usize, row: usize) -> Result<String, ValueError> {
    let options = FormatOptions::default();
    let unprintable = |error: &dyn std::fmt::Display| {
        ValueError(format!("column '{}' cannot be written as text ({error})", name(batch, index)))
    };
    let mut value = batch.column(index).slice(row, 1);
    if let DataType::Timestamp(unit, Some(zone)) = value.data_type()
        && zone.as_ref() == UTC
    {
        let by_offset = DataType::Timestamp(*unit, Some("+00:00".into()));
        value = cast(&value, &by_offset).map_err(|error| unprintable(&error))?;
    }
    let formatter = ArrayFormatter::try_new(&value, &options).map_err(|error| unprintable(&error))?;
    formatter.value(0).try_to_string().map_err(|error| unprintable(&error))
}

/// Writes the value as JSON: numbers and booleans as such, all else as a string.
pub(crate) fn json(
    batch: &RecordBatch,
    index: usize,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let Some(text) = text(batch, index, row)? else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let data_type = batch.column(index).data_type();
    if data_type.is_floating() {
        // JSON has neither infinity nor NaN.
        let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<f64>().ok());
        let number = number.and_then(serde_json::Number::from_f64);
        match number {
            // The formatter's text may be one that JSON does not know, such as 1e+20 without a fraction.
            Some(number) => out.extend_from_slice(number.to_string().as_bytes()),
            None => out.extend_from_slice(b"null"),
        }
    } else if data_type.is_numeric() || *data_type == DataType::Boolean {
        out.extend_from_slice(&text);
    } else {
        let text = std::str::from_utf8(&text)
            .map_err(|_| ValueError(format!("column '{}' is not UTF-8 text", name(batch, index))))?;
        string(text, out);
    }
    Ok(())
}

/// Writes a JSON string.
pub(crate) fn string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringArray,
        TimestampMillisecondArray,
    };

    use super::*;

    fn batch() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(StringArray::from(vec!["a\"ä\n"]))),
            ("int", Arc::new(Int64Array::from(vec![-7]))),
            ("float", Arc::new(Float64Array::from(vec![1e300]))),
            ("nan", Arc::new(Float64Array::from(vec![f64::NAN]))),
            ("bool", Arc::new(BooleanArray::from(vec![true]))),
            ("null", Arc::new(StringArray::from(vec![None::<&str>]))),
            ("bytes", Arc::new(BinaryViewArray::from(vec![&[0xffu8, 0x41][..]]))),
            ("time", Arc::new(TimestampMillisecondArray::from(vec![0]).with_timezone("UTC"))),
            ("decimal", Arc::new(Decimal128Array::from(vec![1_205]).with_precision_and_scale(9, 2).unwrap())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
    }

    #[test]
    fn values_become_json() {
        let batch = batch();
        let json = |index| {
            let mut out = Vec::new();
            json(&batch, index, 0, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(json(0).unwrap(), "\"a\\\"ä\\n\"");
        assert_eq!(json(1).unwrap(), "-7");
        assert_eq!(json(2).unwrap().parse::<f64>().unwrap(), 1e300);
        assert_eq!(json(3).unwrap(), "null");
        assert_eq!(json(4).unwrap(), "true");
        assert_eq!(json(5).unwrap(), "null");
        assert!(json(6).unwrap_err().0.contains("'bytes' is not UTF-8"));
        assert_eq!(json(7).unwrap(), "\"1970-01-01T00:00:00Z\"");
        assert_eq!(json(8).unwrap(), "12.05");
    }

    #[test]
    fn values_become_text() {
        let batch = batch();
        assert_eq!(text(&batch, 6, 0).unwrap().unwrap().as_ref(), [0xff, 0x41]);
        assert_eq!(text(&batch, 1, 0).unwrap().unwrap().as_ref(), b"-7");
        assert_eq!(text(&batch, 5, 0).unwrap(), None);
    }
}
