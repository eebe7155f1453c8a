//! The JSON of a schema to its types. Named types may be used before they are whole: a record may hold itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::{AvroSchema, Logical, Name, RecordField, Shape, Type, TypeId};

/// Types of one schema. A schema is text from outside, and each type costs a few hundred bytes.
const TYPES_MAX: usize = 16_384;
/// Bytes of a fixed. More than a record may have is no use.
const FIXED_BYTES_MAX: u64 = 100 << 20;
/// Digits that an Arrow decimal holds.
const PRECISION_MAX: u64 = 76;

pub(super) fn parse(text: &str) -> Result<AvroSchema, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let mut parser = Parser::default();
    let root = parser.read(&json, "")?;
    Ok(AvroSchema::new(parser.types, root))
}

/// Whether `text` may be a name: of a field, a symbol, or a part of a full name.
pub(super) fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[derive(Default)]
struct Parser {
    types: Vec<Type>,
    named: BTreeMap<String, TypeId>,
}

impl Parser {
    fn read(&mut self, json: &Value, namespace: &str) -> Result<TypeId, String> {
        match json {
            Value::String(word) => self.read_word(word, namespace),
            Value::Array(branches) => self.read_union(branches, namespace),
            Value::Object(object) => self.read_object(object, namespace),
            other => Err(format!("{other} is no type")),
        }
    }

    fn add(&mut self, shape: Shape, logical: Option<Logical>) -> Result<TypeId, String> {
        if self.types.len() >= TYPES_MAX {
            return Err(format!("the schema has more than {TYPES_MAX} types"));
        }
        self.types.push(Type { shape, logical });
        Ok(TypeId(self.types.len() - 1))
    }

    fn read_word(&mut self, word: &str, namespace: &str) -> Result<TypeId, String> {
        if let Some(shape) = primitive(word) {
            return self.add(shape, None);
        }
        let full = full_name(word, namespace);
        let found = self.named.get(&full).or_else(|| self.named.get(word)).copied();
        found.ok_or_else(|| format!("'{word}' is no type and no name of one"))
    }

