//! Control batches: the markers that end a transaction in a partition's log (KIP-98).

use bytes::Bytes;

use super::batch::RawBatch;
use super::compression::Compression;
use super::encode::{BatchBuilder, BatchMeta};
use crate::WireError;

const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 0;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlMarker {
    /// Its records count.
    Commit,
    /// Its records never were.
    Abort,
}

impl ControlMarker {
    fn id(self) -> i16 {
        match self {
            ControlMarker::Abort => 0,
            ControlMarker::Commit => 1,
        }
    }
}

/// What a marker says beside its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerMeta {
    /// Epoch of the transaction coordinator, which fences older coordinators.
    pub coordinator_epoch: i32,
    /// Producer whose transaction ends.
    pub producer_id: i64,
    /// Epoch of that producer.
    pub producer_epoch: i16,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Offset of the marker.
    pub base_offset: i64,
    /// Leader epoch of the partition.
    pub leader_epoch: i32,
}

/// A control batch of one marker.
pub fn encode(marker: ControlMarker, meta: &MarkerMeta) -> Result<Bytes, WireError> {
    let mut key = [0u8; 4];
    key[..2].copy_from_slice(&KEY_VERSION.to_be_bytes());
    key[2..].copy_from_slice(&marker.id().to_be_bytes());
    let mut value = [0u8; 6];
    value[..2].copy_from_slice(&VALUE_VERSION.to_be_bytes());
    value[2..].copy_from_slice(&meta.coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::new();
    builder.append(meta.timestamp_ms, Some(&key), Some(&value), &[])?;
    builder.build(&BatchMeta {
        producer_id: meta.producer_id,
        producer_epoch: meta.producer_epoch,
        transactional: true,
        control: true,
        base_offset: meta.base_offset,
        partition_leader_epoch: meta.leader_epoch,
        ..BatchMeta::default()
    })
}

/// The marker of a control batch and the coordinator epoch it carries. Errors: `Corrupt`, also for control records
/// that are no transaction markers.
pub fn decode(batch: &RawBatch) -> Result<(ControlMarker, i32), WireError> {
    let offset = batch.header.base_offset;
    if !batch.header.is_control() {
        return Err(WireError::corrupt(format!("batch at offset {offset} is no control batch")));
    }
    // Nobody compresses a marker, and what it decompresses to would cost its reader.
    if batch.header.compression()? != Compression::None {
        return Err(WireError::corrupt(format!("control batch at offset {offset} is compressed")));
    }
    let records = batch.records()?;
    let record = records
        .iter()
        .next()
        .ok_or_else(|| WireError::corrupt(format!("control batch at offset {offset} is empty")))??;
    let fault = |what: &str| WireError::corrupt(format!("control record at offset {offset} has {what}"));
    // Newer versions may append fields; these stay.
    let marker = match record.key {
        Some([v0, v1, t0, t1, ..]) if i16::from_be_bytes([*v0, *v1]) >= KEY_VERSION => {
            match i16::from_be_bytes([*t0, *t1]) {
                0 => ControlMarker::Abort,
                1 => ControlMarker::Commit,
                other => return Err(fault(&format!("type {other}, which ends no transaction"))),
            }
        }
        Some(_) | None => return Err(fault("no key of a control record")),
    };
    match record.value {
        Some([v0, v1, e0, e1, e2, e3, ..]) if i16::from_be_bytes([*v0, *v1]) >= VALUE_VERSION => {
            Ok((marker, i32::from_be_bytes([*e0, *e1, *e2, *e3])))
        }
        Some(_) | None => Err(fault("no value of a transaction marker")),
    }
}
