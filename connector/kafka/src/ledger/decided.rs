//! What of a delivery is decided already: it is acknowledged as it was decided, and does not enter the job. Pure.

use sharestream_client::{AcquiredPartition, AcquiredRange};
use sharestream_core::decision::{DecidedRange, Decision, SourcePartition};

use super::view::View;

/// Offsets that were taken out of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Decided by a committed claim.
    pub(crate) already_decided: u64,
    /// Below the floor, where the claims are gone.
    pub(crate) below_floor: u64,
}

/// Whether the view knows some of `acquired` as decided.
pub(crate) fn is_touched(view: &View, acquired: &AcquiredPartition) -> bool {
    let source = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
    let floor = view.floor(source);
    acquired.acquired.iter().any(|range| {
        floor.is_some_and(|floor| range.first < floor)
            || view.committed().overlaps(source, range.first, range.last)
    })
}

/// Takes out of `acquired` what the view knows as decided, and gives it with the decisions. Below the floor the decision
/// itself is gone; ACCEPT is as final as any.
///
/// The view must have been caught up since the records were acquired: an older one may not know of a reset (R4).
pub(crate) fn take_decided(
    view: &View,
    acquired: &mut AcquiredPartition,
    dropped: &mut Dropped,
) -> Vec<(SourcePartition, DecidedRange)> {
    let source = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
    let mut decided = Vec::new();
    if !is_touched(view, acquired) {
        return decided;
    }
    let floor = view.floor(source);
    let mut left = Vec::with_capacity(acquired.acquired.len());
    for range in std::mem::take(&mut acquired.acquired) {
        let mut next = range.first;
        if let Some(floor) = floor.filter(|floor| next < *floor) {
            let last = range.last.min(floor.plus(-1));
            decided.push((source, DecidedRange { first: next, last, decision: Decision::Accept }));
            dropped.below_floor += next.count_to(last);
            next = last.next();
        }
        for part in view.committed().within(source, next, range.last) {
            if next < part.first {
                left.push(AcquiredRange { first: next, last: part.first.plus(-1), ..range });
            }
            decided.push((source, part));
            dropped.already_decided += part.first.count_to(part.last);
            next = part.last.next();
        }
        if next <= range.last {
            left.push(AcquiredRange { first: next, ..range });
        }
    }
    acquired.acquired = left;
    decided
}
