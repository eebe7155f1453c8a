//! Acquisition locks of everything acquired and not decided: which are to be renewed, and when. Pure.
//!
//! ```text
//! acquired --(ready, handed on)--> open --barrier--> sealed --committed--> (gone)
//!                                                      \--deferred--> carried --a later epoch commits it--> (gone)
//! ```
//! A lock is renewed when a third of its time is left, which leaves time for one more try; a job that commits in time
//! renews nothing and pays for one map operation for each range that a poll brings. What a sealed epoch holds may be
//! staged by now, and a staged record cannot be renewed: a refusal says nothing there, the commit finds out. Of all
//! the rest a refusal says that the lock is lost (KIP-1222).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_base::ids::{CheckpointId, Offset};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::OffsetRange;
use sharestream_core::decision::{Decisions, SourcePartition};

use crate::ranges::Ranges;

/// Ranges of one partition in one renewal; the rest follows in the next one.
pub(super) const RANGES_PER_ROUND: usize = 100;
/// A lock is renewed when this part of its time is left.
const RENEWED_BEFORE: u32 = 3;
/// Ranges whose locks end within this part of the lock time are kept, and renewed, as one.
const MERGED_WITHIN: u32 = 16;

/// One range of equal fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    last: Offset,
    deadline: Instant,
    renewal: Renewal,
}

/// What is to be done about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// Renewed from then on.
    At(Instant),
    /// The leader cannot renew: lost when the lock ends.
    Impossible,
    /// Refused, or ended, while it may have been staged: the commit says what it means.
    Unclear,
}

/// An epoch between its barrier and its commit.
#[derive(Debug)]
struct SealedEpoch {
    checkpoint: CheckpointId,
    reported: Ranges,
    /// Of what was reported, or carried over to it: not decided by it.
    deferred: Ranges,
}

/// Locks to renew in one go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The epoch that may have staged them; `None`: nobody has.
    pub(super) sealed_in: Option<CheckpointId>,
    /// By partition, in order of offset.
    pub(super) ranges: BTreeMap<SourcePartition, Vec<OffsetRange>>,
}

/// All locks of one source.
#[derive(Debug)]
pub(super) struct Locks {
    duration: Duration,
    /// The group allows it.
    can_renew: bool,
    held: BTreeMap<SourcePartition, BTreeMap<Offset, Lock>>,
    sealed: VecDeque<SealedEpoch>,
    /// Deferred by a committed epoch, decided by a later one.
    carried: Ranges,
    /// Not after the first renewal that is due.
    next_at: Option<Instant>,
}

impl Locks {
    /// `duration` is the group's `share.record.lock.duration.ms`, `can_renew` its `share.renew.acknowledge.enable`.
    pub(super) fn new(duration: Duration, can_renew: bool) -> Self {
        Locks {
            duration,
            can_renew,
            held: BTreeMap::new(),
            sealed: VecDeque::new(),
            carried: Ranges::default(),
            next_at: None,
        }
    }

    /// A poll brought these offsets; their locks end at `deadline`.
    pub(super) fn acquired(&mut self, partition: SourcePartition, range: OffsetRange, deadline: Instant) {
        let OffsetRange { first, last } = range;
        let renewal = self.renewal_before(deadline);
        self.next_at = [self.next_at, due_at(&renewal, deadline)].into_iter().flatten().min();
        let locks = self.held.entry(partition).or_default();
        let within = self.duration / MERGED_WITHIN;
        if let Some(mut before) = locks.last_entry() {
            let lock = before.get_mut();
            let ends_with = lock.deadline <= deadline && deadline <= lock.deadline + within;
            let is_alike = matches!(
                (lock.renewal, renewal),
                (Renewal::At(_), Renewal::At(_)) | (Renewal::Impossible, Renewal::Impossible)
            );
            if lock.last.next() == first && ends_with && is_alike {
                // The older lock decides for both.
                lock.last = last;
                return;
            }
        }
        cut(locks, first, last);
        locks.insert(first, Lock { last, deadline, renewal });
    }

    /// These offsets are decided, or given back.
    pub(super) fn gone(&mut self, partition: SourcePartition, range: OffsetRange) {
        let Some(locks) = self.held.get_mut(&partition) else { return };
        cut(locks, range.first, range.last);
        if locks.is_empty() {
            self.held.remove(&partition);
        }
    }

