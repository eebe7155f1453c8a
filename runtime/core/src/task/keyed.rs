//! The loop of a subtask that keeps state by key.

use arrow_array::RecordBatch;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{OwnedTask, Spawner, TaskKind};

use super::context::{Interrupt, OperatorReport, TaskContext, TaskEvent};
use super::inputs::{Input, Inputs};
use super::output::Output;
use crate::ErrorKind;
use crate::element::Barrier;
use crate::error::{Error, Result};
use crate::operator::KeyedOperator;
use crate::state::{KeyedState, StateReport, StateWriter};

type Written = (StateWriter, Result<StateReport>);

/// A subtask that keeps state, and what it needs.
pub(crate) struct KeyedTask {
    context: TaskContext,
    spawner: Spawner,
    operator: Box<dyn KeyedOperator>,
    state: KeyedState,
    writing: Writing,
    inputs: Inputs,
    output: Output,
    /// Rows that were dropped since the last barrier.
    filtered_count: u64,
}

/// Who holds the writer.
enum Writing {
    Idle(Box<StateWriter>),
    /// The state of a barrier is being written, while rows behind it are processed.
    Busy {
        task: OwnedTask<Written>,
        checkpoint: CheckpointId,
        filtered_count: u64,
    },
    /// A write has failed, and so has the attempt.
    Lost,
}

impl KeyedTask {
    pub(crate) fn new(
        context: TaskContext,
        spawner: Spawner,
        operator: Box<dyn KeyedOperator>,
        state: KeyedState,
        writer: StateWriter,
        inputs: Inputs,
        output: Output,
    ) -> Self {
        let writing = Writing::Idle(Box::new(writer));
        KeyedTask { context, spawner, operator, state, writing, inputs, output, filtered_count: 0 }
    }

    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        if let Err(interrupt) = context.guard(self.work()).await {
            tracing::debug!(task = context.name, ?interrupt, "keyed task is winding down");
        }
    }

    async fn work(&mut self) -> Result<(), Interrupt> {
        loop {
            let input = tokio::select! {
                biased;
                written = written(&mut self.writing) => {
                    let (checkpoint, report) = written?;
                    let subtask = self.context.subtask;
                    self.context.tell(TaskEvent::OperatorAcked { subtask, checkpoint, report }).await?;
                    continue;
                }
                input = self.inputs.next() => input?,
            };
            match input {
                Input::Rows { input, rows } => self.process(input, rows).await?,
                Input::Rejected(rejected) => self.output.rejected(rejected).await?,
                Input::Parked(parked) => self.output.parked(parked).await?,
                Input::Barrier(barrier) => self.barrier(barrier).await?,
                Input::End => return self.output.end().await,
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn process(&mut self, input: usize, rows: RecordBatch) -> Result<(), Interrupt> {
        let row_count = rows.num_rows();
        let output = self.operator.process(input, rows, &mut self.state)?;
        let kept_count = output.rows.as_ref().map_or(0, RecordBatch::num_rows);
        let rejected_count = output.rejected.as_ref().map_or(0, RecordBatch::num_rows);
        self.filtered_count += row_count.saturating_sub(kept_count + rejected_count) as u64;
        if let Some(rejected) = output.rejected {
            self.output.rejected(rejected).await?;
        }
        match output.rows {
            Some(rows) => self.output.rows(rows).await,
            None => Ok(()),
        }
    }

    /// Takes the state as it is between the rows in front of the barrier and those behind it, passes the barrier on, and
    /// has the state written while the job goes on.
    async fn barrier(&mut self, barrier: Barrier) -> Result<(), Interrupt> {
        let checkpoint = barrier.checkpoint;
        let Writing::Idle(mut writer) = std::mem::replace(&mut self.writing, Writing::Lost) else {
            let context = format!("barrier {checkpoint} came before the state of the one before was written");
            return Err(Error::new(ErrorKind::Bug, context).into());
        };
        let snapshot = writer.take(checkpoint, &mut self.state)?;
        let name = format!("{}-state-{checkpoint}", self.context.name);
        let task = OwnedTask::spawn(&self.spawner, name, TaskKind::Job, async move {
            let report = writer.write(snapshot).await;
            (*writer, report)
        });
        let filtered_count = std::mem::take(&mut self.filtered_count);
        self.writing = Writing::Busy { task, checkpoint, filtered_count };
        self.output.barrier(barrier).await
    }
}

/// Waits until the state of a barrier is written; for ever when none is being written. Cancel safe.
async fn written(writing: &mut Writing) -> Result<(CheckpointId, OperatorReport)> {
    let Writing::Busy { task, checkpoint, filtered_count } = writing else {
        return std::future::pending().await;
    };
    let (checkpoint, filtered_count) = (*checkpoint, *filtered_count);
    let (writer, report) = match task.join().await {
        Ok(Some(written)) => written,
        Ok(None) => return Err(Error::new(ErrorKind::Closed, "the runtime is shutting down")),
        Err(panic) => return Err(panic.into()),
    };
    *writing = Writing::Idle(Box::new(writer));
    let state = report.map_err(|error| error.within(&format!("writing state of checkpoint {checkpoint}")))?;
    Ok((checkpoint, OperatorReport { filtered_count, state: Some(state), ..OperatorReport::default() }))
}
