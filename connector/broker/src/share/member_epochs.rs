//! What a source leader knows of members' epochs (KIP-1289, step 8).
//!
//! Membership is the group coordinator's, which may be another node; so it is asked over the protocol, by
//! ShareGroupDescribe, and the answer is kept for a short time. A request that does not fit the known epoch is judged
//! by a fresh answer only. A member that went on to a newer epoch within that time is still accepted with its old one:
//! ownership of the records is checked strictly anyway, and the commit path depends on neither.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kafka_protocol::messages::{GroupId, ShareGroupDescribeRequest};
use sharestream_base::Instant;
use sharestream_base::ids::MemberEpoch;

use super::session::SessionKey;
use crate::error::ErrorCode;
use crate::node::Node;

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// Members that are kept; beyond it all are forgotten, which costs one question each.
const KNOWN_MAX: usize = 4_096;
/// Version of ShareGroupDescribe that is spoken.
const DESCRIBE_VERSION: i16 = 1;

/// Member epochs as the group coordinators told them.
#[derive(Debug, Default)]
pub(crate) struct MemberEpochs {
    known: Mutex<BTreeMap<SessionKey, (MemberEpoch, Instant)>>,
}

impl MemberEpochs {
    /// Checks a member's epoch. Errors: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (older than the coordinator's: ask for
    /// the new one and repeat), FENCED_MEMBER_EPOCH (newer than the coordinator's), and errors of asking.
    pub(crate) async fn check(
        &self,
        node: &Node,
        member: &SessionKey,
        epoch: MemberEpoch,
    ) -> Result<(), ErrorCode> {
        let now = node.env.clock.now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(member).copied();
        if known.is_some_and(|(known, asked)| known == epoch && now < asked + BELIEVED) {
            return Ok(());
        }
        let current = ask(node, member).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(current) = current else {
            known.remove(member);
            return current.map(|_| ());
        };
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(member.clone(), (current, now));
        match epoch.cmp(&current) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(ErrorCode::StaleMemberEpoch),
            std::cmp::Ordering::Greater => Err(ErrorCode::FencedMemberEpoch),
        }
    }
}

async fn ask(node: &Node, member: &SessionKey) -> Result<MemberEpoch, ErrorCode> {
    let coordinator = node.cluster.group_coordinator(&member.group);
    let coordinator = coordinator.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let group = GroupId(member.group.to_string().into());
    let request = ShareGroupDescribeRequest::default().with_group_ids(vec![group]);
    let response = node.peers.call(coordinator, request, DESCRIBE_VERSION).await.map_err(|e| e.code())?;
    let described = response.groups.into_iter().next().ok_or(ErrorCode::UnknownServerError)?;
    match ErrorCode::try_from_code(described.error_code) {
        Some(ErrorCode::GroupIdNotFound) => Err(ErrorCode::UnknownMemberId),
        Some(code) => Err(code),
        None => {
            let found = described.members.iter().find(|found| *found.member_id == *member.member.0);
            found.map(|found| MemberEpoch(found.member_epoch)).ok_or(ErrorCode::UnknownMemberId)
        }
    }
}
