//! Waiting: can replicas that wait for each other's open claims wait for ever?
//!
//! Everything but the waiting is left out: views are current, markers are immediate, nobody times out and
//! nobody gives up. A replica holds a queue of checkpoints, one for each of its transactional ids (slots);
//! each has a set of records. It claims them, and a claim waits while an earlier open claim of anyone
//! overlaps. If a record was committed by somebody else meanwhile, the checkpoint aborts, drops it and claims
//! again.
//!
//! Claims that are over need not be remembered: of committed ones only the records matter, of aborted ones
//! nothing. So the state is finite without a bound on attempts or faults, and the check is over *any* number
//! of them.

use std::fmt;

use stateright::{Model, Property};

use crate::ledger::ids::{RECORDS_MAX, REPLICAS_MAX, Records, ReplicaId};
use crate::progress::ProgressCheck;
use crate::rules::{Rule, Rules};

/// From every state all checkpoints can still be finished.
pub const DRAINS: &str = "no endless wait";
/// No record is committed by two checkpoints.
pub const ONE_EFFECT: &str = "one committed effect";

/// Most checkpoints that a replica holds: one for each transactional id.
const SLOTS_MAX: usize = 2;
/// Most open claim records: each record of each checkpoint apart, if rule F5a is left out.
const OPEN_MAX: usize = REPLICAS_MAX * SLOTS_MAX * RECORDS_MAX;

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Replicas, at most three.
    pub replicas: u8,
    /// Transactional ids of each, at most two.
    pub slots: u8,
    /// Records, at most three.
    pub records: u8,
    /// Whether a replica is handed no record that one of its checkpoints holds. Off, it may wait for itself,
    /// too.
    pub distinct: bool,
    /// Whether a checkpoint may fail at any time, for any reason, and claim again.
    pub faults: bool,
    /// Whether replicas and records are interchangeable, so that states which differ only by names are one.
    pub symmetric: bool,
    /// Rules kept; those of F5 matter.
    pub rules: Rules,
}

/// Who holds what, and the open claims in the order of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// Records with a committed effect.
    decided: Records,
    /// Each replica's checkpoints, oldest first; those with no records are free.
    checkpoints: [[Checkpoint; SLOTS_MAX]; REPLICAS_MAX],
    /// Open claims, in the order of the log; those with no records are free.
    open: [OpenClaim; OPEN_MAX],
    /// A record was committed twice.
    doubled: bool,
}

/// A checkpoint that is not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Checkpoint {
    records: Records,
    /// Those of its records that are not claimed; none once the claim is complete.
    unclaimed: Records,
}

/// A claim record whose transaction is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OpenClaim {
    replica: u8,
    slot: u8,
    records: Records,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group hands records to a replica, which makes a checkpoint of them.
    Take(ReplicaId, Records),
    /// A replica produces a claim record for the checkpoint in a slot.
    Claim(ReplicaId, u8, Records),
    /// Nobody earlier holds its records: the checkpoint commits.
    Commit(ReplicaId, u8),
    /// A record was committed by another: the checkpoint aborts and drops it.
    Lose(ReplicaId, u8),
    /// The checkpoint aborts for any other reason.
    Fail(ReplicaId, u8),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Take(replica, records) => write!(f, "{replica:?} is handed {records:?}"),
            Step::Claim(replica, slot, records) => write!(f, "{replica:?} claims {records:?} in slot {slot}"),
            Step::Commit(replica, slot) => write!(f, "{replica:?} commits slot {slot}"),
            Step::Lose(replica, slot) => write!(f, "{replica:?} has lost a record and aborts slot {slot}"),
            Step::Fail(replica, slot) => write!(f, "{replica:?} aborts slot {slot}"),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (replica, checkpoints) in self.checkpoints.iter().enumerate() {
            for checkpoint in checkpoints.iter().filter(|checkpoint| !checkpoint.records.is_empty()) {
                let (records, unclaimed) = (checkpoint.records, checkpoint.unclaimed);
                write!(f, "{:?} holds {records:?}, unclaimed {unclaimed:?}; ", ReplicaId(replica as u8))?;
            }
        }
        write!(f, "open claims in order:")?;
        for claim in self.open.iter().take_while(|claim| !claim.records.is_empty()) {
            write!(f, " {:?} slot {} {:?}", ReplicaId(claim.replica), claim.slot, claim.records)?;
        }
        Ok(())
    }
}

