//! ShareFetch (KIP-932, KIP-1206, KIP-1222): acknowledges, then acquires, waiting for records if need be.
//!
//! `min_bytes` is taken as 1: the first acquired records are sent. `batch_size` is not used: an acquired range is as
//! long as its history is one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, select_all};
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_base::{Instant, watch};
use sharestream_wire::messages::share_fetch::{
    AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchRequest, ShareFetchResponse,
    ShareFetchableTopicResponse,
};
use tracing::debug;

use super::RequestContext;
use crate::error::ErrorCode;
use crate::group::config::GroupSettings;
use crate::log::LogEnds;
use crate::node::Node;
use crate::share::durable::ShareKey;
use crate::share::leader::{Got, ShareLeader, Want};
use crate::share::manager::{OwnedWrite, ShareManager};
use crate::share::record_state::MemberId;
use crate::share::session::{Admitted, SessionError, SessionKey, SessionPartition, SessionUse};
use crate::share::share_partition::{AckBatch, AcquireMode};

/// Acknowledge type 4.
const RENEW: i8 = 4;
/// From this version on locks can be renewed.
pub(super) const FIRST_VERSION_WITH_RENEWAL: i16 = 2;

type Answers = BTreeMap<SessionPartition, PartitionData>;

pub(super) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: ShareFetchRequest,
) -> ShareFetchResponse {
    let (Some(group), Some(member)) = (request.group_id.as_deref(), request.member_id.as_deref()) else {
        return failed(ErrorCode::InvalidRequest);
    };
    if member.is_empty() {
        return failed(ErrorCode::InvalidRequest);
    }
    if let Err(code) = context.may.group(group) {
        return failed(code);
    }
    let session = SessionKey { group: Arc::from(group), member: MemberId::new(member) };
    let settings = node.cluster.group_settings(group);
    match fetch(node, context, &request, &session, &settings).await {
        Ok(answers) => respond(node, answers, &settings),
        Err(code) => failed(code),
    }
}

fn failed(code: ErrorCode) -> ShareFetchResponse {
    ShareFetchResponse { error_code: code.code(), ..ShareFetchResponse::default() }
}

/// What the client is told of a refused session epoch.
pub(super) fn code_of_session(error: SessionError) -> ErrorCode {
    match error {
        SessionError::NotFound => ErrorCode::ShareSessionNotFound,
        SessionError::InvalidEpoch => ErrorCode::InvalidShareSessionEpoch,
        SessionError::AcknowledgesAtOpen => ErrorCode::InvalidRequest,
        SessionError::LimitReached => ErrorCode::ShareSessionLimitReached,
    }
}

async fn fetch(
    node: &Arc<Node>,
    context: &RequestContext,
    request: &ShareFetchRequest,
    session: &SessionKey,
    settings: &GroupSettings,
) -> Result<Answers, ErrorCode> {
    let manager = &node.share.manager;
    let (acks, mut refused) = admit_topics(node, context, acks_of(request, &session.group));
    let (acks, unannounced) =
        admit_renewals(acks, context.version >= FIRST_VERSION_WITH_RENEWAL && request.is_renew_ack, settings);
    refused.extend(unannounced);
    check_sizes(request)?;
    let purpose = SessionUse::Fetch { acknowledges: !acks.is_empty() || !refused.is_empty() };
    let (admitted, partitions) = {
        let mut sessions = manager.sessions();
        let admitted = sessions.admit(session, context.connection, request.share_session_epoch, purpose);
        let admitted = admitted.map_err(code_of_session)?;
        (admitted, sessions.partitions(session, added(request), &forgotten(request)))
    };
    if admitted == (Admitted::Opened { replaced: true }) {
        manager.finish(node, &manager.release(session)).await;
    }
    let mut answers = Answers::new();
    if matches!(admitted, Admitted::Opened { .. }) {
        // The first answer of a session names all that was asked for.
        for partition in &partitions {
            answer_for(&mut answers, *partition);
        }
    }
    for ((topic_id, partition), code) in refused {
        answer_for(&mut answers, (topic_id, partition)).acknowledge_error_code = code.code();
    }
    let results = manager.acknowledge(node, &session.member, &acks).await;
    for ((key, _), result) in acks.iter().zip(results) {
        let answer = answer_for(&mut answers, (key.topic_id, key.partition));
        answer.acknowledge_error_code = crate::error::code_of(&result);
    }
    if admitted == Admitted::Closing {
        manager.finish(node, &manager.release(session)).await;
        manager.drop_idle();
        return Ok(answers);
    }
    if request.is_renew_ack || request.max_records <= 0 {
        return Ok(answers);
    }
    let mut leaders = Vec::with_capacity(partitions.len());
    let loaded = partitions.iter().map(|(topic_id, partition)| async move {
        context.may_topic_id(node, *topic_id)?;
        let group = Arc::clone(&session.group);
        manager.leader(node, &ShareKey { group, topic_id: *topic_id, partition: *partition }).await
    });
    let loaded = futures::future::join_all(loaded).await;
    for (partition, leader) in partitions.iter().zip(loaded) {
        match leader {
            Ok(leader) => leaders.push(leader),
            Err(code) => answer_for(&mut answers, *partition).error_code = code.code(),
        }
    }
    // Errors must not wait for records.
    let waits = answers.values().all(|answer| answer.error_code == 0);
    let wait_ms = if waits { u64::try_from(request.max_wait_ms).unwrap_or(0) } else { 0 };
    let deadline = node.env.clock.now() + Duration::from_millis(wait_ms);
    acquire_or_wait(node, context, request, session, settings, (leaders, deadline), &mut answers).await?;
    Ok(answers)
}

