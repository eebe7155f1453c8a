//! Floors and tombstones: how the log is kept short.

use super::ids::{Records, ReplicaId};
use super::state::{Entry, Membership, Phase, Seen, State};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// Floors and tombstones that a keeper may write.
    pub(super) fn keeper_actions(&self, state: &State, id: ReplicaId, out: &mut Vec<Action>) {
        let is_keeper = self.scope.keepers >> id.0 & 1 == 1;
        if !is_keeper || state.replica(id).phase == Phase::Stopped {
            return;
        }
        if let Some(end) = self.next_floor(state, id) {
            out.push(Action::RaiseFloor { replica: id, end });
        }
        let tombstones = state.log.count(|entry| matches!(entry, Entry::Tombstone(_)));
        if tombstones < self.scope.tombstones {
            for (claim, _) in state.each_claim() {
                let is_written = state.log.any(0, state.log.end, |entry| entry == Entry::Tombstone(claim));
                if !is_written && self.may_tombstone(state, id, claim) {
                    out.push(Action::Tombstone { replica: id, claim });
                }
            }
        }
    }

    /// The floor to which this replica would raise, if it would.
    fn next_floor(&self, state: &State, id: ReplicaId) -> Option<u8> {
        let floors = state.log.count(|entry| matches!(entry, Entry::Floor { .. }));
        let replica = state.replica(id);
        let waits_for_reset = !replica.tail.generation_ready && self.rules.keep(Rule::WaitForReset);
        if floors >= self.scope.floors || waits_for_reset {
            return None;
        }
        let mut known = self.decided(state, &replica.tail);
        if self.scope.floor_follows_start_offset && replica.membership == Membership::Member {
            known = known.and(Records::below(state.start_offset()));
        }
        if !self.rules.keep(Rule::FloorNotOverOpen) {
            let open = state.each_claim().filter(|(id, _)| replica.tail.seen[id.0 as usize] == Seen::Open);
            known = open.fold(known, |all, (_, claim)| all.and(claim.records));
        }
        let end = if self.rules.keep(Rule::FloorOverPrefix) {
            known.prefix(self.scope.records)
        } else {
            known.highest_end(self.scope.records)
        };
        (end > replica.tail.floor).then_some(end)
    }

    /// Writes a floor record of the replica's generation.
    pub(super) fn append_floor(&self, state: &mut State, id: ReplicaId, end: u8) -> Option<()> {
        let generation = state.replica(id).tail.generation;
        state.log.append(Entry::Floor { end, generation })?;
        Some(())
    }

    /// Whether this replica may tombstone a claim.
    fn may_tombstone(&self, state: &State, id: ReplicaId, claim_id: super::ids::ClaimId) -> bool {
        let (claim, tail) = (state.claim(claim_id), &state.replica(id).tail);
        if tail.seen[claim_id.0 as usize] != Seen::Committed || claim.generation != tail.generation {
            return false;
        }
        let below = Records::below(tail.floor);
        let covered = if !self.rules.keep(Rule::TombstoneAfterFloor) {
            true
        } else if !self.rules.keep(Rule::TombstoneWhollyCovered) {
            claim.records.overlaps(below)
        } else {
            claim.records.is_within(below)
        };
        // Only where manifests are recovered from the log does the newest claim of an id matter.
        let may_be_newest = !self.scope.manifests || !self.rules.keep(Rule::NewestClaimStays);
        covered
            && (may_be_newest
                || state.each_claim().any(|(later, other)| {
                    later > claim_id && other.id == claim.id && tail.seen[later.0 as usize] != Seen::Unread
                }))
    }

    /// Whether a floor record has, by rule F1c, been tombstoned: the model has no tombstones of floors, a
    /// floor record may go as soon as a higher one is in the cleaner's reach. Without the rule a replica that
    /// is about to raise the floor has tombstoned the lower one before.
    pub(super) fn floor_is_superseded(&self, state: &State, position: u8, reach: u8) -> bool {
        let Entry::Floor { end, generation } = state.log.at(position) else { return false };
        if !self.rules.keep(Rule::FloorValueInKey) {
            return state.log.any(position + 1, reach, |entry| matches!(entry, Entry::Floor { .. }));
        }
        let higher =
            |entry| matches!(entry, Entry::Floor { end: e, generation: g } if (g, e) > (generation, end));
        let is_raised =
            || self.replica_ids().any(|id| self.next_floor(state, id).is_some_and(|next| next > end));
        state.log.any(0, reach, higher) || !self.rules.keep(Rule::LowerFloorStays) && is_raised()
    }
}
