//! The sink of one subtask.

use std::sync::Arc;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use sharestream_base::ids::CheckpointId;
use sharestream_core::decision::{DecidedRange, Decision};
use sharestream_core::sink::{Sink, SinkReport};

use super::writer::RecordWriter;
use crate::Result;
use crate::attempt::Attempt;
use crate::config::BadRecords;
use crate::error::{bug, invalid_input};
use crate::formats::{OutputFormat, RowEncoder};
use sharestream_core::coordinates::{Coordinates, errors};

/// Writes into the transaction of the open epoch, under the identity that the commit protocol publishes.
pub(super) struct KafkaSink {
    attempt: Arc<Attempt>,
    writer: RecordWriter,
    format: OutputFormat,
    encoder: Option<RowEncoder>,
    bad_records: BadRecords,
    /// The decision on a record that cannot be processed.
    on_bad: Decision,
    /// Epoch whose identity the writer has.
    writing: Option<CheckpointId>,
    report: SinkReport,
}

impl KafkaSink {
    pub(super) fn new(
        attempt: Arc<Attempt>,
        writer: RecordWriter,
        format: OutputFormat,
        bad_records: BadRecords,
        on_bad: Decision,
    ) -> Self {
        let report = SinkReport::default();
        KafkaSink { attempt, writer, format, encoder: None, bad_records, on_bad, writing: None, report }
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

    /// Fails with the first record of `rejected`, where the user wants that.
    fn fail_on(&self, rejected: &RecordBatch) -> Result<()> {
        let hidden = Coordinates::behind(rejected, 0)?;
        let error = errors(rejected)?.value(0);
        let (topic, partition) = (hidden.topics.text(0), hidden.partitions.value(0));
        let offset = hidden.offsets.value(0);
        Err(invalid_input(format!(
            "record {topic}/{partition}/{offset} cannot be processed: {error}; name a dead letter topic, or set \
             bad-records to drop, to go on past such records"
        )))
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
        self.writer.write_rows(encoder, &rows).await?;
        self.report.row_count += rows.num_rows() as u64;
        Ok(())
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        if rejected.num_rows() == 0 {
            return Ok(());
        }
        match self.bad_records {
            BadRecords::Fail => return self.fail_on(&rejected),
            BadRecords::Drop => {}
            BadRecords::DeadLetter => {
                self.enter(checkpoint).await?;
                self.writer.write_dead_letters(checkpoint, &rejected).await?;
                self.report.dead_letter_count += rejected.num_rows() as u64;
            }
        }
        let hidden = Coordinates::behind(&rejected, 0)?;
        for row in 0..rejected.num_rows() {
            let (partition, offset) = hidden.source(row)?;
            let range = DecidedRange { first: offset, last: offset, decision: self.on_bad };
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
