//! Rows to values of a schema: columns are bound once for each batch, then each row is written from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array, Float32Array,
    Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, FieldRef};
use uuid::Uuid;

use super::cursor::Fault;
use super::decode::check_uuid;
use super::default;
use super::fit;
use super::schema::{AvroSchema, Logical, NullBranch, Shape, TypeId};

/// Writes rows of one Arrow schema as records of an Avro schema.
#[derive(Debug)]
pub(in crate::formats) struct AvroEncoder {
    /// What stands in front of every datum.
    prefix: Vec<u8>,
    fields: Vec<Target>,
}

/// A field of the record that is written.
#[derive(Clone, Debug)]
enum Target {
    /// The column of that number.
    Column(usize, Write),
    /// What no column gives: the default.
    Fixed(Vec<u8>),
}

/// How values of a column are written.
#[derive(Clone, Debug)]
struct Write {
    /// The type is a union, with null or alone.
    union: Option<NullBranch>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    /// A time, to be multiplied to get the unit of the schema.
    Scaled(i64),
    Float,
    Double,
    Bytes,
    Text,
    Uuid,
    UuidToFixed,
    Fixed(usize),
    Decimal {
        wide: bool,
        size: Option<usize>,
    },
    Enum(Arc<BTreeMap<String, usize>>),
    Array(Box<Write>),
    Map(Box<Write>),
    Record(Vec<Target>),
}

impl AvroEncoder {
    /// An encoder of `columns` as records of `schema`, each behind `prefix`. Errors: every column that does not fit.
    pub(in crate::formats) fn new(
        schema: &AvroSchema,
        columns: &[FieldRef],
        prefix: Vec<u8>,
    ) -> Result<Self, String> {
        Ok(AvroEncoder { prefix, fields: targets(schema, schema.root(), columns)? })
    }

    /// Binds the columns of `rows`.
    pub(in crate::formats) fn bind(&self, rows: &RecordBatch) -> Result<AvroRows, ArrowError> {
        Ok(AvroRows { prefix: self.prefix.clone(), fields: bind_all(&self.fields, rows.columns())? })
    }
}

/// Faults of several columns at once.
fn targets(schema: &AvroSchema, record: TypeId, columns: &[FieldRef]) -> Result<Vec<Target>, String> {
    let Shape::Record { fields, name } = &schema.get(record).shape else {
        return Err(format!("the schema is {}, but rows need a record", schema.get(record).shape.word()));
    };
    let mut faults = Vec::new();
    let mut targets = Vec::new();
    for field in fields {
        let target = match columns.iter().position(|column| *column.name() == field.name) {
            Some(index) => {
                let column = &columns[index];
                let write = write(schema, field.type_id, column.data_type(), column.is_nullable());
                write
                    .map(|write| Target::Column(index, write))
                    .map_err(|fault| format!("column {}: {fault}", column.name()))
            }
            None => match &field.default {
                Some(json) => default::encode(schema, field.type_id, json)
                    .map(Target::Fixed)
                    .map_err(|fault| format!("field {}: its default: {fault}", field.name)),
                None => Err(format!(
                    "no column gives field '{}' of {}, which has no default",
                    field.name, name.full
                )),
            },
        };
        match target {
            Ok(target) => targets.push(target),
            Err(fault) => faults.push(fault),
        }
    }
    for column in columns.iter().filter(|column| !fields.iter().any(|field| field.name == *column.name())) {
        faults.push(format!("column {} is no field of {}", column.name(), name.full));
    }
    if faults.is_empty() { Ok(targets) } else { Err(faults.join("; ")) }
}

fn write(schema: &AvroSchema, id: TypeId, data_type: &DataType, is_nullable: bool) -> Result<Write, String> {
    let (value, union) = schema.without_null(id)?;
    let takes_null =
        union.is_some_and(|union| union.null.is_some()) || schema.get(value).shape == Shape::Null;
    if is_nullable && !takes_null {
        let shape = schema.get(value).shape.word();
        return Err(format!(
            "it may be null, but the schema wants {shape}: use COALESCE, or a union with null"
        ));
    }
    // A column of nulls fits wherever null does.
    if *data_type == DataType::Null && takes_null {
        return Ok(Write { union, kind: Kind::Null });
    }
    Ok(Write { union, kind: kind(schema, value, data_type)? })
}

