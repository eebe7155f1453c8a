//! Ledger mode: claims in one log decide who may commit, and the roll-out from it to transactional mode.
//!
//! A replica that was handed records claims them in the outcome partition, reads the log until it is caught
//! up, and commits only if no earlier claim of the same records is committed or open. The share group is an
//! adversary.
//!
//! | file | what |
//! |---|---|
//! | `ids` | records, claims, replicas by name |
//! | `scope` | bounds and adversaries of a configuration |
//! | `state` | the world |
//! | `action` | the steps, in words |
//! | `claiming` | claim, arbitrate, commit |
//! | `tail` | reading the log |
//! | `coordinator` | transactions, fences, markers |
//! | `group` | acknowledgements |
//! | `floor`, `cleaner` | floors, tombstones, compaction |
//! | `recovery` | crashes, pending manifests |
//! | `replay` | the reset of the group |
//! | `mode` | transactional replicas beside ledger ones |
//! | `symmetry` | fewer states where records are alike |
//! | `picture` | a state in words |
//! | `liveness` | which steps may be relied on |

pub mod action;
mod claiming;
mod cleaner;
mod coordinator;
mod floor;
mod group;
pub mod ids;
mod liveness;
mod mode;
mod picture;
mod recovery;
mod replay;
pub mod scope;
pub mod state;
mod symmetry;
mod tail;

use stateright::{Model, Property};

pub use action::Action;
pub use claiming::Verdict;
pub use liveness::DECIDABLE;
pub use scope::{Compaction, Scope};

use crate::rules::Rules;
use ids::{Records, ReplicaId, TransactionalId};
use state::{Fate, Phase, State};

/// No record has two committed effects within one generation.
pub const ONE_EFFECT: &str = "one committed effect";
/// Nothing is acknowledged, or believed decided by one who acknowledges, without a committed effect.
pub const NO_ACK_WITHOUT_EFFECT: &str = "no acknowledgement without an effect";
/// Recovery takes a manifest for committed if and only if it is.
pub const RECOVERS_TRUTH: &str = "recovery finds the truth";
/// The model can commit every record: it is no model in which nothing happens.
pub const ALL_COMMITTED: &str = "all records can be committed";

/// The model: a scope and the rules that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    /// Bounds and environment.
    pub scope: Scope,
    /// Rules kept.
    pub rules: Rules,
}