    /// The barrier of `checkpoint` closed an epoch that holds `reported`.
    pub(super) fn sealed(&mut self, checkpoint: CheckpointId, reported: Ranges) {
        self.sealed.push_back(SealedEpoch { checkpoint, reported, deferred: Ranges::default() });
    }

    /// Of the epoch of `checkpoint`, or carried over to it, these are decided later; what is not ours is passed over.
    pub(super) fn deferred(&mut self, checkpoint: CheckpointId, offsets: &Decisions, now: Instant) {
        let Some(index) = self.sealed.iter().position(|epoch| epoch.checkpoint == checkpoint) else { return };
        let mut ours = self.carried.clone();
        for epoch in self.sealed.iter().take(index + 1) {
            ours.add_all(&epoch.reported);
        }
        let mut deferred = Ranges::default();
        for (partition, range) in offsets.ranges() {
            for part in ours.within(partition, range.first, range.last) {
                deferred.add(partition, part.first, part.last);
            }
        }
        // A refusal that said nothing while they might have been staged says something from now on.
        for (partition, range) in deferred.iter() {
            self.change(partition, range, |lock, _| {
                if lock.renewal == Renewal::Unclear {
                    lock.renewal = Renewal::At(now);
                }
            });
        }
        self.sealed[index].deferred = deferred;
        self.next_at = self.first_due();
    }

    /// The epoch of `checkpoint`, and those before it, have committed.
    pub(super) fn committed(&mut self, checkpoint: CheckpointId) {
        self.settle(checkpoint);
    }

    /// The epoch of `checkpoint`, and those before it, were staged, and are aborted. Gives what they would have decided.
    pub(super) fn forget(&mut self, checkpoint: CheckpointId) -> Ranges {
        self.settle(checkpoint)
    }

    fn settle(&mut self, checkpoint: CheckpointId) -> Ranges {
        let mut settled = Ranges::default();
        while self.sealed.front().is_some_and(|epoch| epoch.checkpoint <= checkpoint) {
            let Some(SealedEpoch { reported, deferred, .. }) = self.sealed.pop_front() else { break };
            let mut decided = std::mem::take(&mut self.carried);
            decided.add_all(&reported);
            let kept =
                if is_planted(Bug::DeferredLockForgotten) { Ranges::default() } else { deferred.clone() };
            for (partition, range) in kept.iter() {
                decided.remove(partition, range.first, range.last);
            }
            for (partition, range) in decided.iter() {
                self.gone(partition, range);
            }
            settled.add_all(&decided);
            self.carried = deferred;
        }
        settled
    }

    /// The open and the closed epochs are gone, and nothing of them was staged: everything is as if just acquired. False when
    /// a lock may be lost.
    pub(super) fn go_back(&mut self, now: Instant) -> bool {
        self.sealed.clear();
        self.carried = Ranges::default();
        let mut locks = self.held.values().flat_map(BTreeMap::values);
        locks.all(|lock| lock.renewal != Renewal::Unclear && lock.deadline > now)
    }

    /// True when the locks of all these offsets are held.
    pub(super) fn holds_all(&self, partition: SourcePartition, range: OffsetRange) -> bool {
        let Some(locks) = self.held.get(&partition) else { return false };
        let mut next = range.first;
        for (first, lock) in overlapping(locks, range.first, range.last) {
            if first > next {
                return false;
            }
            next = lock.last.next();
        }
        next > range.last
    }

    /// True while an epoch is on its way to its commit that decides something of ours.
    pub(super) fn is_committing(&self) -> bool {
        self.sealed.iter().any(|epoch| !epoch.deferred.contains_all(&epoch.reported))
    }

    /// Offsets that committed epochs left to later ones.
    pub(super) fn carried(&self) -> &Ranges {
        &self.carried
    }

    /// True when one of the offsets is being worked on across a barrier.
    pub(super) fn is_deferred(&self, partition: SourcePartition, first: Offset, last: Offset) -> bool {
        let deferred = self.sealed.iter().map(|epoch| &epoch.deferred);
        deferred.chain([&self.carried]).any(|ranges| ranges.overlaps(partition, first, last))
    }

    /// True when a lock of one of these offsets is held.
    pub(super) fn holds_any(&self, partition: SourcePartition, first: Offset, last: Offset) -> bool {
        let locks = self.held.get(&partition);
        let before = locks.and_then(|locks| locks.range(..=last).next_back());
        before.is_some_and(|(_, lock)| lock.last >= first)
    }

