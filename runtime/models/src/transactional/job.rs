//! What a running process does: fill, seal, write, stage, commit.

use super::Transactional;
use super::actions::{Action, ManifestAnswer};
use super::incarnation::{Ending, Incarnation, ManifestWrite, OpenEpoch, Planned, Staging};
use super::manifests::{Manifest, ManifestName, ManifestRef};
use super::names::{JobEpoch, Process, Record, RecordSet};
use super::outcome_log::LogEntry;
use super::recovery::AbortCause;
use super::share::{DurableRecord, LeaderRecord, StageRequest, StageWrite, StagedBy};
use super::state::{EndTxnRequest, State};
use super::transaction::{EndAnswer, InitAnswer, Outcome, Participant, WriteRefusal};

impl Transactional {
    /// Steps that a running process may take.
    pub(super) fn running_actions(&self, state: &State, process: Process, actions: &mut Vec<Action>) {
        let incarnation = state.process(process);
        for record in self.bounds.all_records().iter() {
            let share = &state.shares[self.bounds.partition_of(record)];
            let is_available = share.leader[record.index()] == LeaderRecord::Available;
            if is_available && self.can_take_records(incarnation, process) {
                actions.push(Action::Acquire(process, record));
            }
        }
        for slot in 0..2 {
            let Some(epoch) = &incarnation.slots[slot] else { continue };
            if !epoch.records.is_empty() {
                self.writing_actions(state, process, slot, epoch, actions);
                self.ending_actions(state, process, slot, epoch, actions);
            }
        }
        if self.rules.lost_locks_abort_epoch && self.has_lost_locks(state, process) {
            actions.push(Action::NoticeLostLocks(process));
        }
    }

    /// Whether there is a filling epoch, or room to open one.
    fn can_take_records(&self, incarnation: &Incarnation, process: Process) -> bool {
        if incarnation.filling().is_some() {
            return true;
        }
        let slot = Incarnation::slot_of(process, incarnation.next);
        let is_free = incarnation.slots[slot].is_none();
        let may_overlap = self.bounds.is_pipelined || incarnation.slots.iter().all(Option::is_none);
        is_free && may_overlap && (process.is_replica() || incarnation.next.0 <= self.bounds.checkpoints)
    }

    fn writing_actions(
        &self,
        state: &State,
        process: Process,
        slot: usize,
        epoch: &OpenEpoch,
        actions: &mut Vec<Action>,
    ) {
        let incarnation = state.process(process);
        let is_predecessor_known = !incarnation.has_open_predecessor(slot);
        let can_write = !state.transactions[self.bounds.ids_of(process)[slot].index()].is_ending();
        if !epoch.has_outputs && can_write {
            actions.push(Action::WriteOutputs(process, slot));
            if state.faults_left.sink_failures > 0 && is_predecessor_known {
                actions.push(Action::SinkFails(process, slot));
            }
        }
        if process.is_replica() || !epoch.has_outputs && self.rules.outputs_before_staging {
            return;
        }
        match epoch.manifest {
            ManifestWrite::Missing if is_predecessor_known || !self.rules.manifest_waits_for_predecessor => {
                actions.push(Action::WriteManifest(process, slot, ManifestAnswer::Stored));
                if state.faults_left.manifest_faults > 0 {
                    let faults = [
                        ManifestAnswer::StoredUnanswered,
                        ManifestAnswer::NotStored,
                        ManifestAnswer::StoredLater,
                    ];
                    actions.extend(faults.map(|answer| Action::WriteManifest(process, slot, answer)));
                }
            }
            ManifestWrite::Missing => {}
            ManifestWrite::Unknown => actions.push(Action::ReadManifest(process, slot)),
            ManifestWrite::Stored if !epoch.has_outcome && can_write && epoch.ending == Ending::NotSent => {
                actions.push(Action::WriteOutcome(process, slot));
            }
            ManifestWrite::Stored => {}
        }
    }

