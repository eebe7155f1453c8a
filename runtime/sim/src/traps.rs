//! Moments of the protocol at which a fault waits.
//!
//! A trap stops its process where it is, in the middle of what it does, and tells the harness: nothing of that process
//! happens between the moment and the fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_core::commit::CommitStep;
use tokio::sync::Notify;

use crate::network::Host;
use crate::plan::{Moment, Request, TimedFault};
use crate::process::ProcessGate;

/// Length field and api key: the first bytes of a request.
const HEAD_BYTES: usize = 6;

/// A fault that waits for its moment.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    /// The moment.
    pub(crate) moment: Moment,
    /// How long the process stands still.
    pub(crate) hold: Duration,
    /// What else happens.
    pub(crate) then: Vec<TimedFault>,
}

/// A trap that somebody ran into. The process stands still.
#[derive(Debug)]
pub(crate) struct Sprung {
    /// Who.
    pub(crate) host: Host,
    /// To whom it had sent a request, if that was the moment.
    pub(crate) to: Option<Host>,
    /// What holds it.
    pub(crate) gate: Arc<ProcessGate>,
    /// The trap.
    pub(crate) armed: Armed,
}

#[derive(Debug, Default)]
struct State {
    armed: Vec<Armed>,
    gates: BTreeMap<Host, Arc<ProcessGate>>,
    sprung: Vec<Sprung>,
}

/// All traps of a run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traps {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

impl Traps {
    /// The processes of `host` pass `gate` from now on.
    pub(crate) fn watch(&self, host: Host, gate: Arc<ProcessGate>) {
        self.lock().gates.insert(host, gate);
    }

    /// Arms a trap; it is sprung once.
    pub(crate) fn arm(&self, armed: Armed) {
        self.lock().armed.push(armed);
    }

    /// Takes all traps away.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.armed.clear();
        state.sprung.clear();
    }

    /// Traps that were sprung since the last call, in order.
    pub(crate) fn take_sprung(&self) -> Vec<Sprung> {
        std::mem::take(&mut self.lock().sprung)
    }

    /// Returns when a trap was sprung.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// A worker reached a step.
    pub(crate) fn at_step(&self, host: &Host, step: CommitStep) {
        self.meet(host, None, |moment| match moment {
            Moment::Step { worker, step: awaited } => *awaited == step && is_worker(host, *worker),
            Moment::WorkerSends { .. } | Moment::NodeSends { .. } => false,
        });
    }

    /// A host writes to a connection that it has opened.
    pub(crate) fn at_write(&self, from: &Host, to: &Host, bytes: &[u8]) {
        if self.lock().armed.is_empty() {
            return;
        }
        for api_key in api_keys(bytes) {
            let is_it = |request: &Request| {
                let holds = request.holds();
                let does_hold = || holds.is_empty() || bytes.windows(holds.len()).any(|part| part == holds);
                request.api_key() == api_key && does_hold()
            };
            self.meet(from, Some(to), |moment| match moment {
                Moment::Step { .. } => false,
                Moment::WorkerSends { worker, request } => is_it(request) && is_worker(from, *worker),
                Moment::NodeSends { request } => is_it(request) && from.starts_with("node-"),
            });
        }
    }

    fn meet(&self, host: &Host, to: Option<&Host>, is_it: impl Fn(&Moment) -> bool) {
        let mut state = self.lock();
        let Some(index) = state.armed.iter().position(|armed| is_it(&armed.moment)) else { return };
        let Some(gate) = state.gates.get(host).cloned() else { return };
        gate.pause();
        let armed = state.armed.remove(index);
        state.sprung.push(Sprung { host: Arc::clone(host), to: to.cloned(), gate, armed });
        self.news.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_worker(host: &Host, worker: usize) -> bool {
    host.strip_prefix("worker-")
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(index, _)| index.parse() == Ok(worker))
}

/// Keys of the requests that begin in `bytes`, provided that one begins at its start.
fn api_keys(mut bytes: &[u8]) -> Vec<i16> {
    let mut keys = Vec::new();
    while let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        let length = usize::try_from(i32::from_be_bytes([head[0], head[1], head[2], head[3]]));
        keys.push(i16::from_be_bytes([head[4], head[5]]));
        let Some(rest) = length.ok().and_then(|length| bytes.get(length.checked_add(4)?..)) else { break };
        bytes = rest;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(api_key: i16) -> Vec<u8> {
        let mut bytes = 4_i32.to_be_bytes().to_vec();
        bytes.extend(api_key.to_be_bytes());
        bytes.extend([0, 9]);
        bytes
    }

    #[test]
    fn every_request_of_a_write_is_seen_and_half_of_one_too() {
        let mut bytes = request(26);
        bytes.extend(request(22));
        assert_eq!(api_keys(&bytes), [26, 22]);
        assert_eq!(api_keys(&bytes[..15]), [26, 22]);
        assert_eq!(api_keys(&bytes[..9]), [26]);
        assert_eq!(api_keys(&[]), [0_i16; 0]);
    }

    #[test]
    fn a_worker_is_known_by_number_in_all_its_incarnations() {
        assert!(is_worker(&Host::from("worker-1.12"), 1));
        assert!(!is_worker(&Host::from("worker-12.1"), 1));
        assert!(!is_worker(&Host::from("node-1"), 1));
    }
}
