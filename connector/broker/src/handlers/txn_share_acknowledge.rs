//! TxnShareAcknowledge (KIP-1289, steps 8 to 11): stages acknowledgements into a producer's transaction.
//!
//! Validate (member epoch, ownership, state, types) -> map to `__share_group_state` partitions -> register these with
//! the transaction's real coordinator -> make TX_PENDING durable -> answer. A refused partition changes nothing; the
//! client must give up the whole transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, TopicName, TransactionalId};
use sharestream_base::ids::{MemberEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use sharestream_wire::txn_share_acknowledge::{
    TxnAcknowledgePartitionResponse, TxnAcknowledgeTopicResponse, TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeResponse,
};

use super::RequestContext;
use crate::cluster::SHARE_STATE_TOPIC;
use crate::error::{ErrorCode, code_of};
use crate::node::Node;
use crate::peer::Attempts;
use crate::share::durable::ShareKey;
use crate::share::leader::{LeaderWrite, ShareLeader, limits_of};
use crate::share::manager::{OwnedWrite, code_of_ack, for_client};
use crate::share::record_state::MemberId;
use crate::share::session::SessionKey;
use crate::share::share_partition::AckBatch;
use crate::share_coordinator::state_partition;

/// Version of AddPartitionsToTxn between brokers under transaction version 2.
const ADD_PARTITIONS_VERSION: i16 = 5;

/// Acknowledgements for one source partition.
struct Stage<'a> {
    key: ShareKey,
    batches: Vec<AckBatch<'a>>,
    leader: Option<Arc<ShareLeader>>,
    result: Result<(), ErrorCode>,
}

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: TxnShareAcknowledgeRequest,
) -> TxnShareAcknowledgeResponse {
    let began = node.env.clock.now();
    let staged = stage(node, context, &request).await;
    node.metrics.stage_answered(node.env.clock.now() - began);
    match staged {
        Ok(stages) => respond(stages),
        Err(code) => {
            let code = for_client(code);
            TxnShareAcknowledgeResponse { error_code: code.code(), ..TxnShareAcknowledgeResponse::default() }
        }
    }
}

async fn stage<'a>(
    node: &Arc<Node>,
    context: &RequestContext,
    request: &'a TxnShareAcknowledgeRequest,
) -> Result<Vec<Stage<'a>>, ErrorCode> {
    let transactional_id = request.transactional_id.as_deref().unwrap_or_default();
    if transactional_id.is_empty() || request.group_id.is_empty() || request.member_id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    context.may.transactional_id(transactional_id)?;
    context.may.group(&request.group_id)?;
    let session =
        SessionKey { group: Arc::from(&*request.group_id), member: MemberId::new(&request.member_id) };
    let producer = (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch));
    node.share.member_epochs.check(node, &session, MemberEpoch(request.member_epoch)).await?;

    let mut stages = stages_of(request, &session.group);
    let mut state_partitions = BTreeSet::new();
    for stage in &mut stages {
        let checked = match context.may_topic_id(node, stage.key.topic_id) {
            Ok(()) => check(node, stage, &session.member, producer).await,
            Err(code) => Err(code),
        };
        match checked
            .and_then(|()| state_partition(node, &stage.key).ok_or(ErrorCode::CoordinatorNotAvailable))
        {
            Ok(index) => {
                state_partitions.insert(index);
            }
            Err(code) => stage.result = Err(code),
        }
    }
    if state_partitions.is_empty() {
        return Ok(stages);
    }
    register(node, transactional_id, producer, &state_partitions).await?;

    let mut writes: Vec<OwnedWrite> = Vec::new();
    let mut written = Vec::new();
    for (index, stage) in stages.iter_mut().enumerate().filter(|(_, stage)| stage.result.is_ok()) {
        let Some(leader) = &stage.leader else { continue };
        let staged = leader.with(|partition| partition.stage(&session.member, producer, &stage.batches));
        match staged.and_then(|staged| staged.map_err(code_of_ack)) {
            Ok(Some(pending)) => {
                writes.push((Arc::clone(leader), LeaderWrite::Runs(pending)));
                written.push(index);
            }
            Ok(None) => {}
            Err(code) => stage.result = Err(code),
        }
    }
    for (index, result) in written.into_iter().zip(node.share.manager.finish(node, &writes).await) {
        if let Some(stage) = stages.get_mut(index) {
            stage.result = result;
        }
    }
    Ok(stages)
}

