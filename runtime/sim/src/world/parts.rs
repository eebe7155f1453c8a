//! Sources and sinks of a replica that runs in three processes: they come, go, are paused, killed and replaced, each alone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sharestream_base::{CancellationToken, OwnedTask};
use sharestream_core::remote::WorkerEnd;

use super::World;
use super::faults::Action;
use super::workers::{RESTART_AFTER, needs_human};
use crate::check::{Checker, Finding};
use crate::network::Host;
use crate::plan::{Part, PartPeer, Way};
use crate::process::ProcessGate;

/// One process.
pub(super) struct PartProcess {
    pub(super) host: Host,
    pub(super) gate: Arc<ProcessGate>,
    stop: CancellationToken,
    lost_power: Arc<AtomicBool>,
    task: OwnedTask<anyhow::Result<WorkerEnd>>,
}

/// One part of a replica with its processes, in turn.
pub(super) struct PartSlot {
    part: Part,
    current: Option<PartProcess>,
    /// Older ones that stand still, or have come back and are one too many.
    zombies: Vec<PartProcess>,
    count: u64,
}

impl PartSlot {
    pub(super) fn all() -> Vec<PartSlot> {
        let slot = |part| PartSlot { part, current: None, zombies: Vec::new(), count: 0 };
        Part::ALL.into_iter().map(slot).collect()
    }

    fn processes(&self) -> impl Iterator<Item = &PartProcess> {
        self.current.iter().chain(&self.zombies)
    }
}

impl World {
    fn part(&mut self, index: usize, part: Part) -> Option<&mut PartSlot> {
        self.workers.get_mut(index)?.parts.iter_mut().find(|slot| slot.part == part)
    }

    /// Starts what has never run of a replica.
    pub(super) fn start_parts(&mut self, index: usize) {
        for part in Part::ALL {
            if self.part(index, part).is_some_and(|slot| slot.count == 0) {
                self.start_part(index, part);
            }
        }
    }

    /// Starts the next process of a part, unless one runs.
    pub(super) fn start_part(&mut self, index: usize, part: Part) {
        let Some(slot) = self.part(index, part).filter(|slot| slot.current.is_none()) else { return };
        slot.count += 1;
        let host: Host = Arc::from(format!("{part}-{index}.{}", slot.count));
        let gate = self.gate();
        let (mode, _) = self.asked_mode();
        let env = self.process_env(&host, &gate);
        let lost_power = Arc::new(AtomicBool::new(false));
        let stop = CancellationToken::new();
        let worker = self.worker(index, env, mode, (&host, &gate, &lost_power));
        let (plan, stopped) = (self.plan.clone(), stop.clone());
        let main = async move { worker.run_part(&plan, part, &name_of(index), stopped).await };
        let task = self.start(&host, &gate, main);
        if let Some(slot) = self.part(index, part) {
            slot.current = Some(PartProcess { host, gate, stop, lost_power, task });
        }
    }

    /// Kills a process; another one starts after `down`.
    pub(super) fn kill_part(&mut self, index: usize, part: Part, down: Duration, power: bool) {
        let Some(process) = self.part(index, part).and_then(|slot| slot.current.take()) else { return };
        let PartProcess { host, gate, lost_power, task, .. } = process;
        self.bury(&host, &gate, &lost_power, task, power);
        self.after(down, Action::StartPart(index, part));
    }

    /// Asks a process to end, as a signal does; another one starts when it has.
    pub(super) fn stop_part(&mut self, index: usize, part: Part) {
        if let Some(process) = self.part(index, part).and_then(|slot| slot.current.as_ref()) {
            process.stop.cancel();
        }
    }

    /// A process stands still; with `is_replaced` another one takes its place, and later it is one too many.
    pub(super) fn pause_part(&mut self, index: usize, part: Part, lasts: Duration, is_replaced: bool) {
        let Some(slot) = self.part(index, part) else { return };
        let Some(process) = &slot.current else { return };
        process.gate.pause();
        let gate = Arc::clone(&process.gate);
        if is_replaced {
            slot.zombies.extend(slot.current.take());
            self.after(Duration::from_millis(100), Action::StartPart(index, part));
        }
        self.after(lasts, Action::Release(gate));
    }

