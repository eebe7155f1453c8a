//! The hidden coordinate columns under construction: one entry for each record, views into the fetch buffer.
//!
//! Keys, values and headers are never copied: a batch of records is one block, and the columns hold
//! (block, offset, length) views of it. Up to 12 bytes are held by the view itself.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int16Type;
use arrow_array::{
    ArrayRef, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, StringArray,
    TimestampMillisecondArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::ArrowError;
use bytes::Bytes;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_core::coordinates::ParkedCopy;

/// Where a record comes from and how often it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordCoordinates {
    /// Partition.
    pub partition: PartitionIndex,
    /// Offset.
    pub offset: Offset,
    /// Record timestamp, Unix milliseconds.
    pub timestamp_ms: i64,
    /// Deliveries, this one included.
    pub delivery_count: i16,
}

/// The bytes of a record. Slices of the block that was added last, or copied if they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordBytes<'a> {
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: Option<&'a [u8]>,
    /// Headers as the record format encodes them, count first; `None` without headers.
    pub headers: Option<&'a [u8]>,
}

/// The blocks of one batch: what the views point into.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    buffers: Vec<Buffer>,
    current: Option<Block>,
}

/// The block that the records at hand lie in.
#[derive(Clone, Copy, Debug)]
struct Block {
    index: u32,
    address: usize,
    length: usize,
}

impl Block {
    /// Where `data` lies in the block, if it does. Only numbers are compared, nothing is read through them.
    fn position_of(&self, data: &[u8]) -> Option<u32> {
        let position = (data.as_ptr() as usize).checked_sub(self.address)?;
        let inside = position.checked_add(data.len())? <= self.length;
        u32::try_from(position).ok().filter(|_| inside)
    }
}

impl Blocks {
    /// Adds a block; the next records lie in it.
    pub(crate) fn add(&mut self, block: &Bytes) {
        let index = self.push(block.clone());
        self.current = Some(Block { index, address: block.as_ptr() as usize, length: block.len() });
    }

    fn push(&mut self, block: Bytes) -> u32 {
        self.buffers.push(Buffer::from(block));
        // A batch is cut long before it has 2^32 blocks.
        (self.buffers.len() - 1) as u32
    }

    /// A view of `data`; data outside the current block gets a block of its own.
    fn view(&mut self, data: &[u8]) -> u128 {
        /// Longest data that the view itself holds.
        const INLINE_MAX: usize = 12;
        if data.len() <= INLINE_MAX {
            return make_view(data, 0, 0);
        }
        if let Some(block) = self.current
            && let Some(position) = block.position_of(data)
        {
            return make_view(data, block.index, position);
        }
        let index = self.push(Bytes::copy_from_slice(data));
        make_view(data, index, 0)
    }

    /// The buffers, and an empty set for the next batch.
    pub(crate) fn take(&mut self) -> Vec<Buffer> {
        self.current = None;
        std::mem::take(&mut self.buffers)
    }
}

/// A `BinaryView` column under construction.
#[derive(Debug)]
struct Views {
    views: Vec<u128>,
    nulls: NullBufferBuilder,
}

