//! The client's half of a share session with one leader (KIP-932). Pure: no socket, no clock.
//!
//! ```text
//! closed --fetch (epoch 0)--> open(1) --fetch or acknowledge (epoch n)--> open(n+1)
//!   ^                           |
//!   \--session error, connection lost, close (epoch -1)--/
//! ```
//! The consumer has at most one request under way per leader, so epochs go out in order. A session dies with its
//! connection and takes every lock with it. Only a fetch opens one; it names every partition, later ones name changes.

use std::collections::BTreeSet;

use sharestream_base::ids::{PartitionIndex, TopicId};

/// A partition of a topic, by topic id.
pub(super) type PartitionKey = (TopicId, PartitionIndex);

/// Epoch of the request that opens a session.
pub(super) const OPENING: i32 = 0;
/// Epoch of the request that closes it.
pub(super) const CLOSING: i32 = -1;

/// Where the session with one leader stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ShareSession {
    /// The leader knows nothing of us.
    #[default]
    Closed,
    /// The leader expects `next_epoch` and knows these partitions.
    Open { next_epoch: i32, partitions: BTreeSet<PartitionKey> },
}

/// What the next fetch has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchPlan {
    pub(super) epoch: i32,
    pub(super) add: Vec<PartitionKey>,
    pub(super) forget: Vec<PartitionKey>,
}

impl ShareSession {
    /// Plans a fetch of `wanted`; the session is as after the request.
    pub(super) fn fetch(&mut self, wanted: &BTreeSet<PartitionKey>) -> FetchPlan {
        match self {
            ShareSession::Closed => {
                *self = ShareSession::Open { next_epoch: after(OPENING), partitions: wanted.clone() };
                FetchPlan { epoch: OPENING, add: wanted.iter().copied().collect(), forget: Vec::new() }
            }
            ShareSession::Open { next_epoch, partitions } => {
                let plan = FetchPlan {
                    epoch: *next_epoch,
                    add: wanted.difference(partitions).copied().collect(),
                    forget: partitions.difference(wanted).copied().collect(),
                };
                *next_epoch = after(*next_epoch);
                if !(plan.add.is_empty() && plan.forget.is_empty()) {
                    partitions.clone_from(wanted);
                }
                plan
            }
        }
    }

    /// The epoch of an acknowledgement; `None` without a session, when there is nothing left to acknowledge.
    pub(super) fn acknowledge(&mut self) -> Option<i32> {
        match self {
            ShareSession::Closed => None,
            ShareSession::Open { next_epoch, .. } => {
                let epoch = *next_epoch;
                *next_epoch = after(epoch);
                Some(epoch)
            }
        }
    }

    /// The session is gone. True when there was one.
    pub(super) fn close(&mut self) -> bool {
        match std::mem::take(self) {
            ShareSession::Closed => false,
            ShareSession::Open { .. } => true,
        }
    }

    /// True while the leader holds locks for us, as far as we know.
    pub(super) fn is_open(&self) -> bool {
        match self {
            ShareSession::Closed => false,
            ShareSession::Open { .. } => true,
        }
    }
}

/// Epochs wrap to 1: 0 would open a new session.
fn after(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(index: i32) -> PartitionKey {
        (TopicId::default(), PartitionIndex(index))
    }

    fn keys(indexes: &[i32]) -> BTreeSet<PartitionKey> {
        indexes.iter().map(|index| key(*index)).collect()
    }

    #[test]
    fn the_first_fetch_names_everything_and_later_ones_only_changes() {
        let mut session = ShareSession::default();
        let plan = session.fetch(&keys(&[0, 1]));
        assert_eq!(plan, FetchPlan { epoch: 0, add: vec![key(0), key(1)], forget: vec![] });
        assert_eq!(session.acknowledge(), Some(1), "fetch and acknowledge share the counter");
        let plan = session.fetch(&keys(&[1, 2]));
        assert_eq!(plan, FetchPlan { epoch: 2, add: vec![key(2)], forget: vec![key(0)] });
        let plan = session.fetch(&keys(&[1, 2]));
        assert_eq!(plan, FetchPlan { epoch: 3, add: vec![], forget: vec![] });
    }

    #[test]
    fn without_a_session_there_is_nothing_to_acknowledge() {
        let mut session = ShareSession::default();
        assert_eq!(session.acknowledge(), None);
        session.fetch(&keys(&[0]));
        assert!(session.close());
        assert!(!session.close(), "closed once");
        assert_eq!(session.acknowledge(), None);
        assert_eq!(session.fetch(&keys(&[0])).epoch, 0, "it opens anew");
    }

    #[test]
    fn epochs_wrap_to_one() {
        let mut session = ShareSession::Open { next_epoch: i32::MAX, partitions: keys(&[0]) };
        assert_eq!(session.acknowledge(), Some(i32::MAX));
        assert_eq!(session.acknowledge(), Some(1));
    }

    proptest! {
        /// A leader that applies the requests knows at all times what the client wants.
        #[test]
        fn the_leader_knows_what_is_wanted(steps in proptest::collection::vec((0u8..8, 0u8..=255), 0..40)) {
            let mut session = ShareSession::default();
            let mut leader: Option<(i32, BTreeSet<PartitionKey>)> = None;
            for (step, bits) in steps {
                match step {
                    0 => {
                        session.close();
                        leader = None;
                    }
                    1 | 2 => {
                        let epoch = session.acknowledge();
                        prop_assert_eq!(epoch, leader.as_ref().map(|(expected, _)| *expected));
                        if let Some((expected, _)) = leader.as_mut() {
                            *expected += 1;
                        }
                    }
                    _fetch => {
                        let wanted: BTreeSet<_> = (0..8).filter(|bit| bits & (1 << bit) != 0).map(key).collect();
                        let plan = session.fetch(&wanted);
                        let (expected, known) = leader.get_or_insert((0, BTreeSet::new()));
                        prop_assert_eq!(plan.epoch, *expected);
                        *expected += 1;
                        known.extend(plan.add);
                        known.retain(|key| !plan.forget.contains(key));
                        prop_assert_eq!(&*known, &wanted);
                    }
                }
            }
        }
    }
}
