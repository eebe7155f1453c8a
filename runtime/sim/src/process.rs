//! A simulated process: a gate that all of its tasks pass at each poll.
//!
//! ```text
//! running --pause--> paused --resume--> running
//!    |                  |
//!    \------ kill ------/--> dead (end)
//! ```
//! A paused process is one that was stopped by a signal, a debugger, a virtual machine or a garbage collector: its
//! timers expire, bytes arrive, and none of its code runs until it goes on, with stale beliefs. In a dead one no
//! line of code runs any more; its memory is dropped by the harness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sharestream_base::{Gate, Rng};

use crate::trace::Trace;

/// Of so many polls, one is put off to the end of the queue, so that tasks meet in other orders.
const POLLS_PER_YIELD: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    Dead,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    next_task: u64,
    waiting: BTreeMap<u64, Waker>,
    running: BTreeMap<u64, String>,
}

/// The gate of one process.
#[derive(Debug)]
pub struct ProcessGate {
    id: u64,
    yields: bool,
    rng: Rng,
    trace: Trace,
    state: Mutex<State>,
}

impl ProcessGate {
    /// A running process without tasks. `yields` shuffles its tasks by chance.
    pub fn new(id: u64, yields: bool, rng: Rng, trace: Trace) -> Arc<Self> {
        let state =
            State { mode: Mode::Running, next_task: 0, waiting: BTreeMap::new(), running: BTreeMap::new() };
        Arc::new(ProcessGate { id, yields, rng, trace, state: Mutex::new(state) })
    }

    /// Stops every task where it is.
    pub fn pause(&self) {
        let mut state = self.lock();
        if state.mode == Mode::Running {
            state.mode = Mode::Paused;
        }
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        let waiting = {
            let mut state = self.lock();
            if state.mode == Mode::Paused {
                state.mode = Mode::Running;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Ends the process between two lines of its code.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.mode = Mode::Dead;
        state.waiting.clear();
    }

    /// True after [`ProcessGate::kill`].
    pub fn is_dead(&self) -> bool {
        self.lock().mode == Mode::Dead
    }

    /// True between [`ProcessGate::pause`] and [`ProcessGate::resume`].
    pub fn is_paused(&self) -> bool {
        self.lock().mode == Mode::Paused
    }

    /// Names of the tasks that have not ended.
    pub fn tasks(&self) -> Vec<String> {
        self.lock().running.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for ProcessGate {
    fn enter(&self, name: &str) -> u64 {
        let mut state = self.lock();
        let task = state.next_task;
        state.next_task += 1;
        state.running.insert(task, name.to_owned());
        task
    }

    fn poll_ready(&self, task: u64, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.lock();
            match state.mode {
                Mode::Running => {}
                Mode::Paused => {
                    state.waiting.insert(task, cx.waker().clone());
                    return Poll::Pending;
                }
                Mode::Dead => return Poll::Pending,
            }
        }
        self.trace.poll(self.id, task);
        if self.yields && self.rng.below(POLLS_PER_YIELD) == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn leave(&self, task: u64) {
        let mut state = self.lock();
        state.running.remove(&task);
        state.waiting.remove(&task);
    }
}
