//! The groups of one partition of `__consumer_offsets`, as a pure machine. Decisions give records; only replaying records
//! and markers changes the state, live and at recovery alike.
//!
//! A group begins with its first offset, committed or staged, and ends when it is deleted. It has no members here: who
//! says to be one is refused as Kafka refuses a stranger of a group without members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sharestream_base::ids::{Offset, ProducerId};

use super::progress::{CommittedOffset, Event, Progress, Written};
use super::records::Record;
use crate::error::ErrorCode;
use crate::txn::TopicPartition;

type Group = BTreeMap<TopicPartition, Progress>;

/// The shard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    groups: BTreeMap<Arc<str>, Group>,
    /// Where each producer has staged something: its marker ends that.
    staged: BTreeMap<ProducerId, BTreeSet<(Arc<str>, TopicPartition)>>,
    /// Everything below was replayed.
    end: Offset,
}

impl Default for Shard {
    fn default() -> Self {
        Shard { groups: BTreeMap::new(), staged: BTreeMap::new(), end: Offset(0) }
    }
}

/// Result of a decision: what to append, then to replay.
pub(crate) type Decided = Result<Vec<Record>, ErrorCode>;

/// When offsets are too old to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// Now, in Unix milliseconds.
    pub(crate) now_ms: i64,
    /// How long they are kept after their commit, in milliseconds.
    pub(crate) keep_ms: i64,
}

impl Shard {
    /// Checks who commits and gives the records of the offsets. A generation of -1 says to be no member.
    ///
    /// Errors, as of a group without members: ILLEGAL_GENERATION (a member of a group that is not there),
    /// UNKNOWN_MEMBER_ID.
    pub(crate) fn decide_commit(
        &self,
        group: &str,
        generation: i32,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
    ) -> Decided {
        let known = self.groups.get_key_value(group).map(|(known, _)| Arc::clone(known));
        if generation >= 0 {
            return Err(match known {
                Some(_) => ErrorCode::UnknownMemberId,
                None => ErrorCode::IllegalGeneration,
            });
        }
        let group = known.unwrap_or_else(|| Arc::from(group));
        let record = |(partition, value)| Record::Offset { group: Arc::clone(&group), partition, value };
        Ok(offsets.into_iter().map(record).collect())
    }

    /// Deletes offsets, staged ones too; what is not there needs no record. Errors: GROUP_ID_NOT_FOUND.
    pub(crate) fn decide_delete_offsets(&self, group: &str, partitions: &[TopicPartition]) -> Decided {
        let (group, known) = self.groups.get_key_value(group).ok_or(ErrorCode::GroupIdNotFound)?;
        let there = partitions.iter().filter(|partition| known.contains_key(*partition));
        Ok(there.map(|partition| offset_deleted(group, partition)).collect())
    }

    /// Deletes a group and its offsets, staged ones too. Errors: GROUP_ID_NOT_FOUND.
    pub(crate) fn decide_delete_group(&self, group: &str) -> Decided {
        let (group, known) = self.groups.get_key_value(group).ok_or(ErrorCode::GroupIdNotFound)?;
        let offsets = known.keys().map(|partition| offset_deleted(group, partition));
        Ok(offsets.chain([Record::GroupDeleted { group: Arc::clone(group) }]).collect())
    }

    /// Deletes offsets that are too old, offsets that `is_gone` names, and groups that have none left. What an open
    /// transaction may still change stays, for its marker to end.
    pub(crate) fn decide_sweep(
        &self,
        retention: Retention,
        is_gone: impl Fn(&TopicPartition, &CommittedOffset) -> bool,
    ) -> Vec<Record> {
        let is_old = |value: &CommittedOffset| {
            retention.now_ms.saturating_sub(value.committed_ms) >= retention.keep_ms
        };
        let mut records = Vec::new();
        for (group, known) in &self.groups {
            let mut left = known.len();
            for (partition, progress) in known {
                let Some(value) = progress.committed().filter(|_| !progress.is_staged()) else { continue };
                if is_old(value) || is_gone(partition, value) {
                    records.push(offset_deleted(group, partition));
                    left -= 1;
                }
            }
            if left == 0 {
                records.push(Record::GroupDeleted { group: Arc::clone(group) });
            }
        }
        records
    }

    /// True for a group that began and was not deleted.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Every group, by name.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    /// How far a group is in a partition.
    pub(crate) fn progress(&self, group: &str, partition: &TopicPartition) -> Option<&Progress> {
        self.groups.get(group)?.get(partition)
    }

    /// How far a group is everywhere, by topic and partition.
    pub(crate) fn progress_of(&self, group: &str) -> impl Iterator<Item = (&TopicPartition, &Progress)> {
        self.groups.get(group).into_iter().flatten()
    }

    /// Applies a record at its place in the log, staged by a producer or not. Cannot fail.
    pub(crate) fn replay(&mut self, record: Record, at: Offset, staged_by: Option<ProducerId>) {
        self.end = at.next();
        match record {
            Record::Offset { group, partition, value } => {
                let written = Written { at, value };
                let event = match staged_by {
                    Some(producer_id) => {
                        let place = (Arc::clone(&group), partition.clone());
                        self.staged.entry(producer_id).or_default().insert(place);
                        Event::Stage(producer_id, written)
                    }
                    None => Event::Commit(written),
                };
                self.apply(&group, &partition, event);
            }
            Record::OffsetDeleted { group, partition } => self.apply(&group, &partition, Event::Delete),
            Record::GroupDeleted { group } => {
                self.groups.remove(&group);
            }
        }
    }

    /// Applies the end of a producer's transaction at its place in the log; one that is there already is a repeat, and
    /// what was staged since is of the next transaction. Cannot fail.
    pub(crate) fn replay_marker(&mut self, producer_id: ProducerId, commit: bool, at: Offset) {
        if at < self.end {
            return;
        }
        self.end = at.next();
        for (group, partition) in self.staged.remove(&producer_id).unwrap_or_default() {
            self.apply(&group, &partition, Event::Ended { producer_id, commit });
        }
    }

    /// A group that is gone does not come back with the end of a transaction.
    fn apply(&mut self, group: &Arc<str>, partition: &TopicPartition, event: Event) {
        let begins = matches!(event, Event::Commit(_) | Event::Stage(..));
        let known = match begins {
            true => self.groups.entry(Arc::clone(group)).or_default(),
            false => match self.groups.get_mut(group) {
                Some(known) => known,
                None => return,
            },
        };
        match known.remove(partition).unwrap_or_default().after(event) {
            Progress::Nothing => {}
            progress @ (Progress::Committed(_) | Progress::Staged(_) | Progress::Both(..)) => {
                known.insert(partition.clone(), progress);
            }
        }
    }
}

fn offset_deleted(group: &Arc<str>, partition: &TopicPartition) -> Record {
    Record::OffsetDeleted { group: Arc::clone(group), partition: partition.clone() }
}

#[cfg(test)]
mod tests;
