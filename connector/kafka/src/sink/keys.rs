//! The keys of output records, bound to the columns of one batch.

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryViewArray, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Schema};
use sharestream_core::coordinates;

use crate::config::SinkKey;

/// Key by row.
#[derive(Debug)]
pub(super) enum Keys {
    /// No record has a key.
    None,
    /// The bytes of a column.
    Bytes(BinaryViewArray),
}

impl Keys {
    /// Checks that `schema` has what `key` names.
    pub(super) fn check(key: &SinkKey, schema: &Schema) -> Result<(), String> {
        let SinkKey::Column(name) = key else { return Ok(()) };
        let user_columns = &schema.fields()[..coordinates::user_column_count(schema)];
        match user_columns.iter().find(|field| field.name() == name) {
            Some(field) if field.data_type().is_nested() => {
                Err(format!("key column '{name}' is {}: a key is one plain value", field.data_type()))
            }
            Some(_) => Ok(()),
            None => {
                let names: Vec<_> = user_columns.iter().map(|field| field.name().as_str()).collect();
                Err(format!("there is no column '{name}' for the key; there are: {}", names.join(", ")))
            }
        }
    }

    pub(super) fn bind(key: &SinkKey, rows: &RecordBatch) -> Result<Keys, ArrowError> {
        let name = match key {
            SinkKey::None => return Ok(Keys::None),
            SinkKey::Source => coordinates::KEY,
            SinkKey::Column(name) => name,
        };
        let column = rows
            .column_by_name(name)
            .ok_or_else(|| ArrowError::SchemaError(format!("there is no column '{name}' for the key")))?;
        let is_bytes = matches!(
            column.data_type(),
            DataType::Utf8
                | DataType::Utf8View
                | DataType::LargeUtf8
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        );
        // Other types as arrow prints them.
        let bytes = if is_bytes { column.clone() } else { cast(column, &DataType::Utf8)? };
        Ok(Keys::Bytes(cast(&bytes, &DataType::BinaryView)?.as_binary_view().clone()))
    }

    #[inline]
    pub(super) fn key(&self, row: usize) -> Option<&[u8]> {
        match self {
            Keys::None => None,
            Keys::Bytes(values) if values.is_null(row) => None,
            Keys::Bytes(values) => Some(values.value(row)),
        }
    }
}
