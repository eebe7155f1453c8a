//! Records of `__share_group_state`: what a shard decides is stored as these, and replayed from them.
//!
//! Kafka's ShareSnapshot (key type 0) and ShareUpdate (1) in its schemas, byte for byte, as version 0 as long as nothing
//! is pending. A value with pending runs has version 1, ours (KIP-1289): each of its batches ends with producer id,
//! epoch and acknowledge type. A Kafka of today refuses that version by name and does not load the partition, which is
//! what stops a downgrade that would lose what is pending (ADR 0014). Key type 100 is ours too: the end of a
//! transaction in this shard.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use sharestream_base::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, StateEpoch, TopicId,
};
use sharestream_wire::codec::{get_unsigned_varint, put_unsigned_varint};
use sharestream_wire::messages as wire;
use uuid::Uuid;

use crate::share::durable::{DurableShare, DurableState, ShareKey, StateBatch};
use crate::share::record_state::{Marker, TxnOutcome};

const SNAPSHOT: i16 = 0;
const UPDATE: i16 = 1;
const ENDED: i16 = 100;
/// Kafka's version of values.
const KAFKAS: i16 = 0;
/// Kafka's version with the fields of pending runs.
const WITH_PENDING: i16 = 1;
/// Version of our own record.
const ENDED_VERSION: i16 = 1;
/// Our own record as it was before it had a time.
const ENDED_WITHOUT_TIME: i16 = 0;
/// Stands for a time that is not kept.
const NO_TIMESTAMP: i64 = -1;
/// Fewest bytes of a batch: version 0 without tagged fields.
const BATCH_BYTES_MIN: usize = 20;
/// Tag of DeliveryCompleteCount in both values.
const COMPLETE_COUNT_TAG: u32 = 0;

/// One record of the share coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The whole state of a share partition.
    Snapshot {
        /// Which.
        key: ShareKey,
        /// Its state.
        share: DurableShare,
    },
    /// A change of a share partition: batches replace what they cover.
    Update {
        /// Which.
        key: ShareKey,
        /// Epoch of the leader that wrote.
        leader_epoch: LeaderEpoch,
        /// The start offset after the change; the same or higher.
        start_offset: Option<Offset>,
        /// How many offsets from that start offset on are at an end after the change (KIP-1226), for a Kafka that reads
        /// the log: here it follows from the runs. None while there is no start offset.
        complete_count: Option<i32>,
        /// The changed runs.
        batches: Vec<StateBatch>,
    },
    /// The share partition's state was deleted.
    Removed {
        /// Which.
        key: ShareKey,
    },
    /// A transaction ended: every pending run that the marker resolves is final, and later stages below the
    /// marker's epoch are refused.
    Ended {
        /// The marker.
        marker: Marker,
        /// When it came, in Unix milliseconds; none in records of older builds.
        ended_ms: Option<i64>,
    },
}

/// The log of the share coordinator holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record of the share coordinator")]
pub(crate) struct MalformedRecord;

impl Record {
    /// True when it says that something is staged.
    pub(crate) fn has_pending(&self) -> bool {
        let batches = match self {
            Record::Snapshot { share, .. } => &share.batches,
            Record::Update { batches, .. } => batches,
            Record::Removed { .. } | Record::Ended { .. } => return false,
        };
        version_of(batches) != KAFKAS
    }

    /// True for a stored value that a reader of Kafka's schemas refuses: of one of its key types, in a later version.
    pub(crate) fn is_of_newer_schema(mut key: &[u8], mut value: &[u8]) -> bool {
        let kind = key.try_get_i16();
        matches!(kind, Ok(SNAPSHOT | UPDATE)) && value.try_get_i16().is_ok_and(|version| version > KAFKAS)
    }

