//! What of a delivery is decided already: it is acknowledged as it was decided, and does not enter the job. Pure.

use sharestream_base::ids::Offset;
use sharestream_client::{AcquiredPartition, AcquiredRange};
use sharestream_core::decision::{DecidedRange, Decision, Decisions, SourcePartition};

use super::view::View;

/// Offsets that were taken out of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Decided by a committed claim.
    pub(crate) already_decided: u64,
    /// Below the floor, where the claims are gone.
    pub(crate) below_floor: u64,
}

/// What is known as decided: by a view of the ledger, or by a rewind, which has no floors.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    view: Option<&'a View>,
    decided: &'a Decisions,
}

impl<'a> Known<'a> {
    pub(crate) fn of(view: &'a View) -> Self {
        Known { view: Some(view), decided: view.committed() }
    }

    pub(crate) fn fixed(decided: &'a Decisions) -> Self {
        Known { view: None, decided }
    }

    fn floor(&self, source: SourcePartition) -> Option<Offset> {
        self.view.and_then(|view| view.floor(source))
    }
}

/// Whether some of `acquired` is known as decided.
pub(crate) fn is_touched(known: Known<'_>, acquired: &AcquiredPartition) -> bool {
    let source = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
    let floor = known.floor(source);
    acquired.acquired.iter().any(|range| {
        floor.is_some_and(|floor| range.first < floor)
            || known.decided.overlaps(source, range.first, range.last)
    })
}

/// Takes out of `acquired` what is known as decided, and gives it with the decisions. Below the floor the decision
/// itself is gone; ACCEPT is as final as any.
///
/// A view must have been caught up since the records were acquired: an older one may not know of a reset (R4).
pub(crate) fn take_decided(
    known: Known<'_>,
    acquired: &mut AcquiredPartition,
    dropped: &mut Dropped,
) -> Vec<(SourcePartition, DecidedRange)> {
    let source = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
    let mut decided = Vec::new();
    if !is_touched(known, acquired) {
        return decided;
    }
    let floor = known.floor(source);
    let mut left = Vec::with_capacity(acquired.acquired.len());
    for range in std::mem::take(&mut acquired.acquired) {
        let mut next = range.first;
        if let Some(floor) = floor.filter(|floor| next < *floor) {
            let last = range.last.min(floor.plus(-1));
            decided.push((source, DecidedRange { first: next, last, decision: Decision::Accept }));
            dropped.below_floor += next.count_to(last);
            next = last.next();
        }
        for part in known.decided.within(source, next, range.last) {
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
