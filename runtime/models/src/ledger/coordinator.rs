//! The transaction coordinator: EndTxn, fences, time-outs, markers. One producer epoch for each transaction.

use super::ids::{ClaimId, TransactionalId};
use super::state::{Entry, Fate, State, Transaction};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// Steps of the coordinator.
    pub(super) fn coordinator_actions(&self, state: &State, out: &mut Vec<Action>) {
        for (id, claim) in state.each_claim() {
            if claim.commit_in_flight {
                out.push(Action::CommitArrives(id));
            }
        }
        for (number, transaction) in state.transactions.iter().enumerate() {
            let id = TransactionalId(number as u8);
            match transaction {
                Transaction::Empty => {}
                Transaction::Ongoing(claim) => {
                    if self.may_end_from_outside(state, *claim) {
                        out.push(Action::EndTransaction(id));
                    }
                }
                Transaction::Prepared { .. } => out.push(Action::WriteMarker(id)),
            }
        }
    }

    /// A living owner's transaction may be ended so many times; a dead one's by any waiter (rule 13).
    fn may_end_from_outside(&self, state: &State, claim: ClaimId) -> bool {
        if state.has_owner(claim) {
            state.fences < self.scope.fences
        } else {
            self.rules.keep(Rule::EndDeadOwners)
        }
    }

    /// EndTxn(COMMIT) arrives. It counts only if its transaction is still the open one of its id.
    pub(super) fn commit_arrives(&self, state: &mut State, claim: ClaimId) {
        state.claim_mut(claim).commit_in_flight = false;
        let id = state.claim(claim).id;
        if state.transaction(id) == Transaction::Ongoing(claim) {
            self.end_transaction(state, id, true);
        }
    }

    /// Somebody else's InitProducerId, or the time-out.
    pub(super) fn end_from_outside(&self, state: &mut State, id: TransactionalId) {
        if let Transaction::Ongoing(claim) = state.transaction(id)
            && state.has_owner(claim)
        {
            state.fences += 1;
        }
        self.fence(state, id);
    }

    /// Aborts what is open under an id and bumps its epoch: whoever holds it is fenced.
    pub(super) fn fence(&self, state: &mut State, id: TransactionalId) {
        self.end_transaction(state, id, false);
        for replica in &mut state.replicas {
            if replica.id == id {
                replica.epoch_is_current = false;
            }
        }
    }

    /// Decides the open transaction of an id, if there is one. Staged acknowledgements follow the decision.
    pub(super) fn end_transaction(&self, state: &mut State, id: TransactionalId, commit: bool) {
        let Transaction::Ongoing(claim) = state.transaction(id) else { return };
        state.transactions[id.0 as usize] = Transaction::Prepared { claim, commit };
        state.claim_mut(claim).fate = if commit { Fate::Committed } else { Fate::Aborted };
        self.settle_staged(state, claim, commit);
    }

    /// Writes the marker; the id is free again.
    pub(super) fn write_marker(&self, state: &mut State, id: TransactionalId) -> Option<()> {
        let Transaction::Prepared { claim, commit } = state.transaction(id) else { return None };
        state.log.append(Entry::Marker { claim, committed: commit })?;
        state.claim_mut(claim).marked = true;
        state.transactions[id.0 as usize] = Transaction::Empty;
        Some(())
    }
}
