//! Membership in a share group (KIP-932: ShareGroupHeartbeat). Pure: no socket, no clock.
//!
//! ```text
//! joining --answer--> member --answer--> member        leave: joining or member --> leaving --answer--> left (end)
//!    ^                  |
//!    \--removed (unknown member, fenced epoch)--/
//! ```
//! The heartbeat task makes every move but `leave`, which is the consumer's. The member id stays the same for life; a
//! removed member joins again with epoch 0 (KAFKA-19233).

use std::collections::BTreeSet;

use sharestream_base::ids::MemberEpoch;

use super::session::PartitionKey;

/// Where the membership stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// Not a member; the next heartbeat joins.
    Joining,
    /// A member with an assignment.
    Member {
        /// Epoch to send.
        epoch: MemberEpoch,
        /// Partitions to fetch.
        assignment: BTreeSet<PartitionKey>,
    },
    /// The next heartbeat leaves.
    Leaving,
    /// Not a member any more.
    Left,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The coordinator took the heartbeat; no assignment means: as before.
    Answered {
        /// The member's epoch from now on.
        epoch: MemberEpoch,
        /// The assignment, when it changed.
        assignment: Option<BTreeSet<PartitionKey>>,
    },
    /// The coordinator does not know the member, or not this epoch.
    Removed,
    /// The consumer closes.
    Leave,
}

/// What the heartbeat task has to tell the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing new.
    None,
    /// Epoch or assignment changed.
    Changed,
    /// Every lock of this member may be lost.
    LocksLost,
}

/// What the next heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// 0 joins, -1 leaves.
    pub(super) epoch: MemberEpoch,
    /// Rack and topics are part of it.
    pub(super) full: bool,
}

const JOIN: MemberEpoch = MemberEpoch(0);
const LEAVE: MemberEpoch = MemberEpoch(-1);

impl Membership {
    /// The next heartbeat; `None` after leaving.
    pub(super) fn heartbeat(&self) -> Option<Heartbeat> {
        match self {
            Membership::Joining => Some(Heartbeat { epoch: JOIN, full: true }),
            Membership::Member { epoch, .. } => Some(Heartbeat { epoch: *epoch, full: false }),
            Membership::Leaving => Some(Heartbeat { epoch: LEAVE, full: false }),
            Membership::Left => None,
        }
    }

    /// The epoch that the group knows us by; 0 when it does not.
    pub(super) fn epoch(&self) -> MemberEpoch {
        match self {
            Membership::Member { epoch, .. } => *epoch,
            Membership::Joining | Membership::Leaving | Membership::Left => JOIN,
        }
    }

    /// True for a member to whom nothing is assigned (yet).
    pub(super) fn is_unassigned(&self) -> bool {
        match self {
            Membership::Member { assignment, .. } => assignment.is_empty(),
            Membership::Joining | Membership::Leaving | Membership::Left => false,
        }
    }

    /// Makes one move. Every pair is valid: late answers change nothing.
    pub(super) fn apply(&mut self, event: Event) -> Effect {
        let (next, effect) = match (std::mem::replace(self, Membership::Left), event) {
            (Membership::Joining, Event::Answered { epoch, assignment }) => {
                let assignment = assignment.unwrap_or_default();
                (Membership::Member { epoch, assignment }, Effect::Changed)
            }
            (Membership::Member { epoch: old, assignment: held }, Event::Answered { epoch, assignment }) => {
                let assignment = assignment.unwrap_or_else(|| held.clone());
                let effect = if epoch == old && assignment == held { Effect::None } else { Effect::Changed };
                (Membership::Member { epoch, assignment }, effect)
            }
            (Membership::Leaving, Event::Answered { .. } | Event::Removed) => {
                (Membership::Left, Effect::None)
            }
            (Membership::Left, Event::Answered { .. } | Event::Removed | Event::Leave) => {
                (Membership::Left, Effect::None)
            }
            (Membership::Joining, Event::Removed) => (Membership::Joining, Effect::None),
            (Membership::Member { .. }, Event::Removed) => (Membership::Joining, Effect::LocksLost),
            (Membership::Joining | Membership::Member { .. } | Membership::Leaving, Event::Leave) => {
                (Membership::Leaving, Effect::None)
            }
        };
        *self = next;
        effect
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{PartitionIndex, TopicId};

    use super::*;

    fn partitions(indexes: &[i32]) -> BTreeSet<PartitionKey> {
        indexes.iter().map(|index| (TopicId::default(), PartitionIndex(*index))).collect()
    }

    fn member(epoch: i32, indexes: &[i32]) -> Membership {
        Membership::Member { epoch: MemberEpoch(epoch), assignment: partitions(indexes) }
    }

    fn answered(epoch: i32, indexes: Option<&[i32]>) -> Event {
        Event::Answered { epoch: MemberEpoch(epoch), assignment: indexes.map(partitions) }
    }

    #[test]
    fn every_pair_of_state_and_event_is_as_drawn() {
        use Membership::{Joining, Leaving, Left};
        let cases = [
            (Joining, answered(1, Some(&[0])), member(1, &[0]), Effect::Changed),
            (Joining, answered(1, None), member(1, &[]), Effect::Changed),
            (Joining, Event::Removed, Joining, Effect::None),
            (Joining, Event::Leave, Leaving, Effect::None),
            (member(1, &[0]), answered(1, None), member(1, &[0]), Effect::None),
            (member(1, &[0]), answered(1, Some(&[0])), member(1, &[0]), Effect::None),
            (member(1, &[0]), answered(2, None), member(2, &[0]), Effect::Changed),
            (member(1, &[0]), answered(2, Some(&[1])), member(2, &[1]), Effect::Changed),
            (member(1, &[0]), Event::Removed, Joining, Effect::LocksLost),
            (member(1, &[0]), Event::Leave, Leaving, Effect::None),
            (Leaving, answered(-1, None), Left, Effect::None),
            (Leaving, Event::Removed, Left, Effect::None),
            (Leaving, Event::Leave, Leaving, Effect::None),
            (Left, answered(5, Some(&[0])), Left, Effect::None),
            (Left, Event::Removed, Left, Effect::None),
            (Left, Event::Leave, Left, Effect::None),
        ];
        for (before, event, after, effect) in cases {
            let mut state = before.clone();
            let got = state.apply(event.clone());
            assert_eq!((state, got), (after, effect), "{before:?} {event:?}");
        }
    }

    #[test]
    fn a_removed_member_joins_again_and_says_everything() {
        let mut state = member(7, &[0]);
        state.apply(Event::Removed);
        assert_eq!(state.heartbeat(), Some(Heartbeat { epoch: MemberEpoch(0), full: true }));
    }
}
