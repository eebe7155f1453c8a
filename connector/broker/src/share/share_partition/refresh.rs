//! What a leader learns of transactions' ends by reading the durable state, when nobody told it (kips 1.9, design 3).

use sharestream_base::ids::{Offset, ProducerEpoch};

use super::{SharePartition, step};
use crate::share::durable::{DurableShare, DurableState, OffsetRange};
use crate::share::record_state::{Event, Marker, RecordState, StageWrite, Staged, TxnOutcome};

impl SharePartition {
    /// Resolves runs that were durably pending when a read of the durable state began (`pending`) and are not any
    /// more in what it gave. Runs that were staged since, or by another transaction, are untouched. True when a run
    /// was resolved.
    pub(crate) fn refresh(&mut self, pending: &[(OffsetRange, Staged)], durable: &DurableShare) -> bool {
        let mut resolved = false;
        for (range, staged) in pending {
            for (part, outcome) in ended_parts(*range, staged, durable) {
                let marker = Marker {
                    producer_id: staged.producer_id,
                    producer_epoch: ProducerEpoch(staged.producer_epoch.0.saturating_add(1)),
                    outcome,
                };
                let limits = self.limits;
                self.window.update(part, |_, run| {
                    let same = RecordState::TxnPending { staged: *staged, write: StageWrite::Durable };
                    if run.state == same {
                        resolved |= step(run, &Event::Resolve { marker }, limits);
                    }
                });
            }
        }
        self.window.advance();
        self.letters_due |= resolved;
        resolved
    }
}

/// The parts of a pending run that are not pending in the durable state any more, and how they ended: available, or
/// not mentioned, is an abort; an end state, or below the start offset, is a commit.
fn ended_parts(
    range: OffsetRange,
    staged: &Staged,
    durable: &DurableShare,
) -> Vec<(OffsetRange, TxnOutcome)> {
    let mut parts = Vec::new();
    let mut at = range.first;
    if let Some(start) = durable.start_offset
        && let Some(done) = OffsetRange::new(at, range.last.min(Offset(start.0 - 1)))
    {
        parts.push((done, TxnOutcome::Commit));
        at = done.last.next();
    }
    for batch in &durable.batches {
        let Some(part) = batch.range.intersect(OffsetRange { first: at, last: range.last.max(at) }) else {
            continue;
        };
        if let Some(hole) = OffsetRange::new(at, Offset(part.first.0 - 1)) {
            parts.push((hole, TxnOutcome::Abort));
        }
        match batch.state {
            DurableState::TxnPending(still) if still == *staged => {}
            DurableState::TxnPending(_) | DurableState::Available => parts.push((part, TxnOutcome::Abort)),
            DurableState::Acknowledged | DurableState::Archiving | DurableState::Archived => {
                parts.push((part, TxnOutcome::Commit))
            }
        }
        at = part.last.next();
    }
    parts.extend(OffsetRange::new(at, range.last).map(|rest| (rest, TxnOutcome::Abort)));
    parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sharestream_base::Clock;
    use sharestream_base::ids::{LeaderEpoch, ProducerId, StateEpoch};

    use super::super::{AckBatch, AcquireMode, Limits, LogBatch};
    use super::*;
    use crate::share::durable::StateBatch;
    use crate::share::record_state::{Intent, MemberId};

    fn range(first: i64, last: i64) -> OffsetRange {
        OffsetRange { first: Offset(first), last: Offset(last) }
    }

    fn staged(epoch: i16) -> Staged {
        let (producer_id, producer_epoch) = (ProducerId(9), ProducerEpoch(epoch));
        Staged { producer_id, producer_epoch, intent: Intent::Accept }
    }

    fn durable(start: i64, batches: &[(i64, i64, DurableState)]) -> DurableShare {
        let batch = |(first, last, state): &(i64, i64, DurableState)| StateBatch {
            range: range(*first, *last),
            state: *state,
            delivery_count: 1,
        };
        DurableShare {
            state_epoch: StateEpoch(0),
            leader_epoch: LeaderEpoch(0),
            start_offset: Some(Offset(start)),
            batches: batches.iter().map(batch).collect(),
        }
    }

    #[test]
    fn each_part_of_a_pending_run_ends_as_the_durable_state_says() {
        let state = durable(
            3,
            &[
                (3, 4, DurableState::TxnPending(staged(1))),
                (6, 7, DurableState::Acknowledged),
                (8, 8, DurableState::Available),
                (9, 9, DurableState::TxnPending(staged(2))),
            ],
        );
        assert_eq!(
            ended_parts(range(0, 12), &staged(1), &state),
            [
                (range(0, 2), TxnOutcome::Commit),
                (range(5, 5), TxnOutcome::Abort),
                (range(6, 7), TxnOutcome::Commit),
                (range(8, 8), TxnOutcome::Abort),
                (range(9, 9), TxnOutcome::Abort),
                (range(10, 12), TxnOutcome::Abort),
            ]
        );
    }

    #[test]
    fn a_delayed_read_resolves_only_what_was_pending_when_it_began() {
        let now = Clock::system().now();
        let limits = Limits {
            max_record_locks: 100,
            delivery_count_limit: 5,
            lock_duration: Duration::from_secs(30),
            dead_letters: false,
        };
        let (mut partition, alice) = (SharePartition::new(Offset(0), limits), MemberId::new("alice"));
        let log = [LogBatch { range: range(0, 9), aborted: false }];
        let types = [1];
        let stage = |partition: &mut SharePartition, epoch: i16| {
            partition.acquire(&alice, &log, 100, AcquireMode::BatchOptimized, now);
            let acks = [AckBatch { first: Offset(0), last: Offset(9), types: &types }];
            let write = partition.stage(&alice, (ProducerId(9), ProducerEpoch(epoch)), &acks).unwrap();
            partition.written(&write.unwrap());
        };
        stage(&mut partition, 1);
        let seen = partition.pending();
        let abort = Marker {
            producer_id: ProducerId(9),
            producer_epoch: ProducerEpoch(2),
            outcome: TxnOutcome::Abort,
        };
        assert!(partition.resolve(abort));
        stage(&mut partition, 2);
        let state = durable(0, &[(0, 9, DurableState::Available)]);
        assert!(!partition.refresh(&seen, &state), "the newer stage is untouched");
        assert!(partition.refresh(&partition.pending(), &durable(10, &[])));
        assert_eq!(partition.start_offset(), Offset(10));
    }
}
