//! Workers come, go, are paused, killed and replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sharestream_base::{Clock, Env, ErrorKind, OwnedTask, Spawner, TaskKind};
use sharestream_core::commit::{AckMode, CommitStep};
use sharestream_core::{JobControl, JobReport};
use sharestream_kafka::AckModeChoice;

use super::faults::Action;
use super::parts::{PartSlot, name_of};
use super::{START_MS, World};
use crate::check::{Checker, Finding};
use crate::network::Host;
use crate::plan::WorkerPlan;
use crate::process::ProcessGate;
use crate::worker::{Trap, Worker};

/// Whoever runs the job starts it again this long after it ended by itself.
pub(super) const RESTART_AFTER: Duration = Duration::from_millis(700);

/// One incarnation.
pub(super) struct Incarnation {
    pub(super) host: Host,
    pub(super) gate: Arc<ProcessGate>,
    pub(super) control: JobControl,
    pub(super) clock: Clock,
    lost_power: Arc<AtomicBool>,
    trap: Trap,
    task: OwnedTask<anyhow::Result<JobReport>>,
}

/// One replica with its incarnations, in turn.
pub(super) struct WorkerSlot {
    pub(super) plan: WorkerPlan,
    pub(super) instance: String,
    pub(super) current: Option<Incarnation>,
    /// Older incarnations that stand still, or have come back and do not know yet.
    pub(super) zombies: Vec<Incarnation>,
    pub(super) incarnations: u64,
    /// A kill waits for this step of a commit.
    pub(super) down_after_trap: Option<Duration>,
    /// It was asked to stop, and starts again so long after it has.
    pub(super) down_after_stop: Option<Duration>,
    /// It stopped, or stays down, before a record would have run out of deliveries.
    pub(super) spares_deliveries: bool,
    /// Its other processes, if it runs in three.
    pub(super) parts: Vec<PartSlot>,
}

impl WorkerSlot {
    pub(super) fn new(index: usize, plan: &WorkerPlan) -> Self {
        WorkerSlot {
            plan: plan.clone(),
            instance: format!("r{index}"),
            current: None,
            zombies: Vec::new(),
            incarnations: 0,
            down_after_trap: None,
            down_after_stop: None,
            spares_deliveries: false,
            parts: if plan.in_three_processes { PartSlot::all() } else { Vec::new() },
        }
    }
}

impl World {
    /// Starts the next incarnation, unless one runs.
    pub(super) fn start_worker(&mut self, index: usize) {
        if self.workers[index].current.is_some() || self.resetting.is_under_way() {
            return;
        }
        let gate = self.gate();
        let (mode, expected) = self.asked_mode();
        let slot = &mut self.workers[index];
        slot.incarnations += 1;
        let host: Host = Arc::from(format!("worker-{index}.{}", slot.incarnations));
        let env = self.process_env(&host, &gate);
        let clock = env.clock.clone();
        if self.plan.workers[index].in_three_processes {
            self.fabric.name(&name_of(index), Arc::clone(&host));
        }
        self.traps.watch(Arc::clone(&host), Arc::clone(&gate));
        self.statuses.told(&host, expected);
        let lost_power = Arc::new(AtomicBool::new(false));
        let worker = self.worker(index, env, mode, (&host, &gate, &lost_power));
        let (control, trap) = (worker.control.clone(), Arc::clone(&worker.trap));
        let plan = self.plan.clone();
        let main = async move { worker.run(&plan).await };
        let task = self.start(&host, &gate, main);
        self.workers[index].current =
            Some(Incarnation { host, gate, control, clock, lost_power, trap, task });
        self.start_parts(index);
    }

    /// What a process of a replica is given, be it all of it or a part.
    pub(super) fn worker(
        &self,
        index: usize,
        env: Env,
        mode: AckModeChoice,
        (host, gate, lost_power): (&Host, &Arc<ProcessGate>, &Arc<AtomicBool>),
    ) -> Worker {
        let slot = &self.workers[index];
        Worker {
            env,
            plan: slot.plan.clone(),
            mode,
            instance: slot.instance.clone(),
            bootstrap: self.nodes.bootstrap(),
            objects: slot.plan.has_store.then(|| self.bucket.attach(Arc::clone(lost_power))),
            control: JobControl::new(),
            trap: Trap::default(),
            traps: self.traps.clone(),
            host: Arc::clone(host),
            gate: Arc::clone(gate),
            // As the error says: once the cause is gone, the last delivery may be risked.
            risks_last_delivery: slot.spares_deliveries && self.is_settling,
        }
    }

