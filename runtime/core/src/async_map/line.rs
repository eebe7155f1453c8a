//! The rows that an [`AsyncMap`](super::AsyncMap) works on: which may be called now, which wait, which are done.
//!
//! ```text
//! waiting --start--> running --answered--> done --(in order, or at once)--> taken
//!    ^                  |  failed for now    ^
//!    |                  v                    |
//!    +--pause over-- backoff -- `park_after` is over: parked (running, too)
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

/// What a call returned.
pub(crate) type CallResult = std::result::Result<AsyncOutcome, CallError>;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// It returned, or took longer than a call may.
    Returned(CallResult),
    /// It ran when the time came to park its row ([`Start::park_at`]), and was dropped.
    Overdue,
}

/// A call that is to be started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) number: u64,
    pub(crate) row: AsyncRow,
    /// When the call is to be dropped, if it still runs then.
    pub(crate) park_at: Option<Instant>,
}

/// What becomes of a row that is done.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// What the function said, or what follows from its failures.
    Outcome(AsyncOutcome),
    /// Its record is copied to the parking topic and accepted.
    Parked,
}

/// A row that is done.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) row: AsyncRow,
    pub(crate) fate: Fate,
}

#[derive(Debug)]
enum State {
    Waiting,
    Running,
    /// Until then.
    Backoff(Instant),
    Done(Fate),
}