    fn ending_actions(
        &self,
        state: &State,
        process: Process,
        slot: usize,
        epoch: &OpenEpoch,
        actions: &mut Vec<Action>,
    ) {
        let is_predecessor_known = !state.process(process).has_open_predecessor(slot);
        let is_durable = (epoch.has_outputs || !self.rules.outputs_before_staging)
            && (epoch.has_outcome || !self.rules.outcome_before_staging)
            && (epoch.manifest == ManifestWrite::Stored || process.is_replica());
        let may_stage = is_durable
            && epoch.ending == Ending::NotSent
            && (is_predecessor_known || !self.rules.staging_waits_for_predecessor);
        let mut is_staged = true;
        for partition in 0..self.bounds.partitions {
            if self.share_of(epoch, partition).is_empty() {
                continue;
            }
            is_staged &= epoch.staging[partition] == Staging::Staged;
            if may_stage && epoch.staging[partition] == Staging::NotAsked {
                actions.push(Action::Stage(process, slot, partition));
            }
        }
        match epoch.ending {
            Ending::NotSent if is_staged => actions.push(Action::SendEnd(process, slot)),
            Ending::NotSent => {}
            Ending::Waiting if state.faults_left.lost_answers > 0 => {
                actions.push(Action::EndUnanswered(process, slot));
            }
            Ending::Waiting => {}
            Ending::Unknown if !self.rules.unknown_end_is_not_an_abort => {
                actions.push(Action::AssumeAborted(process, slot));
            }
            Ending::Unknown if !self.rules.unknown_end_is_not_a_commit => {
                actions.push(Action::AssumeCommitted(process, slot));
            }
            Ending::Unknown => {
                if self.rules.unknown_end_is_sent_again {
                    actions.push(Action::SendEnd(process, slot));
                }
                actions.push(Action::GiveUpEnd(process, slot));
            }
        }
    }

    /// The records of an epoch that lie in a partition.
    fn share_of(&self, epoch: &OpenEpoch, partition: usize) -> RecordSet {
        epoch.records.intersection(self.bounds.records_of(partition))
    }

    /// Whether a record of an epoch that is not staged is not locked for the process any more.
    fn has_lost_locks(&self, state: &State, process: Process) -> bool {
        state.process(process).slots.iter().flatten().any(|epoch| {
            epoch.records.iter().any(|record| {
                let partition = self.bounds.partition_of(record);
                epoch.staging[partition] == Staging::NotAsked
                    && !state.shares[partition].is_acquired_by(record, process)
            })
        })
    }

    /// Adds a record to the filling epoch. That it was held already shows that its lock had been lost.
    pub(super) fn acquire(&self, state: &mut State, process: Process, record: Record) {
        state.shares[self.bounds.partition_of(record)].acquire(record, process);
        let is_held = state.process(process).holds(record);
        if is_held && self.rules.lost_locks_abort_epoch {
            // The older hold is void; this delivery is given back with the rest.
            return self.abort_attempt(state, process, AbortCause::LocksLost);
        }
        let incarnation = state.process_mut(process);
        let slot = incarnation.filling().unwrap_or_else(|| {
            let slot = Incarnation::slot_of(process, incarnation.next);
            incarnation.slots[slot] = Some(OpenEpoch::new(incarnation.next, RecordSet::EMPTY));
            if !process.is_replica() {
                incarnation.next = incarnation.next.next();
            }
            slot
        });
        let epoch = state.epoch_mut(process, slot);
        if epoch.records.contains(record) {
            epoch.doubled = epoch.doubled.with(record);
        }
        epoch.records = epoch.records.with(record);
    }

    /// Adds something to the transaction of a slot. A fenced process ends or recovers; then false.
    fn write(&self, state: &mut State, process: Process, slot: usize, to: Option<Participant>) -> bool {
        let id = self.bounds.ids_of(process)[slot];
        let epoch = state.process(process).producer_epochs[slot];
        match state.transactions[id.index()].write(epoch, process, to) {
            Ok(()) => true,
            Err(WriteRefusal::Fenced | WriteRefusal::StillEnding) => {
                self.on_fenced(state, process);
                false
            }
        }
    }

