//! The in-flight window of a share partition as runs of offsets, split only where histories differ.
//!
//! Invariant: the runs cover `start..end` without hole or overlap. No allocation is made per record.

use std::collections::BTreeMap;
use std::ops::Bound;

use sharestream_base::ids::Offset;
use sharestream_base::invariant;

use super::durable::OffsetRange;
use super::record_state::RecordState;

/// A run of records with one history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Last offset, inclusive; the first one is the run's key.
    pub(crate) last: Offset,
    /// Deliveries so far.
    pub(crate) delivery_count: u16,
    /// What the records are in.
    pub(crate) state: RecordState,
}

/// Runs of `start..end`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    start: Offset,
    end: Offset,
    runs: BTreeMap<Offset, Run>,
}

impl Window {
    /// An empty window at `start`.
    pub(crate) fn new(start: Offset) -> Self {
        Window { start, end: start, runs: BTreeMap::new() }
    }

    /// Everything below is done.
    pub(crate) fn start(&self) -> Offset {
        self.start
    }

    /// First offset that was never looked at.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// Number of offsets in the window.
    pub(crate) fn span(&self) -> i64 {
        self.end.0 - self.start.0
    }

    /// All runs, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OffsetRange, &Run)> {
        self.runs.iter().map(|(first, run)| (OffsetRange { first: *first, last: run.last }, run))
    }

    /// All runs for change of state in place; call [`Window::coalesce_all`] afterwards.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OffsetRange, &mut Run)> {
        self.runs.iter_mut().map(|(first, run)| (OffsetRange { first: *first, last: run.last }, run))
    }

    /// The runs that overlap `range`, ascending, each with its part inside `range`.
    pub(crate) fn overlapping(&self, range: OffsetRange) -> impl Iterator<Item = (OffsetRange, &Run)> {
        let from = self.run_at(range.first).unwrap_or(range.first);
        self.runs.range(from..=range.last).filter_map(move |(first, run)| {
            let part = OffsetRange { first: *first, last: run.last }.intersect(range)?;
            Some((part, run))
        })
    }

    /// Appends the run `end..=last`.
    pub(crate) fn push(&mut self, last: Offset, delivery_count: u16, state: RecordState) {
        invariant!("B-WINDOW", last >= self.end, "run ends at {last}, window at {}", self.end);
        let first = self.end;
        self.runs.insert(first, Run { last, delivery_count, state });
        self.end = last.next();
        self.coalesce(OffsetRange { first, last });
    }

    /// Changes the runs of `range` in place: runs that reach beyond it are split first. Merges neighbours after.
    pub(crate) fn update(&mut self, range: OffsetRange, mut change: impl FnMut(OffsetRange, &mut Run)) {
        self.split_before(range.first);
        self.split_before(range.last.next());
        for (first, run) in self.runs.range_mut(range.first..=range.last) {
            change(OffsetRange { first: *first, last: run.last }, run);
        }
        self.coalesce(range);
    }

    /// Passes the ends at the front. True when the start offset moved.
    pub(crate) fn advance(&mut self) -> bool {
        let before = self.start;
        while let Some(front) = self.runs.first_entry() {
            if !front.get().state.is_terminal() {
                break;
            }
            self.start = front.get().last.next();
            front.remove();
        }
        self.start != before
    }

    /// Drops everything below `start`, whatever state it is in. True when the start offset moved.
    pub(crate) fn drop_below(&mut self, start: Offset) -> bool {
        if start <= self.start {
            return false;
        }
        self.split_before(start);
        self.runs = self.runs.split_off(&start);
        self.start = start;
        self.end = self.end.max(start);
        true
    }

    /// Merges equal neighbours everywhere.
    pub(crate) fn coalesce_all(&mut self) {
        if let Some(range) = OffsetRange::new(self.start, Offset(self.end.0 - 1)) {
            self.coalesce(range);
        }
    }

    /// First offset of the run that contains `offset`.
    fn run_at(&self, offset: Offset) -> Option<Offset> {
        let (first, run) = self.runs.range(..=offset).next_back()?;
        (run.last >= offset).then_some(*first)
    }

    fn split_before(&mut self, offset: Offset) {
        let Some(first) = self.run_at(offset) else { return };
        if first == offset {
            return;
        }
        if let Some(run) = self.runs.get_mut(&first) {
            let right = run.clone();
            run.last = Offset(offset.0 - 1);
            self.runs.insert(offset, right);
        }
    }

    fn coalesce(&mut self, range: OffsetRange) {
        let before = self.runs.range(..range.first).next_back().map(|(first, _)| *first);
        let Some(mut current) =
            before.or_else(|| self.runs.range(range.first..).next().map(|(first, _)| *first))
        else {
            return;
        };
        while current <= range.last {
            let Some((next, run)) = self.runs.range((Bound::Excluded(current), Bound::Unbounded)).next()
            else {
                return;
            };
            let (next, last) = (*next, run.last);
            let equal = self
                .runs
                .get(&current)
                .is_some_and(|left| left.delivery_count == run.delivery_count && left.state == run.state);
            if equal {
                self.runs.remove(&next);
                if let Some(left) = self.runs.get_mut(&current) {
                    left.last = last;
                }
            } else {
                current = next;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut at = self.start;
        for (range, _) in self.iter() {
            assert_eq!(range.first, at, "hole or overlap");
            at = range.last.next();
        }
        assert_eq!(at, self.end);
    }
}
