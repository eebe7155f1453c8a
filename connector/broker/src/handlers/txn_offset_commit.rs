//! TxnOffsetCommit: a producer stages how far a group is; it counts when its transaction commits (KIP-98,
//! KIP-447).
//!
//! The first offsets of a transaction in the group's log need the transaction coordinator's word. From
//! version 5 on (transaction version 2, KIP-890) this coordinator adds the group itself, below it verifies
//! that AddOffsetsToTxn has.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TopicName, TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::RequestContext;
use super::offsets::{Asked, Committing, Results, asked};
use super::participation::{self, Question};
use super::refusals::Refuse;
use crate::cluster::GROUP_TOPIC;
use crate::error::ErrorCode;
use crate::group::offsets::{CommittedOffset, Staging};
use crate::log::TransactionVersion;
use crate::node::Node;
use crate::txn::{Identity, TopicPartition};

/// From this version on the coordinator adds the group to the transaction.
const FIRST_VERSION_2: i16 = 5;
/// From this version on clients know TRANSACTION_ABORTABLE.
const VERSION_WITH_ABORTABLE: i16 = 4;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    mut request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let may = &context.may;
    let allowed = may.transactional_id(&request.transactional_id);
    if let Err(code) = allowed.and_then(|()| may.group(&request.group_id)) {
        return request.refuse(context.version, code.code());
    }
    let mut committing = Committing::default();
    for topic in std::mem::take(&mut request.topics) {
        let allowed = may.topic(&topic.name);
        for partition in topic.partitions {
            committing.add(node, allowed, asked!(topic.name, partition));
        }
    }
    if !committing.is_empty() {
        let offsets = committing.take_offsets();
        committing.settle(stage(node, context.version, &request, offsets).await);
    }
    TxnOffsetCommitResponse::default().with_topics(committing.results().into_iter().map(topic).collect())
}

/// Errors: INVALID_GROUP_ID, INVALID_REQUEST, those of [`guarded`] and of
/// [`OffsetCoordinator::commit`](crate::group::offsets::OffsetCoordinator::commit).
async fn stage(
    node: &Arc<Node>,
    api_version: i16,
    request: &TxnOffsetCommitRequest,
    offsets: Vec<(TopicPartition, CommittedOffset)>,
) -> Result<(), ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let staging = guarded(node, api_version, request).await?;
    node.offsets.commit(node, &request.group_id, request.generation_id, offsets, Some(&staging))
}

/// The right to stage: the group's log as it was when the request came, with the transaction coordinator's
/// word where it is needed. Errors: NOT_COORDINATOR, and what the transaction coordinator says.
async fn guarded(
    node: &Arc<Node>,
    api_version: i16,
    request: &TxnOffsetCommitRequest,
) -> Result<Staging, ErrorCode> {
    let index = node.cluster.group_partition(&request.group_id).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let led = node.led(GROUP_TOPIC, index).map_err(|_| ErrorCode::NotCoordinator)?;
    let identity = Identity {
        producer_id: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let adds = api_version >= FIRST_VERSION_2;
    let version = if adds { TransactionVersion::V2 } else { TransactionVersion::V1 };
    if request.transactional_id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let guard = led.staging_guard(identity.producer_id, identity.epoch, version);
    let guard = guard.map_err(|_| ErrorCode::NotCoordinator)?;
    if guard.is_some() {
        let transactional_id = &request.transactional_id;
        let question = Question { transactional_id, identity, verify_only: !adds };
        let place = (TopicName(StrBytes::from_static_str(GROUP_TOPIC)), index.0);
        let topics = BTreeMap::from([(place.0.clone(), vec![index.0])]);
        let said = participation::ask(node, question, topics).await;
        let said = said.map(|codes| codes.get(&place).copied());
        match said {
            Ok(Some(None)) => {}
            Ok(Some(Some(code))) | Err(code) => return Err(for_producer(code, api_version)),
            Ok(None) => return Err(ErrorCode::UnknownServerError),
        }
    }
    Ok(Staging { led, identity, guard, version })
}

/// What a producer is told when the transaction coordinator refuses.
fn for_producer(code: ErrorCode, api_version: i16) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        // Retriable for every version of every client, where it looks for the coordinator of the group again.
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::ConcurrentTransactions if api_version < FIRST_VERSION_2 => {
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorCode::InvalidTxnState if (VERSION_WITH_ABORTABLE..FIRST_VERSION_2).contains(&api_version) => {
            ErrorCode::TransactionAbortable
        }
        code => code,
    }
}

fn topic((name, partitions): (TopicName, Results)) -> TxnOffsetCommitResponseTopic {
    let partitions = partitions.into_iter().map(|(index, code)| {
        TxnOffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code)
    });
    TxnOffsetCommitResponseTopic::default().with_name(name).with_partitions(partitions.collect())
}
