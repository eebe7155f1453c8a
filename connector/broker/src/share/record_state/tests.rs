//! Every (state, event) pair, against a table written by hand.

use std::time::Duration;

use sharestream_base::Clock;

use super::*;

/// Expected result of one pair, in words short enough for a table.
#[derive(Debug, PartialEq)]
enum Expect {
    Refused,
    Same,
    Rewrite,
    Available,
    Acquired,
    AcquiredAnew,
    Settling(Settled, bool),
    PendingOutstanding(Option<TxnOutcome>),
    PendingDurable,
    Acknowledged,
    Archiving(bool),
    Archived,
}

struct Fixture {
    alice: MemberId,
    bob: MemberId,
    soon: Instant,
    later: Instant,
}

const WRITE: WriteId = WriteId(1);
const OTHER_WRITE: WriteId = WriteId(2);
const ACCEPT: Staged =
    Staged { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(3), intent: Intent::Accept };

fn staged(intent: Intent) -> Staged {
    Staged { intent, ..ACCEPT }
}

fn marker(epoch: i16, outcome: TxnOutcome) -> Event<'static> {
    Event::Resolve {
        marker: Marker { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(epoch), outcome },
    }
}

impl Fixture {
    fn new() -> Self {
        let soon = Clock::system().now() + Duration::from_secs(1);
        let later = soon + Duration::from_secs(1);
        Fixture { alice: MemberId::new("alice"), bob: MemberId::new("bob"), soon, later }
    }

    fn acquired(&self) -> RecordState {
        RecordState::Acquired { holder: self.alice.clone(), lock_deadline: self.soon }
    }

    fn settling(&self, target: Settled, owned: bool) -> RecordState {
        RecordState::Settling { target, write: WRITE, holder: owned.then(|| self.alice.clone()) }
    }

    fn outstanding(&self, intent: Intent, resolved: Option<TxnOutcome>) -> RecordState {
        let write = StageWrite::Outstanding { write: WRITE, holder: self.alice.clone(), resolved };
        RecordState::TxnPending { staged: staged(intent), write }
    }

    fn durable(&self, intent: Intent) -> RecordState {
        RecordState::TxnPending { staged: staged(intent), write: StageWrite::Durable }
    }

    fn observe(&self, result: Result<Transition, InvalidRecordState>) -> Expect {
        match result {
            Err(InvalidRecordState) => Expect::Refused,
            Ok(Transition::Same) => Expect::Same,
            Ok(Transition::Rewrite(_)) => Expect::Rewrite,
            Ok(Transition::To(state)) => match state {
                RecordState::Available => Expect::Available,
                RecordState::Acquired { lock_deadline, .. } if lock_deadline == self.later => {
                    Expect::AcquiredAnew
                }
                RecordState::Acquired { .. } => Expect::Acquired,
                RecordState::Settling { target, holder, .. } => Expect::Settling(target, holder.is_some()),
                RecordState::TxnPending { write: StageWrite::Durable, .. } => Expect::PendingDurable,
                RecordState::TxnPending { write: StageWrite::Outstanding { resolved, .. }, .. } => {
                    Expect::PendingOutstanding(resolved)
                }
                RecordState::Acknowledged => Expect::Acknowledged,
                RecordState::Archiving { letter } => Expect::Archiving(letter.is_some()),
                RecordState::Archived => Expect::Archived,
            },
        }
    }

    fn events(&self) -> Vec<(&'static str, Event<'_>)> {
        let ack = |member, ack| Event::Acknowledge { member, ack, write: WRITE };
        let stage = |member, intent| Event::Stage { member, staged: staged(intent), write: WRITE };
        let (alice, bob, later) = (&self.alice, &self.bob, self.later);
        let early = Event::ExpireLock { now: self.soon - Duration::from_millis(1), write: WRITE };
        vec![
            ("acquire", Event::Acquire { member: alice, lock_deadline: later }),
            ("skip", Event::Skip { write: WRITE }),
            ("gap", ack(alice, Acknowledgement::Gap)),
            ("accept", ack(alice, Acknowledgement::Accept)),
            ("release", ack(alice, Acknowledgement::Release)),
            ("reject", ack(alice, Acknowledgement::Reject)),
            ("accept by another", ack(bob, Acknowledgement::Accept)),
            ("renew", Event::Renew { member: alice, lock_deadline: later }),
            ("renew by another", Event::Renew { member: bob, lock_deadline: later }),
            ("expire too early", early),
            ("expire", Event::ExpireLock { now: self.soon, write: WRITE }),
            ("close", Event::CloseSession { member: alice, write: WRITE }),
            ("close of another", Event::CloseSession { member: bob, write: WRITE }),
            ("stage accept", stage(alice, Intent::Accept)),
            ("stage reject", stage(alice, Intent::Reject)),
            ("stage by another", stage(bob, Intent::Gap)),
            ("written", Event::Written { write: WRITE }),
            ("other written", Event::Written { write: OTHER_WRITE }),
            ("failed", Event::WriteFailed { write: WRITE, lock_deadline: later }),
            ("other failed", Event::WriteFailed { write: OTHER_WRITE, lock_deadline: later }),
            ("commit", marker(4, TxnOutcome::Commit)),
            ("abort", marker(4, TxnOutcome::Abort)),
            ("marker of an older epoch", marker(3, TxnOutcome::Commit)),
            ("send letter", Event::SendLetter { letter: WRITE }),
            ("letter done", Event::LetterDone { letter: WRITE, write: OTHER_WRITE }),
            ("other letter done", Event::LetterDone { letter: OTHER_WRITE, write: OTHER_WRITE }),
        ]
    }

