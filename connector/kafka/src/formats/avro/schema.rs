//! An Avro schema as it was parsed: types by number, names resolved.

use serde_json::Value;

use super::parse;

/// A schema of Avro 1.12, parsed and checked.
///
/// ```
/// use sharestream_kafka::formats::AvroSchema;
///
/// let text = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}"#;
/// assert!(AvroSchema::parse(text).is_ok());
/// assert!(AvroSchema::parse("{}").unwrap_err().contains("type"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AvroSchema {
    types: Vec<Type>,
    root: TypeId,
}

/// Number of a type within its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeId(pub(super) usize);

/// A type, and what its bytes mean.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Type {
    pub(super) shape: Shape,
    pub(super) logical: Option<Logical>,
}

/// How a value looks in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed {
        name: Name,
        size: usize,
    },
    Enum {
        name: Name,
        symbols: Vec<String>,
        /// Stands for symbols of a writer that are not there.
        default: Option<usize>,
    },
    Array(TypeId),
    Map(TypeId),
    Record {
        name: Name,
        fields: Vec<RecordField>,
    },
    Union(Vec<TypeId>),
}

/// What is meant by a type. A logical type that does not fit its type is none (Avro specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    Decimal { precision: u8, scale: i8 },
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    TimestampNanos,
    LocalTimestampMillis,
    LocalTimestampMicros,
    LocalTimestampNanos,
    Uuid,
}

/// Name of a record, an enum or a fixed, with its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) full: String,
    pub(super) aliases: Vec<String>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordField {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) type_id: TypeId,
    pub(super) default: Option<Value>,
}

/// The part of a name behind its namespace.
fn simple(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

impl Name {
    /// Whether a reader of this name reads what was written as `writer`: the names without their namespaces are the same, or
    /// an alias says so.
    pub(super) fn reads(&self, writer: &Name) -> bool {
        let is_alias = |alias: &String| *alias == writer.full || simple(alias) == simple(&writer.full);
        simple(&self.full) == simple(&writer.full) || self.aliases.iter().any(is_alias)
    }
}

impl AvroSchema {
    /// Parses the JSON of a schema.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    pub fn parse(text: &str) -> Result<AvroSchema, String> {
        parse::parse(text)
    }

    pub(super) fn new(types: Vec<Type>, root: TypeId) -> Self {
        AvroSchema { types, root }
    }

    pub(super) fn root(&self) -> TypeId {
        self.root
    }

    /// The type of that number, which must be of this schema.
    pub(super) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0]
    }

    /// The fields of the record that the whole is.
    pub(super) fn root_fields(&self) -> Result<&[RecordField], String> {
        match &self.get(self.root).shape {
            Shape::Record { fields, .. } => Ok(fields),
            other => Err(format!("the schema is {}, but rows need a record", other.word())),
        }
    }

    /// The type without the null that a union adds to it; where in the union null and the type are.
    ///
    /// # Errors
    /// A union of more than that.
    pub(super) fn without_null(&self, id: TypeId) -> Result<(TypeId, Option<NullBranch>), String> {
        let Shape::Union(branches) = &self.get(id).shape else { return Ok((id, None)) };
        let is_null = |id: &TypeId| self.get(*id).shape == Shape::Null;
        match (branches.as_slice(), branches.iter().position(is_null)) {
            ([only], None) => Ok((*only, Some(NullBranch { null: None, value: 0 }))),
            ([_, _], Some(null)) => {
                let value = 1 - null;
                Ok((branches[value], Some(NullBranch { null: Some(null), value })))
            }
            _ => Err("a union of more than null and one type, which no column can hold".to_owned()),
        }
    }
}

/// Places in a union of null and a type, or of a type alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NullBranch {
    pub(super) null: Option<usize>,
    pub(super) value: usize,
}

impl Shape {
    /// The type with its article, for people.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Shape::Null => "null",
            Shape::Boolean => "a boolean",
            Shape::Int => "an int",
            Shape::Long => "a long",
            Shape::Float => "a float",
            Shape::Double => "a double",
            Shape::Bytes => "bytes",
            Shape::String => "a string",
            Shape::Fixed { .. } => "a fixed",
            Shape::Enum { .. } => "an enum",
            Shape::Array(_) => "an array",
            Shape::Map(_) => "a map",
            Shape::Record { .. } => "a record",
            Shape::Union(_) => "a union",
        }
    }
}