    /// Runs `main` as the process of that name.
    pub(super) fn start<T: Send + 'static>(
        &self,
        host: &Host,
        gate: &Arc<ProcessGate>,
        main: impl Future<Output = T> + Send + 'static,
    ) -> OwnedTask<T> {
        let task = OwnedTask::spawn(&Spawner::gated(gate.clone()), host.to_string(), TaskKind::Job, main);
        self.trace.note(format!("{host} starts"));
        task
    }

    /// What a process is given, with a clock that is off.
    pub(super) fn process_env(&self, host: &Host, gate: &Arc<ProcessGate>) -> Env {
        let rng = self.rng.fork(host);
        let skew_ms = i64::try_from(rng.below(4_000)).unwrap_or(0) - 2_000;
        Env {
            clock: Clock::simulated(START_MS + self.elapsed_ms() + skew_ms),
            rng,
            network: self.fabric.attach(Arc::clone(host)),
            spawner: Spawner::gated(gate.clone()),
        }
    }

    /// The mode that a replica is asked for that starts now, and the one that it must state.
    pub(super) fn asked_mode(&self) -> (AckModeChoice, AckMode) {
        match self.plan.mode() {
            // The strongest mode that the brokers can do, as whoever has upgraded them writes.
            AckMode::Ledger if self.rolled_out => (AckModeChoice::Auto, AckMode::Transactional),
            AckMode::Ledger => (AckModeChoice::Ledger, AckMode::Ledger),
            AckMode::AtLeastOnce => (AckModeChoice::AtLeastOnce, AckMode::AtLeastOnce),
            AckMode::Transactional => (AckModeChoice::Transactional, AckMode::Transactional),
        }
    }

    pub(super) fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.trace.elapsed().as_millis()).unwrap_or(0)
    }

    /// Kills the current incarnation and starts another after `down`.
    pub(super) fn kill_worker(&mut self, index: usize, down: Duration, power: bool) {
        let Some(incarnation) = self.workers[index].current.take() else { return };
        let Incarnation { host, gate, lost_power, task, .. } = incarnation;
        self.bury(&host, &gate, &lost_power, task, power);
        self.after(down, Action::StartWorker(index));
        self.forget_ends(index);
    }

    /// What was to happen to an incarnation ends with it.
    fn forget_ends(&mut self, index: usize) {
        let slot = &mut self.workers[index];
        (slot.down_after_trap, slot.down_after_stop) = (None, None);
    }

    /// Asks the current incarnation to end; another one starts `down` after it has.
    pub(super) fn stop_worker(&mut self, index: usize, down: Duration) {
        let slot = &mut self.workers[index];
        if let Some(incarnation) = &slot.current {
            incarnation.control.drain();
            slot.down_after_stop = Some(down);
        }
    }

    /// The process is dead: not one more line of its code runs.
    pub(super) fn bury<T>(
        &mut self,
        host: &Host,
        gate: &ProcessGate,
        lost_power: &AtomicBool,
        task: OwnedTask<T>,
        power: bool,
    ) {
        gate.kill();
        if power {
            lost_power.store(true, Ordering::Relaxed);
            self.fabric.power_off(host);
            self.after(Duration::from_secs(3), Action::PowerOn(Arc::clone(host)));
        } else {
            self.fabric.reset(|from, _| from == &**host);
        }
        drop(task);
        self.trace.note(format!("{host} is dead"));
    }

    /// Arms the trap of the current incarnation.
    pub(super) fn trap_worker(&mut self, index: usize, step: CommitStep, down: Duration) {
        let slot = &mut self.workers[index];
        if let Some(incarnation) = &slot.current {
            *incarnation.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
            slot.down_after_trap = Some(down);
        }
    }

    /// The current incarnation stands still, another takes its place, and later it comes back.
    pub(super) fn make_zombie(&mut self, index: usize, lasts: Duration) {
        let Some(incarnation) = self.workers[index].current.take() else { return };
        incarnation.gate.pause();
        let host = Arc::clone(&incarnation.host);
        self.workers[index].zombies.push(incarnation);
        self.forget_ends(index);
        self.after(Duration::from_millis(100), Action::StartWorker(index));
        self.after(lasts, Action::Wake(index, host));
    }

    /// Looks for processes that ended by themselves or ran into a trap.
    pub(super) async fn notice_exits(&mut self) {
        for index in 0..self.workers.len() {
            let slot = &mut self.workers[index];
            if slot.current.as_ref().is_some_and(|incarnation| incarnation.gate.is_dead()) {
                let down = slot.down_after_trap.take().unwrap_or(RESTART_AFTER);
                self.kill_worker(index, down, false);
            } else if slot.current.as_ref().is_some_and(|incarnation| incarnation.task.is_finished())
                && let Some(incarnation) = slot.current.take()
            {
                let down = slot.down_after_stop.take().unwrap_or(RESTART_AFTER);
                let spares = self.account_for(incarnation).await;
                self.workers[index].spares_deliveries |= spares;
                self.after(down, Action::StartWorker(index));
            }
            let ended = |zombie: &mut Incarnation| zombie.task.is_finished() || zombie.gate.is_dead();
            let ended: Vec<_> = self.workers[index].zombies.extract_if(.., ended).collect();
            for zombie in ended {
                self.account_for(zombie).await;
            }
        }
    }

    /// Some ends say that something is wrong with us. True for a job that stopped to spare the deliveries of a record.
    pub(super) async fn account_for(&mut self, incarnation: Incarnation) -> bool {
        let Incarnation { host, gate, control, task, .. } = incarnation;
        for finding in self.statuses.look(&host, &control.status().borrow()) {
            self.find(finding);
        }
        if gate.is_dead() {
            return false;
        }
        let mut spares = false;
        let status = control.snapshot();
        if self.plan.faults.is_empty() && status.attempts > 1 {
            // Starting again heals much; where nothing goes wrong it only hides a mistake.
            let last = status.last_error.unwrap_or_default();
            let text = format!("{host} needed {} attempts in a run without faults: {last}", status.attempts);
            self.find(Finding::new(Checker::Attempts, text));
        }
        if let Some(error) = self.end_of(&host, task, |report| format!("{:?}", report.end)).await {
            spares = self.plan.has_outages_or_deaths() && spares_deliveries(&error);
            if needs_human(&error) && !spares && !self.is_told_to_change_its_mode(&error) {
                self.find(Finding::exit(&host, &format!("{error:#}")));
            }
        }
        self.look_for_tasks(&host, &gate).await;
        spares
    }

    /// Notes how a process has ended, and gives its error.
    pub(super) async fn end_of<T: Send + 'static>(
        &mut self,
        host: &Host,
        mut task: OwnedTask<anyhow::Result<T>>,
        in_words: impl FnOnce(&T) -> String,
    ) -> Option<anyhow::Error> {
        let (text, error) = match task.join().await {
            Ok(Some(Ok(end))) => (format!("{host} ended: {}", in_words(&end)), None),
            Ok(Some(Err(error))) => (format!("{host} failed: {error:#}"), Some(error)),
            Ok(None) => (format!("{host} was dropped"), None),
            Err(panic) => {
                self.find(Finding::panic(panic.to_string()));
                (format!("{host} panicked"), None)
            }
        };
        self.trace.note(text);
        error
    }

    /// A process that has ended has no tasks left.
    pub(super) async fn look_for_tasks(&mut self, host: &Host, gate: &ProcessGate) {
        if gate.tasks().is_empty() {
            return;
        }
        // Dropped tasks are gone at the next turn of the runtime.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let left = gate.tasks();
        if !left.is_empty() {
            self.find(Finding::leaked_tasks(host, &left));
        }
    }
}

/// Not what starting again would heal.
pub(super) fn needs_human(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<sharestream_core::Error>().map(sharestream_core::Error::kind);
    matches!(kind, Some(ErrorKind::Corrupt | ErrorKind::Bug | ErrorKind::InvalidInput))
}

/// The job stopped, or stays down, because another delivery of a record could be its last.
fn spares_deliveries(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["stops before a record runs out of deliveries", "stays down"].iter().any(|hint| text.contains(hint))
}

impl World {
    /// After a roll-out a replica in ledger mode ends with the hint to start it again.
    fn is_told_to_change_its_mode(&self, error: &anyhow::Error) -> bool {
        let text = format!("{error:#}");
        let hints = ["was switched to mode Transactional", "runs in mode transactional"];
        self.rolled_out && hints.iter().any(|hint| text.contains(hint))
    }

    /// A trap that nobody ran into is taken away.
    pub(super) fn disarm(&self, index: usize) {
        if let Some(incarnation) = &self.workers[index].current {
            *incarnation.trap.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Incarnation {
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}
