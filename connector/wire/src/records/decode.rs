//! Records of a batch as borrowed views: nothing is allocated per record.

use bytes::Bytes;

use super::batch::BatchHeader;
use super::varint::Reader;
use crate::WireError;

/// Fewest bytes of a record: seven one-byte numbers.
const RECORD_BYTES_MIN: usize = 7;

/// The decompressed records of a batch.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    payload: Bytes,
}

impl Records {
    pub(super) fn new(header: BatchHeader, payload: Bytes) -> Result<Records, WireError> {
        let count = usize::try_from(header.record_count).unwrap_or(usize::MAX);
        if count > payload.len() / RECORD_BYTES_MIN {
            return Err(WireError::corrupt(format!(
                "batch at offset {} claims {count} records in {} bytes",
                header.base_offset,
                payload.len()
            )));
        }
        Ok(Records { header, payload })
    }

    /// Header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The bytes that every view of a record points into.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Number of records, as the header says.
    pub fn len(&self) -> usize {
        usize::try_from(self.header.record_count).unwrap_or(0)
    }

    /// Whether there are no records (compaction may leave an empty batch).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a key, value or header of a record view begins within [`Records::payload`]; none for bytes from
    /// elsewhere.
    pub fn position(&self, part: &[u8]) -> Option<usize> {
        let start = (part.as_ptr() as usize).checked_sub(self.payload.as_ptr() as usize)?;
        (start.checked_add(part.len())? <= self.payload.len()).then_some(start)
    }

    /// The records in order of offset. After an error nothing more comes.
    pub fn iter(&self) -> RecordsIter<'_> {
        RecordsIter {
            reader: Reader::new(&self.payload),
            base_offset: self.header.base_offset,
            base_timestamp: self.header.base_timestamp,
            append_time: self.header.is_log_append_time().then_some(self.header.max_timestamp),
            last_offset_delta: self.header.last_offset_delta,
            offset_delta_min: 0,
            left: self.len(),
        }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<RecordView<'a>, WireError>;
    type IntoIter = RecordsIter<'a>;

    fn into_iter(self) -> RecordsIter<'a> {
        self.iter()
    }
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970: the producer's, or the append time when the topic asks for that.
    pub timestamp: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; null is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: HeadersView<'a>,
}

/// Headers of a record, already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadersView<'a> {
    /// As encoded, count included; [`super::BatchBuilder::append_raw_headers`] takes them as they are.
    raw: &'a [u8],
    count: usize,
}

impl<'a> HeadersView<'a> {
    /// No headers.
    pub const EMPTY: HeadersView<'static> = HeadersView { raw: &[0], count: 0 };

    /// The encoded headers, count included.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Key and value of each, in order; a key may occur more than once.
    pub fn iter(&self) -> HeadersIter<'a> {
        let mut reader = Reader::new(self.raw);
        // The count was read when the view was made.
        let _count = reader.varint();
        HeadersIter { reader, left: self.count }
    }

    /// Value of the last header of this key, as Kafka's `lastHeader`. The inner none is a null value.
    pub fn last(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|(name, _)| *name == key).last().map(|(_, value)| value)
    }

    /// Reads and checks headers up to the end of the record.
    fn parse(raw: &'a [u8]) -> Result<HeadersView<'a>, WireError> {
        if raw == [0] {
            return Ok(HeadersView { raw, count: 0 });
        }
        let mut reader = Reader::new(raw);
        let count =
            usize::try_from(reader.varint()?).map_err(|_| WireError::corrupt("negative header count"))?;
        // A header is at least two one-byte lengths.
        if count > reader.rest().len() / 2 {
            return Err(WireError::corrupt("record claims more headers than it has bytes for"));
        }
        for _ in 0..count {
            header(&mut reader)?;
        }
        if !reader.is_empty() {
            return Err(WireError::corrupt("record has bytes left over after its headers"));
        }
        Ok(HeadersView { raw, count })
    }
}

fn header<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), WireError> {
    let key = reader.nullable()?.ok_or_else(|| WireError::corrupt("header key is null"))?;
    Ok((key, reader.nullable()?))
}

/// Iterator over the headers of a record.
#[derive(Clone, Debug)]
pub struct HeadersIter<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Cannot fail: the view was checked when it was made.
        header(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// Iterator over the records of a batch.
#[derive(Clone, Debug)]
pub struct RecordsIter<'a> {
    reader: Reader<'a>,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    last_offset_delta: i32,
    /// Smallest offset delta that the next record may have: offsets ascend.
    offset_delta_min: i64,
    left: usize,
}

impl<'a> RecordsIter<'a> {
    #[inline]
    fn record(&mut self) -> Result<RecordView<'a>, WireError> {
        let length = usize::try_from(self.reader.varint()?)
            .map_err(|_| WireError::corrupt("record has a negative length"))?;
        let mut record = Reader::new(self.reader.take(length)?);
        let _attributes = record.byte()?;
        let timestamp_delta = record.varlong()?;
        let offset_delta = record.varint()?;
        if i64::from(offset_delta) < self.offset_delta_min || offset_delta > self.last_offset_delta {
            return Err(WireError::corrupt(format!("record has offset delta {offset_delta} out of order")));
        }
        self.offset_delta_min = i64::from(offset_delta) + 1;
        let key = record.nullable()?;
        let value = record.nullable()?;
        let headers = HeadersView::parse(record.rest())?;
        Ok(RecordView {
            offset: self.base_offset + i64::from(offset_delta),
            timestamp: match self.append_time {
                Some(time) => time,
                None => self.base_timestamp.wrapping_add(timestamp_delta),
            },
            key,
            value,
            headers,
        })
    }

    #[cold]
    fn fail(&mut self, error: WireError) -> WireError {
        self.left = 0;
        WireError::new(error.kind(), format!("reading the batch at offset {}", self.base_offset))
            .with_source(error)
    }
}

impl<'a> Iterator for RecordsIter<'a> {
    type Item = Result<RecordView<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match self.record() {
            Ok(_) if self.left == 0 && !self.reader.is_empty() => {
                Some(Err(self.fail(WireError::corrupt("bytes are left over after the last record"))))
            }
            Ok(record) => Some(Ok(record)),
            Err(error) => Some(Err(self.fail(error))),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}