    /// AddPartitionsToTxn by the source leader. A fenced process ends or recovers; then false.
    fn join(&self, state: &mut State, process: Process, slot: usize, participant: Participant) -> bool {
        let transaction = &mut state.transactions[self.bounds.ids_of(process)[slot].index()];
        if !self.rules.staging_checks_epoch {
            // Planted: it joins whatever transaction the id has.
            let current = transaction.epoch;
            return transaction.write(current, process, Some(participant)).is_ok();
        }
        self.write(state, process, slot, Some(participant))
    }

    pub(super) fn write_outputs(&self, state: &mut State, process: Process, slot: usize) {
        let participant = process.is_replica().then_some(Participant::OutcomeLog);
        if !self.write(state, process, slot, participant) {
            return;
        }
        let epoch = state.epoch_mut(process, slot);
        epoch.is_sealed = true;
        epoch.has_outputs = true;
        let OpenEpoch { records, doubled, checkpoint, .. } = *epoch;
        let id = self.bounds.ids_of(process)[slot];
        let writes = &mut state.transactions[id.index()].writes;
        writes.outputs = records;
        writes.doubled = doubled;
        if process.is_replica() {
            state.epoch_mut(process, slot).has_outcome = true;
            state.outcome_log.push(LogEntry::Outcome { id, writer: process, checkpoint, manifest: None });
        }
    }

    /// The manifest of an epoch, as it is written: the state before and the epoch's records.
    fn manifest_of(&self, state: &State, process: Process, slot: usize) -> Manifest {
        let incarnation = state.process(process);
        let epoch = incarnation.slots[slot].expect("the action names an open epoch");
        let before = incarnation.slots[1 - slot].filter(|_| incarnation.has_open_predecessor(slot));
        // With the rule that manifests wait there is no open epoch before.
        let planned = match before {
            None => Planned { predecessor: incarnation.last, state: incarnation.state.union(epoch.records) },
            Some(before) => Planned {
                predecessor: before.checkpoint,
                state: incarnation.state.union(before.records).union(epoch.records),
            },
        };
        let job_epoch = if self.rules.names_hold_job_epoch { process.job_epoch() } else { JobEpoch(0) };
        let name = ManifestName { checkpoint: epoch.checkpoint, job_epoch };
        Manifest {
            reference: ManifestRef { name, state: planned.state },
            predecessor: planned.predecessor,
            writer: process,
            id: self.bounds.ids_of(process)[slot],
            is_completed: false,
        }
    }

    pub(super) fn write_manifest(
        &self,
        state: &mut State,
        process: Process,
        slot: usize,
        answer: ManifestAnswer,
    ) {
        let manifest = self.manifest_of(state, process, slot);
        match answer {
            ManifestAnswer::Stored | ManifestAnswer::StoredUnanswered => {
                state.manifests.create_if_absent(manifest)
            }
            ManifestAnswer::NotStored => {}
            ManifestAnswer::StoredLater => {
                state.late_manifests.push(manifest);
                state.late_manifests.sort_unstable();
            }
        }
        if answer != ManifestAnswer::Stored {
            state.faults_left.manifest_faults -= 1;
        }
        let is_known = answer == ManifestAnswer::Stored || !self.rules.unknown_manifest_write_is_read;
        let epoch = state.epoch_mut(process, slot);
        epoch.is_sealed = true;
        epoch.planned = Some(Planned { predecessor: manifest.predecessor, state: manifest.reference.state });
        epoch.manifest = if is_known { ManifestWrite::Stored } else { ManifestWrite::Unknown };
    }

    pub(super) fn read_manifest(&self, state: &mut State, process: Process, slot: usize) {
        let name = self.manifest_of(state, process, slot).reference.name;
        let is_stored = state.manifests.contains(name);
        state.epoch_mut(process, slot).manifest =
            if is_stored { ManifestWrite::Stored } else { ManifestWrite::Missing };
    }