#[derive(Debug)]
struct Entry {
    row: AsyncRow,
    /// How often the record was parked before.
    parked_count: u32,
    /// When the first call began.
    called_at: Option<Instant>,
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
    /// When rows in backoff are to be parked; early at worst.
    overdue: BTreeSet<(Instant, u64)>,
    /// When the circuit was closed again: what it held until then was not slow by itself.
    closed_at: Option<Instant>,
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
            overdue: BTreeSet::new(),
            closed_at: None,
            running_count: 0,
            done: Vec::new(),
            retry_count: 0,
        }
    }

    /// A row came from upstream, whose record was parked so often before.
    pub(crate) fn arrive(&mut self, row: AsyncRow, parked_count: u32, now: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let (called_at, failures, state) = (None, 0, State::Waiting);
        let entry = Entry { row, parked_count, called_at, failures, state, since: now };
        self.entries.insert(number, entry);
        self.waiting.push_back(number);
    }

    /// The next row to call for, if one may be called now. It is running from here on.
    pub(crate) fn start_next(&mut self, now: Instant) -> Option<Start> {
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
        entry.called_at.get_or_insert(now);
        let park_at = park_at(&self.options, self.closed_at, entry);
        if let Some(at) = park_at {
            self.overdue.remove(&(at, number));
        }
        self.running_count += 1;
        self.breaker.started();
        // A probe may take its time: a service that is slow, and not down, would never be seen to answer.
        let park_at = park_at.filter(|_| !self.breaker.is_holding());
        Some(Start { number, row: entry.row.clone(), park_at })
    }

    /// Parks the rows in backoff whose time is up, or gives them up where they were parked too often. Nothing while the
    /// circuit is open: then the records are not slow, the service is down. Errors: as [`Line::finished`].
    pub(crate) fn park_overdue(&mut self, now: Instant) -> Result<()> {
        while !self.breaker.is_holding()
            && let Some((at, number)) = self.overdue.first().copied().filter(|(at, _)| *at <= now)
        {
            self.overdue.remove(&(at, number));
            let Some(entry) = self.entries.get(&number) else { continue };
            let State::Backoff(until) = entry.state else { continue };
            match park_at(&self.options, self.closed_at, entry) {
                // The circuit was open meanwhile.
                Some(later) if later > now => {
                    self.overdue.insert((later, number));
                }
                Some(_) | None => {
                    self.backoffs.remove(&(until, number));
                    self.park(number)?;
                }
            }
        }
        Ok(())
    }

    /// Its time is up.
    fn park(&mut self, number: u64) -> Result<()> {
        let Some(entry) = self.entries.get(&number) else { return Ok(()) };
        let times = entry.parked_count;
        if times >= self.options.park_max {
            let error = CallError::transient(format!("no answer, and it was parked {times} times"));
            return self.give_up(number, &error, "the call takes too long");
        }
        self.finish(number, Fate::Parked)
    }

    /// A call ended. Where the service answers nothing, overdue calls are its failures, too. `jitter` changes a pause a little, so that retries spread. Errors: `Retry`, the record is given up
    /// and [`OnExhausted::Fail`] is set; `Bug`, nothing ran under that number.
    pub(crate) fn finished(
        &mut self,
        number: u64,
        end: CallEnd,
        now: Instant,
        jitter: impl FnOnce(Duration) -> Duration,
    ) -> Result<()> {
        let entry = match self.entries.get_mut(&number) {
            Some(entry) if matches!(entry.state, State::Running) => entry,
            Some(_) | None => return Err(Error::new(ErrorKind::Bug, "a call ended that did not run")),
        };
        self.running_count -= 1;
        let park_at = park_at(&self.options, self.closed_at, entry);
        let (error, is_overdue) = match end {
            CallEnd::Returned(Ok(outcome)) => {
                self.answered(now);
                return self.finish(number, Fate::Outcome(outcome));
            }
            CallEnd::Returned(Err(error)) if !error.is_transient() => {
                self.answered(now);
                return self.give_up(number, &error, "the call cannot succeed");
            }
            CallEnd::Returned(Err(error)) => (error, false),
            CallEnd::Overdue => (CallError::transient("no answer in time"), true),
        };
        if self.breaker.failed(now) {
            tracing::warn!(%error, "everything fails: calls are held, one record probes");
        }
        if is_overdue && !self.breaker.is_holding() && park_at.is_some_and(|at| at <= now) {
            return self.park(number);
        }
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(()) };
        // While the circuit is open nothing is given up: the record is not at fault.
        if !self.breaker.is_holding() && !is_overdue {
            entry.failures += 1;
            if entry.failures >= self.options.attempts_max {
                let failures = entry.failures;
                return self.give_up(number, &error, &format!("{failures} calls failed"));
            }
        }
        let pause = self.options.pause_after(entry.failures.max(1)).max(error.pause().unwrap_or_default());
        let until = now + jitter(pause);
        entry.state = State::Backoff(until);
        self.backoffs.insert((until, number));
        if let Some(at) = park_at {
            self.overdue.insert((at, number));
        }
        Ok(())
    }

    fn answered(&mut self, now: Instant) {
        if self.breaker.is_holding() {
            self.closed_at = Some(now);
        }
        self.breaker.answered();
    }

    fn give_up(&mut self, number: u64, error: &CallError, why: &str) -> Result<()> {
        match self.options.on_exhausted {
            OnExhausted::Reject => {
                self.finish(number, Fate::Outcome(AsyncOutcome::Reject(format!("{why}: {error}"))))
            }
            OnExhausted::Fail => {
                let key = self.entries.get(&number).map(|entry| entry.row.idempotency_key()).transpose()?;
                let context = format!("record {}: {why}: {error}", key.unwrap_or_default());
                Err(Error::new(ErrorKind::Retry, context))
            }
        }
    }

    fn finish(&mut self, number: u64, fate: Fate) -> Result<()> {
        if !self.options.is_ordered {
            if let Some(Entry { row, .. }) = self.entries.remove(&number) {
                self.done.push(Done { row, fate });
            }
            return Ok(());
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.state = State::Done(fate);
        }
        while let Some(first) = self.entries.first_entry() {
            if !matches!(first.get().state, State::Done(_)) {
                break;
            }
            let Entry { row, state, .. } = first.remove();
            if let State::Done(fate) = state {
                self.done.push(Done { row, fate });
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
        self.overdue.clear();
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

    /// When something may be started that may not be started now, were there room, or is to be parked.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let parks_at = self.overdue.first().map(|(at, _)| *at).filter(|_| !self.breaker.is_holding());
        [self.starts_at(), parks_at].into_iter().flatten().min()
    }

    fn starts_at(&self) -> Option<Instant> {
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

/// When the row of `entry` is to be parked: so long after its first call began, or after the circuit was closed.
fn park_at(options: &AsyncMapOptions, closed_at: Option<Instant>, entry: &Entry) -> Option<Instant> {
    let (after, called_at) = (options.park_after(entry.parked_count)?, entry.called_at?);
    Some(closed_at.map_or(called_at, |closed_at| closed_at.max(called_at)) + after)
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
