//! Membership of one share group, as a pure machine (KIP-932).
//!
//! ```text
//! (unknown) --heartbeat, epoch 0--> member --leave (-1) or session time-out--> (unknown)
//!                                    |  ^
//!                                    \--/ heartbeat with its epoch; takes the group's epoch over
//! ```
//!
//! The group's epoch rises when members, subscriptions or topics change; a member learns the new epoch with its next
//! heartbeat. An epoch that is neither the member's nor the one before it (a lost answer) is fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_base::ids::MemberEpoch;

use super::assignor::{self, Assignment, TopicShape};
use crate::error::ErrorCode;

/// A heartbeat of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Member id, made by the client.
    pub(crate) member: String,
    /// 0 joins, -1 leaves, else the member's epoch.
    pub(crate) epoch: MemberEpoch,
    /// Rack, when it is told.
    pub(crate) rack: Option<String>,
    /// Topics, when they are told; else they are unchanged.
    pub(crate) topics: Option<BTreeSet<String>>,
    /// What the client calls itself.
    pub(crate) client_id: String,
}

impl Heartbeat {
    /// Errors: INVALID_REQUEST.
    pub(crate) fn check(&self) -> Result<(), ErrorCode> {
        let nameless = self.member.is_empty() || self.rack.as_deref() == Some("");
        let joins_nothing = self.epoch.0 == 0 && self.topics.as_ref().is_none_or(BTreeSet::is_empty);
        if nameless || joins_nothing || self.epoch.0 < -1 {
            return Err(ErrorCode::InvalidRequest);
        }
        Ok(())
    }
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The member's epoch from now on.
    pub(crate) epoch: MemberEpoch,
    /// Its partitions, when they may be news to it.
    pub(crate) assignment: Option<Assignment>,
}

/// A member as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its epoch.
    pub(crate) epoch: MemberEpoch,
    /// The epoch before: a heartbeat whose answer was lost still carries it.
    previous_epoch: MemberEpoch,
    /// Its topics.
    pub(crate) topics: BTreeSet<String>,
    /// Its rack.
    pub(crate) rack: Option<String>,
    /// What its client calls itself.
    pub(crate) client_id: String,
    /// When it is out without another heartbeat.
    deadline: Instant,
}

/// A share group.
#[derive(Debug, Default)]
pub(crate) struct ShareGroup {
    epoch: i32,
    shapes: BTreeMap<String, TopicShape>,
    members: BTreeMap<String, Member>,
    /// Every topic that a member ever subscribed to.
    known_topics: BTreeSet<String>,
}

impl ShareGroup {
    /// Without members; epochs rise from `epoch`, which is at least 0.
    pub(crate) fn starting_at(epoch: i32) -> Self {
        ShareGroup { epoch, ..ShareGroup::default() }
    }

    /// The group's epoch.
    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Its members by id.
    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// What a member is assigned.
    pub(crate) fn assignment(&self, member: &Member) -> Assignment {
        assignor::assign(&member.topics, &self.shapes)
    }

    /// Every topic that a member ever subscribed to.
    pub(crate) fn known_topics(&self) -> &BTreeSet<String> {
        &self.known_topics
    }

    /// Remembers a topic that an administrator named.
    pub(crate) fn note_topic(&mut self, topic: &str) {
        self.known_topics.insert(topic.to_owned());
    }

    /// Forgets a topic whose offsets were deleted.
    pub(crate) fn forget_topic(&mut self, topic: &str) {
        self.known_topics.remove(topic);
    }

    /// Topics as they are now; the group's epoch rises when that changes an assignment.
    pub(crate) fn set_topics(&mut self, shape: impl Fn(&str) -> Option<TopicShape>) {
        let subscribed = self.members.values().flat_map(|member| &member.topics);
        let shapes: BTreeMap<String, TopicShape> =
            subscribed.filter_map(|name| Some((name.clone(), shape(name)?))).collect();
        if shapes != self.shapes {
            self.shapes = shapes;
            self.epoch += 1;
        }
    }

    /// A heartbeat. Errors: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, INVALID_REQUEST.
    /// `shape` says what a topic is now: the reply is made from it.
    pub(crate) fn heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        limits: MemberLimits,
        now: Instant,
        shape: impl Fn(&str) -> Option<TopicShape>,
    ) -> Result<Reply, ErrorCode> {
        let MemberEpoch(epoch) = heartbeat.epoch;
        heartbeat.check()?;
        if epoch == -1 {
            self.members.remove(&heartbeat.member).ok_or(ErrorCode::UnknownMemberId)?;
            self.epoch += 1;
            return Ok(Reply { epoch: MemberEpoch(-1), assignment: None });
        }
        let full = epoch == 0 || heartbeat.topics.is_some();
        let deadline = now + limits.session_timeout;
        match self.members.get_mut(&heartbeat.member) {
            Some(member) => {
                if epoch != 0 && epoch != member.epoch.0 && epoch != member.previous_epoch.0 {
                    return Err(ErrorCode::FencedMemberEpoch);
                }
                member.deadline = deadline;
                member.client_id = heartbeat.client_id;
                if heartbeat.rack.is_some() {
                    member.rack = heartbeat.rack;
                }
                if let Some(topics) = heartbeat.topics
                    && topics != member.topics
                {
                    self.known_topics.extend(topics.iter().cloned());
                    member.topics = topics;
                    self.epoch += 1;
                }
            }
            None if epoch != 0 => return Err(ErrorCode::UnknownMemberId),
            None => {
                if self.members.len() >= limits.members_max {
                    return Err(ErrorCode::GroupMaxSizeReached);
                }
                let topics = heartbeat.topics.ok_or(ErrorCode::InvalidRequest)?;
                self.known_topics.extend(topics.iter().cloned());
                self.epoch += 1;
                self.members.insert(
                    heartbeat.member.clone(),
                    Member {
                        epoch: MemberEpoch(0),
                        previous_epoch: MemberEpoch(0),
                        topics,
                        rack: heartbeat.rack,
                        client_id: heartbeat.client_id,
                        deadline,
                    },
                );
            }
        }
        self.set_topics(shape);
        let group_epoch = MemberEpoch(self.epoch);
        let Some(member) = self.members.get_mut(&heartbeat.member) else {
            return Err(ErrorCode::UnknownMemberId);
        };
        let behind = member.epoch != group_epoch;
        // A member that still sends the epoch before has not seen the last answer.
        let lost = epoch != 0 && epoch != member.epoch.0;
        if behind {
            member.previous_epoch = member.epoch;
            member.epoch = group_epoch;
        }
        let assignment = (full || behind || lost).then(|| assignor::assign(&member.topics, &self.shapes));
        Ok(Reply { epoch: group_epoch, assignment })
    }

    /// Removes members whose heartbeats stopped and says who.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        let gone: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.deadline <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.members.remove(id);
            self.epoch += 1;
        }
        gone
    }
}

/// Limits of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLimits {
    /// `share.session.timeout.ms`.
    pub(crate) session_timeout: Duration,
    /// Kafka: `group.share.max.size`.
    pub(crate) members_max: usize,
}

#[cfg(test)]
mod tests;
