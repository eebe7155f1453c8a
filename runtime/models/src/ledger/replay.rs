//! The replay generation: `group reset` hands every record out once more, on purpose.
//!
//! Order of the command: the generation record, the reset of the (empty) group's offsets, the record that
//! says so.

use super::ids::{RECORDS_MAX, Records, ReplicaId};
use super::state::{Entry, Membership, Phase, Reset, State};
use super::{Action, Ledger};
use crate::rules::Rule;

impl Ledger {
    /// Steps of the command and of replicas that come back to the group.
    pub(super) fn replay_actions(&self, state: &State, out: &mut Vec<Action>) {
        if !self.scope.reset {
            return;
        }
        let generation_first = self.rules.keep(Rule::GenerationBeforeOffsets);
        match state.reset {
            Reset::NotBegun if generation_first => out.push(Action::WriteGeneration),
            Reset::NotBegun | Reset::GenerationWritten => out.push(Action::ResetOffsets),
            Reset::OffsetsFirst => out.push(Action::WriteGeneration),
            Reset::OffsetsReset => out.push(Action::WriteGenerationReady),
            Reset::Done => {}
        }
        for id in self.replica_ids() {
            let replica = state.replica(id);
            // With an open transaction a replica that has lost its membership first ends it.
            let is_free = matches!(replica.phase, Phase::Initialising | Phase::Idle);
            if replica.membership == Membership::Outside && is_free {
                out.push(Action::Join(id));
            }
        }
    }

    /// The new generation begins.
    pub(super) fn write_generation(&self, state: &mut State) -> Option<()> {
        let position = state.log.append(Entry::Generation)?;
        if state.reset == Reset::OffsetsFirst {
            state.reset = Reset::OffsetsReset;
        } else {
            state.reset = Reset::GenerationWritten;
            state.replay_from = position;
        }
        Some(())
    }

    /// The group begins again at the first record. Kafka resets the offsets of an empty group only: no member
    /// from before can acknowledge after it.
    pub(super) fn reset_offsets(&self, state: &mut State) {
        if state.reset == Reset::NotBegun {
            state.reset = Reset::OffsetsFirst;
            state.replay_from = state.log.end;
        } else {
            state.reset = Reset::OffsetsReset;
        }
        state.group.acknowledged = Records::NONE;
        state.group.archived = Records::NONE;
        state.group.staged = [None; RECORDS_MAX];
        if self.rules.keep(Rule::ResetEmptyGroup) {
            for replica in &mut state.replicas {
                replica.membership = Membership::Outside;
            }
        }
    }

    /// Keepers may follow the start offset again.
    pub(super) fn write_generation_ready(&self, state: &mut State) -> Option<()> {
        state.log.append(Entry::GenerationReady)?;
        state.reset = Reset::Done;
        Some(())
    }

    /// A replica joins; until it has read up to the present end of the log it drops nothing as decided.
    pub(super) fn join(&self, state: &mut State, id: ReplicaId) {
        let until = state.log.end;
        let catches_up =
            self.rules.keep(Rule::CatchUpAfterJoining) && state.replica(id).tail.position < until;
        state.replica_mut(id).membership =
            if catches_up { Membership::Joining { until } } else { Membership::Member };
    }
}
