//! Transactional mode: one Kafka transaction commits outputs, outcome record and share acknowledgements
//! (KIP-1289).
//!
//! The model holds a job that pipelines checkpoints over two alternating transactional ids, its later
//! incarnations (a successor after a crash, or one that starts while the older goes on as a zombie), a second
//! stateless replica in the same share group, the checkpoint store, the transaction coordinator, the outcome
//! partition, and for each source partition the leader's memory and the durable share-state partition.
//!
//! ```text
//! acquire -> outputs -> manifest, pending -> outcome record -> stage -> EndTxn -> manifest, completed
//!                                                                |        |
//!              leader checks locks, joins transaction, stage write        PREPARE -> markers, one by one
//! ```
//!
//! # What one step stands for
//! Every message whose delay matters is a step of its own: a stage write, an EndTxn, each marker, a manifest
//! write that lands after its time-out, the leader's look at the durable state. All other requests happen at
//! the moment when they arrive. Their delay shows nothing new: as long as the sender waits, arriving late is
//! sending late; if the sender dies meanwhile, an older incarnation that goes on leads to the same state.
//!
//! A crash may come between any two steps, and so may every other fault. Budgets in [`Faults`] limit how many
//! come, so that a search ends: crashes, takeovers, lost answers, time-outs, lost locks, moves of leaders,
//! failures of sink, store and shard.
//!
//! # What is left out, and why that loses nothing
//! - Outputs are not stored. They count from the coordinator's decision, since their markers can only delay
//!   readers; a late produce request is refused by the partition's own producer state, which is plain Kafka.
//! - REJECT and GAP are terminal like ACCEPT: the protocol treats them alike.
//! - Content is a set of records. The state of a manifest is the set of records that operator state counts,
//!   so "restores exactly the last commit" is equality of sets; a manifest's hash stands for that set.
//! - Delivery counts. Wasting one is a property instead
//!   ([`NO_DELIVERY_WASTED`](properties::NO_DELIVERY_WASTED)); archives do not occur.
//! - A recovery's decision is one step. A crash inside leads to a recovery that decides the same from the
//!   same facts.
//! - A process reads the owner in the step in which it learns of a fence; a later takeover is a later step.
//! - Member epochs: a process has one member for good. That is the worst case, since only a member that is
//!   handed the same record twice can produce it twice.
//! - The replica has one slot and no manifest, and writes its outcome together with its outputs.
//! - The leader's look at the durable state is one step. Reads that overlap need guards of their own: one at
//!   a time, and only while leadership lasts.
//! - The outcome topic's compaction: this mode never tombstones an outcome that recovery needs.
//! - More than two source partitions: staging may succeed at one leader and fail at another, and a third
//!   differs from the second in nothing.
//!
//! # What the model taught
//! Three rules are not in the protocol's description: [`Rules::ids_of_earlier_owners_are_fenced`],
//! [`Rules::newer_manifests_are_left_alone`], and that the id of the outcome topic must be kept outside of
//! it, for [`Rules::recreated_outcome_topic_is_corrupt`]. Two incarnations of which one still recovers can
//! fence each other any number of times; each can always get through, so this is no dead end, but a recovery
//! had better read the owner before each retry. Rules that another rule backs up, and those whose absence
//! shows nothing, are marked in [`removals`].

mod actions;
mod bounds;
mod broker;
pub mod cases;
pub mod configurations;
mod incarnation;
mod job;
mod manifests;
mod names;
mod outcome_log;
pub mod properties;
mod recovery;
pub mod removals;
mod rules;
mod share;
mod state;
mod transaction;

use stateright::{Model, Property};

pub use actions::{Action, ManifestAnswer, StageAnswer};
pub use bounds::{Bounds, Faults};
pub use incarnation::{
    End, Ending, Incarnation, ManifestWrite, OpenEpoch, Phase, Planned, Recovery, Staging,
};
pub use manifests::{Corrupt, Manifest, ManifestName, ManifestRef, ManifestStore, Restored};
pub use names::{
    Checkpoint, IdSet, JobEpoch, PARTITIONS_MAX, PROCESSES, Process, ProducerEpoch, RECORDS_MAX, Record,
    RecordSet, TRANSACTIONAL_IDS, TransactionalId,
};
pub use outcome_log::{LogEntry, OutcomesRead};
pub use rules::Rules;
pub use share::{DurableRecord, LeaderRecord, SharePartition, StageRequest, StageWrite, StagedBy};
pub use state::{EndTxnRequest, History, State};
pub use transaction::{
    EndAnswer, InitAnswer, Outcome, Participant, Participants, Progress, Transaction, Verdict, WriteRefusal,
    Writes,
};

