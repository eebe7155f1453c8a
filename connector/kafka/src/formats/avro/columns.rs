//! Growing columns of any depth with rollback: a row is appended value by value, and a bad row is cut off again.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int32Type, Int64Type,
    Time32MillisecondType, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, MapArray,
    NullArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer, i256,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, TimeUnit};

use super::super::columns::Validity;
use super::cursor::Fault;

/// One column under construction.
#[derive(Debug)]
pub(super) struct Column {
    field: FieldRef,
    validity: Validity,
    values: Values,
    /// What a null takes beyond the one place that it has: the fields of a record, the bytes of a fixed.
    null_cost: usize,
}

/// Values as they are in memory; what they mean is in the field's type.
#[derive(Debug)]
pub(super) enum Values {
    /// Rows without anything.
    Null(usize),
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal128(Vec<i128>),
    Decimal256(Vec<i256>),
    /// Text or bytes.
    Bytes {
        ends: Ends,
        bytes: Vec<u8>,
    },
    Fixed {
        size: usize,
        bytes: Vec<u8>,
        count: usize,
    },
    List {
        ends: Ends,
        items: Box<Column>,
    },
    Map {
        ends: Ends,
        keys: Box<Column>,
        values: Box<Column>,
    },
    /// Fields, and rows: there may be no field.
    Struct {
        fields: Vec<Column>,
        count: usize,
    },
}

/// Where each row ends among the bytes or items of all.
#[derive(Debug)]
pub(super) struct Ends(Vec<i32>);

impl Ends {
    fn new() -> Self {
        Ends(vec![0])
    }

    fn push(&mut self, end: usize) -> Result<(), Fault> {
        let end = i32::try_from(end).map_err(|_| Fault::from("more than one batch can hold"))?;
        self.0.push(end);
        Ok(())
    }

    fn repeat_last(&mut self) {
        let last = self.0.last().copied().unwrap_or(0);
        self.0.push(last);
    }

    fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// Cuts back to so many rows; where the last of them ends.
    fn truncate(&mut self, count: usize) -> usize {
        self.0.truncate(count + 1);
        self.0.last().map_or(0, |end| *end as usize)
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        let capacity = self.0.len();
        let ends = std::mem::replace(&mut self.0, Vec::with_capacity(capacity));
        self.0.push(0);
        OffsetBuffer::new(ScalarBuffer::from(ends))
    }
}