    /// Number of offsets held of a partition.
    pub(super) fn held_count(&self, partition: SourcePartition) -> u64 {
        let locks = self.held.get(&partition).into_iter().flatten();
        locks.map(|(first, lock)| first.count_to(lock.last)).sum()
    }

    /// Forgets the locks of a partition: they are lost.
    pub(super) fn lose(&mut self, partition: SourcePartition) {
        self.held.remove(&partition);
    }

    /// When to ask for [`Locks::rounds`]; early at worst.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// What is to be renewed now, at most [`RANGES_PER_ROUND`] ranges of each partition. Errors: a lock that could not
    /// be renewed has ended.
    pub(super) fn rounds(&mut self, now: Instant) -> Result<Vec<Round>, (SourcePartition, OffsetRange)> {
        // A little early is better than another round in a moment.
        let soon = now + self.duration / MERGED_WITHIN;
        let mut due: BTreeMap<SourcePartition, Vec<OffsetRange>> = BTreeMap::new();
        let mut ended: Vec<(SourcePartition, OffsetRange)> = Vec::new();
        for (partition, locks) in &self.held {
            for (first, lock) in locks {
                let range = OffsetRange { first: *first, last: lock.last };
                match lock.renewal {
                    Renewal::Impossible if lock.deadline <= now => {
                        if self.unsealed(*partition, range).next().is_some() {
                            return Err((*partition, range));
                        }
                        ended.push((*partition, range));
                    }
                    Renewal::At(at) if at <= soon => due.entry(*partition).or_default().push(range),
                    Renewal::At(_) | Renewal::Impossible | Renewal::Unclear => {}
                }
            }
        }
        let mut rounds = Vec::new();
        for sealed_in in std::iter::once(None).chain(self.sealed.iter().map(|epoch| Some(epoch.checkpoint))) {
            let mut ranges: BTreeMap<SourcePartition, Vec<OffsetRange>> = BTreeMap::new();
            for (partition, due) in &due {
                let parts = due.iter().flat_map(|range| self.parts(*partition, *range, sealed_in));
                let parts: Vec<OffsetRange> = parts.take(RANGES_PER_ROUND).collect();
                if !parts.is_empty() {
                    ranges.insert(*partition, parts);
                }
            }
            if !ranges.is_empty() {
                rounds.push(Round { sealed_in, ranges });
            }
        }
        // Nothing is left to be done about these: the commit says what has become of them.
        for (partition, range) in ended {
            self.change(partition, range, |lock, _| lock.renewal = Renewal::Unclear);
        }
        self.next_at = self.first_due();
        Ok(rounds)
    }

    /// The leader renewed these, asked at `asked_at`.
    pub(super) fn renewed(&mut self, partition: SourcePartition, range: OffsetRange, asked_at: Instant) {
        let deadline = asked_at + self.duration;
        let renewal = self.renewal_before(deadline);
        self.change(partition, range, |lock, _| (lock.deadline, lock.renewal) = (deadline, renewal));
        self.next_at = self.first_due();
    }

    /// The leader gave no verdict: once more in half of the time that was left.
    pub(super) fn not_renewed(&mut self, partition: SourcePartition, range: OffsetRange, now: Instant) {
        let at = now + self.duration / (2 * RENEWED_BEFORE);
        self.change(partition, range, |lock, _| lock.renewal = Renewal::At(at));
        self.next_at = self.first_due();
    }

    /// The leader cannot renew: what is not decided when the lock ends is lost.
    pub(super) fn not_renewable(&mut self, partition: SourcePartition, range: OffsetRange) {
        self.change(partition, range, |lock, _| lock.renewal = Renewal::Impossible);
        self.next_at = self.first_due();
    }

    /// Refused, but they may have been staged.
    pub(super) fn unclear(&mut self, partition: SourcePartition, range: OffsetRange) {
        self.change(partition, range, |lock, _| lock.renewal = Renewal::Unclear);
        self.next_at = self.first_due();
    }

    /// The longest that a lock of this group lasts.
    pub(super) fn duration(&self) -> Duration {
        self.duration
    }

    /// The brokers say how long locks last.
    pub(super) fn set_duration(&mut self, duration: Duration) {
        self.duration = duration;
    }

