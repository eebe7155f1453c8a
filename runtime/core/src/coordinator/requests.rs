//! Checkpoints that somebody has asked for: when each may be answered. Pure.
//!
//! ```text
//! new --barrier n sent--> barrier n --all acked--> sealed n --n, or a later one, settled--> answered (end)
//!  |                          \--calls still run--> calls --the last of them is in sealed m--> sealed m
//!  \--nothing in flight--> sealed, by the newest epoch that is; or answered, when none is on its way
//! the attempt fails: --recovery found n committed--> answered (end); else --> new, in the next attempt
//! ```
//!
//! Callers get rising numbers. All numbers that come between two barriers are one request, and answers go by number: so
//! any number of callers waits in a bounded space.

use std::collections::VecDeque;

use sharestream_base::ids::CheckpointId;

use crate::decision::Decisions;

/// The newest number that is answered, and by which checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    /// `None`: the job has never committed anything, and nothing is in flight.
    pub(crate) checkpoint: Option<CheckpointId>,
}

/// Where a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// No barrier was sent since. `is_old`: it is from before this attempt, or from its start.
    New { is_old: bool },
    /// This barrier is on its way.
    Barrier(CheckpointId),
    /// The barrier has passed, but these offsets were deferred and belong to a later epoch.
    Calls(Decisions),
    /// All that it asks for is in sealed epochs, of which this is the newest.
    Sealed(CheckpointId),
}

/// All callers up to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    number: u64,
    stage: Stage,
}

/// The requests that are not answered, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    waiting: VecDeque<Request>,
    /// The newest number that was taken in.
    taken: u64,
}

/// Requests that are kept apart; further ones wait with the newest.
const APART_MAX: usize = 16;

impl Requests {
    /// Takes in callers up to `number`.
    pub(crate) fn ask(&mut self, number: u64) {
        if number <= self.taken {
            return;
        }
        self.taken = number;
        let is_full = self.waiting.len() >= APART_MAX;
        match self.waiting.back_mut() {
            Some(Request { number: last, stage: Stage::New { .. } }) => *last = number,
            // The newest wait longer than they must: a barrier for them is sent once more.
            Some(Request { number: last, stage }) if is_full => {
                (*last, *stage) = (number, Stage::New { is_old: false });
            }
            Some(_) | None => {
                self.waiting.push_back(Request { number, stage: Stage::New { is_old: false } });
            }
        }
    }

    /// A new attempt has found `last_committed`: what waited for a barrier up to it is answered, everything else asks
    /// again, for what the attempt before had handed on is with the group.
    pub(crate) fn start_attempt(&mut self, last_committed: Option<CheckpointId>) -> Option<Answer> {
        let is_done =
            |stage: &Stage| matches!(stage, Stage::Sealed(sealed) if Some(*sealed) <= last_committed);
        let answer = self.take_while(last_committed, is_done);
        let number = self.waiting.back().map(|request| request.number);
        self.waiting.clear();
        self.waiting.extend(number.map(|number| Request { number, stage: Stage::New { is_old: true } }));
        answer
    }

    /// A barrier is wanted, as soon as there is something in front of it.
    pub(crate) fn want_barrier(&self) -> bool {
        matches!(self.waiting.back(), Some(Request { stage: Stage::New { .. }, .. }))
    }

    /// Calls are waited for: what they bring is to be committed soon.
    pub(crate) fn want_calls(&self) -> bool {
        self.waiting.iter().any(|request| matches!(request.stage, Stage::Calls(_)))
    }

    /// The barrier of `checkpoint` is sent.
    pub(crate) fn barrier_sent(&mut self, checkpoint: CheckpointId) {
        for request in &mut self.waiting {
            if matches!(request.stage, Stage::New { .. }) {
                request.stage = Stage::Barrier(checkpoint);
            }
        }
    }

