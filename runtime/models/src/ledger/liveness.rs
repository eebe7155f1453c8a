//! Progress of ledger mode: which steps may be relied on, and which states have room left to be judged.

use super::state::{LOG_MAX, Reset, State};
use super::{Action, Ledger};
use crate::progress::ProgressCheck;

/// From every state every record can still be decided.
pub const DECIDABLE: &str = "every record can be decided";

/// Positions that a stuck state must have left, to be judged: a claim and its marker for each replica, and
/// one spare.
const LOG_ROOM: u8 = 6;

impl Ledger {
    /// The check that every record can be decided from everywhere, by steps that nobody prevents for ever.
    /// Only states with a claim left are judged.
    pub fn decidable(&self) -> ProgressCheck<'_, Ledger> {
        ProgressCheck::new(self, |state| self.all_are_decided(state))
            .relying_on(|state, action| self.is_relied_on(state, action))
            .judging(|state| {
                state.claim_count < self.scope.claims && state.log.end + LOG_ROOM <= LOG_MAX as u8
            })
    }

    fn all_are_decided(&self, state: &State) -> bool {
        let is_over = !self.scope.reset || state.reset == Reset::Done;
        is_over && state.effects_of_this_replay().and(state.group.archived) == self.all_records()
    }

    /// Faults, choices of an operator and of the adversary are not relied on. A replica aborts when it must,
    /// somebody ends the transactions of the dead, and everyone reads on.
    fn is_relied_on(&self, state: &State, action: &Action) -> bool {
        match action {
            Action::Crash { .. } | Action::Stop(_) | Action::Start(_) => false,
            // An EndTxn that is too late is refused, or its deadline passes.
            Action::LoseAnswer(replica) => self.is_refused(state, *replica),
            Action::Archive(_) | Action::Compact(_) => false,
            Action::ChangeMode | Action::ChangeModeBack => false,
            Action::RaiseFloor { .. } | Action::Tombstone { .. } | Action::PresumeAborted { .. } => false,
            Action::Abort(replica) => self.must_abort(state, *replica),
            Action::EndTransaction(id) => match state.transaction(*id) {
                super::state::Transaction::Ongoing(claim) => !state.has_owner(claim),
                _ => false,
            },
            Action::Claim { .. }
            | Action::Read(_)
            | Action::SendCommit(_)
            | Action::LearnCommitted { .. }
            | Action::NoticeFence(_)
            | Action::InitProducerId(_)
            | Action::FenceManifestOwner(_)
            | Action::JudgeManifest(_)
            | Action::AcknowledgeDecided { .. }
            | Action::RebuildView(_)
            | Action::Join(_)
            | Action::CommitArrives(_)
            | Action::WriteMarker(_)
            | Action::WriteGeneration
            | Action::ResetOffsets
            | Action::WriteGenerationReady => true,
        }
    }
}
