//! What a share source does about the records that it holds: renews their locks in time, notices lost ones, and hands on
//! records near their delivery limit apart from all others (DESIGN section 5, ADR 0019).

use std::collections::BTreeMap;

use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{ErrorKind, Instant};
use sharestream_client::{AckResult, AcknowledgeType, KafkaError, OffsetRange, ShareRecords};
use sharestream_core::decision::SourcePartition;

use super::delivery::Treatment;
use super::locks::Round;
use super::reader::Chunk;
use super::share_source::{ShareSource, warn_of_refused};
use crate::error::client_error;
use crate::{Error, Result};

/// A lost lock ends the attempt at once: what was acquired may be with others already, or come to us once more, so
/// an epoch that holds it cannot commit.
pub(super) fn lost(context: String) -> Result<()> {
    if is_planted(Bug::LostLockCountedAsHeld) { Ok(()) } else { Err(Error::new(ErrorKind::Abort, context)) }
}

impl ShareSource {
    /// Locks that the consumer knows to be lost.
    pub(super) fn check_locks(&mut self) -> Result<()> {
        let lost_locks = self.consumer()?.lost();
        let Some(first) = lost_locks.first() else { return Ok(()) };
        for notice in &lost_locks {
            let partition = SourcePartition { topic_id: notice.topic_id, partition: notice.partition };
            self.counters.lost_locks += self.locks.held_count(partition);
            self.locks.lose(partition);
        }
        lost(format!(
            "locks lost on {} partitions, first {}/{}: {:?}",
            lost_locks.len(),
            first.topic_id,
            first.partition,
            first.reason
        ))
    }

    /// The locks of `records` run from now on, as far as we know.
    pub(super) fn take_locks(&mut self, records: &ShareRecords) {
        let said = self.consumer.as_ref().and_then(|consumer| consumer.acquisition_lock_timeout());
        if let Some(duration) = said.filter(|duration| *duration != self.locks.duration()) {
            self.locks.set_duration(duration);
        }
        for acquired in &records.partitions {
            let partition = SourcePartition { topic_id: acquired.topic_id, partition: acquired.partition };
            let deadline = acquired.lock_deadline.unwrap_or_else(|| self.clock.now() + self.locks.duration());
            let mut merged: Option<OffsetRange> = None;
            for range in &acquired.acquired {
                if range.delivery_count > 1 {
                    self.counters.redeliveries += range.first.count_to(range.last);
                }
                match &mut merged {
                    Some(before) if before.last.next() == range.first => before.last = range.last,
                    Some(before) => {
                        self.locks.acquired(partition, *before, deadline);
                        *before = OffsetRange { first: range.first, last: range.last };
                    }
                    None => merged = Some(OffsetRange { first: range.first, last: range.last }),
                }
            }
            if let Some(last) = merged {
                self.locks.acquired(partition, last, deadline);
            }
        }
    }

    /// Answers to fetches that no poll has asked for yet: their locks run, too.
    pub(super) fn take_fetched(&mut self) -> Result<()> {
        let fetched = self.consumer()?.take_fetched().map_err(client_error("poll"))?;
        for records in fetched {
            self.take_locks(&records);
            self.fetched.push_back(records);
        }
        Ok(())
    }