impl Views {
    fn new() -> Self {
        Views { views: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }

    fn push(&mut self, blocks: &mut Blocks, data: Option<&[u8]>) {
        match data {
            Some(data) => {
                self.views.push(blocks.view(data));
                self.nulls.append_non_null();
            }
            None => {
                self.views.push(0);
                self.nulls.append_null();
            }
        }
    }

    fn finish(&mut self, buffers: &[Buffer]) -> Result<ArrayRef, ArrowError> {
        let views = take(&mut self.views);
        let nulls = self.nulls.finish();
        Ok(Arc::new(BinaryViewArray::try_new(views, buffers.to_vec(), nulls)?))
    }
}

/// Takes the values; the next batch is probably as large.
fn take<T: arrow_buffer::ArrowNativeType>(values: &mut Vec<T>) -> ScalarBuffer<T> {
    let capacity = values.len();
    ScalarBuffer::from(std::mem::replace(values, Vec::with_capacity(capacity)))
}

/// The hidden columns under construction.
#[derive(Debug)]
pub(crate) struct CoordinateColumns {
    topics: Vec<i16>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    delivery_counts: Vec<i16>,
    keys: Views,
    values: Views,
    headers: Views,
    /// Of rows whose record was parked: number of the row, and where its copy lies.
    parked: Vec<(usize, String)>,
}

impl CoordinateColumns {
    pub(crate) fn new() -> Self {
        CoordinateColumns {
            topics: Vec::new(),
            partitions: Vec::new(),
            offsets: Vec::new(),
            timestamps: Vec::new(),
            delivery_counts: Vec::new(),
            keys: Views::new(),
            values: Views::new(),
            headers: Views::new(),
            parked: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// The record that is added next was parked, and this is its copy.
    pub(crate) fn next_is_copy(&mut self, copy: &ParkedCopy) {
        self.parked.push((self.len(), copy.to_string()));
    }

    /// Adds a record of the topic with that number.
    pub(crate) fn push(
        &mut self,
        blocks: &mut Blocks,
        topic: i16,
        coordinates: &RecordCoordinates,
        bytes: &RecordBytes<'_>,
    ) {
        self.topics.push(topic);
        self.partitions.push(coordinates.partition.0);
        self.offsets.push(coordinates.offset.0);
        self.timestamps.push(coordinates.timestamp_ms);
        self.delivery_counts.push(coordinates.delivery_count);
        self.keys.push(blocks, bytes.key);
        self.values.push(blocks, bytes.value);
        self.headers.push(blocks, bytes.headers);
    }

    /// The columns in the order of [`sharestream_core::coordinates::COLUMNS`].
    pub(crate) fn finish(
        &mut self,
        topics: &TopicNames,
        buffers: &[Buffer],
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        let row_count = self.len();
        let topic_numbers = Int16Array::new(take(&mut self.topics), None);
        let dictionary = |values: &ArrayRef| -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(DictionaryArray::<Int16Type>::try_new(topic_numbers.clone(), values.clone())?))
        };
        let timestamps =
            TimestampMillisecondArray::new(take(&mut self.timestamps), None).with_timezone("UTC");
        Ok(vec![
            dictionary(&topics.names)?,
            dictionary(&topics.ids)?,
            Arc::new(Int32Array::new(take(&mut self.partitions), None)),
            Arc::new(Int64Array::new(take(&mut self.offsets), None)),
            // A source makes one row of each record.
            Arc::new(Int32Array::from_value(0, row_count)),
            Arc::new(timestamps),
            Arc::new(Int16Array::new(take(&mut self.delivery_counts), None)),
            self.keys.finish(buffers)?,
            self.values.finish(buffers)?,
            self.headers.finish(buffers)?,
            self.finish_parked(row_count),
        ])
    }
}

impl CoordinateColumns {
    fn finish_parked(&mut self, row_count: usize) -> ArrayRef {
        if self.parked.is_empty() {
            return Arc::new(StringArray::new_null(row_count));
        }
        let mut copies = std::mem::take(&mut self.parked).into_iter().peekable();
        let text_of = |row| copies.next_if(|(of, _)| *of == row).map(|(_, text)| text);
        Arc::new(StringArray::from_iter((0..row_count).map(text_of)))
    }
}

/// The topics of a source as dictionary values: made once, shared by every batch.
#[derive(Clone, Debug)]
pub struct TopicNames {
    numbers: Vec<TopicId>,
    names: ArrayRef,
    ids: ArrayRef,
}

impl TopicNames {
    /// The dictionary of `topics`, names with ids, at most 32,767.
    pub fn new<'a>(topics: impl IntoIterator<Item = (&'a str, TopicId)>) -> Self {
        let (names, numbers): (Vec<&str>, Vec<TopicId>) = topics.into_iter().unzip();
        let ids: Vec<String> = numbers.iter().map(TopicId::to_string).collect();
        TopicNames {
            numbers,
            names: Arc::new(StringArray::from(names)),
            ids: Arc::new(StringArray::from(ids)),
        }
    }

    /// Number of a topic, which is added if it is not there; `None` when there is no room for more.
    pub(crate) fn number_or_add(&mut self, name: &str, topic_id: TopicId) -> Option<i16> {
        if let Some(number) = self.number(topic_id) {
            return Some(number);
        }
        let number = i16::try_from(self.numbers.len()).ok()?;
        self.numbers.push(topic_id);
        let with = |known: &ArrayRef, text: &str| -> ArrayRef {
            let texts = known.as_string::<i32>().iter().flatten();
            Arc::new(StringArray::from_iter_values(texts.chain([text])))
        };
        self.names = with(&self.names, name);
        self.ids = with(&self.ids, &topic_id.to_string());
        Some(number)
    }

    /// Number of a topic in the dictionary.
    pub fn number(&self, topic_id: TopicId) -> Option<i16> {
        let position = self.numbers.iter().position(|known| *known == topic_id)?;
        i16::try_from(position).ok()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn long_bytes_are_views_of_the_block_and_foreign_bytes_are_copied() {
        let block = Bytes::from_static(b"....a value of more than twelve bytes....");
        let foreign = b"another value of more than twelve bytes".to_vec();
        let topics = TopicNames::new([("t", TopicId(Uuid::from_u128(1)))]);
        let (mut blocks, mut columns) = (Blocks::default(), CoordinateColumns::new());
        blocks.add(&block);
        for value in [Some(&block[4..37]), Some(&foreign[..]), None, Some(&block[4..37]), Some(&b"short"[..])]
        {
            let coordinates = RecordCoordinates {
                partition: PartitionIndex(3),
                offset: Offset(7),
                timestamp_ms: 5,
                delivery_count: 1,
            };
            columns.push(&mut blocks, 0, &coordinates, &RecordBytes { value, ..RecordBytes::default() });
        }
        let buffers = blocks.take();
        assert_eq!(buffers[0].as_ptr(), block.as_ptr(), "the block itself, not a copy");
        let finished = columns.finish(&topics, &buffers).unwrap();
        let values = finished[8].as_binary_view();
        let read: Vec<_> = values.iter().collect();
        assert_eq!(
            read,
            [Some(&block[4..37]), Some(&foreign[..]), None, Some(&block[4..37]), Some(&b"short"[..])]
        );
        assert_eq!(finished.len(), sharestream_core::coordinates::COLUMNS.len());
        assert_eq!(columns.len(), 0);
    }
}
