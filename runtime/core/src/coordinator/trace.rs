//! The trace of one checkpoint: a span from its barrier to its commit, and the times of its steps.
//!
//! The span `checkpoint` has the fields `job`, `checkpoint_id`, `reason`, and once they are known `records_in`,
//! `rows_out`, `dead_letters`, `filtered`, `payload_bytes` and `result`. Each step is an event in it, with `step` and
//! `duration_ms`; what clients of the brokers log while they commit is in it, too.

use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::{Clock, Instant};
use tracing::Span;
use tracing::field::Empty;

use super::pending_checkpoint::EpochCounts;
use crate::graph::JobId;
use crate::metrics::CheckpointStep;

/// Span and step times of one checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    span: Span,
    reason: &'static str,
    /// When the last source and operator had passed the barrier on.
    aligned_at: Option<Instant>,
    steps: Steps,
}

impl Default for Trace {
    /// A trace that nobody sees.
    fn default() -> Self {
        Trace { span: Span::none(), reason: "", aligned_at: None, steps: Steps::default() }
    }
}

/// Times of steps, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Vec<(CheckpointStep, Duration)>);

impl Steps {
    /// Notes how long a step took, as an event in the span that is entered.
    pub(crate) fn took(&mut self, step: CheckpointStep, took: Duration) {
        step_event(step, took);
        self.0.push((step, took));
    }

    /// Runs one step and notes its time. A step that fails has no time: its error says what happened.
    pub(crate) async fn time<T, E>(
        &mut self,
        step: CheckpointStep,
        clock: &Clock,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let started_at = clock.now();
        let done = work.await?;
        self.took(step, clock.now().duration_since(started_at));
        Ok(done)
    }
}

/// The event of a step.
pub(crate) fn step_event(step: CheckpointStep, took: Duration) {
    tracing::debug!(step = step.name(), duration_ms = took.as_secs_f64() * 1e3, "checkpoint step");
}

impl Trace {
    /// Begins with the barrier of `checkpoint`, sent for `reason`.
    pub(crate) fn begin(job: &JobId, checkpoint: CheckpointId, reason: &'static str) -> Self {
        let span = tracing::info_span!(
            "checkpoint",
            %job,
            checkpoint_id = %checkpoint,
            reason,
            records_in = Empty,
            rows_out = Empty,
            dead_letters = Empty,
            filtered = Empty,
            payload_bytes = Empty,
            result = Empty,
        );
        Trace { span, reason, ..Trace::default() }
    }

    /// The span, for work that belongs to the checkpoint.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Why the barrier was sent.
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    /// Every source and operator has passed the barrier on; only the first call counts.
    pub(crate) fn aligned(&mut self, triggered_at: Instant, now: Instant) {
        if self.aligned_at.is_none() {
            self.aligned_at = Some(now);
            self.step(CheckpointStep::Align, now.duration_since(triggered_at));
        }
    }

    /// The last sink has acknowledged, and these are the counts.
    pub(crate) fn sealed(&mut self, now: Instant, counts: &EpochCounts) {
        let flush = self.aligned_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        self.step(CheckpointStep::Flush, flush);
        self.span.record("records_in", counts.records_in);
        self.span.record("rows_out", counts.rows_out);
        self.span.record("dead_letters", counts.dead_letters);
        self.span.record("filtered", counts.filtered);
        self.span.record("payload_bytes", counts.payload_bytes);
    }

    /// How it ended: `committed`, `discarded` or `failed`.
    pub(crate) fn ended(&self, result: &'static str) {
        self.span.record("result", result);
    }

    /// The times of these and of `later` steps.
    pub(crate) fn into_steps(self, later: Steps) -> Vec<(CheckpointStep, Duration)> {
        let Steps(mut steps) = self.steps;
        steps.extend(later.0);
        steps
    }

    fn step(&mut self, step: CheckpointStep, took: Duration) {
        self.span.in_scope(|| self.steps.took(step, took));
    }
}
