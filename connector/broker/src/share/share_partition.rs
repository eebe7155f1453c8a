//! One share partition at its leader: what is delivered to whom, until when, and what has been decided.
//!
//! Sources: KIP-932 (acquisition, acknowledgement, limits), KIP-1206 (record limit), KIP-1222 (renew), KIP-1289
//! (staging). The machine is synchronous: time is passed in, durable writes come out as [`PendingWrite`] values, and
//! the owner reports back with [`SharePartition::written`] or [`SharePartition::write_failed`].
//!
//! Limits follow Kafka: `share.partition.max.record.locks` bounds the span from the start offset to the last acquired
//! offset. In batch-optimised mode the last batch may pass that bound and `max_records`, so that batches stay whole;
//! in record-limit mode both are strict.

mod acquire;
pub(super) mod letters;
mod refresh;

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_wire::messages::AcknowledgementBatch;

use super::durable::{DurableShare, DurableState, OffsetRange, StateBatch};
use super::record_state::{
    Acknowledgement, Attempts, Event, Intent, InvalidRecordState, Marker, MemberId, RecordState, StageWrite,
    Staged, Transition, WriteId,
};
use super::window::{Run, Window};

/// Settings of a share partition, from its group's configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// `share.partition.max.record.locks`.
    pub(crate) max_record_locks: i64,
    /// `share.delivery.count.limit`.
    pub(crate) delivery_count_limit: u16,
    /// `share.record.lock.duration.ms`.
    pub(crate) lock_duration: Duration,
    /// The group has a dead letter topic (KIP-1191).
    pub(crate) dead_letters: bool,
}

impl Limits {
    fn attempts(&self, delivery_count: u16) -> Attempts {
        Attempts { delivery_count, limit: self.delivery_count_limit, dead_letters: self.dead_letters }
    }
}

/// How a fetch cuts what it acquires (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    /// Whole batches; `max_records` may be passed by the last one.
    BatchOptimized,
    /// Never more than `max_records`; batches may be split.
    RecordLimit,
}

/// A batch of the log that could be acquired from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogBatch {
    /// Its offsets, compaction holes included.
    pub(crate) range: OffsetRange,
    /// Data of an aborted transaction, for a read-committed group: is archived, not delivered.
    pub(crate) aborted: bool,
}

/// A run that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquiredRange {
    /// Its offsets. May contain offsets without a deliverable record.
    pub(crate) range: OffsetRange,
    /// Deliveries including this one.
    pub(crate) delivery_count: u16,
}

/// Result of [`SharePartition::acquire`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acquisition {
    /// What the member holds now, ascending.
    pub(crate) acquired: Vec<AcquiredRange>,
    /// Archived aborted data, to be made durable; nobody waits for it.
    pub(crate) write: Option<PendingWrite>,
}

/// State that has to become durable. The runs stay untouchable until the owner reports the write's end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the runs stay locked until the write is reported"]
pub(crate) struct PendingWrite {
    /// Its number.
    pub(crate) id: WriteId,
    /// What to write.
    pub(crate) batches: Vec<StateBatch>,
}

/// One acknowledgement batch of a request: one type for the whole range, or one for each offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckBatch<'a> {
    /// First offset.
    pub(crate) first: Offset,
    /// Last offset, inclusive.
    pub(crate) last: Offset,
    /// Acknowledge types as on the wire.
    pub(crate) types: &'a [i8],
}

impl<'a> From<&'a AcknowledgementBatch> for AckBatch<'a> {
    fn from(batch: &'a AcknowledgementBatch) -> Self {
        AckBatch {
            first: Offset(batch.first_offset),
            last: Offset(batch.last_offset),
            types: &batch.acknowledge_types,
        }
    }
}

/// Why acknowledgements of a partition were refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// INVALID_RECORD_STATE.
    #[error(transparent)]
    RecordState(#[from] InvalidRecordState),
    /// INVALID_REQUEST.
    #[error("{0}")]
    Request(&'static str),
    /// INVALID_PRODUCER_EPOCH: the transaction has already been ended by a marker.
    #[error("the transaction of this producer epoch has ended")]
    ProducerEpoch,
}

/// What one run of equal acknowledge types asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Final(Acknowledgement),
    Renew,
}

