//! Decodes record values, of one writer's schema or of as many as their ids name. No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;

use super::decode::Rows;
use super::plan::{self, RecordPlan};
use super::registry::{SchemaId, WriterSchema};
use super::schema::AvroSchema;
use super::settings::{AvroFormat, AvroFraming};
use crate::formats::RowError;

/// In front of an id: Confluent's wire format.
pub(super) const MAGIC: u8 = 0;

/// Writers that a decoder knows. More at a time are forgotten, and learned again.
const WRITERS_MAX: usize = 1_000;

/// A writer's schema and how it is read.
#[derive(Debug)]
struct Writer {
    schema: Arc<AvroSchema>,
    plan: RecordPlan,
}

/// Or why nothing of it can be read.
type Resolved = Result<Arc<Writer>, Arc<str>>;

/// Decodes Avro values into columns.
#[derive(Debug)]
pub struct AvroDecoder {
    reader: Arc<AvroSchema>,
    rows: Rows,
    framing: Framing,
}

#[derive(Debug)]
enum Framing {
    None(Arc<Writer>),
    Registry {
        known: BTreeMap<SchemaId, Resolved>,
        /// Of the last record: that of the next one is nearly always the same.
        last: Option<(SchemaId, Arc<Writer>)>,
    },
}

impl AvroDecoder {
    /// Errors: what is wrong with the schema.
    pub(in crate::formats) fn new(format: &AvroFormat) -> Result<Self, String> {
        let reader = Arc::new(AvroSchema::parse(&format.schema)?);
        let rows = Rows::new(&reader)?;
        let framing = match format.framing {
            AvroFraming::None => Framing::None(Arc::new(writer(&reader, &reader)?)),
            AvroFraming::Registry => Framing::Registry { known: BTreeMap::new(), last: None },
        };
        Ok(AvroDecoder { reader, rows, framing })
    }

    /// The id that must be learned before `value` can be decoded.
    #[inline]
    pub(in crate::formats) fn unknown(&self, value: &[u8]) -> Option<SchemaId> {
        let Framing::Registry { known, last } = &self.framing else { return None };
        let (id, _) = split(value).ok()?;
        let is_known = last.as_ref().is_some_and(|(last, _)| *last == id) || known.contains_key(&id);
        (!is_known).then_some(id)
    }

    /// Takes the schema of an id, or why there is none. A schema that does not resolve to the reader's is known, too: its
    /// records are bad.
    pub(in crate::formats) fn learn(&mut self, id: SchemaId, schema: &WriterSchema) {
        let Framing::Registry { known, .. } = &mut self.framing else { return };
        let resolved = match schema {
            WriterSchema::Known(schema) => writer(schema, &self.reader).map(Arc::new).map_err(|fault| {
                let fault = format!("schema {id} cannot be read as the reader's: {fault}");
                tracing::warn!(%fault, "records with this schema are bad");
                Arc::from(fault)
            }),
            WriterSchema::Missing(why) => Err(Arc::from(format!("schema {id}: {why}"))),
        };
        if known.len() >= WRITERS_MAX {
            // Garbage that looks like ids goes first.
            known.retain(|_, resolved| resolved.is_ok());
            if known.len() >= WRITERS_MAX {
                known.clear();
            }
        }
        known.insert(id, resolved);
    }

    /// Forgets which ids cannot be read: a registry may have learned them meanwhile.
    pub(in crate::formats) fn forget_missing(&mut self) {
        if let Framing::Registry { known, .. } = &mut self.framing {
            known.retain(|_, resolved| resolved.is_ok());
        }
    }

    /// Adds the row of one record. On error no column has changed.
    pub(in crate::formats) fn decode(&mut self, value: Option<&[u8]>) -> Result<(), RowError> {
        let value = value.ok_or(RowError::NoValue)?;
        let (writer, datum) = match &mut self.framing {
            Framing::None(writer) => (&*writer, value),
            Framing::Registry { known, last } => {
                let (id, datum) = split(value)?;
                if last.as_ref().is_none_or(|(last, _)| *last != id) {
                    let writer = match known.get(&id) {
                        Some(Ok(writer)) => writer.clone(),
                        Some(Err(why)) => return Err(RowError::NoSchema { what: why.to_string() }),
                        None => {
                            return Err(RowError::NoSchema {
                                what: format!("schema {id} was not looked up"),
                            });
                        }
                    };
                    *last = Some((id, writer));
                }
                let Some((_, writer)) = &*last else { return Err(RowError::NoValue) };
                (writer, datum)
            }
        };
        self.rows.decode(&writer.schema, &writer.plan, datum).map_err(|what| RowError::BadAvro { what })
    }

    /// Takes all rows out.
    pub(in crate::formats) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.rows.finish()
    }
}

fn writer(schema: &Arc<AvroSchema>, reader: &AvroSchema) -> Result<Writer, String> {
    Ok(Writer { schema: schema.clone(), plan: plan::resolve(schema, reader)? })
}

/// The id, and the datum behind it.
#[inline]
fn split(value: &[u8]) -> Result<(SchemaId, &[u8]), RowError> {
    let (magic, rest) = value.split_first().ok_or_else(no_id)?;
    let (id, datum) = rest.split_first_chunk::<4>().ok_or_else(no_id)?;
    match *magic {
        MAGIC => Ok((SchemaId(u32::from_be_bytes(*id)), datum)),
        _ => Err(no_id()),
    }
}

#[cold]
fn no_id() -> RowError {
    RowError::NoSchema { what: "it does not begin with a zero byte and the id of a schema".to_owned() }
}
