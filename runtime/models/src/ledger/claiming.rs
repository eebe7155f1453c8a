//! Claim, arbitrate, commit: the life of one transaction as its replica sees it.

use super::ids::{ClaimId, Records, ReplicaId};
use super::state::{Claim, Entry, Fate, Manifest, Phase, Reading, Seen, State, Transaction};
use super::{Action, Ledger};
use crate::rules::Rule;

/// What arbitration says to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not known yet: read on, or wait for a marker.
    Wait,
    /// Another has the records: abort.
    Abort,
    /// Nobody has: commit.
    Pass,
}

impl Ledger {
    /// Steps of a replica's transaction.
    pub(super) fn claiming_actions(&self, state: &State, id: ReplicaId, out: &mut Vec<Action>) {
        let replica = state.replica(id);
        match replica.phase {
            Phase::Stopped | Phase::Initialising => {}
            Phase::Idle if replica.manifest.claim().is_some() => {}
            Phase::Idle | Phase::Claimed(_) if !replica.epoch_is_current => out.push(Action::NoticeFence(id)),
            Phase::Idle => self.claim_actions(state, id, out),
            Phase::Claimed(own) => {
                if self.verdict(state, id, own) == Verdict::Pass && self.may_stage(state, id, own) {
                    out.push(Action::SendCommit(id));
                }
                if !self.scope.patient || self.must_abort(state, id) {
                    out.push(Action::Abort(id));
                }
            }
            Phase::Committing(own) => {
                if state.claim(own).fate == Fate::Committed {
                    out.push(Action::LearnCommitted { replica: id, acknowledges: true });
                    if !state.claim(own).transactional {
                        out.push(Action::LearnCommitted { replica: id, acknowledges: false });
                    }
                }
                if !self.scope.patient || self.is_refused(state, id) {
                    out.push(Action::LoseAnswer(id));
                }
            }
        }
    }

    /// The group may hand any records to anyone; a replica claims those that it does not know as decided.
    fn claim_actions(&self, state: &State, id: ReplicaId, out: &mut Vec<Action>) {
        let replica = state.replica(id);
        let possible = state.claim_count < self.scope.claims
            && state.transaction(replica.id) == Transaction::Empty
            && (id.0 == 0 || !self.is_first_of_alike(state))
            && !self.is_out_of_mode(id, &replica.tail);
        if !possible {
            return;
        }
        let decided = self.decided(state, &replica.tail);
        for records in Records::sets_below(self.scope.records) {
            if !records.overlaps(decided) && (self.scope.wide_claims || records.count() == 1) {
                out.push(Action::Claim { replica: id, records });
            }
        }
    }

    /// Before anything has happened replicas of one kind differ only by name, so it may be A who begins.
    fn is_first_of_alike(&self, state: &State) -> bool {
        let every_keeper = 0b111;
        state.log.end == 0
            && state.crashes == 0
            && state.reset == super::state::Reset::NotBegun
            && self.scope.transactional == 0
            && self.scope.keepers == every_keeper
            && !self.scope.zombie_pair
    }

    /// Produces a claim.
    pub(super) fn claim(&self, state: &mut State, id: ReplicaId, records: Records) -> Option<()> {
        let claim = ClaimId(state.claim_count);
        let position = state.log.append(Entry::Claim(claim))?;
        let replica = state.replica_mut(id);
        replica.phase = Phase::Claimed(claim);
        replica.reading =
            if self.rules.keep(Rule::ReadOwnPosition) { Reading::BelowClaim } else { Reading::Done };
        if self.scope.manifests {
            replica.manifest = Manifest::Pending(claim);
        }
        let (transactional_id, generation) = (replica.id, replica.tail.generation);
        state.claim_count += 1;
        *state.claim_mut(claim) = Claim {
            records,
            id: transactional_id,
            transactional: self.scope.is_transactional(id.0 as usize),
            generation,
            position,
            fate: Fate::Open,
            commit_in_flight: false,
            marked: false,
        };
        state.transactions[transactional_id.0 as usize] = Transaction::Ongoing(claim);
        Some(())
    }