impl Column {
    /// A column for what a schema's field may hold ([`super::arrow`]). Errors: a type that no schema gives.
    pub(super) fn new(field: &FieldRef) -> Result<Self, String> {
        let values = match field.data_type() {
            DataType::Null => Values::Null(0),
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int32 | DataType::Date32 | DataType::Time32(TimeUnit::Millisecond) => {
                Values::Int(Vec::new())
            }
            DataType::Int64 | DataType::Time64(TimeUnit::Microsecond) | DataType::Timestamp(_, _) => {
                Values::Long(Vec::new())
            }
            DataType::Float32 => Values::Float(Vec::new()),
            DataType::Float64 => Values::Double(Vec::new()),
            DataType::Decimal128(_, _) => Values::Decimal128(Vec::new()),
            DataType::Decimal256(_, _) => Values::Decimal256(Vec::new()),
            DataType::Utf8 | DataType::Binary => Values::Bytes { ends: Ends::new(), bytes: Vec::new() },
            DataType::FixedSizeBinary(size) => {
                let size = usize::try_from(*size).map_err(|error| error.to_string())?;
                Values::Fixed { size, bytes: Vec::new(), count: 0 }
            }
            DataType::List(item) => Values::List { ends: Ends::new(), items: Box::new(Column::new(item)?) },
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => Values::Map {
                    ends: Ends::new(),
                    keys: Box::new(Column::new(&fields[0])?),
                    values: Box::new(Column::new(&fields[1])?),
                },
                other => return Err(format!("a map of {other}")),
            },
            DataType::Struct(fields) => {
                let fields = fields.iter().map(Column::new).collect::<Result<_, _>>()?;
                Values::Struct { fields, count: 0 }
            }
            other => return Err(format!("{other} is not made from Avro")),
        };
        let null_cost = match &values {
            Values::Fixed { size, .. } => *size,
            Values::Struct { fields, .. } => fields.iter().map(|field| 1 + field.null_cost).sum(),
            _ => 0,
        };
        Ok(Column { field: field.clone(), validity: Validity::default(), values, null_cost })
    }

    pub(super) fn field(&self) -> &Field {
        &self.field
    }

    pub(super) fn null_cost(&self) -> usize {
        self.null_cost
    }

    /// Values, to append exactly one to; [`Column::pushed`] goes with it.
    #[inline]
    pub(super) fn values(&mut self) -> &mut Values {
        &mut self.values
    }

    /// A value was appended that is not null.
    #[inline]
    pub(super) fn pushed(&mut self) {
        self.validity.push_valid();
    }

    pub(super) fn push_null(&mut self) {
        let count = self.count();
        self.validity.push_null(count);
        self.values.push_nothing();
    }

    /// Appends what stands where a parent is null: nobody looks at it.
    fn push_nothing(&mut self) {
        self.validity.push_valid();
        self.values.push_nothing();
    }

    /// Rows, or items.
    pub(super) fn count(&self) -> usize {
        self.values.count()
    }

    /// Cuts the column back to `count` rows; it has as many, or some more.
    pub(super) fn truncate(&mut self, count: usize) {
        self.validity.truncate(count);
        match &mut self.values {
            Values::Null(rows) => *rows = count,
            Values::Boolean(values) => {
                if values.len() > count {
                    values.truncate(count);
                }
            }
            Values::Int(values) => values.truncate(count),
            Values::Long(values) => values.truncate(count),
            Values::Float(values) => values.truncate(count),
            Values::Double(values) => values.truncate(count),
            Values::Decimal128(values) => values.truncate(count),
            Values::Decimal256(values) => values.truncate(count),
            Values::Bytes { ends, bytes } => bytes.truncate(ends.truncate(count)),
            Values::Fixed { size, bytes, count: rows } => {
                *rows = count;
                bytes.truncate(count * *size);
            }
            Values::List { ends, items } => items.truncate(ends.truncate(count)),
            Values::Map { ends, keys, values } => {
                let items = ends.truncate(count);
                keys.truncate(items);
                values.truncate(items);
            }
            Values::Struct { fields, count: rows } => {
                *rows = count;
                fields.iter_mut().for_each(|field| field.truncate(count));
            }
        }
    }

    /// Takes all rows out as an array.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.validity.finish();
        let data_type = self.field.data_type();
        Ok(match &mut self.values {
            Values::Null(count) => Arc::new(NullArray::new(std::mem::take(count))),
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int(values) => match data_type {
                DataType::Date32 => primitive::<Date32Type>(values, nulls, data_type)?,
                DataType::Time32(_) => primitive::<Time32MillisecondType>(values, nulls, data_type)?,
                _ => primitive::<Int32Type>(values, nulls, data_type)?,
            },
            Values::Long(values) => match data_type {
                DataType::Time64(_) => primitive::<Time64MicrosecondType>(values, nulls, data_type)?,
                DataType::Timestamp(TimeUnit::Millisecond, _) => {
                    primitive::<TimestampMillisecondType>(values, nulls, data_type)?
                }
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    primitive::<TimestampMicrosecondType>(values, nulls, data_type)?
                }
                DataType::Timestamp(_, _) => primitive::<TimestampNanosecondType>(values, nulls, data_type)?,
                _ => primitive::<Int64Type>(values, nulls, data_type)?,
            },
            Values::Float(values) => primitive::<Float32Type>(values, nulls, data_type)?,
            Values::Double(values) => primitive::<Float64Type>(values, nulls, data_type)?,
            Values::Decimal128(values) => primitive::<Decimal128Type>(values, nulls, data_type)?,
            Values::Decimal256(values) => primitive::<Decimal256Type>(values, nulls, data_type)?,
            Values::Bytes { ends, bytes } => {
                let (offsets, bytes) = (ends.finish(), Buffer::from_vec(taken(bytes)));
                match data_type {
                    DataType::Utf8 => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
                    _ => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
                }
            }
            Values::Fixed { size, bytes, count } => {
                let size = i32::try_from(*size).unwrap_or(i32::MAX);
                let bytes = Buffer::from_vec(taken(bytes));
                let count = std::mem::take(count);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, bytes, nulls, count)?)
            }
            Values::List { ends, items } => {
                let DataType::List(item) = data_type else { return Err(no_such(data_type)) };
                Arc::new(ListArray::try_new(item.clone(), ends.finish(), items.finish()?, nulls)?)
            }
            Values::Map { ends, keys, values } => {
                let DataType::Map(entries, is_sorted) = data_type else { return Err(no_such(data_type)) };
                let DataType::Struct(fields) = entries.data_type() else { return Err(no_such(data_type)) };
                let columns = vec![keys.finish()?, values.finish()?];
                let items = StructArray::try_new(fields.clone(), columns, None)?;
                Arc::new(MapArray::try_new(entries.clone(), ends.finish(), items, nulls, *is_sorted)?)
            }
            Values::Struct { fields, count } => {
                let DataType::Struct(types) = data_type else { return Err(no_such(data_type)) };
                let columns = fields.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
                let count = std::mem::take(count);
                Arc::new(StructArray::try_new_with_length(types.clone(), columns, nulls, count)?)
            }
        })
    }
}

