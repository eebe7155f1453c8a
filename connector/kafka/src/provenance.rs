//! Where an output record or a dead letter comes from, as record headers.
//!
//! `verify` recognises every effect of a source record by [`SOURCE`]; a dead letter also says why, and keeps the
//! headers that the record had. An output record that comes from operator state has [`CHECKPOINT`] only.

use std::fmt;
use std::str::FromStr;

use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex, TopicId};

use crate::formats::write_int;

/// `<topic id>/<partition>/<offset>/<ordinal>` of the source record; on every output record and dead letter.
pub const SOURCE: &str = "sharestream.source";
/// Name of the source topic; on dead letters.
pub const TOPIC: &str = "sharestream.topic";
/// Deliveries of the source record, the last one included; on dead letters.
pub const DELIVERY_COUNT: &str = "sharestream.delivery-count";
/// Why the record is here; on dead letters.
pub const ERROR: &str = "sharestream.error";
/// `<job>/<instance>`; on dead letters.
pub const JOB: &str = "sharestream.job";
/// Checkpoint whose commit made it visible; on dead letters, and on output records that come from state.
pub const CHECKPOINT: &str = "sharestream.checkpoint";
/// Kind of the error: `decode`, `transform`, `call`, `delivery-limit` or `too-large`; on dead letters.
pub const ERROR_KIND: &str = "sharestream.error-kind";
/// `<topic id>/<partition>/<offset>/<ordinal>` of the copy in the parking topic that the job made this of; on output records
/// and dead letters of records that were parked ([`crate::parking`]). [`SOURCE`] names the record as it was at first.
pub const PARKED: &str = "sharestream.parked";
/// Bytes of the source record's value, which was left out: on dead letters whose topic does not take it. Key and headers may
/// be missing as well, where they do not fit either.
pub const PAYLOAD_BYTES: &str = "sharestream.payload-bytes";
/// SHA-256 of that value in hexadecimal digits; beside [`PAYLOAD_BYTES`].
pub const PAYLOAD_SHA256: &str = "sharestream.payload-sha256";
/// How often the record was put back into its source topic: a number from 1, on records that were. It stays with the
/// record, also when that becomes a dead letter again.
pub const REPLAYS: &str = "sharestream.replays";

/// The coordinates of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Provenance {
    /// Source topic.
    pub topic_id: TopicId,
    /// Source partition.
    pub partition: PartitionIndex,
    /// Source offset.
    pub offset: Offset,
    /// Which of the rows that came from this offset, from 0.
    pub ordinal: i32,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Provenance { topic_id, partition, offset, ordinal } = self;
        write!(f, "{topic_id}/{partition}/{offset}/{ordinal}")
    }
}

/// The text is no provenance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not <topic id>/<partition>/<offset>/<ordinal>")]
pub struct ProvenanceError {
    /// What was given.
    pub text: String,
}

impl FromStr for Provenance {
    type Err = ProvenanceError;

    fn from_str(text: &str) -> Result<Self, ProvenanceError> {
        let parse = || {
            let mut parts = text.split('/');
            let provenance = Provenance {
                topic_id: parts.next()?.parse().ok()?,
                partition: PartitionIndex(parts.next()?.parse().ok()?),
                offset: Offset(parts.next()?.parse().ok()?),
                ordinal: parts.next()?.parse().ok()?,
            };
            let numbers_fit =
                provenance.partition.0 >= 0 && provenance.offset.0 >= 0 && provenance.ordinal >= 0;
            (parts.next().is_none() && numbers_fit).then_some(provenance)
        };
        parse().ok_or_else(|| ProvenanceError { text: text.to_owned() })
    }
}

impl Provenance {
    /// The provenance in a record's headers; `None` when there is none, or it cannot be read.
    pub fn of_headers<'a>(
        headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Option<Provenance> {
        Self::of_header(headers, SOURCE)
    }

    /// The coordinates in the last header of this name; `None` as above.
    pub fn of_header<'a>(
        headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        name: &str,
    ) -> Option<Provenance> {
        let (_, value) = headers.into_iter().filter(|(key, _)| *key == name.as_bytes()).last()?;
        std::str::from_utf8(value?).ok()?.parse().ok()
    }
}

/// The checkpoint that an output record from state names; `None` for one that names a source record, or neither.
pub fn checkpoint_of_state<'a>(
    headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Option<CheckpointId> {
    let mut checkpoint = None;
    for (key, value) in headers {
        if key == SOURCE.as_bytes() {
            return None;
        }
        if key == CHECKPOINT.as_bytes() {
            checkpoint = std::str::from_utf8(value?).ok()?.parse().ok().map(CheckpointId);
        }
    }
    checkpoint
}

