//! Rejected rows as the sink reads them.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_core::coordinates;
use sharestream_core::decision::SourcePartition;

use crate::Result;
use crate::error::bug;

/// The hidden columns of a batch, at the place where they are in every batch: its end.
#[derive(Debug)]
pub(super) struct Coordinates<'a> {
    pub(super) topics: DictionaryText<'a>,
    pub(super) topic_ids: DictionaryText<'a>,
    pub(super) partitions: &'a Int32Array,
    pub(super) offsets: &'a Int64Array,
    pub(super) ordinals: &'a Int32Array,
    pub(super) timestamps: &'a TimestampMillisecondArray,
    pub(super) delivery_counts: &'a Int16Array,
    pub(super) keys: &'a BinaryViewArray,
    pub(super) values: &'a BinaryViewArray,
    pub(super) headers: &'a BinaryViewArray,
}

/// A dictionary of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct DictionaryText<'a> {
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

    #[inline]
    pub(super) fn number(&self, row: usize) -> usize {
        usize::try_from(self.numbers.value(row)).unwrap_or(0)
    }

    #[inline]
    pub(super) fn text(&self, row: usize) -> &'a str {
        self.values.value(self.number(row))
    }
}

impl<'a> Coordinates<'a> {
    /// Finds the hidden columns of `batch`, after its first `before` columns.
    pub(super) fn of(batch: &'a RecordBatch, before: usize) -> Result<Self> {
        Self::find(batch, before).ok_or_else(|| bug("a batch without its hidden columns reached the sink"))
    }

    fn find(batch: &'a RecordBatch, before: usize) -> Option<Self> {
        let hidden = batch.columns().get(before..before + coordinates::COLUMNS.len())?;
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
        })
    }

    /// Source partition and offset of a row.
    pub(super) fn source(&self, row: usize) -> Result<(SourcePartition, Offset)> {
        let topic_id: TopicId = self
            .topic_ids
            .text(row)
            .parse()
            .map_err(|error| bug("a topic id column holds no topic id").with_source(error))?;
        let partition = PartitionIndex(self.partitions.value(row));
        Ok((SourcePartition { topic_id, partition }, Offset(self.offsets.value(row))))
    }
}

/// The bytes of a row, `None` for null.
#[inline]
pub(super) fn bytes(column: &BinaryViewArray, row: usize) -> Option<&[u8]> {
    if column.is_null(row) { None } else { Some(column.value(row)) }
}

/// The errors of a batch of rejected rows.
pub(super) fn errors(rejected: &RecordBatch) -> Result<&StringArray> {
    rejected
        .column_by_name(coordinates::ERROR)
        .and_then(|column| column.as_string_opt::<i32>())
        .ok_or_else(|| bug("a batch of rejected rows without its errors"))
}
