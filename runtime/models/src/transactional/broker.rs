//! What the brokers and the network do, faults included.

use super::Transactional;
use super::actions::{Action, StageAnswer};
use super::incarnation::{End, Ending, OpenEpoch, Phase, Staging};
use super::names::{PROCESSES, Process, TransactionalId};
use super::outcome_log::LogEntry;
use super::share::{LeaderRecord, StageWrite};
use super::state::State;
use super::transaction::{Participant, Participants, Progress};

impl Transactional {
    /// Steps of brokers and network that need no fault.
    pub(super) fn broker_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let has_faults_left = state.faults_left.lost_answers > 0;
        for write in &state.stage_writes {
            actions.push(Action::StageWriteArrives(*write, StageAnswer::Answered));
            if has_faults_left {
                actions.push(Action::StageWriteArrives(*write, StageAnswer::Lost));
            }
            if state.faults_left.failed_stage_writes > 0 {
                actions.push(Action::StageWriteArrives(*write, StageAnswer::Failed));
            }
        }
        for request in &state.end_requests {
            actions.push(Action::EndArrives(*request, false));
            if has_faults_left {
                actions.push(Action::EndArrives(*request, true));
            }
        }
        actions.extend(state.late_manifests.iter().map(|manifest| Action::LateManifestLands(*manifest)));
        for id in TransactionalId::all() {
            match state.transactions[id.index()].progress {
                Progress::Ending(_, remaining) => {
                    let remaining = Participants::ALL.into_iter().filter(|one| remaining.contains(*one));
                    actions.extend(remaining.map(|participant| Action::MarkerArrives(id, participant)));
                }
                Progress::Ongoing(_) => self.time_out_actions(state, id, actions),
                Progress::Empty | Progress::Ended(_) => {}
            }
        }
        for partition in 0..self.bounds.partitions {
            let mut share = state.shares[partition];
            if share.leader_learns(&self.rules) {
                actions.push(Action::LeaderLearns(partition));
            }
        }
    }

    fn time_out_actions(&self, state: &State, id: TransactionalId, actions: &mut Vec<Action>) {
        let is_used = |index: usize| {
            let process = Process(index as u8);
            state.process(process).is_alive() && self.bounds.ids_of(process).contains(&id)
        };
        if (0..PROCESSES).any(is_used) {
            if state.faults_left.time_outs > 0 {
                actions.push(Action::TimeOut(id));
            }
        } else if self.rules.transactions_time_out {
            actions.push(Action::TimeOutOfDead(id));
        }
    }

    /// Faults and other steps that concern one process from outside.
    pub(super) fn outside_actions(&self, state: &State, process: Process, actions: &mut Vec<Action>) {
        let holds_locks = state.shares[..self.bounds.partitions].iter().any(|share| {
            share.leader.iter().any(|record| match *record {
                LeaderRecord::Acquired { by, has_timer } => by == process && has_timer,
                LeaderRecord::Staging { by, .. } => {
                    by == process && !self.rules.locks_do_not_touch_staged_records
                }
                LeaderRecord::Pending(staged) => {
                    !self.rules.locks_do_not_touch_staged_records
                        && self.bounds.ids_of(process).contains(&staged.id)
                }
                LeaderRecord::Available | LeaderRecord::Done => false,
            })
        });
        let incarnation = state.process(process);
        if matches!(incarnation.phase, Phase::Ended(_)) {
            if holds_locks {
                actions.push(Action::LocksOfDeadExpire(process));
            }
        } else if incarnation.is_alive() {
            let can_be_replaced = process.is_replica() || process.0 + 1 < self.bounds.incarnations;
            if state.faults_left.crashes > 0 && can_be_replaced {
                actions.push(Action::Crash(process));
            }
            for record in self.bounds.all_records().iter().filter(|record| !incarnation.holds(*record)) {
                let in_memory = state.shares[self.bounds.partition_of(record)].leader[record.index()];
                if in_memory == (LeaderRecord::Acquired { by: process, has_timer: true }) {
                    actions.push(Action::ForgottenLockExpires(process, record));
                }
            }
            if state.faults_left.lost_locks > 0 && holds_locks {
                actions.push(Action::LoseLocks(process));
            }
        }
    }

    /// Moves of leaders, and the loss of the outcome topic while no transaction is open.
    pub(super) fn cluster_faults(&self, state: &State, actions: &mut Vec<Action>) {
        let is_quiet = TransactionalId::all().all(|id| state.transactions[id.index()].is_resolved());
        if state.faults_left.outcome_topic_losses > 0 && is_quiet && !state.outcome_log.is_empty() {
            actions.push(Action::LoseOutcomeTopic);
        }
        let is_in_use = |partition: usize| {
            let share = &state.shares[partition];
            share.leader.iter().any(|record| !matches!(record, LeaderRecord::Available | LeaderRecord::Done))
        };
        if state.faults_left.leader_moves > 0 {
            let partitions = (0..self.bounds.partitions).filter(|partition| is_in_use(*partition));
            actions.extend(partitions.map(Action::MoveLeader));
        }
    }

    pub(super) fn stage_write_arrives(&self, state: &mut State, write: StageWrite, answer: StageAnswer) {
        let position = state.stage_writes.iter().position(|other| *other == write);
        state.stage_writes.remove(position.expect("the action names a write under way"));
        let partition = usize::from(write.partition);
        let share = &mut state.shares[partition];
        let is_accepted = match answer {
            StageAnswer::Answered | StageAnswer::Lost => share.stage_write_arrives(write, &self.rules),
            StageAnswer::Failed => {
                share.stage_write_fails(write, &self.rules);
                state.faults_left.failed_stage_writes -= 1;
                false
            }
        };
        self.learn_at_once(state, partition);
        let Some(slot) = self.staging_slot(state, write) else {
            state.faults_left.lost_answers -= u8::from(answer == StageAnswer::Lost);
            return;
        };
        match answer {
            StageAnswer::Lost => {
                state.faults_left.lost_answers -= 1;
                state.epoch_mut(write.by, slot).staging[partition] = Staging::NotAsked;
            }
            StageAnswer::Answered if is_accepted => {
                state.epoch_mut(write.by, slot).staging[partition] = Staging::Staged;
            }
            StageAnswer::Answered | StageAnswer::Failed => {
                self.staging_refused(state, write.by, slot, partition);
            }
        }
    }

    /// The slot whose process waits for the answer to a stage write.
    fn staging_slot(&self, state: &State, write: StageWrite) -> Option<usize> {
        let incarnation = state.process(write.by);
        let is_waiting = |epoch: &OpenEpoch| epoch.staging[usize::from(write.partition)] == Staging::Waiting;
        let ids = self.bounds.ids_of(write.by);
        (0..2).find(|slot| {
            incarnation.slots[*slot].as_ref().is_some_and(is_waiting)
                && ids[*slot] == write.staged.id
                && incarnation.producer_epochs[*slot] == write.staged.epoch
        })
    }

    pub(super) fn marker_arrives(&self, state: &mut State, id: TransactionalId, participant: Participant) {
        let transaction = &mut state.transactions[id.index()];
        let Progress::Ending(verdict, _) = transaction.progress else { return };
        transaction.marker_written(participant);
        let epoch = transaction.epoch;
        match participant {
            Participant::OutcomeLog => state.outcome_log.push(LogEntry::Marker { id, epoch, verdict }),
            Participant::ShareState(partition) => {
                let partition = usize::from(partition);
                state.shares[partition].marker_arrives(id, epoch, verdict, &self.rules);
                self.learn_at_once(state, partition);
            }
        }
    }

    /// In configurations where the leader is told at once.
    fn learn_at_once(&self, state: &mut State, partition: usize) {
        if !self.bounds.leader_learns_late {
            state.shares[partition].leader_learns(&self.rules);
        }
    }

    pub(super) fn crash(&self, state: &mut State, process: Process) {
        state.faults_left.crashes -= 1;
        state.process_mut(process).end(End::Crashed);
    }

    pub(super) fn lose_locks(&self, state: &mut State, process: Process) {
        let own_ids = self.bounds.ids_of(process);
        for share in &mut state.shares[..self.bounds.partitions] {
            share.lose_locks(process, own_ids, &self.rules);
        }
    }

    pub(super) fn end_unanswered(&self, state: &mut State, process: Process, slot: usize) {
        state.faults_left.lost_answers -= 1;
        state.epoch_mut(process, slot).ending = Ending::Unknown;
    }

    /// Drops what can have no effect any more, so that states which differ in nothing else are one.
    pub(super) fn tidy(&self, state: &mut State) {
        if self.rules.end_txn_checks_epoch {
            let State { end_requests, processes, transactions, .. } = state;
            end_requests.retain(|request| {
                let is_current = transactions[request.id.index()].epoch == request.epoch;
                is_current || processes[request.sender.index()].is_running()
            });
        }
    }
}
