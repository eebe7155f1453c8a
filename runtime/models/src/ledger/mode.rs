//! Ledger and transactional replicas in one group: the mode record, and when arbitration may stop.

use super::ids::{Records, ReplicaId};
use super::state::{Entry, Phase, Seen, State, Tail};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// The operator changes the mode; transactional replicas are stopped and started.
    pub(super) fn mode_actions(&self, state: &State, out: &mut Vec<Action>) {
        let written = |wanted| state.log.any(0, state.log.end, |entry| entry == wanted);
        if self.scope.mode_changes >= 1 && !written(Entry::TransactionalMode) {
            out.push(Action::ChangeMode);
        }
        let transactional = || self.replica_ids().filter(|id| self.scope.is_transactional(id.0 as usize));
        let all_stopped = transactional().all(|id| state.replica(id).phase == Phase::Stopped);
        if self.scope.mode_changes >= 2
            && written(Entry::TransactionalMode)
            && !written(Entry::LedgerModeAgain)
            && (all_stopped || !self.rules.keep(Rule::StopBeforeWayBack))
        {
            out.push(Action::ChangeModeBack);
        }
        for id in transactional().filter(|_| self.scope.stops > 0) {
            if state.replica(id).phase == Phase::Stopped {
                out.push(Action::Start(id));
            } else if state.stops < self.scope.stops {
                out.push(Action::Stop(id));
            }
        }
    }

    /// A transactional replica arbitrates like a ledger one until no ledger claim can concern it any more.
    pub(super) fn must_arbitrate(&self, state: &State, tail: &Tail) -> bool {
        let (Some(since), None) = (tail.transactional_since, tail.ledger_again_since) else { return true };
        let ledger_claims = || {
            let below =
                state.each_claim().filter(|(_, claim)| !claim.transactional && claim.position < since);
            below.map(|(id, claim)| (tail.seen[id.0 as usize], claim))
        };
        let start_offset = state.start_offset();
        let is_passed = |claim: &super::state::Claim| claim.records.is_within(Records::below(start_offset));
        let resolved = ledger_claims().all(|(seen, _)| seen != Seen::Open);
        let passed = ledger_claims().all(|(seen, claim)| seen != Seen::Committed || is_passed(claim));
        let caught_up = tail.caught_up_beyond_mode && start_offset >= tail.floor;
        (!resolved && self.rules.keep(Rule::ArbitrateUntilResolved))
            || (!passed && self.rules.keep(Rule::ArbitrateUntilPassed))
            || (!caught_up && self.rules.keep(Rule::ArbitrateUntilCaughtUp))
    }

    /// Whether a ledger claim at `position` lies under a `transactional` mode record that its replica has
    /// read.
    pub(super) fn is_barred_by_mode(&self, tail: &Tail, position: u8) -> bool {
        let is_below = |record: Option<u8>| record.is_some_and(|at| at < position);
        self.rules.keep(Rule::LedgerObeysMode)
            && is_below(tail.transactional_since)
            && !is_below(tail.ledger_again_since)
    }

    /// Whether a ledger replica knows that the group is transactional: its claims would be barred, so it
    /// makes none.
    pub(super) fn is_out_of_mode(&self, id: ReplicaId, tail: &Tail) -> bool {
        !self.scope.is_transactional(id.0 as usize)
            && self.rules.keep(Rule::LedgerObeysMode)
            && tail.transactional_since.is_some()
            && tail.ledger_again_since.is_none()
    }

    /// A transactional replica starts again, with nothing in memory.
    pub(super) fn start(&self, state: &mut State, id: ReplicaId) {
        state.replica_mut(id).phase = Phase::Initialising;
    }

    /// A transactional replica is stopped; its open transaction stays open until somebody or the time-out
    /// ends it.
    pub(super) fn stop(&self, state: &mut State, id: ReplicaId) {
        state.stops += 1;
        self.forget(state, id);
    }
}