    /// Key and value as stored; no value deletes the key.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut key = Vec::with_capacity(64);
        let mut value = Vec::with_capacity(64);
        match self {
            Record::Snapshot { key: share_key, share } => {
                put_key(&mut key, SNAPSHOT, share_key);
                let version = version_of(&share.batches);
                value.put_i16(version);
                value.put_i32(SNAPSHOT_EPOCH);
                value.put_i32(share.state_epoch.0);
                value.put_i32(share.leader_epoch.0);
                value.put_i64(share.start_offset.map_or(-1, |offset| offset.0));
                value.put_i64(NO_TIMESTAMP);
                value.put_i64(NO_TIMESTAMP);
                put_batches(&mut value, version, &share.batches);
                put_complete_count(&mut value, share.complete_count());
            }
            Record::Update { key: share_key, leader_epoch, start_offset, complete_count, batches } => {
                put_key(&mut key, UPDATE, share_key);
                let version = version_of(batches);
                value.put_i16(version);
                value.put_i32(SNAPSHOT_EPOCH);
                value.put_i32(leader_epoch.0);
                value.put_i64(start_offset.map_or(-1, |offset| offset.0));
                put_batches(&mut value, version, batches);
                put_complete_count(&mut value, *complete_count);
            }
            Record::Removed { key: share_key } => {
                put_key(&mut key, SNAPSHOT, share_key);
                return (key, None);
            }
            Record::Ended { marker, ended_ms } => {
                key.put_i16(ENDED);
                key.put_i64(marker.producer_id.0);
                value.put_i16(if ended_ms.is_some() { ENDED_VERSION } else { ENDED_WITHOUT_TIME });
                value.put_i16(marker.producer_epoch.0);
                value.put_u8(u8::from(marker.outcome == TxnOutcome::Commit));
                if let Some(ended_ms) = ended_ms {
                    value.put_i64(*ended_ms);
                }
            }
        }
        (key, Some(value))
    }

    /// The record of a stored key and value.
    pub(crate) fn decode(mut key: &[u8], value: Option<&[u8]>) -> Result<Record, MalformedRecord> {
        let kind = key.try_get_i16().map_err(malformed)?;
        let Some(value) = value else {
            return match kind {
                SNAPSHOT | UPDATE => Ok(Record::Removed { key: get_key(&mut key)? }),
                _ => Err(MalformedRecord),
            };
        };
        let mut value = Bytes::copy_from_slice(value);
        let version = value.try_get_i16().map_err(malformed)?;
        let record = match (kind, version) {
            (SNAPSHOT, KAFKAS | WITH_PENDING) => {
                let key = get_key(&mut key)?;
                let _snapshot_epoch = value.try_get_i32().map_err(malformed)?;
                let state_epoch = StateEpoch(value.try_get_i32().map_err(malformed)?);
                let leader_epoch = LeaderEpoch(value.try_get_i32().map_err(malformed)?);
                let start_offset = get_offset(&mut value)?;
                let _created_ms = value.try_get_i64().map_err(malformed)?;
                let _written_ms = value.try_get_i64().map_err(malformed)?;
                let batches = get_batches(&mut value, version)?;
                let _follows_from_the_batches = get_complete_count(&mut value)?;
                Record::Snapshot {
                    key,
                    share: DurableShare { state_epoch, leader_epoch, start_offset, batches },
                }
            }
            (UPDATE, KAFKAS | WITH_PENDING) => {
                let key = get_key(&mut key)?;
                let _snapshot_epoch = value.try_get_i32().map_err(malformed)?;
                let leader_epoch = LeaderEpoch(value.try_get_i32().map_err(malformed)?);
                let start_offset = get_offset(&mut value)?;
                let batches = get_batches(&mut value, version)?;
                let complete_count = get_complete_count(&mut value)?;
                Record::Update { key, leader_epoch, start_offset, complete_count, batches }
            }
            (ENDED, ENDED_WITHOUT_TIME | ENDED_VERSION) => {
                let producer_id = ProducerId(key.try_get_i64().map_err(malformed)?);
                let producer_epoch = ProducerEpoch(value.try_get_i16().map_err(malformed)?);
                let outcome = match value.try_get_u8().map_err(malformed)? {
                    0 => TxnOutcome::Abort,
                    1 => TxnOutcome::Commit,
                    _ => return Err(MalformedRecord),
                };
                let ended_ms = match version {
                    ENDED_VERSION => Some(value.try_get_i64().map_err(malformed)?),
                    _ => None,
                };
                Record::Ended { marker: Marker { producer_id, producer_epoch, outcome }, ended_ms }
            }
            _ => return Err(MalformedRecord),
        };
        if key.is_empty() && value.is_empty() { Ok(record) } else { Err(MalformedRecord) }
    }
}

fn malformed(_short: bytes::TryGetError) -> MalformedRecord {
    MalformedRecord
}

fn put_key(buf: &mut Vec<u8>, kind: i16, key: &ShareKey) {
    buf.put_i16(kind);
    // Group ids come from the wire, where a string is at most 32,767 bytes long.
    buf.put_u16(u16::try_from(key.group.len()).unwrap_or(u16::MAX));
    buf.put_slice(key.group.as_bytes());
    buf.put_slice(key.topic_id.0.as_bytes());
    buf.put_i32(key.partition.0);
}

