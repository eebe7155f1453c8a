//! Finished batches of one partition: their sequence numbers, their order, and what is sent again. Pure.
//!
//! ```text
//! sealed --send--> in flight --acknowledged--> gone (end)
//!   ^                 |
//!   \----- failed ----/   the partition then waits until nothing is in flight and sends again from the front
//! ```
//! Invariant: batches reach the broker in the order of their sequence numbers, without a hole. A broker remembers the
//! last five batches of a producer, so no more are in flight.

use std::collections::VecDeque;

use bytes::Bytes;
use sharestream_base::Instant;

/// Batches of one partition that a broker can tell from their repeats.
pub(super) const IN_FLIGHT_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchState {
    Sealed,
    InFlight,
    Failed,
    Done,
}

/// A finished batch.
#[derive(Debug)]
pub(super) struct SealedBatch {
    pub(super) bytes: Bytes,
    pub(super) base_sequence: i32,
    pub(super) record_count: i32,
    /// When to give up.
    pub(super) deadline: Instant,
    state: BatchState,
}

/// The batches of one partition under one identity.
#[derive(Debug, Default)]
pub(super) struct PartitionQueue {
    next_sequence: i32,
    batches: VecDeque<SealedBatch>,
    in_flight: usize,
    /// A batch failed: nothing is sent before the ones in flight are answered, or their order would be lost.
    recovering: bool,
}

impl PartitionQueue {
    /// The sequence number of the next record.
    pub(super) fn next_sequence(&self) -> i32 {
        self.next_sequence
    }

    /// Adds a batch whose first record has [`PartitionQueue::next_sequence`].
    pub(super) fn seal(&mut self, bytes: Bytes, record_count: i32, deadline: Instant) {
        let base_sequence = self.next_sequence;
        // Sequence numbers wrap to 0, as the Java client counts.
        self.next_sequence = base_sequence.wrapping_add(record_count) & i32::MAX;
        self.batches.push_back(SealedBatch {
            bytes,
            base_sequence,
            record_count,
            deadline,
            state: BatchState::Sealed,
        });
    }

    /// The batch to send next, if one may be sent.
    pub(super) fn ready(&self) -> Option<&SealedBatch> {
        if self.recovering || self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        self.batches.iter().find(|batch| batch.state == BatchState::Sealed)
    }

    /// True while an answer is awaited.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// The batch that [`PartitionQueue::ready`] showed has been sent.
    pub(super) fn sent(&mut self, base_sequence: i32) {
        if let Some(batch) = self.find(base_sequence, BatchState::Sealed) {
            batch.state = BatchState::InFlight;
            self.in_flight += 1;
        }
    }

    /// The broker has it; its number of records.
    pub(super) fn acknowledged(&mut self, base_sequence: i32) -> Option<i32> {
        let batch = self.find(base_sequence, BatchState::InFlight)?;
        batch.state = BatchState::Done;
        let record_count = batch.record_count;
        while self.batches.front().is_some_and(|batch| batch.state == BatchState::Done) {
            self.batches.pop_front();
        }
        self.answered();
        Some(record_count)
    }

    /// It has to be sent again. True when the batch is the oldest: nothing before it can be the cause.
    pub(super) fn failed(&mut self, base_sequence: i32) -> bool {
        let Some(batch) = self.find(base_sequence, BatchState::InFlight) else { return false };
        batch.state = BatchState::Failed;
        self.recovering = true;
        let oldest = self.batches.front().is_some_and(|batch| batch.base_sequence == base_sequence);
        self.answered();
        oldest
    }

    /// The oldest batch, which decides when time is up.
    pub(super) fn oldest(&self) -> Option<&SealedBatch> {
        self.batches.front()
    }

    /// True when every batch is with the broker.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    fn answered(&mut self) {
        self.in_flight -= 1;
        if self.recovering && self.in_flight == 0 {
            self.recovering = false;
            for batch in self.batches.iter_mut().filter(|batch| batch.state == BatchState::Failed) {
                batch.state = BatchState::Sealed;
            }
        }
    }

    fn find(&mut self, base_sequence: i32, state: BatchState) -> Option<&mut SealedBatch> {
        self.batches.iter_mut().find(|batch| batch.base_sequence == base_sequence && batch.state == state)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sharestream_base::Env;

    use super::*;

    fn queue(counts: &[i32]) -> PartitionQueue {
        let mut queue = PartitionQueue::default();
        let deadline = Env::system().clock.now();
        for count in counts {
            queue.seal(Bytes::new(), *count, deadline);
        }
        queue
    }

    fn send_next(queue: &mut PartitionQueue) -> Option<i32> {
        let sequence = queue.ready()?.base_sequence;
        queue.sent(sequence);
        Some(sequence)
    }

    #[test]
    fn after_a_failure_nothing_is_sent_until_all_is_answered_and_then_from_the_front() {
        let mut queue = queue(&[10, 10, 10, 10]);
        assert_eq!(send_next(&mut queue), Some(0));
        assert_eq!(send_next(&mut queue), Some(10));
        assert!(queue.failed(0), "the oldest");
        assert_eq!(send_next(&mut queue), None, "batch 10 is still out");
        assert!(!queue.failed(10), "its failure may follow from the first");
        assert_eq!(send_next(&mut queue), Some(0));
        assert_eq!(send_next(&mut queue), Some(10));
    }

    #[test]
    fn a_batch_acknowledged_before_its_elder_is_not_sent_again() {
        let mut queue = queue(&[10, 10]);
        send_next(&mut queue);
        send_next(&mut queue);
        queue.failed(0);
        assert_eq!(queue.acknowledged(10), Some(10));
        assert_eq!(send_next(&mut queue), Some(0));
        assert_eq!(queue.acknowledged(0), Some(10));
        assert!(queue.is_empty());
    }

    #[test]
    fn no_more_than_five_are_in_flight() {
        let mut queue = queue(&[1; 7]);
        let sent = std::iter::from_fn(|| send_next(&mut queue)).count();
        assert_eq!(sent, IN_FLIGHT_MAX);
    }

    #[test]
    fn sequence_numbers_wrap_to_zero() {
        let mut queue = PartitionQueue { next_sequence: i32::MAX, ..PartitionQueue::default() };
        queue.seal(Bytes::new(), 1, Env::system().clock.now());
        assert_eq!(queue.next_sequence(), 0);
    }

    proptest! {
        /// A broker that accepts only the next sequence number (or a repeat) never sees a hole.
        #[test]
        fn batches_arrive_in_order_without_a_hole(outcomes in proptest::collection::vec(0u8..3, 0..200)) {
            let mut queue = queue(&[3; 20]);
            let (mut expected, mut out) = (0, VecDeque::new());
            for outcome in outcomes {
                if let Some(sequence) = send_next(&mut queue) {
                    out.push_back(sequence);
                }
                if outcome == 0 {
                    continue;
                }
                let Some(sequence) = out.pop_front() else { continue };
                if outcome == 1 && sequence <= expected {
                    expected = expected.max(sequence + 3);
                    queue.acknowledged(sequence);
                } else {
                    queue.failed(sequence);
                }
            }
            // Without further failures everything gets through.
            for _ in 0..200 {
                while let Some(sequence) = send_next(&mut queue) {
                    out.push_back(sequence);
                }
                let Some(sequence) = out.pop_front() else { break };
                if sequence <= expected {
                    expected = expected.max(sequence + 3);
                    queue.acknowledged(sequence);
                } else {
                    queue.failed(sequence);
                }
            }
            prop_assert!(queue.is_empty());
            prop_assert_eq!(expected, 60);
        }
    }
}