    fn read_union(&mut self, branches: &[Value], namespace: &str) -> Result<TypeId, String> {
        let mut ids = Vec::new();
        for branch in branches {
            let id = self.read(branch, namespace)?;
            let shape = &self.types[id.0].shape;
            if matches!(shape, Shape::Union(_)) {
                return Err("a union directly within a union".to_owned());
            }
            let is_same = |other: &TypeId| match (&self.types[other.0].shape, shape) {
                (Shape::Fixed { name: one, .. }, Shape::Fixed { name: other, .. })
                | (Shape::Enum { name: one, .. }, Shape::Enum { name: other, .. })
                | (Shape::Record { name: one, .. }, Shape::Record { name: other, .. }) => {
                    one.full == other.full
                }
                (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
            };
            if ids.iter().any(is_same) {
                return Err(format!("a union with {} twice", shape.word()));
            }
            ids.push(id);
        }
        if ids.is_empty() {
            return Err("a union of nothing".to_owned());
        }
        self.add(Shape::Union(ids), None)
    }

    fn read_object(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<TypeId, String> {
        let word = match object.get("type") {
            Some(Value::String(word)) => word.as_str(),
            // {"type": {"type": ..}}: what is inside counts.
            Some(inner @ (Value::Object(_) | Value::Array(_))) => return self.read(inner, namespace),
            _ => return Err("a type without \"type\"".to_owned()),
        };
        match word {
            "record" | "error" => self.read_record(object, namespace),
            "enum" => self.read_enum(object, namespace),
            "fixed" => self.read_fixed(object, namespace),
            "array" => {
                let items = object.get("items").ok_or("an array without \"items\"")?;
                let items = self.read(items, namespace)?;
                self.add(Shape::Array(items), None)
            }
            "map" => {
                let values = object.get("values").ok_or("a map without \"values\"")?;
                let values = self.read(values, namespace)?;
                self.add(Shape::Map(values), None)
            }
            word => match primitive(word) {
                Some(shape) => {
                    let logical = logical(object, &shape);
                    self.add(shape, logical)
                }
                None => self.read_word(word, namespace),
            },
        }
    }

    /// Adds a named type, so that what is inside of it may name it, and gives its namespace.
    fn add_named(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        shape: impl FnOnce(Name) -> Shape,
    ) -> Result<(TypeId, String), String> {
        let name = object.get("name").and_then(Value::as_str).ok_or("a named type without \"name\"")?;
        let namespace = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, namespace);
        if !full.split('.').all(is_name) {
            return Err(format!("'{full}' is no name: letters, digits and '_', no digit first"));
        }
        let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let aliases = strings(object, "aliases")?;
        let aliases = aliases.iter().map(|alias| full_name(alias, &namespace)).collect();
        let id = self.add(shape(Name { full: full.clone(), aliases }), None)?;
        if self.named.insert(full.clone(), id).is_some() {
            return Err(format!("'{full}' is defined twice"));
        }
        Ok((id, namespace))
    }

    fn read_record(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<TypeId, String> {
        let shape = |name| Shape::Record { name, fields: Vec::new() };
        let (id, namespace) = self.add_named(object, namespace, shape)?;
        let list = object.get("fields").and_then(Value::as_array).ok_or("a record without \"fields\"")?;
        let mut read: Vec<RecordField> = Vec::new();
        let mut seen = BTreeSet::new();
        for json in list {
            let name = json.get("name").and_then(Value::as_str).ok_or("a field without \"name\"")?;
            if !is_name(name) {
                return Err(format!(
                    "'{name}' is no name of a field: letters, digits and '_', no digit first"
                ));
            }
            if !seen.insert(name) {
                return Err(format!("field '{name}' comes twice"));
            }
            let object = json.as_object().ok_or("a field that is no object")?;
            let within = |error: String| format!("field '{name}': {error}");
            let json = object.get("type").ok_or_else(|| within("it has no \"type\"".to_owned()))?;
            // A logical type is often written beside the type of a field, where it means nothing.
            let type_id = self.read(json, &namespace).map_err(within)?;
            let aliases = strings(object, "aliases")?;
            let default = object.get("default").cloned();
            read.push(RecordField { name: name.to_owned(), aliases, type_id, default });
        }
        if let Shape::Record { fields, .. } = &mut self.types[id.0].shape {
            *fields = read;
        }
        Ok(id)
    }

    fn read_enum(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<TypeId, String> {
        let symbols = strings(object, "symbols")?;
        if symbols.is_empty() {
            return Err("an enum without \"symbols\"".to_owned());
        }
        let mut seen = BTreeSet::new();
        if let Some(symbol) = symbols.iter().find(|symbol| !is_name(symbol) || !seen.insert(symbol.as_str()))
        {
            return Err(format!("symbol '{symbol}' of an enum is no name, or comes twice"));
        }
        let default = match object.get("default").and_then(Value::as_str) {
            Some(text) => {
                let place = symbols.iter().position(|symbol| symbol == text);
                Some(place.ok_or_else(|| format!("default '{text}' of an enum is none of its symbols"))?)
            }
            None => None,
        };
        let shape = |name| Shape::Enum { name, symbols, default };
        Ok(self.add_named(object, namespace, shape)?.0)
    }

    fn read_fixed(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<TypeId, String> {
        let size = object.get("size").and_then(Value::as_u64).filter(|size| *size <= FIXED_BYTES_MAX);
        let size = size.ok_or("a fixed without a \"size\" that makes sense")?;
        let size = usize::try_from(size).map_err(|error| error.to_string())?;
        let (id, _) = self.add_named(object, namespace, |name| Shape::Fixed { name, size })?;
        self.types[id.0].logical = logical(object, &self.types[id.0].shape);
        Ok(id)
    }
}

fn primitive(word: &str) -> Option<Shape> {
    Some(match word {
        "null" => Shape::Null,
        "boolean" => Shape::Boolean,
        "int" => Shape::Int,
        "long" => Shape::Long,
        "float" => Shape::Float,
        "double" => Shape::Double,
        "bytes" => Shape::Bytes,
        "string" => Shape::String,
        _ => return None,
    })
}

fn full_name(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn strings(object: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = object.get(key) else { return Ok(Vec::new()) };
    let texts =
        value.as_array().and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let texts = texts.ok_or_else(|| format!("\"{key}\" is no list of strings"))?;
    Ok(texts.into_iter().map(str::to_owned).collect())
}

/// The logical type, if the type can bear it.
fn logical(object: &Map<String, Value>, shape: &Shape) -> Option<Logical> {
    let word = object.get("logicalType").and_then(Value::as_str)?;
    Some(match (word, shape) {
        ("decimal", Shape::Bytes) => decimal(object, PRECISION_MAX)?,
        ("decimal", Shape::Fixed { size, .. }) => decimal(object, digits_of(*size))?,
        ("date", Shape::Int) => Logical::Date,
        ("time-millis", Shape::Int) => Logical::TimeMillis,
        ("time-micros", Shape::Long) => Logical::TimeMicros,
        ("timestamp-millis", Shape::Long) => Logical::TimestampMillis,
        ("timestamp-micros", Shape::Long) => Logical::TimestampMicros,
        ("timestamp-nanos", Shape::Long) => Logical::TimestampNanos,
        ("local-timestamp-millis", Shape::Long) => Logical::LocalTimestampMillis,
        ("local-timestamp-micros", Shape::Long) => Logical::LocalTimestampMicros,
        ("local-timestamp-nanos", Shape::Long) => Logical::LocalTimestampNanos,
        ("uuid", Shape::String | Shape::Fixed { size: 16, .. }) => Logical::Uuid,
        _ => return None,
    })
}

fn decimal(object: &Map<String, Value>, precision_max: u64) -> Option<Logical> {
    let precision = object.get("precision").and_then(Value::as_u64)?;
    let scale = object.get("scale").map_or(Some(0), Value::as_u64)?;
    if precision == 0 || precision > precision_max.min(PRECISION_MAX) || scale > precision {
        return None;
    }
    Some(Logical::Decimal { precision: u8::try_from(precision).ok()?, scale: i8::try_from(scale).ok()? })
}

/// Digits of which every number fits into so many bytes.
fn digits_of(size: usize) -> u64 {
    // 8 bits a byte but for the sign; log10(2) of a digit a bit. Sizes beyond what an Arrow decimal has are as good as 32.
    let bits = (size.min(64) * 8).saturating_sub(1);
    (bits as f64 * std::f64::consts::LOG10_2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn a_fault_of_a_schema_is_named() {
        let record = |fields: &str| format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#);
        assert!(error("{").contains("not JSON"));
        assert!(error("7").contains("no type"));
        assert!(error("\"text\"").contains("'text' is no type"));
        assert!(error(r#"{"type":"record","fields":[]}"#).contains("without \"name\""));
        assert!(error(r#"{"type":"record","name":"R"}"#).contains("without \"fields\""));
        assert!(error(r#"{"type":"record","name":"1R","fields":[]}"#).contains("is no name"));
        assert!(error(&record(r#"{"name":"a","type":"int"},{"name":"a","type":"int"}"#)).contains("twice"));
        assert!(error(&record(r#"{"name":"a-b","type":"int"}"#)).contains("'a-b'"));
        assert!(error(&record(r#"{"name":"a","type":["int","int"]}"#)).contains("a union with an int twice"));
        assert!(error(&record(r#"{"name":"a","type":["null",["int"]]}"#)).contains("within a union"));
        assert!(error(&record(r#"{"name":"a","type":{"type":"fixed","name":"F"}}"#)).contains("size"));
        assert!(
            error(&record(r#"{"name":"a","type":{"type":"enum","name":"E","symbols":[]}}"#))
                .contains("symbols")
        );
        let twice = r#"{"name":"a","type":{"type":"fixed","name":"F","size":1}},
                       {"name":"b","type":{"type":"fixed","name":"F","size":1}}"#;
        assert!(error(&record(twice)).contains("'F' is defined twice"));
    }

    #[test]
    fn names_are_found_by_namespace_and_records_may_hold_themselves() {
        let text = r#"{"type":"record","name":"a.b.Node","fields":[
            {"name":"next","type":["null","Node"]},
            {"name":"color","type":{"type":"enum","name":"Color","symbols":["RED"]}},
            {"name":"other","type":"a.b.Color"}]}"#;
        let schema = parse(text).unwrap();
        let fields = schema.root_fields().unwrap();
        assert_eq!(fields[1].type_id, fields[2].type_id);
        let Shape::Union(branches) = &schema.get(fields[0].type_id).shape else { panic!("no union") };
        assert_eq!(branches[1], schema.root());
    }

    #[test]
    fn a_logical_type_that_does_not_fit_is_none() {
        let of = |text: &str| {
            let schema = parse(text).unwrap();
            schema.get(schema.root()).logical
        };
        assert_eq!(of(r#"{"type":"int","logicalType":"date"}"#), Some(Logical::Date));
        assert_eq!(of(r#"{"type":"long","logicalType":"date"}"#), None);
        assert_eq!(of(r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":5}"#), None);
        assert_eq!(of(r#"{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":3}"#), None);
        assert_eq!(
            of(r#"{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":2}"#),
            Some(Logical::Decimal { precision: 2, scale: 0 })
        );
        assert_eq!(of(r#"{"type":"long","logicalType":"whatever"}"#), None);
    }
}
