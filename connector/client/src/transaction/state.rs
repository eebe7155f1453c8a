//! The client's view of its transaction. Pure: no socket, no clock.
//!
//! ```text
//! fresh --initialized--> ready --begin--> open --end--> ending --ended--> ready
//!                                          |  ^            |
//!                                          |  commit refused, abortable
//!                                          v  v
//!                                        doomed --end(abort)--> ending
//! any --refused (fenced, timed out)--> stale;   any --initialized--> ready
//! ```
//! Only the session makes moves. `ending` keeps what was asked, so that a repeat is the identical request; the other
//! outcome is refused until the first is known. There is no end state: InitProducerId resolves whatever was open.

use std::fmt;

use sharestream_base::ids::{ProducerEpoch, ProducerId};

/// Producer id and epoch of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) producer_id: ProducerId,
    pub(crate) producer_epoch: ProducerEpoch,
}

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Commit,
    Abort,
}

/// Where the transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No identity yet.
    Fresh,
    /// No transaction; the next one has this identity.
    Ready(Identity),
    /// Writes and acknowledgements may go into the transaction.
    Open(Identity),
    /// It can only be aborted.
    Doomed(Identity),
    /// EndTxn was asked for and its outcome is not known.
    Ending(Identity, Outcome),
    /// The coordinator no longer accepts the identity.
    Stale,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// InitProducerId answered.
    Initialized(Identity),
    /// The caller begins a transaction.
    Begin,
    /// A stage failed, or a commit was refused: the transaction can only be aborted.
    Doom,
    /// The caller ends the transaction, for the first time or again.
    End(Outcome),
    /// EndTxn succeeded; the next transaction has this identity.
    Ended(Identity),
    /// The coordinator refused the identity.
    Refused,
}

/// The event is not allowed in the state; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransitionError {
    pub(crate) state: State,
    pub(crate) event: Event,
}

impl State {
    /// Makes one move. On `Err` nothing has changed.
    pub(crate) fn apply(&mut self, event: Event) -> Result<(), TransitionError> {
        let state = *self;
        let refuse = Err(TransitionError { state, event });
        *self = match (state, event) {
            (
                State::Fresh
                | State::Ready(_)
                | State::Open(_)
                | State::Doomed(_)
                | State::Ending(..)
                | State::Stale,
                Event::Initialized(identity),
            ) => State::Ready(identity),

            (State::Ready(identity), Event::Begin) => State::Open(identity),
            (
                State::Fresh | State::Open(_) | State::Doomed(_) | State::Ending(..) | State::Stale,
                Event::Begin,
            ) => return refuse,

            (
                State::Open(identity) | State::Doomed(identity) | State::Ending(identity, Outcome::Commit),
                Event::Doom,
            ) => State::Doomed(identity),
            (
                State::Fresh | State::Ready(_) | State::Ending(_, Outcome::Abort) | State::Stale,
                Event::Doom,
            ) => return refuse,

            (State::Open(identity), Event::End(outcome)) => State::Ending(identity, outcome),
            (State::Doomed(identity), Event::End(Outcome::Abort)) => State::Ending(identity, Outcome::Abort),
            (State::Ending(identity, asked), Event::End(outcome)) if asked == outcome => {
                State::Ending(identity, asked)
            }
            (State::Doomed(_), Event::End(Outcome::Commit))
            | (State::Ending(..), Event::End(Outcome::Commit | Outcome::Abort))
            | (State::Fresh | State::Ready(_) | State::Stale, Event::End(Outcome::Commit | Outcome::Abort)) =>
            {
                return refuse;
            }

            (State::Ending(..), Event::Ended(next)) => State::Ready(next),
            (
                State::Fresh | State::Ready(_) | State::Open(_) | State::Doomed(_) | State::Stale,
                Event::Ended(_),
            ) => return refuse,

            (
                State::Fresh
                | State::Ready(_)
                | State::Open(_)
                | State::Doomed(_)
                | State::Ending(..)
                | State::Stale,
                Event::Refused,
            ) => State::Stale,
        };
        Ok(())
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Fresh => "not initialized",
            State::Ready(_) => "without a transaction",
            State::Open(_) => "in a transaction",
            State::Doomed(_) => "in a transaction that can only be aborted",
            State::Ending(_, Outcome::Commit) => "waiting for the outcome of a commit",
            State::Ending(_, Outcome::Abort) => "waiting for the outcome of an abort",
            State::Stale => "refused by its coordinator",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Initialized(_) => "initialize",
            Event::Begin => "begin",
            Event::Doom => "fail the transaction",
            Event::End(Outcome::Commit) => "commit",
            Event::End(Outcome::Abort) => "abort",
            Event::Ended(_) => "end",
            Event::Refused => "give up",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Identity = Identity { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(0) };
    const B: Identity = Identity { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(1) };

    fn states() -> [State; 7] {
        [
            State::Fresh,
            State::Ready(A),
            State::Open(A),
            State::Doomed(A),
            State::Ending(A, Outcome::Commit),
            State::Ending(A, Outcome::Abort),
            State::Stale,
        ]
    }

    fn events() -> [Event; 7] {
        [
            Event::Initialized(B),
            Event::Begin,
            Event::Doom,
            Event::End(Outcome::Commit),
            Event::End(Outcome::Abort),
            Event::Ended(B),
            Event::Refused,
        ]
    }

    #[test]
    fn every_pair_of_state_and_event_is_as_drawn() {
        use Outcome::{Abort, Commit};
        use State::{Doomed, Ending, Open, Ready, Stale};
        // Rows: states; columns: events, both in the order above.
        #[rustfmt::skip]
        let table: [[Option<State>; 7]; 7] = [
            [Some(Ready(B)), None,          None,            None,                    None,                   None,           Some(Stale)],
            [Some(Ready(B)), Some(Open(A)), None,            None,                    None,                   None,           Some(Stale)],
            [Some(Ready(B)), None,          Some(Doomed(A)), Some(Ending(A, Commit)), Some(Ending(A, Abort)), None,           Some(Stale)],
            [Some(Ready(B)), None,          Some(Doomed(A)), None,                    Some(Ending(A, Abort)), None,           Some(Stale)],
            [Some(Ready(B)), None,          Some(Doomed(A)), Some(Ending(A, Commit)), None,                   Some(Ready(B)), Some(Stale)],
            [Some(Ready(B)), None,          None,            None,                    Some(Ending(A, Abort)), Some(Ready(B)), Some(Stale)],
            [Some(Ready(B)), None,          None,            None,                    None,                   None,           Some(Stale)],
        ];
        for (row, state) in table.iter().zip(states()) {
            for (expected, event) in row.iter().zip(events()) {
                let mut after = state;
                let result = after.apply(event);
                match expected {
                    Some(expected) => assert_eq!((result, after), (Ok(()), *expected), "{state:?} {event:?}"),
                    None => assert_eq!((result.is_err(), after), (true, state), "{state:?} {event:?}"),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_commit_never_turns_into_an_abort_while_its_outcome_is_unknown(
            steps in proptest::collection::vec(0..7usize, 0..30)
        ) {
            let mut state = State::Fresh;
            for step in steps {
                let before = state;
                let _refused_or_not = state.apply(events()[step]);
                if let State::Ending(_, Outcome::Commit) = before {
                    prop_assert!(!matches!(state, State::Ending(_, Outcome::Abort)));
                }
            }
        }
    }
}
