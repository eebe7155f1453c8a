//! The loop of a source task.

use std::sync::Arc;

use sharestream_base::ids::CheckpointId;
use tokio::sync::mpsc;

use super::context::{Interrupt, TaskContext, TaskEvent};
use super::gauges::Gauges;
use super::output::Output;
use crate::decision::Decisions;
use crate::element::Barrier;
use crate::kept::KeptSources;
use crate::source::{Source, SourceEvent, maintained};
use crate::watermark::{EventTimeReader, EventTimesOfEpoch};

/// What the coordinator asks of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceCommand {
    /// Close the epoch and send the barrier on.
    Barrier(Barrier),
    /// These offsets are decided in a later epoch than that of the checkpoint.
    Deferred(CheckpointId, Arc<Decisions>),
    /// These offsets are decided by no epoch and go back to the group.
    GiveBack(CheckpointId, Arc<Decisions>),
    /// The epoch is committed.
    Committed(CheckpointId),
    /// Acquire nothing more.
    StopAcquiring,
    /// Send the end on and leave.
    Close,
}

/// Commands that can be on their way to a source: a barrier is sent only when every source has answered the one
/// before, so there are at most that barrier, the commits, deferrals and returns of the two epochs before it, and the two
/// commands of a drain. The rest is slack.
pub(crate) const COMMANDS_MAX: usize = 16;

/// A source task and what it needs.
pub(crate) struct SourceTask {
    pub(crate) context: TaskContext,
    pub(crate) source: Box<dyn Source>,
    pub(crate) output: Output,
    pub(crate) commands: mpsc::Receiver<SourceCommand>,
    pub(crate) gauges: Arc<Gauges>,
    /// `None`: the job has no event time.
    pub(crate) event_time: Option<EventTimeReader>,
    pub(crate) times: EventTimesOfEpoch,
    /// Of the open epoch: beyond it nothing is handed on until the barrier.
    pub(crate) epoch_bytes_max: u64,
    /// Handed on since the last barrier.
    pub(crate) epoch_bytes: u64,
    pub(crate) is_acquiring: bool,
    /// Asked to stop, and hands on what it must not give back.
    pub(crate) is_stopping: bool,
    /// True while a call that must not be dropped half way is running: a source that was interrupted in it cannot
    /// be asked to close.
    pub(crate) is_in_call: bool,
    /// Where the source goes, and who made it, when the attempt fails and another may follow.
    pub(crate) kept: Option<(KeptSources, usize)>,
}

