//! Records in the parking topic: copies of records that took too long, to be read again later (ADR 0025).
//!
//! A copy has the key, value and headers of its record, and behind those the headers that say what it is a copy of. The
//! source takes them off again, so that a row is the same however often its record was parked. The copy's own timestamp is
//! that of the parking: retention would remove an old record at once.

use sharestream_base::ids::CheckpointId;
use sharestream_core::coordinates::{Coordinates, ParkedCopy};
use sharestream_wire::records::HeadersView;

use crate::Result;
use crate::formats::write_int;
use crate::provenance::{self, Header, Provenance};

/// Coordinates that the record had at first, as a [`Provenance`].
pub const SOURCE: &str = "sharestream.parked.source";
/// Name of the topic that it was in at first.
pub const TOPIC: &str = "sharestream.parked.topic";
/// Its timestamp there, Unix milliseconds.
pub const TIMESTAMP: &str = "sharestream.parked.timestamp";
/// How often it was parked, from 1.
pub const TIMES: &str = "sharestream.parked.times";
/// When it was parked for the first time, Unix milliseconds.
pub const FIRST_AT: &str = "sharestream.parked.first-at";
/// Coordinates of the record that was copied, as a [`Provenance`]: the source record, or an earlier copy of it.
pub const VIA: &str = "sharestream.parked.via";
/// `<job>/<instance>` that parked it.
pub const JOB: &str = "sharestream.parked.job";
/// Checkpoint of the parking.
pub const CHECKPOINT: &str = "sharestream.parked.checkpoint";

/// The headers of a copy, behind those of the record, in this order.
const HEADERS: [&str; 8] = [SOURCE, TOPIC, TIMESTAMP, TIMES, FIRST_AT, VIA, JOB, CHECKPOINT];

/// What the headers of a copy say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRecord<'a> {
    /// Coordinates that the record had at first.
    pub source: Provenance,
    /// Name of its topic.
    pub topic: &'a str,
    /// Its timestamp, Unix milliseconds.
    pub timestamp_ms: i64,
    /// How often it was parked, from 1.
    pub times: u32,
    /// When it was parked for the first time, Unix milliseconds.
    pub first_at_ms: i64,
    /// The record that was copied.
    pub via: Provenance,
    /// The headers that the record had, as the record format encodes them; `None` without any.
    pub headers: Option<Vec<u8>>,
}

/// Reads what a record of the parking topic is a copy of. `None`: it is no copy; somebody put it there by hand, and it is a
/// record like those of any source topic.
pub fn read<'a>(headers: &HeadersView<'a>) -> Option<ParkedRecord<'a>> {
    let kept = headers.len().checked_sub(HEADERS.len())?;
    let mut values = [""; HEADERS.len()];
    let mut own_bytes = 0;
    for ((value, wanted), (key, given)) in values.iter_mut().zip(HEADERS).zip(headers.iter().skip(kept)) {
        let given = given.filter(|_| key == wanted.as_bytes())?;
        *value = std::str::from_utf8(given).ok()?;
        own_bytes += encoded_length(key) + encoded_length(given);
    }
    let [source, topic, timestamp_ms, times, first_at_ms, via, _job, _checkpoint] = values;
    let times: u32 = times.parse().ok().filter(|times| *times > 0)?;
    Some(ParkedRecord {
        source: source.parse().ok()?,
        topic: Some(topic).filter(|topic| !topic.is_empty() && !topic.contains('/'))?,
        timestamp_ms: timestamp_ms.parse().ok()?,
        times,
        first_at_ms: first_at_ms.parse().ok()?,
        via: via.parse().ok()?,
        headers: without_own(headers, kept, own_bytes)?,
    })
}

