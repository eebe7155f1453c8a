//! Acquisition: which records a fetch is given (KIP-932, KIP-1206).

use sharestream_base::Instant;
use sharestream_base::ids::Offset;

use super::{AcquireMode, AcquiredRange, Acquisition, LogBatch, PendingWrite, SharePartition, step};
use crate::share::durable::OffsetRange;
use crate::share::record_state::{Event, MemberId, RecordState};

impl SharePartition {
    /// First offset behind `count` available ones from `from` on; what was never acquired is available.
    pub(crate) fn behind_available(&self, from: Offset, count: i64) -> Offset {
        let mut left = count;
        for (range, run) in self.window.iter() {
            let available = OffsetRange::new(range.first.max(from), range.last);
            let Some(range) = available.filter(|_| run.state == RecordState::Available) else { continue };
            if range.count() >= left {
                return range.first.plus(left);
            }
            left -= range.count();
        }
        Offset(self.window.end().max(from).0.saturating_add(left))
    }

    /// Acquires for `member` from `batches` (ascending) until `max_records` or the window is used up.
    pub(crate) fn acquire(
        &mut self,
        member: &MemberId,
        batches: &[LogBatch],
        max_records: i64,
        mode: AcquireMode,
        now: Instant,
    ) -> Acquisition {
        let lock_deadline = now + self.limits.lock_duration;
        let mut taken = Taken { left: max_records, mode, acquired: Vec::new() };
        let mut skipped = Vec::new();
        for batch in batches {
            if taken.left <= 0 {
                break;
            }
            self.acquire_again(member, batch, lock_deadline, &mut taken, &mut skipped);
            if taken.left <= 0 && batch.range.last >= self.window.end() {
                break;
            }
            if batch.range.last >= self.window.end()
                && !self.acquire_new(member, batch, lock_deadline, &mut taken, &mut skipped)
            {
                break;
            }
        }
        if !taken.acquired.is_empty() {
            self.arm(lock_deadline);
        }
        let write = (!skipped.is_empty()).then(|| self.skip(&skipped));
        Acquisition { acquired: taken.acquired, write }
    }

    /// Takes the available runs of `batch` inside the window.
    fn acquire_again(
        &mut self,
        member: &MemberId,
        batch: &LogBatch,
        lock_deadline: Instant,
        taken: &mut Taken,
        skipped: &mut Vec<OffsetRange>,
    ) {
        let available: Vec<OffsetRange> = self
            .window
            .overlapping(batch.range)
            .filter(|(_, run)| run.state == RecordState::Available)
            .map(|(range, _)| range)
            .collect();
        for range in available {
            if batch.aborted {
                skipped.push(range);
                continue;
            }
            let Some(range) = taken.clip(range) else { return };
            let event = Event::Acquire { member, lock_deadline };
            let limits = self.limits;
            self.window.update(range, |range, run| {
                if step(run, &event, limits) {
                    run.delivery_count = run.delivery_count.saturating_add(1);
                    taken.add(range, run.delivery_count);
                }
            });
        }
    }

    /// Takes the offsets of `batch` beyond the window, and those skipped by the log before it. False when the
    /// window is full.
    fn acquire_new(
        &mut self,
        member: &MemberId,
        batch: &LogBatch,
        lock_deadline: Instant,
        taken: &mut Taken,
        skipped: &mut Vec<OffsetRange>,
    ) -> bool {
        let room = self.room();
        if room <= 0 {
            return false;
        }
        let Some(range) = OffsetRange::new(self.window.end(), batch.range.last) else { return true };
        if batch.aborted {
            self.window.push(range.last, 0, RecordState::Available);
            skipped.push(range);
            return true;
        }
        let whole = match taken.mode {
            AcquireMode::BatchOptimized => range,
            AcquireMode::RecordLimit => {
                let count = room.min(taken.left).min(range.count());
                OffsetRange { first: range.first, last: range.first.plus(count - 1) }
            }
        };
        let state = RecordState::Acquired { holder: member.clone(), lock_deadline };
        self.window.push(whole.last, 1, state);
        taken.left -= whole.count();
        taken.add(whole, 1);
        whole == range
    }

    fn skip(&mut self, skipped: &[OffsetRange]) -> PendingWrite {
        let write = self.new_write();
        let mut batches = Vec::new();
        for range in skipped {
            self.change(*range, &Event::Skip { write }, &mut batches);
        }
        PendingWrite { id: write, batches }
    }
}

/// What one acquisition has taken so far.
struct Taken {
    left: i64,
    mode: AcquireMode,
    acquired: Vec<AcquiredRange>,
}

impl Taken {
    /// The part of `range` that may be taken; counts it as taken.
    fn clip(&mut self, range: OffsetRange) -> Option<OffsetRange> {
        let range = match self.mode {
            AcquireMode::BatchOptimized => Some(range),
            AcquireMode::RecordLimit => {
                OffsetRange::new(range.first, range.last.min(range.first.plus(self.left - 1)))
            }
        }?;
        self.left -= range.count();
        Some(range)
    }

    fn add(&mut self, range: OffsetRange, delivery_count: u16) {
        match self.acquired.last_mut() {
            Some(last) if last.range.last.next() == range.first && last.delivery_count == delivery_count => {
                last.range.last = range.last;
            }
            Some(_) | None => self.acquired.push(AcquiredRange { range, delivery_count }),
        }
    }
}
