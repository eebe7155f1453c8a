//! The schema of an output that none was given for.

use std::collections::BTreeSet;

use arrow_schema::{DataType, FieldRef, TimeUnit};
use serde_json::{Value, json};

use super::fit;
use super::parse::is_name;

/// The schema of records called `record_name`, which may have a namespace, with these columns. The same columns give the same
/// text.
///
/// # Errors
/// Every column that Avro has no type for, for the user.
pub(super) fn derive(record_name: &str, columns: &[FieldRef]) -> Result<String, String> {
    if !record_name.split('.').all(is_name) {
        return Err(format!(
            "'{record_name}' is no name of an Avro record: letters, digits and '_', no digit first"
        ));
    }
    let mut deriving = Deriving { taken: BTreeSet::from([record_name.to_owned()]) };
    let fields = deriving.fields(record_name, columns)?;
    Ok(json!({ "type": "record", "name": record_name, "fields": fields }).to_string())
}

/// The valid name that is nearest to a topic's.
pub fn record_name_of(topic: &str) -> String {
    let mut name: String = topic.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !is_name(&name) {
        name.insert(0, '_');
    }
    name
}

struct Deriving {
    taken: BTreeSet<String>,
}

impl Deriving {
    fn fields(&mut self, path: &str, columns: &[FieldRef]) -> Result<Vec<Value>, String> {
        let mut faults = Vec::new();
        let mut fields = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            let name = column.name();
            let is_twice = columns[..index].iter().any(|other| other.name() == name);
            let field = match is_name(name) {
                false => Err(format!(
                    "column {name} has no name that Avro takes: write AS and letters, digits and '_'"
                )),
                true if is_twice => Err(format!("column {name} comes twice")),
                true => self.field(path, column),
            };
            match field {
                Ok(field) => fields.push(field),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(fields) } else { Err(faults.join("; ")) }
    }

    fn field(&mut self, path: &str, column: &FieldRef) -> Result<Value, String> {
        let avro = self.of(&format!("{path}_{}", column.name()), column)?;
        let name = column.name();
        Ok(match column.is_nullable() || *column.data_type() == DataType::Null {
            // Whoever reads older records with this schema finds null in them.
            true => json!({ "name": name, "type": avro, "default": null }),
            false => json!({ "name": name, "type": avro }),
        })
    }

    /// The type of a column or an item, with null where it may be.
    fn of(&mut self, path: &str, column: &FieldRef) -> Result<Value, String> {
        let avro = self.not_null(path, column.name(), column.data_type())?;
        Ok(match column.is_nullable() && avro != "null" {
            true => json!(["null", avro]),
            false => avro,
        })
    }

    fn not_null(&mut self, path: &str, name: &str, data_type: &DataType) -> Result<Value, String> {
        use DataType::*;
        let logical = |base: &str, logical: &str| json!({ "type": base, "logicalType": logical });
        Ok(match data_type {
            DataType::Null => json!("null"),
            Boolean => json!("boolean"),
            Int8 | Int16 | Int32 | UInt8 | UInt16 => json!("int"),
            Int64 | UInt32 => json!("long"),
            Float16 | Float32 => json!("float"),
            Float64 => json!("double"),
            Utf8 | LargeUtf8 | Utf8View => json!("string"),
            Binary | LargeBinary | BinaryView => json!("bytes"),
            FixedSizeBinary(size) => json!({ "type": "fixed", "name": self.free(path), "size": size }),
            Date32 => logical("int", "date"),
            Date64 => logical("long", "local-timestamp-millis"),
            Time32(_) => logical("int", "time-millis"),
            Time64(TimeUnit::Microsecond) => logical("long", "time-micros"),
            Timestamp(unit, zone) => {
                let unit = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => "timestamp-millis",
                    TimeUnit::Microsecond => "timestamp-micros",
                    TimeUnit::Nanosecond => "timestamp-nanos",
                };
                let local = if zone.is_some() { "" } else { "local-" };
                logical("long", &format!("{local}{unit}"))
            }
            Decimal32(precision, scale)
            | Decimal64(precision, scale)
            | Decimal128(precision, scale)
            | Decimal256(precision, scale)
                if *scale >= 0 =>
            {
                json!({ "type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale })
            }
            Dictionary(_, value_type) => self.not_null(path, name, value_type)?,
            Map(_, _) => {
                let value = fit::map_value(data_type)
                    .ok_or_else(|| format!("column {name}: keys of an Avro map are text"))?;
                json!({ "type": "map", "values": self.of(&format!("{path}_value"), value)? })
            }
            Struct(fields) => {
                let record = self.free(path);
                json!({ "type": "record", "name": record, "fields": self.fields(path, fields)? })
            }
            other => match fit::item(other) {
                Some(item) => json!({ "type": "array", "items": self.of(&format!("{path}_item"), item)? }),
                None => {
                    return Err(format!(
                        "column {name} is {other}, which Avro has no type for: CAST it to another one"
                    ));
                }
            },
        })
    }

    /// A name for a type, near to where it stands.
    fn free(&mut self, path: &str) -> String {
        // Parts of a name in an item of a list may be anything.
        let parts: Vec<String> = path.split('.').map(record_name_of).collect();
        let wanted = parts.join(".");
        let mut name = wanted.clone();
        let mut number = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        name
    }
}
