//! Taking over a job, and starting again in place after an abort.
//!
//! ```text
//! take ownership, list pending manifests -> InitProducerId for each id, until it succeeds
//!   -> read the owner again (not me: Fenced) -> take the high watermark -> read the outcomes, decide -> run
//! ```
//! An abort in place goes the same way, but it reads the owner first, since a fence by the broker is not the
//! last word.

use super::Transactional;
use super::actions::Action;
use super::incarnation::{End, Incarnation, OpenEpoch, Phase, Recovery};
use super::manifests::Corrupt;
use super::names::{IdSet, Process, ProducerEpoch, Record, RecordSet, TransactionalId};
use super::outcome_log;
use super::state::State;
use super::transaction::InitAnswer;

/// Why a process gives up its open epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortCause {
    /// Locks were lost, and the process knows which.
    LocksLost,
    /// Anything that says nothing of locks.
    Other,
    /// Like `Other`, although the records were staged and nobody else would have aborted them.
    Needless,
}

impl Transactional {
    /// Steps of a process that recovers.
    pub(super) fn recovery_actions(
        &self,
        state: &State,
        process: Process,
        recovery: &Recovery,
        actions: &mut Vec<Action>,
    ) {
        for id in TransactionalId::all().filter(|id| recovery.to_fence.contains(*id)) {
            // CONCURRENT_TRANSACTIONS changes nothing; the next try counts.
            let is_ending = state.transactions[id.index()].is_ending();
            if !is_ending || !self.rules.recovery_waits_for_init {
                actions.push(Action::Init(process, id));
            }
        }
        if !recovery.to_fence.is_empty() {
            return;
        }
        match recovery.high_watermark {
            Some(end) if recovery.is_owner_confirmed => {
                let is_held_up = outcome_log::is_held_up(state.outcomes_below(end));
                if self.rules.outcomes_read_uncommitted || !is_held_up {
                    actions.push(Action::Decide(process));
                }
            }
            Some(_) | None => actions.push(Action::ReadOwner(process)),
        }
    }

    /// Whether the next incarnation of the job may start.
    pub(super) fn may_start(&self, state: &State, process: Process) -> bool {
        if process.0 >= self.bounds.incarnations || state.process(process).phase != Phase::NotStarted {
            return false;
        }
        let Some(before) = process.0.checked_sub(1).map(Process) else { return true };
        match state.process(before).phase {
            Phase::NotStarted => false,
            Phase::Ended(_) => true,
            Phase::Recovering(_) | Phase::Running => state.faults_left.takeovers > 0,
        }
    }

    pub(super) fn start(&self, state: &mut State, process: Process) {
        let before = process.0.checked_sub(1).map(Process);
        if before.is_some_and(|before| state.process(before).is_alive()) {
            state.faults_left.takeovers -= 1;
        }
        state.owner = process.job_epoch();
        self.begin_recovery(state, process);
    }

    fn begin_recovery(&self, state: &mut State, process: Process) {
        let mut to_fence = IdSet::EMPTY;
        let own = self.bounds.ids_of(process);
        let is_each = self.rules.every_slot_is_fenced;
        for id in own.into_iter().take(if is_each { 2 } else { 1 }) {
            to_fence.insert(id);
        }
        if self.rules.ids_of_pending_manifests_are_fenced && !process.is_replica() {
            let pending = state.manifests.iter().filter(|manifest| !manifest.is_completed);
            pending.for_each(|manifest| to_fence.insert(manifest.id));
        }
        if self.rules.ids_of_earlier_owners_are_fenced && !process.is_replica() {
            let earlier = (0..process.0).map(Process);
            earlier.flat_map(|owner| self.bounds.ids_of(owner)).for_each(|id| to_fence.insert(id));
        }
        let is_early = !self.rules.high_watermark_after_fencing;
        let recovery = Recovery {
            to_fence,
            high_watermark: is_early.then_some(state.outcome_log.len()),
            is_owner_confirmed: false,
            listed_early: (!self.rules.manifests_listed_after_fencing).then(|| state.manifests.clone()),
        };
        let epochs = own.map(|id| state.transactions[id.index()].epoch);
        let incarnation = state.process_mut(process);
        incarnation.phase = Phase::Recovering(recovery);
        // A slot that is not fenced goes on under whatever producer epoch is current.
        incarnation.producer_epochs = if is_each { [ProducerEpoch(0); 2] } else { epochs };
        incarnation.state = RecordSet::EMPTY;
    }

    fn recovery_mut(state: &mut State, process: Process) -> &mut Recovery {
        match &mut state.process_mut(process).phase {
            Phase::Recovering(recovery) => recovery,
            Phase::NotStarted | Phase::Running | Phase::Ended(_) => {
                unreachable!("only a recovering process takes steps of a recovery")
            }
        }
    }

