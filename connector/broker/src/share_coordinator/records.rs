//! Records of `__share_group_state`: what a shard decides is stored as these, and replayed from them.
//!
//! Kafka's record types 0 (snapshot) and 1 (update) with the fields that KIP-1289 needs for TX_PENDING, and one of
//! ours: the end of a transaction in this shard. Format version 10, big-endian, nothing optional.

use std::sync::Arc;

use bytes::{Buf, BufMut};
use sharestream_base::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, StateEpoch, TopicId,
};
use sharestream_wire::messages as wire;
use uuid::Uuid;

use crate::share::durable::{DurableShare, ShareKey, StateBatch};
use crate::share::record_state::{Marker, TxnOutcome};

const SNAPSHOT: i16 = 0;
const UPDATE: i16 = 1;
const ENDED: i16 = 100;
const FORMAT: i16 = 10;
const BATCH_BYTES: usize = 30;

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
        /// A higher start offset.
        start_offset: Option<Offset>,
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
    },
}

/// The log of the share coordinator holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record of the share coordinator")]
pub(crate) struct MalformedRecord;

impl Record {
    /// Key and value as stored; no value deletes the key.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut key = Vec::with_capacity(64);
        let mut value = Vec::with_capacity(64);
        value.put_i16(FORMAT);
        match self {
            Record::Snapshot { key: share_key, share } => {
                put_key(&mut key, SNAPSHOT, share_key);
                value.put_i32(share.state_epoch.0);
                value.put_i32(share.leader_epoch.0);
                value.put_i64(share.start_offset.map_or(-1, |offset| offset.0));
                put_batches(&mut value, &share.batches);
            }
            Record::Update { key: share_key, leader_epoch, start_offset, batches } => {
                put_key(&mut key, UPDATE, share_key);
                value.put_i32(leader_epoch.0);
                value.put_i64(start_offset.map_or(-1, |offset| offset.0));
                put_batches(&mut value, batches);
            }
            Record::Removed { key: share_key } => {
                put_key(&mut key, SNAPSHOT, share_key);
                return (key, None);
            }
            Record::Ended { marker } => {
                key.put_i16(ENDED);
                key.put_i64(marker.producer_id.0);
                value.put_i16(marker.producer_epoch.0);
                value.put_u8(u8::from(marker.outcome == TxnOutcome::Commit));
            }
        }
        (key, Some(value))
    }

    /// The record of a stored key and value.
    pub(crate) fn decode(mut key: &[u8], value: Option<&[u8]>) -> Result<Record, MalformedRecord> {
        let kind = key.try_get_i16().map_err(malformed)?;
        let Some(mut value) = value else {
            return match kind {
                SNAPSHOT | UPDATE => Ok(Record::Removed { key: get_key(&mut key)? }),
                _ => Err(MalformedRecord),
            };
        };
        if value.try_get_i16().map_err(malformed)? != FORMAT {
            return Err(MalformedRecord);
        }
        let record = match kind {
            SNAPSHOT => Record::Snapshot {
                key: get_key(&mut key)?,
                share: DurableShare {
                    state_epoch: StateEpoch(value.try_get_i32().map_err(malformed)?),
                    leader_epoch: LeaderEpoch(value.try_get_i32().map_err(malformed)?),
                    start_offset: get_offset(&mut value)?,
                    batches: get_batches(&mut value)?,
                },
            },
            UPDATE => Record::Update {
                key: get_key(&mut key)?,
                leader_epoch: LeaderEpoch(value.try_get_i32().map_err(malformed)?),
                start_offset: get_offset(&mut value)?,
                batches: get_batches(&mut value)?,
            },
            ENDED => Record::Ended {
                marker: Marker {
                    producer_id: ProducerId(key.try_get_i64().map_err(malformed)?),
                    producer_epoch: ProducerEpoch(value.try_get_i16().map_err(malformed)?),
                    outcome: match value.try_get_u8().map_err(malformed)? {
                        0 => TxnOutcome::Abort,
                        1 => TxnOutcome::Commit,
                        _ => return Err(MalformedRecord),
                    },
                },
            },
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

fn get_offset(buf: &mut &[u8]) -> Result<Option<Offset>, MalformedRecord> {
    let offset = buf.try_get_i64().map_err(malformed)?;
    Ok((offset >= 0).then_some(Offset(offset)))
}

fn put_batches(buf: &mut Vec<u8>, batches: &[StateBatch]) {
    buf.reserve(4 + batches.len() * BATCH_BYTES);
    buf.put_u32(u32::try_from(batches.len()).unwrap_or(u32::MAX));
    for batch in batches {
        let batch = batch.to_wire();
        buf.put_i64(batch.first_offset);
        buf.put_i64(batch.last_offset);
        buf.put_i8(batch.delivery_state);
        buf.put_i16(batch.delivery_count);
        buf.put_i64(batch.producer_id);
        buf.put_i16(batch.producer_epoch);
        buf.put_i8(batch.ack_type);
    }
}

fn get_batches(buf: &mut &[u8]) -> Result<Vec<StateBatch>, MalformedRecord> {
    let count = buf.try_get_u32().map_err(malformed)? as usize;
    if count > buf.len() / BATCH_BYTES {
        return Err(MalformedRecord);
    }
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        let batch = wire::StateBatch {
            first_offset: buf.try_get_i64().map_err(malformed)?,
            last_offset: buf.try_get_i64().map_err(malformed)?,
            delivery_state: buf.try_get_i8().map_err(malformed)?,
            delivery_count: buf.try_get_i16().map_err(malformed)?,
            producer_id: buf.try_get_i64().map_err(malformed)?,
            producer_epoch: buf.try_get_i16().map_err(malformed)?,
            ack_type: buf.try_get_i8().map_err(malformed)?,
        };
        batches.push(StateBatch::from_wire(&batch).map_err(|_| MalformedRecord)?);
    }
    Ok(batches)
}
