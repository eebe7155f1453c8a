//! The loop of a sink task.

use futures::FutureExt;
use sharestream_base::ids::CheckpointId;
use sharestream_base::watch;

use super::context::{Interrupt, TaskContext, TaskEvent};
use super::inputs::{Input, Inputs};
use crate::ErrorKind;
use crate::element::Barrier;
use crate::error::Error;
use crate::sink::Sink;

/// A sink task and what it needs.
pub(crate) struct SinkTask {
    pub(crate) context: TaskContext,
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) inputs: Inputs,
    /// The highest epoch that the commit protocol has opened.
    pub(crate) opened: watch::Receiver<CheckpointId>,
    /// The epoch that the next write belongs to.
    pub(crate) writing: CheckpointId,
}

impl SinkTask {
    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        // An interrupted sink is dropped, not closed: its calls are not cancel safe.
        if let Err(interrupt) = context.guard(self.work()).await {
            tracing::debug!(task = context.name, ?interrupt, "sink task is winding down");
        }
    }

    async fn work(&mut self) -> Result<(), Interrupt> {
        loop {
            match self.next().await? {
                Input::Rows { rows, .. } => {
                    self.wait_until_open().await?;
                    self.sink.write(self.writing, rows).await?;
                }
                Input::Rejected(rejected) => {
                    self.wait_until_open().await?;
                    self.sink.write_rejected(self.writing, rejected).await?;
                }
                Input::Parked(parked) => {
                    self.wait_until_open().await?;
                    self.sink.write_parked(self.writing, parked).await?;
                }
                Input::Barrier(Barrier { checkpoint, .. }) => {
                    self.check_barrier(checkpoint)?;
                    let subtask = self.context.subtask;
                    let report = self.sink.flush(checkpoint).await?;
                    self.writing = checkpoint.next();
                    self.context.tell(TaskEvent::SinkAcked { subtask, checkpoint, report }).await?;
                }
                Input::End => return Ok(self.sink.close().await?),
            }
            tokio::task::consume_budget().await;
        }
    }

    /// The next input. Where it is not there yet, the sink hears of the pause.
    async fn next(&mut self) -> Result<Input, Interrupt> {
        match self.inputs.next().now_or_never() {
            Some(input) => input,
            None => {
                self.sink.idle().await?;
                self.inputs.next().await
            }
        }
    }

    /// Nothing is written into an epoch that is not open: a write would land in the transaction before.
    async fn wait_until_open(&mut self) -> Result<(), Interrupt> {
        if *self.opened.borrow() >= self.writing {
            return Ok(());
        }
        let writing = self.writing;
        match self.opened.wait_for(|opened| *opened >= writing).await {
            Ok(_) => Ok(()),
            Err(_coordinator_gone) => Err(Interrupt::NeighbourGone),
        }
    }

    fn check_barrier(&self, checkpoint: CheckpointId) -> Result<(), Error> {
        if checkpoint == self.writing {
            return Ok(());
        }
        let context = format!("barrier {checkpoint} came while epoch {} was written", self.writing);
        Err(Error::new(ErrorKind::Bug, context))
    }
}
