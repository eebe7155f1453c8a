//! Records of `__consumer_offsets`: Kafka's OffsetCommitKey (version 1) and OffsetCommitValue (version 4), byte for byte,
//! and the GroupMetadataKey (version 2) without a value, which ends a group.
//!
//! What a producer staged looks the same: the batch around it names the producer, and a marker says what became of it.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use sharestream_wire::codec::{get_unsigned_varint, put_unsigned_varint};
use uuid::Uuid;

use super::progress::CommittedOffset;
use crate::txn::TopicPartition;

const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
/// The first version whose value names the topic's id.
const VALUE_VERSION: i16 = 4;
const TAG_TOPIC_ID: u32 = 0;

/// One record of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A group committed, or its producer staged, an offset.
    Offset {
        /// Which group.
        group: Arc<str>,
        /// Of what.
        partition: TopicPartition,
        /// How far it is.
        value: CommittedOffset,
    },
    /// The offset was deleted.
    OffsetDeleted {
        /// Which group.
        group: Arc<str>,
        /// Of what.
        partition: TopicPartition,
    },
    /// The group was deleted, after its offsets.
    GroupDeleted {
        /// Which group.
        group: Arc<str>,
    },
}

/// The log of the coordinator holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record of the group coordinator")]
pub(crate) struct MalformedRecord;

impl Record {
    /// Key and value as stored; no value deletes the key.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Record::Offset { group, partition, value } => {
                (offset_key(group, partition), Some(offset_value(value)))
            }
            Record::OffsetDeleted { group, partition } => (offset_key(group, partition), None),
            Record::GroupDeleted { group } => {
                let mut key = Vec::with_capacity(4 + group.len());
                key.put_i16(GROUP_KEY);
                put_text(&mut key, group);
                (key, None)
            }
        }
    }

    /// The record of a stored key and value.
    pub(crate) fn decode(mut key: &[u8], value: Option<&[u8]>) -> Result<Record, MalformedRecord> {
        let kind = key.try_get_i16().map_err(malformed)?;
        let group = get_text(&mut key)?;
        let record = match (kind, value) {
            (OFFSET_KEY, value) => {
                let topic = get_text(&mut key)?;
                let partition = PartitionIndex(key.try_get_i32().map_err(malformed)?);
                let partition = TopicPartition { topic, partition };
                match value {
                    Some(value) => Record::Offset { group, partition, value: get_value(value)? },
                    None => Record::OffsetDeleted { group, partition },
                }
            }
            (GROUP_KEY, None) => Record::GroupDeleted { group },
            _ => return Err(MalformedRecord),
        };
        if key.is_empty() { Ok(record) } else { Err(MalformedRecord) }
    }
}

fn malformed(_short: bytes::TryGetError) -> MalformedRecord {
    MalformedRecord
}

fn offset_key(group: &str, of: &TopicPartition) -> Vec<u8> {
    let mut key = Vec::with_capacity(10 + group.len() + of.topic.len());
    key.put_i16(OFFSET_KEY);
    put_text(&mut key, group);
    put_text(&mut key, &of.topic);
    key.put_i32(of.partition.0);
    key
}

fn offset_value(value: &CommittedOffset) -> Vec<u8> {
    let mut buf = Vec::with_capacity(48 + value.metadata.len());
    buf.put_i16(VALUE_VERSION);
    buf.put_i64(value.offset.0);
    buf.put_i32(value.leader_epoch.0);
    put_unsigned_varint(&mut buf, u32::try_from(value.metadata.len() + 1).unwrap_or(0));
    buf.put_slice(value.metadata.as_bytes());
    buf.put_i64(value.committed_ms);
    if value.topic_id == TopicId::default() {
        put_unsigned_varint(&mut buf, 0);
        return buf;
    }
    put_unsigned_varint(&mut buf, 1);
    put_unsigned_varint(&mut buf, TAG_TOPIC_ID);
    put_unsigned_varint(&mut buf, 16);
    buf.put_slice(value.topic_id.0.as_bytes());
    buf
}

fn get_value(value: &[u8]) -> Result<CommittedOffset, MalformedRecord> {
    let mut buf = Bytes::copy_from_slice(value);
    if buf.try_get_i16().map_err(malformed)? != VALUE_VERSION {
        return Err(MalformedRecord);
    }
    let offset = Offset(buf.try_get_i64().map_err(malformed)?);
    let leader_epoch = LeaderEpoch(buf.try_get_i32().map_err(malformed)?);
    let length = number(&mut buf)?.checked_sub(1).ok_or(MalformedRecord)?;
    let metadata = take(&mut buf, length)?;
    let metadata = String::from_utf8(metadata.to_vec()).map_err(|_| MalformedRecord)?;
    let committed_ms = buf.try_get_i64().map_err(malformed)?;
    let mut topic_id = TopicId::default();
    for _ in 0..number(&mut buf)? {
        let tag = number(&mut buf)?;
        let length = number(&mut buf)?;
        let mut field = take(&mut buf, length)?;
        // Others are of a newer Kafka, and do not change what these say.
        if tag == TAG_TOPIC_ID {
            topic_id = TopicId(Uuid::from_u128(field.try_get_u128().map_err(malformed)?));
        }
    }
    let value = CommittedOffset { offset, leader_epoch, metadata, committed_ms, topic_id };
    if buf.is_empty() { Ok(value) } else { Err(MalformedRecord) }
}

/// Group ids and topic names come from the wire, where a string is at most 32,767 bytes long.
fn put_text(buf: &mut Vec<u8>, text: &str) {
    buf.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    buf.put_slice(text.as_bytes());
}

fn get_text(buf: &mut &[u8]) -> Result<Arc<str>, MalformedRecord> {
    let length = usize::try_from(buf.try_get_i16().map_err(malformed)?).map_err(|_| MalformedRecord)?;
    let (text, rest) = buf.split_at_checked(length).ok_or(MalformedRecord)?;
    *buf = rest;
    Ok(Arc::from(std::str::from_utf8(text).map_err(|_| MalformedRecord)?))
}

fn number(buf: &mut Bytes) -> Result<u32, MalformedRecord> {
    get_unsigned_varint(buf).map_err(|_| MalformedRecord)
}

fn take(buf: &mut Bytes, length: u32) -> Result<Bytes, MalformedRecord> {
    let length = usize::try_from(length).map_err(|_| MalformedRecord)?;
    if length > buf.len() { Err(MalformedRecord) } else { Ok(buf.split_to(length)) }
}

#[cfg(test)]
mod tests;