    pub(super) fn write_outcome(&self, state: &mut State, process: Process, slot: usize) {
        if !self.write(state, process, slot, Some(Participant::OutcomeLog)) {
            return;
        }
        let name = self.manifest_of(state, process, slot).reference.name;
        let epoch = state.epoch_mut(process, slot);
        epoch.has_outcome = true;
        let (checkpoint, planned) =
            (epoch.checkpoint, epoch.planned.expect("the manifest was written before"));
        let manifest = Some(ManifestRef { name, state: planned.state });
        let id = self.bounds.ids_of(process)[slot];
        state.transactions[id.index()].writes.outcome = Some(Outcome { checkpoint, state: planned.state });
        state.outcome_log.push(LogEntry::Outcome { id, writer: process, checkpoint, manifest });
    }

    /// TxnShareAcknowledge: the leader checks the locks, registers its share-state partition with the
    /// transaction, and sends the write to the shard.
    pub(super) fn stage(&self, state: &mut State, process: Process, slot: usize, partition: usize) {
        let epoch = *state.epoch_mut(process, slot);
        let records = self.share_of(&epoch, partition);
        let id = self.bounds.ids_of(process)[slot];
        let staged = StagedBy { id, epoch: state.process(process).producer_epochs[slot] };
        let answer = match state.shares[partition].judge(records, process, staged, &self.rules) {
            StageRequest::MayStage => {
                let participant = Participant::ShareState(partition as u8);
                if self.rules.share_state_joins_transaction && !self.join(state, process, slot, participant) {
                    return;
                }
                let leader_epoch = state.shares[partition].leader_epoch;
                state.shares[partition].begin_staging(records, process, staged);
                let write =
                    StageWrite { partition: partition as u8, leader_epoch, staged, records, by: process };
                state.stage_writes.push(write);
                state.stage_writes.sort_unstable();
                Staging::Waiting
            }
            StageRequest::UnderWay => Staging::Waiting,
            StageRequest::AlreadyStaged => Staging::Staged,
            StageRequest::LockLost => return self.staging_refused(state, process, slot, partition),
        };
        let epoch = state.epoch_mut(process, slot);
        epoch.is_sealed = true;
        epoch.staging[partition] = answer;
    }

    /// A stage request failed.
    pub(super) fn staging_refused(&self, state: &mut State, process: Process, slot: usize, partition: usize) {
        if self.rules.failed_staging_dooms_epoch {
            let epoch = *state.epoch_mut(process, slot);
            let is_needless = self.is_staged_under_open_transaction(state, process, slot, &epoch);
            let cause = if is_needless { AbortCause::Needless } else { AbortCause::LocksLost };
            self.abort_attempt(state, process, cause);
        } else {
            state.epoch_mut(process, slot).staging[partition] = Staging::Staged;
        }
    }

    /// Whether all records of the epoch are durably staged under its own transaction, which is open: nothing
    /// but the process itself would abort it.
    fn is_staged_under_open_transaction(
        &self,
        state: &State,
        process: Process,
        slot: usize,
        epoch: &OpenEpoch,
    ) -> bool {
        let id = self.bounds.ids_of(process)[slot];
        let staged = StagedBy { id, epoch: state.process(process).producer_epochs[slot] };
        let transaction = &state.transactions[id.index()];
        let is_open = transaction.is_ongoing() && transaction.epoch == staged.epoch;
        is_open
            && epoch.records.iter().all(|record| {
                let share = &state.shares[self.bounds.partition_of(record)];
                share.durable[record.index()] == DurableRecord::Pending(staged)
            })
    }

    /// The deadline for the answer to an EndTxn has passed.
    pub(super) fn give_up_end(&self, state: &mut State, process: Process, slot: usize) {
        let epoch = *state.epoch_mut(process, slot);
        // After the deadline the abort is worth a delivery; at once it is not.
        let is_needless = !self.rules.unknown_end_is_sent_again
            && self.is_staged_under_open_transaction(state, process, slot, &epoch);
        let cause = if is_needless { AbortCause::Needless } else { AbortCause::Other };
        self.abort_attempt(state, process, cause);
    }

