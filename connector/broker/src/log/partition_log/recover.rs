//! A log as its files have it.

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_wire::records::{RawBatch, control};

use super::{Marker, PartitionLog, Segment};
use crate::disk::{Head, SegmentEvent};
use crate::error::{Error, Result};
use crate::log::producer_state::ProducerStates;

impl PartitionLog {
    /// What a segment that begins now starts with.
    pub(crate) fn head(&self) -> Head {
        let ends = self.ends();
        Head { base: ends.high_watermark, log_start: ends.log_start, producers: self.producers.encode() }
    }

    /// Takes in what a file says. Errors: Corrupt.
    pub(crate) fn recover(&mut self, event: SegmentEvent) -> Result<()> {
        match event {
            SegmentEvent::Head(head) => {
                let first = self.log_end.is_none();
                self.producers = ProducerStates::decode(&head.producers).ok_or_else(|| {
                    Error::new(ErrorKind::Corrupt, "a segment's states of producers are damaged")
                })?;
                self.log_end = Some(self.ends().high_watermark.max(head.base));
                self.segment = Segment::starting_at(head.base);
                // What lies below the first segment was removed.
                let start = if first { head.log_start.max(head.base) } else { head.log_start };
                self.move_start(start);
            }
            SegmentEvent::Batch(batch, version) => {
                if batch.header.is_control() {
                    self.recover_marker(batch)?;
                } else {
                    self.take_batch(batch, version);
                }
            }
            SegmentEvent::LogStart(start) => self.move_start(start),
            SegmentEvent::Forget => *self = PartitionLog::default(),
            SegmentEvent::End(end) => self.log_end = Some(self.ends().high_watermark.max(end)),
        }
        Ok(())
    }

    fn recover_marker(&mut self, batch: RawBatch) -> Result<()> {
        let (kind, coordinator_epoch) = control::decode(&batch).map_err(|source| {
            Error::new(ErrorKind::Corrupt, "a control batch in a segment is damaged").with_source(source)
        })?;
        let marker = Marker {
            producer_id: ProducerId(batch.header.producer_id),
            producer_epoch: ProducerEpoch(batch.header.producer_epoch),
            coordinator_epoch,
            commit: kind == control::ControlMarker::Commit,
        };
        let now_ms = batch.header.max_timestamp;
        self.take_marker(batch, &marker, now_ms);
        Ok(())
    }

    /// Forward only, and never beyond what is there.
    fn move_start(&mut self, start: Offset) {
        let ends = self.ends();
        let start = start.clamp(ends.log_start, ends.high_watermark);
        self.log_start = Some(start);
        self.store.drop_before(start);
        self.aborted.truncate_before(start);
    }
}
