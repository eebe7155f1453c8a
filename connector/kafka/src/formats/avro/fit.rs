//! Which columns a type of a schema takes: all of their values, unchanged.

use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, FieldRef, TimeUnit};

use super::schema::{Logical, Shape, Type};

/// Whether a type takes the column, but for times; parts of nested types are looked at one by one.
pub(super) fn is_plain(data_type: &DataType, avro: &Type) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, FixedSizeBinary, Float16, Float32, Float64, Int8, Int16, Int32,
        Int64, LargeBinary, LargeUtf8, Null, Struct, UInt8, UInt16, UInt32, Utf8, Utf8View,
    };
    let is_bytes = matches!(data_type, Binary | LargeBinary | BinaryView | FixedSizeBinary(_));
    let is_text = matches!(data_type, Utf8 | LargeUtf8 | Utf8View);
    match (&avro.shape, avro.logical) {
        (_, Some(Logical::Decimal { precision, scale })) => {
            decimal(data_type).is_some_and(|(own, own_scale)| own <= precision && own_scale == scale)
        }
        (Shape::Int, Some(Logical::Date)) => *data_type == Date32,
        (Shape::Null, _) => *data_type == Null,
        (Shape::Boolean, _) => *data_type == Boolean,
        (Shape::Int, None) => matches!(data_type, Int8 | Int16 | Int32 | UInt8 | UInt16),
        (Shape::Long, None) => matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32),
        (Shape::Float, _) => matches!(data_type, Float16 | Float32),
        (Shape::Double, _) => {
            matches!(data_type, Float16 | Float32 | Float64 | Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32)
        }
        (Shape::String, _) | (Shape::Enum { .. }, _) | (Shape::Fixed { .. }, Some(Logical::Uuid)) => is_text,
        (Shape::Bytes, _) | (Shape::Fixed { .. }, None) => is_bytes,
        (Shape::Array(_), _) => item(data_type).is_some(),
        (Shape::Map(_), _) => map_value(data_type).is_some(),
        (Shape::Record { .. }, _) => matches!(data_type, Struct(_)),
        (Shape::Int | Shape::Long | Shape::Fixed { .. } | Shape::Union(_), _) => false,
    }
}

/// What the numbers of a column of times are multiplied by to get those of the logical type; `None`: it does not take them.
pub(super) fn time_scale(data_type: &DataType, logical: Option<Logical>) -> Option<i64> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let per_second = |unit: &TimeUnit| match unit {
        Second => 1,
        Millisecond => 1_000,
        Microsecond => 1_000_000,
        Nanosecond => 1_000_000_000,
    };
    let wanted = match (data_type, logical?) {
        (DataType::Time32(_), Logical::TimeMillis) => Millisecond,
        (DataType::Time32(_) | DataType::Time64(_), Logical::TimeMicros) => Microsecond,
        (DataType::Timestamp(_, Some(_)), Logical::TimestampMillis)
        | (DataType::Timestamp(_, None) | DataType::Date64, Logical::LocalTimestampMillis) => Millisecond,
        (DataType::Timestamp(_, Some(_)), Logical::TimestampMicros)
        | (DataType::Timestamp(_, None) | DataType::Date64, Logical::LocalTimestampMicros) => Microsecond,
        (DataType::Timestamp(_, Some(_)), Logical::TimestampNanos)
        | (DataType::Timestamp(_, None), Logical::LocalTimestampNanos) => Nanosecond,
        _ => return None,
    };
    let own = match data_type {
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) => unit,
        _ => &Millisecond,
    };
    // A finer unit would lose what is below the coarser one.
    let (wanted, own) = (per_second(&wanted), per_second(own));
    (wanted >= own).then(|| wanted / own)
}

/// The items of a list.
pub(super) fn item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item),
        _ => None,
    }
}

/// The values of a map whose keys are text.
pub(super) fn map_value(data_type: &DataType) -> Option<&FieldRef> {
    let DataType::Map(entries, _) = data_type else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    match fields.as_ref() {
        [key, value]
            if matches!(key.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) =>
        {
            Some(value)
        }
        _ => None,
    }
}

/// Precision and scale.
pub(super) fn decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

/// Scale of a decimal column.
pub(super) fn scale(data_type: &DataType) -> i8 {
    decimal(data_type).map_or(0, |(_, scale)| scale)
}

/// Whether 128 bits may be too few.
pub(super) fn is_wide(precision: u8, data_type: &DataType) -> bool {
    precision > DECIMAL128_MAX_PRECISION && matches!(data_type, DataType::Decimal256(_, _))
}

/// A type for people.
pub(super) fn describe(avro: &Type) -> String {
    match (&avro.shape, avro.logical) {
        (shape, Some(logical)) => format!("{} that is {logical:?}", shape.word()),
        (Shape::Fixed { size, .. }, None) => format!("a fixed of {size} bytes"),
        (shape, None) => shape.word().to_owned(),
    }
}
