//! The tail: how a replica reads the log, one entry at a time, and what it makes of it.
//!
//! Reading may stop anywhere for any time, so every replica may lag behind every other.

use super::ids::{ClaimId, Records, ReplicaId};
use super::state::{Claim, Entry, Membership, Phase, Reading, Replica, Seen, State, Tail};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// Steps of the tail that a replica may take.
    pub(super) fn tail_actions(&self, state: &State, id: ReplicaId, out: &mut Vec<Action>) {
        let replica = state.replica(id);
        let reads = match replica.phase {
            Phase::Claimed(_) => true,
            Phase::Idle => self.scope.reads_when_idle(),
            Phase::Stopped | Phase::Initialising | Phase::Committing(_) => false,
        };
        if !reads {
            return;
        }
        if replica.tail.position < state.log.end {
            out.push(Action::Read(id));
        }
        if self.rules.keep(Rule::RebuildView) && self.waits_for_lost_marker(state, &replica.tail) {
            out.push(Action::RebuildView(id));
        }
        for claim in self.presumable(state, id) {
            out.push(Action::PresumeAborted { replica: id, claim });
        }
    }

    /// Reads one entry, and passes over what says nothing to a tail.
    pub(super) fn read(&self, state: &mut State, id: ReplicaId) {
        let State { log, claims, replicas, .. } = state;
        let replica = &mut replicas[id.0 as usize];
        let position = replica.tail.position;
        let own_position = match replica.phase {
            Phase::Claimed(own) => Some(claims[own.0 as usize].position),
            Phase::Stopped | Phase::Initialising | Phase::Idle | Phase::Committing(_) => None,
        };
        self.learn(&mut replica.tail, log.at(position), position);
        replica.tail.position += 1;
        let silent = |entry| matches!(entry, Entry::Hole | Entry::Tombstone(_));
        while replica.tail.position < log.end
            && Some(replica.tail.position) != own_position
            && silent(log.at(replica.tail.position))
        {
            replica.tail.position += 1;
        }
        if replica.tail.position == log.end && replica.tail.transactional_since.is_some() {
            replica.tail.caught_up_beyond_mode = true;
        }
        if let Membership::Joining { until } = replica.membership
            && replica.tail.position >= until
        {
            replica.membership = Membership::Member;
        }
        if let Some(own_position) = own_position {
            replica.reading = self.reading_after(replica, position == own_position, log.end);
        }
    }

    /// What one entry teaches.
    fn learn(&self, tail: &mut Tail, entry: Entry, position: u8) {
        let seen = |tail: &Tail, claim: ClaimId| tail.seen[claim.0 as usize];
        match entry {
            Entry::Claim(claim) if seen(tail, claim) == Seen::Unread => {
                tail.seen[claim.0 as usize] = Seen::Open;
            }
            Entry::Marker { claim, committed } if seen(tail, claim) == Seen::Open => {
                tail.seen[claim.0 as usize] = if committed { Seen::Committed } else { Seen::Aborted };
            }
            Entry::Floor { end, generation } => {
                let apart = self.rules.keep(Rule::GenerationsApart) && generation != tail.generation;
                if !apart && (end > tail.floor || !self.rules.keep(Rule::FloorIsMaximum)) {
                    tail.floor = end;
                }
            }
            Entry::TransactionalMode => tail.transactional_since = Some(position),
            Entry::LedgerModeAgain => tail.ledger_again_since = Some(position),
            Entry::Generation => {
                tail.generation = 1;
                tail.generation_ready = false;
                if self.rules.keep(Rule::GenerationsApart) {
                    tail.floor = 0;
                }
            }
            Entry::GenerationReady => tail.generation_ready = true,
            Entry::Claim(_) | Entry::Marker { .. } | Entry::Tombstone(_) | Entry::Hole | Entry::Nothing => {}
        }
    }

    /// How far a claiming replica has come after it read an entry: its own claim, or another.
    fn reading_after(&self, replica: &Replica, was_own: bool, log_end: u8) -> Reading {
        let reading = match replica.reading {
            Reading::BelowClaim if !was_own => return Reading::BelowClaim,
            Reading::BelowClaim if !self.rules.keep(Rule::ReadPastOwnPosition) => return Reading::Done,
            Reading::BelowClaim if !self.rules.keep(Rule::ReadUntilCaughtUp) => Reading::Until(log_end),
            Reading::BelowClaim => Reading::UntilCaughtUp,
            on_the_way => on_the_way,
        };
        let end = match reading {
            Reading::Until(end) => end,
            Reading::UntilCaughtUp => log_end,
            Reading::BelowClaim | Reading::Done => return reading,
        };
        if replica.tail.position >= end { Reading::Done } else { reading }
    }

    /// F7: a response ended at its own high watermark, its last stable offset is above an open claim, and the
    /// marker never came: claim and marker were compacted away. To have passed the last stable offset would
    /// not be enough, since the marker may lie above it, behind another open claim.
    fn waits_for_lost_marker(&self, state: &State, tail: &Tail) -> bool {
        let stable = state.last_stable_offset();
        let is_lost = |(id, claim): (ClaimId, &Claim)| {
            tail.seen[id.0 as usize] == Seen::Open && claim.position < stable
        };
        tail.position == state.log.end && state.each_claim().any(is_lost)
    }

    /// Forgets everything and starts from the beginning of the log. A claim of its own stays, and must be met
    /// again.
    pub(super) fn rebuild_view(&self, state: &mut State, id: ReplicaId) {
        let replica = state.replica_mut(id);
        replica.tail = Tail::START;
        replica.reading = Reading::BelowClaim;
    }

    /// Claims that a waiting replica may wrongly take for aborted, where rule 4 or 5 is left out.
    fn presumable(&self, state: &State, id: ReplicaId) -> Vec<ClaimId> {
        let unended = !self.rules.keep(Rule::EndBeforePresumingDead);
        let by_success = !self.rules.keep(Rule::MarkerTellsOutcome);
        let replica = state.replica(id);
        let Phase::Claimed(own) = replica.phase else { return vec![] };
        if !unended && !by_success {
            return vec![];
        }
        let is_over = |claim: &Claim| state.transaction(claim.id) == super::state::Transaction::Empty;
        let waited_for = state.each_claim().filter(|(other, claim)| {
            *other < own
                && replica.tail.seen[other.0 as usize] == Seen::Open
                && claim.records.overlaps(state.claim(own).records)
        });
        waited_for.filter(|(_, claim)| unended || is_over(claim)).map(|(other, _)| other).collect()
    }

    /// What a tail knows as decided: below the floor, or in a committed claim of its generation.
    pub(super) fn decided(&self, state: &State, tail: &Tail) -> Records {
        let committed = state.each_claim().filter(|(id, claim)| {
            tail.seen[id.0 as usize] == Seen::Committed && self.consults(tail.generation, claim.generation)
        });
        committed.fold(Records::below(tail.floor), |all, (_, claim)| all.and(claim.records))
    }

    /// Whether a claim or floor of `other` counts for something of generation `own`.
    pub(super) fn consults(&self, own: u8, other: u8) -> bool {
        own == other || !self.rules.keep(Rule::GenerationsApart)
    }
}
