//! The drain: sources stop, a last checkpoint takes what was handed on, then the stream ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::job::Coordinator;
use crate::error::Result;
use crate::status::JobState;
use crate::task::source::SourceCommand;

/// Where the attempt is.
///
/// ```text
/// running --drain--> stopping --every source stopped--> last checkpoint --all settled--> closing --all tasks ended
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    Running,
    /// Sources that have not stopped acquiring yet.
    Stopping(BTreeSet<usize>),
    LastCheckpoint,
    Closing,
}

impl Coordinator {
    pub(super) fn begin_drain(&mut self) -> Result<()> {
        tracing::info!(job = %self.id, "draining: a last checkpoint, then the end");
        self.control.set_state(JobState::Draining);
        self.drain_deadline = Some(self.tools.clock.now() + self.options.drain_deadline);
        self.stage = Stage::Stopping((0..self.running.commands.len()).collect());
        self.command(&SourceCommand::StopAcquiring)
    }

    /// Moves a drain on; true when every task has ended.
    pub(super) fn advance_drain(&mut self) -> Result<bool> {
        if matches!(&self.stage, Stage::Stopping(waiting) if waiting.is_empty()) {
            self.stage = Stage::LastCheckpoint;
        }
        match &self.stage {
            Stage::Running | Stage::Stopping(_) => Ok(false),
            Stage::LastCheckpoint => {
                let load = self.running.gauges.load();
                // Calls that end behind the last barrier have no epoch that could take them: they were given back.
                let has_rest = !self.line.is_over() && (load.oldest_at.is_some() || load.has_calls);
                if self.pending.is_none() && self.line.is_quiet() && !self.seat.is_busy() && !has_rest {
                    self.stage = Stage::Closing;
                    self.command(&SourceCommand::Close)?;
                }
                Ok(false)
            }
            Stage::Closing => Ok(self.running.tasks.is_empty()),
        }
    }

    pub(super) fn is_drain_overdue(&self) -> bool {
        self.drain_deadline.is_some_and(|deadline| self.tools.clock.now() >= deadline)
    }

    /// Time that is left of a drain, or a bound for closing when none was asked for.
    pub(super) fn time_to_close(&self) -> Duration {
        let now = self.tools.clock.now();
        self.drain_deadline.map_or(self.options.close_deadline, |deadline| deadline.duration_since(now))
    }
}
