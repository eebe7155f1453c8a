//! What can happen to a run of records, and who makes it happen.

use sharestream_base::Instant;

use super::{Acknowledgement, Marker, MemberId, Staged, WriteId};

/// What can happen to a run.
#[derive(Clone, Debug)]
pub(crate) enum Event<'a> {
    /// A member's ShareFetch takes it. Made by the share-partition leader.
    Acquire {
        /// The member.
        member: &'a MemberId,
        /// When its lock expires.
        lock_deadline: Instant,
    },
    /// The log says that the records belong to an aborted transaction (share.isolation.level=read_committed).
    Skip {
        /// The write that will carry it.
        write: WriteId,
    },
    /// The holder acknowledges.
    Acknowledge {
        /// The member that acknowledges.
        member: &'a MemberId,
        /// Its decision.
        ack: Acknowledgement,
        /// The write that will carry it.
        write: WriteId,
    },
    /// The holder renews its lock (KIP-1222).
    Renew {
        /// The member that renews.
        member: &'a MemberId,
        /// The new deadline.
        lock_deadline: Instant,
    },
    /// Time has passed. Made by the leader's timer.
    ExpireLock {
        /// Now.
        now: Instant,
        /// The write that will carry it.
        write: WriteId,
    },
    /// A share session ended: closed by its member, or with its connection.
    CloseSession {
        /// The session's member.
        member: &'a MemberId,
        /// The write that will carry it.
        write: WriteId,
    },
    /// The holder stages into a transaction (KIP-1289).
    Stage {
        /// The member that stages.
        member: &'a MemberId,
        /// Transaction and intent.
        staged: Staged,
        /// The write that will carry it.
        write: WriteId,
    },
    /// A write is durable.
    Written {
        /// Which.
        write: WriteId,
    },
    /// A write failed, or nobody knows.
    WriteFailed {
        /// Which.
        write: WriteId,
        /// Deadline of the re-armed lock.
        lock_deadline: Instant,
    },
    /// The leader takes up the dead letter. Made by the leader's timer.
    SendLetter {
        /// The letter.
        letter: WriteId,
    },
    /// The dead letter is written, or given up as Kafka gives it up.
    LetterDone {
        /// Which.
        letter: WriteId,
        /// The write that will carry the end.
        write: WriteId,
    },
    /// The transaction coordinator ended a transaction; the share coordinator has made that durable.
    Resolve {
        /// The marker.
        marker: Marker,
    },
}
