//! Records of `__transaction_state`: one per change of a transactional id, each the whole state.
//!
//! Key and value follow Kafka's TransactionLogKey (version 0) and TransactionLogValue (version 1). Kafka's fields
//! do not say who ended a transaction; that is in tagged fields of our own, which Kafka's readers skip.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};
use sharestream_wire::WireError;
use sharestream_wire::codec::{get_unsigned_varint, put_unsigned_varint};

use super::state::{Ended, EndedBy, Identity, Open, State, TopicPartition, TransactionRecord};
use crate::log::TransactionVersion;

const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 1;
const TAG_NEXT_PRODUCER_ID: u32 = 1;
const TAG_CLIENT_VERSION: u32 = 2;
/// Our own: who ended the transaction, under which identity it ran, what its markers carry.
const TAG_ENDED: u32 = 10_000;
/// Our own: the identity before the last init that named one.
const TAG_PREVIOUS: u32 = 10_001;

/// The key: the transactional id.
pub(crate) fn encode_key(transactional_id: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(4 + transactional_id.len());
    key.put_i16(KEY_VERSION);
    // Ids come from requests, whose strings have the same limit.
    key.put_i16(i16::try_from(transactional_id.len()).unwrap_or(i16::MAX));
    key.put_slice(transactional_id.as_bytes());
    key.freeze()
}

/// Reads a key. Errors: Corrupt.
pub(crate) fn decode_key(mut key: &[u8]) -> Result<String, WireError> {
    let version = key.try_get_i16().map_err(short)?;
    let length = key.try_get_i16().map_err(short)?;
    if version != KEY_VERSION || usize::try_from(length) != Ok(key.len()) {
        return Err(WireError::corrupt(format!("transaction log key of version {version}, length {length}")));
    }
    String::from_utf8(key.to_vec())
        .map_err(|error| WireError::corrupt("transactional id is not UTF-8").with_source(error))
}

/// The value: everything known of the transactional id.
pub(crate) fn encode_value(record: &TransactionRecord) -> Bytes {
    let open = open_of(&record.state);
    let ended = ended_of(&record.state);
    let mut value = BytesMut::with_capacity(128);
    value.put_i16(VALUE_VERSION);
    // In Prepare states Kafka names the id that the markers carry and, if it changes, the next one.
    let shown = ended.map_or(record.identity.producer_id, |ended| ended.marker.producer_id);
    value.put_i64(shown.0);
    value.put_i16(record.identity.epoch.0);
    value.put_i32(record.timeout_ms);
    value.put_i8(status_of(&record.state));
    match open {
        None => put_unsigned_varint(&mut value, 0),
        Some(open) => put_partitions(&mut value, &open.partitions),
    }
    value.put_i64(record.updated_ms);
    value.put_i64(open.map_or(-1, |open| open.started_ms));
    let mut tags: BTreeMap<u32, BytesMut> = BTreeMap::new();
    if shown != record.identity.producer_id {
        tags.entry(TAG_NEXT_PRODUCER_ID).or_default().put_i64(record.identity.producer_id.0);
    }
    let version = open.map(|open| open.version).or(ended.map(|ended| ended.version));
    if version == Some(TransactionVersion::V2) {
        tags.entry(TAG_CLIENT_VERSION).or_default().put_i16(2);
    }
    if let Some(ended) = ended {
        let tag = tags.entry(TAG_ENDED).or_default();
        tag.put_i8(match ended.by {
            EndedBy::Producer => 0,
            EndedBy::TimeOut => 1,
            EndedBy::Fence => 2,
        });
        put_identity(tag, ended.ran_as);
        put_identity(tag, ended.marker);
    }
    if let State::Empty { previous: Some(previous) } = &record.state {
        put_identity(tags.entry(TAG_PREVIOUS).or_default(), *previous);
    }
    put_unsigned_varint(&mut value, u32::try_from(tags.len()).unwrap_or(0));
    for (tag, bytes) in tags {
        put_unsigned_varint(&mut value, tag);
        put_unsigned_varint(&mut value, u32::try_from(bytes.len()).unwrap_or(0));
        value.put_slice(&bytes);
    }
    value.freeze()
}

/// Reads a value. Errors: Corrupt.
pub(crate) fn decode_value(value: &[u8]) -> Result<TransactionRecord, WireError> {
    let mut buf = Bytes::copy_from_slice(value);
    let version = buf.try_get_i16().map_err(short)?;
    if version != VALUE_VERSION {
        return Err(WireError::corrupt(format!("transaction log value of version {version}")));
    }
    let shown = ProducerId(buf.try_get_i64().map_err(short)?);
    let epoch = ProducerEpoch(buf.try_get_i16().map_err(short)?);
    let timeout_ms = buf.try_get_i32().map_err(short)?;
    let status = buf.try_get_i8().map_err(short)?;
    let partitions = get_partitions(&mut buf)?;
    let updated_ms = buf.try_get_i64().map_err(short)?;
    let started_ms = buf.try_get_i64().map_err(short)?;
    let mut tags = get_tags(&mut buf)?;
    let next_id = match tags.get_mut(&TAG_NEXT_PRODUCER_ID) {
        Some(tag) => ProducerId(tag.try_get_i64().map_err(short)?),
        None => shown,
    };
    let version = match tags.get_mut(&TAG_CLIENT_VERSION).map(Buf::try_get_i16).transpose().map_err(short)? {
        Some(2..) => TransactionVersion::V2,
        Some(_) | None => TransactionVersion::V1,
    };
    let ended = tags.get_mut(&TAG_ENDED).map(|tag| get_ended(tag, version)).transpose()?;
    let previous = tags.get_mut(&TAG_PREVIOUS).map(get_identity).transpose()?;
    let missing = || WireError::corrupt(format!("transaction log value of status {status} lacks fields"));
    let open = || match &partitions {
        Some(partitions) => Ok(Open { version, partitions: partitions.clone(), started_ms }),
        None => Err(missing()),
    };
    let ended = || ended.ok_or_else(missing);
    let state = match status {
        0 => State::Empty { previous },
        1 => State::Ongoing(open()?),
        2 => State::PrepareCommit(open()?, ended()?),
        3 => State::PrepareAbort(open()?, ended()?),
        4 => State::CompleteCommit(ended()?),
        5 => State::CompleteAbort(ended()?),
        _ => return Err(WireError::corrupt(format!("transaction log value of status {status}"))),
    };
    Ok(TransactionRecord {
        identity: Identity { producer_id: next_id, epoch },
        timeout_ms,
        state,
        updated_ms,
    })
}

