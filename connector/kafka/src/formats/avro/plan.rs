//! How a value of a writer's schema becomes values of the reader's: Avro's schema resolution, worked out once for each pair.

use std::collections::{BTreeMap, BTreeSet};

use super::arrow;
use super::cursor::Fault;
use super::default;
use super::schema::{AvroSchema, Logical, RecordField, Shape, Type, TypeId};

/// What is done with the bytes of one value of the writer, and which kind of column gets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// No bytes; the column gets null.
    Null,
    Boolean,
    Int,
    Long,
    IntToLong,
    Float,
    IntToFloat,
    LongToFloat,
    Double,
    IntToDouble,
    LongToDouble,
    FloatToDouble,
    /// Bytes behind their length; checked where they become text.
    Bytes,
    Text,
    /// Text that must be a UUID.
    Uuid,
    /// 16 bytes that become the text of a UUID.
    UuidOfFixed,
    Fixed(usize),
    /// A number in two's complement, big-endian: behind its length, or so many bytes.
    Decimal {
        size: Option<usize>,
        precision: u8,
    },
    /// For each symbol of the writer the text for the reader, or why there is none.
    Enum(Vec<Result<String, Fault>>),
    Array(Box<Plan>),
    Map(Box<Plan>),
    Record(RecordPlan),
    /// For each branch of the writer what to do, or why the reader has no place for it.
    Union(Vec<Result<Plan, Fault>>),
}

/// Fields of the writer in its order, then what the reader has and the writer has not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordPlan {
    pub(super) steps: Vec<Step>,
    pub(super) defaults: Vec<Default>,
}

/// What is done with a field of the writer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Into the column of that number.
    Read(usize, Plan),
    /// The reader does not want it.
    Skip(TypeId),
}

/// A field that the writer does not have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Default {
    pub(super) column: usize,
    /// Its value as a writer of the reader's schema would have written it.
    pub(super) bytes: Vec<u8>,
    pub(super) plan: Plan,
}

/// Types of a plan. A union of records within unions of records could make more than anybody can hold.
const PLANS_MAX: usize = 100_000;

/// Resolves a writer's schema to the reader's, whose root is a record.
///
/// # Errors
/// Why no record of that writer can be read.
pub(super) fn resolve(writer: &AvroSchema, reader: &AvroSchema) -> Result<RecordPlan, String> {
    // A reader that has columns is of bounded depth, and so is what is made beside it.
    arrow::columns(reader)?;
    let mut resolving = Resolving { writer, reader, count: 0 };
    match resolving.value(writer.root(), reader.root()) {
        Ok(Plan::Record(plan)) => Ok(plan),
        Ok(_) => Err("the writer's schema is no record".to_owned()),
        Err(fault) => Err(fault.into_owned()),
    }
}

struct Resolving<'a> {
    writer: &'a AvroSchema,
    reader: &'a AvroSchema,
    count: usize,
}

