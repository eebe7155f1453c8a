//! What happened in a run: a rolling hash of everything, and, when asked for, the events themselves.
//!
//! Two runs with one hash took the same steps at the same virtual times: every poll of every task, every chunk on
//! every connection, every fault and every call of the store is part of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sharestream_base::{Clock, Instant};

/// One event of a recorded run.
#[derive(Clone, Debug)]
pub struct Event {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// What happened.
    pub what: What,
}

/// What an [`Event`] is about.
#[derive(Clone, Debug)]
pub enum What {
    /// The harness did something: a fault, a start, a phase.
    Note(String),
    /// Bytes were written to a connection.
    Sent {
        /// Number of the connection.
        connection: u64,
        /// Writing host.
        from: Arc<str>,
        /// Reading host.
        to: Arc<str>,
        /// True when the writer opened the connection: requests go this way, answers the other.
        by_opener: bool,
        /// What was written.
        bytes: Bytes,
    },
    /// A connection ended, for whatever reason.
    Closed {
        /// Its number.
        connection: u64,
    },
}

#[derive(Debug)]
struct State {
    hash: DefaultHasher,
    polls: u64,
    chunks: u64,
    bytes: u64,
    events: Option<Vec<Event>>,
}

/// Collects events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trace {
    clock: Clock,
    started_at: Instant,
    state: Arc<Mutex<State>>,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Hash of everything.
    pub hash: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Chunks written to connections.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Trace {
    /// An empty trace that begins now. With `recording`, events are kept and not only hashed.
    pub fn new(clock: &Clock, recording: bool) -> Self {
        let state = State {
            hash: DefaultHasher::new(),
            polls: 0,
            chunks: 0,
            bytes: 0,
            events: recording.then(Vec::new),
        };
        Trace { clock: clock.clone(), started_at: clock.now(), state: Arc::new(Mutex::new(state)) }
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().duration_since(self.started_at)
    }

    /// The harness did something.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        self.push(|hash| text.hash(hash), || What::Note(text.clone()));
    }

    /// A task of `process` is polled.
    pub(crate) fn poll(&self, process: u64, task: u64) {
        let at = self.elapsed();
        let mut state = self.lock();
        state.polls += 1;
        (at, process, task).hash(&mut state.hash);
    }

    /// Bytes go to a connection.
    pub(crate) fn sent(
        &self,
        connection: u64,
        from: &Arc<str>,
        to: &Arc<str>,
        by_opener: bool,
        bytes: &Bytes,
    ) {
        {
            let mut state = self.lock();
            state.chunks += 1;
            state.bytes += bytes.len() as u64;
        }
        self.push(
            |hash| (connection, by_opener, &bytes[..]).hash(hash),
            || What::Sent {
                connection,
                from: Arc::clone(from),
                to: Arc::clone(to),
                by_opener,
                bytes: bytes.clone(),
            },
        );
    }

    /// A connection ends.
    pub(crate) fn closed(&self, connection: u64) {
        self.push(|hash| ("closed", connection).hash(hash), || What::Closed { connection });
    }

    /// Hash and counts so far.
    pub fn totals(&self) -> Totals {
        let state = self.lock();
        Totals { hash: state.hash.finish(), polls: state.polls, chunks: state.chunks, bytes: state.bytes }
    }

    /// The recorded events; empty when nothing was recorded.
    pub fn take_events(&self) -> Vec<Event> {
        self.lock().events.replace(Vec::new()).unwrap_or_default()
    }

    fn push(&self, hash: impl FnOnce(&mut DefaultHasher), what: impl FnOnce() -> What) {
        let at = self.elapsed();
        let mut state = self.lock();
        at.hash(&mut state.hash);
        hash(&mut state.hash);
        if let Some(events) = &mut state.events {
            events.push(Event { at, what: what() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