    /// Nothing was handed on since the last barrier, which every subtask has acknowledged: what was handed on is in the
    /// epochs up to `newest`, the newest that is on its way to its commit, except for what calls still have (`carried`).
    /// Requests from before this attempt wait until sources have looked and found nothing (`are_dry`).
    pub(crate) fn nothing_to_send(
        &mut self,
        newest: Option<CheckpointId>,
        carried: &Decisions,
        are_dry: bool,
        last_committed: Option<CheckpointId>,
    ) -> Option<Answer> {
        for request in &mut self.waiting {
            if let Stage::New { is_old } = request.stage
                && (are_dry || !is_old)
            {
                request.stage = match newest {
                    _ if !carried.is_empty() => Stage::Calls(carried.clone()),
                    Some(newest) => Stage::Sealed(newest),
                    // Settled long ago, whichever it was.
                    None => Stage::Sealed(last_committed.unwrap_or(CheckpointId(0))),
                };
            }
        }
        match newest {
            Some(_) => None,
            None => self.settled(last_committed.unwrap_or(CheckpointId(0)), last_committed),
        }
    }

    /// Every subtask has acknowledged the barrier of `checkpoint`; `deferred` belongs to later epochs.
    pub(crate) fn sealed(&mut self, checkpoint: CheckpointId, deferred: &Decisions) {
        for request in &mut self.waiting {
            let left = match &request.stage {
                Stage::Barrier(sent) if *sent == checkpoint => deferred.clone(),
                Stage::Calls(calls) => calls.common_with(deferred),
                Stage::New { .. } | Stage::Barrier(_) | Stage::Sealed(_) => continue,
            };
            request.stage = if left.is_empty() { Stage::Sealed(checkpoint) } else { Stage::Calls(left) };
        }
    }

    /// `checkpoint` is committed, or was empty and is skipped; `last_committed` is the last that was committed.
    pub(crate) fn settled(
        &mut self,
        checkpoint: CheckpointId,
        last_committed: Option<CheckpointId>,
    ) -> Option<Answer> {
        let is_done = |stage: &Stage| matches!(stage, Stage::Sealed(sealed) if *sealed <= checkpoint);
        self.take_while(last_committed, is_done)
    }

