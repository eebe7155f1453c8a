//! The loop of a subtask that calls out.

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use sharestream_base::ids::CheckpointId;
use sharestream_base::{Instant, Rng, watch};
use std::sync::Arc;
use tokio::task::coop::unconstrained;

use super::context::{Interrupt, OperatorReport, TaskContext, TaskEvent};
use super::gauges::Gauges;
use super::inputs::{Input, Inputs};
use super::output::Output;
use crate::ErrorKind;
use crate::async_map::{
    Assembler, AsyncFunction, AsyncRow, BarrierRule, CallEnd, CallError, Line, Start, deferred,
};
use crate::coordinates::Coordinates;
use crate::element::Barrier;
use crate::error::Error;

/// A subtask that calls out, and what it needs.
pub(crate) struct AsyncMapTask {
    pub(crate) context: TaskContext,
    pub(crate) function: Arc<dyn AsyncFunction>,
    pub(crate) timeout: std::time::Duration,
    pub(crate) rule: BarrierRule,
    pub(crate) line: Line,
    pub(crate) assembler: Assembler,
    pub(crate) inputs: Inputs,
    pub(crate) output: Output,
    /// The newest barrier that was sent: until it has come, upstream is read whatever is waiting here.
    pub(crate) barrier_sent: watch::Receiver<CheckpointId>,
    /// The last barrier that has passed.
    pub(crate) passed: CheckpointId,
    pub(crate) gauges: Arc<Gauges>,
    /// Its number among the subtasks that call out.
    pub(crate) gauge: usize,
    pub(crate) rng: Rng,
    pub(crate) calls: FuturesUnordered<BoxFuture<'static, (u64, CallEnd)>>,
    /// Rows that were dropped since the last barrier.
    pub(crate) filtered_count: u64,
}

/// Rows that leave together, at most.
const ROWS_OUT_MAX: usize = 1_024;
/// Ends of calls that are taken in one go, at most: a good quarter of a millisecond of the reactor's time.
const ENDS_MAX: usize = 256;
/// Of the wait for a pause that is spread: a fifth either way.
const JITTER: f64 = 0.2;

/// What woke the loop.
enum Wake {
    Call((u64, CallEnd)),
    Input(Input),
    /// Time for a retry, or a barrier was sent.
    Look,
}

impl AsyncMapTask {
    pub(crate) async fn run(mut self) {
        let context = self.context.clone();
        if let Err(interrupt) = context.guard(self.work()).await {
            tracing::debug!(task = context.name, ?interrupt, "async map task is winding down");
        }
    }