/// The share partition. See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct SharePartition {
    limits: Limits,
    window: Window,
    /// Highest marker epoch seen for each producer id that staged here.
    markers: BTreeMap<ProducerId, ProducerEpoch>,
    /// No lock expires before; none when nothing is acquired.
    next_deadline: Option<Instant>,
    last_write: u64,
    /// Failed writes of what nobody holds: without them the durable start offset would stand still.
    unsent: Vec<PendingWrite>,
    /// There may be runs whose dead letter nobody has taken up.
    letters_due: bool,
}

impl SharePartition {
    /// An empty share partition at `start`.
    pub(crate) fn new(start: Offset, limits: Limits) -> Self {
        SharePartition {
            limits,
            window: Window::new(start),
            markers: BTreeMap::new(),
            next_deadline: None,
            last_write: 0,
            unsent: Vec::new(),
            letters_due: false,
        }
    }

    /// What a new leader makes of the durable state: nobody holds anything, staged runs stay pending. `start` is
    /// used when no start offset has been chosen yet.
    pub(crate) fn load(durable: &DurableShare, start: Offset, limits: Limits) -> Self {
        let mut partition = SharePartition::new(durable.start_offset.unwrap_or(start), limits);
        for batch in &durable.batches {
            let window = &mut partition.window;
            let Some(range) = OffsetRange::new(batch.range.first.max(window.end()), batch.range.last) else {
                continue;
            };
            if window.end() < range.first {
                window.push(Offset(range.first.0 - 1), 0, RecordState::Available);
            }
            let state = match batch.state {
                DurableState::Available => RecordState::Available,
                DurableState::Acknowledged => RecordState::Acknowledged,
                DurableState::Archiving => {
                    partition.letters_due = true;
                    RecordState::Archiving { letter: None }
                }
                DurableState::Archived => RecordState::Archived,
                DurableState::TxnPending(_) if is_planted(Bug::StagedNotReloaded) => RecordState::Available,
                DurableState::TxnPending(staged) => {
                    RecordState::TxnPending { staged, write: StageWrite::Durable }
                }
            };
            window.push(range.last, batch.delivery_count, state);
        }
        partition.window.advance();
        partition
    }

    /// Share-partition start offset: everything below is done.
    pub(crate) fn start_offset(&self) -> Offset {
        self.window.start()
    }

    /// First offset that was never acquired.
    #[cfg(test)]
    pub(crate) fn end_offset(&self) -> Offset {
        self.window.end()
    }

    /// Changes the limits; locks that are held keep their deadlines.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where the next acquisition starts to look in the log; none while the window is full.
    pub(crate) fn next_fetch_offset(&self) -> Option<Offset> {
        let available = self.window.iter().find(|(_, run)| run.state == RecordState::Available);
        match available {
            Some((range, _)) => Some(range.first),
            None => (self.room() > 0).then_some(self.window.end()),
        }
    }

    /// Durably staged runs, whose marker is awaited.
    pub(crate) fn pending(&self) -> Vec<(OffsetRange, Staged)> {
        let durable = |(range, run): (OffsetRange, &Run)| match &run.state {
            RecordState::TxnPending { staged, write: StageWrite::Durable } => Some((range, *staged)),
            RecordState::TxnPending { write: StageWrite::Outstanding { .. }, .. }
            | RecordState::Available
            | RecordState::Acquired { .. }
            | RecordState::Settling { .. }
            | RecordState::Archiving { .. }
            | RecordState::Acknowledged
            | RecordState::Archived => None,
        };
        self.window.iter().filter_map(durable).collect()
    }

    /// Records that are staged, durably or not yet.
    pub(crate) fn pending_count(&self) -> u64 {
        let pending = |run: &Run| matches!(run.state, RecordState::TxnPending { .. });
        self.window
            .iter()
            .filter(|(_, run)| pending(run))
            .map(|(range, _)| range.count().unsigned_abs())
            .sum()
    }

    /// True when nobody holds a record and no write is on its way: the durable state says everything.
    pub(crate) fn is_idle(&self) -> bool {
        self.window.iter().all(|(_, run)| match &run.state {
            RecordState::Available
            | RecordState::Acknowledged
            | RecordState::Archived
            | RecordState::TxnPending { write: StageWrite::Durable, .. } => true,
            RecordState::Acquired { .. }
            | RecordState::Settling { .. }
            | RecordState::Archiving { .. }
            | RecordState::TxnPending { write: StageWrite::Outstanding { .. }, .. } => false,
        })
    }

