//! The rows that an [`AsyncMap`](super::AsyncMap) works on: which may be called now, which wait, which are done.
//!
//! ```text
//! waiting --start--> running --answered--> done --(in order, or at once)--> taken
//!    ^                  |  failed for now
//!    |                  v
//!    +--pause over-- backoff
//! ```
//!
//! Pure: the task that owns it starts the calls and brings their results. Waiting rows and rows in backoff run nothing;
//! `concurrency` bounds the running ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sharestream_base::Instant;

use super::breaker::Breaker;
use super::{AsyncMapOptions, AsyncOutcome, AsyncRow, CallError, OnExhausted};
use crate::ErrorKind;
use crate::error::{Error, Result};

/// What a call ended with.
pub(crate) type CallResult = std::result::Result<AsyncOutcome, CallError>;

/// A row that is done.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) row: AsyncRow,
    pub(crate) outcome: AsyncOutcome,
}

#[derive(Debug)]
enum State {
    Waiting,
    Running,
    Backoff,
    Done(AsyncOutcome),
}

#[derive(Debug)]
struct Entry {
    row: AsyncRow,
    /// Calls that failed while the circuit was closed.
    failures: u32,
    state: State,
    since: Instant,
}

/// The rows of one subtask.
#[derive(Debug)]
pub(crate) struct Line {
    options: AsyncMapOptions,
    breaker: Breaker,
    /// By arrival.
    entries: BTreeMap<u64, Entry>,
    next_number: u64,
    waiting: VecDeque<u64>,
    backoffs: BTreeSet<(Instant, u64)>,
    running_count: usize,
    done: Vec<Done>,
    retry_count: u64,
}

impl Line {
    pub(crate) fn new(options: AsyncMapOptions) -> Self {
        Line {
            breaker: Breaker::new(options.holds_after_failures, options.probe_interval),
            options,
            entries: BTreeMap::new(),
            next_number: 0,
            waiting: VecDeque::new(),
            backoffs: BTreeSet::new(),
            running_count: 0,
            done: Vec::new(),
            retry_count: 0,
        }
    }

    /// A row came from upstream.
    pub(crate) fn arrive(&mut self, row: AsyncRow, now: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        self.entries.insert(number, Entry { row, failures: 0, state: State::Waiting, since: now });
        self.waiting.push_back(number);
    }

    /// The next row to call for, if one may be called now. It is running from here on.
    pub(crate) fn start_next(&mut self, now: Instant) -> Option<(u64, AsyncRow)> {
        if self.running_count >= self.options.concurrency || !self.breaker.may_call(now) {
            return None;
        }
        let due = self.backoffs.first().filter(|(at, _)| *at <= now).copied();
        // A probe takes a fresh row where there is one: the row that failed may be what fails.
        let number = match due {
            Some(due) if !self.breaker.is_holding() || self.waiting.is_empty() => {
                self.backoffs.remove(&due);
                self.retry_count += 1;
                due.1
            }
            Some(_) | None => self.waiting.pop_front()?,
        };
        let entry = self.entries.get_mut(&number)?;
        entry.state = State::Running;
        self.running_count += 1;
        self.breaker.started();
        Some((number, entry.row.clone()))
    }

    /// A call ended. `jitter` changes a pause a little, so that retries spread. Errors: `Retry`, the record is given up
    /// and [`OnExhausted::Fail`] is set; `Bug`, nothing ran under that number.
    pub(crate) fn finished(
        &mut self,
        number: u64,
        result: CallResult,
        now: Instant,
        jitter: impl FnOnce(Duration) -> Duration,
    ) -> Result<()> {
        let entry = match self.entries.get_mut(&number) {
            Some(entry) if matches!(entry.state, State::Running) => entry,
            Some(_) | None => return Err(Error::new(ErrorKind::Bug, "a call ended that did not run")),
        };
        self.running_count -= 1;
        let error = match result {
            Ok(outcome) => {
                self.breaker.answered();
                return self.finish(number, outcome);
            }
            Err(error) if !error.is_transient() => {
                self.breaker.answered();
                return self.give_up(number, &error, "the call cannot succeed");
            }
            Err(error) => error,
        };
        if self.breaker.failed(now) {
            tracing::warn!(%error, "everything fails: calls are held, one record probes");
        }
        // While the circuit is open nothing is given up: the record is not at fault.
        if !self.breaker.is_holding() {
            entry.failures += 1;
            if entry.failures >= self.options.attempts_max {
                let failures = entry.failures;
                return self.give_up(number, &error, &format!("{failures} calls failed"));
            }
        }
        let pause = self.options.pause_after(entry.failures.max(1)).max(error.pause().unwrap_or_default());
        entry.state = State::Backoff;
        self.backoffs.insert((now + jitter(pause), number));
        Ok(())
    }

