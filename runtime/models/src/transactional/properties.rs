//! What must always hold, and what must be reachable so that a model that can do nothing does not pass.

use stateright::Property;

use super::names::{Record, TransactionalId};
use super::share::{DurableRecord, StagedBy};
use super::transaction::{Participant, Progress, Verdict};
use super::{State, Transactional, outcome_log};

/// G1: no record has two committed effects.
pub const ONE_EFFECT: &str = "no record has two committed effects";
/// G2, one half.
pub const EFFECT_IS_ACKNOWLEDGED: &str =
    "a committed effect has its acknowledgement or a marker that brings it";
/// G2, the other half.
pub const ACKNOWLEDGED_HAS_EFFECT: &str = "no acknowledgement without a committed effect";
/// G4.
pub const FENCED: &str = "no commit of an older incarnation after a newer one took over";
/// Restores exactly the last commit.
pub const RESTORES_LAST_COMMIT: &str = "recovery restores exactly the last commit";
/// The store and the outcome log are never damaged in this model.
pub const NEVER_CORRUPT: &str = "recovery finds no corruption where there is none";
/// Commits stay in order.
pub const COMMITS_BUILD_ON_COMMITS: &str = "every commit builds on all commits before it";
/// An avoidable delivery would end in the broker's archive (G3).
pub const NO_DELIVERY_WASTED: &str = "a failing sink or a lost answer alone costs no delivery";
/// TX_PENDING does not stay for ever.
pub const PENDING_HAS_MARKER: &str = "every pending record has a marker to come";
/// The model can do its work.
pub const ALL_DECIDED: &str = "all records can be decided";

pub(super) fn all() -> Vec<Property<Transactional>> {
    vec![
        Property::always(ONE_EFFECT, |_, state: &State| state.history.effects.iter().all(|count| *count < 2)),
        Property::always(EFFECT_IS_ACKNOWLEDGED, effect_is_acknowledged),
        Property::always(ACKNOWLEDGED_HAS_EFFECT, acknowledged_has_effect),
        Property::always(FENCED, |_, state: &State| !state.history.fenced_one_committed),
        Property::always(RESTORES_LAST_COMMIT, |_, state: &State| !state.history.restored_another),
        Property::always(NEVER_CORRUPT, |_, state: &State| !state.history.corrupt),
        Property::always(COMMITS_BUILD_ON_COMMITS, |_, state: &State| !state.history.commit_skipped_another),
        Property::always(NO_DELIVERY_WASTED, |_, state: &State| !state.history.delivery_wasted),
        Property::always(PENDING_HAS_MARKER, pending_has_marker),
        Property::sometimes(ALL_DECIDED, |model: &Transactional, state: &State| model.is_all_decided(state)),
    ]
}

impl Transactional {
    /// Whether every record is acknowledged and nothing is open: no transaction, no marker, no pending
    /// record.
    pub fn is_all_decided(&self, state: &State) -> bool {
        let is_done = |record: Record| state.is_acknowledged(record, &self.bounds);
        self.bounds.all_records().iter().all(is_done)
            && TransactionalId::all().all(|id| state.transactions[id.index()].is_resolved())
            && state.stage_writes.is_empty()
    }

    /// Whether there are checkpoint ids left for every record and a spare one. Two incarnations that keep
    /// fencing each other while one of them recovers could use up any number of them.
    pub fn has_room(&self, state: &State) -> bool {
        let in_memory = state.processes.iter().map(|incarnation| incarnation.next.0);
        let stored = state.manifests.iter().map(|manifest| manifest.reference.name.checkpoint.0 + 1);
        let seen = outcome_log::read(&state.outcome_log).highest_seen.0 + 1;
        let next = in_memory.chain(stored).max().unwrap_or(0).max(seen);
        usize::from(next) + self.bounds.records <= usize::from(self.bounds.checkpoints)
    }

    fn durable(&self, state: &State, record: Record) -> DurableRecord {
        state.shares[self.bounds.partition_of(record)].durable[record.index()]
    }

    /// The verdict that the marker on its way to the record's share-state partition will bring.
    fn coming_verdict(&self, state: &State, record: Record, staged: StagedBy) -> Option<Verdict> {
        let transaction = &state.transactions[staged.id.index()];
        let participant = Participant::ShareState(self.bounds.partition_of(record) as u8);
        match transaction.progress {
            Progress::Ending(verdict, remaining)
                if remaining.contains(participant) && staged.epoch < transaction.epoch =>
            {
                Some(verdict)
            }
            Progress::Ending(..) | Progress::Empty | Progress::Ongoing(_) | Progress::Ended(_) => None,
        }
    }
}

fn effect_is_acknowledged(model: &Transactional, state: &State) -> bool {
    model.bounds.all_records().iter().all(|record| {
        state.history.effects[record.index()] == 0
            || match model.durable(state, record) {
                DurableRecord::Available => false,
                DurableRecord::Acknowledged => true,
                DurableRecord::Pending(staged) => {
                    model.coming_verdict(state, record, staged) == Some(Verdict::Commit)
                }
            }
    })
}

fn acknowledged_has_effect(model: &Transactional, state: &State) -> bool {
    model.bounds.all_records().iter().all(|record| {
        model.durable(state, record) != DurableRecord::Acknowledged
            || state.history.effects[record.index()] > 0
    })
}

fn pending_has_marker(model: &Transactional, state: &State) -> bool {
    model.bounds.all_records().iter().all(|record| {
        let DurableRecord::Pending(staged) = model.durable(state, record) else { return true };
        let participant = Participant::ShareState(model.bounds.partition_of(record) as u8);
        let transaction = &state.transactions[staged.id.index()];
        let is_open = matches!(transaction.progress, Progress::Ongoing(all) if all.contains(participant))
            && transaction.epoch == staged.epoch;
        is_open || model.coming_verdict(state, record, staged).is_some()
    })
}