/// The model: a configuration and the rules that are obeyed in it.
#[derive(Clone, Debug, Default)]
pub struct Transactional {
    /// The rules.
    pub rules: Rules,
    /// The configuration.
    pub bounds: Bounds,
    /// If set, only the property of this name is asked for.
    pub asked: Option<&'static str>,
}

impl Model for Transactional {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for index in 0..PROCESSES {
            let process = Process(index as u8);
            match &state.process(process).phase {
                Phase::NotStarted if self.may_start(state, process) => actions.push(Action::Start(process)),
                Phase::NotStarted | Phase::Ended(_) => {}
                Phase::Recovering(recovery) => self.recovery_actions(state, process, recovery, actions),
                Phase::Running => self.running_actions(state, process, actions),
            }
            self.outside_actions(state, process, actions);
        }
        self.broker_actions(state, actions);
        self.cluster_faults(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, action);
        self.tidy(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = properties::all();
        properties.retain(|property| self.asked.is_none_or(|asked| asked == property.name));
        properties
    }

    fn format_action(&self, action: &Action) -> String {
        action.to_string()
    }
}

impl Transactional {
    fn take(&self, state: &mut State, action: Action) {
        match action {
            Action::Start(process) => self.start(state, process),
            Action::Init(process, id) => self.init(state, process, id),
            Action::ReadOwner(process) => self.read_owner(state, process),
            Action::Decide(process) => self.decide(state, process),
            Action::Acquire(process, record) => self.acquire(state, process, record),
            Action::WriteOutputs(process, slot) => self.write_outputs(state, process, slot),
            Action::WriteManifest(process, slot, answer) => self.write_manifest(state, process, slot, answer),
            Action::ReadManifest(process, slot) => self.read_manifest(state, process, slot),
            Action::WriteOutcome(process, slot) => self.write_outcome(state, process, slot),
            Action::Stage(process, slot, partition) => self.stage(state, process, slot, partition),
            Action::SendEnd(process, slot) => self.send_end(state, process, slot),
            Action::GiveUpEnd(process, slot) => self.give_up_end(state, process, slot),
            Action::AssumeAborted(process, slot) => self.assume_aborted(state, process, slot),
            Action::AssumeCommitted(process, slot) => self.committed(state, process, slot),
            Action::NoticeLostLocks(process) => {
                self.abort_attempt(state, process, recovery::AbortCause::LocksLost);
            }
            Action::StageWriteArrives(write, answer) => self.stage_write_arrives(state, write, answer),
            Action::EndArrives(request, is_answer_lost) => self.end_arrives(state, request, is_answer_lost),
            Action::MarkerArrives(id, participant) => self.marker_arrives(state, id, participant),
            Action::LeaderLearns(partition) => {
                state.shares[partition].leader_learns(&self.rules);
            }
            Action::LocksOfDeadExpire(process) => self.lose_locks(state, process),
            Action::ForgottenLockExpires(_, record) => {
                let share = &mut state.shares[self.bounds.partition_of(record)];
                share.leader[record.index()] = LeaderRecord::Available;
            }
            Action::TimeOutOfDead(id) => state.transactions[id.index()].time_out(),
            Action::LateManifestLands(manifest) => {
                state.late_manifests.retain(|other| *other != manifest);
                state.manifests.create_if_absent(manifest);
            }
            Action::Crash(process) => self.crash(state, process),
            Action::EndUnanswered(process, slot) => self.end_unanswered(state, process, slot),
            Action::TimeOut(id) => {
                state.faults_left.time_outs -= 1;
                state.transactions[id.index()].time_out();
            }
            Action::LoseLocks(process) => {
                state.faults_left.lost_locks -= 1;
                self.lose_locks(state, process);
            }
            Action::MoveLeader(partition) => {
                state.faults_left.leader_moves -= 1;
                state.shares[partition].move_leader(&self.rules);
            }
            Action::LoseOutcomeTopic => {
                state.faults_left.outcome_topic_losses -= 1;
                state.outcome_log.clear();
                state.is_outcome_topic_new = true;
            }
            Action::SinkFails(process, slot) => self.sink_fails(state, process, slot),
        }
    }
}
