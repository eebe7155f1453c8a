//! Deliveries that the ledger has decided: taken out before they enter the job, and acknowledged as they were decided.
//!
//! Nothing is dropped by a view that was not caught up since the member joined (R4): the group may have been reset while
//! the member was out.

use sharestream_base::ids::MemberEpoch;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{ShareConsumer, ShareRecords};

use super::share_source::acknowledge_type;
use crate::Result;
use crate::ledger::{Dropped, LedgerTail, take_decided};

/// The ledger as a source sees it.
#[derive(Debug)]
pub(super) struct LedgerFilter {
    tail: LedgerTail,
    /// The membership for which the view was caught up.
    caught_up_for: Option<(String, MemberEpoch)>,
    dropped: Dropped,
    /// Acknowledgements of decided records were handed to the consumer and not sent.
    owes_acknowledgements: bool,
}

impl LedgerFilter {
    /// A filter by what `tail` reads; it must have been caught up once.
    pub(super) fn new(tail: LedgerTail) -> Self {
        LedgerFilter { tail, caught_up_for: None, dropped: Dropped::default(), owes_acknowledgements: false }
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

    /// Waits until the view was caught up since the member joined. Any change of its epoch counts as a join, which costs
    /// one fetch. Cancel safe.
    pub(super) async fn catch_up(&mut self, consumer: &mut ShareConsumer) -> Result<()> {
        let metadata = consumer.share_group_metadata();
        let member = (metadata.member_id, metadata.member_epoch);
        if self.caught_up_for.as_ref() == Some(&member) || is_planted(Bug::DroppedBeforeCaughtUp) {
            return Ok(());
        }
        self.tail.catch_up().await?;
        self.caught_up_for = Some(member);
        Ok(())
    }

    /// Takes what is decided out of `records`, and decides on it in `consumer`. To be called after
    /// [`LedgerFilter::catch_up`].
    pub(super) fn take_decided(
        &mut self,
        records: &mut ShareRecords,
        consumer: &mut ShareConsumer,
    ) -> Result<()> {
        let mut dropped = self.dropped;
        let decided = self.tail.look(|view| {
            let partitions = records.partitions.iter_mut();
            partitions.flat_map(|acquired| take_decided(view, acquired, &mut dropped)).collect::<Vec<_>>()
        })?;
        self.dropped = dropped;
        for (source, range) in decided {
            let kind = acknowledge_type(range.decision);
            consumer.acknowledge(source.topic_id, source.partition, range.first, range.last, kind);
            self.owes_acknowledgements = true;
        }
        Ok(())
    }
}
