//! The hidden columns of a batch, read row by row.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

use super::{COLUMNS, ParkedCopy};
use crate::ErrorKind;
use crate::decision::SourcePartition;
use crate::error::{Error, Result};

/// The hidden columns of a batch, at the place where they are in every batch: behind the user's columns.
#[derive(Clone, Copy, Debug)]
pub struct Coordinates<'a> {
    /// Topic names.
    pub topics: DictionaryText<'a>,
    /// Topic ids as Kafka prints them.
    pub topic_ids: DictionaryText<'a>,
    /// Partitions.
    pub partitions: &'a Int32Array,
    /// Offsets.
    pub offsets: &'a Int64Array,
    /// Which of the rows that came from its offset each row is.
    pub ordinals: &'a Int32Array,
    /// Record timestamps, milliseconds since 1970 in UTC.
    pub timestamps: &'a TimestampMillisecondArray,
    /// Deliveries, from 1.
    pub delivery_counts: &'a Int16Array,
    /// Keys.
    pub keys: &'a BinaryViewArray,
    /// Values.
    pub values: &'a BinaryViewArray,
    /// Headers as the record format encodes them.
    pub headers: &'a BinaryViewArray,
    /// Where those records lie that were parked ([`ParkedCopy`]).
    pub parked: &'a StringArray,
}

/// A dictionary of text.
#[derive(Clone, Copy, Debug)]
pub struct DictionaryText<'a> {
    numbers: &'a Int16Array,
    values: &'a StringArray,
}

impl<'a> DictionaryText<'a> {
    fn of(column: &'a dyn Array) -> Option<Self> {
        let dictionary = column.as_any().downcast_ref::<DictionaryArray<Int16Type>>()?;
        Some(DictionaryText {
            numbers: dictionary.keys(),
            values: dictionary.values().as_string_opt::<i32>()?,
        })
    }

    /// The number of a row's text: rows with the same number have the same text.
    #[inline]
    pub fn number(&self, row: usize) -> usize {
        usize::try_from(self.numbers.value(row)).unwrap_or(0)
    }

    /// The text of a row.
    #[inline]
    pub fn text(&self, row: usize) -> &'a str {
        self.values.value(self.number(row))
    }
}

impl<'a> Coordinates<'a> {
    /// The hidden columns behind the first `before` columns of `batch`. Errors: `Bug`, they are not there.
    pub fn behind(batch: &'a RecordBatch, before: usize) -> Result<Self> {
        Self::find(batch, before)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a batch of rows came without its hidden columns"))
    }

    /// The hidden columns at the end of `batch`. Errors: as [`Coordinates::behind`].
    pub fn of(batch: &'a RecordBatch) -> Result<Self> {
        Self::behind(batch, super::user_column_count(batch.schema_ref()))
    }

    fn find(batch: &'a RecordBatch, before: usize) -> Option<Self> {
        let hidden = batch.columns().get(before..before + COLUMNS.len())?;
        let [
            topics,
            topic_ids,
            partitions,
            offsets,
            ordinals,
            timestamps,
            delivery_counts,
            keys,
            values,
            headers,
            parked,
        ] = hidden
        else {
            return None;
        };
        Some(Coordinates {
            topics: DictionaryText::of(topics)?,
            topic_ids: DictionaryText::of(topic_ids)?,
            partitions: partitions.as_primitive_opt::<Int32Type>()?,
            offsets: offsets.as_primitive_opt::<Int64Type>()?,
            ordinals: ordinals.as_primitive_opt::<Int32Type>()?,
            timestamps: timestamps.as_primitive_opt::<TimestampMillisecondType>()?,
            delivery_counts: delivery_counts.as_primitive_opt::<Int16Type>()?,
            keys: keys.as_binary_view_opt()?,
            values: values.as_binary_view_opt()?,
            headers: headers.as_binary_view_opt()?,
            parked: parked.as_string_opt()?,
        })
    }

    /// True for a row that comes from state ([`derived`](super::derived)): it has no source record.
    #[inline]
    pub fn is_derived(&self, row: usize) -> bool {
        self.partitions.value(row) < 0
    }

    /// Source partition and offset that a row was acquired at, and that is decided: of its copy, where the record was
    /// parked. Errors: `Bug`, the topic id is none.
    pub fn source(&self, row: usize) -> Result<(SourcePartition, Offset)> {
        if let Some(copy) = self.parked_copy(row)? {
            return Ok((copy.partition, copy.offset));
        }
        let topic_id: TopicId = self.topic_ids.text(row).parse().map_err(|error| {
            Error::new(ErrorKind::Bug, "a topic id column holds no topic id").with_source(error)
        })?;
        let partition = PartitionIndex(self.partitions.value(row));
        Ok((SourcePartition { topic_id, partition }, Offset(self.offsets.value(row))))
    }
}

impl Coordinates<'_> {
    /// The copy that a row was read from, `None` for a record that was never parked. Errors: `Bug`, the column holds
    /// something else.
    #[inline]
    pub fn parked_copy(&self, row: usize) -> Result<Option<ParkedCopy>> {
        if self.parked.is_null(row) {
            return Ok(None);
        }
        let copy = self.parked.value(row).parse().map_err(|error| {
            Error::new(ErrorKind::Bug, "a column of parked copies holds none").with_source(error)
        })?;
        Ok(Some(copy))
    }
}

/// The bytes of a row, `None` for null.
#[inline]
pub fn bytes(column: &BinaryViewArray, row: usize) -> Option<&[u8]> {
    if column.is_null(row) { None } else { Some(column.value(row)) }
}