    /// Takes out the requests that are done. A later one is never done before an earlier one.
    fn take_while(
        &mut self,
        checkpoint: Option<CheckpointId>,
        is_done: impl Fn(&Stage) -> bool,
    ) -> Option<Answer> {
        let mut answer = None;
        while let Some(request) = self.waiting.front()
            && is_done(&request.stage)
        {
            answer = Some(Answer { number: request.number, checkpoint });
            self.waiting.pop_front();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

    use super::*;
    use crate::decision::{DecidedRange, Decision, SourcePartition};

    fn id(number: u64) -> CheckpointId {
        CheckpointId(number)
    }

    fn offsets(ranges: &[(i64, i64)]) -> Decisions {
        let partition = SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(0) };
        let mut offsets = Decisions::new();
        for (first, last) in ranges {
            let decision = Decision::Accept;
            offsets.set(partition, DecidedRange { first: Offset(*first), last: Offset(*last), decision });
        }
        offsets
    }

    fn answer(number: u64, checkpoint: u64) -> Option<Answer> {
        Some(Answer { number, checkpoint: Some(id(checkpoint)) })
    }

    #[test]
    fn a_request_is_answered_by_the_barrier_behind_it_not_by_the_one_before() {
        let mut requests = Requests::default();
        requests.barrier_sent(id(1));
        requests.ask(2);
        assert!(requests.want_barrier());
        requests.sealed(id(1), &Decisions::new());
        assert_eq!(requests.settled(id(1), Some(id(1))), None, "its barrier was sent before the request");
        requests.barrier_sent(id(2));
        assert!(!requests.want_barrier());
        requests.sealed(id(2), &Decisions::new());
        assert_eq!(requests.settled(id(2), Some(id(2))), answer(2, 2));
        assert_eq!(requests, Requests { taken: 2, ..Requests::default() });
    }

    #[test]
    fn a_request_waits_for_the_calls_that_it_found_and_for_no_others() {
        let mut requests = Requests::default();
        let none = Decisions::new();
        requests.ask(1);
        requests.barrier_sent(id(1));
        requests.sealed(id(1), &offsets(&[(3, 5)]));
        assert_eq!(requests.settled(id(1), Some(id(1))), None);
        assert!(requests.want_calls());
        requests.sealed(id(2), &offsets(&[(5, 9)]));
        assert_eq!(requests.settled(id(2), Some(id(2))), None, "5 still runs");
        requests.sealed(id(3), &offsets(&[(6, 9), (12, 12)]));
        assert_eq!(requests.settled(id(3), Some(id(3))), answer(1, 3));
        // Asked for while only calls are in flight: they are what it waits for.
        requests.ask(2);
        assert_eq!(requests.nothing_to_send(None, &offsets(&[(6, 9)]), true, Some(id(3))), None);
        requests.sealed(id(4), &none);
        assert_eq!(requests.settled(id(4), Some(id(4))), answer(2, 4));
    }

    #[test]
    fn with_nothing_in_flight_the_answer_is_the_last_commit() {
        let mut requests = Requests::default();
        let none = Decisions::new();
        requests.ask(1);
        assert_eq!(
            requests.nothing_to_send(None, &none, false, None),
            Some(Answer { number: 1, checkpoint: None })
        );
        requests.ask(2);
        assert_eq!(requests.nothing_to_send(Some(id(7)), &none, false, Some(id(6))), None, "7 is on its way");
        requests.ask(3);
        assert_eq!(requests.nothing_to_send(Some(id(8)), &none, false, Some(id(6))), None);
        assert_eq!(requests.settled(id(7), Some(id(7))), answer(2, 7));
        // The epoch was empty and is skipped.
        assert_eq!(requests.settled(id(8), Some(id(7))), answer(3, 7));
    }

    #[test]
    fn a_failed_attempt_passes_its_requests_on_unless_recovery_finds_their_commit() {
        for (recovered, answered) in [(Some(id(5)), true), (Some(id(4)), false), (None, false)] {
            let mut requests = Requests::default();
            requests.ask(1);
            requests.barrier_sent(id(5));
            requests.sealed(id(5), &Decisions::new());
            requests.ask(2);
            requests.barrier_sent(id(6));
            requests.ask(3);
            let expected = answered.then_some(Answer { number: 1, checkpoint: recovered });
            assert_eq!(requests.start_attempt(recovered), expected);
            assert!(requests.want_barrier());
            let none = Decisions::new();
            assert_eq!(
                requests.nothing_to_send(None, &none, false, recovered),
                None,
                "nobody has looked yet"
            );
            requests.barrier_sent(id(9));
            requests.sealed(id(9), &none);
            assert_eq!(requests.settled(id(9), Some(id(9))), answer(3, 9));
        }
        let mut requests = Requests::default();
        requests.ask(1);
        assert_eq!(requests.start_attempt(Some(id(4))), None);
        assert_eq!(requests.nothing_to_send(None, &Decisions::new(), true, Some(id(4))), answer(1, 4));
    }

    #[test]
    fn any_number_of_callers_needs_bounded_space_and_all_are_answered() {
        let mut requests = Requests::default();
        for number in 1..10_000 {
            requests.ask(number);
            if number % 3 == 0 {
                requests.barrier_sent(id(number));
                requests.sealed(id(number), &offsets(&[(0, 0)]));
            }
            assert!(requests.waiting.len() <= APART_MAX);
        }
        requests.barrier_sent(id(10_000));
        requests.sealed(id(10_000), &Decisions::new());
        assert_eq!(requests.settled(id(10_000), Some(id(10_000))), answer(9_999, 10_000));
    }
}