    fn room(&self) -> i64 {
        self.limits.max_record_locks - self.window.span()
    }

    /// Applies ordinary acknowledgements of `member`, all or none. Offsets below the start offset are done already
    /// and ignored, as in Kafka. None when nothing has to be written (renewals only).
    pub(crate) fn acknowledge(
        &mut self,
        member: &MemberId,
        acks: &[AckBatch<'_>],
        now: Instant,
    ) -> Result<Option<PendingWrite>, AckError> {
        let lock_deadline = now + self.limits.lock_duration;
        let write = self.new_write();
        let asks = self.runs_of(acks, |kind| match kind {
            0 => Some(Ask::Final(Acknowledgement::Gap)),
            1 => Some(Ask::Final(Acknowledgement::Accept)),
            2 => Some(Ask::Final(Acknowledgement::Release)),
            3 => Some(Ask::Final(Acknowledgement::Reject)),
            4 => Some(Ask::Renew),
            _ => None,
        })?;
        let asks: Vec<(OffsetRange, Event<'_>)> = asks
            .into_iter()
            .filter_map(|(range, ask)| {
                let range = OffsetRange::new(range.first.max(self.window.start()), range.last)?;
                Some((
                    range,
                    match ask {
                        Ask::Final(ack) => Event::Acknowledge { member, ack, write },
                        Ask::Renew => Event::Renew { member, lock_deadline },
                    },
                ))
            })
            .collect();
        self.check_all(&asks)?;
        let mut batches = Vec::new();
        for (range, event) in &asks {
            self.change(*range, event, &mut batches);
        }
        Ok((!batches.is_empty()).then_some(PendingWrite { id: write, batches }))
    }

    /// Stages acknowledgements of `member` into a transaction, all or none. None when every one of them is already
    /// durably staged with the same transaction and intent: a repeat is a success.
    pub(crate) fn stage(
        &mut self,
        member: &MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
    ) -> Result<Option<PendingWrite>, AckError> {
        let write = self.new_write();
        let asks = self.plan_stage(member, producer, acks, write)?;
        let mut batches = Vec::new();
        for (range, event) in &asks {
            self.change(*range, event, &mut batches);
        }
        Ok((!batches.is_empty()).then_some(PendingWrite { id: write, batches }))
    }

    /// Checks what [`SharePartition::stage`] would do, without doing it.
    pub(crate) fn check_stage(
        &self,
        member: &MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
    ) -> Result<(), AckError> {
        self.plan_stage(member, producer, acks, WriteId(0)).map(|_| ())
    }

    fn plan_stage<'m>(
        &self,
        member: &'m MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
        write: WriteId,
    ) -> Result<Vec<(OffsetRange, Event<'m>)>, AckError> {
        let (producer_id, producer_epoch) = producer;
        if self.markers.get(&producer_id).is_some_and(|marker_epoch| producer_epoch < *marker_epoch) {
            return Err(AckError::ProducerEpoch);
        }
        let intents = self.runs_of(acks, |kind| match kind {
            0 => Some(Intent::Gap),
            1 => Some(Intent::Accept),
            3 if self.limits.dead_letters => Some(Intent::DeadLetter),
            3 => Some(Intent::Reject),
            _ => None,
        })?;
        let asks: Vec<(OffsetRange, Event<'_>)> = intents
            .into_iter()
            .map(|(range, intent)| {
                let staged = Staged { producer_id, producer_epoch, intent };
                (range, Event::Stage { member, staged, write })
            })
            .collect();
        if asks.iter().any(|(range, _)| range.first < self.window.start()) {
            return Err(InvalidRecordState.into());
        }
        self.check_all(&asks)?;
        Ok(asks)
    }

    /// A share session of `member` ended: what it holds goes back, or to the archive at the delivery limit.
    pub(crate) fn close_session(&mut self, member: &MemberId) -> Option<PendingWrite> {
        let write = self.new_write();
        self.change_everywhere(&Event::CloseSession { member, write }, write)
    }

    /// True when a lock may have expired.
    pub(crate) fn may_expire(&self, now: Instant) -> bool {
        self.next_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Takes back what has been held too long. Cheap while no lock can have expired.
    pub(crate) fn expire_locks(&mut self, now: Instant) -> Option<PendingWrite> {
        if !self.may_expire(now) {
            return None;
        }
        let write = self.new_write();
        let pending = self.change_everywhere(&Event::ExpireLock { now, write }, write);
        self.next_deadline = self
            .window
            .iter()
            .filter_map(|(_, run)| match &run.state {
                RecordState::Acquired { lock_deadline, .. } => Some(*lock_deadline),
                RecordState::Available
                | RecordState::Settling { .. }
                | RecordState::TxnPending { .. }
                | RecordState::Archiving { .. }
                | RecordState::Acknowledged
                | RecordState::Archived => None,
            })
            .min();
        pending
    }

    /// The write is durable.
    pub(crate) fn written(&mut self, pending: &PendingWrite) {
        self.finish(pending, &Event::Written { write: pending.id });
        self.letters_due |= pending
            .batches
            .iter()
            .any(|batch| matches!(batch.state, DurableState::Archiving | DurableState::TxnPending(_)));
    }

    /// The write failed or its outcome is unknown: staged and acknowledged records go back to their holder with a
    /// new lock, so that none is left without a clock. What had no holder waits for [`SharePartition::unsent_writes`].
    pub(crate) fn write_failed(&mut self, pending: &PendingWrite, now: Instant) {
        let lock_deadline = now + self.limits.lock_duration;
        self.arm(lock_deadline);
        self.finish(pending, &Event::WriteFailed { write: pending.id, lock_deadline });
        let mut batches = Vec::new();
        for batch in &pending.batches {
            self.window.update(batch.range, |range, run| {
                if matches!(&run.state, RecordState::Settling { write, .. } if *write == pending.id)
                    && let Some(state) = durable_form(&run.state)
                {
                    push_batch(&mut batches, StateBatch { range, state, delivery_count: run.delivery_count });
                }
            });
        }
        if !batches.is_empty() {
            self.unsent.push(PendingWrite { id: pending.id, batches });
        }
    }

    /// Failed writes to send again; their ends are reported like those of any other.
    #[must_use]
    pub(crate) fn unsent_writes(&mut self) -> Vec<PendingWrite> {
        std::mem::take(&mut self.unsent)
    }

    /// The share coordinator has made the end of a transaction durable. A repeat changes nothing. True when a run
    /// was resolved.
    pub(crate) fn resolve(&mut self, marker: Marker) -> bool {
        let remembered = self.markers.entry(marker.producer_id).or_insert(marker.producer_epoch);
        *remembered = (*remembered).max(marker.producer_epoch);
        let mut resolved = false;
        let limits = self.limits;
        for (_, run) in self.window.iter_mut() {
            resolved |= step(run, &Event::Resolve { marker }, limits);
        }
        self.window.coalesce_all();
        self.window.advance();
        self.letters_due |= resolved;
        resolved
    }

    /// Retention removed everything below `log_start` from the log. True when the start offset moved and has to
    /// be written.
    pub(crate) fn drop_below(&mut self, log_start: Offset) -> bool {
        let moved = self.window.drop_below(log_start);
        self.window.advance();
        moved
    }

    fn new_write(&mut self) -> WriteId {
        self.last_write += 1;
        WriteId(self.last_write)
    }

    fn arm(&mut self, deadline: Instant) {
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
    }

    /// Cuts batches into runs of one type and checks their shape, without allocating for each record.
    fn runs_of<T: Copy + PartialEq>(
        &self,
        acks: &[AckBatch<'_>],
        kind: impl Fn(i8) -> Option<T>,
    ) -> Result<Vec<(OffsetRange, T)>, AckError> {
        let unknown = AckError::Request("an acknowledge type is not allowed here");
        let mut runs: Vec<(OffsetRange, T)> = Vec::with_capacity(acks.len());
        let mut previous: Option<Offset> = None;
        for ack in acks {
            let range = OffsetRange::new(ack.first, ack.last)
                .ok_or(AckError::Request("the first offset is above the last"))?;
            if range.first.0 < 0 {
                return Err(AckError::Request("an offset is negative"));
            }
            if previous.is_some_and(|last| range.first <= last) {
                return Err(AckError::Request("acknowledgement batches overlap or are out of order"));
            }
            if range.last >= self.window.end() {
                return Err(AckError::Request("offsets beyond what was ever acquired"));
            }
            previous = Some(range.last);
            if let [single] = ack.types {
                runs.push((range, kind(*single).ok_or(unknown)?));
                continue;
            }
            if i64::try_from(ack.types.len()) != Ok(range.count()) {
                return Err(AckError::Request("one acknowledge type for the batch or one for each offset"));
            }
            let mut first = range.first;
            for chunk in ack.types.chunk_by(|a, b| a == b) {
                let last = first.plus(chunk.len() as i64 - 1);
                runs.push((OffsetRange { first, last }, kind(chunk[0]).ok_or(unknown)?));
                first = last.next();
            }
        }
        Ok(runs)
    }

    fn check_all(&self, asks: &[(OffsetRange, Event<'_>)]) -> Result<(), InvalidRecordState> {
        for (range, event) in asks {
            for (_, run) in self.window.overlapping(*range) {
                run.state.apply(event, self.limits.attempts(run.delivery_count))?;
            }
        }
        Ok(())
    }

    /// Applies a checked event to `range` and adds what must be written to `batches`.
    fn change(&mut self, range: OffsetRange, event: &Event<'_>, batches: &mut Vec<StateBatch>) {
        let limits = self.limits;
        let mut deadline = None;
        self.window.update(range, |range, run| {
            if step(run, event, limits) {
                match durable_form(&run.state) {
                    Some(state) => {
                        push_batch(batches, StateBatch { range, state, delivery_count: run.delivery_count })
                    }
                    None => deadline = held_until(&run.state),
                }
            }
        });
        if let Some(deadline) = deadline {
            self.arm(deadline);
        }
    }

    fn change_everywhere(&mut self, event: &Event<'_>, write: WriteId) -> Option<PendingWrite> {
        let limits = self.limits;
        let mut batches = Vec::new();
        for (range, run) in self.window.iter_mut() {
            let was_held = held_until(&run.state).is_some();
            if step(run, event, limits)
                && was_held
                && let Some(state) = durable_form(&run.state)
            {
                push_batch(&mut batches, StateBatch { range, state, delivery_count: run.delivery_count });
            }
        }
        self.window.coalesce_all();
        (!batches.is_empty()).then_some(PendingWrite { id: write, batches })
    }

    fn finish(&mut self, pending: &PendingWrite, event: &Event<'_>) {
        let limits = self.limits;
        for batch in &pending.batches {
            self.window.update(batch.range, |_, run| {
                step(run, event, limits);
            });
        }
        self.window.advance();
    }

    /// The runs as they are, for those who look from outside.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }
}

/// Applies `event` to a run. True when the state changed or has to be written again.
fn step(run: &mut Run, event: &Event<'_>, limits: Limits) -> bool {
    match run.state.apply(event, limits.attempts(run.delivery_count)) {
        Ok(Transition::To(state) | Transition::Rewrite(state)) => {
            run.state = state;
            true
        }
        // Refusals were answered by `check_all` before anything changed.
        Ok(Transition::Same) | Err(InvalidRecordState) => false,
    }
}

/// What a write makes durable of a run that waits for it; none for runs that wait for no write.
fn durable_form(state: &RecordState) -> Option<DurableState> {
    match state {
        RecordState::Settling { target, .. } => Some((*target).into()),
        RecordState::TxnPending { staged, .. } => Some(DurableState::TxnPending(*staged)),
        RecordState::Available
        | RecordState::Acquired { .. }
        | RecordState::Archiving { .. }
        | RecordState::Acknowledged
        | RecordState::Archived => None,
    }
}

fn held_until(state: &RecordState) -> Option<Instant> {
    match state {
        RecordState::Acquired { lock_deadline, .. } => Some(*lock_deadline),
        RecordState::Available
        | RecordState::Settling { .. }
        | RecordState::TxnPending { .. }
        | RecordState::Archiving { .. }
        | RecordState::Acknowledged
        | RecordState::Archived => None,
    }
}

/// Adds a batch, merged with the last one where they are one run.
fn push_batch(batches: &mut Vec<StateBatch>, batch: StateBatch) {
    match batches.last_mut() {
        Some(last)
            if last.range.last.next() == batch.range.first
                && last.state == batch.state
                && last.delivery_count == batch.delivery_count =>
        {
            last.range.last = batch.range.last;
        }
        Some(_) | None => batches.push(batch),
    }
}

#[cfg(test)]
mod tests;
