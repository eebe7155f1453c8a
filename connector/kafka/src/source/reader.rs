//! Polled records to chunks: batches with the decisions that go with them.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use sharestream_base::ErrorKind;
use sharestream_base::ids::Offset;
use sharestream_client::{AcquiredPartition, ShareRecords};
use sharestream_core::coordinates::RejectKind;
use sharestream_core::decision::{DecidedRange, Decision, SourcePartition};
use sharestream_wire::records::{RawBatch, RecordView};

use super::delivery::{DeliveryLimit, Treatment};
use super::offsets::AcquiredCursor;
use super::rows::{FinishedRows, RowsBuilder};
use crate::config::BadRecords;
use crate::error::{arrow_error, bug, invalid_input, wire_error};
use crate::group::RejectPlan;
use crate::metadata_columns::{RecordBytes, RecordCoordinates};
use crate::{Error, Result};

/// One batch for the job, and what it decides when it is handed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// What its records have in common. A chunk of [`Treatment::Alone`] holds one.
    pub(super) treatment: Treatment,
    pub(super) rows: Option<RecordBatch>,
    pub(super) rejected: Option<RecordBatch>,
    pub(super) decided: Vec<(SourcePartition, DecidedRange)>,
    pub(super) record_count: u64,
    pub(super) byte_count: u64,
}

/// Decodes what polls bring. No I/O.
#[derive(Debug)]
pub(super) struct Reader {
    rows: RowsBuilder,
    rows_max: usize,
    delivery_limit: DeliveryLimit,
    /// The decision on a record that cannot be processed.
    plan: RejectPlan,
    /// Of the chunk under construction.
    treatment: Treatment,
    decided: Vec<(SourcePartition, DecidedRange)>,
    record_count: u64,
    byte_count: u64,
    given_up_count: u64,
}

/// A chunk ends at this many payload bytes, however few rows it has: offsets of text columns are 32 bits.
const CHUNK_BYTES_MAX: u64 = 32 << 20;

impl Reader {
    pub(super) fn new(
        rows: RowsBuilder,
        rows_max: usize,
        delivery_limit: DeliveryLimit,
        plan: RejectPlan,
    ) -> Self {
        Reader {
            rows,
            rows_max,
            delivery_limit,
            plan,
            treatment: Treatment::Usual,
            decided: Vec::new(),
            record_count: 0,
            byte_count: 0,
            given_up_count: 0,
        }
    }

    /// Records that were given up near their delivery limit, since the reader was made.
    pub(super) fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    /// Decodes everything that `records` has and we acquired, and appends it to `chunks`. Bad records are part of
    /// the chunks, and records of different [`Treatment`] are in chunks of their own; an error means that the answer
    /// itself makes no sense, or that a record was delivered too often and the policy is to fail.
    pub(super) fn read(&mut self, records: &ShareRecords, chunks: &mut VecDeque<Chunk>) -> Result<()> {
        self.treatment = Treatment::Usual;
        for partition in &records.partitions {
            self.read_partition(partition, chunks)?;
        }
        self.cut(chunks)
    }

