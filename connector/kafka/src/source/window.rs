//! How full the lock windows are. Pure.
//!
//! The broker hands out nothing of a partition beyond `max.record.locks` offsets past its start offset, and the start
//! offset passes a record only when its checkpoint has committed. So what counts is the span from the first offset
//! whose epoch has not committed to the last one handed on.

use std::collections::BTreeMap;

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
        match spans.last_mut() {
            Some(span) if span.checkpoint.is_none() => {
                span.first = span.first.min(first);
                span.last = span.last.max(last);
            }
            Some(_) | None => spans.push(Span { first, last, checkpoint: None }),
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
        let carried = self.carried.iter();
        let alone = carried.filter(|(partition, _)| !self.partitions.contains_key(*partition));
        let alone = alone.map(|(_, (first, last))| width(*first, *last));
        let widths = self.partitions.iter().map(|(partition, spans)| {
            let carried = self.carried.get(partition);
            let first = spans.iter().map(|span| span.first).chain(carried.map(|(first, _)| *first)).min();
            let last = spans.iter().map(|span| span.last).chain(carried.map(|(_, last)| *last)).max();
            match (first, last) {
                (Some(first), Some(last)) => width(first, last),
                _ => 0,
            }
        });
        let widest = widths.chain(alone).max().unwrap_or(0);
        (widest as f64 / self.locks_max as f64).min(1.0)
    }
}

fn width(first: Offset, last: Offset) -> u64 {
    (last.0 - first.0 + 1).unsigned_abs()
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
        window.committed(CheckpointId(1), &Ranges::default());
        assert_eq!(window.fill(), 0.1);
        // A record that came back lies far behind: the window reaches from there.
        window.handed_on(partition(0), Offset(0), Offset(0));
        assert_eq!(window.fill(), 0.3);
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