/// The first `kept` of `headers`, whose others are the last `own_bytes` bytes. The inner none is no headers at all.
fn without_own(headers: &HeadersView<'_>, kept: usize, own_bytes: usize) -> Option<Option<Vec<u8>>> {
    if kept == 0 {
        return Some(None);
    }
    let raw = headers.raw();
    let body = raw.get(varint_length(headers.len())..raw.len().checked_sub(own_bytes)?)?;
    let mut encoded = Vec::with_capacity(body.len() + 2);
    write_varint(&mut encoded, kept);
    encoded.extend_from_slice(body);
    Some(Some(encoded))
}

fn encoded_length(bytes: &[u8]) -> usize {
    varint_length(bytes.len()) + bytes.len()
}

/// Bytes of a zigzag varint of a length.
fn varint_length(length: usize) -> usize {
    let mut rest = length << 1;
    let mut count = 1;
    while rest > 0x7f {
        rest >>= 7;
        count += 1;
    }
    count
}

fn write_varint(out: &mut Vec<u8>, length: usize) {
    let mut rest = length << 1;
    while rest > 0x7f {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The headers of one copy that are ours, under construction.
#[derive(Debug, Default)]
pub(crate) struct CopyHeaders {
    /// The values, one behind the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: [usize; HEADERS.len()],
}

impl CopyHeaders {
    /// Writes the headers of a copy of the record behind `row`, made at `now_ms`. Errors: `Bug`, the row has no coordinates.
    pub(crate) fn write(
        &mut self,
        hidden: &Coordinates<'_>,
        row: usize,
        (job, checkpoint): (&str, CheckpointId),
        now_ms: i64,
    ) -> Result<()> {
        let earlier = hidden.parked_copy(row)?;
        let (times, first_at_ms) = earlier.map_or((0, now_ms), |copy| (copy.times, copy.first_at_ms));
        let (via, via_offset) = hidden.source(row)?;
        let out = &mut self.bytes;
        out.clear();
        let (partition, offset) = (hidden.partitions.value(row), hidden.offsets.value(row));
        let ordinal = hidden.ordinals.value(row);
        provenance::write_source(out, hidden.topic_ids.text(row), partition, offset, ordinal);
        self.ends[0] = out.len();
        out.extend_from_slice(hidden.topics.text(row).as_bytes());
        self.ends[1] = out.len();
        let numbers = [hidden.timestamps.value(row), i64::from(times) + 1, first_at_ms];
        for (end, number) in self.ends[2..].iter_mut().zip(numbers) {
            write_int(out, number);
            *end = out.len();
        }
        provenance::write_source(out, &via.topic_id.to_string(), via.partition.0, via_offset.0, 0);
        self.ends[5] = out.len();
        out.extend_from_slice(job.as_bytes());
        self.ends[6] = out.len();
        out.extend_from_slice(checkpoint.to_string().as_bytes());
        self.ends[7] = out.len();
        Ok(())
    }

    /// Appends them to `headers`.
    pub(crate) fn append_to<'a>(&'a self, headers: &mut Vec<Header<'a>>) {
        let mut begin = 0;
        for (key, end) in HEADERS.iter().zip(self.ends) {
            headers.push((key.as_bytes(), self.bytes.get(begin..end)));
            begin = end;
        }
    }
}

/// Writes the coordinates of `copy` as a [`Provenance`], for what is made of it.
pub(crate) fn write_copy(out: &mut Vec<u8>, copy: &ParkedCopy, ordinal: i32) {
    let topic_id = copy.partition.topic_id.to_string();
    provenance::write_source(out, &topic_id, copy.partition.partition.0, copy.offset.0, ordinal);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
    use sharestream_core::decision::SourcePartition;
    use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};
    use uuid::Uuid;

    use super::*;
    use crate::formats::Format;
    use crate::source::{RecordBytes, RecordCoordinates, RowsBuilder, TopicNames};

    const FIRST: TopicId = TopicId(Uuid::from_u128(7));
    const PARKING: TopicId = TopicId(Uuid::from_u128(9));

    fn batch(headers: &[Header<'_>]) -> RawBatch {
        let mut builder = BatchBuilder::new();
        builder.append(0, None, Some(b"value"), headers).unwrap();
        RawBatch::from_bytes(builder.build(&BatchMeta::default()).unwrap()).unwrap()
    }

    /// What is read of a record with these headers.
    fn with_view<R>(headers: &[Header<'_>], look: impl FnOnce(&HeadersView<'_>) -> R) -> R {
        let batch = batch(headers);
        let records = batch.records().unwrap();
        look(&records.iter().next().unwrap().unwrap().headers)
    }

    /// Writes the headers of a copy of offset 5 of partition 3, or of `earlier`, a copy of it.
    fn copied(earlier: Option<&ParkedCopy>) -> CopyHeaders {
        let mut rows = RowsBuilder::new(&Format::Raw, TopicNames::new([("orders", FIRST)]));
        if let Some(copy) = earlier {
            rows.next_is_copy(copy);
        }
        let at = RecordCoordinates {
            partition: PartitionIndex(3),
            offset: Offset(5),
            timestamp_ms: 1_234,
            delivery_count: 1,
        };
        rows.push(0, &at, &RecordBytes::default()).unwrap();
        let batch = rows.finish().unwrap().rows.unwrap();
        let mut headers = CopyHeaders::default();
        headers.write(&Coordinates::of(&batch).unwrap(), 0, ("job/0", CheckpointId(8)), 9_999).unwrap();
        headers
    }

    fn place(topic_id: TopicId, partition: i32, offset: i64) -> Provenance {
        Provenance { topic_id, partition: PartitionIndex(partition), offset: Offset(offset), ordinal: 0 }
    }

    proptest! {
        #[test]
        fn a_copy_gives_back_what_its_record_was(
            own in proptest::collection::vec((".{0,70}", proptest::option::of(".{0,70}")), 0..130),
            again: bool,
        ) {
            let own: Vec<Header<'_>> =
                own.iter().map(|(key, value)| (key.as_bytes(), value.as_deref().map(str::as_bytes))).collect();
            let earlier = ParkedCopy {
                topic: Arc::from("job.parked"),
                partition: SourcePartition { topic_id: PARKING, partition: PartitionIndex(1) },
                offset: Offset(40),
                times: 2,
                first_at_ms: 77,
            };
            let written = copied(again.then_some(&earlier));
            let mut all = own.clone();
            written.append_to(&mut all);
            with_view(&all, |view| {
                let parked = read(view).unwrap();
                assert_eq!((parked.source, parked.topic), (place(FIRST, 3, 5), "orders"));
                assert_eq!(parked.timestamp_ms, 1_234);
                if again {
                    assert_eq!((parked.times, parked.first_at_ms, parked.via), (3, 77, place(PARKING, 1, 40)));
                } else {
                    assert_eq!((parked.times, parked.first_at_ms, parked.via), (1, 9_999, place(FIRST, 3, 5)));
                }
                let as_it_was = with_view(&own, |view| view.raw().to_vec());
                assert_eq!(parked.headers, (!own.is_empty()).then_some(as_it_was));
            });
        }

        #[test]
        fn what_is_no_copy_is_a_record_like_any_other(cut in 0usize..8, spoilt in 0usize..8) {
            let written = copied(None);
            let mut headers: Vec<Header<'_>> = Vec::new();
            written.append_to(&mut headers);
            let mut fewer = headers.clone();
            fewer.remove(cut);
            assert!(!with_view(&fewer, |view| read(view).is_some()));
            let mut other = headers.clone();
            other[spoilt].1 = None;
            assert!(!with_view(&other, |view| read(view).is_some()));
            other[spoilt] = (b"x", Some(b"1"));
            assert!(!with_view(&other, |view| read(view).is_some()));
            headers.push((b"x", Some(b"1")));
            assert!(!with_view(&headers, |view| read(view).is_some()), "ours are the last ones");
        }
    }
}