    fn check(&self, name: &str, state: &RecordState, delivery_count: u16, expected: [Expect; 26]) {
        self.check_with(false, name, state, delivery_count, expected);
    }

    fn check_with(
        &self,
        dead_letters: bool,
        name: &str,
        state: &RecordState,
        delivery_count: u16,
        expected: [Expect; 26],
    ) {
        let attempts = Attempts { delivery_count, limit: 5, dead_letters };
        for ((event_name, event), expected) in self.events().into_iter().zip(expected) {
            let found = self.observe(state.apply(&event, attempts));
            assert_eq!(found, expected, "{name} on {event_name}");
        }
    }
}

use Expect::{AcquiredAnew, PendingDurable, PendingOutstanding, Refused, Rewrite, Same, Settling};

#[test]
fn available_records_can_only_be_acquired_or_skipped() {
    #[rustfmt::skip]
    let expected = [
        AcquiredAnew, Settling(Settled::Archived, false),
        Refused, Refused, Refused, Refused, Refused,
        Refused, Refused, Same, Same, Same, Same,
        Refused, Refused, Refused,
        Same, Same, Same, Same, Same, Same, Same,
        Same, Same, Same,
    ];
    Fixture::new().check("available", &RecordState::Available, 5, expected);
}

#[test]
fn acquired_records_obey_their_holder_and_the_clock() {
    let fixture = Fixture::new();
    for (delivery_count, given_back) in
        [(4, Settled::Available), (5, Settled::Archived), (6, Settled::Archived)]
    {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused,
            Settling(Settled::Archived, true), Settling(Settled::Acknowledged, true),
            Settling(given_back, true), Settling(Settled::Archived, true), Refused,
            AcquiredAnew, Refused, Same, Settling(given_back, false), Settling(given_back, false), Same,
            PendingOutstanding(None), PendingOutstanding(None), Refused,
            Same, Same, Same, Same, Same, Same, Same,
            Same, Same, Same,
        ];
        fixture.check("acquired", &fixture.acquired(), delivery_count, expected);
    }
}

#[test]
fn settling_records_wait_for_their_own_write() {
    let fixture = Fixture::new();
    let cases = [
        (Settled::Available, Expect::Available, Expect::Available),
        (Settled::Acknowledged, Expect::Acknowledged, Same),
        (Settled::Archiving, Expect::Archiving(false), Same),
        (Settled::Archived, Expect::Archived, Same),
    ];
    for (target, written, failed_without_owner) in cases {
        for owned in [true, false] {
            let on_failure = if owned { AcquiredAnew } else { clone_of(&failed_without_owner) };
            let on_close = if owned { Settling(target, false) } else { Same };
            #[rustfmt::skip]
            let expected = [
                Refused, Refused, Refused, Refused, Refused, Refused, Refused,
                Refused, Refused, Same, Same, on_close, Same,
                Refused, Refused, Refused,
                clone_of(&written), Same, on_failure, Same, Same, Same, Same,
                Same, Same, Same,
            ];
            fixture.check("settling", &fixture.settling(target, owned), 5, expected);
        }
    }
}

fn clone_of(expect: &Expect) -> Expect {
    match expect {
        Expect::Available => Expect::Available,
        Expect::Acknowledged => Expect::Acknowledged,
        Expect::Archiving(sent) => Expect::Archiving(*sent),
        Expect::Archived => Expect::Archived,
        Same => Same,
        other => panic!("no end of a write: {other:?}"),
    }
}

