//! The source of one subtask: a member of the share group.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sharestream_base::ids::CheckpointId;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{Clock, ErrorKind, Instant};
use sharestream_client::{AckResult, AcknowledgeType, OffsetRange, ShareConsumer, ShareRecords, TopicInfo};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision, Decisions, ShareMember, SourcePartition};
use sharestream_core::source::{
    InFlight, PartitionLoad, Rewind, Source, SourceCounters, SourceEvent, SourceMetrics, SourceReport,
};

use super::epoch::OpenEpoch;
use super::handed::Handed;
use super::holding::lost;
use super::ledger::LedgerFilter;
use super::locks::Locks;
use super::near_limit::{NearLimit, NearLimitConfig};
use super::reader::{Chunk, Reader};
use super::unread::Unread;
use super::window::LockWindow;
use crate::attempt::{Attempt, Fetching};
use crate::error::{bug, client_error};
use crate::formats::SchemaId;
use crate::formats::avro::registry::WriterSchemas;
use crate::ledger::LedgerTail;
use crate::ranges::Ranges;
use crate::{Error, Result};

/// Acquires, decodes, hands on, and reports at each barrier what became of every offset.
///
/// ```text
/// poll --> (decided already: acknowledged) --> unread --> (unknown schema: asked for) --> decode --> ready chunks --next()--> open epoch --barrier(n)--> reported --committed(n)--> done
///                                                \--stop_acquiring()--> released                        deferred(n): kept for a later epoch
/// ```
/// Locks are held, and renewed where the job takes long, from the poll on to the commit.
pub(super) struct ShareSource {
    /// `None` once closed.
    pub(super) consumer: Option<ShareConsumer>,
    pub(super) reader: Reader,
    topics: Vec<Arc<TopicInfo>>,
    /// Polled and looked through, and not read yet.
    pub(super) unread: Unread,
    /// Decoded and not yet handed on.
    pub(super) ready: VecDeque<Chunk>,
    pub(super) epoch: OpenEpoch,
    /// What of it may be handed on again.
    pub(super) handed: Handed,
    /// A session has given back some of it.
    pub(super) has_released: bool,
    pub(super) locks_max: u64,
    pub(super) window: LockWindow,
    pub(super) locks: Locks,
    pub(super) near_limit: NearLimit,
    pub(super) attempt: Arc<Attempt>,
    /// `None` once nothing is acquired any more.
    pub(super) fetching: Option<Fetching>,
    pub(super) mode: AckMode,
    pub(super) tail: LedgerTail,
    /// Where records name their schemas.
    schemas: Option<WriterSchemas>,
    /// In ledger mode, and beside replicas in it; and after a rewind.
    pub(super) ledger: Option<LedgerFilter>,
    pub(super) clock: Clock,
    /// The last fetch found nothing, and the next one waits until then.
    pub(super) quiet_until: Option<Instant>,
    /// The pause after the next fetch that finds nothing.
    quiet_pause: Duration,
    /// Fetched, and not polled yet; their locks are known already.
    pub(super) fetched: VecDeque<ShareRecords>,
    /// Polled, and not looked through yet: the ledger had to be caught up first.
    pub(super) polled: Option<ShareRecords>,
    /// False once `stop_acquiring` was called: no poll will send acknowledgements any more.
    pub(super) is_polling: bool,
    /// A record near its limit was handed on and is not committed: nothing else may be meanwhile.
    pub(super) is_protecting: bool,
    /// Epochs whose acknowledgements are on their way.
    pub(super) acknowledging: Vec<CheckpointId>,
    pub(super) counters: SourceCounters,
}

/// Pause after a fetch that found nothing while records are held. It is spent here, not in the fetch: acknowledgements
/// would wait behind that, and where the lock windows are full only they make the next records available.
const HOLDING_PAUSE: Duration = Duration::from_millis(5);
/// It doubles up to this while nothing is found and nothing is committed: what is held for seconds, behind a slow sink or a
/// slow call, must not have brokers asked two hundred times a second.
const HOLDING_PAUSE_MAX: Duration = Duration::from_millis(40);

/// Longest wait for fetches under way, and for the other members of the job, before records are given back.
const SIBLINGS_MAX: Duration = Duration::from_secs(1);

