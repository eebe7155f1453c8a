//! What was handed on and is not decided, to be handed on again when an epoch is aborted before it was staged (ADR 0026).
//!
//! Batches are shared with the tasks that work on them, so a chunk is kept at the price of some reference counts; what is
//! kept is bounded by what may be in flight: two epochs, in rows, bytes and lock windows, and what calls have deferred.

use std::collections::VecDeque;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use sharestream_base::ids::CheckpointId;
use sharestream_core::coordinates::Coordinates;
use sharestream_core::decision::{DecidedRange, SourcePartition};

use super::reader::Chunk;
use crate::Result;
use crate::error::arrow_error;
use crate::ranges::Ranges;

/// Chunks by epoch, in the order in which they were handed on.
#[derive(Debug, Default)]
pub(super) struct Handed {
    sealed: VecDeque<(CheckpointId, Vec<Chunk>)>,
    open: Vec<Chunk>,
}

impl Handed {
    /// A chunk is handed on in the open epoch.
    pub(super) fn hand_on(&mut self, chunk: &Chunk) {
        self.open.push(chunk.clone());
    }

    /// The open epoch is closed.
    pub(super) fn barrier(&mut self, checkpoint: CheckpointId) {
        self.sealed.push_back((checkpoint, std::mem::take(&mut self.open)));
    }

    /// The epochs up to `checkpoint` are decided, or forgotten, but for the offsets in `left`. Errors: `Bug`.
    pub(super) fn settled(&mut self, checkpoint: CheckpointId, left: &Ranges) -> Result<()> {
        let count = self.sealed.iter().take_while(|(sealed, _)| *sealed <= checkpoint).count();
        let mut kept = Vec::new();
        for (_, chunks) in self.sealed.drain(..count) {
            for chunk in chunks {
                kept.extend(chunk.only(left)?);
            }
        }
        if !kept.is_empty() {
            self.sealed.push_front((checkpoint, kept));
        }
        Ok(())
    }

    /// True when an epoch up to `checkpoint` is closed and not settled.
    pub(super) fn holds_sealed(&self, checkpoint: CheckpointId) -> bool {
        self.sealed.front().is_some_and(|(sealed, _)| *sealed <= checkpoint)
    }

    /// Everything, in order; nothing is kept any more.
    pub(super) fn take(&mut self) -> Vec<Chunk> {
        let sealed = std::mem::take(&mut self.sealed);
        let mut chunks: Vec<Chunk> = sealed.into_iter().flat_map(|(_, chunks)| chunks).collect();
        chunks.append(&mut self.open);
        chunks
    }

    /// Records that are kept.
    #[cfg(test)]
    pub(super) fn record_count(&self) -> u64 {
        let sealed = self.sealed.iter().flat_map(|(_, chunks)| chunks);
        sealed.chain(&self.open).map(|chunk| chunk.record_count).sum()
    }
}

impl Chunk {
    /// The part of the chunk that is about these offsets; `None` when there is none. Errors: `Bug`.
    fn only(self, offsets: &Ranges) -> Result<Option<Chunk>> {
        let mut decided: Vec<(SourcePartition, DecidedRange)> = Vec::new();
        for (partition, range) in &self.decided {
            for part in offsets.within(*partition, range.first, range.last) {
                decided.push((*partition, DecidedRange { first: part.first, last: part.last, ..*range }));
            }
        }
        if decided.is_empty() {
            return Ok(None);
        }
        if decided == self.decided {
            return Ok(Some(self));
        }
        let all_rows = self.row_count().max(1);
        let rows = self.rows.map(|rows| only_rows(&rows, Coordinates::of(&rows)?, offsets)).transpose()?;
        let rejected = self.rejected.map(|rows| only_rows(&rows, Coordinates::behind(&rows, 0)?, offsets));
        let chunk = Chunk { rows, rejected: rejected.transpose()?, decided, ..self };
        let record_count = chunk.row_count();
        // Bytes of single records are not known; they only steer.
        let byte_count = chunk.byte_count * record_count / all_rows;
        Ok(Some(Chunk { record_count, byte_count, ..chunk }))
    }

    fn row_count(&self) -> u64 {
        let batches = [&self.rows, &self.rejected];
        batches.into_iter().flatten().map(|batch| batch.num_rows() as u64).sum()
    }
}

fn only_rows(batch: &RecordBatch, coordinates: Coordinates<'_>, offsets: &Ranges) -> Result<RecordBatch> {
    let mut mask = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let (partition, offset) = coordinates.source(row)?;
        mask.push(offsets.overlaps(partition, offset, offset));
    }
    filter_record_batch(batch, &BooleanArray::from(mask))
        .map_err(arrow_error("rows that are handed on again"))
}

#[cfg(test)]
#[path = "handed_tests.rs"]
mod tests;