#[test]
fn staged_records_wait_for_the_marker_and_an_abort_never_archives() {
    let fixture = Fixture::new();
    let cases = [
        (Intent::Accept, Expect::Acknowledged),
        (Intent::Reject, Expect::Archived),
        // Staging the same REJECT again is a repeat, also when the group has lost its dead letter topic meanwhile.
        (Intent::DeadLetter, Expect::Archiving(false)),
    ];
    for (intent, committed) in cases {
        let (again_accept, again_reject) =
            if intent == Intent::Accept { (Same, Refused) } else { (Refused, Same) };
        #[rustfmt::skip]
        let expected = [
            Refused, Refused, Refused, Refused, Refused, Refused, Refused,
            Refused, Refused, Same, Same, Same, Same,
            again_accept, again_reject, Refused,
            Same, Same, Same, Same, committed, Expect::Available, Same,
            Same, Same, Same,
        ];
        fixture.check("txn pending, durable", &fixture.durable(intent), 5, expected);
    }
    fixture.check("txn pending, gap, durable", &fixture.durable(Intent::Gap), 5, {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused, Refused, Refused, Refused, Refused, Refused,
            Refused, Refused, Same, Same, Same, Same,
            // The repeat of the same stage succeeds whoever sends it: the records have left their holder.
            Refused, Refused, Same,
            Same, Same, Same, Same, Expect::Archived, Expect::Available, Same,
            Same, Same, Same,
        ];
        expected
    });
}

#[test]
fn a_marker_that_overtakes_the_stage_write_is_applied_when_the_write_is_done() {
    let fixture = Fixture::new();
    let cases = [
        (None, PendingDurable),
        (Some(TxnOutcome::Commit), Expect::Acknowledged),
        (Some(TxnOutcome::Abort), Expect::Available),
    ];
    for (resolved, written) in cases {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused, Refused, Refused, Refused, Refused, Refused,
            Refused, Refused, Same, Same, Same, Same,
            Rewrite, Refused, Refused,
            written, Same, AcquiredAnew, Same,
            PendingOutstanding(Some(TxnOutcome::Commit)), PendingOutstanding(Some(TxnOutcome::Abort)), Same,
            Same, Same, Same,
        ];
        fixture.check(
            "txn pending, outstanding",
            &fixture.outstanding(Intent::Accept, resolved),
            5,
            expected,
        );
    }
}

#[test]
fn nothing_leaves_an_end_state() {
    for state in [RecordState::Acknowledged, RecordState::Archived] {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused, Refused, Refused, Refused, Refused, Refused,
            Refused, Refused, Same, Same, Same, Same,
            Refused, Refused, Refused,
            Same, Same, Same, Same, Same, Same, Same,
            Same, Same, Same,
        ];
        Fixture::new().check("terminal", &state, 5, expected);
    }
}

#[test]
fn with_a_dead_letter_topic_what_is_given_up_waits_for_its_letter() {
    let fixture = Fixture::new();
    for (delivery_count, given_back) in [(4, Settled::Available), (5, Settled::Archiving)] {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused,
            Settling(Settled::Archived, true), Settling(Settled::Acknowledged, true),
            Settling(given_back, true), Settling(Settled::Archiving, true), Refused,
            AcquiredAnew, Refused, Same, Settling(given_back, false), Settling(given_back, false), Same,
            PendingOutstanding(None), PendingOutstanding(None), Refused,
            Same, Same, Same, Same, Same, Same, Same,
            Same, Same, Same,
        ];
        fixture.check_with(true, "acquired", &fixture.acquired(), delivery_count, expected);
    }
    // Aborted data and gaps are given up by nobody: they have no letter.
    #[rustfmt::skip]
    let expected = [
        AcquiredAnew, Settling(Settled::Archived, false),
        Refused, Refused, Refused, Refused, Refused,
        Refused, Refused, Same, Same, Same, Same,
        Refused, Refused, Refused,
        Same, Same, Same, Same, Same, Same, Same,
        Same, Same, Same,
    ];
    fixture.check_with(true, "available", &RecordState::Available, 5, expected);
}

#[test]
fn archiving_records_are_moved_by_their_own_letter_only() {
    for (letter, sent, done) in [
        (None, Expect::Archiving(true), Same),
        (Some(WRITE), Same, Settling(Settled::Archived, false)),
        (Some(WriteId(3)), Same, Same),
    ] {
        #[rustfmt::skip]
        let expected = [
            Refused, Refused, Refused, Refused, Refused, Refused, Refused,
            Refused, Refused, Same, Same, Same, Same,
            Refused, Refused, Refused,
            Same, Same, Same, Same, Same, Same, Same,
            sent, done, Same,
        ];
        Fixture::new().check_with(true, "archiving", &RecordState::Archiving { letter }, 5, expected);
    }
}