impl Values {
    fn count(&self) -> usize {
        match self {
            Values::Null(count) | Values::Fixed { count, .. } | Values::Struct { count, .. } => *count,
            Values::Boolean(values) => values.len(),
            Values::Int(values) => values.len(),
            Values::Long(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Double(values) => values.len(),
            Values::Decimal128(values) => values.len(),
            Values::Decimal256(values) => values.len(),
            Values::Bytes { ends, .. } | Values::List { ends, .. } | Values::Map { ends, .. } => ends.count(),
        }
    }

    fn push_nothing(&mut self) {
        match self {
            Values::Null(count) => *count += 1,
            Values::Boolean(values) => values.append(false),
            Values::Int(values) => values.push(0),
            Values::Long(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal128(values) => values.push(0),
            Values::Decimal256(values) => values.push(i256::ZERO),
            Values::Bytes { ends, .. } | Values::List { ends, .. } | Values::Map { ends, .. } => {
                ends.repeat_last();
            }
            Values::Fixed { size, bytes, count } => {
                bytes.resize(bytes.len() + *size, 0);
                *count += 1;
            }
            Values::Struct { fields, count } => {
                fields.iter_mut().for_each(Column::push_nothing);
                *count += 1;
            }
        }
    }

    /// Appends text or bytes, to a column of such.
    #[inline]
    pub(super) fn push_bytes(&mut self, value: &[u8]) -> Result<(), Fault> {
        match self {
            Values::Bytes { ends, bytes } => {
                ends.push(bytes.len() + value.len())?;
                bytes.extend_from_slice(value);
                Ok(())
            }
            Values::Fixed { size, bytes, count } if *size == value.len() => {
                bytes.extend_from_slice(value);
                *count += 1;
                Ok(())
            }
            _ => Err(mismatch()),
        }
    }

    /// A row of items has ended.
    pub(super) fn end_items(&mut self) -> Result<(), Fault> {
        match self {
            Values::List { ends, items } => ends.push(items.count()),
            Values::Map { ends, keys, .. } => ends.push(keys.count()),
            _ => Err(mismatch()),
        }
    }
}

/// A plan that was made for other columns. It would be a bug of ours; the record is refused, and nothing else happens.
pub(super) fn mismatch() -> Fault {
    "a plan that does not fit the columns".into()
}

fn no_such(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a column of {data_type} with values of another type"))
}

/// Takes the values; the next batch is probably as large.
fn taken<T>(values: &mut Vec<T>) -> Vec<T> {
    let capacity = values.len();
    std::mem::replace(values, Vec::with_capacity(capacity))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError>
where
    T::Native: ArrowNativeType,
{
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::from(taken(values)), nulls)?;
    // Zones and scales are not part of the Rust type.
    Ok(Arc::new(array.with_data_type(data_type.clone())))
}
