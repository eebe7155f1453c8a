//! The columns that a reader schema gives (`docs/formats.md` has the table).

use std::sync::Arc;

use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, TimeUnit};

use super::schema::{AvroSchema, Logical, Shape, Type, TypeId};

/// Columns and their parts. A schema may name one record many times, and each time it is columns of its own.
const FIELDS_MAX: usize = 16_384;
/// Deeper than this nothing is meant: a record that holds itself has no end.
const DEPTH_MAX: usize = 32;

/// The columns of the record that the schema is. Errors: what no column can hold, for the user.
pub(super) fn columns(schema: &AvroSchema) -> Result<Vec<FieldRef>, String> {
    let mut making = Making { schema, count: 0, depth: 0 };
    let fields = schema.root_fields()?;
    fields.iter().map(|field| making.field(&field.name, field.type_id)).collect()
}

struct Making<'a> {
    schema: &'a AvroSchema,
    count: usize,
    depth: usize,
}

impl Making<'_> {
    fn field(&mut self, name: &str, id: TypeId) -> Result<FieldRef, String> {
        self.count += 1;
        if self.count > FIELDS_MAX {
            return Err(format!("the schema has more than {FIELDS_MAX} columns"));
        }
        if self.depth > DEPTH_MAX {
            return Err(
                "a type that holds itself, or is nested too deeply, which no column can hold".to_owned()
            );
        }
        self.depth += 1;
        let within = |error: String| format!("field '{name}': {error}");
        let (value, null) = self.schema.without_null(id).map_err(within)?;
        let data_type = self.data_type(value).map_err(within)?;
        self.depth -= 1;
        let is_nullable = null.is_some_and(|null| null.null.is_some()) || data_type == DataType::Null;
        Ok(Arc::new(Field::new(name, data_type, is_nullable)))
    }

    fn data_type(&mut self, id: TypeId) -> Result<DataType, String> {
        let schema = self.schema;
        let Type { shape, logical } = schema.get(id);
        if let Some(logical) = logical {
            return Ok(of_logical(*logical));
        }
        Ok(match shape {
            Shape::Null => DataType::Null,
            Shape::Boolean => DataType::Boolean,
            Shape::Int => DataType::Int32,
            Shape::Long => DataType::Int64,
            Shape::Float => DataType::Float32,
            Shape::Double => DataType::Float64,
            Shape::Bytes => DataType::Binary,
            Shape::String | Shape::Enum { .. } => DataType::Utf8,
            Shape::Fixed { size, .. } => {
                DataType::FixedSizeBinary(i32::try_from(*size).map_err(|error| error.to_string())?)
            }
            Shape::Array(items) => DataType::List(self.field("item", *items)?),
            Shape::Map(values) => {
                let key = Arc::new(Field::new("key", DataType::Utf8, false));
                let entries = Fields::from(vec![key, self.field("value", *values)?]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }
            Shape::Record { fields, .. } => {
                let fields: Result<Vec<_>, _> =
                    fields.iter().map(|field| self.field(&field.name, field.type_id)).collect();
                DataType::Struct(fields?.into())
            }
            Shape::Union(_) => return Err("a union within a union".to_owned()),
        })
    }
}

fn of_logical(logical: Logical) -> DataType {
    let utc = || Some(Arc::from("UTC"));
    match logical {
        Logical::Decimal { precision, scale } if precision <= DECIMAL128_MAX_PRECISION => {
            DataType::Decimal128(precision, scale)
        }
        Logical::Decimal { precision, scale } => DataType::Decimal256(precision, scale),
        Logical::Date => DataType::Date32,
        Logical::TimeMillis => DataType::Time32(TimeUnit::Millisecond),
        Logical::TimeMicros => DataType::Time64(TimeUnit::Microsecond),
        Logical::TimestampMillis => DataType::Timestamp(TimeUnit::Millisecond, utc()),
        Logical::TimestampMicros => DataType::Timestamp(TimeUnit::Microsecond, utc()),
        Logical::TimestampNanos => DataType::Timestamp(TimeUnit::Nanosecond, utc()),
        Logical::LocalTimestampMillis => DataType::Timestamp(TimeUnit::Millisecond, None),
        Logical::LocalTimestampMicros => DataType::Timestamp(TimeUnit::Microsecond, None),
        Logical::LocalTimestampNanos => DataType::Timestamp(TimeUnit::Nanosecond, None),
        Logical::Uuid => DataType::Utf8,
    }
}
