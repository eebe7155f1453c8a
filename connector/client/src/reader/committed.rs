//! Leaves aborted records and control batches out of what a read-committed fetch returned (KIP-98). Pure.

use std::collections::BTreeSet;

use sharestream_base::ErrorKind;
use sharestream_base::ids::Offset;
use sharestream_wire::records::RawBatch;
use sharestream_wire::records::control::{self, ControlMarker};

use super::FetchedPartition;
use crate::{Error, Result};

/// The batches that belong to committed transactions or to none, in order. The first may begin below the offset
/// asked for: skip its records below.
///
/// # Errors
/// `Corrupt` when a control batch cannot be read.
pub fn committed_records(fetched: &FetchedPartition) -> Result<Vec<&RawBatch>> {
    let mut aborted = fetched.aborted.clone();
    aborted.sort_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut aborting = BTreeSet::new();
    let mut committed = Vec::with_capacity(fetched.batches.len());
    for batch in &fetched.batches {
        let header = &batch.header;
        while let Some((producer_id, _)) =
            aborted.next_if(|(_, first)| *first <= Offset(header.last_offset()))
        {
            aborting.insert(producer_id.0);
        }
        if header.is_control() {
            let (marker, _epoch) = control::decode(batch).map_err(|error| {
                let context = format!("control batch at offset {}", header.base_offset);
                Error::new(ErrorKind::Corrupt, context).with_source(error)
            })?;
            match marker {
                ControlMarker::Abort => {
                    aborting.remove(&header.producer_id);
                }
                ControlMarker::Commit => {}
            }
        } else if !(header.is_transactional() && aborting.contains(&header.producer_id)) {
            committed.push(batch);
        }
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::ProducerId;
    use sharestream_wire::records::control::MarkerMeta;
    use sharestream_wire::records::{BatchBuilder, BatchMeta};

    use super::*;

    fn data(producer_id: i64, base_offset: i64, transactional: bool) -> RawBatch {
        let mut builder = BatchBuilder::new();
        builder.append(0, None, Some(b"v"), &[]).unwrap();
        let meta = BatchMeta {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            transactional,
            base_offset,
            ..BatchMeta::default()
        };
        RawBatch::from_bytes(builder.build(&meta).unwrap()).unwrap()
    }

    fn marker(marker: ControlMarker, producer_id: i64, base_offset: i64) -> RawBatch {
        let meta = MarkerMeta {
            coordinator_epoch: 0,
            producer_id,
            producer_epoch: 1,
            timestamp_ms: 0,
            base_offset,
            leader_epoch: 0,
        };
        RawBatch::from_bytes(control::encode(marker, &meta).unwrap()).unwrap()
    }

    #[test]
    fn aborted_records_and_markers_are_left_out() {
        let fetched = FetchedPartition {
            batches: vec![
                data(1, 0, true),
                data(2, 1, true),
                data(-1, 2, false),
                marker(ControlMarker::Abort, 1, 3),
                marker(ControlMarker::Commit, 2, 4),
                data(1, 5, true),
                marker(ControlMarker::Commit, 1, 6),
            ],
            high_watermark: Offset(7),
            last_stable_offset: Offset(7),
            aborted: vec![(ProducerId(1), Offset(0))],
            log_start: Offset(0),
        };
        let offsets: Vec<i64> =
            committed_records(&fetched).unwrap().iter().map(|batch| batch.header.base_offset).collect();
        assert_eq!(offsets, [1, 2, 5], "producer 1 aborted its first transaction and committed its second");
    }
}
