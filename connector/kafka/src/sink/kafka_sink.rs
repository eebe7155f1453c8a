//! The sink of one subtask.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use async_trait::async_trait;
use sharestream_base::Clock;
use sharestream_base::ids::CheckpointId;
use sharestream_core::decision::DecidedRange;
use sharestream_core::sink::{Sink, SinkReport};

use super::writer::RecordWriter;
use crate::Result;
use crate::attempt::Attempt;
use crate::config::BadRecords;
use crate::error::{arrow_error, bug, invalid_input};
use crate::formats::{OutputFormat, RowEncoder};
use crate::group::RejectPlan;
use sharestream_core::coordinates::{
    Coordinates, RejectKind, errors, reject_kinds, rejected_batch, user_column_count,
};

/// Writes into the transaction of the open epoch, under the identity that the commit protocol publishes.
pub(super) struct KafkaSink {
    attempt: Arc<Attempt>,
    clock: Clock,
    writer: RecordWriter,
    format: OutputFormat,
    encoder: Option<RowEncoder>,
    /// What becomes of records that cannot be processed.
    plan: RejectPlan,
    /// Epoch whose identity the writer has.
    writing: Option<CheckpointId>,
    report: SinkReport,
}

impl KafkaSink {
    pub(super) fn new(
        attempt: Arc<Attempt>,
        clock: Clock,
        writer: RecordWriter,
        format: OutputFormat,
        plan: RejectPlan,
    ) -> Self {
        let report = SinkReport::default();
        KafkaSink { attempt, clock, writer, format, encoder: None, plan, writing: None, report }
    }

    /// Takes the identity of the epoch; waits until its transaction is open.
    async fn enter(&mut self, checkpoint: CheckpointId) -> Result<()> {
        if self.writing != Some(checkpoint) {
            let identity = self.attempt.identity(checkpoint).await?;
            self.writer.set_identity(&identity);
            self.writing = Some(checkpoint);
        }
        Ok(())
    }

    /// The kind whose policy holds for each row of `rejected`.
    fn deciding(&self, rejected: &RecordBatch, kinds: &[RejectKind]) -> Result<Vec<RejectKind>> {
        let hidden = Coordinates::behind(rejected, 0)?;
        let by_row = kinds.iter().enumerate();
        Ok(by_row.map(|(row, kind)| self.plan.kind_at(*kind, hidden.delivery_counts.value(row))).collect())
    }

    /// Which rows of `rejected` become dead letters. Fails with the first record whose policy that is.
    fn letters(&self, rejected: &RecordBatch, kinds: &[RejectKind]) -> Result<Vec<usize>> {
        let hidden = Coordinates::behind(rejected, 0)?;
        let errors = errors(rejected)?;
        let mut letters = Vec::new();
        for (row, kind) in kinds.iter().copied().enumerate() {
            let (topic, partition) = (hidden.topics.text(row), hidden.partitions.value(row));
            let (offset, error) = (hidden.offsets.value(row), errors.value(row));
            match self.plan.policy(kind) {
                BadRecords::DeadLetter => letters.push(row),
                BadRecords::Release => {
                    let delivery_count = hidden.delivery_counts.value(row);
                    tracing::debug!(
                        kind = kind.name(),
                        error,
                        delivery_count,
                        "record {topic}/{partition}/{offset} is given back"
                    );
                }
                BadRecords::Reject => {
                    tracing::warn!(
                        kind = kind.name(),
                        error,
                        "record {topic}/{partition}/{offset} is rejected and not kept"
                    );
                }
                BadRecords::Fail => {
                    let kind = kind.name();
                    return Err(invalid_input(format!(
                        "record {topic}/{partition}/{offset} cannot be processed: {error}; name a dead letter topic, or \
                         let errors of kind {kind} be rejected, to go on past such records"
                    )));
                }
            }
        }
        Ok(letters)
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn write(&mut self, checkpoint: CheckpointId, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.enter(checkpoint).await?;
        let encoder = match &self.encoder {
            Some(encoder) => encoder,
            None => {
                let made = RowEncoder::new(&self.format, rows.schema_ref()).map_err(invalid_input)?;
                self.encoder.insert(made)
            }
        };
        let unwritten = self.writer.write_rows(checkpoint, encoder, &rows).await?;
        self.report.row_count += (rows.num_rows() - unwritten.len()) as u64;
        if unwritten.is_empty() {
            return Ok(());
        }
        let indices: Vec<u32> = unwritten.iter().map(|unwritten| unwritten.row).collect();
        let hidden = rows.columns()[user_column_count(rows.schema_ref())..].iter();
        let indices = UInt32Array::from(indices);
        let hidden: Vec<ArrayRef> = hidden
            .map(|column| take(column, &indices, None))
            .collect::<Result<_, _>>()
            .map_err(arrow_error("rows that cannot be written"))?;
        let errors = unwritten.into_iter().map(|unwritten| (unwritten.kind, unwritten.error));
        let rejected = rejected_batch(hidden, errors).map_err(arrow_error("rows that cannot be written"))?;
        self.write_rejected(checkpoint, rejected).await
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        if rejected.num_rows() == 0 {
            return Ok(());
        }
        let kinds = reject_kinds(&rejected)?;
        let deciding = self.deciding(&rejected, &kinds)?;
        let letters = self.letters(&rejected, &deciding)?;
        if !letters.is_empty() {
            self.enter(checkpoint).await?;
            self.writer.write_dead_letters(checkpoint, &rejected, &kinds, &letters).await?;
            self.report.dead_letter_count += letters.len() as u64;
        }
        let hidden = Coordinates::behind(&rejected, 0)?;
        for (row, (kind, deciding)) in kinds.into_iter().zip(deciding).enumerate() {
            self.report.reject_counts.add(kind);
            let (partition, offset) = hidden.source(row)?;
            let range = DecidedRange { first: offset, last: offset, decision: self.plan.decision(deciding) };
            if self.plan.policy(deciding) == BadRecords::Release {
                self.report.given_back.set(partition, range);
            } else {
                self.report.rejected.set(partition, range);
            }
        }
        Ok(())
    }

    async fn write_parked(&mut self, checkpoint: CheckpointId, parked: RecordBatch) -> Result<()> {
        if parked.num_rows() == 0 {
            return Ok(());
        }
        self.enter(checkpoint).await?;
        self.writer.write_parked(checkpoint, &parked, self.clock.wall_ms()).await?;
        self.report.parked_count += parked.num_rows() as u64;
        Ok(())
    }

    async fn idle(&mut self) -> Result<()> {
        self.writer.send_buffered().await
    }

    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport> {
        if self.writing.is_some_and(|writing| writing > checkpoint) {
            return Err(bug(format!("flush of checkpoint {checkpoint} after writes to a later one")));
        }
        if self.writing == Some(checkpoint) {
            self.writer.flush().await?;
        }
        Ok(std::mem::take(&mut self.report))
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