    pub(super) fn init(&self, state: &mut State, process: Process, id: TransactionalId) {
        let transaction = &mut state.transactions[id.index()];
        let answer = transaction.init();
        let current = transaction.epoch;
        let taken = match answer {
            InitAnswer::Taken(epoch) => epoch,
            InitAnswer::StillEnding if self.rules.recovery_waits_for_init => return,
            // Planted: the older transaction is ending, so it is taken for resolved.
            InitAnswer::StillEnding => current,
        };
        Self::recovery_mut(state, process).to_fence.remove(id);
        let ids = self.bounds.ids_of(process);
        let incarnation = state.process_mut(process);
        for slot in (0..2).filter(|slot| ids[*slot] == id) {
            incarnation.producer_epochs[slot] = taken;
        }
        let is_done =
            matches!(&incarnation.phase, Phase::Recovering(recovery) if recovery.to_fence.is_empty());
        if process.is_replica() && is_done {
            // It restores nothing, and nobody can take its instance.
            self.run(state, process);
        }
    }

    pub(super) fn read_owner(&self, state: &mut State, process: Process) {
        if !state.is_owner(process) && self.rules.owner_read_again_after_init {
            return self.leave(state, process, End::Fenced);
        }
        let end = state.outcome_log.len();
        let recovery = Self::recovery_mut(state, process);
        recovery.is_owner_confirmed = true;
        recovery.high_watermark.get_or_insert(end);
    }

    pub(super) fn decide(&self, state: &mut State, process: Process) {
        let recovery = Self::recovery_mut(state, process).clone();
        let end = recovery.high_watermark.expect("taken with the owner");
        let outcomes = outcome_log::read(state.outcomes_below(end));
        let listed = recovery.listed_early.unwrap_or_else(|| state.manifests.clone());
        let is_owner = state.is_owner(process);
        let is_topic_missed = state.is_outcome_topic_new && self.rules.recreated_outcome_topic_is_corrupt;
        let decision = match is_topic_missed {
            true => Err(Corrupt),
            false => state.manifests.recover(process, outcomes, &listed, &self.rules),
        };
        let Ok(restored) = decision else {
            // Somebody else's deletions do not concern a process that is not the owner any more.
            state.history.corrupt |= is_owner && !state.is_outcome_topic_new;
            return self.leave(state, process, End::Corrupt);
        };
        state.history.restored_another |= is_owner && restored.state != state.history.committed;
        state.history.concluded = state.history.concluded.max(process.job_epoch().0);
        let incarnation = state.process_mut(process);
        incarnation.last = restored.checkpoint;
        incarnation.state = restored.state;
        incarnation.next = match self.rules.checkpoint_ids_never_reused {
            true => restored.next.max(incarnation.next),
            false => restored.next,
        };
        self.run(state, process);
    }

    /// Recovery is over. Records kept in memory begin the first epoch.
    fn run(&self, state: &mut State, process: Process) {
        let has_room = process.is_replica() || state.process(process).next.0 <= self.bounds.checkpoints;
        let incarnation = state.process_mut(process);
        incarnation.phase = Phase::Running;
        let kept = std::mem::take(&mut incarnation.kept);
        if kept.is_empty() {
            return;
        }
        if !has_room {
            return self.release(state, process, RecordSet::EMPTY);
        }
        let incarnation = state.process_mut(process);
        let slot = Incarnation::slot_of(process, incarnation.next);
        incarnation.slots[slot] = Some(OpenEpoch::new(incarnation.next, kept));
        if !process.is_replica() {
            incarnation.next = incarnation.next.next();
        }
    }

    /// Gives up all open epochs and recovers in place. Records that were not staged are kept in memory under
    /// their locks; those that may have been staged are forgotten.
    pub(super) fn abort_attempt(&self, state: &mut State, process: Process, cause: AbortCause) {
        let mut kept = RecordSet::EMPTY;
        for epoch in state.process(process).slots.iter().flatten() {
            if !epoch.may_be_staged() || !self.rules.staged_records_are_forgotten {
                kept = kept.union(epoch.records);
            }
        }
        if cause == AbortCause::LocksLost && self.rules.lost_locks_abort_epoch {
            let is_locked = |record: &Record| {
                state.shares[self.bounds.partition_of(*record)].is_acquired_by(*record, process)
            };
            let locked = kept.iter().filter(is_locked);
            kept = locked.fold(RecordSet::EMPTY, RecordSet::with);
        }
        state.history.delivery_wasted |= cause == AbortCause::Needless;
        state.process_mut(process).drop_memory();
        state.process_mut(process).kept = kept;
        self.release(state, process, kept);
        self.begin_recovery(state, process);
    }

    /// The broker says that a producer epoch is not current. The owner is read before that is believed.
    pub(super) fn on_fenced(&self, state: &mut State, process: Process) {
        match state.is_owner(process) && self.rules.fence_is_checked_with_owner {
            true => self.abort_attempt(state, process, AbortCause::Other),
            false => self.leave(state, process, End::Fenced),
        }
    }

    /// A process ends in an orderly way: its share session is closed.
    fn leave(&self, state: &mut State, process: Process, end: End) {
        self.release(state, process, RecordSet::EMPTY);
        state.process_mut(process).end(end);
    }

    fn release(&self, state: &mut State, process: Process, kept: RecordSet) {
        for share in &mut state.shares[..self.bounds.partitions] {
            share.release(process, kept);
        }
    }
}