/// What a source needs beside its consumer.
pub(super) struct SourceParts {
    pub(super) reader: Reader,
    /// The topics that it reads.
    pub(super) topics: Vec<Arc<TopicInfo>>,
    /// The group's `share.partition.max.record.locks`.
    pub(super) locks_max: u64,
    pub(super) locks: Locks,
    pub(super) near_limit: NearLimitConfig,
    pub(super) attempt: Arc<Attempt>,
    pub(super) mode: AckMode,
    /// Read, and a filter, only where ledger mode is about.
    pub(super) tail: LedgerTail,
    pub(super) schemas: Option<WriterSchemas>,
    pub(super) ledger: Option<LedgerFilter>,
    pub(super) clock: Clock,
}

/// The protocol's name for a decision.
pub(crate) fn acknowledge_type(decision: Decision) -> AcknowledgeType {
    match decision {
        Decision::Accept => AcknowledgeType::Accept,
        Decision::Reject => AcknowledgeType::Reject,
        Decision::Gap => AcknowledgeType::Gap,
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the source is closed")
}

impl ShareSource {
    pub(super) fn new(consumer: ShareConsumer, parts: SourceParts) -> Self {
        let SourceParts {
            reader,
            topics,
            locks_max,
            locks,
            near_limit,
            attempt,
            mode,
            tail,
            schemas,
            ledger,
            clock,
        } = parts;
        ShareSource {
            consumer: Some(consumer),
            reader,
            topics,
            unread: Unread::default(),
            ready: VecDeque::new(),
            epoch: OpenEpoch::default(),
            handed: Handed::default(),
            has_released: false,
            locks_max,
            window: LockWindow::new(locks_max),
            locks,
            near_limit: NearLimit::new(near_limit),
            fetching: Some(attempt.start_fetching()),
            attempt,
            mode,
            tail,
            schemas,
            ledger,
            clock,
            quiet_until: None,
            quiet_pause: HOLDING_PAUSE,
            fetched: VecDeque::new(),
            polled: None,
            is_polling: true,
            is_protecting: false,
            acknowledging: Vec::new(),
            counters: SourceCounters::default(),
        }
    }

    /// Polls, and takes out what the ledger has decided. Cancel safe: what was polled stays.
    async fn poll(&mut self) -> Result<ShareRecords> {
        let consumer = self.consumer.as_mut().ok_or_else(closed)?;
        if let Some(ledger) = &mut self.ledger {
            ledger.check()?;
            if ledger.takes_debt() {
                let results =
                    consumer.commit_acknowledgements().await.map_err(client_error("acknowledge"))?;
                warn_of_refused(&results);
            }
        }
        if self.polled.is_none() {
            self.polled = self.fetched.pop_front();
        }
        let consumer = self.consumer.as_mut().ok_or_else(closed)?;
        if self.polled.is_none() {
            let holds = !self.window.is_empty() || consumer.awaits_acknowledgement_results();
            let polled = if holds {
                if let Some(at) = self.quiet_until
                    && !consumer.awaits_acknowledgement_results()
                {
                    self.clock.sleep_until(at).await;
                }
                consumer.poll_within(Duration::ZERO).await
            } else {
                consumer.poll().await
            };
            let polled = polled.map_err(client_error("poll"))?;
            self.quiet_until = polled.is_empty().then(|| self.clock.now() + self.quiet_pause);
            self.quiet_pause =
                if polled.is_empty() { (self.quiet_pause * 2).min(HOLDING_PAUSE_MAX) } else { HOLDING_PAUSE };
            self.take_locks(&polled);
            self.polled = Some(polled);
        }
        self.take_results();
        self.look_through().await?;
        Ok(self.polled.take().unwrap_or_default())
    }

    /// Takes out of what was polled what the ledger has decided, and writes down what is near its last delivery. Cancel
    /// safe: done anew.
    async fn look_through(&mut self) -> Result<()> {
        let consumer = self.consumer.as_mut().ok_or_else(closed)?;
        if let (Some(ledger), Some(records)) = (&mut self.ledger, &mut self.polled)
            && ledger.must_take(records).await?
        {
            for (partition, range) in ledger.take_decided(records, consumer)? {
                self.locks.gone(partition, OffsetRange { first: range.first, last: range.last });
            }
        }
        if let Some(records) = self.polled.as_ref().filter(|records| !records.is_empty()) {
            let is_near = self.near_limit.look_at(records);
            // Whoever holds one such record acquires the next ones one by one, too: a crash costs each that is held a
            // delivery.
            consumer.fetch_singly(is_near);
            if is_near {
                self.near_limit.write_down().await?;
            }
        }
        Ok(())
    }

    /// Decompresses and decodes what comes next of what was polled, no more than a part of it; `None` when there is nothing.
    /// Cancel safe: it waits only for schemas, and what is in front of them stays in `unread`.
    async fn read_on(&mut self) -> Result<Option<SourceEvent>> {
        while self.ready.is_empty() && !self.unread.is_empty() {
            self.reader.read_on(&mut self.unread, &mut self.ready)?;
            if let (true, Some(id)) = (self.ready.is_empty(), self.reader.wanted_schema()) {
                self.learn(id).await?;
            }
        }
        self.sort_ready();
        if self.waits() {
            // What was polled comes after a barrier, or a commit: for now there is no more. The next call waits.
            return Ok(Some(SourceEvent::Idle));
        }
        self.ready.pop_front().map(|chunk| self.hand_on(chunk)).transpose()
    }

    /// Gets the schema that the next record names. Locks go on meanwhile: whoever calls is called again by maintenance, so
    /// they are looked at before anything is handed on.
    #[cold]
    async fn learn(&mut self, id: SchemaId) -> Result<()> {
        let schemas =
            self.schemas.as_ref().ok_or_else(|| bug("a schema is wanted, and there is no registry"))?;
        let schema = schemas.get(id).await.map_err(|error| error.within(&format!("schema {id}")))?;
        self.reader.learn_schema(id, &schema);
        self.check_locks()
    }

    pub(super) fn consumer(&mut self) -> Result<&mut ShareConsumer> {
        self.consumer.as_mut().ok_or_else(closed)
    }

    /// Hands on what was acquired. A lock that expired while this process or its group stood still is lost without
    /// notice; the records come again, to whoever asks first.
    fn hand_on(&mut self, chunk: Chunk) -> Result<SourceEvent> {
        let locks = &self.locks;
        let is_deferred = |(partition, range): &&(SourcePartition, DecidedRange)| {
            locks.is_deferred(*partition, range.first, range.last)
        };
        let deferred = chunk.decided.iter().find(is_deferred).copied();
        if let Some((partition, range)) = self.epoch.held_already(&chunk.decided).or(deferred) {
            self.counters.lost_locks += range.first.count_to(range.last);
            lost(format!(
                "offsets {} to {} of {}/{} were delivered again while they were being worked on: their locks were lost",
                range.first, range.last, partition.topic_id, partition.partition
            ))?;
        }
        for (partition, range) in &chunk.decided {
            self.window.handed_on(*partition, range.first, range.last);
        }
        self.handed.hand_on(&chunk);
        let is_protected = chunk.treatment.is_protected();
        self.is_protecting |= is_protected;
        self.epoch.hand_on(&chunk.decided, chunk.record_count, chunk.byte_count);
        self.epoch.is_protected |= is_protected;
        Ok(SourceEvent::Records { rows: chunk.rows, rejected: chunk.rejected })
    }

    /// A load under the name of its topic.
    fn named(&self, (source, in_flight, window_fill): (SourcePartition, u64, f64)) -> Option<PartitionLoad> {
        let topic = self.topics.iter().find(|topic| topic.topic_id == source.topic_id)?;
        let mut load = PartitionLoad::new(topic.name.clone(), source.partition);
        (load.in_flight, load.window_fill) = (in_flight, window_fill);
        Some(load)
    }

    fn member(&mut self) -> Result<ShareMember> {
        let metadata = self.consumer()?.share_group_metadata();
        Ok(ShareMember {
            group_id: metadata.group_id,
            member_id: metadata.member_id,
            member_epoch: metadata.member_epoch,
        })
    }

    /// Hands on what has become of acknowledgements that went with fetches.
    fn take_results(&mut self) {
        let Some(consumer) = &mut self.consumer else { return };
        warn_of_refused(&consumer.acknowledgement_results());
        if !consumer.awaits_acknowledgement_results() {
            for checkpoint in self.acknowledging.drain(..) {
                self.attempt.acknowledged(checkpoint);
            }
        }
    }

    /// Sends ordinary acknowledgements of `decided`: with the next poll while there is one to come, in front of its fetch.
    /// In the fetch itself they would release records one partition after the other, it would come back with the first,
    /// and epochs would become small (ADR 0015). A refused one is no error: the record comes again, as at least once
    /// says, and is counted in the log.
    async fn acknowledge(
        &mut self,
        decided: impl Iterator<Item = (SourcePartition, DecidedRange)>,
    ) -> Result<()> {
        let is_polling = self.is_polling;
        let consumer = self.consumer()?;
        for (partition, range) in decided {
            let kind = acknowledge_type(range.decision);
            consumer.acknowledge(partition.topic_id, partition.partition, range.first, range.last, kind);
        }
        if is_polling {
            consumer.commit_acknowledgements_async();
            return Ok(());
        }
        let results = consumer.commit_acknowledgements().await.map_err(client_error("acknowledge"))?;
        warn_of_refused(&results);
        Ok(())
    }
}

pub(super) fn warn_of_refused(results: &[AckResult]) {
    for result in results {
        if let Some(error) = result.error {
            tracing::warn!(
                topic_id = %result.topic_id,
                partition = %result.partition,
                %error,
                "acknowledgement refused, the records will be delivered again"
            );
        }
    }
}

#[async_trait]
impl Source for ShareSource {
    async fn next(&mut self) -> Result<SourceEvent> {
        self.check_locks()?;
        if self.waits() {
            // For a barrier or a commit, which ends this call.
            std::future::pending::<()>().await;
        }
        if let Some(chunk) = self.ready.pop_front() {
            return self.hand_on(chunk);
        }
        if let Some(event) = self.read_on().await? {
            return Ok(event);
        }
        if !self.is_polling {
            return Ok(SourceEvent::Idle);
        }
        let records = self.poll().await?;
        // No wait until what was polled is in `unread`: it must be there before anyone can drop this call.
        self.check_locks()?;
        self.unread.add(records, self.reader.delivery_limit());
        self.reader.forget_missing_schemas();
        Ok(self.read_on().await?.unwrap_or(SourceEvent::Idle))
    }

    fn maintain_at(&self) -> Option<Instant> {
        self.locks.due_at()
    }

    async fn maintain(&mut self) -> Result<()> {
        self.check_locks()?;
        self.take_fetched()?;
        self.renew_due().await
    }

    async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<SourceReport> {
        self.check_locks()?;
        self.window.barrier(checkpoint);
        self.handed.barrier(checkpoint);
        let member = self.member()?;
        let report = self.epoch.close(member);
        // Also with nothing new: what earlier epochs left may be decided by this one.
        let reported = report.decided.first().map(|member| Ranges::of(&member.decisions));
        self.locks.sealed(checkpoint, reported.unwrap_or_default());
        if is_planted(Bug::AcknowledgedBeforeEndTxn) && self.mode == AckMode::AtLeastOnce {
            for member in &report.decided {
                self.acknowledge(member.decisions.ranges()).await?;
            }
        }
        Ok(report)
    }

    fn in_flight(&self) -> InFlight {
        let dropped = self.ledger.as_ref().map(LedgerFilter::dropped).unwrap_or_default();
        // What was polled together is handed on at once: a barrier in between would leave the rest, whose locks run
        // already, to another commit.
        let window_fill = if self.has_rest() { 0.0 } else { self.window.fill() };
        InFlight {
            record_count: self.epoch.record_count,
            byte_count: self.epoch.byte_count,
            window_fill,
            already_decided: dropped.already_decided,
            below_floor: dropped.below_floor,
            counters: self.counters,
            nearest_limit: self.near_limit.nearest(),
            wants_barrier: self.wants_barrier(),
        }
    }

    fn metrics(&self) -> SourceMetrics {
        let mut metrics = SourceMetrics::default();
        metrics.given_up = self.reader.given_up_count();
        metrics.partitions = self.window.loads().filter_map(|load| self.named(load)).collect();
        metrics
    }

    async fn deferred(&mut self, checkpoint: CheckpointId, offsets: &Decisions) -> Result<()> {
        self.locks.deferred(checkpoint, offsets, self.clock.now());
        Ok(())
    }

    async fn give_back(&mut self, checkpoint: CheckpointId, offsets: &Decisions) -> Result<()> {
        self.check_locks()?;
        let given_back = self.locks.given_back(checkpoint, offsets);
        self.handed.given_back(&given_back)?;
        for (partition, range) in given_back.iter() {
            self.counters.releases += range.first.count_to(range.last);
            let released = self.consumer()?.release(partition.topic_id, partition.partition, &[range]).await;
            match released {
                Ok(results) => warn_of_refused(&results),
                // No epoch decides them, so they come again when their locks end, at the latest.
                Err(error) => tracing::warn!(%error, "records could not be given back at once"),
            }
        }
        Ok(())
    }

    fn can_release(&self) -> bool {
        true
    }

    async fn release(&mut self, offsets: &Decisions) -> Result<()> {
        self.check_locks()?;
        self.has_released = true;
        for (partition, range) in offsets.ranges() {
            self.counters.releases += self.epoch.release(partition, range.first, range.last);
            let range = OffsetRange { first: range.first, last: range.last };
            self.locks.gone(partition, range);
            let released = self.consumer()?.release(partition.topic_id, partition.partition, &[range]).await;
            // Refused, they were lost before and are with the group, too.
            warn_of_refused(&released.map_err(client_error("release"))?);
        }
        Ok(())
    }

    async fn committed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.locks.committed(checkpoint);
        self.handed.settled(checkpoint, self.locks.carried())?;
        // The start offset has moved, so there may be more to fetch.
        self.quiet_pause = HOLDING_PAUSE;
        self.quiet_until = self.quiet_until.map(|at| at.min(self.clock.now() + HOLDING_PAUSE));
        self.window.committed(checkpoint, self.locks.carried());
        self.is_protecting &= self.locks.is_committing();
        if !self.near_limit.is_empty() {
            self.near_limit.forget_decided(&self.locks);
            if self.near_limit.is_note_old() {
                self.near_limit.write_down().await?;
            }
        }
        match self.mode {
            // Staged with the transaction: the marker has made them final.
            AckMode::Transactional => Ok(()),
            AckMode::AtLeastOnce | AckMode::Ledger => {
                let member = self.member()?;
                if let Some(decided) = self.attempt.take_decisions(checkpoint, &member.member_id) {
                    self.acknowledging.push(checkpoint);
                    let done = self.acknowledge(decided.ranges()).await;
                    self.take_results();
                    done?;
                }
                Ok(())
            }
        }
    }

    async fn stop_acquiring(&mut self) -> Result<()> {
        self.is_polling = false;
        let consumer = self.consumer()?;
        // What was to go with the next poll.
        let results = consumer.commit_acknowledgements().await.map_err(client_error("acknowledge"))?;
        warn_of_refused(&results);
        self.take_results();
        // What is still on its way here may be near its limit, too.
        let fetched = self.consumer()?.settle_fetches().await.map_err(client_error("poll"))?;
        for records in fetched {
            self.take_locks(&records);
            self.fetched.push_back(records);
        }
        if let Some(fetching) = self.fetching.take() {
            fetching.end_with_all(&self.clock, SIBLINGS_MAX).await;
        }
        while let Some(records) = self.polled.take().or_else(|| self.fetched.pop_front()) {
            self.polled = Some(records);
            self.look_through().await?;
            let records = self.polled.take().unwrap_or_default();
            self.unread.add(records, self.reader.delivery_limit());
        }
        let mut ranges: Vec<(SourcePartition, OffsetRange)> = Vec::new();
        for (partition, range) in self.take_releasable() {
            match ranges.last_mut() {
                Some((same, last)) if *same == partition && last.last.next() == range.first => {
                    last.last = range.last
                }
                Some(_) | None => ranges.push((partition, range)),
            }
        }
        for (partition, range) in ranges {
            self.locks.gone(partition, range);
            self.counters.releases += range.first.count_to(range.last);
            let consumer = self.consumer()?;
            let released = consumer.release(partition.topic_id, partition.partition, &[range]).await;
            // Not given back now, they go back when the member leaves.
            if let Err(error) = released {
                tracing::warn!(%error, "records could not be given back before the drain");
            }
        }
        Ok(())
    }

    fn has_rest(&self) -> bool {
        !self.ready.is_empty() || !self.unread.is_empty()
    }

    async fn keep(&mut self) -> Result<bool> {
        self.hold_on().await
    }

    async fn rewind(&mut self, to: Rewind) -> Result<bool> {
        self.go_back(to).await
    }

    async fn close(&mut self) -> Result<()> {
        let Some(mut consumer) = self.consumer.take() else { return Ok(()) };
        if let Some(fetching) = self.fetching.take() {
            // Whatever comes is given back with all the rest.
            match self.clock.timeout(SIBLINGS_MAX, consumer.settle_fetches()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a fetch that was under way"),
                Err(_elapsed) => tracing::debug!("a fetch that was under way was not answered"),
            }
            fetching.end_with_all(&self.clock, SIBLINGS_MAX).await;
        }
        consumer.close().await.map_err(client_error("leave the group"))
    }
}
