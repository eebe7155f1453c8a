//! States of producers as bytes, as a segment's head has them. Numbers are big-endian; format of the file around it.

use std::collections::VecDeque;

use bytes::{Buf, BufMut};
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};

use super::{Appended, DEDUP_WINDOW, LastMarker, Open, Producer, ProducerStates};
use crate::log::partition_log::TransactionVersion;

impl ProducerStates {
    /// Everything but the guards, which end with their leader.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.producers.len() * 64);
        out.put_u32(u32::try_from(self.producers.len()).unwrap_or(u32::MAX));
        for (id, producer) in &self.producers {
            out.put_i64(id.0);
            out.put_i16(producer.epoch.0);
            out.put_i32(producer.coordinator_epoch);
            out.put_i64(producer.last_timestamp_ms);
            // At most DEDUP_WINDOW.
            out.put_u8(producer.window.len() as u8);
            for batch in &producer.window {
                out.put_i32(batch.first_sequence);
                out.put_i32(batch.last_sequence);
                out.put_i64(batch.base_offset.0);
                out.put_i64(batch.last_offset.0);
            }
            match producer.open {
                None => out.put_u8(0),
                Some(open) => {
                    out.put_u8(number_of(open.version));
                    out.put_i64(open.first_offset.0);
                }
            }
            match producer.last_marker {
                None => out.put_u8(0),
                Some(marker) => {
                    out.put_u8(number_of(marker.version));
                    out.put_i16(marker.epoch.0);
                    out.put_u8(u8::from(marker.commit));
                    out.put_i64(marker.offset.0);
                }
            }
        }
        out
    }

    /// What [`ProducerStates::encode`] gave; `None` for anything else.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<ProducerStates> {
        let mut states = ProducerStates::default();
        let count = bytes.try_get_u32().ok()?;
        for _ in 0..count {
            let id = ProducerId(bytes.try_get_i64().ok()?);
            let producer = decode_producer(&mut bytes)?;
            if let Some(open) = producer.open {
                states.open.insert(open.first_offset, id);
            }
            states.producers.insert(id, producer);
        }
        bytes.is_empty().then_some(states)
    }
}

fn decode_producer(bytes: &mut &[u8]) -> Option<Producer> {
    let epoch = ProducerEpoch(bytes.try_get_i16().ok()?);
    let coordinator_epoch = bytes.try_get_i32().ok()?;
    let last_timestamp_ms = bytes.try_get_i64().ok()?;
    let batches = usize::from(bytes.try_get_u8().ok()?);
    if batches > DEDUP_WINDOW {
        return None;
    }
    let mut window = VecDeque::with_capacity(DEDUP_WINDOW);
    for _ in 0..batches {
        window.push_back(Appended {
            first_sequence: bytes.try_get_i32().ok()?,
            last_sequence: bytes.try_get_i32().ok()?,
            base_offset: Offset(bytes.try_get_i64().ok()?),
            last_offset: Offset(bytes.try_get_i64().ok()?),
        });
    }
    let open = match version_of(bytes.try_get_u8().ok()?)? {
        None => None,
        Some(version) => Some(Open { first_offset: Offset(bytes.try_get_i64().ok()?), version }),
    };
    let last_marker = match version_of(bytes.try_get_u8().ok()?)? {
        None => None,
        Some(version) => Some(LastMarker {
            epoch: ProducerEpoch(bytes.try_get_i16().ok()?),
            commit: bytes.try_get_u8().ok()? == 1,
            offset: Offset(bytes.try_get_i64().ok()?),
            version,
        }),
    };
    Some(Producer { epoch, window, open, last_marker, coordinator_epoch, last_timestamp_ms })
}

fn number_of(version: TransactionVersion) -> u8 {
    match version {
        TransactionVersion::V1 => 1,
        TransactionVersion::V2 => 2,
    }
}

/// 0 stands for nothing; `None` for a number that is no version.
fn version_of(number: u8) -> Option<Option<TransactionVersion>> {
    match number {
        0 => Some(None),
        1 => Some(Some(TransactionVersion::V1)),
        2 => Some(Some(TransactionVersion::V2)),
        _ => None,
    }
}
