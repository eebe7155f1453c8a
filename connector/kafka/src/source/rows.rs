//! Records to batches: what a source hands on, and what `verify` recomputes.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;
use sharestream_core::coordinates::{self, ParkedCopy, RejectKind};

use crate::formats::{Format, RowDecoder, RowError, SchemaId, WriterSchema};
use crate::metadata_columns::{Blocks, CoordinateColumns, RecordBytes, RecordCoordinates, TopicNames};

/// Builds a batch of decoded rows, and one of the records that do not decode.
///
/// ```
/// use bytes::Bytes;
/// use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
/// use sharestream_kafka::formats::Format;
/// use sharestream_kafka::source::{RowsBuilder, TopicNames, RecordBytes, RecordCoordinates};
///
/// let topics = TopicNames::new([("flights", TopicId::default())]);
/// let mut rows = RowsBuilder::new(&Format::Raw, topics);
/// let block = Bytes::from_static(b"hello");
/// rows.add_block(&block);
/// let coordinates =
///     RecordCoordinates { partition: PartitionIndex(0), offset: Offset(42), timestamp_ms: 0, delivery_count: 1 };
/// rows.push(0, &coordinates, &RecordBytes { value: Some(&block), ..Default::default() }).unwrap();
/// assert_eq!(rows.finish().unwrap().rows.unwrap().num_rows(), 1);
/// ```
#[derive(Debug)]
pub struct RowsBuilder {
    decoder: RowDecoder,
    schema: SchemaRef,
    topics: TopicNames,
    blocks: Blocks,
    accepted: CoordinateColumns,
    rejected: CoordinateColumns,
    errors: Vec<(RejectKind, String)>,
    /// What the next record is read from, if it was parked.
    copy: Option<ParkedCopy>,
}

/// What a [`RowsBuilder`] made; `None` where there is no row.
#[derive(Debug, Default)]
pub struct FinishedRows {
    /// Decoded rows, hidden columns at the end.
    pub rows: Option<RecordBatch>,
    /// Bad records; schema [`coordinates::rejected_schema`].
    pub rejected: Option<RecordBatch>,
}

impl RowsBuilder {
    /// A builder for records of `topics` in `format`.
    pub fn new(format: &Format, topics: TopicNames) -> Self {
        RowsBuilder {
            decoder: RowDecoder::new(format),
            schema: format.schema(),
            topics,
            blocks: Blocks::default(),
            accepted: CoordinateColumns::new(),
            rejected: CoordinateColumns::new(),
            errors: Vec::new(),
            copy: None,
        }
    }

    /// Adds a block of bytes; the records that follow lie in it.
    pub fn add_block(&mut self, block: &Bytes) {
        self.blocks.add(block);
    }

    /// Adds a record of the topic with that number. A record that does not decode becomes a rejected row; the error
    /// is given back so that the caller can decide on its offset.
    pub fn push(
        &mut self,
        topic: i16,
        coordinates: &RecordCoordinates,
        bytes: &RecordBytes<'_>,
    ) -> Result<(), RowError> {
        match self.decoder.decode(bytes.value) {
            Ok(()) => {
                if let Some(copy) = self.copy.take() {
                    self.accepted.next_is_copy(&copy);
                }
                self.accepted.push(&mut self.blocks, topic, coordinates, bytes);
                Ok(())
            }
            Err(error) => {
                self.push_rejected(topic, coordinates, bytes, (RejectKind::Decode, error.to_string()));
                Err(error)
            }
        }
    }

    /// The id of the schema that must be learned before a record with this value is pushed.
    #[inline]
    pub fn unknown_schema(&self, value: Option<&[u8]>) -> Option<SchemaId> {
        self.decoder.unknown_schema(value)
    }

    /// Takes the schema of an id, or that there is none.
    pub fn learn_schema(&mut self, id: SchemaId, schema: &WriterSchema) {
        self.decoder.learn_schema(id, schema);
    }

    /// Forgets the ids that had no schema, so that they are asked for again.
    pub fn forget_missing_schemas(&mut self) {
        self.decoder.forget_missing_schemas();
    }