    fn read_partition(&mut self, acquired: &AcquiredPartition, chunks: &mut VecDeque<Chunk>) -> Result<()> {
        let source = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
        let topic_number = self.rows.topic_number(acquired.topic_id).ok_or_else(|| {
            // A topic that was deleted and created again while the job ran is another topic.
            Error::new(
                ErrorKind::Abort,
                format!(
                    "topic {} has id {} now, which the job did not start with",
                    acquired.topic, acquired.topic_id
                ),
            )
        })?;
        // Written out only when there is an error: this runs for every record.
        let at = |what: &'static str, batch: &RawBatch| {
            let base_offset = batch.header.base_offset;
            std::fmt::from_fn(move |f| {
                write!(f, "{what} of {}/{} at offset {base_offset}", acquired.topic, acquired.partition)
            })
        };
        let mut cursor = AcquiredCursor::new(&acquired.acquired);
        for batch in &acquired.batches {
            if !batch.header.is_control() {
                let records = batch.records().map_err(wire_error(at("batch", batch)))?;
                self.rows.add_block(records.payload());
                for record in &records {
                    let record = record.map_err(wire_error(at("record", batch)))?;
                    let Some(delivery_count) = cursor.pass_to(Offset(record.offset)) else { continue };
                    let treatment = self.delivery_limit.treatment(delivery_count);
                    if treatment != self.treatment || treatment == Treatment::Alone {
                        self.take_decided(source, &mut cursor);
                        self.cut(chunks)?;
                        self.rows.add_block(records.payload());
                        self.treatment = treatment;
                    }
                    self.read_record(source, (topic_number, delivery_count), &record, &mut cursor)
                        .map_err(|refused| refused.within(&acquired.topic))?;
                    if self.rows.row_count() >= self.rows_max || self.byte_count >= CHUNK_BYTES_MAX {
                        self.take_decided(source, &mut cursor);
                        self.cut(chunks)?;
                        self.rows.add_block(records.payload());
                    }
                }
            }
            cursor.pass_batch_end(Offset(batch.header.last_offset()));
        }
        self.take_decided(source, &mut cursor);
        if let Some(offset) = cursor.uncovered() {
            let (topic, partition) = (&acquired.topic, acquired.partition);
            return Err(Error::new(
                ErrorKind::Abort,
                format!(
                    "{topic}/{partition}: offset {offset} was acquired, but its batch did not come with it"
                ),
            ));
        }
        Ok(())
    }

    /// Reads a record that is ours, and decides on it. Errors: `InvalidInput` where the job is to fail.
    #[inline]
    fn read_record(
        &mut self,
        source: SourcePartition,
        (topic_number, delivery_count): (i16, i16),
        record: &RecordView<'_>,
        cursor: &mut AcquiredCursor<'_>,
    ) -> Result<()> {
        let offset = Offset(record.offset);
        let coordinates = RecordCoordinates {
            partition: source.partition,
            offset,
            timestamp_ms: record.timestamp,
            delivery_count,
        };
        let headers = (!record.headers.is_empty()).then(|| record.headers.raw());
        let bytes = RecordBytes { key: record.key, value: record.value, headers };
        let decision = match (self.treatment, self.delivery_limit.policy()) {
            (Treatment::Usual | Treatment::Alone, _) => {
                match self.rows.push(topic_number, &coordinates, &bytes) {
                    Ok(()) => Decision::Accept,
                    Err(_bad_record) => self.plan.decision(RejectKind::Decode),
                }
            }
            (Treatment::GiveUp, BadRecords::DeadLetter | BadRecords::Reject) => {
                let kind = RejectKind::DeliveryLimit;
                let reason = self.delivery_limit.reason(delivery_count);
                self.rows.push_rejected(topic_number, &coordinates, &bytes, (kind, reason));
                self.given_up_count += 1;
                self.plan.decision(kind)
            }
            (Treatment::GiveUp, BadRecords::Fail) => {
                return Err(too_often(source, offset, delivery_count, self.delivery_limit));
            }
        };
        cursor.decide(offset, decision);
        self.record_count += 1;
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len) as u64;
        self.byte_count += length(record.key) + length(record.value) + length(headers);
        Ok(())
    }

    fn take_decided(&mut self, source: SourcePartition, cursor: &mut AcquiredCursor<'_>) {
        self.decided.extend(cursor.take_decided().into_iter().map(|range| (source, range)));
    }

    /// Ends the chunk under construction, if it has anything.
    fn cut(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<()> {
        let FinishedRows { rows, rejected } = self.rows.finish().map_err(arrow_error("decoded rows"))?;
        let decided = std::mem::take(&mut self.decided);
        if decided.is_empty() {
            return if rows.is_none() && rejected.is_none() {
                Ok(())
            } else {
                Err(bug("rows without a decision on their offsets"))
            };
        }
        chunks.push_back(Chunk {
            treatment: self.treatment,
            rows,
            rejected,
            decided,
            record_count: std::mem::take(&mut self.record_count),
            byte_count: std::mem::take(&mut self.byte_count),
        });
        Ok(())
    }
}

fn too_often(
    source: SourcePartition,
    offset: Offset,
    delivery_count: i16,
    delivery_limit: DeliveryLimit,
) -> Error {
    invalid_input(format!(
        "partition {} offset {offset} has been delivered {delivery_count} times of at most {} and was not decided; name a \
         dead letter topic, let errors of kind delivery-limit be rejected, or raise share.delivery.count.limit of the group, to go on \
         past such records",
        source.partition,
        delivery_limit.limit()
    ))
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
