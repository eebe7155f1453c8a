//! Deliveries that are decided already: taken out before they enter the job, and acknowledged as they were decided.
//!
//! In ledger mode the ledger knows them. In the other modes there are such deliveries only after a rewind, which hands out
//! again, once, what the savepoint had decided above its start offsets; the set of them is fixed when the job starts.
//!
//! Nothing is dropped by a view that was not caught up since the records were acquired. That is more than R4 asks for (since
//! the member joined: the group may have been reset while it was out), and costs a fetch only where something is dropped.

use std::sync::Arc;

use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{ShareConsumer, ShareRecords};
use sharestream_core::decision::{DecidedRange, Decisions, SourcePartition};

use super::share_source::acknowledge_type;
use crate::Result;
use crate::ledger::{Dropped, Known, LedgerTail, is_touched, take_decided};

/// The decided deliveries as a source sees them.
#[derive(Debug)]
pub(super) struct LedgerFilter {
    knows: Knows,
    dropped: Dropped,
    /// Acknowledgements of decided records were handed to the consumer and not sent.
    owes_acknowledgements: bool,
}

/// Who knows what is decided.
#[derive(Debug)]
enum Knows {
    /// The ledger: it grows.
    Tail(LedgerTail),
    /// A rewind.
    Fixed(Arc<Decisions>),
}

impl LedgerFilter {
    /// A filter by what `tail` reads; it must have been caught up once.
    pub(super) fn new(tail: LedgerTail) -> Self {
        Self::of(Knows::Tail(tail))
    }

    /// A filter by what a rewind has left decided.
    pub(super) fn fixed(decided: Arc<Decisions>) -> Self {
        Self::of(Knows::Fixed(decided))
    }

    fn of(knows: Knows) -> Self {
        LedgerFilter { knows, dropped: Dropped::default(), owes_acknowledgements: false }
    }

    /// What was dropped so far.
    pub(super) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Errors: what the ledger has failed with, or who looks after it has found.
    pub(super) fn check(&self) -> Result<()> {
        match &self.knows {
            Knows::Tail(tail) => tail.check(),
            Knows::Fixed(_) => Ok(()),
        }
    }

    /// Whether acknowledgements are to be sent before the next poll; asked once.
    pub(super) fn takes_debt(&mut self) -> bool {
        std::mem::take(&mut self.owes_acknowledgements)
    }

    /// Whether a ledger tells what is decided, and not only a rewind.
    pub(super) fn has_ledger(&self) -> bool {
        matches!(self.knows, Knows::Tail(_))
    }

    /// Whether some of these offsets are decided, as far as is known now. Cancel safe.
    pub(super) async fn knows_any(
        &self,
        mut offsets: impl Iterator<Item = (SourcePartition, DecidedRange)>,
    ) -> Result<bool> {
        match &self.knows {
            Knows::Fixed(decided) => {
                Ok(offsets.any(|(source, range)| decided.overlaps(source, range.first, range.last)))
            }
            Knows::Tail(tail) => {
                tail.catch_up().await?;
                tail.look(|view| {
                    offsets.any(|(source, range)| {
                        view.floor(source).is_some_and(|floor| range.first < floor)
                            || view.committed().overlaps(source, range.first, range.last)
                    })
                })
            }
        }
    }

    /// Whether some of `records` is known as decided; a ledger is brought up to date first. Cancel safe.
    pub(super) async fn must_take(&mut self, records: &ShareRecords) -> Result<bool> {
        let touches =
            |known: Known<'_>| records.partitions.iter().any(|acquired| is_touched(known, acquired));
        match &self.knows {
            Knows::Fixed(decided) => Ok(touches(Known::fixed(decided))),
            Knows::Tail(tail) => {
                let touched = tail.look(|view| touches(Known::of(view)))?;
                if touched && !is_planted(Bug::DroppedBeforeCaughtUp) {
                    tail.catch_up().await?;
                }
                Ok(touched)
            }
        }
    }

    /// Takes what is decided out of `records`, decides on it in `consumer`, and tells it. To be called after
    /// [`LedgerFilter::must_take`].
    pub(super) fn take_decided(
        &mut self,
        records: &mut ShareRecords,
        consumer: &mut ShareConsumer,
    ) -> Result<Vec<(SourcePartition, DecidedRange)>> {
        let mut dropped = self.dropped;
        let mut take = |known: Known<'_>| {
            let partitions = records.partitions.iter_mut();
            partitions.flat_map(|acquired| take_decided(known, acquired, &mut dropped)).collect::<Vec<_>>()
        };
        let decided = match &self.knows {
            Knows::Fixed(decided) => take(Known::fixed(decided)),
            Knows::Tail(tail) => tail.look(|view| take(Known::of(view)))?,
        };
        self.dropped = dropped;
        for (source, range) in &decided {
            let kind = acknowledge_type(range.decision);
            consumer.acknowledge(source.topic_id, source.partition, range.first, range.last, kind);
            self.owes_acknowledgements = true;
        }
        Ok(decided)
    }
}