    /// Outputs cannot be written: the epoch is aborted, at no cost if nothing was staged.
    pub(super) fn sink_fails(&self, state: &mut State, process: Process, slot: usize) {
        state.faults_left.sink_failures -= 1;
        let epoch = *state.epoch_mut(process, slot);
        let is_needless = self.is_staged_under_open_transaction(state, process, slot, &epoch);
        let cause = if is_needless { AbortCause::Needless } else { AbortCause::Other };
        self.abort_attempt(state, process, cause);
    }

    pub(super) fn send_end(&self, state: &mut State, process: Process, slot: usize) {
        let id = self.bounds.ids_of(process)[slot];
        let epoch = state.process(process).producer_epochs[slot];
        state.end_requests.push(EndTxnRequest { id, epoch, sender: process });
        state.end_requests.sort_unstable();
        state.epoch_mut(process, slot).ending = Ending::Waiting;
    }

    /// The slot in which a process waits, or has waited, for the answer to a request.
    fn waiting_slot(&self, state: &State, request: EndTxnRequest) -> Option<usize> {
        let incarnation = state.process(request.sender);
        let ids = self.bounds.ids_of(request.sender);
        (0..2).find(|slot| {
            let is_asked = incarnation.slots[*slot].is_some_and(|epoch| epoch.ending != Ending::NotSent);
            is_asked
                && incarnation.is_running()
                && ids[*slot] == request.id
                && incarnation.producer_epochs[*slot] == request.epoch
        })
    }

    /// EndTxn arrives; its sender, if it is still there, hears the answer or not.
    pub(super) fn end_arrives(&self, state: &mut State, request: EndTxnRequest, is_answer_lost: bool) {
        let position = state.end_requests.iter().position(|other| *other == request);
        state.end_requests.remove(position.expect("the action names a request under way"));
        let transaction = &mut state.transactions[request.id.index()];
        let answer = transaction.commit(request.epoch, &self.rules);
        if let EndAnswer::Done { committed_now: Some(writes) } = answer {
            state.record_commit(writes);
        }
        if is_answer_lost {
            state.faults_left.lost_answers -= 1;
        }
        let Some(slot) = self.waiting_slot(state, request) else { return };
        match answer {
            _ if is_answer_lost => state.epoch_mut(request.sender, slot).ending = Ending::Unknown,
            EndAnswer::Done { .. } => self.committed(state, request.sender, slot),
            EndAnswer::Refused if self.rules.refused_end_is_not_an_abort => {
                self.on_fenced(state, request.sender);
            }
            EndAnswer::Refused => self.assume_aborted(state, request.sender, slot),
        }
    }

    /// The commit of a slot's epoch is known: the manifest is completed.
    pub(super) fn committed(&self, state: &mut State, process: Process, slot: usize) {
        let name = self.manifest_of(state, process, slot).reference.name;
        if !process.is_replica() {
            state.manifests.complete(name);
        }
        let incarnation = state.process_mut(process);
        let epoch = incarnation.slots[slot].take().expect("the action names an open epoch");
        incarnation.producer_epochs[slot] = incarnation.producer_epochs[slot].bumped();
        if let Some(planned) = epoch.planned {
            incarnation.last = epoch.checkpoint;
            incarnation.state = planned.state;
        }
    }

    /// Planted: InitProducerId without a look at the outcome record.
    pub(super) fn assume_aborted(&self, state: &mut State, process: Process, slot: usize) {
        let id = self.bounds.ids_of(process)[slot];
        let transaction = &mut state.transactions[id.index()];
        let epoch = match transaction.init() {
            InitAnswer::Taken(epoch) => epoch,
            InitAnswer::StillEnding => transaction.epoch,
        };
        let incarnation = state.process_mut(process);
        incarnation.slots[slot] = None;
        incarnation.producer_epochs[slot] = epoch;
    }
}
