//! How a share source outlives a failed attempt: it holds on to its locks, and hands on again from memory what no epoch has
//! decided (DESIGN section 2, Abort; ADR 0026). Whatever is in doubt ends in `false` or an error: then the source is closed,
//! and its records come again by a delivery.

use sharestream_base::ids::CheckpointId;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::OffsetRange;
use sharestream_core::commit::AckMode;
use sharestream_core::source::Rewind;

use super::epoch::OpenEpoch;
use super::ledger::LedgerFilter;
use super::reader::Chunk;
use super::share_source::ShareSource;
use super::window::LockWindow;
use crate::Result;
use crate::error::client_error;
use crate::ranges::Ranges;

impl ShareSource {
    /// Acquires nothing for now. Records near their delivery limit are not kept: what happens to them is decided by the
    /// rules of ADR 0019, which count deliveries.
    pub(super) async fn hold_on(&mut self) -> Result<bool> {
        if !self.is_polling || self.has_released || self.is_protecting || !self.near_limit.is_empty() {
            return Ok(false);
        }
        self.check_locks()?;
        let fetched = self.consumer()?.settle_fetches().await.map_err(client_error("poll"))?;
        let mut is_near = false;
        for records in fetched {
            self.take_locks(&records);
            self.fetched.push_back(records);
        }
        for records in self.fetched.iter().chain(&self.polled) {
            is_near |= self.near_limit.look_at(records);
        }
        if is_near {
            return Ok(false);
        }
        self.check_locks()?;
        self.fetching = None;
        Ok(true)
    }

    /// Goes back to the last commit.
    pub(super) async fn go_back(&mut self, to: Rewind) -> Result<bool> {
        self.check_locks()?;
        if self.ledger.as_ref().is_some_and(LedgerFilter::has_ledger) != self.tail.is_started() {
            // The group's mode has changed.
            return Ok(false);
        }
        match self.mode {
            AckMode::Transactional => self.settle_staged(to).await?,
            // Acknowledgements follow the commit: those of one that nobody heard of are still to be sent.
            AckMode::Ledger | AckMode::AtLeastOnce => {
                if to.last_committed.is_some_and(|last| self.handed.holds_sealed(last)) {
                    return Ok(false);
                }
            }
        }
        let mut chunks = self.handed.take();
        if !self.locks.go_back(self.clock.now()) || !self.holds_locks_of(&chunks) {
            return Ok(false);
        }
        if let Some(ledger) = &self.ledger {
            // A claim of another may have decided what we were believed to hold.
            let decided = chunks.iter().flat_map(|chunk| &chunk.decided);
            if ledger.knows_any(decided.copied()).await? {
                return Ok(false);
            }
        }
        self.check_locks()?;
        self.window = LockWindow::new(self.locks_max);
        if is_planted(Bug::OpenEpochOutlivesRewind) {
            chunks.clear();
        } else {
            self.epoch = OpenEpoch::default();
        }
        self.acknowledging.clear();
        self.quiet_until = None;
        let record_count: u64 = chunks.iter().map(|chunk| chunk.record_count).sum();
        for chunk in chunks.into_iter().rev() {
            self.ready.push_front(chunk);
        }
        let handle = self.consumer()?.metadata_handle();
        self.attempt.add_member(handle);
        self.fetching = Some(self.attempt.start_fetching());
        tracing::info!(record_count, "records of the failed attempt are processed again from memory");
        Ok(true)
    }

    /// Mode `transactional`: forgets what is committed, and what was staged and aborted. Recovery has resolved both, so
    /// that each staged record is decided, or available to anyone, soon if not now.
    async fn settle_staged(&mut self, to: Rewind) -> Result<()> {
        if let Some(committed) = to.last_committed {
            self.locks.committed(committed);
            self.handed.settled(committed, self.locks.carried())?;
        }
        if let Some(staged) = to.staged_up_to {
            let forgotten = self.forget(staged)?;
            self.give_back(&forgotten).await?;
        }
        Ok(())
    }

    fn forget(&mut self, staged: CheckpointId) -> Result<Ranges> {
        let forgotten = self.locks.forget(staged);
        let nothing = Ranges::default();
        let left = if is_planted(Bug::RewindForgetsDeferred) { &nothing } else { self.locks.carried() };
        self.handed.settled(staged, left)?;
        Ok(forgotten)
    }

    /// Where staging did not get to, records of its epoch are still acquired: nobody would hear of them before their locks
    /// run out. What was staged refuses to be released, and is available by itself.
    async fn give_back(&mut self, forgotten: &Ranges) -> Result<()> {
        for (partition, range) in forgotten.iter() {
            let consumer = self.consumer()?;
            let released = consumer.release(partition.topic_id, partition.partition, &[range]).await;
            for result in released.map_err(client_error("release"))? {
                match result.error {
                    None => {
                        let ranges = result.batches.iter().map(|batch| batch.first.count_to(batch.last));
                        self.counters.releases += ranges.sum::<u64>();
                    }
                    Some(error) => tracing::debug!(%error, %partition.partition, "it was staged"),
                }
            }
        }
        Ok(())
    }

    fn holds_locks_of(&self, chunks: &[Chunk]) -> bool {
        chunks.iter().flat_map(|chunk| &chunk.decided).all(|(partition, range)| {
            self.locks.holds_all(*partition, OffsetRange { first: range.first, last: range.last })
        })
    }
}
