//! Crashes, and the way back: a producer epoch first, then the judgement on a pending manifest.

use super::ids::{IDS_MAX, Records, ReplicaId, TransactionalId};
use super::state::{Fate, Manifest, Membership, Phase, Reading, Seen, State, Tail, Transaction};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// Steps of a crash and of the recovery after it.
    pub(super) fn recovery_actions(&self, state: &State, id: ReplicaId, out: &mut Vec<Action>) {
        let replica = state.replica(id);
        if replica.phase != Phase::Stopped && state.crashes < self.scope.crashes {
            out.push(Action::Crash { replica: id, new_id: false });
            if self.scope.new_ids && !replica.has_new_id && self.new_id(id).is_some() {
                out.push(Action::Crash { replica: id, new_id: true });
            }
        }
        let is_answered =
            |id: TransactionalId| !matches!(state.transaction(id), Transaction::Prepared { .. });
        match (replica.phase, replica.manifest) {
            (Phase::Initialising, Manifest::Pending(claim)) if self.must_fence_owner(state, id) => {
                if is_answered(state.claim(claim).id) {
                    out.push(Action::FenceManifestOwner(id));
                }
            }
            (Phase::Initialising, _) if is_answered(replica.id) => out.push(Action::InitProducerId(id)),
            (Phase::Idle, Manifest::ReadUntil { end, .. }) => {
                // To believe the floor one must at least have read all floors.
                let end = if self.scope.recovery_trusts_floor { state.log.end } else { end };
                if replica.tail.position >= end {
                    out.push(Action::JudgeManifest(id));
                }
            }
            (
                Phase::Stopped | Phase::Initialising | Phase::Idle | Phase::Claimed(_) | Phase::Committing(_),
                _,
            ) => {}
        }
    }

    /// The id under which a replica may come back instead of its own.
    fn new_id(&self, id: ReplicaId) -> Option<TransactionalId> {
        let number = id.0 + self.scope.replicas;
        (!self.scope.zombie_pair && (number as usize) < IDS_MAX).then_some(TransactionalId(number))
    }

    /// A process dies. What it knew of the log is lost; its manifest is not, nor is what it has sent.
    pub(super) fn crash(&self, state: &mut State, id: ReplicaId, new_id: bool) {
        state.crashes += 1;
        self.forget(state, id);
        let log_end = state.log.end;
        let replica = state.replica_mut(id);
        replica.phase = Phase::Initialising;
        if !self.rules.keep(Rule::ReadFromStart) {
            replica.tail.position = log_end;
        }
        if new_id && let Some(new_id) = self.new_id(id) {
            replica.id = new_id;
            replica.has_new_id = true;
        }
    }

    /// The memory of a process that is gone.
    pub(super) fn forget(&self, state: &mut State, id: ReplicaId) {
        let membership = if self.scope.reset { Membership::Outside } else { Membership::Member };
        let replica = state.replica_mut(id);
        replica.phase = Phase::Stopped;
        replica.epoch_is_current = false;
        replica.reading = Reading::BelowClaim;
        replica.tail = Tail::START;
        replica.membership = membership;
        if let Some(claim) = replica.manifest.claim() {
            replica.manifest = Manifest::Pending(claim);
        }
    }

    fn must_fence_owner(&self, state: &State, id: ReplicaId) -> bool {
        let replica = state.replica(id);
        let names_other = replica.manifest.claim().is_some_and(|claim| state.claim(claim).id != replica.id);
        names_other && self.rules.keep(Rule::FenceManifestOwner)
    }

    /// InitProducerId: ends what is open and must be repeated, or succeeds with a new epoch.
    pub(super) fn init_producer_id(&self, state: &mut State, id: ReplicaId) {
        let transactional_id = state.replica(id).id;
        let succeeds = state.transaction(transactional_id) == Transaction::Empty;
        self.fence(state, transactional_id);
        if !succeeds {
            return;
        }
        let log_end = state.log.end;
        let replica = state.replica_mut(id);
        replica.epoch_is_current = true;
        replica.phase = Phase::Idle;
        if let Some(claim) = replica.manifest.claim() {
            replica.manifest = Manifest::ReadUntil { claim, end: log_end };
        }
    }

    /// The same for the id that the manifest names: nothing of it can commit after success.
    pub(super) fn fence_manifest_owner(&self, state: &mut State, id: ReplicaId) {
        let Some(claim) = state.replica(id).manifest.claim() else { return };
        let owner = state.claim(claim).id;
        let succeeds = state.transaction(owner) == Transaction::Empty;
        self.fence(state, owner);
        if succeeds {
            state.replica_mut(id).manifest = Manifest::OwnerFenced(claim);
        }
    }

    /// The manifest is completed if its outcome record committed, else deleted.
    pub(super) fn judge_manifest(&self, state: &mut State, id: ReplicaId) {
        let replica = state.replica(id);
        let Some(claim_id) = replica.manifest.claim() else { return };
        let claim = state.claim(claim_id);
        let is_read = replica.tail.seen[claim_id.0 as usize] == Seen::Committed;
        let is_below = claim.records.is_within(Records::below(replica.tail.floor));
        let judged_committed = is_read || self.scope.recovery_trusts_floor && is_below;
        if judged_committed != (claim.fate == Fate::Committed) {
            state.recovered_wrongly = true;
        }
        state.replica_mut(id).manifest = Manifest::None;
    }
}