/// A request that renews fetches nothing, and says so (KIP-1222).
fn check_sizes(request: &ShareFetchRequest) -> Result<(), ErrorCode> {
    let sizes = [request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records];
    if request.is_renew_ack && sizes.iter().any(|size| *size != 0) {
        return Err(ErrorCode::InvalidRequest);
    }
    Ok(())
}

/// Acknowledgements by share partition.
pub(super) type Acks<'a> = Vec<(ShareKey, Vec<AckBatch<'a>>)>;

/// Takes out the partitions of topics that may not be read (TOPIC_AUTHORIZATION_FAILED).
pub(super) fn admit_topics<'a>(
    node: &Node,
    context: &RequestContext,
    acks: Acks<'a>,
) -> (Acks<'a>, Vec<(SessionPartition, ErrorCode)>) {
    let mut refused = Vec::new();
    let mut admitted = acks;
    admitted.retain(|(key, _)| match context.may_topic_id(node, key.topic_id) {
        Ok(()) => true,
        Err(code) => {
            refused.push(((key.topic_id, key.partition), code));
            false
        }
    });
    (admitted, refused)
}

/// Takes out the partitions that renew where they may not: the request did not announce it (INVALID_REQUEST), or the
/// group forbids it (INVALID_RECORD_STATE).
pub(super) fn admit_renewals<'a>(
    acks: Acks<'a>,
    announced: bool,
    settings: &GroupSettings,
) -> (Acks<'a>, Vec<(SessionPartition, ErrorCode)>) {
    let code = match (announced, settings.renew_enabled) {
        (false, _) => ErrorCode::InvalidRequest,
        (true, false) => ErrorCode::InvalidRecordState,
        (true, true) => return (acks, Vec::new()),
    };
    let renews = |batches: &[AckBatch<'_>]| batches.iter().any(|batch| batch.types.contains(&RENEW));
    let (refused, admitted): (Acks<'a>, Acks<'a>) =
        acks.into_iter().partition(|(_, batches)| renews(batches));
    let refused = refused.into_iter().map(|(key, _)| ((key.topic_id, key.partition), code));
    (admitted, refused.collect())
}

fn acks_of<'a>(request: &'a ShareFetchRequest, group: &Arc<str>) -> Acks<'a> {
    let mut acks = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            if partition.acknowledgement_batches.is_empty() {
                continue;
            }
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

fn added(request: &ShareFetchRequest) -> impl Iterator<Item = SessionPartition> {
    request.topics.iter().flat_map(|topic| {
        let id = TopicId(topic.topic_id);
        topic.partitions.iter().map(move |partition| (id, PartitionIndex(partition.partition_index)))
    })
}

