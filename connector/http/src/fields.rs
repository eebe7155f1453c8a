//! Columns out of a body of JSON.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_schema::DataType;
use serde_json::Value;

use crate::settings::{FieldType, JsonField};

impl FieldType {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            FieldType::Utf8 => DataType::Utf8,
            FieldType::Int64 => DataType::Int64,
            FieldType::Float64 => DataType::Float64,
            FieldType::Boolean => DataType::Boolean,
        }
    }

    fn name(self) -> &'static str {
        match self {
            FieldType::Utf8 => "text",
            FieldType::Int64 => "a whole number",
            FieldType::Float64 => "a number",
            FieldType::Boolean => "true or false",
        }
    }
}

/// One value for each field. Errors: what is wrong with the body, without its content.
pub(crate) fn columns(fields: &[JsonField], body: &[u8]) -> Result<Vec<ArrayRef>, String> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let document = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON ({error})"))?
    };
    fields.iter().map(|field| column(field, &document)).collect()
}

fn column(field: &JsonField, document: &Value) -> Result<ArrayRef, String> {
    let place = if field.pointer.is_empty() { "the body" } else { &field.pointer };
    let value = document.pointer(&field.pointer).filter(|value| !value.is_null());
    if value.is_none() && field.is_required {
        return Err(format!("the body has no value at {place}, which column '{}' needs", field.name));
    }
    let other = || format!("{place} is not {}, which column '{}' is", field.field_type.name(), field.name);
    let column: ArrayRef = match field.field_type {
        FieldType::Utf8 => {
            let text = value.map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            Arc::new(StringArray::from(vec![text]))
        }
        FieldType::Int64 => {
            Arc::new(Int64Array::from(vec![value.map(|value| value.as_i64().ok_or_else(other)).transpose()?]))
        }
        FieldType::Float64 => Arc::new(Float64Array::from(vec![
            value.map(|value| value.as_f64().ok_or_else(other)).transpose()?,
        ])),
        FieldType::Boolean => Arc::new(BooleanArray::from(vec![
            value.map(|value| value.as_bool().ok_or_else(other)).transpose()?,
        ])),
    };
    Ok(column)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type};

    use super::*;

    fn field(pointer: &str, field_type: FieldType) -> JsonField {
        JsonField { name: "c".to_owned(), pointer: pointer.to_owned(), field_type, is_required: false }
    }

    const BODY: &[u8] = br#"{"a": {"b": [7, 1.5, "x", true, null, {"y": 1}]}}"#;

    fn one(pointer: &str, field_type: FieldType) -> Result<ArrayRef, String> {
        Ok(columns(&[field(pointer, field_type)], BODY)?.remove(0))
    }

    #[test]
    fn pointers_find_typed_values() {
        assert_eq!(one("/a/b/0", FieldType::Int64).unwrap().as_primitive::<Int64Type>().value(0), 7);
        assert_eq!(one("/a/b/0", FieldType::Float64).unwrap().as_primitive::<Float64Type>().value(0), 7.0);
        assert_eq!(one("/a/b/1", FieldType::Float64).unwrap().as_primitive::<Float64Type>().value(0), 1.5);
        assert_eq!(one("/a/b/2", FieldType::Utf8).unwrap().as_string::<i32>().value(0), "x");
        assert_eq!(one("/a/b/5", FieldType::Utf8).unwrap().as_string::<i32>().value(0), "{\"y\":1}");
        assert!(one("/a/b/3", FieldType::Boolean).unwrap().as_boolean().value(0));
        for pointer in ["/a/b/4", "/a/b/9", "/no"] {
            assert!(one(pointer, FieldType::Int64).unwrap().is_null(0), "{pointer}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_an_error_that_shows_no_content() {
        let error = one("/a/b/1", FieldType::Int64).unwrap_err();
        assert_eq!(error, "/a/b/1 is not a whole number, which column 'c' is");
        assert!(one("/a/b/2", FieldType::Boolean).unwrap_err().contains("true or false"));
        let error = columns(&[field("/a", FieldType::Utf8)], b"{oops").unwrap_err();
        assert!(error.contains("not JSON") && !error.contains("oops"), "{error}");
    }

    #[test]
    fn a_value_that_is_required_must_be_there() {
        let needed = JsonField { is_required: true, ..field("/z", FieldType::Utf8) };
        assert!(columns(std::slice::from_ref(&needed), BODY).unwrap_err().contains("no value at /z"));
        assert!(columns(&[needed], b"").is_err(), "an empty body has nothing");
        assert!(columns(&[field("/z", FieldType::Utf8)], b"").unwrap()[0].is_null(0));
    }
}
