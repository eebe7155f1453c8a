//! The sink of one subtask.

use std::sync::Arc;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use sharestream_base::ids::CheckpointId;
use sharestream_core::decision::DecidedRange;
use sharestream_core::sink::{Sink, SinkReport};

use super::writer::RecordWriter;
use crate::Result;
use crate::attempt::Attempt;
use crate::config::BadRecords;
use crate::error::{bug, invalid_input};
use crate::formats::{OutputFormat, RowEncoder};
use crate::group::RejectPlan;
use sharestream_core::coordinates::{Coordinates, RejectKind, errors, reject_kinds};

/// Writes into the transaction of the open epoch, under the identity that the commit protocol publishes.
pub(super) struct KafkaSink {
    attempt: Arc<Attempt>,
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
        writer: RecordWriter,
        format: OutputFormat,
        plan: RejectPlan,
    ) -> Self {
        let report = SinkReport::default();
        KafkaSink { attempt, writer, format, encoder: None, plan, writing: None, report }
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
        self.writer.write_rows(checkpoint, encoder, &rows).await?;
        self.report.row_count += rows.num_rows() as u64;
        Ok(())
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        if rejected.num_rows() == 0 {
            return Ok(());
        }
        let kinds = reject_kinds(&rejected)?;
        let letters = self.letters(&rejected, &kinds)?;
        if !letters.is_empty() {
            self.enter(checkpoint).await?;
            self.writer.write_dead_letters(checkpoint, &rejected, &kinds, &letters).await?;
            self.report.dead_letter_count += letters.len() as u64;
        }
        let hidden = Coordinates::behind(&rejected, 0)?;
        for (row, kind) in kinds.into_iter().enumerate() {
            self.report.reject_counts.add(kind);
            let (partition, offset) = hidden.source(row)?;
            let range = DecidedRange { first: offset, last: offset, decision: self.plan.decision(kind) };
            self.report.rejected.set(partition, range);
        }
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
