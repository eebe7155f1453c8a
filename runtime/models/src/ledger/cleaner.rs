//! The log cleaner, entry by entry.

use super::state::{Entry, Fate, State};
use super::{Action, Ledger};
use crate::ledger::scope::Compaction;
use crate::rules::Rule;

impl Ledger {
    /// Entries that the cleaner may remove now.
    pub(super) fn cleaner_actions(&self, state: &State, out: &mut Vec<Action>) {
        let reach = match self.scope.compaction {
            Compaction::Off => return,
            Compaction::Kafka => state.last_stable_offset(),
            Compaction::Anywhere => state.log.end,
        };
        for position in 0..reach {
            if self.may_remove(state, position, reach) {
                out.push(Action::Compact(position));
            }
        }
    }

    fn may_remove(&self, state: &State, position: u8, reach: u8) -> bool {
        let superseded_by = |wanted: &dyn Fn(Entry) -> bool| state.log.any(position + 1, reach, wanted);
        let is_gone = |claim| state.log.at(state.claim(claim).position) == Entry::Hole;
        match state.log.at(position) {
            Entry::Claim(id) => {
                let claim = state.claim(id);
                let is_aborted = claim.fate == Fate::Aborted && claim.marked;
                let reuses_key = |entry| match entry {
                    Entry::Claim(later) => {
                        let later = state.claim(later);
                        later.id == claim.id && later.fate != Fate::Aborted
                    }
                    _ => false,
                };
                superseded_by(&|entry| entry == Entry::Tombstone(id))
                    || self.scope.cleans_leftovers && is_aborted
                    || !self.rules.keep(Rule::UniqueKeys) && superseded_by(&reuses_key)
            }
            Entry::Floor { .. } => self.floor_is_superseded(state, position, reach),
            Entry::Tombstone(claim) | Entry::Marker { claim, .. } => {
                self.scope.cleans_leftovers && is_gone(claim)
            }
            // The newest mode record and the newest generation are live values of their keys.
            Entry::TransactionalMode
            | Entry::LedgerModeAgain
            | Entry::Generation
            | Entry::GenerationReady => false,
            Entry::Nothing | Entry::Hole => false,
        }
    }
}
