//! Deliveries that the ledger has decided: taken out before they enter the job, and acknowledged as they were decided.
//!
//! Nothing is dropped by a view that was not caught up since the records were acquired. That is more than R4 asks for (since
//! the member joined: the group may have been reset while it was out), and costs a fetch only where something is dropped.

use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{ShareConsumer, ShareRecords};
use sharestream_core::decision::{DecidedRange, SourcePartition};

use super::share_source::acknowledge_type;
use crate::Result;
use crate::ledger::{Dropped, LedgerTail, is_touched, take_decided};

/// The ledger as a source sees it.
#[derive(Debug)]
pub(super) struct LedgerFilter {
    tail: LedgerTail,
    dropped: Dropped,
    /// Acknowledgements of decided records were handed to the consumer and not sent.
    owes_acknowledgements: bool,
}

impl LedgerFilter {
    /// A filter by what `tail` reads; it must have been caught up once.
    pub(super) fn new(tail: LedgerTail) -> Self {
        LedgerFilter { tail, dropped: Dropped::default(), owes_acknowledgements: false }
    }

    /// What was dropped so far.
    pub(super) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Errors: what the ledger has failed with, or who looks after it has found.
    pub(super) fn check(&self) -> Result<()> {
        self.tail.check()
    }

    /// Whether acknowledgements are to be sent before the next poll; asked once.
    pub(super) fn takes_debt(&mut self) -> bool {
        std::mem::take(&mut self.owes_acknowledgements)
    }

    /// Whether some of these offsets are decided, as far as the log says now. Cancel safe.
    pub(super) async fn knows_any(
        &self,
        mut offsets: impl Iterator<Item = (SourcePartition, DecidedRange)>,
    ) -> Result<bool> {
        self.tail.catch_up().await?;
        self.tail.look(|view| {
            offsets.any(|(source, range)| {
                view.floor(source).is_some_and(|floor| range.first < floor)
                    || view.committed().overlaps(source, range.first, range.last)
            })
        })
    }

    /// Whether the view, as it is, knows some of `records` as decided; then it is brought up to date first. Cancel safe.
    pub(super) async fn must_take(&mut self, records: &ShareRecords) -> Result<bool> {
        let touched =
            self.tail.look(|view| records.partitions.iter().any(|acquired| is_touched(view, acquired)))?;
        if touched && !is_planted(Bug::DroppedBeforeCaughtUp) {
            self.tail.catch_up().await?;
        }
        Ok(touched)
    }

    /// Takes what is decided out of `records`, decides on it in `consumer`, and tells it. To be called after
    /// [`LedgerFilter::must_take`].
    pub(super) fn take_decided(
        &mut self,
        records: &mut ShareRecords,
        consumer: &mut ShareConsumer,
    ) -> Result<Vec<(SourcePartition, DecidedRange)>> {
        let mut dropped = self.dropped;
        let decided = self.tail.look(|view| {
            let partitions = records.partitions.iter_mut();
            partitions.flat_map(|acquired| take_decided(view, acquired, &mut dropped)).collect::<Vec<_>>()
        })?;
        self.dropped = dropped;
        for (source, range) in &decided {
            let kind = acknowledge_type(range.decision);
            consumer.acknowledge(source.topic_id, source.partition, range.first, range.last, kind);
            self.owes_acknowledgements = true;
        }
        Ok(decided)
    }
}