impl Waits {
    /// The check that all checkpoints can be finished from everywhere, without further deliveries or faults.
    pub fn drains(&self) -> ProgressCheck<'_, Waits> {
        let is_empty = |state: &State| state.checkpoints.as_flattened().iter().all(|c| c.records.is_empty());
        ProgressCheck::new(self, is_empty)
            .relying_on(|_, step| !matches!(step, Step::Take(..) | Step::Fail(..)))
    }

    fn checkpoint_steps(&self, state: &State, replica: usize, slot: usize, out: &mut Vec<Step>) {
        let id = ReplicaId(replica as u8);
        let checkpoint = state.checkpoints[replica][slot];
        let older_is_claimed = slot == 0 || state.checkpoints[replica][slot - 1].unclaimed.is_empty();
        if older_is_claimed || !self.rules.keep(Rule::ClaimInOrder) {
            if self.rules.keep(Rule::OneClaimRecord) {
                if !checkpoint.unclaimed.is_empty() {
                    out.push(Step::Claim(id, slot as u8, checkpoint.unclaimed));
                }
            } else {
                let each = checkpoint.unclaimed.iter();
                out.extend(each.map(|record| Step::Claim(id, slot as u8, Records::one(record))));
            }
        }
        if !checkpoint.unclaimed.is_empty() {
            return;
        }
        if checkpoint.records.overlaps(state.decided) {
            out.push(Step::Lose(id, slot as u8));
        } else if slot == 0 && !self.must_wait(state, replica, slot) {
            // Commits are in order: a younger checkpoint commits only once it is the oldest.
            out.push(Step::Commit(id, slot as u8));
        }
        if self.faults {
            out.push(Step::Fail(id, slot as u8));
        }
    }

    /// Whether an earlier open claim of another checkpoint overlaps one of this checkpoint's.
    fn must_wait(&self, state: &State, replica: usize, slot: usize) -> bool {
        let is_own = |claim: &OpenClaim| claim.replica as usize == replica && claim.slot as usize == slot;
        state.open.iter().enumerate().filter(|(_, claim)| is_own(claim)).any(|(position, own)| {
            state.open[..position].iter().any(|other| !is_own(other) && other.records.overlaps(own.records))
        })
    }

    /// Aborts a checkpoint and, by rule F5c, the younger ones; all claim again. What is decided is dropped.
    fn abort(&self, state: &mut State, replica: usize, slot: usize) {
        let end = if self.rules.keep(Rule::AbortCascades) { self.slots as usize } else { slot + 1 };
        for aborted in slot..end {
            state.close(replica, aborted);
            let checkpoint = &mut state.checkpoints[replica][aborted];
            checkpoint.records = checkpoint.records.minus(state.decided);
            checkpoint.unclaimed = checkpoint.records;
        }
        state.move_up(replica);
    }

    /// The least of the states that differ only by the names of replicas: as checkpoints are compared first,
    /// sorting by them finds it at once, but for replicas that hold the same.
    fn least_of_replicas(&self, state: &State) -> State {
        let held = |replica: u8| state.checkpoints[replica as usize];
        let is_tie = |a: u8, b: u8| held(a) == held(b) && !held(a)[0].records.is_empty();
        if is_tie(0, 1) || is_tie(0, 2) || is_tie(1, 2) {
            let least = permutations(self.replicas).map(|replicas| state.renamed(replicas, [0, 1, 2])).min();
            return least.unwrap_or(*state);
        }
        let mut order = [0, 1, 2];
        order[..self.replicas as usize].sort_by_key(|replica| held(*replica));
        let mut new_names = [0, 1, 2];
        for (new, old) in order.into_iter().enumerate() {
            new_names[old as usize] = new as u8;
        }
        state.renamed(new_names, [0, 1, 2])
    }

    fn commit(&self, state: &mut State, replica: usize, slot: usize) {
        let checkpoint = &mut state.checkpoints[replica][slot];
        state.doubled |= checkpoint.records.overlaps(state.decided);
        state.decided = state.decided.and(checkpoint.records);
        checkpoint.records = Records::NONE;
        state.close(replica, slot);
        state.move_up(replica);
    }
}