fn kind(schema: &AvroSchema, id: TypeId, data_type: &DataType) -> Result<Kind, String> {
    if let DataType::Dictionary(_, value_type) = data_type {
        return kind(schema, id, value_type);
    }
    let avro = schema.get(id);
    let unfit = || format!("{data_type} does not fit {}", fit::describe(avro));
    if let Some(scale) = fit::time_scale(data_type, avro.logical) {
        return Ok(Kind::Scaled(scale));
    }
    if !fit::is_plain(data_type, avro) {
        return Err(unfit());
    }
    Ok(match (&avro.shape, avro.logical) {
        (Shape::Null, _) => Kind::Null,
        (Shape::Boolean, _) => Kind::Boolean,
        (Shape::Int, _) => Kind::Int,
        (Shape::Long, _) => Kind::Long,
        (Shape::Float, _) => Kind::Float,
        (Shape::Double, _) => Kind::Double,
        (Shape::Bytes, Some(Logical::Decimal { precision, .. })) => {
            Kind::Decimal { wide: fit::is_wide(precision, data_type), size: None }
        }
        (Shape::Fixed { size, .. }, Some(Logical::Decimal { precision, .. })) => {
            Kind::Decimal { wide: fit::is_wide(precision, data_type), size: Some(*size) }
        }
        (Shape::Bytes, _) => Kind::Bytes,
        (Shape::String, Some(Logical::Uuid)) => Kind::Uuid,
        (Shape::String, _) => Kind::Text,
        (Shape::Fixed { .. }, Some(Logical::Uuid)) => Kind::UuidToFixed,
        (Shape::Fixed { size, .. }, _) => Kind::Fixed(*size),
        (Shape::Enum { symbols, .. }, _) => {
            let numbers = symbols.iter().enumerate().map(|(index, symbol)| (symbol.clone(), index));
            Kind::Enum(Arc::new(numbers.collect()))
        }
        (Shape::Array(items), _) => {
            let item = fit::item(data_type).ok_or_else(unfit)?;
            Kind::Array(Box::new(write(schema, *items, item.data_type(), item.is_nullable())?))
        }
        (Shape::Map(values), _) => {
            let value = fit::map_value(data_type).ok_or_else(unfit)?;
            Kind::Map(Box::new(write(schema, *values, value.data_type(), value.is_nullable())?))
        }
        (Shape::Record { .. }, _) => match data_type {
            DataType::Struct(fields) => Kind::Record(targets(schema, id, fields)?),
            _ => return Err(unfit()),
        },
        (Shape::Union(_), _) => return Err(unfit()),
    })
}

/// The columns of one batch.
#[derive(Debug)]
pub(in crate::formats) struct AvroRows {
    prefix: Vec<u8>,
    fields: Vec<Bound>,
}

#[derive(Debug)]
enum Bound {
    Column { name: Option<usize>, cells: Box<Cells> },
    Fixed(Vec<u8>),
}

#[derive(Debug)]
struct Cells {
    union: Option<NullBranch>,
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Boolean(BooleanArray),
    Int(Int32Array),
    Long(Int64Array),
    Scaled(Int64Array, i64),
    Float(Float32Array),
    Double(Float64Array),
    Bytes(BinaryViewArray),
    Text(StringViewArray),
    Uuid(StringViewArray),
    UuidToFixed(StringViewArray),
    Fixed(BinaryViewArray, usize),
    Decimal128(Decimal128Array, Option<usize>),
    Decimal256(Decimal256Array, Option<usize>),
    Enum(StringViewArray, Arc<BTreeMap<String, usize>>),
    Array(OffsetBuffer<i64>, Box<Cells>),
    Map(OffsetBuffer<i32>, StringViewArray, Box<Cells>),
    Record(Vec<Bound>),
}

fn bind_all(targets: &[Target], columns: &[ArrayRef]) -> Result<Vec<Bound>, ArrowError> {
    let bind = |target: &Target| match target {
        Target::Fixed(bytes) => Ok(Bound::Fixed(bytes.clone())),
        Target::Column(index, write) => {
            let column = columns
                .get(*index)
                .ok_or_else(|| ArrowError::SchemaError(format!("column {index} of the output is missing")))?;
            Ok(Bound::Column { name: Some(*index), cells: Box::new(bind_one(write, column)?) })
        }
    };
    targets.iter().map(bind).collect()
}