impl Resolving<'_> {
    fn value(&mut self, writer_id: TypeId, reader_id: TypeId) -> Result<Plan, Fault> {
        self.count += 1;
        if self.count > PLANS_MAX {
            return Err("the writer's schema has too many ways to be read".into());
        }
        let (writer, reader) = (self.writer, self.reader);
        if let Shape::Union(branches) = &writer.get(writer_id).shape {
            let plans: Vec<_> = branches.iter().map(|branch| self.value(*branch, reader_id)).collect();
            return match plans.iter().all(Result::is_err) {
                true => plans.into_iter().next().unwrap_or(Err("a union of nothing".into())),
                false => Ok(Plan::Union(plans)),
            };
        }
        let (reader_id, null) = reader.without_null(reader_id)?;
        if writer.get(writer_id).shape == Shape::Null {
            let takes_null = null.is_some_and(|null| null.null.is_some());
            return match takes_null || reader.get(reader_id).shape == Shape::Null {
                true => Ok(Plan::Null),
                false => Err(unlike(&writer.get(writer_id).shape, &reader.get(reader_id).shape)),
            };
        }
        self.not_null(writer_id, reader_id)
    }

    fn not_null(&mut self, writer_id: TypeId, reader_id: TypeId) -> Result<Plan, Fault> {
        let (Type { shape: writer, logical: written }, Type { shape: reader, logical }) =
            (self.writer.get(writer_id), self.reader.get(reader_id));
        check_logical(*written, *logical)?;
        Ok(match (writer, reader) {
            (Shape::Boolean, Shape::Boolean) => Plan::Boolean,
            (Shape::Int, Shape::Int) => Plan::Int,
            (Shape::Int, Shape::Long) => Plan::IntToLong,
            (Shape::Int, Shape::Float) => Plan::IntToFloat,
            (Shape::Int, Shape::Double) => Plan::IntToDouble,
            (Shape::Long, Shape::Long) => Plan::Long,
            (Shape::Long, Shape::Float) => Plan::LongToFloat,
            (Shape::Long, Shape::Double) => Plan::LongToDouble,
            (Shape::Float, Shape::Float) => Plan::Float,
            (Shape::Float, Shape::Double) => Plan::FloatToDouble,
            (Shape::Double, Shape::Double) => Plan::Double,
            (Shape::Bytes | Shape::String, Shape::Bytes) => match *logical {
                Some(Logical::Decimal { precision, .. }) if *writer == Shape::Bytes => {
                    Plan::Decimal { size: None, precision }
                }
                Some(_) => return Err(unlike(writer, reader)),
                None => Plan::Bytes,
            },
            (Shape::Bytes | Shape::String, Shape::String) => match logical {
                Some(_) => Plan::Uuid,
                None => Plan::Text,
            },
            (Shape::Fixed { name: written, size }, Shape::Fixed { name, size: reader_size }) => {
                check_name(name.reads(written), &written.full, &name.full)?;
                if size != reader_size {
                    return Err(format!("a fixed of {size} bytes for one of {reader_size}").into());
                }
                match *logical {
                    Some(Logical::Decimal { precision, .. }) => {
                        Plan::Decimal { size: Some(*size), precision }
                    }
                    Some(Logical::Uuid) => Plan::UuidOfFixed,
                    Some(_) | None => Plan::Fixed(*size),
                }
            }
            (
                Shape::Enum { name: written, symbols: of_writer, .. },
                Shape::Enum { name, symbols, default },
            ) => {
                check_name(name.reads(written), &written.full, &name.full)?;
                let default = default.and_then(|index| symbols.get(index));
                let known: BTreeSet<&String> = symbols.iter().collect();
                let text = |symbol: &String| {
                    let own = known.contains(symbol).then_some(symbol).or(default).cloned();
                    own.ok_or_else(|| "a symbol that the reader's enum does not have".into())
                };
                Plan::Enum(of_writer.iter().map(text).collect())
            }
            (Shape::Array(writer), Shape::Array(reader)) => {
                Plan::Array(Box::new(self.value(*writer, *reader)?))
            }
            (Shape::Map(writer), Shape::Map(reader)) => Plan::Map(Box::new(self.value(*writer, *reader)?)),
            (Shape::Record { name: written, fields: of_writer }, Shape::Record { name, fields }) => {
                check_name(name.reads(written), &written.full, &name.full)?;
                Plan::Record(self.record(of_writer, fields)?)
            }
            (writer, reader) => return Err(unlike(writer, reader)),
        })
    }

    fn record(&mut self, writer: &[RecordField], reader: &[RecordField]) -> Result<RecordPlan, Fault> {
        let within =
            |field: &RecordField, fault: Fault| Fault::from(format!("field '{}': {fault}", field.name));
        let names: BTreeMap<&String, usize> =
            writer.iter().enumerate().map(|(index, field)| (&field.name, index)).collect();
        // A field of the reader is the one of its name, or else of an alias.
        let source = |field: &RecordField| {
            let by_name = |name: &String| names.get(name).copied();
            by_name(&field.name).or_else(|| field.aliases.iter().find_map(by_name))
        };
        // By field of the writer the column that it is read into.
        let mut columns: Vec<Option<usize>> = vec![None; writer.len()];
        let mut missing = Vec::new();
        for (column, field) in reader.iter().enumerate() {
            match source(field) {
                None => missing.push((column, field)),
                Some(index) if columns[index].is_none() => columns[index] = Some(column),
                Some(index) => {
                    let (shared, name) = (&writer[index].name, &field.name);
                    return Err(format!(
                        "fields of the reader share '{shared}' of the writer: '{name}' is one"
                    )
                    .into());
                }
            }
        }
        let mut steps = Vec::new();
        for (field, column) in writer.iter().zip(columns) {
            steps.push(match column {
                Some(column) => {
                    let plan = self.value(field.type_id, reader[column].type_id);
                    Step::Read(column, plan.map_err(|fault| within(field, fault))?)
                }
                None => Step::Skip(field.type_id),
            });
        }
        let mut defaults = Vec::new();
        for (column, field) in missing {
            let json = field.default.as_ref().ok_or_else(|| {
                within(field, "the writer does not have it, and the reader has no default for it".into())
            })?;
            let bytes = default::encode(self.reader, field.type_id, json);
            let bytes = bytes.map_err(|fault| within(field, format!("its default: {fault}").into()))?;
            let mut own = Resolving { writer: self.reader, reader: self.reader, count: self.count };
            let plan = own.value(field.type_id, field.type_id).map_err(|fault| within(field, fault))?;
            self.count = own.count;
            defaults.push(Default { column, bytes, plan });
        }
        Ok(RecordPlan { steps, defaults })
    }
}

fn check_name(reads: bool, written: &str, name: &str) -> Result<(), Fault> {
    match reads {
        true => Ok(()),
        false => Err(format!("'{written}' for '{name}', which has no such alias").into()),
    }
}

/// Avro asks this of decimals only. But milliseconds that are read as microseconds are wrong numbers, and nobody would notice.
fn check_logical(writer: Option<Logical>, reader: Option<Logical>) -> Result<(), Fault> {
    match (writer, reader) {
        (Some(Logical::Decimal { scale: one, .. }), Some(Logical::Decimal { scale: other, .. }))
            if one == other =>
        {
            Ok(())
        }
        (Some(one), Some(other)) if one != other => Err(format!("{one:?} for {other:?}").into()),
        _ => Ok(()),
    }
}

fn unlike(writer: &Shape, reader: &Shape) -> Fault {
    format!("{} for {}", writer.word(), reader.word()).into()
}
