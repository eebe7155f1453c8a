//! Values to rows: a plan is followed through the bytes, and a record that does not fit leaves no trace.

use arrow_array::ArrayRef;
use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_buffer::i256;
use arrow_schema::ArrowError;
use uuid::Uuid;

use super::arrow;
use super::columns::{Column, Values, mismatch};
use super::cursor::{Budget, Cursor, Fault};
use super::plan::{Plan, RecordPlan, Step};
use super::schema::{AvroSchema, Shape, TypeId};

/// Types within each other that are skipped. What a reader does not want may be a list without end.
const SKIP_DEPTH_MAX: usize = 128;

/// The columns of a reader schema, growing row by row.
#[derive(Debug)]
pub(super) struct Rows {
    columns: Vec<Column>,
    count: usize,
}

impl Rows {
    /// No rows, in the columns of `reader`. Errors: what no column can hold.
    pub(super) fn new(reader: &AvroSchema) -> Result<Self, String> {
        let columns = arrow::columns(reader)?.iter().map(Column::new).collect::<Result<_, _>>()?;
        Ok(Rows { columns, count: 0 })
    }

    /// Adds the row of a datum of `writer`. On error no column has changed.
    pub(super) fn decode(
        &mut self,
        writer: &AvroSchema,
        plan: &RecordPlan,
        value: &[u8],
    ) -> Result<(), String> {
        let mut decoding = Decoding { writer, cursor: Cursor::new(value), budget: Budget::of(value) };
        let read = decoding.record(plan, &mut self.columns).and_then(|()| match decoding.cursor.left() {
            0 => Ok(()),
            left => Err(format!("{left} bytes are left behind it").into()),
        });
        match read {
            Ok(()) => {
                self.count += 1;
                Ok(())
            }
            Err(fault) => {
                self.columns.iter_mut().for_each(|column| column.truncate(self.count));
                Err(fault.into_owned())
            }
        }
    }

    /// Takes all rows out.
    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.count = 0;
        self.columns.iter_mut().map(Column::finish).collect()
    }
}

/// One value on its way.
struct Decoding<'a> {
    writer: &'a AvroSchema,
    cursor: Cursor<'a>,
    budget: Budget,
}