impl SourceTask {
    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        let mut has_failed = false;
        let working = async {
            let worked = self.work().await;
            has_failed = matches!(worked, Err(Interrupt::Failed(_)));
            worked
        };
        let Err(interrupt) = context.guard(working).await else { return };
        tracing::debug!(task = context.name, ?interrupt, "source task is winding down");
        self.gauges.show(self.context.subtask, self.source.metrics());
        // A source that has failed itself, of a lost lock for example, has nothing to go on with.
        if !has_failed && !self.is_in_call && self.is_kept().await {
            if let Some((kept, maker)) = self.kept {
                kept.put(context.subtask, maker, self.source, context.close_deadline);
            }
            return;
        }
        if self.is_in_call {
            return;
        }
        // The attempt has failed; what matters is that records go back to the group soon, not how the call ends.
        match context.clock.timeout(context.close_deadline, self.source.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(task = context.name, %error, "source did not close cleanly"),
            Err(_elapsed) => tracing::warn!(task = context.name, "source did not close in time"),
        }
    }

    /// Makes the source ready to be kept, if it may and can be.
    async fn is_kept(&mut self) -> bool {
        if !self.kept.as_ref().is_some_and(|(kept, _)| kept.is_allowed()) {
            return false;
        }
        let (commands, source) = (&mut self.commands, &mut self.source);
        let keeping = async {
            // What was said before the end, and would have been heard next. A barrier is not: nobody waits for it.
            while let Ok(command) = commands.try_recv() {
                match command {
                    SourceCommand::Deferred(checkpoint, offsets) => {
                        source.deferred(checkpoint, &offsets).await?;
                    }
                    SourceCommand::GiveBack(checkpoint, offsets) => {
                        source.give_back(checkpoint, &offsets).await?;
                    }
                    SourceCommand::Committed(checkpoint) => source.committed(checkpoint).await?,
                    SourceCommand::Barrier(_) | SourceCommand::StopAcquiring | SourceCommand::Close => {}
                }
            }
            source.keep().await
        };
        match self.context.clock.timeout(self.context.close_deadline, keeping).await {
            Ok(Ok(is_kept)) => is_kept,
            Ok(Err(error)) => {
                tracing::debug!(task = self.context.name, %error, "the source cannot be kept");
                false
            }
            Err(_elapsed) => {
                // It was interrupted in a call.
                self.is_in_call = true;
                false
            }
        }
    }

    async fn work(&mut self) -> Result<(), Interrupt> {
        let clock = self.context.clock.clone();
        loop {
            let maintain_at = self.source.maintain_at();
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    let command = command.ok_or(Interrupt::NeighbourGone)?;
                    if command == SourceCommand::Close {
                        return self.close().await;
                    }
                    let obeyed = self.obey(command).await;
                    self.gauges.show(self.context.subtask, self.source.metrics());
                    obeyed?;
                }
                event = self.source.next(), if self.may_hand_on() => {
                    let event = event?;
                    self.hand_on(event).await?;
                    if self.is_stopping {
                        self.stopped().await?;
                    }
                    // A source that always has more must not keep its thread for ever.
                    tokio::task::consume_budget().await;
                }
                () = clock.sleep_until_any(maintain_at) => self.source.maintain().await?,
            }
        }
    }

    /// False while the epoch is full. Its barrier is due then, and is sent as soon as an epoch may be closed; with slow
    /// commits what is handed on meanwhile would have no bound but the lock windows. A drain hands on what it must.
    fn may_hand_on(&self) -> bool {
        self.is_acquiring && (self.is_stopping || self.epoch_bytes < self.epoch_bytes_max)
    }

    async fn hand_on(&mut self, event: SourceEvent) -> Result<(), Interrupt> {
        let in_flight = self.source.in_flight();
        self.epoch_bytes = in_flight.byte_count;
        if self.gauges.metrics_due(self.context.subtask, self.context.clock.now()) {
            self.gauges.show(self.context.subtask, self.source.metrics());
        }
        match event {
            SourceEvent::Records { rows, rejected } => {
                if let (Some(reader), Some(rows)) = (self.event_time, &rows) {
                    reader.read(rows, &mut self.times)?;
                }
                self.gauges.handed_on(self.context.subtask, in_flight, self.context.clock.now());
                let output = &mut self.output;
                let sending = async move {
                    if let Some(rejected) = rejected {
                        output.rejected(rejected).await?;
                    }
                    if let Some(rows) = rows {
                        output.rows(rows).await?;
                    }
                    Ok::<(), Interrupt>(())
                };
                maintained(self.source.as_mut(), &self.context.clock, sending).await?;
            }
            SourceEvent::Idle => self.gauges.idle(self.context.subtask, in_flight),
        }
        Ok(())
    }

    async fn obey(&mut self, command: SourceCommand) -> Result<(), Interrupt> {
        let subtask = self.context.subtask;
        match command {
            SourceCommand::Barrier(barrier) => {
                let checkpoint = barrier.checkpoint;
                self.is_in_call = true;
                let report = self.source.barrier(checkpoint).await;
                self.is_in_call = false;
                let mut report = report?;
                report.event_times.append(&mut self.times.take());
                self.output.barrier(barrier).await?;
                let in_flight = self.source.in_flight();
                self.epoch_bytes = in_flight.byte_count;
                self.gauges.barrier(subtask, in_flight);
                self.context.tell(TaskEvent::SourceAcked { subtask, checkpoint, report }).await
            }
            SourceCommand::Deferred(checkpoint, offsets) => {
                self.is_in_call = true;
                let told = self.source.deferred(checkpoint, &offsets).await;
                self.is_in_call = false;
                told?;
                self.gauges.refresh(subtask, self.source.in_flight());
                Ok(())
            }
            SourceCommand::GiveBack(checkpoint, offsets) => {
                self.is_in_call = true;
                let told = self.source.give_back(checkpoint, &offsets).await;
                self.is_in_call = false;
                told?;
                self.gauges.refresh(subtask, self.source.in_flight());
                Ok(())
            }
            SourceCommand::Committed(checkpoint) => {
                self.is_in_call = true;
                let told = self.source.committed(checkpoint).await;
                self.is_in_call = false;
                told?;
                self.gauges.refresh(subtask, self.source.in_flight());
                Ok(())
            }
            SourceCommand::StopAcquiring => {
                self.is_in_call = true;
                let told = self.source.stop_acquiring().await;
                self.is_in_call = false;
                told?;
                self.is_stopping = true;
                self.stopped().await
            }
            // Handled by the loop, which it ends.
            SourceCommand::Close => Ok(()),
        }
    }

    /// Says that nothing more is acquired, once nothing is left to hand on.
    async fn stopped(&mut self) -> Result<(), Interrupt> {
        let subtask = self.context.subtask;
        self.is_acquiring = self.source.has_rest();
        if self.is_acquiring {
            return Ok(());
        }
        self.is_stopping = false;
        self.gauges.idle(subtask, self.source.in_flight());
        self.context.tell(TaskEvent::SourceStopped { subtask }).await
    }

    /// Ends the stream first: sinks close while the source leaves the group.
    async fn close(&mut self) -> Result<(), Interrupt> {
        self.is_in_call = true;
        self.output.end().await?;
        Ok(self.source.close().await?)
    }
}
