//! ShareAcknowledge (KIP-932, KIP-1222): ordinary acknowledgements, answered when they are durable.

use std::sync::Arc;

use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_wire::messages::share_acknowledge::{
    PartitionData, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};

use super::RequestContext;
use super::share_fetch::{
    Acks, FIRST_VERSION_WITH_RENEWAL, admit_renewals, admit_topics, code_of_session, leader_hint,
};
use crate::error::{ErrorCode, code_of};
use crate::node::Node;
use crate::share::durable::ShareKey;
use crate::share::record_state::MemberId;
use crate::share::session::{Admitted, SessionKey, SessionUse};
use crate::share::share_partition::AckBatch;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse {
    let failed = |code: ErrorCode| ShareAcknowledgeResponse {
        error_code: code.code(),
        ..ShareAcknowledgeResponse::default()
    };
    let (Some(group), Some(member)) = (request.group_id.as_deref(), request.member_id.as_deref()) else {
        return failed(ErrorCode::InvalidRequest);
    };
    if let Err(code) = context.may.group(group) {
        return failed(code);
    }
    let manager = &node.share.manager;
    let settings = node.cluster.group_settings(group);
    let session = SessionKey { group: Arc::from(group), member: MemberId::new(member) };
    if member.is_empty() {
        return failed(ErrorCode::InvalidRequest);
    }
    let announced = context.version >= FIRST_VERSION_WITH_RENEWAL && request.is_renew_ack;
    let (acks, mut refused) = admit_topics(node, context, acks_of(&request, &session.group));
    let (acks, unannounced) = admit_renewals(acks, announced, &settings);
    refused.extend(unannounced);
    let epoch = request.share_session_epoch;
    let admitted = manager.sessions().admit(&session, context.connection, epoch, SessionUse::Acknowledge);
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(error) => return failed(code_of_session(error)),
    };
    let results = manager.acknowledge(node, &session.member, &acks).await;
    if admitted == Admitted::Closing {
        manager.finish(node, &manager.release(&session)).await;
        manager.drop_idle();
    }
    let mut response = ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: i32::try_from(settings.lock_duration.as_millis()).unwrap_or(i32::MAX),
        ..ShareAcknowledgeResponse::default()
    };
    let answered = acks.iter().map(|(key, _)| (key.topic_id, key.partition)).zip(results);
    let refused = refused.into_iter().map(|(partition, code)| (partition, Err(code)));
    for ((topic_id, partition), result) in answered.chain(refused) {
        let mut answer = PartitionData {
            partition_index: partition.0,
            error_code: code_of(&result),
            ..PartitionData::default()
        };
        if result == Err(ErrorCode::NotLeaderOrFollower) {
            let (leader, endpoint) = leader_hint(node, topic_id, partition);
            answer.current_leader = leader;
            response.node_endpoints.extend(endpoint);
        }
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == topic_id.0 => topic.partitions.push(answer),
            Some(_) | None => response
                .responses
                .push(ShareAcknowledgeTopicResponse { topic_id: topic_id.0, partitions: vec![answer] }),
        }
    }
    response
}

fn acks_of<'a>(request: &'a ShareAcknowledgeRequest, group: &Arc<str>) -> Acks<'a> {
    let mut acks = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = ShareKey {
                group: Arc::clone(group),
                topic_id: TopicId(topic.topic_id),
                partition: PartitionIndex(partition.partition_index),
            };
            acks.push((key, partition.acknowledgement_batches.iter().map(AckBatch::from).collect()));
        }
    }
    acks
}