/// Writes `<topic id>/<partition>/<offset>/<ordinal>` without going through formatting: once for each output row.
pub(crate) fn write_source(out: &mut Vec<u8>, topic_id: &str, partition: i32, offset: i64, ordinal: i32) {
    out.extend_from_slice(topic_id.as_bytes());
    for number in [i64::from(partition), offset, i64::from(ordinal)] {
        out.push(b'/');
        write_int(out, number);
    }
}

/// True for the headers that say where an output record or dead letter comes from. [`REPLAYS`] is none of them.
pub fn is_ours(key: &[u8]) -> bool {
    [SOURCE, PARKED, TOPIC, DELIVERY_COUNT, ERROR, ERROR_KIND, JOB, CHECKPOINT, PAYLOAD_BYTES, PAYLOAD_SHA256]
        .iter()
        .any(|ours| ours.as_bytes() == key)
}

/// A record header: key and value.
pub(crate) type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// Appends the headers that `raw` (record format: count, then key and value each) holds to `out`. The bytes were
/// checked when the record was read, so what does not parse is cut off rather than refused.
pub(crate) fn parse_headers<'a>(raw: &'a [u8], out: &mut Vec<Header<'a>>) {
    let mut rest = raw;
    let Some(count) = varint(&mut rest) else { return };
    for _ in 0..count {
        let Some(Some(key)) = nullable(&mut rest) else { return };
        let Some(value) = nullable(&mut rest) else { return };
        out.push((key, value));
    }
}

/// A zigzag varint.
fn varint(rest: &mut &[u8]) -> Option<i64> {
    let mut value: u64 = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// Bytes behind their length; -1 is null.
fn nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = varint(rest)?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = tail;
    Some(Some(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_record_from_state_names_its_checkpoint_and_no_other_does() {
        type Known<'a> = (&'a [u8], Option<&'a [u8]>);
        let (source, checkpoint): (Known<'_>, Known<'_>) =
            ((SOURCE.as_bytes(), Some(b"x/0/1/0")), (CHECKPOINT.as_bytes(), Some(b"17")));
        assert_eq!(checkpoint_of_state([checkpoint]), Some(CheckpointId(17)));
        assert_eq!(checkpoint_of_state([checkpoint, source]), None, "a dead letter");
        assert_eq!(checkpoint_of_state([source]), None);
        assert_eq!(checkpoint_of_state([(CHECKPOINT.as_bytes(), Some(&b"-1"[..]))]), None);
    }

    proptest! {
        #[test]
        fn provenance_reads_what_it_writes(id: u128, partition in 0..i32::MAX, offset in 0..i64::MAX, ordinal in 0..9) {
            let topic_id = TopicId(Uuid::from_u128(id));
            let provenance =
                Provenance { topic_id, partition: PartitionIndex(partition), offset: Offset(offset), ordinal };
            let mut text = Vec::new();
            write_source(&mut text, &topic_id.to_string(), partition, offset, ordinal);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(&text, &provenance.to_string());
            prop_assert_eq!(text.parse(), Ok(provenance));
        }

        #[test]
        fn headers_read_what_the_record_format_writes(
            headers in proptest::collection::vec((".{0,70}", proptest::option::of(".{0,70}")), 0..5)
        ) {
            use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};
            let headers: Vec<Header<'_>> =
                headers.iter().map(|(key, value)| (key.as_bytes(), value.as_deref().map(str::as_bytes))).collect();
            let mut builder = BatchBuilder::new();
            builder.append(0, None, None, &headers).unwrap();
            let batch = RawBatch::from_bytes(builder.build(&BatchMeta::default()).unwrap()).unwrap();
            let records = batch.records().unwrap();
            let record = records.iter().next().unwrap().unwrap();
            let mut read = Vec::new();
            parse_headers(record.headers.raw(), &mut read);
            prop_assert_eq!(read, headers);
        }

        #[test]
        fn no_bytes_make_the_header_reader_panic(raw in proptest::collection::vec(any::<u8>(), 0..60)) {
            parse_headers(&raw, &mut Vec::new());
        }
    }

    #[test]
    fn what_is_no_provenance_is_refused() {
        for text in [
            "",
            "AAAAAAAAAAAAAAAAAAAAAQ/0/1",
            "AAAAAAAAAAAAAAAAAAAAAQ/0/1/0/0",
            "x/0/1/0",
            "AAAAAAAAAAAAAAAAAAAAAQ/-1/1/0",
        ] {
            assert!(text.parse::<Provenance>().is_err(), "{text}");
        }
    }
}
