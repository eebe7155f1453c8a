//! Which parts make up the state of a subtask, and what to write at a barrier. Pure.
//!
//! ```text
//! checkpoint    1    2    3  ...  16   17   18  ...   32
//! level 0       d    d    d       .    d    d          .      what changed since the checkpoint before
//! level 1                         D                    D      what changed since the last D: replaces those d
//! level 2 likewise over 16 D. Bases, a few groups at each checkpoint, once deltas are many or large.
//! ```
//!
//! So few rows that change at each of many checkpoints leave few parts, and what has not changed is not written again.

use std::collections::BTreeMap;
use std::ops::Range;

use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::{StatePart, StatePartKind};

/// Deltas of one level that one of the next replaces.
const MERGED_COUNT: u32 = 16;
/// Levels of deltas.
pub(super) const LEVELS: usize = 3;
/// From so many deltas on, bases are written until they are gone.
const DELTAS_MAX: usize = 64;
/// Barriers over which all groups get a new base, when they need one.
const COMPACTION_BARRIERS: u32 = 64;

/// What to write at a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// A delta of this level; `None` when nothing has changed, or all groups get a base.
    pub(super) delta_level: Option<usize>,
    /// Groups that get a base.
    pub(super) base: Option<Range<u32>>,
}

#[derive(Clone, Debug)]
struct Delta {
    part: StatePart,
    /// `None`: written by an earlier attempt, or frozen. Nothing but a base replaces it.
    level: Option<usize>,
}

/// The parts of one subtask.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    owned: Range<u32>,
    bases: Vec<StatePart>,
    /// In order of writing.
    deltas: Vec<Delta>,
    /// Checkpoint of the newest base of each group.
    base_of: BTreeMap<u32, CheckpointId>,
    /// Deltas written of each level since the last of the next.
    since_merge: [u32; LEVELS],
    /// The group whose base is renewed next.
    cursor: u32,
}

impl Ledger {
    /// The ledger of a subtask that was restored from `parts`; none for a fresh one.
    pub(super) fn new(owned: Range<u32>, parts: Vec<StatePart>) -> Self {
        let mut ledger = Ledger {
            cursor: owned.start,
            owned,
            bases: Vec::new(),
            deltas: Vec::new(),
            base_of: BTreeMap::new(),
            since_merge: [0; LEVELS],
        };
        for part in parts {
            match part.kind {
                StatePartKind::Base => ledger.add_base(part),
                StatePartKind::Delta => ledger.deltas.push(Delta { part, level: None }),
            }
        }
        ledger.drop_dead();
        ledger
    }

    /// What to write, when `changed_count` keys have changed and `row_count` are kept.
    pub(super) fn plan(&self, changed_count: u64, row_count: u64) -> Plan {
        let is_first = self.bases.is_empty() && self.deltas.is_empty();
        if changed_count > 0 && (is_first || changed_count.saturating_mul(4) >= row_count) {
            return Plan { delta_level: None, base: Some(self.owned.clone()) };
        }
        let delta_bytes: u64 = self.deltas.iter().map(|delta| delta.part.bytes).sum();
        let base_bytes: u64 = self.bases.iter().map(|base| base.bytes).sum();
        let must_compact = self.deltas.len() >= DELTAS_MAX || delta_bytes.saturating_mul(2) > base_bytes;
        let base = (must_compact && !self.deltas.is_empty()).then(|| self.next_groups());
        let delta_level = (changed_count > 0).then(|| {
            let is_due = |level: &usize| self.since_merge[level - 1] + 1 >= MERGED_COUNT;
            (1..LEVELS).take_while(is_due).last().unwrap_or(0)
        });
        Plan { delta_level, base }
    }

    /// Nothing but a base replaces the deltas that are there: nobody knows their keys any more.
    pub(super) fn freeze(&mut self) {
        self.deltas.iter_mut().for_each(|delta| delta.level = None);
        self.since_merge = [0; LEVELS];
    }

    fn next_groups(&self) -> Range<u32> {
        let count = (self.owned.end - self.owned.start).div_ceil(COMPACTION_BARRIERS).max(1);
        self.cursor..(self.cursor + count).min(self.owned.end)
    }

    /// A part of the plan is durable; a delta with its level. Bases of one plan come after its delta.
    pub(super) fn written(&mut self, part: StatePart, level: usize) {
        match part.kind {
            StatePartKind::Delta => {
                // It holds all that those of lower levels since its predecessor hold.
                while self.deltas.last().is_some_and(|delta| delta.level.is_some_and(|other| other < level)) {
                    self.deltas.pop();
                }
                self.since_merge[..level].fill(0);
                self.since_merge[level] += 1;
                self.deltas.push(Delta { part, level: Some(level) });
            }
            StatePartKind::Base => {
                self.cursor = if part.last_group + 1 >= self.owned.end {
                    self.owned.start
                } else {
                    part.last_group + 1
                };
                self.add_base(part);
                self.drop_dead();
            }
        }
    }

    fn add_base(&mut self, part: StatePart) {
        for group in part.first_group.max(self.owned.start)..(part.last_group + 1).min(self.owned.end) {
            let newest = self.base_of.entry(group).or_insert(part.checkpoint);
            *newest = part.checkpoint.max(*newest);
        }
        self.bases.push(part);
    }

    /// A base that every group of it has a newer one of, and a delta that is older than the bases of its groups.
    fn drop_dead(&mut self) {
        let (owned, base_of) = (&self.owned, &self.base_of);
        let groups =
            |part: &StatePart| part.first_group.max(owned.start)..(part.last_group + 1).min(owned.end);
        self.bases.retain(|base| groups(base).any(|group| base_of.get(&group) == Some(&base.checkpoint)));
        self.deltas.retain(|delta| {
            groups(&delta.part)
                .any(|group| base_of.get(&group).is_none_or(|base| *base < delta.part.checkpoint))
        });
    }

