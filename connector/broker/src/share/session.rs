//! Share sessions: what one member fetches from this node, and the counter that orders its requests.
//!
//! Source: KIP-932. A session is keyed (group, member) and dies with its connection. Epoch 0 opens, -1 closes,
//! anything else must be the next number of the session; ShareFetch and ShareAcknowledge share the counter. A
//! ShareAcknowledge cannot open a session, and the request that opens one cannot carry acknowledgements.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharestream_base::ids::{PartitionIndex, TopicId};

use super::record_state::MemberId;
use crate::handlers::ConnectionId;

/// Whose session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionKey {
    /// Group id.
    pub(crate) group: Arc<str>,
    /// Member id.
    pub(crate) member: MemberId,
}

/// Which request uses the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionUse {
    /// ShareFetch, with or without acknowledgements in it.
    Fetch {
        /// True when the request carries acknowledgements.
        acknowledges: bool,
    },
    /// ShareAcknowledge.
    Acknowledge,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    /// SHARE_SESSION_NOT_FOUND.
    #[error("no such share session on this connection")]
    NotFound,
    /// INVALID_SHARE_SESSION_EPOCH.
    #[error("share session epoch is not the next one")]
    InvalidEpoch,
    /// INVALID_REQUEST.
    #[error("the request that opens a share session cannot acknowledge")]
    AcknowledgesAtOpen,
    /// SHARE_SESSION_LIMIT_REACHED.
    #[error("too many share sessions")]
    LimitReached,
}

/// What the request does to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// A new session, in place of `replaced` (whose records go back) where there was one.
    Opened {
        /// True when an older session of the member was replaced.
        replaced: bool,
    },
    /// The next request of an open session.
    Continued,
    /// The last one: after it the member's records go back.
    Closing,
}

/// A partition of a session.
pub(crate) type SessionPartition = (TopicId, PartitionIndex);

#[derive(Debug)]
struct Session {
    connection: ConnectionId,
    next_epoch: i32,
    /// In fetch order: each fetch starts with another one, so that no partition starves.
    partitions: Vec<SessionPartition>,
    turn: usize,
}

/// All share sessions of a node.
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionKey, Session>,
    count_max: usize,
}

impl Sessions {
    /// No session yet; at most `count_max` at a time.
    pub(crate) fn new(count_max: usize) -> Self {
        Sessions { sessions: BTreeMap::new(), count_max }
    }

    /// Checks the epoch of a request and advances the session. On `Err` nothing has changed.
    pub(crate) fn admit(
        &mut self,
        key: &SessionKey,
        connection: ConnectionId,
        epoch: i32,
        purpose: SessionUse,
    ) -> Result<Admitted, SessionError> {
        match (epoch, purpose) {
            (0, SessionUse::Acknowledge) => Err(SessionError::InvalidEpoch),
            (0, SessionUse::Fetch { acknowledges: true }) => Err(SessionError::AcknowledgesAtOpen),
            (0, SessionUse::Fetch { acknowledges: false }) => {
                if !self.sessions.contains_key(key) && self.sessions.len() >= self.count_max {
                    return Err(SessionError::LimitReached);
                }
                let session = Session { connection, next_epoch: 1, partitions: Vec::new(), turn: 0 };
                let replaced = self.sessions.insert(key.clone(), session).is_some();
                Ok(Admitted::Opened { replaced })
            }
            (-1, SessionUse::Fetch { .. } | SessionUse::Acknowledge) => {
                self.of_connection(key, connection)?;
                self.sessions.remove(key);
                Ok(Admitted::Closing)
            }
            (epoch, SessionUse::Fetch { .. } | SessionUse::Acknowledge) => {
                let session = self.of_connection(key, connection)?;
                if session.next_epoch != epoch {
                    return Err(SessionError::InvalidEpoch);
                }
                // After the largest number comes 1: 0 would open a session.
                session.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
                Ok(Admitted::Continued)
            }
        }
    }

    fn of_connection(
        &mut self,
        key: &SessionKey,
        connection: ConnectionId,
    ) -> Result<&mut Session, SessionError> {
        match self.sessions.get_mut(key) {
            Some(session) if session.connection == connection => Ok(session),
            Some(_) | None => Err(SessionError::NotFound),
        }
    }

    /// Adds and removes partitions and returns all of them, each call beginning with another one.
    pub(crate) fn partitions(
        &mut self,
        key: &SessionKey,
        added: impl IntoIterator<Item = SessionPartition>,
        forgotten: &[SessionPartition],
    ) -> Vec<SessionPartition> {
        let Some(session) = self.sessions.get_mut(key) else { return Vec::new() };
        session.partitions.retain(|partition| !forgotten.contains(partition));
        for partition in added {
            if !session.partitions.contains(&partition) {
                session.partitions.push(partition);
            }
        }
        let mut partitions = session.partitions.clone();
        if !partitions.is_empty() {
            session.turn = (session.turn + 1) % partitions.len();
            partitions.rotate_left(session.turn);
        }
        partitions
    }

