//! The other side of the share coordinator: how a source leader reaches it, always over the protocol (KIP-932).

use std::collections::BTreeMap;

use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, StateEpoch};
use sharestream_wire::messages::read_share_group_state as read;
use sharestream_wire::messages::write_share_group_state as write;
use tracing::warn;

use super::{STATE_VERSION, Write, state_partition};
use crate::cluster::SHARE_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::node::Node;
use crate::peer::{Attempts, is_elsewhere};
use crate::share::durable::{DurableShare, ShareKey, StateBatch};

/// A write for one share partition.
#[derive(Clone, Debug)]
pub(crate) struct StateWrite {
    /// Which.
    pub(crate) key: ShareKey,
    /// What.
    pub(crate) write: Write,
}

/// The node that coordinates a share partition.
fn coordinator_of(node: &Node, key: &ShareKey) -> Result<NodeId, ErrorCode> {
    let found = state_partition(node, key).and_then(|index| node.cluster.leader_of(SHARE_STATE_TOPIC, index));
    found.ok_or(ErrorCode::CoordinatorNotAvailable)
}

/// Makes writes durable: one request for each coordinating node and group, all at once. A coordinator that moves is
/// looked for a while: a write under one leader epoch may be repeated. Results in the order of `writes`.
pub(crate) async fn write_states(node: &Node, writes: &[StateWrite]) -> Vec<Result<(), ErrorCode>> {
    let mut results: Vec<Result<(), ErrorCode>> = vec![Ok(()); writes.len()];
    let mut left: Vec<usize> = (0..writes.len()).collect();
    let mut attempts = Attempts::new(&node.env);
    loop {
        write_once(node, writes, &left, &mut results).await;
        left.retain(|index| results[*index].is_err_and(is_elsewhere));
        let Some(Err(code)) = left.first().map(|index| results[*index]) else { return results };
        if !attempts.again(&node.env, code).await {
            return results;
        }
    }
}

/// One attempt at the writes of `indexes`.
async fn write_once(
    node: &Node,
    writes: &[StateWrite],
    indexes: &[usize],
    results: &mut [Result<(), ErrorCode>],
) {
    let mut requests: BTreeMap<(NodeId, &str), Vec<usize>> = BTreeMap::new();
    for index in indexes.iter().copied() {
        let write = &writes[index];
        match coordinator_of(node, &write.key) {
            Ok(coordinator) => requests.entry((coordinator, &write.key.group)).or_default().push(index),
            Err(code) => results[index] = Err(code),
        }
    }
    let calls = requests.into_iter().map(|((coordinator, group), indexes)| async move {
        let response = call(node, coordinator, group, writes, &indexes).await;
        (indexes, response)
    });
    for (indexes, response) in futures::future::join_all(calls).await {
        for index in indexes {
            results[index] = match &response {
                Ok(response) => result_of(response, &writes[index].key),
                Err(code) => Err(*code),
            };
        }
    }
}

async fn call(
    node: &Node,
    coordinator: NodeId,
    group: &str,
    writes: &[StateWrite],
    indexes: &[usize],
) -> Result<write::WriteShareGroupStateResponse, ErrorCode> {
    let mut topics: Vec<write::WriteStateData> = Vec::new();
    for StateWrite { key, write } in indexes.iter().filter_map(|index| writes.get(*index)) {
        let partition = write::PartitionData {
            partition: key.partition.0,
            state_epoch: write.state_epoch.0,
            leader_epoch: write.leader_epoch.0,
            start_offset: write.start_offset.map_or(-1, |offset| offset.0),
            state_batches: write.batches.iter().map(|batch| batch.to_wire()).collect(),
        };
        match topics.iter_mut().find(|topic| topic.topic_id == key.topic_id.0) {
            Some(topic) => topic.partitions.push(partition),
            None => {
                topics.push(write::WriteStateData { topic_id: key.topic_id.0, partitions: vec![partition] })
            }
        }
    }
    let request = write::WriteShareGroupStateRequest { group_id: group.to_owned().into(), topics };
    node.peers.call(coordinator, request, STATE_VERSION).await.map_err(|error| {
        warn!(group, %error, "share state was not written");
        error.code()
    })
}

fn result_of(response: &write::WriteShareGroupStateResponse, key: &ShareKey) -> Result<(), ErrorCode> {
    let topic = response.results.iter().find(|topic| topic.topic_id == key.topic_id.0);
    let partition = topic.and_then(|t| t.partitions.iter().find(|p| p.partition == key.partition.0));
    match partition {
        Some(partition) => ErrorCode::try_from_code(partition.error_code).map_or(Ok(()), Err),
        None => Err(ErrorCode::UnknownServerError),
    }
}

/// Reads the durable state of a share partition. A leader epoch of 0 or more fences older leaders. A coordinator that
/// moves is looked for a while.
pub(crate) async fn read_state(
    node: &Node,
    key: &ShareKey,
    leader_epoch: LeaderEpoch,
) -> Result<DurableShare, ErrorCode> {
    let mut attempts = Attempts::new(&node.env);
    loop {
        match read_once(node, key, leader_epoch).await {
            Err(code) if attempts.again(&node.env, code).await => {}
            answer => return answer,
        }
    }
}

async fn read_once(
    node: &Node,
    key: &ShareKey,
    leader_epoch: LeaderEpoch,
) -> Result<DurableShare, ErrorCode> {
    let coordinator = coordinator_of(node, key)?;
    let partition = read::PartitionData { partition: key.partition.0, leader_epoch: leader_epoch.0 };
    let topic = read::ReadStateData { topic_id: key.topic_id.0, partitions: vec![partition] };
    let request =
        read::ReadShareGroupStateRequest { group_id: key.group.to_string().into(), topics: vec![topic] };
    let response = node.peers.call(coordinator, request, STATE_VERSION).await.map_err(|error| {
        warn!(share_partition = %key, %error, "share state was not read");
        error.code()
    })?;
    let found = response.results.into_iter().flat_map(|topic| topic.partitions).next();
    let found = found.ok_or(ErrorCode::UnknownServerError)?;
    if let Some(code) = ErrorCode::try_from_code(found.error_code) {
        return Err(code);
    }
    let batches: Result<Vec<StateBatch>, _> = found.state_batches.iter().map(StateBatch::from_wire).collect();
    Ok(DurableShare {
        state_epoch: StateEpoch(found.state_epoch),
        leader_epoch,
        start_offset: (found.start_offset >= 0).then_some(Offset(found.start_offset)),
        batches: batches.map_err(|_| ErrorCode::UnknownServerError)?,
    })
}