    /// The parts, in the order in which they are read: bases, then deltas by age.
    pub(super) fn parts(&self) -> Vec<StatePart> {
        self.bases.iter().chain(self.deltas.iter().map(|delta| &delta.part)).cloned().collect()
    }

    /// True when rows of `group` in this part count: it is the newest base, or younger than that.
    pub(super) fn counts(&self, part: &StatePart, group: u32) -> bool {
        let base = self.base_of.get(&group);
        match part.kind {
            StatePartKind::Base => base == Some(&part.checkpoint),
            StatePartKind::Delta => base.is_none_or(|base| *base < part.checkpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: StatePartKind, checkpoint: u64, groups: Range<u32>, bytes: u64) -> StatePart {
        StatePart {
            name: format!("{checkpoint}-{kind:?}-{}", groups.start),
            sha256: String::new(),
            bytes,
            rows: 1,
            kind,
            checkpoint: CheckpointId(checkpoint),
            first_group: groups.start,
            last_group: groups.end - 1,
        }
    }

    /// Carries a plan out.
    fn carry_out(ledger: &mut Ledger, plan: &Plan, checkpoint: u64, delta_bytes: u64, group_bytes: u64) {
        if let Some(level) = plan.delta_level {
            let owned = ledger.owned.clone();
            ledger.written(part(StatePartKind::Delta, checkpoint, owned, delta_bytes), level);
        }
        if let Some(groups) = plan.base.clone() {
            let bytes = u64::from(groups.end - groups.start) * group_bytes;
            ledger.written(part(StatePartKind::Base, checkpoint, groups, bytes), 0);
        }
    }

    #[test]
    fn the_first_time_and_when_much_has_changed_everything_is_written() {
        let mut ledger = Ledger::new(0..128, Vec::new());
        let first = ledger.plan(10, 1_000_000);
        assert_eq!(first, Plan { delta_level: None, base: Some(0..128) });
        carry_out(&mut ledger, &first, 1, 0, 10);
        assert_eq!(ledger.plan(0, 1_000), Plan { delta_level: None, base: None });
        assert_eq!(ledger.plan(249, 1_000), Plan { delta_level: Some(0), base: None });
        assert_eq!(ledger.plan(250, 1_000), Plan { delta_level: None, base: Some(0..128) });
    }

    #[test]
    fn few_changes_at_each_of_many_checkpoints_leave_few_parts_and_few_bytes() {
        let mut ledger = Ledger::new(0..128, Vec::new());
        let mut written = 0;
        for checkpoint in 1..=20_000 {
            let plan = ledger.plan(if checkpoint == 1 { 1_000_000 } else { 1 }, 1_000_000);
            written += plan.base.as_ref().map_or(0, |groups| u64::from(groups.end - groups.start));
            carry_out(&mut ledger, &plan, checkpoint, 1, 1_000);
            assert!(ledger.parts().len() <= 64 + 128, "{} at {checkpoint}", ledger.parts().len());
        }
        // In groups: the first base, and one more for every 16 * 16 * (64 - 32) checkpoints or so.
        assert!(written < 128 * 6, "{written}");
    }

    #[test]
    fn large_changes_keep_the_deltas_below_the_size_of_the_state() {
        let mut ledger = Ledger::new(0..128, Vec::new());
        let mut delta_max = 0;
        for checkpoint in 1..=1_000 {
            ledger.freeze();
            let plan = ledger.plan(if checkpoint == 1 { 1_000 } else { 10 }, 1_000);
            carry_out(&mut ledger, &plan, checkpoint, 1_280, 1_000);
            let deltas: u64 = ledger.deltas.iter().map(|delta| delta.part.bytes).sum();
            delta_max = deltas.max(delta_max);
        }
        assert!(delta_max <= 2 * 128_000, "{delta_max}");
    }

    #[test]
    fn a_delta_goes_when_every_group_has_a_newer_base() {
        let mut ledger = Ledger::new(0..4, Vec::new());
        ledger.written(part(StatePartKind::Base, 1, 0..4, 10), 0);
        ledger.written(part(StatePartKind::Delta, 2, 0..4, 10), 0);
        ledger.written(part(StatePartKind::Base, 3, 0..2, 5), 0);
        assert_eq!(ledger.parts().len(), 3, "groups 2 and 3 still need base 1 and delta 2");
        let (delta, base) = (&ledger.deltas[0].part.clone(), &ledger.bases[0].clone());
        assert!(!ledger.counts(delta, 0) && ledger.counts(delta, 3));
        assert!(!ledger.counts(base, 1) && ledger.counts(base, 2));
        ledger.written(part(StatePartKind::Base, 4, 2..4, 5), 0);
        assert_eq!(ledger.parts().iter().map(|part| part.checkpoint.0).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn another_parallelism_takes_over_what_touches_its_groups() {
        let parts = vec![
            part(StatePartKind::Base, 1, 0..64, 10),
            part(StatePartKind::Base, 1, 64..128, 10),
            part(StatePartKind::Delta, 2, 0..64, 10),
            part(StatePartKind::Base, 3, 0..40, 10),
        ];
        let names = |owned: Range<u32>| {
            let ledger = Ledger::new(owned, parts.clone());
            ledger.parts().into_iter().map(|part| part.name).collect::<Vec<_>>()
        };
        assert_eq!(names(0..32), ["3-Base-0"]);
        assert_eq!(names(32..64), ["1-Base-0", "3-Base-0", "2-Delta-0"]);
        assert_eq!(names(64..96), ["1-Base-64"]);
    }
}
