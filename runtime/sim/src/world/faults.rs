//! Faults as actions of the harness, and their ends.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::network::{Host, Weather};
use crate::plan::{Fault, Part, TimedFault, Way};
use crate::process::ProcessGate;
use crate::store::StoreWeather;
use crate::traps::{Armed, Sprung};

/// By then a request has arrived and was answered, in ordinary weather.
const REQUEST_ARRIVES: Duration = Duration::from_millis(30);

/// Something that the harness does at a time.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Inject(Fault),
    StartWorker(usize),
    StartPart(usize, Part),
    ResumeWorker(usize, Host),
    Wake(usize, Host),
    PowerOn(Host),
    Mend(Vec<(Host, Host)>),
    Weather(Weather),
    Store(StoreWeather),
    ResumeNode(usize),
    StartNode(usize),
    FailOver(usize),
    /// Connections between the two break.
    ResetLink(Host, Host),
    /// Whoever stands still in a trap goes on.
    Release(Arc<ProcessGate>),
}

impl World {
    pub(super) async fn act(&mut self, action: Action) {
        match action {
            Action::Inject(fault) => self.inject(fault).await,
            Action::StartWorker(index) => self.start_worker(index),
            Action::StartPart(index, part) => self.start_part(index, part),
            Action::ResumeWorker(index, host) => {
                if let Some(incarnation) = &self.workers[index].current
                    && incarnation.host == host
                {
                    incarnation.gate.resume();
                }
            }
            Action::Wake(index, host) => {
                self.trace.note(format!("{host} comes back"));
                for zombie in self.workers[index].zombies.iter().filter(|zombie| zombie.host == host) {
                    zombie.gate.resume();
                }
            }
            Action::PowerOn(host) => self.fabric.power_on(&host),
            Action::Mend(links) => {
                for (from, to) in links {
                    self.fabric.mend(&from, &to);
                }
            }
            Action::Weather(weather) => self.fabric.set_weather(weather),
            Action::Store(weather) => self.bucket.set_weather(weather),
            Action::ResumeNode(node) => self.nodes.resume(node),
            Action::StartNode(node) => self.start_node(node).await,
            Action::FailOver(node) => self.nodes.fail_over(node),
            Action::ResetLink(from, to) => {
                self.fabric.reset(|one, other| one == &*from && other == &*to);
            }
            Action::Release(gate) => gate.resume(),
        }
    }

    async fn inject(&mut self, fault: Fault) {
        self.note(&fault);
        match fault {
            Fault::Weather { lasts, delay_max, loss_percent } => {
                let loss = f64::from(loss_percent) / 100.0;
                self.fabric.set_weather(Weather { delay_max, loss, ..Weather::default() });
                self.after(lasts, Action::Weather(Weather::default()));
            }
            Fault::Reset { worker } => {
                if let Some(host) = self.worker_host(worker) {
                    self.fabric.reset(|from, _| from == &*host);
                }
            }
            Fault::ResetNode { node } => {
                let host = self.nodes.host(node);
                self.fabric.reset(|from, to| from == &*host && from != to);
            }
            Fault::Cut { worker, node, lasts, way } => {
                if let Some(host) = self.worker_host(worker) {
                    let node = self.nodes.host(node);
                    self.cut(&host, &node, way, lasts);
                }
            }
            Fault::CutNodes { from, to, lasts, way } => {
                let (from, to) = (self.nodes.host(from), self.nodes.host(to));
                self.cut(&from, &to, way, lasts);
            }
            Fault::PauseWorker { worker, lasts } => {
                if let Some(incarnation) = &self.workers[worker].current {
                    incarnation.gate.pause();
                    let host = Arc::clone(&incarnation.host);
                    self.after(lasts, Action::ResumeWorker(worker, host));
                }
            }
            Fault::PauseNode { node, lasts } => {
                self.nodes.pause(node);
                self.after(lasts, Action::ResumeNode(node));
            }
            Fault::KillWorker { worker, down, power } => self.kill_worker(worker, down, power),
            Fault::KillWorkerAt { worker, step, down } => self.trap_worker(worker, step, down),
            Fault::Zombie { worker, lasts } => self.make_zombie(worker, lasts),
            Fault::StopWorker { worker, down } => self.stop_worker(worker, down),
            Fault::Join { worker } => self.start_worker(worker),
            Fault::KillNode { node, down } => {
                self.kill_node(node).await;
                self.after(down.min(Duration::from_secs(2)), Action::FailOver(node));
                self.after(down, Action::StartNode(node));
            }
            Fault::MoveLeader { topic, partition } => self.nodes.move_leader(topic, partition),
            Fault::StepClock { process, by_ms } => self.step_clock(process, by_ms),
            Fault::Store { lasts, failed_percent, lost_percent, delay_max } => {
                let (failed, answer_lost) =
                    (f64::from(failed_percent) / 100.0, f64::from(lost_percent) / 100.0);
                self.bucket.set_weather(StoreWeather { delay_max, failed, answer_lost });
                self.after(lasts, Action::Store(StoreWeather::default()));
            }
            Fault::ResumeWorker { worker } => {
                if let Some(incarnation) = &self.workers[worker].current {
                    incarnation.gate.resume();
                }
            }
            Fault::RollOut { worker } => {
                if self.plan.ledger.is_some() {
                    self.rolled_out = true;
                    self.stop_worker(worker, Duration::from_millis(100));
                }
            }
            Fault::ResetGroup => self.begin_reset(),
            Fault::KillPart { worker, part, down, power } => self.kill_part(worker, part, down, power),
            Fault::StopPart { worker, part } => self.stop_part(worker, part),
            Fault::PausePart { worker, part, lasts, is_replaced } => {
                self.pause_part(worker, part, lasts, is_replaced);
            }
            Fault::CutPart { worker, part, peer, lasts, way, breaks } => {
                self.cut_part((worker, part), peer, way, lasts, breaks);
            }
            // Whose silence it is says a moment.
            Fault::Silence { .. }
            | Fault::LoseAnswer { .. }
            | Fault::LoseRequest { .. }
            | Fault::Mute { .. } => {}
            Fault::When { moment, hold, then } => self.traps.arm(Armed { moment, hold, then }),
        }
    }

