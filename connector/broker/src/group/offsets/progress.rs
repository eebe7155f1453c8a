//! How far a group is in one partition, as a pure machine (KIP-98, KIP-447).
//!
//! ```text
//!  nothing --commit--> committed <--commit marker, abort marker-- committed and staged
//!     |                    \----------------stage----------------->   ^    |
//!     \--stage--> staged --commit---------------------------------->--/    |
//!     ^             |  \--commit marker--> committed                       |
//!     \--abort marker--/                                                   |
//!     \------------------------------deletion, from every state-----------/
//! ```
//!
//! Whoever commits moves it, also past offsets that are staged: of two values the one that was written to the log later
//! counts, whenever its transaction ends. A deletion takes what is staged with it, so that a marker that comes later
//! brings nothing back. Only markers end what a producer staged.

use std::collections::BTreeMap;

use sharestream_base::ids::{LeaderEpoch, Offset, ProducerId, TopicId};

use crate::error::ErrorCode;

/// What a group committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommittedOffset {
    /// The next record to read. Any number, also a negative one: Kafka checks nothing.
    pub(crate) offset: Offset,
    /// Leader epoch of the record before; -1 when the client does not know.
    pub(crate) leader_epoch: LeaderEpoch,
    /// Whatever the client wants to keep with it.
    pub(crate) metadata: String,
    /// When it came, in Unix milliseconds.
    pub(crate) committed_ms: i64,
    /// The topic as it was then: offsets of a topic that is gone mean nothing in another one of its name.
    pub(crate) topic_id: TopicId,
}

/// A committed offset and where it is in the group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Place of its record in the log.
    pub(crate) at: Offset,
    /// What it says.
    pub(crate) value: CommittedOffset,
}

/// The last offset that each producer staged: at least one.
pub(crate) type StagedOffsets = BTreeMap<ProducerId, Written>;

/// How far a group is in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It never committed, or that was deleted.
    #[default]
    Nothing,
    /// Nothing is staged.
    Committed(Written),
    /// Open transactions have the first offsets of it.
    Staged(StagedOffsets),
    /// Open transactions may replace what is committed.
    Both(Written, StagedOffsets),
}

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A consumer or an administrator commits outside a transaction.
    Commit(Written),
    /// A producer stages an offset in its open transaction.
    Stage(ProducerId, Written),
    /// The marker of a producer's transaction came.
    Ended {
        /// Whose.
        producer_id: ProducerId,
        /// Commit or abort.
        commit: bool,
    },
    /// An administrator, or the coordinator's clock, deletes it.
    Delete,
}

impl Progress {
    /// The state after an event. Cannot fail: what may not happen was refused before it was written.
    pub(crate) fn after(self, event: Event) -> Progress {
        match (self, event) {
            (Progress::Nothing | Progress::Committed(_), Event::Commit(new)) => Progress::Committed(new),
            (Progress::Staged(staged) | Progress::Both(_, staged), Event::Commit(new)) => {
                Progress::Both(new, staged)
            }
            (Progress::Nothing, Event::Stage(id, new)) => Progress::Staged(BTreeMap::from([(id, new)])),
            (Progress::Committed(known), Event::Stage(id, new)) => {
                Progress::Both(known, BTreeMap::from([(id, new)]))
            }
            (Progress::Staged(mut staged), Event::Stage(id, new)) => {
                staged.insert(id, new);
                Progress::Staged(staged)
            }
            (Progress::Both(known, mut staged), Event::Stage(id, new)) => {
                staged.insert(id, new);
                Progress::Both(known, staged)
            }
            (Progress::Nothing, Event::Ended { .. }) => Progress::Nothing,
            (Progress::Committed(known), Event::Ended { .. }) => Progress::Committed(known),
            (Progress::Staged(staged), Event::Ended { producer_id, commit }) => {
                ended(None, staged, producer_id, commit)
            }
            (Progress::Both(known, staged), Event::Ended { producer_id, commit }) => {
                ended(Some(known), staged, producer_id, commit)
            }
            (
                Progress::Nothing | Progress::Committed(_) | Progress::Staged(_) | Progress::Both(..),
                Event::Delete,
            ) => Progress::Nothing,
        }
    }

    /// What is committed.
    pub(crate) fn committed(&self) -> Option<&CommittedOffset> {
        match self {
            Progress::Committed(known) | Progress::Both(known, _) => Some(&known.value),
            Progress::Nothing | Progress::Staged(_) => None,
        }
    }

    /// True while an open transaction may still change it.
    pub(crate) fn is_staged(&self) -> bool {
        match self {
            Progress::Staged(_) | Progress::Both(..) => true,
            Progress::Nothing | Progress::Committed(_) => false,
        }
    }

    /// What a reader sees; `stable` asks for what no open transaction may still change. Errors:
    /// UNSTABLE_OFFSET_COMMIT.
    pub(crate) fn read(&self, stable: bool) -> Result<Option<&CommittedOffset>, ErrorCode> {
        if stable && self.is_staged() { Err(ErrorCode::UnstableOffsetCommit) } else { Ok(self.committed()) }
    }
}

fn ended(
    known: Option<Written>,
    mut staged: StagedOffsets,
    producer_id: ProducerId,
    commit: bool,
) -> Progress {
    let new = staged.remove(&producer_id).filter(|_| commit);
    let newest = match (known, new) {
        (Some(known), Some(new)) if new.at > known.at => Some(new),
        (Some(known), Some(_) | None) => Some(known),
        (None, new) => new,
    };
    match (newest, staged.is_empty()) {
        (Some(newest), true) => Progress::Committed(newest),
        (Some(newest), false) => Progress::Both(newest, staged),
        (None, true) => Progress::Nothing,
        (None, false) => Progress::Staged(staged),
    }
}

#[cfg(test)]
mod tests;
