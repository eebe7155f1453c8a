//! Polled records to chunks: batches with the decisions that go with them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, TopicId};
use sharestream_client::AcquiredPartition;
use sharestream_core::coordinates::{ParkedCopy, RejectKind};
use sharestream_core::decision::{DecidedRange, Decision, SourcePartition};
use sharestream_wire::records::{DECOMPRESSED_BYTES_MAX, HeadersView, RawBatch, RecordView};

use super::delivery::{DeliveryLimit, Treatment};
use super::offsets::AcquiredCursor;
use super::rows::{FinishedRows, RowsBuilder};
use super::unread::Unread;
use crate::config::BadRecords;
use crate::error::{arrow_error, bug, invalid_input, wire_error};
use crate::formats::{SchemaId, WriterSchema};
use crate::group::RejectPlan;
use crate::metadata_columns::{RecordBytes, RecordCoordinates};
use crate::parking::{self, ParkedRecord};
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
    /// Of one record; a larger one is not decoded.
    record_bytes_max: u64,
    /// Of one batch, decompressed; none of the records of a larger one is decoded.
    batch_bytes_max: usize,
    /// What is decompressed at a time, in whole batches.
    ahead_bytes_max: u64,
    delivery_limit: DeliveryLimit,
    /// The decision on a record that cannot be processed.
    plan: RejectPlan,
    /// The topic of parked records, and its name.
    parking: Option<(TopicId, Arc<str>)>,
    /// Of the chunk under construction.
    treatment: Treatment,
    decided: Vec<(SourcePartition, DecidedRange)>,
    record_count: u64,
    byte_count: u64,
    given_up_count: u64,
    /// Since reading went on last.
    ahead: Ahead,
    /// Why no record of the batch at hand can be had.
    withheld: Option<String>,
    /// The schema that reading stopped for.
    wanted: Option<SchemaId>,
}

/// What was read at a time.
#[derive(Debug, Default)]
struct Ahead {
    bytes: u64,
    records: u64,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    source: SourcePartition,
    topic_number: i16,
}

