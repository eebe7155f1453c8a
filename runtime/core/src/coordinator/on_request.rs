//! Checkpoints on request: the way from the callers of [`JobControl::checkpoint`](crate::JobControl::checkpoint) to the
//! coordinator and back.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::{Instant, watch};

use super::event_time::LOOK_PAUSE;
use super::job::Coordinator;
use super::requests::{Answer, Requests};
use crate::controller::{Load, Reason, Trigger};
use crate::decision::{Decisions, all_of};

/// Pause between barriers that are sent only because somebody waits for calls to end.
const CALLS_PAUSE: Duration = Duration::from_millis(20);

/// The requests of one job, over all of its attempts.
#[derive(Debug)]
pub(crate) struct CheckpointRequests {
    requests: Mutex<Requests>,
    /// The number of the newest caller; wakes the coordinator.
    asked: watch::Sender<u64>,
    answered: watch::Sender<Answer>,
}

impl Default for CheckpointRequests {
    fn default() -> Self {
        CheckpointRequests {
            requests: Mutex::default(),
            asked: watch::Sender::new(0),
            answered: watch::Sender::new(Answer::default()),
        }
    }
}

impl CheckpointRequests {
    /// A new caller: its number, and where the answer will be. It may be there already.
    pub(crate) fn ask(&self) -> (u64, watch::Receiver<Answer>) {
        let answered = self.answered.subscribe();
        let mut requests = self.lock();
        let number = *self.asked.borrow() + 1;
        requests.ask(number);
        // Under the lock, so that no two callers take the same number.
        self.asked.send_replace(number);
        (number, answered)
    }

    /// Tells of new callers.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    pub(crate) fn start_attempt(&self, last_committed: Option<CheckpointId>) {
        self.answer(|requests| requests.start_attempt(last_committed));
    }

    pub(crate) fn barrier_sent(&self, checkpoint: CheckpointId) {
        self.lock().barrier_sent(checkpoint);
    }

    pub(crate) fn sealed(&self, checkpoint: CheckpointId, deferred: &Decisions) {
        self.lock().sealed(checkpoint, deferred);
    }

    pub(crate) fn settled(&self, checkpoint: CheckpointId, last_committed: Option<CheckpointId>) {
        self.answer(|requests| requests.settled(checkpoint, last_committed));
    }

    fn answer(&self, event: impl FnOnce(&mut Requests) -> Option<Answer>) {
        let answer = event(&mut self.lock());
        if let Some(answer) = answer {
            self.answered.send_replace(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        // Requests that a panic left behind are asked again by the next attempt.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coordinator {
    /// What the controller decides, or a barrier before that, for somebody who has asked for one.
    pub(super) fn trigger(&mut self, load: &Load, now: Instant) -> Trigger {
        let mut trigger = self.controller.decide(load, now);
        // Nothing is on its way that would bring a barrier: windows that are complete would wait for the next record.
        if let (Some(event_times), None) = (&mut self.event_times, load.oldest_at) {
            let is_news = event_times.look(now);
            trigger = match trigger {
                Trigger::Wait | Trigger::At(_) if is_news => return Trigger::Now(Reason::Watermark),
                Trigger::Wait => Trigger::At(now + LOOK_PAUSE),
                Trigger::At(at) => Trigger::At(at.min(now + LOOK_PAUSE)),
                Trigger::Now(_) => trigger,
            };
        }
        let (Some(oldest_at), Trigger::Wait | Trigger::At(_)) = (load.oldest_at, trigger) else {
            return trigger;
        };
        let requests = self.control.requests().lock();
        if requests.want_barrier() {
            return Trigger::Now(Reason::Request);
        }
        if !requests.want_calls() {
            return trigger;
        }
        let due = oldest_at + CALLS_PAUSE;
        match trigger {
            Trigger::Now(_) => trigger,
            Trigger::At(_) | Trigger::Wait if now >= due => Trigger::Now(Reason::Request),
            Trigger::At(at) => Trigger::At(at.min(due)),
            Trigger::Wait => Trigger::At(due),
        }
    }

    /// Answers requests that need no barrier: nothing was handed on since the last one.
    pub(super) fn answer_requests(&self) {
        if self.pending.is_some() {
            return;
        }
        self.control.requests().answer(|requests| {
            // Read under the lock: what was handed on before a caller asked is in the load.
            let load = requests.want_barrier().then(|| self.running.gauges.load())?;
            if load.oldest_at.is_some() {
                return None;
            }
            let (newest, carried) = (self.line.newest_sealed(), all_of(&self.carried));
            requests.nothing_to_send(newest, &carried, load.are_sources_dry, self.last_committed)
        });
    }
}
