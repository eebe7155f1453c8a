//! How full the lock windows are. Pure.
//!
//! The broker hands out nothing of a partition beyond `max.record.locks` offsets past its start offset, and the start
//! offset passes a record only when its checkpoint has committed. So what counts is the span from the first offset
//! whose epoch has not committed to the last one handed on.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{CheckpointId, Offset};
use sharestream_core::decision::SourcePartition;

use crate::ranges::Ranges;

/// Spans of offsets whose epochs have not committed, by partition.
#[derive(Debug)]
pub(super) struct LockWindow {
    locks_max: u64,
    partitions: BTreeMap<SourcePartition, Vec<Span>>,
    /// Spans of the offsets that committed epochs left to later ones.
    carried: BTreeMap<SourcePartition, (Offset, Offset)>,
}

/// Offsets of one epoch.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: Offset,
    last: Offset,
    /// Offsets in it that were handed on; other members may hold the rest.
    offset_count: u64,
    /// `None`: the epoch is still open.
    checkpoint: Option<CheckpointId>,
}

impl LockWindow {
    /// `locks_max` is the group's `share.partition.max.record.locks`.
    pub(super) fn new(locks_max: u64) -> Self {
        LockWindow { locks_max: locks_max.max(1), partitions: BTreeMap::new(), carried: BTreeMap::new() }
    }

    /// Offsets `first..=last` were handed on in the open epoch.
    pub(super) fn handed_on(&mut self, partition: SourcePartition, first: Offset, last: Offset) {
        let spans = self.partitions.entry(partition).or_default();
        let offset_count = first.count_to(last);
        match spans.last_mut() {
            Some(span) if span.checkpoint.is_none() => {
                span.first = span.first.min(first);
                span.last = span.last.max(last);
                span.offset_count += offset_count;
            }
            Some(_) | None => spans.push(Span { first, last, offset_count, checkpoint: None }),
        }
    }

    /// The open epoch is closed by this barrier.
    pub(super) fn barrier(&mut self, checkpoint: CheckpointId) {
        for spans in self.partitions.values_mut() {
            for span in spans.iter_mut().filter(|span| span.checkpoint.is_none()) {
                span.checkpoint = Some(checkpoint);
            }
        }
    }

    /// The epoch of this barrier, and those before it, have committed, except for what they left to later ones: `carried`.
    pub(super) fn committed(&mut self, checkpoint: CheckpointId, carried: &Ranges) {
        self.partitions.retain(|_, spans| {
            spans.retain(|span| span.checkpoint.is_none_or(|sealed| sealed > checkpoint));
            !spans.is_empty()
        });
        self.carried.clear();
        for (partition, range) in carried.iter() {
            let (_, last) = self.carried.entry(partition).or_insert((range.first, range.last));
            *last = range.last;
        }
    }

    /// True when nothing was handed on that is not committed.
    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.carried.is_empty()
    }

    /// The fullest window, 0.0 to 1.0.
    pub(super) fn fill(&self) -> f64 {
        let held = self.partitions.keys().chain(self.carried.keys());
        held.map(|partition| self.fill_of(*partition)).fold(0.0, f64::max)
    }

    /// Of each partition that holds anything: offsets handed on and not committed (of those that epochs have left to
    /// later ones their span), and how full its window is.
    pub(super) fn loads(&self) -> impl Iterator<Item = (SourcePartition, u64, f64)> + '_ {
        let held: BTreeSet<SourcePartition> =
            self.partitions.keys().chain(self.carried.keys()).copied().collect();
        held.into_iter().map(|partition| {
            let spans = self.partitions.get(&partition).into_iter().flatten();
            let carried = self.carried.get(&partition).map_or(0, |(first, last)| first.count_to(*last));
            let in_flight = spans.map(|span| span.offset_count).sum::<u64>() + carried;
            (partition, in_flight, self.fill_of(partition))
        })
    }

    fn fill_of(&self, partition: SourcePartition) -> f64 {
        let spans = self.partitions.get(&partition).into_iter().flatten();
        let spans = spans.map(|span| (span.first, span.last));
        let all: Vec<(Offset, Offset)> = spans.chain(self.carried.get(&partition).copied()).collect();
        let first = all.iter().map(|(first, _)| *first).min();
        let last = all.iter().map(|(_, last)| *last).max();
        let width = first.zip(last).map_or(0, |(first, last)| first.count_to(last));
        (width as f64 / self.locks_max as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{PartitionIndex, TopicId};

    use super::*;

    #[test]
    fn the_window_spans_all_epochs_that_have_not_committed() {
        let partition =
            |index| SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) };
        let mut window = LockWindow::new(100);
        assert_eq!(window.fill(), 0.0);
        assert!(window.is_empty());
        window.handed_on(partition(0), Offset(10), Offset(19));
        assert_eq!(window.fill(), 0.1);
        window.barrier(CheckpointId(1));
        window.handed_on(partition(0), Offset(20), Offset(29));
        window.handed_on(partition(1), Offset(0), Offset(4));
        assert_eq!(window.fill(), 0.2, "the epoch before has not committed");
        let loads: Vec<_> = window.loads().collect();
        assert_eq!(loads, [(partition(0), 20, 0.2), (partition(1), 5, 0.05)]);
        window.committed(CheckpointId(1), &Ranges::default());
        assert_eq!(window.fill(), 0.1);
        // A record that came back lies far behind: the window reaches from there.
        window.handed_on(partition(0), Offset(0), Offset(0));
        assert_eq!(window.fill(), 0.3);
        assert_eq!(window.loads().next(), Some((partition(0), 11, 0.3)), "others hold what lies between");
        window.handed_on(partition(1), Offset(5), Offset(500));
        assert_eq!(window.fill(), 1.0, "never above full");
        window.barrier(CheckpointId(2));
        assert!(!window.is_empty());
        window.committed(CheckpointId(2), &Ranges::default());
        assert_eq!(window.fill(), 0.0);
        assert!(window.is_empty());
    }

    #[test]
    fn the_window_reaches_from_what_was_left_to_a_later_epoch() {
        let partition =
            |index| SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) };
        let mut window = LockWindow::new(100);
        window.handed_on(partition(0), Offset(0), Offset(19));
        window.barrier(CheckpointId(1));
        let mut carried = Ranges::default();
        carried.add(partition(0), Offset(3), Offset(3));
        carried.add(partition(0), Offset(7), Offset(7));
        window.committed(CheckpointId(1), &carried);
        assert_eq!(window.fill(), 0.05);
        assert!(!window.is_empty());
        window.handed_on(partition(0), Offset(20), Offset(42));
        assert_eq!(window.fill(), 0.4);
        window.barrier(CheckpointId(2));
        window.committed(CheckpointId(2), &Ranges::default());
        assert!(window.is_empty());
    }
}
