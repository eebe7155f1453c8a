//! One share partition at its leader: what is delivered to whom, until when, and what has been decided.
//!
//! Sources: KIP-932 (acquisition, acknowledgement, limits), KIP-1206 (record limit), KIP-1222 (renew), KIP-1289
//! (staging). The machine is synchronous: time is passed in, durable writes come out as [`PendingWrite`] values, and
//! the owner reports back with [`SharePartition::written`] or [`SharePartition::write_failed`].
//!
//! Limits follow Kafka: `share.partition.max.record.locks` bounds the span from the start offset to the last acquired
//! offset. In batch-optimised mode the last batch may pass that bound and `max_records`, so that batches stay whole;
//! in record-limit mode both are strict.

mod acks;
mod acquire;
pub(super) mod letters;
mod refresh;
mod writes;

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};

pub(crate) use self::acks::{AckBatch, AckError};
pub(crate) use self::writes::PendingWrite;
use self::writes::{durable_form, push_batch};
use super::durable::{DurableShare, DurableState, OffsetRange, StateBatch};
use super::record_state::{
    Attempts, Event, InvalidRecordState, Marker, MemberId, RecordState, StageWrite, Staged, Transition,
    WriteId,
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

#[cfg(test)]
mod tests;
