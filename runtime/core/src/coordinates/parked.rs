//! Where a record that was parked lies now (ADR 0025).
//!
//! Rows of such a record carry the coordinates that it had at first: these are its identity, for services that are
//! called, for provenance and in SQL. What is acquired and decided is its copy in the parking topic, and this names it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sharestream_base::ids::{Offset, PartitionIndex};

use super::{PARKED, fields};
use crate::decision::SourcePartition;

/// The copy of a parked record in the parking topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedCopy {
    /// Name of the parking topic.
    pub topic: Arc<str>,
    /// Partition that holds the copy.
    pub partition: SourcePartition,
    /// Offset of the copy.
    pub offset: Offset,
    /// How often the record was parked, from 1.
    pub times: u32,
    /// When it was parked for the first time, Unix milliseconds.
    pub first_at_ms: i64,
}

impl fmt::Display for ParkedCopy {
    /// `<topic>/<topic id>/<partition>/<offset>/<times>/<first at>`: topic names hold no slash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParkedCopy { topic, partition, offset, times, first_at_ms } = self;
        let SourcePartition { topic_id, partition } = partition;
        write!(f, "{topic}/{topic_id}/{partition}/{offset}/{times}/{first_at_ms}")
    }
}

/// The text names no parked copy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not <topic>/<topic id>/<partition>/<offset>/<times>/<first at>")]
pub struct ParkedCopyError(String);

impl FromStr for ParkedCopy {
    type Err = ParkedCopyError;

    fn from_str(text: &str) -> Result<Self, ParkedCopyError> {
        let parse = || {
            let mut parts = text.split('/');
            let topic = Arc::from(parts.next()?);
            let topic_id = parts.next()?.parse().ok()?;
            let partition = PartitionIndex(parts.next()?.parse().ok()?);
            let copy = ParkedCopy {
                topic,
                partition: SourcePartition { topic_id, partition },
                offset: Offset(parts.next()?.parse().ok()?),
                times: parts.next()?.parse().ok()?,
                first_at_ms: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(copy)
        };
        parse().ok_or_else(|| ParkedCopyError(text.to_owned()))
    }
}

/// The last hidden column: the text of a [`ParkedCopy`], null for records that were never parked.
pub(super) fn field() -> Arc<Field> {
    Arc::new(Field::new(PARKED, DataType::Utf8, true))
}

/// Schema of a batch of rows that are to be parked: the hidden columns alone. One row becomes one copy.
pub fn parked_schema() -> SchemaRef {
    Arc::new(Schema::new(fields()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_reads_what_it_writes_and_nothing_else() {
        let copy = ParkedCopy {
            topic: Arc::from("job.parked"),
            partition: SourcePartition {
                topic_id: sharestream_base::ids::TopicId::default(),
                partition: PartitionIndex(3),
            },
            offset: Offset(17),
            times: 2,
            first_at_ms: 1_700_000_000_000,
        };
        let text = copy.to_string();
        assert_eq!(text.parse(), Ok(copy));
        for wrong in
            ["", "job.parked", &text[..text.len() - 14], &format!("{text}/0"), &text.replace('2', "x")]
        {
            assert!(wrong.parse::<ParkedCopy>().is_err(), "{wrong}");
        }
    }
}