fn get_key(buf: &mut &[u8]) -> Result<ShareKey, MalformedRecord> {
    let length = usize::from(buf.try_get_u16().map_err(malformed)?);
    let (group, rest) = buf.split_at_checked(length).ok_or(MalformedRecord)?;
    *buf = rest;
    Ok(ShareKey {
        group: Arc::from(std::str::from_utf8(group).map_err(|_| MalformedRecord)?),
        topic_id: TopicId(Uuid::from_u128(buf.try_get_u128().map_err(malformed)?)),
        partition: PartitionIndex(buf.try_get_i32().map_err(malformed)?),
    })
}

fn get_offset(buf: &mut Bytes) -> Result<Option<Offset>, MalformedRecord> {
    let offset = buf.try_get_i64().map_err(malformed)?;
    Ok((offset >= 0).then_some(Offset(offset)))
}

/// Kafka counts the snapshots of a share partition; nothing here reads the number.
const SNAPSHOT_EPOCH: i32 = 0;

fn version_of(batches: &[StateBatch]) -> i16 {
    let pending = batches.iter().any(|batch| matches!(batch.state, DurableState::TxnPending(_)));
    if pending { WITH_PENDING } else { KAFKAS }
}

/// The batches, which are the last field but for the tagged ones of the value.
fn put_batches(buf: &mut Vec<u8>, version: i16, batches: &[StateBatch]) {
    put_unsigned_varint(buf, u32::try_from(batches.len() + 1).unwrap_or(0));
    for batch in batches {
        let batch = batch.to_wire();
        buf.put_i64(batch.first_offset);
        buf.put_i64(batch.last_offset);
        buf.put_i8(batch.delivery_state);
        buf.put_i16(batch.delivery_count);
        if version == WITH_PENDING {
            buf.put_i64(batch.producer_id);
            buf.put_i16(batch.producer_epoch);
            buf.put_i8(batch.ack_type);
        }
        put_unsigned_varint(buf, 0);
    }
}

/// The tagged fields of a value, of which there is one: it is left out where it says nothing.
fn put_complete_count(buf: &mut Vec<u8>, count: Option<i32>) {
    let Some(count) = count else { return put_unsigned_varint(buf, 0) };
    put_unsigned_varint(buf, 1);
    put_unsigned_varint(buf, COMPLETE_COUNT_TAG);
    put_unsigned_varint(buf, 4);
    buf.put_i32(count);
}

fn get_batches(buf: &mut Bytes, version: i16) -> Result<Vec<StateBatch>, MalformedRecord> {
    let count =
        get_unsigned_varint(buf).ok().and_then(|count| count.checked_sub(1)).ok_or(MalformedRecord)?;
    let count = usize::try_from(count).map_err(|_| MalformedRecord)?;
    if count > buf.len() / BATCH_BYTES_MIN {
        return Err(MalformedRecord);
    }
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        let mut batch = wire::StateBatch {
            first_offset: buf.try_get_i64().map_err(malformed)?,
            last_offset: buf.try_get_i64().map_err(malformed)?,
            delivery_state: buf.try_get_i8().map_err(malformed)?,
            delivery_count: buf.try_get_i16().map_err(malformed)?,
            ..wire::StateBatch::default()
        };
        if version == WITH_PENDING {
            batch.producer_id = buf.try_get_i64().map_err(malformed)?;
            batch.producer_epoch = buf.try_get_i16().map_err(malformed)?;
            batch.ack_type = buf.try_get_i8().map_err(malformed)?;
        }
        get_tagged_fields(buf, |_tag, _field| Ok(()))?;
        batches.push(StateBatch::from_wire(&batch).map_err(|_| MalformedRecord)?);
    }
    Ok(batches)
}

/// The tagged fields of a value; unknown ones are skipped.
fn get_complete_count(buf: &mut Bytes) -> Result<Option<i32>, MalformedRecord> {
    let mut count = None;
    get_tagged_fields(buf, |tag, mut field| {
        if tag == COMPLETE_COUNT_TAG {
            count = Some(field.try_get_i32().map_err(malformed)?);
            return if field.is_empty() { Ok(()) } else { Err(MalformedRecord) };
        }
        Ok(())
    })?;
    Ok(count.filter(|count| *count >= 0))
}

fn get_tagged_fields(
    buf: &mut Bytes,
    mut take: impl FnMut(u32, &[u8]) -> Result<(), MalformedRecord>,
) -> Result<(), MalformedRecord> {
    let number = |buf: &mut Bytes| get_unsigned_varint(buf).map_err(|_| MalformedRecord);
    for _ in 0..number(buf)? {
        let tag = number(buf)?;
        let length = usize::try_from(number(buf)?).map_err(|_| MalformedRecord)?;
        take(tag, buf.get(..length).ok_or(MalformedRecord)?)?;
        buf.advance(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
