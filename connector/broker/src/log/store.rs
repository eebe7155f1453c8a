//! The batches of one log, in memory: append at the end, find by offset or time, drop at the front.

use std::collections::VecDeque;

use sharestream_base::ids::Offset;
use sharestream_wire::records::RawBatch;

/// Batches by offset, without overlap; compaction leaves holes.
#[derive(Debug, Default)]
pub(crate) struct BatchStore {
    batches: VecDeque<RawBatch>,
    bytes: usize,
}

impl BatchStore {
    /// Adds a batch that starts at the log's end.
    pub(crate) fn push(&mut self, batch: RawBatch) {
        self.bytes += batch.bytes.len();
        self.batches.push_back(batch);
    }

    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Batches from the one that holds `from` on, up to `end` (exclusive), the one that reaches `enough`, and `bytes_max`,
    /// but at least one when there is any. No bytes are copied.
    pub(crate) fn read(&self, from: Offset, enough: Offset, end: Offset, bytes_max: usize) -> Vec<RawBatch> {
        let start = self.batches.partition_point(|batch| batch.header.last_offset() < from.0);
        let mut found = Vec::new();
        let mut bytes = 0;
        for batch in self.batches.range(start..) {
            let is_enough =
                batch.header.base_offset >= enough.0 || bytes_max.saturating_sub(bytes) < batch.bytes.len();
            if batch.header.last_offset() >= end.0 || (!found.is_empty() && is_enough) {
                break;
            }
            bytes += batch.bytes.len();
            found.push(batch.clone());
        }
        found
    }

    /// The first batch, at or after `from`, that has a record of `timestamp_ms` or later.
    pub(crate) fn at_or_after(&self, from: Offset, timestamp_ms: i64) -> Option<&RawBatch> {
        let start = self.batches.partition_point(|batch| batch.header.last_offset() < from.0);
        self.batches.range(start..).find(|batch| batch.header.max_timestamp >= timestamp_ms)
    }

    /// The first batch with the latest timestamp of all.
    pub(crate) fn latest_in_time(&self) -> Option<&RawBatch> {
        // `max_by_key` would give the last one of equals.
        self.batches.iter().rev().max_by_key(|batch| batch.header.max_timestamp)
    }

    /// The last batch of a leader epoch up to `epoch`, and the first one of a later epoch.
    pub(crate) fn around_epoch(&self, epoch: i32) -> (Option<&RawBatch>, Option<&RawBatch>) {
        let next = self.batches.partition_point(|batch| batch.header.partition_leader_epoch <= epoch);
        (next.checked_sub(1).and_then(|last| self.batches.get(last)), self.batches.get(next))
    }

    /// Drops batches that end before `offset`.
    pub(crate) fn drop_before(&mut self, offset: Offset) {
        while let Some(first) = self.batches.front() {
            if first.header.last_offset() >= offset.0 {
                break;
            }
            self.bytes -= first.bytes.len();
            self.batches.pop_front();
        }
    }

    /// First offset behind the oldest batches that are all wholly older than `oldest_ms`; none when there are none.
    pub(crate) fn first_not_before(&self, oldest_ms: i64) -> Option<Offset> {
        let old = self.batches.iter().take_while(|batch| batch.header.max_timestamp < oldest_ms);
        old.last().map(|batch| Offset(batch.header.next_offset()))
    }

    /// Batches that end before `end`.
    pub(crate) fn before(&self, end: Offset) -> impl Iterator<Item = &RawBatch> {
        self.batches.iter().take_while(move |batch| batch.header.last_offset() < end.0)
    }

    /// Puts `kept` in the place of all batches that end before `end`.
    pub(crate) fn replace_before(&mut self, end: Offset, kept: Vec<RawBatch>) {
        let replaced = self.batches.partition_point(|batch| batch.header.last_offset() < end.0);
        self.bytes -= self.batches.drain(..replaced).map(|batch| batch.bytes.len()).sum::<usize>();
        for batch in kept.into_iter().rev() {
            self.bytes += batch.bytes.len();
            self.batches.push_front(batch);
        }
    }

    /// First offset after as many of the oldest batches as it takes to keep at most `bytes_max`; the last batch
    /// always stays.
    pub(crate) fn offset_that_keeps(&self, bytes_max: usize) -> Option<Offset> {
        let mut bytes = self.bytes;
        let mut keep_from = None;
        for batch in self.batches.iter().take(self.batches.len().saturating_sub(1)) {
            if bytes <= bytes_max {
                break;
            }
            bytes -= batch.bytes.len();
            keep_from = Some(Offset(batch.header.next_offset()));
        }
        keep_from
    }
}