    /// Renews what is due. Cancel safe: what was asked for and not heard of is asked for again.
    pub(super) async fn renew_due(&mut self) -> Result<()> {
        let now = self.clock.now();
        let rounds = match self.locks.rounds(now) {
            Ok(rounds) => rounds,
            Err((partition, range)) => {
                self.counters.lost_locks += range.first.count_to(range.last);
                self.locks.gone(partition, range);
                let SourcePartition { topic_id, partition } = partition;
                return lost(format!(
                    "the locks of offsets {} to {} of {topic_id}/{partition} have run out, and this leader cannot renew \
                     them (KIP-1222 needs Kafka 4.2, and share.renew.acknowledge.enable)",
                    range.first, range.last
                ));
            }
        };
        for round in rounds {
            self.renew(&round, now).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, round: &Round, asked_at: Instant) -> Result<()> {
        let ranges: BTreeMap<_, _> = round
            .ranges
            .iter()
            .map(|(partition, ranges)| ((partition.topic_id, partition.partition), ranges.clone()))
            .collect();
        let results = self.consumer()?.renew_all(&ranges).await.map_err(client_error("renew locks"))?;
        let mut refused = Ok(());
        for result in results {
            let is_renewal = result
                .batches
                .iter()
                .all(|batch| batch.types.iter().all(|kind| *kind == AcknowledgeType::Renew));
            if is_renewal {
                refused = refused.and(self.take_renewed(round, &result, asked_at));
            } else {
                warn_of_refused(std::slice::from_ref(&result));
            }
        }
        // A connection that ended says more than its missing answer.
        self.check_locks().and(refused)
    }

    fn take_renewed(&mut self, round: &Round, result: &AckResult, asked_at: Instant) -> Result<()> {
        let partition = SourcePartition { topic_id: result.topic_id, partition: result.partition };
        let ranges = result.batches.iter().map(|batch| OffsetRange { first: batch.first, last: batch.last });
        let now = self.clock.now();
        for range in ranges {
            match result.error {
                None => {
                    self.counters.renewals += range.first.count_to(range.last);
                    self.locks.renewed(partition, range, asked_at);
                }
                Some(_) if round.sealed_in.is_some() => self.locks.unclear(partition, range),
                Some(error) if error == KafkaError::INVALID_RECORD_STATE => {
                    self.counters.lost_locks += range.first.count_to(range.last);
                    let SourcePartition { topic_id, partition } = partition;
                    return lost(format!(
                        "the locks of offsets {} to {} of {topic_id}/{partition} could not be renewed: they were lost",
                        range.first, range.last
                    ));
                }
                Some(error) if error.is_retriable() || error == KafkaError::NETWORK_EXCEPTION => {
                    self.locks.not_renewed(partition, range, now);
                }
                Some(error) => {
                    let source = format!("{}/{}", partition.topic_id, partition.partition);
                    tracing::debug!(%error, source, first = %range.first, last = %range.last, "not renewable");
                    self.locks.not_renewable(partition, range);
                }
            }
        }
        Ok(())
    }

    /// Brings records near their limit in front: what is acquired costs them a delivery, whenever it is handed on.
    pub(super) fn sort_ready(&mut self) {
        if self.ready.iter().any(|chunk| chunk.treatment.is_protected()) {
            self.ready.make_contiguous().sort_by_key(|chunk| chunk.treatment);
        }
    }

    /// True while nothing may be handed on: a record near its limit is in an epoch by itself, and no other one is on its
    /// way to a commit meanwhile. Not in a drain, which has one epoch left.
    pub(super) fn waits(&self) -> bool {
        if !self.is_polling {
            return false;
        }
        let is_next = self.ready.front().is_some_and(|chunk| chunk.treatment.is_protected());
        let is_busy = !self.epoch.is_empty() || self.locks.is_committing();
        self.epoch.is_protected || (self.is_protecting && is_busy) || (is_next && is_busy)
    }

    /// Whether the open epoch is to be closed for the sake of a record near its limit.
    pub(super) fn wants_barrier(&self) -> bool {
        let is_next = self.ready.front().is_some_and(|chunk| chunk.treatment.is_protected());
        self.is_polling && !self.epoch.is_empty() && (self.epoch.is_protected || is_next)
    }

    /// Takes what was acquired and not handed on, read or not, but for what must not be given back.
    pub(super) fn take_releasable(&mut self) -> Vec<(SourcePartition, OffsetRange)> {
        let is_kept =
            |treatment: Treatment| treatment.is_protected() && !is_planted(Bug::ProtectedReleasedAtStop);
        let ready = std::mem::take(&mut self.ready);
        let (kept, given_back): (Vec<Chunk>, Vec<Chunk>) =
            ready.into_iter().partition(|chunk| is_kept(chunk.treatment));
        self.ready = kept.into();
        let of_ready = given_back.iter().flat_map(|chunk| &chunk.decided);
        let of_ready = of_ready
            .map(|(partition, range)| (*partition, OffsetRange { first: range.first, last: range.last }));
        let limit = self.reader.delivery_limit();
        let unread = self.unread.take_releasable(|range| is_kept(limit.treatment(range.delivery_count)));
        of_ready.chain(unread).collect()
    }
}