fn bind_one(write: &Write, column: &ArrayRef) -> Result<Cells, ArrowError> {
    if let DataType::Dictionary(_, value_type) = column.data_type() {
        return bind_one(write, &cast(column, value_type)?);
    }
    let text = || -> Result<StringViewArray, ArrowError> {
        Ok(cast(column, &DataType::Utf8View)?.as_string_view().clone())
    };
    let bytes = || -> Result<BinaryViewArray, ArrowError> {
        Ok(cast(column, &DataType::BinaryView)?.as_binary_view().clone())
    };
    let long = || -> Result<Int64Array, ArrowError> {
        // 32-bit times are cast to 64 bits by way of their number.
        let numbers = match column.data_type() {
            DataType::Time32(_) => cast(column, &DataType::Int32)?,
            _ => column.clone(),
        };
        Ok(cast(&numbers, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
    };
    let values = match &write.kind {
        Kind::Null => Values::Null,
        Kind::Boolean => Values::Boolean(column.as_boolean().clone()),
        Kind::Int => Values::Int(cast(column, &DataType::Int32)?.as_primitive::<Int32Type>().clone()),
        Kind::Long => Values::Long(long()?),
        Kind::Scaled(scale) => Values::Scaled(long()?, *scale),
        Kind::Float => Values::Float(cast(column, &DataType::Float32)?.as_primitive::<Float32Type>().clone()),
        Kind::Double => {
            Values::Double(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
        }
        Kind::Bytes => Values::Bytes(bytes()?),
        Kind::Text => Values::Text(text()?),
        Kind::Uuid => Values::Uuid(text()?),
        Kind::UuidToFixed => Values::UuidToFixed(text()?),
        Kind::Fixed(size) => Values::Fixed(bytes()?, *size),
        Kind::Decimal { wide: false, size } => {
            let scale = fit::scale(column.data_type());
            let target = DataType::Decimal128(arrow_schema::DECIMAL128_MAX_PRECISION, scale);
            Values::Decimal128(cast(column, &target)?.as_primitive::<Decimal128Type>().clone(), *size)
        }
        Kind::Decimal { wide: true, size } => {
            let scale = fit::scale(column.data_type());
            let target = DataType::Decimal256(arrow_schema::DECIMAL256_MAX_PRECISION, scale);
            Values::Decimal256(cast(column, &target)?.as_primitive::<Decimal256Type>().clone(), *size)
        }
        Kind::Enum(numbers) => Values::Enum(text()?, numbers.clone()),
        Kind::Array(items) => {
            let item = fit::item(column.data_type()).cloned().ok_or_else(|| no_such(column.data_type()))?;
            let list = cast(column, &DataType::LargeList(item))?;
            let list = list.as_list::<i64>();
            Values::Array(list.offsets().clone(), Box::new(bind_one(items, list.values())?))
        }
        Kind::Map(values) => {
            let map = column.as_map_opt().ok_or_else(|| no_such(column.data_type()))?;
            let keys = cast(map.keys(), &DataType::Utf8View)?.as_string_view().clone();
            Values::Map(map.offsets().clone(), keys, Box::new(bind_one(values, map.values())?))
        }
        Kind::Record(targets) => {
            let record = column.as_struct_opt().ok_or_else(|| no_such(column.data_type()))?;
            Values::Record(bind_all(targets, record.columns())?)
        }
    };
    Ok(Cells { union: write.union, nulls: column.logical_nulls(), values })
}

fn no_such(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a column of {data_type} in a batch, which the encoder was not made for"))
}

impl AvroRows {
    /// Appends the datum of `row` to `out`. Errors: a value that the schema has no place for, such as a text that is none of an
    /// enum's symbols; the field's name is not told, and what was appended stays.
    pub(in crate::formats) fn write(
        &self,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), (Option<usize>, Fault)> {
        out.extend_from_slice(&self.prefix);
        for field in &self.fields {
            match field {
                Bound::Fixed(bytes) => out.extend_from_slice(bytes),
                Bound::Column { name, cells } => cells.write(row, out).map_err(|fault| (*name, fault))?,
            }
        }
        Ok(())
    }
}

impl Cells {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            || matches!(self.values, Values::Null);
        match (self.union, is_null) {
            (Some(NullBranch { null: Some(branch), .. }), true) => {
                write_long(branch as i64, out);
                return Ok(());
            }
            (_, true) => {
                // Only a column that is not nullable comes here, or one that is nothing but null.
                return match self.values {
                    Values::Null => Ok(()),
                    _ => Err("a null in a column that has none by its type".into()),
                };
            }
            (Some(NullBranch { value, .. }), false) => write_long(value as i64, out),
            (None, false) => {}
        }
        match &self.values {
            Values::Null => {}
            Values::Boolean(values) => out.push(u8::from(values.value(row))),
            Values::Int(values) => write_long(i64::from(values.value(row)), out),
            Values::Long(values) => write_long(values.value(row), out),
            Values::Scaled(values, scale) => {
                let value = values.value(row).checked_mul(*scale);
                write_long(value.ok_or("a time that is too far away for its unit")?, out);
            }
            Values::Float(values) => out.extend_from_slice(&values.value(row).to_le_bytes()),
            Values::Double(values) => out.extend_from_slice(&values.value(row).to_le_bytes()),
            Values::Bytes(values) => write_bytes(values.value(row), out),
            Values::Text(values) => write_bytes(values.value(row).as_bytes(), out),
            Values::Uuid(values) => {
                check_uuid(values.value(row))?;
                write_bytes(values.value(row).as_bytes(), out);
            }
            Values::UuidToFixed(values) => {
                let text = values.value(row);
                check_uuid(text)?;
                let uuid = Uuid::try_parse(text).map_err(|_| Fault::from("text that is no UUID"))?;
                out.extend_from_slice(uuid.as_bytes());
            }
            Values::Fixed(values, size) => {
                let value = values.value(row);
                if value.len() != *size {
                    return Err(format!("{} bytes for a fixed of {size}", value.len()).into());
                }
                out.extend_from_slice(value);
            }
            Values::Decimal128(values, size) => write_decimal(&values.value(row).to_be_bytes(), *size, out)?,
            Values::Decimal256(values, size) => write_decimal(&values.value(row).to_be_bytes(), *size, out)?,
            Values::Enum(values, numbers) => {
                let number =
                    numbers.get(values.value(row)).ok_or("a text that is none of the enum's symbols")?;
                write_long(*number as i64, out);
            }
            Values::Array(offsets, items) => {
                let (first, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                write_block(end - first, out);
                for item in first..end {
                    items.write(item, out)?;
                }
                end_blocks(end - first, out);
            }
            Values::Map(offsets, keys, values) => {
                let (first, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                write_block(end - first, out);
                for item in first..end {
                    write_bytes(keys.value(item).as_bytes(), out);
                    values.write(item, out)?;
                }
                end_blocks(end - first, out);
            }
            Values::Record(fields) => {
                for field in fields {
                    match field {
                        Bound::Fixed(bytes) => out.extend_from_slice(bytes),
                        Bound::Column { cells, .. } => cells.write(row, out)?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn write_block(count: usize, out: &mut Vec<u8>) {
    write_long(count as i64, out);
}

/// No items are the end already.
fn end_blocks(count: usize, out: &mut Vec<u8>) {
    if count > 0 {
        write_long(0, out);
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// Writes an int or a long: zigzag, then 7 bits a byte.
#[inline]
pub(super) fn write_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a number in two's complement: in as few bytes as hold it behind their length, or in just so many.
fn write_decimal(bytes: &[u8], size: Option<usize>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xff } else { 0 };
    let is_needed = |pair: &[u8]| pair[0] != sign || (pair[1] ^ sign) & 0x80 != 0;
    let first = bytes.windows(2).position(is_needed).unwrap_or(bytes.len().saturating_sub(1));
    let shortest = &bytes[first..];
    match size {
        None => write_bytes(shortest, out),
        Some(size) => {
            let missing =
                size.checked_sub(shortest.len()).ok_or("a decimal that is too large for its fixed")?;
            out.resize(out.len() + missing, sign);
            out.extend_from_slice(shortest);
        }
    }
    Ok(())
}