fn stages_of<'a>(request: &'a TxnShareAcknowledgeRequest, group: &Arc<str>) -> Vec<Stage<'a>> {
    let mut stages = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            stages.push(Stage {
                key: ShareKey {
                    group: Arc::clone(group),
                    topic_id: TopicId(topic.topic_id),
                    partition: PartitionIndex(partition.partition_index),
                },
                batches: partition.acknowledgement_batches.iter().map(AckBatch::from).collect(),
                leader: None,
                result: Ok(()),
            });
        }
    }
    stages
}

async fn check(
    node: &Node,
    stage: &mut Stage<'_>,
    member: &MemberId,
    producer: (ProducerId, ProducerEpoch),
) -> Result<(), ErrorCode> {
    let leader = node.share.manager.leader(node, &stage.key).await?;
    let limits = limits_of(&node.cluster.group_settings(&stage.key.group));
    let checked = leader.with(|partition| {
        partition.set_limits(limits);
        partition.check_stage(member, producer, &stage.batches)
    })?;
    stage.leader = Some(leader);
    checked.map_err(code_of_ack)
}

/// Makes the state partitions participants of the transaction (step 10). The coordinator also knows whether producer
/// id and epoch may still do so.
async fn register(
    node: &Node,
    transactional_id: &str,
    producer: (ProducerId, ProducerEpoch),
    partitions: &BTreeSet<PartitionIndex>,
) -> Result<(), ErrorCode> {
    let mut attempts = Attempts::new(&node.env);
    loop {
        match register_once(node, transactional_id, producer, partitions).await {
            Err(code) if attempts.again(&node.env, code).await => {}
            answer => return answer,
        }
    }
}

async fn register_once(
    node: &Node,
    transactional_id: &str,
    (producer_id, producer_epoch): (ProducerId, ProducerEpoch),
    partitions: &BTreeSet<PartitionIndex>,
) -> Result<(), ErrorCode> {
    let coordinator = node.cluster.transaction_coordinator(transactional_id);
    let coordinator = coordinator.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(TopicName(SHARE_STATE_TOPIC.into()))
        .with_partitions(partitions.iter().map(|index| index.0).collect());
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(TransactionalId(transactional_id.to_owned().into()))
        .with_producer_id(producer_id.0.into())
        .with_producer_epoch(producer_epoch.0)
        .with_verify_only(false)
        .with_topics(vec![topic]);
    let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
    let response =
        node.peers.call(coordinator, request, ADD_PARTITIONS_VERSION).await.map_err(|e| e.code())?;
    if let Some(code) = ErrorCode::try_from_code(response.error_code) {
        return Err(code);
    }
    let results = response.results_by_transaction.iter().flat_map(|transaction| &transaction.topic_results);
    let mut codes = results.flat_map(|topic| &topic.results_by_partition).map(|p| p.partition_error_code);
    codes.find_map(ErrorCode::try_from_code).map_or(Ok(()), Err)
}

fn respond(stages: Vec<Stage<'_>>) -> TxnShareAcknowledgeResponse {
    let mut response = TxnShareAcknowledgeResponse::default();
    for stage in stages {
        let answer = TxnAcknowledgePartitionResponse {
            partition_index: stage.key.partition.0,
            error_code: code_of(&stage.result),
            error_message: stage.result.err().map(|code| code.to_string().into()),
        };
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == stage.key.topic_id.0 => topic.partitions.push(answer),
            Some(_) | None => response.responses.push(TxnAcknowledgeTopicResponse {
                topic_id: stage.key.topic_id.0,
                partitions: vec![answer],
            }),
        }
    }
    response
}