    fn renewal_before(&self, deadline: Instant) -> Renewal {
        if !self.can_renew {
            return Renewal::Impossible;
        }
        let before = self.duration / RENEWED_BEFORE;
        let late = if is_planted(Bug::RenewalTooLate) { self.duration } else { Duration::ZERO };
        Renewal::At(deadline.checked_sub(before).unwrap_or(deadline) + late)
    }

    /// The parts of `range` that may be staged by the epoch of `sealed_in`, or (`None`) by no epoch.
    fn parts(
        &self,
        partition: SourcePartition,
        range: OffsetRange,
        sealed_in: Option<CheckpointId>,
    ) -> Vec<OffsetRange> {
        match sealed_in {
            None => self.unsealed(partition, range).collect(),
            Some(checkpoint) => {
                let epochs = self.sealed.iter().filter(|epoch| epoch.checkpoint == checkpoint);
                let parts = epochs.flat_map(|epoch| {
                    let mut parts = Ranges::default();
                    for part in epoch.reported.within(partition, range.first, range.last) {
                        parts.add(partition, part.first, part.last);
                    }
                    for part in epoch.deferred.within(partition, range.first, range.last) {
                        parts.remove(partition, part.first, part.last);
                    }
                    parts.iter().map(|(_, part)| part).collect::<Vec<_>>()
                });
                parts.collect()
            }
        }
    }

    fn unsealed(
        &self,
        partition: SourcePartition,
        range: OffsetRange,
    ) -> impl Iterator<Item = OffsetRange> + use<> {
        let mut parts = Ranges::default();
        parts.add(partition, range.first, range.last);
        for epoch in &self.sealed {
            for part in epoch.reported.within(partition, range.first, range.last) {
                parts.remove(partition, part.first, part.last);
            }
        }
        for ranges in self.sealed.iter().map(|epoch| &epoch.deferred).chain([&self.carried]) {
            for part in ranges.within(partition, range.first, range.last) {
                parts.add(partition, part.first, part.last);
            }
        }
        parts.iter().map(|(_, part)| part).collect::<Vec<_>>().into_iter()
    }

    /// Changes the locks of exactly these offsets, as far as they are held.
    fn change(&mut self, partition: SourcePartition, range: OffsetRange, change: impl Fn(&mut Lock, Offset)) {
        let Some(locks) = self.held.get_mut(&partition) else { return };
        let touched: Vec<(Offset, Lock)> = overlapping(locks, range.first, range.last);
        for (first, lock) in touched {
            let (from, to) = (first.max(range.first), lock.last.min(range.last));
            cut(locks, from, to);
            let mut changed = Lock { last: to, ..lock };
            change(&mut changed, from);
            match locks.range_mut(..from).next_back() {
                Some((_, before)) if before.last.next() == from && before.is_like(&changed) => {
                    before.last = to
                }
                Some(_) | None => {
                    locks.insert(from, changed);
                }
            }
        }
    }

    fn first_due(&self) -> Option<Instant> {
        let locks = self.held.values().flat_map(BTreeMap::values);
        locks.filter_map(|lock| due_at(&lock.renewal, lock.deadline)).min()
    }
}

impl Lock {
    fn is_like(&self, other: &Lock) -> bool {
        (self.deadline, self.renewal) == (other.deadline, other.renewal)
    }
}

fn due_at(renewal: &Renewal, deadline: Instant) -> Option<Instant> {
    match renewal {
        Renewal::At(at) => Some(*at),
        Renewal::Impossible => Some(deadline),
        Renewal::Unclear => None,
    }
}

fn overlapping(locks: &BTreeMap<Offset, Lock>, first: Offset, last: Offset) -> Vec<(Offset, Lock)> {
    let before = locks.range(..=last).rev().take_while(|(_, lock)| lock.last >= first);
    let mut found: Vec<(Offset, Lock)> = before.map(|(first, lock)| (*first, *lock)).collect();
    found.reverse();
    found
}

/// Takes `first..=last` out; what sticks out on either side stays.
fn cut(locks: &mut BTreeMap<Offset, Lock>, first: Offset, last: Offset) {
    for (start, lock) in overlapping(locks, first, last) {
        locks.remove(&start);
        if start < first {
            locks.insert(start, Lock { last: first.plus(-1), ..lock });
        }
        if lock.last > last {
            locks.insert(last.next(), lock);
        }
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