impl State {
    /// Removes the open claims of a checkpoint.
    fn close(&mut self, replica: usize, slot: usize) {
        let is_own = |claim: &OpenClaim| claim.replica as usize == replica && claim.slot as usize == slot;
        let mut kept = [OpenClaim::default(); OPEN_MAX];
        let others = self.open.iter().filter(|claim| !claim.records.is_empty() && !is_own(claim));
        for (place, claim) in kept.iter_mut().zip(others) {
            *place = *claim;
        }
        self.open = kept;
    }

    /// A younger checkpoint takes the place of an older one that is finished.
    fn move_up(&mut self, replica: usize) {
        let [older, younger] = &mut self.checkpoints[replica];
        if older.records.is_empty() && !younger.records.is_empty() {
            *older = std::mem::take(younger);
            let own =
                self.open.iter_mut().filter(|claim| claim.replica as usize == replica && claim.slot == 1);
            own.for_each(|claim| claim.slot = 0);
        }
    }

    /// The same state with replicas and records renamed: old replica `r` becomes `replicas[r]`, likewise
    /// records.
    fn renamed(&self, replicas: [u8; 3], records: [u8; 3]) -> State {
        let rename = |set: Records| {
            set.iter().fold(Records::NONE, |all, record| all.and(Records::one(records[record as usize])))
        };
        let mut renamed = *self;
        renamed.decided = rename(self.decided);
        for (old, new) in replicas.iter().enumerate() {
            renamed.checkpoints[*new as usize] = self.checkpoints[old].map(|checkpoint| Checkpoint {
                records: rename(checkpoint.records),
                unclaimed: rename(checkpoint.unclaimed),
            });
        }
        for claim in renamed.open.iter_mut().take_while(|claim| !claim.records.is_empty()) {
            claim.replica = replicas[claim.replica as usize];
            claim.records = rename(claim.records);
        }
        renamed
    }
}

/// Every order of three names; those that move a name at or beyond `used` are left out.
fn permutations(used: u8) -> impl Iterator<Item = [u8; 3]> + Clone {
    let all = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]];
    all.into_iter().filter(move |order| (used as usize..3).all(|name| order[name] as usize == name))
}

impl Model for Waits {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            decided: Records::NONE,
            checkpoints: [[Checkpoint::default(); SLOTS_MAX]; REPLICAS_MAX],
            open: [OpenClaim::default(); OPEN_MAX],
            doubled: false,
        }]
    }

    fn actions(&self, state: &State, out: &mut Vec<Step>) {
        for replica in 0..self.replicas as usize {
            let checkpoints = &state.checkpoints[replica][..self.slots as usize];
            let held = checkpoints.iter().filter(|checkpoint| !checkpoint.records.is_empty()).count();
            if held < checkpoints.len() {
                let id = ReplicaId(replica as u8);
                let held_records = checkpoints.iter().fold(Records::NONE, |all, held| all.and(held.records));
                let barred = if self.distinct { state.decided.and(held_records) } else { state.decided };
                let fresh = Records::sets_below(self.records).filter(|records| !records.overlaps(barred));
                out.extend(fresh.map(|records| Step::Take(id, records)));
            }
            for slot in 0..held {
                self.checkpoint_steps(state, replica, slot, out);
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        match step {
            Step::Take(replica, records) => {
                let free = next.checkpoints[replica.0 as usize].iter_mut().find(|c| c.records.is_empty())?;
                *free = Checkpoint { records, unclaimed: records };
            }
            Step::Claim(replica, slot, records) => {
                let free = next.open.iter_mut().find(|claim| claim.records.is_empty())?;
                *free = OpenClaim { replica: replica.0, slot, records };
                let checkpoint = &mut next.checkpoints[replica.0 as usize][slot as usize];
                checkpoint.unclaimed = checkpoint.unclaimed.minus(records);
            }
            Step::Commit(replica, slot) => self.commit(&mut next, replica.0 as usize, slot as usize),
            Step::Lose(replica, slot) | Step::Fail(replica, slot) => {
                self.abort(&mut next, replica.0 as usize, slot as usize);
            }
        }
        if !self.symmetric {
            return Some(next);
        }
        permutations(self.records)
            .map(|records| self.least_of_replicas(&next.renamed([0, 1, 2], records)))
            .min()
    }

    fn format_action(&self, step: &Step) -> String {
        step.to_string()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ONE_EFFECT, |_: &Waits, state: &State| !state.doubled)]
    }
}