fn forgotten(request: &ShareFetchRequest) -> Vec<SessionPartition> {
    let topics = request.forgotten_topics_data.iter();
    topics
        .flat_map(|topic| {
            let id = TopicId(topic.topic_id);
            topic.partitions.iter().map(move |partition| (id, PartitionIndex(*partition)))
        })
        .collect()
}

/// Without records it has an empty set of them: Kafka sends no null either, and its Java client drops such an answer
/// without a word, asks no more and hangs when it is closed.
fn answer_for(answers: &mut Answers, partition: SessionPartition) -> &mut PartitionData {
    answers.entry(partition).or_insert_with(|| PartitionData {
        partition_index: partition.1.0,
        records: Some(Bytes::new()),
        ..PartitionData::default()
    })
}

/// Tries each partition in turn; when nothing is there, waits until something may be.
async fn acquire_or_wait(
    node: &Arc<Node>,
    context: &RequestContext,
    request: &ShareFetchRequest,
    session: &SessionKey,
    settings: &GroupSettings,
    (leaders, deadline): (Vec<Arc<ShareLeader>>, Instant),
    answers: &mut Answers,
) -> Result<(), ErrorCode> {
    let mode = match request.share_acquire_mode {
        0 => AcquireMode::BatchOptimized,
        1 => AcquireMode::RecordLimit,
        _ => return Err(ErrorCode::InvalidRequest),
    };
    // Watched before the first look: what happens between a look and the wait is not missed.
    let mut watches: Vec<(watch::Receiver<LogEnds>, watch::Receiver<()>)> =
        leaders.iter().map(|leader| (leader.log.watch(), leader.watch())).collect();
    loop {
        for (log, state) in &mut watches {
            log.borrow_and_update();
            state.borrow_and_update();
        }
        // A member whose connection is gone must not be given records.
        if context.closed.is_cancelled() {
            return Ok(());
        }
        let mut writes: Vec<OwnedWrite> = Vec::new();
        let found = acquire_round(node, request, session, settings, mode, &leaders, answers, &mut writes);
        ShareManager::finish_in_background(node, writes);
        if found && !node.share.manager.sessions().is_current(session, context.connection) {
            give_back(node, session, answers).await;
            return Err(ErrorCode::ShareSessionNotFound);
        }
        if found || answers.values().any(|answer| answer.error_code != 0) || node.env.clock.now() >= deadline
        {
            return Ok(());
        }
        let changes = watches.iter_mut().flat_map(|(log, state)| {
            let log: BoxFuture<'_, bool> = Box::pin(async { log.changed().await.is_ok() });
            let state: BoxFuture<'_, bool> = Box::pin(async { state.changed().await.is_ok() });
            [log, state]
        });
        let changes: Vec<BoxFuture<'_, bool>> = changes.collect();
        let changed = async {
            if changes.is_empty() {
                std::future::pending::<()>().await;
            }
            select_all(changes).await;
        };
        tokio::select! {
            biased;
            () = context.closed.cancelled() => return Ok(()),
            () = changed => {}
            () = node.env.clock.sleep_until(deadline) => return Ok(()),
        }
    }
}

