//! The loop of an operator task: the whole chain of operators of one subtask.

use arrow_array::RecordBatch;

use super::context::{Interrupt, OperatorReport, TaskContext, TaskEvent};
use super::inputs::{Input, Inputs};
use super::output::Output;
use crate::operator::Operator;

/// An operator task and what it needs.
pub(crate) struct OperatorTask {
    pub(crate) context: TaskContext,
    pub(crate) operators: Vec<Box<dyn Operator>>,
    pub(crate) inputs: Inputs,
    pub(crate) output: Output,
    /// Rows that were dropped since the last barrier.
    pub(crate) filtered_count: u64,
}

impl OperatorTask {
    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        if let Err(interrupt) = context.guard(self.work()).await {
            tracing::debug!(task = context.name, ?interrupt, "operator task is winding down");
        }
    }

    async fn work(&mut self) -> Result<(), Interrupt> {
        loop {
            match self.inputs.next().await? {
                Input::Rows { rows, .. } => self.process(rows).await?,
                Input::Rejected(rejected) => self.output.rejected(rejected).await?,
                Input::Parked(parked) => self.output.parked(parked).await?,
                Input::Barrier(barrier) => {
                    let filtered_count = std::mem::take(&mut self.filtered_count);
                    let report = OperatorReport { filtered_count, ..OperatorReport::default() };
                    let (subtask, checkpoint) = (self.context.subtask, barrier.checkpoint);
                    self.output.barrier(barrier).await?;
                    self.context.tell(TaskEvent::OperatorAcked { subtask, checkpoint, report }).await?;
                }
                Input::End => return self.output.end().await,
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn process(&mut self, rows: RecordBatch) -> Result<(), Interrupt> {
        let mut rows = Some(rows);
        for operator in &mut self.operators {
            let Some(batch) = rows.take().filter(|batch| batch.num_rows() > 0) else { break };
            let row_count = batch.num_rows();
            let output = operator.process(batch)?;
            let kept_count = output.rows.as_ref().map_or(0, RecordBatch::num_rows);
            let rejected_count = output.rejected.as_ref().map_or(0, RecordBatch::num_rows);
            self.filtered_count += row_count.saturating_sub(kept_count + rejected_count) as u64;
            if let Some(rejected) = output.rejected {
                self.output.rejected(rejected).await?;
            }
            rows = output.rows;
        }
        match rows {
            Some(rows) => self.output.rows(rows).await,
            None => Ok(()),
        }
    }
}