    fn give_up(&mut self, number: u64, error: &CallError, why: &str) -> Result<()> {
        match self.options.on_exhausted {
            OnExhausted::Reject => self.finish(number, AsyncOutcome::Reject(format!("{why}: {error}"))),
            OnExhausted::Fail => {
                let key = self.entries.get(&number).map(|entry| entry.row.idempotency_key()).transpose()?;
                let context = format!("record {}: {why}: {error}", key.unwrap_or_default());
                Err(Error::new(ErrorKind::Retry, context))
            }
        }
    }

    fn finish(&mut self, number: u64, outcome: AsyncOutcome) -> Result<()> {
        if !self.options.is_ordered {
            if let Some(Entry { row, .. }) = self.entries.remove(&number) {
                self.done.push(Done { row, outcome });
            }
            return Ok(());
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.state = State::Done(outcome);
        }
        while let Some(first) = self.entries.first_entry() {
            if !matches!(first.get().state, State::Done(_)) {
                break;
            }
            let Entry { row, state, .. } = first.remove();
            if let State::Done(outcome) = state {
                self.done.push(Done { row, outcome });
            }
        }
        Ok(())
    }

    /// Takes what may leave, at most `max` rows.
    pub(crate) fn take_done(&mut self, max: usize) -> Vec<Done> {
        let count = self.done.len().min(max);
        self.done.drain(..count).collect()
    }

    /// Forgets every row: they were deferred by the last barrier, and go back to the group.
    pub(crate) fn forget_all(&mut self) {
        self.entries.clear();
        self.waiting.clear();
        self.backoffs.clear();
        self.done.clear();
        self.running_count = 0;
    }

    /// Number of rows that may leave.
    pub(crate) fn done_count(&self) -> usize {
        self.done.len()
    }

    /// The rows that have not left: deferred, when a barrier passes now.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = &AsyncRow> {
        self.done.iter().map(|done| &done.row).chain(self.entries.values().map(|entry| &entry.row))
    }

    /// Number of rows that have not left.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.done.len()
    }

    /// True when another batch may come from upstream.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.options.rows_max
    }

    /// When something may be started that may not be started now, were there room.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.running_count >= self.options.concurrency {
            return None;
        }
        let probe_at = self.breaker.probe_at();
        let backoff = self.backoffs.first().map(|(at, _)| *at);
        match (probe_at, backoff) {
            (Some(probe_at), _) if !self.waiting.is_empty() => Some(probe_at),
            (Some(probe_at), Some(backoff)) => Some(probe_at.max(backoff)),
            (Some(_), None) => None,
            // A probe is on its way: its end says more.
            (None, _) if self.breaker.is_holding() => None,
            (None, backoff) => backoff,
        }
    }

    /// What the status shows.
    pub(crate) fn load(&self) -> LineLoad<'_> {
        LineLoad {
            running_count: self.running_count,
            waiting_count: self.waiting.len() + self.backoffs.len(),
            retry_count: self.retry_count,
            is_holding: self.breaker.is_holding(),
            is_saturated: self.running_count >= self.options.concurrency,
            oldest: self.entries.values().next().map(|entry| (&entry.row, entry.since)),
        }
    }
}

/// What an [`AsyncMap`](super::AsyncMap) has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineLoad<'a> {
    pub(crate) running_count: usize,
    pub(crate) waiting_count: usize,
    /// Calls that were repeated, since the line was made.
    pub(crate) retry_count: u64,
    /// The circuit is open.
    pub(crate) is_holding: bool,
    /// As many calls run as may.
    pub(crate) is_saturated: bool,
    /// The row that came first of those that are not done, and when it came.
    pub(crate) oldest: Option<(&'a AsyncRow, Instant)>,
}

#[cfg(test)]
mod tests;
