//! Requests that wait for their answer, by correlation id. Pure: no socket, no clock.
//!
//! ```text
//! open --request--> open --answer--> open
//!   \--poison (end of stream, garbage, time-out)--> poisoned (end)
//! ```
//! Only the tasks of the connection and a caller whose answer is late make the last move. It completes every
//! waiting request with the reason; nothing leaves the poisoned state.

use std::collections::BTreeMap;

/// Answers that are owed. `W` is what waits for one.
#[derive(Debug)]
pub(crate) enum InFlight<W> {
    /// Requests may be sent.
    Open {
        /// Id of the next request.
        next_id: i32,
        /// Who waits, by correlation id.
        waiting: BTreeMap<i32, W>,
    },
    /// The connection is of no use any more.
    Poisoned {
        /// Why.
        reason: String,
    },
}

/// An answer that nobody asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unexpected(pub(crate) i32);

impl<W> InFlight<W> {
    /// An open connection without requests.
    pub(crate) fn new() -> Self {
        InFlight::Open { next_id: 0, waiting: BTreeMap::new() }
    }

    /// Takes the next correlation id for a request that is about to be sent.
    ///
    /// # Errors
    /// The reason, when the connection is poisoned.
    pub(crate) fn register(&mut self, waiter: W) -> Result<i32, String> {
        match self {
            InFlight::Open { next_id, waiting } => {
                let id = *next_id;
                *next_id = id.checked_add(1).unwrap_or(0);
                waiting.insert(id, waiter);
                Ok(id)
            }
            InFlight::Poisoned { reason } => Err(reason.clone()),
        }
    }

    /// Who waits for the answer with `id`.
    ///
    /// # Errors
    /// `Unexpected` when nobody does: the peer is out of step and the connection must be poisoned.
    pub(crate) fn complete(&mut self, id: i32) -> Result<W, Unexpected> {
        match self {
            InFlight::Open { waiting, .. } => waiting.remove(&id).ok_or(Unexpected(id)),
            InFlight::Poisoned { .. } => Err(Unexpected(id)),
        }
    }

    /// Ends the connection: all who wait, to be told. The first reason stays.
    pub(crate) fn poison(&mut self, why: &str) -> Vec<W> {
        match self {
            InFlight::Open { waiting, .. } => {
                let waiters = std::mem::take(waiting).into_values().collect();
                *self = InFlight::Poisoned { reason: why.to_owned() };
                waiters
            }
            InFlight::Poisoned { .. } => Vec::new(),
        }
    }

    /// Why the connection ended, if it did.
    pub(crate) fn poisoned(&self) -> Option<&str> {
        match self {
            InFlight::Open { .. } => None,
            InFlight::Poisoned { reason } => Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_poisoned_connection_takes_nothing_and_keeps_its_first_reason() {
        let mut map = InFlight::new();
        map.register('a').unwrap();
        map.register('b').unwrap();
        let mut waiters = map.poison("end of stream");
        waiters.sort_unstable();
        assert_eq!(waiters, ['a', 'b']);
        assert_eq!(map.poison("later"), Vec::<char>::new());
        assert_eq!(map.register('c'), Err("end of stream".to_owned()));
        assert_eq!(map.complete(0), Err(Unexpected(0)));
        assert_eq!(map.poisoned(), Some("end of stream"));
    }

    proptest! {
        #[test]
        fn every_request_gets_exactly_its_own_answer(order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut map = InFlight::new();
            let ids: Vec<i32> = (0..40usize).map(|n| map.register(n).unwrap()).collect();
            for index in order {
                prop_assert_eq!(map.complete(ids[index]), Ok(index));
                prop_assert_eq!(map.complete(ids[index]), Err(Unexpected(ids[index])), "an answer comes once");
            }
        }
    }
}