    /// The link between a process and another one is cut. With `breaks` what was on the way is lost then.
    pub(super) fn cut_part(
        &mut self,
        (index, part): (usize, Part),
        peer: PartPeer,
        way: Way,
        lasts: Duration,
        breaks: bool,
    ) {
        let host_of = |slot: Option<&mut PartSlot>| Some(Arc::clone(&slot?.current.as_ref()?.host));
        let there = match peer {
            PartPeer::Coordinator => self.worker_host(index),
            PartPeer::OtherPart => host_of(self.part(index, part.other())),
            PartPeer::Node(node) => Some(self.nodes.host(node)),
        };
        if let (Some(here), Some(there)) = (host_of(self.part(index, part)), there) {
            self.cut(&here, &there, way, lasts);
            if breaks {
                self.after(lasts, Action::ResetLink(here, there));
            }
        }
    }

    /// Looks for processes that ended by themselves.
    pub(super) async fn notice_exits_of_parts(&mut self) {
        for index in 0..self.workers.len() {
            for place in 0..self.workers[index].parts.len() {
                let slot = &mut self.workers[index].parts[place];
                let part = slot.part;
                let ended: Vec<_> = slot.zombies.extract_if(.., |zombie| zombie.task.is_finished()).collect();
                for process in ended {
                    self.account_for_part(process).await;
                }
                let slot = &mut self.workers[index].parts[place];
                if let Some(process) = slot.current.take_if(|process| process.task.is_finished()) {
                    self.account_for_part(process).await;
                    self.after(RESTART_AFTER, Action::StartPart(index, part));
                }
            }
        }
    }

    /// Whatever stands still goes on, and what is down starts.
    pub(super) fn restore_parts(&mut self, index: usize) {
        for process in self.workers[index].parts.iter().flat_map(PartSlot::processes) {
            process.gate.resume();
        }
        for part in Part::ALL {
            self.start_part(index, part);
        }
    }

    /// Waits until all processes of the parts have ended: by themselves, because their job has, or when they are asked to.
    pub(super) async fn drain_parts(&mut self, patience: Duration, longest: Duration) {
        let started_at = self.clock.now();
        let slots = self.workers.iter_mut().flat_map(|slot| &mut slot.parts);
        let processes: Vec<_> =
            slots.flat_map(|slot| slot.current.take().into_iter().chain(slot.zombies.drain(..))).collect();
        for process in processes {
            while !process.task.is_finished() && self.clock.now() < started_at + longest {
                if self.clock.now() >= started_at + patience {
                    process.stop.cancel();
                }
                self.clock.sleep(Duration::from_millis(50)).await;
            }
            if process.task.is_finished() {
                self.account_for_part(process).await;
            } else {
                let tasks = process.gate.tasks().join(", ");
                let text = format!("{} does not end when asked to; its tasks: {tasks}", process.host);
                self.find(Finding::new(Checker::Liveness, text));
            }
        }
    }

    /// Some ends say that something is wrong with us.
    async fn account_for_part(&mut self, process: PartProcess) {
        let PartProcess { host, gate, task, .. } = process;
        if let Some(error) = self.end_of(&host, task, |end| format!("{end:?}")).await
            && needs_human(&error)
        {
            self.find(Finding::exit(&host, &format!("{error:#}")));
        }
        self.look_for_tasks(&host, &gate).await;
    }

    /// What the parts of a replica do, in words.
    pub(super) fn state_of_parts(&self, index: usize) -> Vec<String> {
        let processes = self.workers[index].parts.iter().flat_map(PartSlot::processes);
        processes.map(|process| format!("{}: {}", process.host, process.gate.tasks().join(", "))).collect()
    }
}

/// The name by which the parts of a replica find its coordinator, wherever that runs.
pub(super) fn name_of(index: usize) -> String {
    format!("job-{index}")
}
