//! What is decided of one partition, and how late in event time. Pure.

use std::collections::BTreeMap;

use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_checkpoints::PartitionTimes;

/// Decided ranges above the first hole. A lock window spans a few thousand offsets, so there can hardly be more; what is decided
/// beyond that counts once the group's start offset has passed it.
pub(super) const RANGES_MAX: usize = 4_096;
/// Event times above the first hole. Beyond that neighbours are merged: the later time counts once the later offset is
/// reached.
pub(super) const MARKS_MAX: usize = 1_024;

/// ```text
/// .......... next_offset   (hole)  above      (hole)  above
/// all decided; max_ms                 marks: counted once next_offset has passed them
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionProgress {
    /// Everything below is decided; `None` until the start is known.
    next_offset: Option<Offset>,
    /// Latest event time below `next_offset`.
    max_ms: Option<i64>,
    /// Decided ranges above, first to last, disjoint and apart.
    above: BTreeMap<Offset, Offset>,
    /// Event times that count once everything up to their offset is decided.
    marks: BTreeMap<Offset, i64>,
}

impl PartitionProgress {
    pub(super) fn restore(times: &PartitionTimes) -> Self {
        PartitionProgress {
            next_offset: times.next_offset,
            max_ms: times.max_ms,
            above: times.decided_above.iter().copied().collect(),
            marks: times.times_above.iter().copied().collect(),
        }
    }

    pub(super) fn snapshot(&self, topic_id: TopicId, partition: PartitionIndex) -> PartitionTimes {
        PartitionTimes {
            topic_id,
            partition,
            next_offset: self.next_offset,
            max_ms: self.max_ms,
            decided_above: self.above.iter().map(|(first, last)| (*first, *last)).collect(),
            times_above: self.marks.iter().map(|(offset, time)| (*offset, *time)).collect(),
        }
    }

    pub(super) fn max_ms(&self) -> Option<i64> {
        self.max_ms
    }

    pub(super) fn is_started(&self) -> bool {
        self.next_offset.is_some()
    }

    /// True when nothing is known to be undecided, below `end` where that is known.
    pub(super) fn is_decided_up_to(&self, end: Option<Offset>) -> bool {
        self.above.is_empty() && end.is_none_or(|end| self.next_offset >= Some(end))
    }

    /// Records up to `offset` that were handed on are as late as `time`.
    pub(super) fn mark(&mut self, offset: Offset, time: i64) {
        // Below, it was decided before: a replay that somebody asked for.
        if self.next_offset.is_some_and(|next| offset < next) {
            return;
        }
        let kept = self.marks.entry(offset).or_insert(time);
        *kept = time.max(*kept);
        if self.marks.len() > MARKS_MAX {
            self.merge_marks();
        }
    }

    fn merge_marks(&mut self) {
        let marks: Vec<(Offset, i64)> = std::mem::take(&mut self.marks).into_iter().collect();
        let merged = marks.chunks(2).filter_map(|pair| {
            let (offset, _) = *pair.last()?;
            Some((offset, pair.iter().map(|(_, time)| *time).max()?))
        });
        self.marks = merged.collect();
    }

    /// The offsets `first..=last` are decided.
    pub(super) fn decide(&mut self, first: Offset, last: Offset) {
        let (mut first, mut last) = (first, last);
        if let Some(next) = self.next_offset {
            first = first.max(next);
        }
        if last < first {
            return;
        }
        // Joined with what it overlaps or touches.
        if let Some((start, end)) = self.above.range(..=first).next_back().map(|(start, end)| (*start, *end))
            && end.next() >= first
        {
            first = start;
            last = last.max(end);
        }
        while let Some((start, end)) =
            self.above.range(first..=last.next()).next().map(|(start, end)| (*start, *end))
        {
            self.above.remove(&start);
            last = last.max(end);
        }
        self.above.insert(first, last);
        if let Some(next) = self.next_offset {
            self.raise(next);
        }
        if self.above.len() > RANGES_MAX {
            self.above.pop_last();
        }
    }

    /// Everything below `start` is decided; nothing was known of it, perhaps.
    pub(super) fn raise(&mut self, start: Offset) {
        let mut next = self.next_offset.map_or(start, |next| next.max(start));
        while let Some((first, last)) = self.above.first_key_value().map(|(first, last)| (*first, *last))
            && first <= next
        {
            self.above.remove(&first);
            next = next.max(last.next());
        }
        self.next_offset = Some(next);
        while let Some((offset, time)) = self.marks.first_key_value().map(|(offset, time)| (*offset, *time))
            && offset < next
        {
            self.marks.remove(&offset);
            self.max_ms = self.max_ms.max(Some(time));
        }
    }

    /// Begins where the first decided range begins: for sources that cannot say where the group's start offset is.
    pub(super) fn begin_at_first(&mut self) {
        if let (None, Some(first)) = (self.next_offset, self.above.first_key_value().map(|(first, _)| *first))
        {
            self.raise(first);
        }
    }
}