impl Ledger {
    /// The replicas of the scope.
    pub(crate) fn replica_ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.scope.replicas).map(ReplicaId)
    }

    /// Whether two committed claims of one generation share a record.
    fn has_two_effects(&self, state: &State) -> bool {
        let committed = || state.each_claim().filter(|(_, claim)| claim.fate == Fate::Committed);
        let generation = |position| if self.scope.reset { state.generation_at(position) } else { 0 };
        committed().any(|(id, claim)| {
            committed().any(|(earlier, other)| {
                earlier < id
                    && claim.records.overlaps(other.records)
                    && generation(claim.position) == generation(other.position)
            })
        })
    }

    /// Whether a replica that drops decided deliveries takes a record for decided that is not.
    fn believes_undecided(&self, state: &State) -> bool {
        let decided = state.effects_of_this_replay().and(state.group.archived);
        self.replica_ids()
            .filter(|id| self.drops_decided(state, *id))
            .any(|id| !self.decided(state, &state.replica(id).tail).is_within(decided))
    }

    /// All claims that the scope allows are made and decided: no double effect can follow.
    fn is_settled(&self, state: &State) -> bool {
        state.claim_count == self.scope.claims
            && state.each_claim().all(|(_, claim)| claim.fate != Fate::Open)
            && self.replica_ids().all(|id| state.replica(id).manifest.claim().is_none())
    }

    /// Every record of the scope.
    pub(crate) fn all_records(&self) -> Records {
        Records::below(self.scope.records)
    }
}

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::new();
        for replica in &mut state.replicas[..self.scope.replicas as usize] {
            replica.phase = Phase::Idle;
            replica.epoch_is_current = true;
        }
        if self.scope.zombie_pair {
            state.replicas[1].id = TransactionalId(0);
            state.replicas[1].phase = Phase::Initialising;
            state.replicas[1].epoch_is_current = false;
        }
        vec![state]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if self.scope.ends_when_settled && self.is_settled(state) {
            return;
        }
        for id in self.replica_ids() {
            self.tail_actions(state, id, out);
            self.claiming_actions(state, id, out);
            self.recovery_actions(state, id, out);
            self.keeper_actions(state, id, out);
        }
        self.coordinator_actions(state, out);
        self.group_actions(state, out);
        self.mode_actions(state, out);
        self.replay_actions(state, out);
        self.cleaner_actions(state, out);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        match action {
            Action::Claim { replica, records } => self.claim(&mut next, replica, records)?,
            Action::Read(replica) => self.read(&mut next, replica),
            Action::SendCommit(replica) => self.send_commit(&mut next, replica),
            Action::Abort(replica) => self.abort(&mut next, replica),
            Action::LearnCommitted { replica, acknowledges } => {
                self.learn_committed(&mut next, replica, acknowledges)
            }
            Action::LoseAnswer(replica) => self.lose_answer(&mut next, replica),
            Action::NoticeFence(replica) => self.notice_fence(&mut next, replica),
            Action::InitProducerId(replica) => self.init_producer_id(&mut next, replica),
            Action::FenceManifestOwner(replica) => self.fence_manifest_owner(&mut next, replica),
            Action::JudgeManifest(replica) => self.judge_manifest(&mut next, replica),
            Action::AcknowledgeDecided { replica, record } => {
                self.acknowledge(&mut next, replica, Records::one(record));
            }
            Action::RaiseFloor { replica, end } => self.append_floor(&mut next, replica, end)?,
            Action::Tombstone { claim, .. } => {
                next.log.append(state::Entry::Tombstone(claim))?;
            }
            Action::RebuildView(replica) => self.rebuild_view(&mut next, replica),
            Action::PresumeAborted { replica, claim } => {
                next.replica_mut(replica).tail.seen[claim.0 as usize] = state::Seen::Aborted;
            }
            Action::Join(replica) => self.join(&mut next, replica),
            Action::Crash { replica, new_id } => self.crash(&mut next, replica, new_id),
            Action::Stop(replica) => self.stop(&mut next, replica),
            Action::Start(replica) => self.start(&mut next, replica),
            Action::CommitArrives(claim) => self.commit_arrives(&mut next, claim),
            Action::EndTransaction(id) => self.end_from_outside(&mut next, id),
            Action::WriteMarker(id) => self.write_marker(&mut next, id)?,
            Action::Archive(record) => next.group.archived = next.group.archived.and(Records::one(record)),
            Action::Compact(position) => next.log.clear(position),
            Action::ChangeMode => {
                next.log.append(state::Entry::TransactionalMode)?;
            }
            Action::ChangeModeBack => {
                next.log.append(state::Entry::LedgerModeAgain)?;
            }
            Action::WriteGeneration => self.write_generation(&mut next)?,
            Action::ResetOffsets => self.reset_offsets(&mut next),
            Action::WriteGenerationReady => self.write_generation_ready(&mut next)?,
        }
        Some(if self.scope.symmetric_records { symmetry::canonical(next) } else { next })
    }

    fn format_action(&self, action: &Action) -> String {
        action.to_string()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_EFFECT, |model: &Ledger, state: &State| !model.has_two_effects(state)),
            Property::always(NO_ACK_WITHOUT_EFFECT, |model: &Ledger, state: &State| {
                !state.acknowledged_without_effect && !model.believes_undecided(state)
            }),
            Property::always(RECOVERS_TRUTH, |_: &Ledger, state: &State| !state.recovered_wrongly),
            Property::sometimes(ALL_COMMITTED, |model: &Ledger, state: &State| {
                state.committed(|_| true) == model.all_records()
            }),
        ]
    }
}