    /// Arbitration: what the replica's view says to its claim.
    pub(super) fn verdict(&self, state: &State, id: ReplicaId, own_id: ClaimId) -> Verdict {
        let replica = state.replica(id);
        let (own, tail) = (state.claim(own_id), &replica.tail);
        if own.transactional && !self.must_arbitrate(state, tail) {
            return Verdict::Pass;
        }
        if replica.reading != Reading::Done {
            return Verdict::Wait;
        }
        let is_older = own.generation != tail.generation;
        if is_older && self.rules.keep(Rule::AbortOlderGeneration) {
            return Verdict::Abort;
        }
        if !own.transactional && self.is_barred_by_mode(tail, own.position) {
            return Verdict::Abort;
        }
        let consults_floor =
            self.rules.keep(Rule::ConsultFloor) && self.consults(own.generation, tail.generation);
        if consults_floor && own.records.overlaps(Records::below(tail.floor)) {
            return Verdict::Abort;
        }
        self.verdict_of_earlier_claims(state, id, own_id)
    }

    fn verdict_of_earlier_claims(&self, state: &State, id: ReplicaId, own_id: ClaimId) -> Verdict {
        let (own, tail) = (state.claim(own_id), &state.replica(id).tail);
        let rivals = state.each_claim().filter(|(other_id, other)| {
            *other_id < own_id
                && other.records.overlaps(own.records)
                && self.consults(own.generation, other.generation)
                && (other.id != own.id || self.rules.keep(Rule::OwnEarlierClaimsCount))
        });
        let mut verdict = Verdict::Pass;
        for (other_id, _) in rivals {
            match tail.seen[other_id.0 as usize] {
                Seen::Committed if self.rules.keep(Rule::AbortOnCommittedClaim) => return Verdict::Abort,
                Seen::Open if self.rules.keep(Rule::RespectOpenClaims) => verdict = Verdict::Wait,
                Seen::Committed | Seen::Open | Seen::Unread | Seen::Aborted => {}
            }
        }
        verdict
    }

    /// Whether the coordinator has aborted the transaction for which a replica has sent EndTxn(COMMIT).
    pub(super) fn is_refused(&self, state: &State, id: ReplicaId) -> bool {
        match state.replica(id).phase {
            Phase::Committing(own) => state.claim(own).fate == Fate::Aborted,
            Phase::Stopped | Phase::Initialising | Phase::Idle | Phase::Claimed(_) => false,
        }
    }

    /// Whether arbitration, or a refused staging, leaves a replica no other way than to abort.
    pub(super) fn must_abort(&self, state: &State, id: ReplicaId) -> bool {
        let Phase::Claimed(own) = state.replica(id).phase else { return false };
        match self.verdict(state, id, own) {
            Verdict::Abort => true,
            Verdict::Pass => !self.may_stage(state, id, own),
            Verdict::Wait => false,
        }
    }

    /// Sends EndTxn(COMMIT), after a transactional replica has staged its acknowledgements.
    pub(super) fn send_commit(&self, state: &mut State, id: ReplicaId) {
        let Phase::Claimed(own) = state.replica(id).phase else { return };
        self.stage(state, own);
        state.claim_mut(own).commit_in_flight = true;
        let replica = state.replica_mut(id);
        replica.phase = Phase::Committing(own);
        replica.reading = Reading::BelowClaim;
    }

    /// Aborts the own transaction by EndTxn(ABORT); its manifest is deleted.
    pub(super) fn abort(&self, state: &mut State, id: ReplicaId) {
        let Phase::Claimed(own) = state.replica(id).phase else { return };
        self.end_transaction(state, state.claim(own).id, false);
        let replica = state.replica_mut(id);
        replica.phase = Phase::Idle;
        replica.reading = Reading::BelowClaim;
        replica.manifest = Manifest::None;
    }

    /// EndTxn was answered with success.
    pub(super) fn learn_committed(&self, state: &mut State, id: ReplicaId, acknowledges: bool) {
        let Phase::Committing(own) = state.replica(id).phase else { return };
        if acknowledges {
            self.acknowledge(state, id, state.claim(own).records);
        }
        let replica = state.replica_mut(id);
        replica.phase = Phase::Idle;
        replica.manifest = Manifest::None;
    }

    /// No answer came: only InitProducerId and the log can tell.
    pub(super) fn lose_answer(&self, state: &mut State, id: ReplicaId) {
        let Phase::Committing(own) = state.replica(id).phase else { return };
        if !self.rules.keep(Rule::NoAckOnLostAnswer) {
            self.acknowledge(state, id, state.claim(own).records);
        }
        let replica = state.replica_mut(id);
        replica.phase = Phase::Initialising;
        replica.epoch_is_current = false;
    }

    /// The producer epoch is fenced: the open transaction is lost.
    pub(super) fn notice_fence(&self, state: &mut State, id: ReplicaId) {
        let replica = state.replica_mut(id);
        replica.phase = Phase::Initialising;
        replica.reading = Reading::BelowClaim;
    }
}
