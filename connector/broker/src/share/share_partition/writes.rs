//! What has to become durable, and what follows when it is or when that failed.

use sharestream_base::Instant;

use super::{SharePartition, step};
use crate::share::durable::{DurableState, StateBatch};
use crate::share::record_state::{Event, RecordState, WriteId};

/// State that has to become durable. The runs stay untouchable until the owner reports the write's end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the runs stay locked until the write is reported"]
pub(crate) struct PendingWrite {
    /// Its number.
    pub(crate) id: WriteId,
    /// What to write.
    pub(crate) batches: Vec<StateBatch>,
}

impl SharePartition {
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

    fn finish(&mut self, pending: &PendingWrite, event: &Event<'_>) {
        let limits = self.limits;
        for batch in &pending.batches {
            self.window.update(batch.range, |_, run| {
                step(run, event, limits);
            });
        }
        self.window.advance();
    }
}

/// What a write makes durable of a run that waits for it; none for runs that wait for no write.
pub(super) fn durable_form(state: &RecordState) -> Option<DurableState> {
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

/// Adds a batch, merged with the last one where they are one run.
pub(super) fn push_batch(batches: &mut Vec<StateBatch>, batch: StateBatch) {
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