/// The member opened a session on another connection while this fetch was under way, so nobody waits for what it
/// acquired. Whoever replaces a session releases what is held at that moment; this is what was acquired after it.
async fn give_back(node: &Arc<Node>, session: &SessionKey, answers: &Answers) {
    const RELEASE: &[i8] = &[2];
    let acks = answers.iter().map(|((topic_id, partition), answer)| {
        let key = ShareKey { group: Arc::clone(&session.group), topic_id: *topic_id, partition: *partition };
        let ranges = answer.acquired_records.iter().map(|acquired| AckBatch {
            first: Offset(acquired.first_offset),
            last: Offset(acquired.last_offset),
            types: RELEASE,
        });
        (key, ranges.collect())
    });
    let acks: Vec<(ShareKey, Vec<AckBatch<'_>>)> = acks.collect();
    for result in node.share.manager.acknowledge(node, &session.member, &acks).await {
        if let Err(code) = result {
            // Released by the replacement already, or left to its lock.
            debug!(group = %session.group, member = %session.member, %code, "records were not given back");
        }
    }
}

/// One look at each partition, sharing the limits fairly among those that have something. True when any gave.
#[expect(clippy::too_many_arguments, reason = "one step of the loop above, apart only to be readable")]
fn acquire_round(
    node: &Node,
    request: &ShareFetchRequest,
    session: &SessionKey,
    settings: &GroupSettings,
    mode: AcquireMode,
    leaders: &[Arc<ShareLeader>],
    answers: &mut Answers,
    writes: &mut Vec<OwnedWrite>,
) -> bool {
    let now = node.env.clock.now();
    let mut ready = leaders.iter().filter(|leader| leader.is_ready(settings)).collect::<Vec<_>>();
    let mut records_left = i64::from(request.max_records);
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(node.config.fetch_bytes_max);
    let mut bytes_left = bytes_max;
    let mut found = false;
    let mut parts_left = i64::try_from(ready.len()).unwrap_or(i64::MAX);
    for leader in ready.drain(..) {
        if records_left <= 0 || bytes_left == 0 {
            break;
        }
        let want = Want {
            member: &session.member,
            records_max: (records_left + parts_left - 1) / parts_left.max(1),
            bytes_max: bytes_left,
            mode,
            settings,
        };
        parts_left -= 1;
        let partition = (leader.key.topic_id, leader.key.partition);
        match leader.acquire(&want, now) {
            Ok(Got { records, acquired, writes: own }) => {
                writes.extend(own.into_iter().map(|write| (Arc::clone(leader), write)));
                if acquired.is_empty() {
                    continue;
                }
                found = true;
                records_left -= acquired.iter().map(|acquired| acquired.range.count()).sum::<i64>();
                bytes_left = bytes_left.saturating_sub(records.len());
                let answer = answer_for(answers, partition);
                answer.records = Some(records);
                answer.acquired_records = acquired
                    .iter()
                    .map(|acquired| AcquiredRecords {
                        first_offset: acquired.range.first.0,
                        last_offset: acquired.range.last.0,
                        delivery_count: i16::try_from(acquired.delivery_count).unwrap_or(i16::MAX),
                    })
                    .collect();
            }
            Err(code) => answer_for(answers, partition).error_code = code.code(),
        }
    }
    found
}

fn respond(node: &Node, answers: Answers, settings: &GroupSettings) -> ShareFetchResponse {
    let mut response = ShareFetchResponse {
        acquisition_lock_timeout_ms: i32::try_from(settings.lock_duration.as_millis()).unwrap_or(i32::MAX),
        ..ShareFetchResponse::default()
    };
    for ((topic_id, partition), mut answer) in answers {
        let moved = ErrorCode::NotLeaderOrFollower.code();
        if answer.error_code == moved || answer.acknowledge_error_code == moved {
            let (leader, endpoint) = leader_hint(node, topic_id, partition);
            answer.current_leader = leader;
            if let Some(endpoint) = endpoint
                && !response.node_endpoints.contains(&endpoint)
            {
                response.node_endpoints.push(endpoint);
            }
        }
        match response.responses.last_mut() {
            Some(topic) if topic.topic_id == topic_id.0 => topic.partitions.push(answer),
            Some(_) | None => response
                .responses
                .push(ShareFetchableTopicResponse { topic_id: topic_id.0, partitions: vec![answer] }),
        }
    }
    response
}

/// Who leads a partition, and where that node listens.
pub(super) fn leader_hint(
    node: &Node,
    topic_id: TopicId,
    partition: PartitionIndex,
) -> (LeaderIdAndEpoch, Option<NodeEndpoint>) {
    let Some(log) = node.cluster.topics.partition_by_id(topic_id, partition) else {
        return (LeaderIdAndEpoch::default(), None);
    };
    let leadership = log.leadership();
    let address = leadership.leader.and_then(|leader| Some((leader, node.cluster.address(leader)?)));
    let endpoint = address.map(|(leader, address)| NodeEndpoint {
        node_id: leader.0,
        host: address.host.into(),
        port: i32::from(address.port),
        ..NodeEndpoint::default()
    });
    let leader_id = leadership.leader.map_or(-1, |leader| leader.0);
    (LeaderIdAndEpoch { leader_id, leader_epoch: leadership.epoch.0 }, endpoint)
}