/// Records that are read at a time, however small. Far more than a poll brings (`max_poll_records`), but for a batch that
/// alone has more: the broker hands that out whole.
const AHEAD_RECORDS_MAX: u64 = 65_536;

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
            record_bytes_max: u64::MAX,
            batch_bytes_max: DECOMPRESSED_BYTES_MAX,
            ahead_bytes_max: u64::MAX,
            delivery_limit,
            plan,
            parking: None,
            treatment: Treatment::Usual,
            decided: Vec::new(),
            record_count: 0,
            byte_count: 0,
            given_up_count: 0,
            ahead: Ahead::default(),
            withheld: None,
            wanted: None,
        }
    }

    /// Decompresses `ahead` bytes at a time, in whole batches; records of a batch that has more than `batch` are handled as
    /// too large.
    pub(super) fn with_decompressed_bytes_max(mut self, ahead: usize, batch: usize) -> Self {
        self.ahead_bytes_max = ahead as u64;
        self.batch_bytes_max = batch;
        self
    }

    /// Records of more bytes than this are handled as too large.
    pub(super) fn with_record_bytes_max(mut self, record_bytes_max: usize) -> Self {
        self.record_bytes_max = record_bytes_max as u64;
        self
    }

    /// Records of this topic are copies of parked ones.
    pub(super) fn with_parking(mut self, topic: Option<(TopicId, Arc<str>)>) -> Self {
        self.parking = topic;
        self
    }

    /// Records that were given up near their delivery limit, since the reader was made.
    pub(super) fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    /// The limit that records are protected from.
    pub(super) fn delivery_limit(&self) -> DeliveryLimit {
        self.delivery_limit
    }

    /// The schema without which reading does not go on: [`Reader::read_on`] stopped in front of a record that names it.
    pub(super) fn wanted_schema(&self) -> Option<SchemaId> {
        self.wanted
    }

    /// Takes the schema that was wanted, or that there is none.
    pub(super) fn learn_schema(&mut self, id: SchemaId, schema: &WriterSchema) {
        self.rows.learn_schema(id, schema);
    }

    /// Forgets the ids that had no schema, so that they are wanted again.
    pub(super) fn forget_missing_schemas(&mut self) {
        self.rows.forget_missing_schemas();
    }

    /// Decodes what comes next of `unread` and appends it to `chunks`: batch by batch, up to the bytes that are decompressed
    /// at a time, or up to a record whose schema is not known. Bad records are part of the chunks, and records of different
    /// [`Treatment`] are in chunks of their own; an error means that the answer itself makes no sense, or that a record was
    /// delivered too often and the policy is to fail.
    pub(super) fn read_on(&mut self, unread: &mut Unread, chunks: &mut VecDeque<Chunk>) -> Result<()> {
        self.treatment = Treatment::Usual;
        self.ahead = Ahead::default();
        self.wanted = None;
        while self.has_room()
            && let Some(acquired) = unread.pop_front()
        {
            if let Some(rest) = self.read_partition(acquired, chunks)? {
                unread.push_front(rest);
            }
        }
        self.cut(chunks)
    }

    fn has_room(&self) -> bool {
        self.ahead.bytes < self.ahead_bytes_max && self.goes_on()
    }

    /// Whether the next record of a batch may be read, too.
    fn goes_on(&self) -> bool {
        self.ahead.records < AHEAD_RECORDS_MAX && self.wanted.is_none()
    }

    /// Reads while there is room, and gives back what is left.
    fn read_partition(
        &mut self,
        mut acquired: AcquiredPartition,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<Option<AcquiredPartition>> {
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
        let place = Place { source, topic_number };
        let mut cursor = AcquiredCursor::new(&acquired.acquired);
        let mut passed_count = 0;
        for batch in &acquired.batches {
            if !self.has_room() {
                break;
            }
            let last = Offset(batch.header.last_offset());
            // What is not ours stays compressed.
            let is_needed = !batch.header.is_control() && cursor.needs_batch(last);
            if is_needed && !self.read_batch(place, &acquired, batch, &mut cursor, chunks)? {
                break;
            }
            cursor.pass_batch_end(last);
            passed_count += 1;
        }
        self.take_decided(source, &mut cursor);
        let Some(offset) = cursor.uncovered() else { return Ok(None) };
        if passed_count == acquired.batches.len() {
            let (topic, partition) = (&acquired.topic, acquired.partition);
            return Err(Error::new(
                ErrorKind::Abort,
                format!(
                    "{topic}/{partition}: offset {offset} was acquired, but its batch did not come with it"
                ),
            ));
        }
        acquired.acquired = cursor.rest();
        acquired.batches.drain(..passed_count);
        Ok(Some(acquired))
    }

    /// Reads what is ours of a batch; false when it has more records than there is room for, or one whose schema is not known:
    /// those come when it is read again.
    fn read_batch(
        &mut self,
        place: Place,
        acquired: &AcquiredPartition,
        batch: &RawBatch,
        cursor: &mut AcquiredCursor<'_>,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<bool> {
        // Written out only when there is an error: this runs for every record.
        let at = |what: &'static str| {
            let base_offset = batch.header.base_offset;
            std::fmt::from_fn(move |f| {
                write!(f, "{what} of {}/{} at offset {base_offset}", acquired.topic, acquired.partition)
            })
        };
        let records = batch.records_within(self.batch_bytes_max).map_err(wire_error(at("batch")))?;
        let Some(records) = records else { return self.withhold(place, acquired, batch, cursor, chunks) };
        self.ahead.bytes += records.payload().len() as u64;
        self.rows.add_block(records.payload());
        for record in &records {
            let record = record.map_err(wire_error(at("record")))?;
            self.take_record(place, records.payload(), &record, cursor, chunks)
                .map_err(|refused| refused.within(&acquired.topic))?;
            if !self.goes_on() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decides on the offsets of a batch that cannot be held decompressed: each is a record that is too large. As
    /// [`Reader::read_batch`].
    #[cold]
    fn withhold(
        &mut self,
        place: Place,
        acquired: &AcquiredPartition,
        batch: &RawBatch,
        cursor: &mut AcquiredCursor<'_>,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<bool> {
        let (first, last) = (batch.header.base_offset, Offset(batch.header.last_offset()));
        let (topic, partition) = (&acquired.topic, acquired.partition);
        let reason = format!(
            "the batch of {topic}/{partition}, offsets {first} to {last}, decompresses to more than {} bytes, so none of its records is \
             processed",
            self.batch_bytes_max
        );
        tracing::warn!(%topic, %partition, first, %last, bytes = batch.bytes.len(), reason, "batch withheld");
        // As far as it was decompressed to find that out.
        self.ahead.bytes += self.batch_bytes_max as u64;
        self.withheld = Some(reason);
        let mut is_whole = true;
        while is_whole && let Some(offset) = cursor.uncovered().filter(|offset| *offset <= last) {
            let record = RecordView {
                offset: offset.0,
                timestamp: batch.header.max_timestamp,
                key: None,
                value: None,
                headers: HeadersView::EMPTY,
            };
            self.take_record(place, &Bytes::new(), &record, cursor, chunks)
                .map_err(|refused| refused.within(topic))?;
            is_whole = self.goes_on();
        }
        self.withheld = None;
        Ok(is_whole)
    }

    /// Passes to a record of `block`, and reads it if it is ours.
    #[inline]
    fn take_record(
        &mut self,
        place: Place,
        block: &Bytes,
        record: &RecordView<'_>,
        cursor: &mut AcquiredCursor<'_>,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<()> {
        let Some(delivery_count) = cursor.pass_to(Offset(record.offset)) else { return Ok(()) };
        let treatment = self.delivery_limit.treatment(delivery_count);
        if treatment != Treatment::GiveUp
            && let Some(id) = self.rows.unknown_schema(record.value)
        {
            // Passed to, and not decided: it is the first of what is left.
            self.wanted = Some(id);
            return Ok(());
        }
        if treatment != self.treatment || treatment == Treatment::Alone {
            self.take_decided(place.source, cursor);
            self.cut(chunks)?;
            self.rows.add_block(block);
            self.treatment = treatment;
        }
        self.read_record(place, delivery_count, record, cursor)?;
        if self.rows.row_count() >= self.rows_max || self.byte_count >= CHUNK_BYTES_MAX {
            self.take_decided(place.source, cursor);
            self.cut(chunks)?;
            self.rows.add_block(block);
        }
        Ok(())
    }

    /// Reads a record that is ours, and decides on it. Errors: `InvalidInput` where the job is to fail.
    #[inline]
    fn read_record(
        &mut self,
        Place { source, topic_number }: Place,
        delivery_count: i16,
        record: &RecordView<'_>,
        cursor: &mut AcquiredCursor<'_>,
    ) -> Result<()> {
        let offset = Offset(record.offset);
        let parked = match &self.parking {
            Some((topic_id, topic)) if *topic_id == source.topic_id => {
                parking::read(&record.headers).map(|parked| (topic.clone(), parked))
            }
            Some(_) | None => None,
        };
        let (topic_number, coordinates) = match &parked {
            None => {
                let (partition, timestamp_ms) = (source.partition, record.timestamp);
                (topic_number, RecordCoordinates { partition, offset, timestamp_ms, delivery_count })
            }
            Some((topic, parked)) => self.as_it_was(source, offset, delivery_count, (topic, parked))?,
        };
        let headers = match &parked {
            None => (!record.headers.is_empty()).then(|| record.headers.raw()),
            Some((_, parked)) => parked.headers.as_deref(),
        };
        let bytes = RecordBytes { key: record.key, value: record.value, headers };
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len) as u64;
        let byte_count = length(record.key) + length(record.value) + length(headers);
        let decision = match (self.treatment, self.delivery_limit.policy()) {
            (Treatment::Usual | Treatment::Alone, _)
                if byte_count > self.record_bytes_max || self.withheld.is_some() =>
            {
                let kind = RejectKind::TooLarge;
                let reason = self.withheld.clone().unwrap_or_else(|| {
                    format!("it has {byte_count} bytes, at most {} are processed", self.record_bytes_max)
                });
                self.rows.push_rejected(topic_number, &coordinates, &bytes, (kind, reason));
                self.plan.decision(kind)
            }
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
            // Release is no policy for them (`KafkaJobConfig::validate`).
            (Treatment::GiveUp, BadRecords::Fail | BadRecords::Release) => {
                return Err(too_often(source, offset, delivery_count, self.delivery_limit));
            }
        };
        cursor.decide(offset, decision);
        self.record_count += 1;
        self.byte_count += byte_count;
        Ok(())
    }

    /// The coordinates that a parked record had at first, for its row; what is decided is its copy at `offset`.
    #[cold]
    fn as_it_was(
        &mut self,
        source: SourcePartition,
        offset: Offset,
        delivery_count: i16,
        (topic, parked): (&Arc<str>, &ParkedRecord<'_>),
    ) -> Result<(i16, RecordCoordinates)> {
        let ParkedRecord { source: first, timestamp_ms, times, first_at_ms, .. } = *parked;
        let number = self.rows.topic_number_or_add(parked.topic, first.topic_id).ok_or_else(|| {
            invalid_input(format!("parked records of {topic} come from more topics than a job can read"))
        })?;
        let (topic, partition) = (topic.clone(), source);
        self.rows.next_is_copy(&ParkedCopy { topic, partition, offset, times, first_at_ms });
        let (partition, offset) = (first.partition, first.offset);
        Ok((number, RecordCoordinates { partition, offset, timestamp_ms, delivery_count }))
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
        self.ahead.records += self.record_count;
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
