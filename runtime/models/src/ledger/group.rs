//! The share group: acknowledgements, staged acknowledgements, the broker's own archiving.
//!
//! Who holds which record is not modelled: the group is an adversary that hands any record to anyone at any
//! time.

use super::ids::{ClaimId, RECORDS_MAX, Records, ReplicaId};
use super::state::{Membership, State};
use super::{Action, Ledger};

impl Ledger {
    /// Steps of the broker's group coordinator and of replicas that are handed decided records.
    pub(super) fn group_actions(&self, state: &State, out: &mut Vec<Action>) {
        let handed_out = |record: u8| {
            !state.group.finished().contains(record) && state.group.staged[record as usize].is_none()
        };
        for record in (0..self.scope.records).filter(|record| handed_out(*record)) {
            if self.scope.archiving {
                out.push(Action::Archive(record));
            }
            for id in self.replica_ids().filter(|_| self.scope.acks) {
                let replica = state.replica(id);
                if self.drops_decided(state, id) && self.decided(state, &replica.tail).contains(record) {
                    out.push(Action::AcknowledgeDecided { replica: id, record });
                }
            }
        }
    }

    /// Whether a replica acknowledges and drops what it knows as decided: it runs, and is a member that has
    /// read on.
    pub(super) fn drops_decided(&self, state: &State, id: ReplicaId) -> bool {
        let replica = state.replica(id);
        replica.phase != super::state::Phase::Stopped && replica.membership == Membership::Member
    }

    /// An ordinary acknowledgement. It fails for records that are finished or staged, and for who is no
    /// member.
    pub(super) fn acknowledge(&self, state: &mut State, id: ReplicaId, records: Records) {
        if state.replica(id).membership == Membership::Outside {
            return;
        }
        let applied = records.minus(state.group.finished()).minus(state.group.pending());
        if !applied.is_within(state.effects_of_this_replay()) {
            state.acknowledged_without_effect = true;
        }
        if self.scope.acks {
            state.group.acknowledged = state.group.acknowledged.and(applied);
        }
    }

    /// Whether TxnShareAcknowledge would take a claim's records. Always, for a ledger replica, which stages
    /// none.
    pub(super) fn may_stage(&self, state: &State, id: ReplicaId, claim: ClaimId) -> bool {
        let taken = state.group.finished().and(state.group.pending());
        let is_transactional = self.scope.is_transactional(id.0 as usize);
        !is_transactional || !state.claim(claim).records.overlaps(taken)
    }

    /// Stages the acknowledgements of a transactional claim.
    pub(super) fn stage(&self, state: &mut State, claim: ClaimId) {
        if state.claim(claim).transactional {
            for record in state.claim(claim).records.iter() {
                state.group.staged[record as usize] = Some(claim);
            }
        }
    }

    /// The outcome of a transaction reaches its staged acknowledgements.
    pub(super) fn settle_staged(&self, state: &mut State, claim: ClaimId, commit: bool) {
        for record in 0..RECORDS_MAX {
            if state.group.staged[record] == Some(claim) {
                state.group.staged[record] = None;
                if commit {
                    state.group.acknowledged = state.group.acknowledged.and(Records::one(record as u8));
                }
            }
        }
    }
}
