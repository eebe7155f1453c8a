//! The loop of a subtask that keeps state, by key or without.

use arrow_array::RecordBatch;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{OwnedTask, Spawner, TaskKind};

use super::context::{Interrupt, OperatorReport, TaskContext, TaskEvent};
use super::inputs::{Input, Inputs};
use super::output::Output;
use crate::ErrorKind;
use crate::coordinates::Coordinates;
use crate::element::Barrier;
use crate::error::{Error, Result};
use crate::operator::{KeyedOperator, OperatorOutput, StatefulOperator};
use crate::state::{KeyedState, ListSnapshot, ListWriter, Snapshot, StateReport, StateWriter};
use crate::watermark::Watermark;

/// An operator and what it keeps.
pub(crate) trait Keeps: Send + 'static {
    /// What writes it.
    type Writer: WritesState;
    fn process(&mut self, input: usize, rows: RecordBatch) -> Result<OperatorOutput>;
    /// The watermark has risen.
    fn on_watermark(&mut self, watermark: Watermark) -> Result<OperatorOutput>;
    /// Takes out what must be written at a barrier.
    fn take(
        &mut self,
        writer: &mut Self::Writer,
        checkpoint: CheckpointId,
    ) -> Result<<Self::Writer as WritesState>::Taken>;
}

/// Writes what was taken at a barrier.
pub(crate) trait WritesState: Send + 'static {
    type Taken: Send + 'static;
    fn write(&mut self, taken: Self::Taken) -> impl Future<Output = Result<StateReport>> + Send;
}

/// State by key.
pub(crate) struct ByKey {
    pub(crate) operator: Box<dyn KeyedOperator>,
    pub(crate) state: KeyedState,
}

impl Keeps for ByKey {
    type Writer = StateWriter;

    fn process(&mut self, input: usize, rows: RecordBatch) -> Result<OperatorOutput> {
        self.operator.process(input, rows, &mut self.state)
    }

    fn on_watermark(&mut self, watermark: Watermark) -> Result<OperatorOutput> {
        self.state.set_watermark(Some(watermark));
        self.operator.on_watermark(watermark, &mut self.state)
    }

    fn take(&mut self, writer: &mut StateWriter, checkpoint: CheckpointId) -> Result<Snapshot> {
        writer.take(checkpoint, &mut self.state)
    }
}

impl WritesState for StateWriter {
    type Taken = Snapshot;

    fn write(&mut self, taken: Snapshot) -> impl Future<Output = Result<StateReport>> + Send {
        StateWriter::write(self, taken)
    }
}

/// State without keys.
pub(crate) struct AsList {
    pub(crate) operator: Box<dyn StatefulOperator>,
}

impl Keeps for AsList {
    type Writer = ListWriter;

    fn process(&mut self, _input: usize, rows: RecordBatch) -> Result<OperatorOutput> {
        self.operator.process(rows)
    }

    fn on_watermark(&mut self, watermark: Watermark) -> Result<OperatorOutput> {
        self.operator.on_watermark(watermark)
    }

    fn take(&mut self, writer: &mut ListWriter, checkpoint: CheckpointId) -> Result<ListSnapshot> {
        writer.take(checkpoint, &self.operator.snapshot()?)
    }
}

impl WritesState for ListWriter {
    type Taken = ListSnapshot;

    fn write(&mut self, taken: ListSnapshot) -> impl Future<Output = Result<StateReport>> + Send {
        ListWriter::write(self, taken)
    }
}

/// A subtask that keeps state, and what it needs.
pub(crate) struct StateTask<K: Keeps> {
    context: TaskContext,
    spawner: Spawner,
    keeps: K,
    writing: Writing<K::Writer>,
    inputs: Inputs,
    output: Output,
    /// Rows that were dropped since the last barrier.
    filtered_count: u64,
    /// What the operator was told last, in this attempt.
    told: Option<Watermark>,
}

/// Who holds the writer.
enum Writing<W> {
    Idle(Box<W>),
    /// The state of a barrier is being written, while rows behind it are processed.
    Busy {
        task: OwnedTask<(W, Result<StateReport>)>,
        checkpoint: CheckpointId,
        filtered_count: u64,
    },
    /// A write has failed, and so has the attempt.
    Lost,
}

impl<K: Keeps> StateTask<K> {
    pub(crate) fn new(
        context: TaskContext,
        spawner: Spawner,
        (keeps, writer): (K, K::Writer),
        inputs: Inputs,
        output: Output,
    ) -> Self {
        let writing = Writing::Idle(Box::new(writer));
        StateTask { context, spawner, keeps, writing, inputs, output, filtered_count: 0, told: None }
    }

    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        if let Err(interrupt) = context.guard(self.work()).await {
            tracing::debug!(task = context.name, ?interrupt, "task with state is winding down");
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
        let output = self.keeps.process(input, rows)?;
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

    /// Tells the operator how far event time has come, and passes on what it gives.
    async fn tell_watermark(&mut self, watermark: Watermark) -> Result<(), Interrupt> {
        self.told = Some(watermark);
        loop {
            let OperatorOutput { rows, rejected } = self.keeps.on_watermark(watermark)?;
            if rejected.is_some_and(|rejected| rejected.num_rows() > 0) {
                return Err(bug("it rejected rows at a watermark: they come from state, not from a record"));
            }
            let Some(rows) = rows.filter(|rows| rows.num_rows() > 0) else { return Ok(()) };
            let hidden = Coordinates::of(&rows)?;
            if !(0..rows.num_rows()).all(|row| hidden.is_derived(row)) {
                return Err(bug("it gave rows at a watermark that name a source record"));
            }
            self.output.rows(rows).await?;
            tokio::task::consume_budget().await;
        }
    }

    /// Takes the state as it is between the rows in front of the barrier and those behind it, passes the barrier on, and
    /// has the state written while the job goes on.
    async fn barrier(&mut self, barrier: Barrier) -> Result<(), Interrupt> {
        let checkpoint = barrier.checkpoint;
        if let Some(watermark) = barrier.watermark.filter(|watermark| Some(*watermark) > self.told) {
            self.tell_watermark(watermark).await?;
        }
        let Writing::Idle(mut writer) = std::mem::replace(&mut self.writing, Writing::Lost) else {
            let context = format!("barrier {checkpoint} came before the state of the one before was written");
            return Err(Error::new(ErrorKind::Bug, context).into());
        };
        let taken = self.keeps.take(&mut writer, checkpoint)?;
        let name = format!("{}-state-{checkpoint}", self.context.name);
        let task = OwnedTask::spawn(&self.spawner, name, TaskKind::Job, async move {
            let report = writer.write(taken).await;
            (*writer, report)
        });
        let filtered_count = std::mem::take(&mut self.filtered_count);
        self.writing = Writing::Busy { task, checkpoint, filtered_count };
        self.output.barrier(barrier).await
    }
}

fn bug(what: &str) -> Interrupt {
    Error::new(ErrorKind::Bug, what).into()
}

/// Waits until the state of a barrier is written; for ever when none is being written. Cancel safe.
async fn written<W: WritesState>(writing: &mut Writing<W>) -> Result<(CheckpointId, OperatorReport)> {
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