    async fn work(&mut self) -> Result<(), Interrupt> {
        loop {
            self.start_calls(self.context.clock.now());
            self.park_overdue().await?;
            match self.wake().await? {
                Wake::Call(end) => self.take_ends(end).await?,
                Wake::Input(Input::Rows { rows, .. }) => self.arrive(rows)?,
                Wake::Input(Input::Rejected(rejected)) => self.output.rejected(rejected).await?,
                Wake::Input(Input::Parked(parked)) => self.output.parked(parked).await?,
                Wake::Input(Input::Barrier(barrier)) => self.barrier(barrier).await?,
                // What runs now was deferred by the last barrier: it is not ours to finish.
                Wake::Input(Input::End) => return self.output.end().await,
                Wake::Look => {}
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn wake(&mut self) -> Result<Wake, Interrupt> {
        let may_read = self.line.has_room() || *self.barrier_sent.borrow() > self.passed;
        let wake_at = self.line.wake_at();
        tokio::select! {
            biased;
            Some(end) = self.calls.next() => Ok(Wake::Call(end)),
            input = self.inputs.next(), if may_read => Ok(Wake::Input(input?)),
            sent = self.barrier_sent.changed(), if !may_read => {
                sent.map_err(|_coordinator_gone| Interrupt::NeighbourGone)?;
                Ok(Wake::Look)
            }
            () = self.context.clock.sleep_until_any(wake_at) => Ok(Wake::Look),
        }
    }

    fn arrive(&mut self, rows: arrow_array::RecordBatch) -> Result<(), Interrupt> {
        let hidden = Coordinates::of(&rows)?;
        if (0..rows.num_rows()).any(|row| hidden.is_derived(row)) {
            // Each call is known outside by its record: these would all be one.
            let context =
                "rows that come from state have no record to call for: put the calls in front of the state";
            return Err(Error::new(ErrorKind::InvalidInput, context).into());
        }
        let now = self.context.clock.now();
        let batch = Arc::new(rows);
        let hidden = Coordinates::of(&batch)?;
        for index in 0..batch.num_rows() {
            let parked_count = hidden.parked_copy(index)?.map_or(0, |copy| copy.times);
            self.line.arrive(AsyncRow::new(batch.clone(), index), parked_count, now);
        }
        self.show();
        Ok(())
    }

    /// Parks what waits for another call, and whose time is up.
    async fn park_overdue(&mut self) -> Result<(), Interrupt> {
        self.line.park_overdue(self.context.clock.now())?;
        if self.line.done_count() > 0 { self.hand_on().await } else { Ok(()) }
    }

    /// Starts as many calls as may run. Each is polled at once, so that its request is on its way now and not when all
    /// that is ready before it has had its turn; when it is polled the next time it learns whom to wake.
    fn start_calls(&mut self, now: Instant) {
        while let Some(Start { number, row, park_at }) = self.line.start_next(now) {
            let (function, clock, limit) = (self.function.clone(), self.context.clock.clone(), self.timeout);
            let left = park_at.map(|at| at.duration_since(now)).filter(|left| *left < limit);
            let mut call: BoxFuture<'static, (u64, CallEnd)> = Box::pin(async move {
                let end = match clock.timeout(left.unwrap_or(limit), function.call(row)).await {
                    Ok(result) => CallEnd::Returned(result),
                    Err(_elapsed) if left.is_some() => CallEnd::Overdue,
                    Err(_elapsed) => {
                        let error = CallError::transient(format!("no answer within {limit:?}"));
                        CallEnd::Returned(Err(error))
                    }
                };
                (number, end)
            });
            if let Some(end) = unconstrained(&mut call).now_or_never() {
                call = Box::pin(std::future::ready(end));
            }
            self.calls.push(call);
        }
    }

    /// Takes the end of one call, and of others that have ended by now, and hands on what may leave. [`ENDS_MAX`] is
    /// the bound here, not tokio's budget: that is used up after some forty ends, and batches would be as small.
    async fn take_ends(&mut self, end: (u64, CallEnd)) -> Result<(), Interrupt> {
        let now = self.context.clock.now();
        let mut next = Some(end);
        let mut end_count = 0;
        while let Some((number, end)) = next {
            let rng = &self.rng;
            self.line.finished(number, end, now, |pause| rng.jitter(pause, JITTER))?;
            self.start_calls(now);
            end_count += 1;
            if end_count == ENDS_MAX {
                break;
            }
            next = unconstrained(self.calls.next()).now_or_never().flatten();
        }
        self.hand_on().await
    }

    async fn hand_on(&mut self) -> Result<(), Interrupt> {
        while self.line.done_count() > 0 {
            let done = self.line.take_done(ROWS_OUT_MAX);
            let count = done.len() as u64;
            let assembled = self.assembler.assemble(done)?;
            self.filtered_count += assembled.dropped_count;
            self.gauges.called(self.gauge, count, self.context.clock.now());
            if let Some(rejected) = assembled.rejected {
                self.output.rejected(rejected).await?;
            }
            if let Some(parked) = assembled.parked {
                self.output.parked(parked).await?;
            }
            if let Some(rows) = assembled.rows {
                self.output.rows(rows).await?;
            }
        }
        self.show();
        Ok(())
    }

    async fn barrier(&mut self, barrier: Barrier) -> Result<(), Interrupt> {
        let waits_until = match self.rule {
            // The coordinator's deadline for barriers bounds it.
            BarrierRule::Wait => None,
            BarrierRule::Defer => Some(barrier.waits_until.unwrap_or_else(|| self.context.clock.now())),
        };
        self.finish_calls(waits_until).await?;
        self.hand_on().await?;
        let deferred = deferred(self.line.outstanding())?;
        let deferred_count = self.line.len() as u64;
        let filtered_count = std::mem::take(&mut self.filtered_count);
        let report = OperatorReport { filtered_count, deferred, state: None };
        self.passed = barrier.checkpoint;
        if barrier.waits_until.is_some() {
            // The last one: no epoch follows that could take a row, and the sink would wait for it for ever.
            self.calls.clear();
            self.line.forget_all();
            self.show();
        }
        self.gauges.call_barrier(self.gauge, deferred_count);
        let (subtask, checkpoint) = (self.context.subtask, barrier.checkpoint);
        self.output.barrier(barrier).await?;
        self.context.tell(TaskEvent::OperatorAcked { subtask, checkpoint, report }).await
    }

    /// Works on what is here, until nothing is left or `until` has come. Nothing is read from upstream: it belongs to
    /// the next epoch.
    async fn finish_calls(&mut self, until: Option<Instant>) -> Result<(), Interrupt> {
        while self.line.len() > 0 {
            self.start_calls(self.context.clock.now());
            self.park_overdue().await?;
            let wake_at = self.line.wake_at();
            let end = tokio::select! {
                biased;
                Some(end) = self.calls.next() => Some(end),
                () = self.context.clock.sleep_until_any(until) => return Ok(()),
                () = self.context.clock.sleep_until_any(wake_at) => None,
            };
            if let Some(end) = end {
                self.take_ends(end).await?;
            }
        }
        Ok(())
    }

    fn show(&self) {
        self.gauges.calls(self.gauge, &self.line.load());
    }
}