    /// What waited for a moment happens, if it has come.
    pub(super) async fn spring(&mut self) {
        for Sprung { host, to, gate, armed } in self.traps.take_sprung() {
            let Armed { moment, hold, then } = armed;
            self.trace.note(format!("{host} is at {moment:?}"));
            if hold.is_zero() {
                // Whatever happens at once happens before it takes another step.
                gate.resume();
            } else {
                self.after(hold, Action::Release(gate));
            }
            for TimedFault { at, fault } in then {
                match fault {
                    Fault::LoseAnswer { lasts } => self.lose_answer(&host, to.as_ref(), lasts),
                    Fault::LoseRequest { lasts } => self.lose_request(&host, to.as_ref(), lasts),
                    Fault::Mute { lasts } => {
                        if let Some(asked) = &to {
                            self.note(&Fault::Mute { lasts });
                            self.cut_from(asked, None, lasts);
                        }
                    }
                    Fault::Silence { lasts } => {
                        self.note(&Fault::Silence { lasts });
                        self.cut_from(&host, to.as_ref(), lasts);
                    }
                    fault if at.is_zero() => self.inject(fault).await,
                    fault => self.after(at, Action::Inject(fault)),
                }
            }
        }
    }

    fn note(&mut self, fault: &Fault) {
        self.trace.note(format!("fault: {fault:?}"));
        *self.fault_counts.entry(fault.kind()).or_default() += 1;
    }

    /// Nothing of `host` reaches `to`, or any other node.
    fn cut_from(&mut self, host: &Host, to: Option<&Host>, lasts: Duration) {
        for node in 0..self.nodes.count() {
            let node = self.nodes.host(node);
            if node != *host && to.is_none_or(|to| *to == node) {
                self.cut(host, &node, Way::There, lasts);
            }
        }
    }

    /// What `host` has asked `to` is answered in vain.
    fn lose_answer(&mut self, host: &Host, to: Option<&Host>, lasts: Duration) {
        let Some(to) = to.filter(|to| *to != host) else { return };
        self.note(&Fault::LoseAnswer { lasts });
        self.cut(host, to, Way::Back, lasts);
        self.after(REQUEST_ARRIVES, Action::ResetLink(Arc::clone(host), Arc::clone(to)));
    }

    /// What `host` has asked `to` never arrives.
    fn lose_request(&mut self, host: &Host, to: Option<&Host>, lasts: Duration) {
        let Some(to) = to.filter(|to| *to != host) else { return };
        self.note(&Fault::LoseRequest { lasts });
        self.cut(host, to, Way::There, lasts);
        self.after(Duration::from_millis(1), Action::ResetLink(Arc::clone(host), Arc::clone(to)));
    }

    pub(super) fn worker_host(&self, index: usize) -> Option<Host> {
        self.workers[index].current.as_ref().map(|incarnation| Arc::clone(&incarnation.host))
    }

    pub(super) fn cut(&mut self, here: &Host, there: &Host, way: Way, lasts: Duration) {
        let there_link = (Arc::clone(here), Arc::clone(there));
        let back_link = (Arc::clone(there), Arc::clone(here));
        let links = match way {
            Way::Both => vec![there_link, back_link],
            Way::There => vec![there_link],
            Way::Back => vec![back_link],
        };
        for (from, to) in &links {
            self.fabric.cut(from, to);
        }
        self.after(lasts, Action::Mend(links));
    }

    fn step_clock(&mut self, process: usize, by_ms: i64) {
        match self.workers.get(process) {
            Some(slot) => {
                if let Some(incarnation) = &slot.current {
                    incarnation.clock.step_wall(by_ms);
                }
            }
            None => self.nodes.step_clock(process - self.workers.len(), by_ms),
        }
    }

    /// Whatever still goes wrong ends now.
    pub(super) async fn end_faults(&mut self) {
        self.trace.note("faults end");
        self.fabric.set_weather(Weather::default());
        self.bucket.set_weather(StoreWeather::default());
        self.fabric.heal();
        self.traps.clear();
        for index in 0..self.nodes.count() {
            self.nodes.resume(index);
            self.start_node(index).await;
        }
        for slot in &mut self.workers {
            (slot.down_after_trap, slot.down_after_stop) = (None, None);
        }
        for index in 0..self.workers.len() {
            for incarnation in self.workers[index].current.iter().chain(&self.workers[index].zombies) {
                incarnation.gate.resume();
            }
            self.disarm(index);
            self.start_worker(index);
            self.restore_parts(index);
        }
    }
}