    /// True while the session is the one that this connection opened.
    pub(crate) fn is_current(&self, key: &SessionKey, connection: ConnectionId) -> bool {
        self.sessions.get(key).is_some_and(|session| session.connection == connection)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// True while a member of the group has a session here.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.sessions.keys().any(|key| &*key.group == group)
    }

    /// Ends the sessions of a closed connection and says whose they were.
    pub(crate) fn close_connection(&mut self, connection: ConnectionId) -> Vec<SessionKey> {
        let closed: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.connection == connection)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &closed {
            self.sessions.remove(key);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{PartitionIndex, TopicId};

    use super::*;

    const FETCH: SessionUse = SessionUse::Fetch { acknowledges: false };
    const FETCH_AND_ACK: SessionUse = SessionUse::Fetch { acknowledges: true };
    const ACK: SessionUse = SessionUse::Acknowledge;
    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    fn key(member: &str) -> SessionKey {
        SessionKey { group: Arc::from("g"), member: MemberId::new(member) }
    }

    #[test]
    fn epochs_of_a_session_follow_the_table() {
        let open = Ok(Admitted::Opened { replaced: false });
        let replaced = Ok(Admitted::Opened { replaced: true });
        // (session exists with next epoch 5, connection, epoch, use) -> result
        let table = [
            (false, ONE, 0, FETCH, open),
            (false, ONE, 0, FETCH_AND_ACK, Err(SessionError::AcknowledgesAtOpen)),
            (false, ONE, 0, ACK, Err(SessionError::InvalidEpoch)),
            (false, ONE, 5, FETCH, Err(SessionError::NotFound)),
            (false, ONE, 5, ACK, Err(SessionError::NotFound)),
            (false, ONE, -1, FETCH, Err(SessionError::NotFound)),
            (false, ONE, -1, ACK, Err(SessionError::NotFound)),
            (true, ONE, 0, FETCH, replaced.clone()),
            (true, TWO, 0, FETCH, replaced),
            (true, ONE, 0, FETCH_AND_ACK, Err(SessionError::AcknowledgesAtOpen)),
            (true, ONE, 0, ACK, Err(SessionError::InvalidEpoch)),
            (true, ONE, 5, FETCH_AND_ACK, Ok(Admitted::Continued)),
            (true, ONE, 5, ACK, Ok(Admitted::Continued)),
            (true, TWO, 5, FETCH, Err(SessionError::NotFound)),
            (true, ONE, 4, FETCH, Err(SessionError::InvalidEpoch)),
            (true, ONE, 6, ACK, Err(SessionError::InvalidEpoch)),
            (true, ONE, -1, FETCH_AND_ACK, Ok(Admitted::Closing)),
            (true, ONE, -1, ACK, Ok(Admitted::Closing)),
            (true, TWO, -1, ACK, Err(SessionError::NotFound)),
        ];
        for (exists, connection, epoch, purpose, expected) in table {
            let mut sessions = Sessions::new(10);
            if exists {
                sessions.admit(&key("a"), ONE, 0, FETCH).unwrap();
                for epoch in 1..5 {
                    sessions.admit(&key("a"), ONE, epoch, FETCH).unwrap();
                }
            }
            let found = sessions.admit(&key("a"), connection, epoch, purpose);
            assert_eq!(found, expected, "exists {exists}, {connection:?}, epoch {epoch}, {purpose:?}");
        }
    }

    #[test]
    fn the_number_of_sessions_is_bounded_and_a_closed_connection_frees_its_own() {
        let mut sessions = Sessions::new(2);
        sessions.admit(&key("a"), ONE, 0, FETCH).unwrap();
        sessions.admit(&key("b"), TWO, 0, FETCH).unwrap();
        assert_eq!(sessions.admit(&key("c"), ONE, 0, FETCH), Err(SessionError::LimitReached));
        assert_eq!(sessions.close_connection(ONE), [key("a")]);
        assert_eq!(sessions.close_connection(ONE), []);
        sessions.admit(&key("c"), ONE, 0, FETCH).unwrap();
    }

    #[test]
    fn each_fetch_begins_with_another_partition() {
        let mut sessions = Sessions::new(2);
        sessions.admit(&key("a"), ONE, 0, FETCH).unwrap();
        let at = |index| (TopicId::default(), PartitionIndex(index));
        let mut firsts: Vec<_> =
            (0..3).map(|_| sessions.partitions(&key("a"), [at(0), at(1), at(2)], &[])[0]).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [at(0), at(1), at(2)]);
        assert_eq!(sessions.partitions(&key("a"), [], &[at(1), at(2)]), [at(0)]);
    }
}
