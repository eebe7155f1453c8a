//! A wanted replay: every replica is stopped, the group goes to a new replay generation, and they start again.

use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Clock, OwnedTask, Spawner, TaskKind};
use sharestream_client::{Client, StartOffset};
use sharestream_kafka::ledger::reset_generation;

use super::World;
use crate::workload::{GROUP, OUTCOMES, SOURCE};

/// An operator tries again this long after a reset was refused: the group may have members whose processes are dead.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How far a reset is.
#[derive(Default)]
pub(super) enum Resetting {
    /// None is under way.
    #[default]
    No,
    /// The replicas have been asked to stop.
    Stopping,
    /// They have, and the operator is at work.
    Working(OwnedTask<()>),
}

impl Resetting {
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self, Resetting::No)
    }
}

impl World {
    /// Whoever resets the group; nothing happens to its process.
    pub(super) async fn hire_operator(&mut self) {
        if self.plan.resets_group() {
            self.operator = Some(self.outsider("operator").await);
        }
    }

    /// Asks every replica to stop that hears it. Who stands still is out of the group when its session has ended, and comes
    /// back with what it knew.
    pub(super) fn begin_reset(&mut self) {
        if self.operator.is_none() || self.resetting.is_under_way() {
            return;
        }
        for slot in &self.workers {
            let incarnations = slot.current.iter().chain(&slot.zombies);
            for incarnation in incarnations.filter(|incarnation| !incarnation.gate.is_paused()) {
                incarnation.control.drain();
            }
        }
        self.resetting = Resetting::Stopping;
    }

    /// Goes on with a reset where something has ended since the last step.
    pub(super) fn go_on_with_reset(&mut self) {
        match &self.resetting {
            Resetting::No => {}
            Resetting::Stopping => {
                let mut left = self.workers.iter().flat_map(|slot| slot.current.iter().chain(&slot.zombies));
                let is_down = left.all(|incarnation| incarnation.gate.is_paused());
                if let (Some(client), true) = (self.operator.clone(), is_down) {
                    let partitions = self.plan.source_partitions;
                    let work = reset(client, partitions, self.clock.clone());
                    let task = OwnedTask::spawn(&Spawner::system(), "reset", TaskKind::Job, work);
                    self.resetting = Resetting::Working(task);
                }
            }
            Resetting::Working(task) if task.is_finished() => {
                self.trace.note("the group is reset");
                self.resetting = Resetting::No;
                for index in 0..self.workers.len() {
                    self.start_worker(index);
                }
            }
            Resetting::Working(_) => {}
        }
    }
}

async fn reset(client: Client, partitions: i32, clock: Clock) {
    let start = |partition| StartOffset {
        topic: SOURCE.to_owned(),
        partition: PartitionIndex(partition),
        start_offset: Offset(0),
    };
    let starts: Vec<StartOffset> = (0..partitions).map(start).collect();
    while reset_generation(&client, OUTCOMES, GROUP, &starts).await.is_err() {
        clock.sleep(AGAIN_AFTER).await;
    }
}
