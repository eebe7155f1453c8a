//! What every task has: its name, the clock, the way to the coordinator, and the token that ends it.

use std::future::Future;
use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Clock};
use tokio::sync::mpsc;

use crate::channel::ReceiverGone;
use crate::decision::Decisions;
use crate::error::Error;
use crate::sink::SinkReport;
use crate::source::SourceReport;
use crate::state::StateReport;

/// What tasks tell the coordinator.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// A source closed the epoch and has sent its barrier on.
    SourceAcked { subtask: usize, checkpoint: CheckpointId, report: SourceReport },
    /// A source gave back what it had not handed on and acquires nothing more.
    SourceStopped { subtask: usize },
    /// An operator subtask (they are numbered through, over all stages) has passed the barrier on.
    OperatorAcked { subtask: usize, checkpoint: CheckpointId, report: OperatorReport },
    /// A sink has flushed the epoch.
    SinkAcked { subtask: usize, checkpoint: CheckpointId, report: SinkReport },
    /// The task failed and is winding down.
    Failed { task: String, error: Error },
}

/// What an operator subtask reports with a barrier.
#[derive(Debug, Default)]
pub(crate) struct OperatorReport {
    /// Rows that it dropped since the last one.
    pub(crate) filtered_count: u64,
    /// Offsets that it still works on: they belong to a later checkpoint.
    pub(crate) deferred: Decisions,
    /// Where the state is, of one that keeps any.
    pub(crate) state: Option<StateReport>,
}

/// Why the loop of a task ended before its time.
#[derive(Debug)]
pub(crate) enum Interrupt {
    Failed(Error),
    /// The channel to or from a neighbour ended: the neighbour has failed and says why itself.
    NeighbourGone,
    Cancelled,
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Interrupt::Failed(error)
    }
}

impl From<ReceiverGone> for Interrupt {
    fn from(ReceiverGone: ReceiverGone) -> Self {
        Interrupt::NeighbourGone
    }
}

/// What every task has.
#[derive(Clone, Debug)]
pub(crate) struct TaskContext {
    pub(crate) name: String,
    pub(crate) subtask: usize,
    pub(crate) clock: Clock,
    pub(crate) cancel: CancellationToken,
    pub(crate) events: mpsc::Sender<TaskEvent>,
    pub(crate) close_deadline: Duration,
}

impl TaskContext {
    /// Tells the coordinator. It always reads, so this waits only for a moment.
    pub(crate) async fn tell(&self, event: TaskEvent) -> Result<(), Interrupt> {
        self.events.send(event).await.map_err(|_| Interrupt::NeighbourGone)
    }

    /// Runs the loop of the task until it ends or the task is cancelled, and reports a failure.
    pub(crate) async fn guard(
        &self,
        work: impl Future<Output = Result<(), Interrupt>>,
    ) -> Result<(), Interrupt> {
        let result = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Interrupt::Cancelled),
            result = work => result,
        };
        match result {
            Ok(()) => Ok(()),
            Err(Interrupt::Failed(error)) => {
                self.tell(TaskEvent::Failed { task: self.name.clone(), error: error.within(&self.name) })
                    .await?;
                Err(Interrupt::Cancelled)
            }
            Err(Interrupt::NeighbourGone) => {
                self.cancel.cancelled().await;
                Err(Interrupt::Cancelled)
            }
            Err(Interrupt::Cancelled) => Err(Interrupt::Cancelled),
        }
    }
}