impl Decoding<'_> {
    fn record(&mut self, plan: &RecordPlan, columns: &mut [Column]) -> Result<(), Fault> {
        let within =
            |column: &Column, fault: Fault| Fault::from(format!("{}: {fault}", column.field().name()));
        for step in &plan.steps {
            match step {
                Step::Read(index, plan) => {
                    let column = columns.get_mut(*index).ok_or_else(mismatch)?;
                    self.value(plan, column).map_err(|fault| within(column, fault))?;
                }
                Step::Skip(type_id) => self.skip(*type_id, 0)?,
            }
        }
        for default in &plan.defaults {
            self.budget.spend(default.bytes.len())?;
            let column = columns.get_mut(default.column).ok_or_else(mismatch)?;
            // The plan of a default skips nothing, so the writer's types are not asked.
            let mut own =
                Decoding { writer: self.writer, cursor: Cursor::new(&default.bytes), budget: self.budget };
            own.value(&default.plan, column).map_err(|fault| within(column, fault))?;
            self.budget = own.budget;
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, plan: &Plan, column: &mut Column) -> Result<(), Fault> {
        match plan {
            Plan::Null => {
                self.budget.spend(column.null_cost())?;
                column.push_null();
                return Ok(());
            }
            Plan::Union(branches) => {
                let index = self.cursor.index(branches.len())?;
                return match &branches[index] {
                    Ok(plan) => self.value(plan, column),
                    Err(fault) => Err(fault.clone()),
                };
            }
            _ => self.not_null(plan, column.values())?,
        }
        column.pushed();
        Ok(())
    }

    fn not_null(&mut self, plan: &Plan, values: &mut Values) -> Result<(), Fault> {
        let cursor = &mut self.cursor;
        match (plan, values) {
            (Plan::Boolean, Values::Boolean(values)) => values.append(cursor.boolean()?),
            (Plan::Int, Values::Int(values)) => values.push(cursor.int()?),
            (Plan::Long, Values::Long(values)) => values.push(cursor.long()?),
            (Plan::IntToLong, Values::Long(values)) => values.push(i64::from(cursor.int()?)),
            (Plan::Float, Values::Float(values)) => values.push(cursor.float()?),
            (Plan::IntToFloat, Values::Float(values)) => values.push(cursor.int()? as f32),
            (Plan::LongToFloat, Values::Float(values)) => values.push(cursor.long()? as f32),
            (Plan::Double, Values::Double(values)) => values.push(cursor.double()?),
            (Plan::IntToDouble, Values::Double(values)) => values.push(f64::from(cursor.int()?)),
            (Plan::LongToDouble, Values::Double(values)) => values.push(cursor.long()? as f64),
            (Plan::FloatToDouble, Values::Double(values)) => values.push(f64::from(cursor.float()?)),
            (Plan::Bytes, values) => values.push_bytes(cursor.bytes()?)?,
            (Plan::Text, values) => values.push_bytes(cursor.text()?.as_bytes())?,
            (Plan::Uuid, values) => {
                let text = cursor.text()?;
                check_uuid(text)?;
                values.push_bytes(text.as_bytes())?;
            }
            (Plan::UuidOfFixed, values) => {
                let uuid = Uuid::from_slice(cursor.take(16)?).map_err(|_| mismatch())?;
                let mut text = Uuid::encode_buffer();
                values.push_bytes(uuid.hyphenated().encode_lower(&mut text).as_bytes())?;
            }
            (Plan::Fixed(size), values) => values.push_bytes(cursor.take(*size)?)?,
            (Plan::Decimal { size, precision }, values) => {
                let bytes = match size {
                    Some(size) => cursor.take(*size)?,
                    None => cursor.bytes()?,
                };
                push_decimal(bytes, *precision, values)?;
            }
            (Plan::Enum(symbols), values) => {
                let index = cursor.index(symbols.len())?;
                let text = symbols[index].as_ref().map_err(Clone::clone)?;
                self.budget.spend(text.len())?;
                values.push_bytes(text.as_bytes())?;
            }
            (Plan::Array(plan), values) => {
                self.array(plan, values)?;
                values.end_items()?;
            }
            (Plan::Map(plan), values) => {
                self.map(plan, values)?;
                values.end_items()?;
            }
            (Plan::Record(plan), Values::Struct { fields, count }) => {
                self.record(plan, fields)?;
                *count += 1;
            }
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    fn array(&mut self, plan: &Plan, values: &mut Values) -> Result<(), Fault> {
        let Values::List { items, .. } = values else { return Err(mismatch()) };
        while let Some(count) = self.cursor.block()? {
            for _ in 0..count {
                self.budget.spend(1)?;
                self.value(plan, items)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, plan: &Plan, values: &mut Values) -> Result<(), Fault> {
        let Values::Map { keys, values: items, .. } = values else { return Err(mismatch()) };
        while let Some(count) = self.cursor.block()? {
            for _ in 0..count {
                keys.values().push_bytes(self.cursor.text()?.as_bytes())?;
                keys.pushed();
                self.value(plan, items)?;
            }
        }
        Ok(())
    }

    /// Passes a value of the writer's type.
    fn skip(&mut self, id: TypeId, depth: usize) -> Result<(), Fault> {
        if depth > SKIP_DEPTH_MAX {
            return Err("it is nested too deeply".into());
        }
        let (writer, cursor) = (self.writer, &mut self.cursor);
        match &writer.get(id).shape {
            Shape::Null => {}
            Shape::Boolean => drop(cursor.boolean()?),
            Shape::Int => drop(cursor.int()?),
            Shape::Long => drop(cursor.long()?),
            Shape::Float => drop(cursor.float()?),
            Shape::Double => drop(cursor.double()?),
            Shape::Bytes | Shape::String => drop(cursor.bytes()?),
            Shape::Fixed { size, .. } => drop(cursor.take(*size)?),
            Shape::Enum { symbols, .. } => drop(cursor.index(symbols.len())?),
            Shape::Array(items) => {
                while let Some(count) = self.cursor.block()? {
                    for _ in 0..count {
                        self.budget.spend(1)?;
                        self.skip(*items, depth + 1)?;
                    }
                }
            }
            Shape::Map(values) => {
                while let Some(count) = self.cursor.block()? {
                    for _ in 0..count {
                        self.cursor.bytes()?;
                        self.skip(*values, depth + 1)?;
                    }
                }
            }
            Shape::Record { fields, .. } => {
                for field in fields {
                    self.skip(field.type_id, depth + 1)?;
                }
            }
            Shape::Union(branches) => {
                let index = cursor.index(branches.len())?;
                self.skip(branches[index], depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Whether text is a UUID as RFC 9562 writes it.
pub(super) fn check_uuid(text: &str) -> Result<(), Fault> {
    /// Digits and hyphens; other spellings are shorter or longer.
    const LENGTH: usize = 36;
    match text.len() == LENGTH && Uuid::try_parse(text).is_ok() {
        true => Ok(()),
        false => Err("text that is no UUID".into()),
    }
}

fn push_decimal(bytes: &[u8], precision: u8, values: &mut Values) -> Result<(), Fault> {
    let too_large = || Fault::from(format!("a decimal of more than {precision} digits"));
    match values {
        Values::Decimal128(values) => {
            let value = i128::from_be_bytes(extended(bytes).ok_or_else(too_large)?);
            if !Decimal128Type::is_valid_decimal_precision(value, precision) {
                return Err(too_large());
            }
            values.push(value);
        }
        Values::Decimal256(values) => {
            let value = i256::from_be_bytes(extended(bytes).ok_or_else(too_large)?);
            if !Decimal256Type::is_valid_decimal_precision(value, precision) {
                return Err(too_large());
            }
            values.push(value);
        }
        _ => return Err(mismatch()),
    }
    Ok(())
}

/// The number in `N` bytes; no bytes are zero. `None`: it needs more.
fn extended<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let sign = if is_negative { 0xff } else { 0 };
    // Zeros or ones in front say nothing, as long as the sign stays.
    let surplus = bytes.len().saturating_sub(N);
    let (front, kept) = bytes.split_at(surplus);
    let keeps_sign = kept.first().is_none_or(|first| (first & 0x80 != 0) == is_negative);
    if !keeps_sign || front.iter().any(|byte| *byte != sign) {
        return None;
    }
    let mut extended = [sign; N];
    extended[N - kept.len()..].copy_from_slice(kept);
    Some(extended)
}
