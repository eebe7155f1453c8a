//! Default values of fields: from the JSON of a schema to bytes, as a writer of that schema would have written them.

use serde_json::Value;

use super::encode::write_long;
use super::schema::{AvroSchema, Shape, TypeId};

/// Nested records with defaults of their own.
const DEPTH_MAX: usize = 64;

/// The bytes of a default. Errors: a default that is no value of its type, for the user.
pub(super) fn encode(schema: &AvroSchema, id: TypeId, json: &Value) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write(schema, id, json, &mut out, 0)?;
    Ok(out)
}

fn write(
    schema: &AvroSchema,
    id: TypeId,
    json: &Value,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("it is nested too deeply".to_owned());
    }
    let shape = &schema.get(id).shape;
    let unfit = || format!("it is no value of {}", shape.word());
    match (shape, json) {
        (Shape::Null, Value::Null) => {}
        (Shape::Boolean, Value::Bool(value)) => out.push(u8::from(*value)),
        (Shape::Int, Value::Number(number)) => {
            let value = number.as_i64().and_then(|value| i32::try_from(value).ok()).ok_or_else(unfit)?;
            write_long(i64::from(value), out);
        }
        (Shape::Long, Value::Number(number)) => write_long(number.as_i64().ok_or_else(unfit)?, out),
        (Shape::Float, json) => {
            out.extend_from_slice(&(float(json).ok_or_else(unfit)? as f32).to_le_bytes());
        }
        (Shape::Double, json) => out.extend_from_slice(&float(json).ok_or_else(unfit)?.to_le_bytes()),
        (Shape::Bytes, Value::String(text)) => {
            let bytes = bytes(text).ok_or_else(unfit)?;
            write_long(bytes.len() as i64, out);
            out.extend(bytes);
        }
        (Shape::String, Value::String(text)) => {
            write_long(text.len() as i64, out);
            out.extend_from_slice(text.as_bytes());
        }
        (Shape::Fixed { size, .. }, Value::String(text)) => {
            out.extend(bytes(text).filter(|bytes| bytes.len() == *size).ok_or_else(unfit)?);
        }
        (Shape::Enum { symbols, .. }, Value::String(text)) => {
            let index = symbols.iter().position(|symbol| symbol == text).ok_or_else(unfit)?;
            write_long(index as i64, out);
        }
        (Shape::Array(items), Value::Array(values)) => {
            if !values.is_empty() {
                write_long(values.len() as i64, out);
            }
            for value in values {
                write(schema, *items, value, out, depth + 1)?;
            }
            write_long(0, out);
        }
        (Shape::Map(of_values), Value::Object(entries)) => {
            if !entries.is_empty() {
                write_long(entries.len() as i64, out);
            }
            for (key, value) in entries {
                write_long(key.len() as i64, out);
                out.extend_from_slice(key.as_bytes());
                write(schema, *of_values, value, out, depth + 1)?;
            }
            write_long(0, out);
        }
        (Shape::Record { fields, .. }, Value::Object(values)) => {
            for field in fields {
                let value = values.get(&field.name).or(field.default.as_ref());
                let value = value.ok_or_else(|| format!("it has no field '{}'", field.name))?;
                write(schema, field.type_id, value, out, depth + 1)?;
            }
        }
        // The first branch that it is a value of; before Avro 1.12 only the first could be meant.
        (Shape::Union(branches), json) => {
            for (index, branch) in branches.iter().enumerate() {
                let mut tried = Vec::new();
                if write(schema, *branch, json, &mut tried, depth + 1).is_ok() {
                    write_long(index as i64, out);
                    out.append(&mut tried);
                    return Ok(());
                }
            }
            return Err(unfit());
        }
        _ => return Err(unfit()),
    }
    Ok(())
}

/// JSON has no spelling for some floats, so Avro's libraries write them as text.
fn float(json: &Value) -> Option<f64> {
    match json {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "INF" | "Infinity" => Some(f64::INFINITY),
            "-INF" | "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes are text in a schema, a character of U+0000 to U+00FF each.
fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}