fn short<E>(_: E) -> WireError {
    WireError::corrupt("transaction log record is too short")
}

fn open_of(state: &State) -> Option<&Open> {
    match state {
        State::Ongoing(open) | State::PrepareCommit(open, _) | State::PrepareAbort(open, _) => Some(open),
        State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_) => None,
    }
}

fn ended_of(state: &State) -> Option<Ended> {
    match state {
        State::PrepareCommit(_, ended)
        | State::PrepareAbort(_, ended)
        | State::CompleteCommit(ended)
        | State::CompleteAbort(ended) => Some(*ended),
        State::Empty { .. } | State::Ongoing(_) => None,
    }
}

/// Kafka's numbers.
fn status_of(state: &State) -> i8 {
    match state {
        State::Empty { .. } => 0,
        State::Ongoing(_) => 1,
        State::PrepareCommit(..) => 2,
        State::PrepareAbort(..) => 3,
        State::CompleteCommit(_) => 4,
        State::CompleteAbort(_) => 5,
    }
}

fn put_length(buf: &mut BytesMut, length: usize) {
    put_unsigned_varint(buf, u32::try_from(length + 1).unwrap_or(0));
}

fn put_partitions(buf: &mut BytesMut, partitions: &BTreeSet<TopicPartition>) {
    let mut by_topic: BTreeMap<&Arc<str>, Vec<i32>> = BTreeMap::new();
    for participant in partitions {
        by_topic.entry(&participant.topic).or_default().push(participant.partition.0);
    }
    put_length(buf, by_topic.len());
    for (topic, partitions) in by_topic {
        put_length(buf, topic.len());
        buf.put_slice(topic.as_bytes());
        put_length(buf, partitions.len());
        for partition in partitions {
            buf.put_i32(partition);
        }
        put_unsigned_varint(buf, 0);
    }
}

/// A compact length; `None` is null. Bounded by what is left, each element taking at least a byte.
fn get_length(buf: &mut Bytes) -> Result<Option<usize>, WireError> {
    match get_unsigned_varint(buf)?.checked_sub(1) {
        None => Ok(None),
        Some(length) if length as usize <= buf.len() => Ok(Some(length as usize)),
        Some(length) => Err(WireError::corrupt(format!("length {length} in a transaction log record"))),
    }
}

fn get_partitions(buf: &mut Bytes) -> Result<Option<BTreeSet<TopicPartition>>, WireError> {
    let Some(topic_count) = get_length(buf)? else { return Ok(None) };
    let mut partitions = BTreeSet::new();
    for _ in 0..topic_count {
        let length = get_length(buf)?.ok_or_else(|| short(()))?;
        let name = buf.split_to(length);
        let topic: Arc<str> = Arc::from(std::str::from_utf8(&name).map_err(short)?);
        for _ in 0..get_length(buf)?.ok_or_else(|| short(()))? {
            let partition = PartitionIndex(buf.try_get_i32().map_err(short)?);
            partitions.insert(TopicPartition { topic: Arc::clone(&topic), partition });
        }
        get_tags(buf)?;
    }
    Ok(Some(partitions))
}

fn get_tags(buf: &mut Bytes) -> Result<BTreeMap<u32, Bytes>, WireError> {
    let mut tags = BTreeMap::new();
    for _ in 0..get_unsigned_varint(buf)? {
        let tag = get_unsigned_varint(buf)?;
        let length = get_unsigned_varint(buf)? as usize;
        if length > buf.len() {
            return Err(short(()));
        }
        tags.insert(tag, buf.split_to(length));
    }
    Ok(tags)
}

fn put_identity(buf: &mut BytesMut, identity: Identity) {
    buf.put_i64(identity.producer_id.0);
    buf.put_i16(identity.epoch.0);
}

fn get_identity(buf: &mut Bytes) -> Result<Identity, WireError> {
    let producer_id = ProducerId(buf.try_get_i64().map_err(short)?);
    Ok(Identity { producer_id, epoch: ProducerEpoch(buf.try_get_i16().map_err(short)?) })
}

fn get_ended(buf: &mut Bytes, version: TransactionVersion) -> Result<Ended, WireError> {
    let by = match buf.try_get_i8().map_err(short)? {
        0 => EndedBy::Producer,
        1 => EndedBy::TimeOut,
        2 => EndedBy::Fence,
        by => return Err(WireError::corrupt(format!("transaction ended by {by}"))),
    };
    Ok(Ended { by, version, ran_as: get_identity(buf)?, marker: get_identity(buf)? })
}