    /// The record that is added next was parked: `copy` is what was read, the coordinates and headers are those that the
    /// record had at first.
    pub fn next_is_copy(&mut self, copy: &ParkedCopy) {
        self.copy = Some(copy.clone());
    }

    /// Adds a record as rejected, without decoding it.
    pub fn push_rejected(
        &mut self,
        topic: i16,
        coordinates: &RecordCoordinates,
        bytes: &RecordBytes<'_>,
        error: (RejectKind, String),
    ) {
        if let Some(copy) = self.copy.take() {
            self.rejected.next_is_copy(&copy);
        }
        self.rejected.push(&mut self.blocks, topic, coordinates, bytes);
        self.errors.push(error);
    }

    /// Number of the topic, which is added to the dictionary if it is not there; `None` when that is full.
    pub fn topic_number_or_add(
        &mut self,
        name: &str,
        topic_id: sharestream_base::ids::TopicId,
    ) -> Option<i16> {
        self.topics.number_or_add(name, topic_id)
    }

    /// Number of the topic in the dictionary given at the start.
    pub fn topic_number(&self, topic_id: sharestream_base::ids::TopicId) -> Option<i16> {
        self.topics.number(topic_id)
    }

    /// Rows added since the last batch, bad ones included.
    pub fn row_count(&self) -> usize {
        self.accepted.len() + self.rejected.len()
    }

    /// The batches; the builder is empty afterwards.
    pub fn finish(&mut self) -> Result<FinishedRows, ArrowError> {
        let buffers = self.blocks.take();
        let mut finished = FinishedRows::default();
        if self.accepted.len() > 0 {
            let hidden = self.accepted.finish(&self.topics, &buffers)?;
            let mut columns = self.decoder.finish(&hidden[VALUE_INDEX])?;
            columns.extend(hidden);
            finished.rows = Some(RecordBatch::try_new(self.schema.clone(), columns)?);
        }
        if self.rejected.len() > 0 {
            let columns = self.rejected.finish(&self.topics, &buffers)?;
            let errors = std::mem::take(&mut self.errors);
            finished.rejected = Some(coordinates::rejected_batch(columns, errors)?);
        }
        Ok(finished)
    }
}

/// Position of the value among the hidden columns.
const VALUE_INDEX: usize = 8;

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

    use super::*;
    use crate::formats::{Column, ColumnType, CsvFormat};

    #[test]
    fn the_value_column_is_where_the_raw_format_looks_for_it() {
        assert_eq!(coordinates::COLUMNS[VALUE_INDEX], coordinates::VALUE);
    }

    #[test]
    fn a_bad_record_is_rejected_alone_with_its_coordinates_and_bytes() {
        let columns = vec![Column::new("number", ColumnType::Int64)];
        let format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        let mut builder = RowsBuilder::new(&format, TopicNames::new([("t", TopicId::default())]));
        for (offset, value) in [b"1".as_slice(), b"NA", b"3"].into_iter().enumerate() {
            let coordinates = RecordCoordinates {
                partition: PartitionIndex(2),
                offset: Offset(offset as i64),
                timestamp_ms: 9,
                delivery_count: 1,
            };
            let pushed =
                builder.push(0, &coordinates, &RecordBytes { value: Some(value), ..Default::default() });
            assert_eq!(pushed.is_ok(), value != b"NA");
        }
        let FinishedRows { rows, rejected } = builder.finish().unwrap();
        let (rows, rejected) = (rows.unwrap(), rejected.unwrap());
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 3]);
        let offsets = |batch: &RecordBatch| {
            batch.column_by_name(coordinates::OFFSET).unwrap().as_primitive::<Int64Type>().values().to_vec()
        };
        assert_eq!(offsets(&rows), [0, 2]);
        assert_eq!(offsets(&rejected), [1]);
        assert_eq!(rejected.column_by_name(coordinates::VALUE).unwrap().as_binary_view().value(0), b"NA");
        let errors = rejected.column_by_name(coordinates::ERROR).unwrap().as_string::<i32>();
        assert_eq!(errors.value(0), "column number: not an int64");
        assert!(builder.finish().unwrap().rows.is_none());
    }
}
