//! Records are interchangeable where nothing orders them: no floors, no start offset. Of states that differ
//! only by the names of records one is kept, the one whose records are in the order of what happened to them.

use super::ids::{RECORDS_MAX, Records};
use super::state::State;

/// What happened to one record: the claims that hold it, and the group's state of it.
type History = (u8, bool, bool, Option<super::ids::ClaimId>);

/// Renames the records so that those with the richest history come first.
pub(super) fn canonical(mut state: State) -> State {
    let history = |record: u8| -> History {
        let claims = state.each_claim().filter(|(_, claim)| claim.records.contains(record));
        let held_by = claims.fold(0_u8, |all, (id, _)| all | 1 << id.0);
        let group = &state.group;
        (
            held_by,
            group.acknowledged.contains(record),
            group.archived.contains(record),
            group.staged[record as usize],
        )
    };
    let mut order: [u8; RECORDS_MAX] = std::array::from_fn(|record| record as u8);
    order.sort_by_key(|record| std::cmp::Reverse(history(*record)));
    if order.is_sorted() {
        return state;
    }
    let renamed = |records: Records| {
        let new = order.iter().enumerate().filter(|(_, old)| records.contains(**old));
        new.fold(Records::NONE, |all, (new, _)| all.and(Records::one(new as u8)))
    };
    for claim in &mut state.claims {
        claim.records = renamed(claim.records);
    }
    state.group.acknowledged = renamed(state.group.acknowledged);
    state.group.archived = renamed(state.group.archived);
    state.group.staged = std::array::from_fn(|new| state.group.staged[order[new] as usize]);
    state
}
