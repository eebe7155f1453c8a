//! Share partitions that this node leads, and the sessions that use them (KIP-932).
//!
//! A share partition is loaded from the share coordinator at its first use and dropped when the last session of its
//! group has gone and nobody holds a record: what stays is the durable state. Every change that must be durable is
//! written, over the protocol, before it is answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use tokio::sync::OnceCell;
use tracing::{info, warn};

use super::dead_letters;
use super::durable::{DurableState, ShareKey};
use super::leader::{LeaderWrite, ShareLeader, limits_of};
use super::record_state::{Marker, MemberId, TxnOutcome};
use super::session::{SessionKey, Sessions};
use super::share_partition::{AckBatch, AckError, PendingWrite, SharePartition};
use crate::error::ErrorCode;
use crate::group::config::{GroupSettings, OffsetReset};
use crate::handlers::ConnectionId;
use crate::log::{Led, Partition, TimestampQuery};
use crate::node::Node;
use crate::share_coordinator::{StateWrite, Write, read_state, write_states};

/// Share sessions of a node (Kafka: `group.share.max.share.sessions`).
const SESSIONS_MAX: usize = 2_000;

/// A write and the leader that wants it.
pub(crate) type OwnedWrite = (Arc<ShareLeader>, LeaderWrite);

#[derive(Debug)]
struct Slot {
    leader_epoch: LeaderEpoch,
    cell: OnceCell<Arc<ShareLeader>>,
}

/// The share partitions and sessions of a node.
#[derive(Debug)]
pub(crate) struct ShareManager {
    slots: Mutex<BTreeMap<ShareKey, Arc<Slot>>>,
    sessions: Mutex<Sessions>,
}

impl ShareManager {
    /// Nothing loaded, no session.
    pub(crate) fn new() -> Self {
        ShareManager { slots: Mutex::default(), sessions: Mutex::new(Sessions::new(SESSIONS_MAX)) }
    }

    /// The sessions of this node.
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<ShareKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every loaded share partition.
    pub(crate) fn loaded(&self) -> Vec<Arc<ShareLeader>> {
        self.slots().values().filter_map(|slot| slot.cell.get().cloned()).collect()
    }

    /// A share partition, loaded if need be. Errors: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    /// NOT_LEADER_OR_FOLLOWER, and those of reading the durable state.
    pub(crate) async fn leader(&self, node: &Node, key: &ShareKey) -> Result<Arc<ShareLeader>, ErrorCode> {
        let log = source(node, key.topic_id, key.partition)?;
        let leader_epoch = log.epoch();
        let slot = {
            let mut slots = self.slots();
            let known = slots.get(key).filter(|slot| {
                slot.leader_epoch == leader_epoch && !slot.cell.get().is_some_and(|leader| leader.is_closed())
            });
            match known {
                Some(slot) => Arc::clone(slot),
                None => {
                    let slot = Arc::new(Slot { leader_epoch, cell: OnceCell::new() });
                    if let Some(old) = slots.insert(key.clone(), Arc::clone(&slot))
                        && let Some(leader) = old.cell.get()
                    {
                        leader.close();
                    }
                    slot
                }
            }
        };
        let leader = slot.cell.get_or_try_init(|| load(node, key, log)).await;
        leader.map(Arc::clone).map_err(for_client)
    }

    /// How a transaction ended, told by the share coordinator. What is not loaded learns it when it loads.
    pub(crate) async fn resolve(&self, node: &Node, key: &ShareKey, marker: Marker) -> Result<(), ErrorCode> {
        // Whoever loads a committed REJECT of a group with dead letters has a letter to write: that is done soon, also
        // when the level has fallen since it was staged.
        let letters = marker.outcome == TxnOutcome::Commit
            && node.cluster.group_configs.dead_letter_topic(&key.group).is_some();
        if !letters && !self.slots().contains_key(key) {
            return Ok(());
        }
        // A load that is under way may have read the state before the marker: wait for it, then tell it too.
        let leader = self.leader(node, key).await?;
        if leader.with(|partition| partition.resolve(marker)).unwrap_or(false) {
            leader.notify();
        }
        Ok(())
    }

    /// Takes back what the member of an ended session holds. The state changes now; the writes are for the caller.
    #[must_use]
    pub(crate) fn release(&self, session: &SessionKey) -> Vec<OwnedWrite> {
        let of_group = |leader: &Arc<ShareLeader>| leader.key.group == session.group;
        let mut writes = Vec::new();
        for leader in self.loaded().into_iter().filter(of_group) {
            if let Ok(Some(pending)) = leader.with(|partition| partition.close_session(&session.member)) {
                name_archived(&leader, &pending);
                writes.push((leader, LeaderWrite::Runs(pending)));
            }
        }
        writes
    }

    /// Ends the sessions of a closed connection.
    #[must_use]
    pub(crate) fn close_connection(&self, connection: ConnectionId) -> (Vec<SessionKey>, Vec<OwnedWrite>) {
        let closed = self.sessions().close_connection(connection);
        let writes = closed.iter().flat_map(|session| self.release(session)).collect();
        (closed, writes)
    }

    /// Makes writes durable and reports their ends to their leaders. Results in the order of `writes`.
    pub(crate) async fn finish(&self, node: &Node, writes: &[OwnedWrite]) -> Vec<Result<(), ErrorCode>> {
        if writes.is_empty() {
            return Vec::new();
        }
        let states: Vec<StateWrite> =
            writes.iter().map(|(leader, write)| leader.state_write(write)).collect();
        let results = write_states(node, &states).await;
        let now = node.env.clock.now();
        for ((leader, write), result) in writes.iter().zip(&results) {
            if let Err(code) = result {
                warn!(share_partition = %leader.key, %code, "share state was not written");
            }
            leader.finish(write, *result, now);
        }
        results.into_iter().map(|result| result.map_err(for_client)).collect()
    }

    /// Finishes writes that nobody waits for.
    pub(crate) fn finish_in_background(node: &Arc<Node>, writes: Vec<OwnedWrite>) {
        if writes.is_empty() {
            return;
        }
        let owner = Arc::clone(node);
        node.spawn("share-state-writes", sharestream_base::TaskKind::Connection, async move {
            owner.share.manager.finish(&owner, &writes).await;
            owner.share.manager.drop_idle();
        });
    }

    /// Drops share partitions that moved away, and those of groups that have no session here and hold nothing but
    /// durable state.
    pub(crate) fn drop_idle(&self) {
        let sessions = self.sessions();
        self.slots().retain(|key, slot| {
            let Some(leader) = slot.cell.get() else { return true };
            !leader.is_closed() && (sessions.has_group(&key.group) || !leader.close_if_idle())
        });
    }

    /// Another level was finalized: what is decided from now on follows it, also where nobody fetches or acknowledges.
    pub(crate) fn follow_level(&self, node: &Node) {
        for leader in self.loaded() {
            let limits = limits_of(&node.cluster.group_settings(&leader.key.group));
            // One that is closed meanwhile decides nothing.
            let _closed = leader.with(|partition| partition.set_limits(limits));
        }
    }

    /// Takes back what has been held too long, and sends failed writes again that nobody waits for.
    pub(crate) fn expire_locks(&self, node: &Arc<Node>) {
        let now = node.env.clock.now();
        let mut writes = Vec::new();
        for leader in self.loaded() {
            for pending in leader.with(SharePartition::unsent_writes).unwrap_or_default() {
                writes.push((Arc::clone(&leader), LeaderWrite::Runs(pending)));
            }
            if let Ok(Some(due)) = leader.with(SharePartition::take_letters) {
                dead_letters::write_in_background(node, Arc::clone(&leader), due);
            }
            let expired = leader.with(|partition| {
                // Counting walks over all runs, so only when a lock may have expired.
                let before = partition.may_expire(now).then(|| partition.pending_count())?;
                let expired = partition.expire_locks(now);
                node.metrics.pending_lock_expired(before.saturating_sub(partition.pending_count()));
                expired
            });
            if let Ok(Some(pending)) = expired {
                info!(share_partition = %leader.key, "acquisition locks expired");
                name_archived(&leader, &pending);
                writes.push((leader, LeaderWrite::Runs(pending)));
            }
        }
        Self::finish_in_background(node, writes);
    }

    /// Asks the share coordinator how transactions ended whose outcome may not have been told (a failed push, a
    /// coordinator that moved). The push is the ordinary way; this is the net below it.
    ///
    /// `all`: also asks about share partitions without such a transaction. A member that is out of its group and still
    /// connected keeps them loaded here while the offsets are reset or deleted, and who has nothing to write is never
    /// fenced: members that join later would wait for ever.
    pub(crate) async fn refresh(&self, node: &Node, all: bool) {
        for leader in self.loaded() {
            let pending = leader.with(|partition| partition.pending()).unwrap_or_default();
            if pending.is_empty() && !all {
                continue;
            }
            // No fencing: this leader has loaded already, and a newer one may have since.
            let Ok(durable) = read_state(node, &leader.key, LeaderEpoch(-1)).await else { continue };
            // Whoever has loaded it has made a start offset durable: without one the state was deleted.
            if durable.state_epoch != leader.state_epoch || durable.start_offset.is_none() {
                info!(share_partition = %leader.key, "its state was reset or deleted, and is loaded anew");
                leader.close();
            } else if leader.with(|partition| partition.refresh(&pending, &durable)).unwrap_or(false) {
                info!(share_partition = %leader.key, "a transaction's end was learnt from the share coordinator");
                leader.notify();
            }
        }
    }

    /// Applies ordinary acknowledgements of one member and waits until they are durable. Results in the order of
    /// `acks`.
    pub(crate) async fn acknowledge(
        &self,
        node: &Node,
        member: &MemberId,
        acks: &[(ShareKey, Vec<AckBatch<'_>>)],
    ) -> Vec<Result<(), ErrorCode>> {
        let now = node.env.clock.now();
        let mut results = vec![Ok(()); acks.len()];
        let mut writes = Vec::new();
        let mut written = Vec::new();
        for (index, (key, batches)) in acks.iter().enumerate() {
            let leader = self.leader(node, key).await;
            let limits = limits_of(&node.cluster.group_settings(&key.group));
            let applied = leader.and_then(|leader| {
                let pending = leader.with(|partition| {
                    partition.set_limits(limits);
                    partition.acknowledge(member, batches, now)
                })?;
                Ok((leader, pending.map_err(code_of_ack)?))
            });
            match applied {
                Ok((leader, Some(pending))) => {
                    writes.push((leader, LeaderWrite::Runs(pending)));
                    written.push(index);
                }
                Ok((_, None)) => {}
                Err(code) => results[index] = Err(code),
            }
        }
        for (index, result) in written.into_iter().zip(self.finish(node, &writes).await) {
            results[index] = result;
        }
        results
    }
}

/// What a client is told when a coordinator refuses that it does not know, as in Kafka: a fenced leader is not the
/// leader, and a coordinator that moved is one that is not there for the moment.
pub(crate) fn for_client(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::FencedLeaderEpoch | ErrorCode::FencedStateEpoch => ErrorCode::NotLeaderOrFollower,
        ErrorCode::NotCoordinator => ErrorCode::CoordinatorNotAvailable,
        code => code,
    }
}

/// Nothing is given up silently: records that used up their deliveries are named.
fn name_archived(leader: &ShareLeader, pending: &PendingWrite) {
    for batch in pending.batches.iter().filter(|batch| batch.state == DurableState::Archived) {
        let (range, delivery_count) = (batch.range, batch.delivery_count);
        warn!(share_partition = %leader.key, %range, delivery_count, "records are archived: out of deliveries");
    }
}

/// What the client is told of refused acknowledgements.
pub(crate) fn code_of_ack(error: AckError) -> ErrorCode {
    match error {
        AckError::RecordState(_) => ErrorCode::InvalidRecordState,
        AckError::Request(_) => ErrorCode::InvalidRequest,
        AckError::ProducerEpoch => ErrorCode::InvalidProducerEpoch,
    }
}

/// The source partition that this node leads.
pub(crate) fn source(node: &Node, topic_id: TopicId, partition: PartitionIndex) -> Result<Led, ErrorCode> {
    node.led_by_id(topic_id, partition)
}

/// Reads the durable state. A share partition without a start offset gets one now and durably: with `latest`, a crash
/// before the first acknowledgement must not skip what was produced meanwhile.
async fn load(node: &Node, key: &ShareKey, log: Led) -> Result<Arc<ShareLeader>, ErrorCode> {
    let leader_epoch = log.epoch();
    let settings = node.cluster.group_settings(&key.group);
    let durable = read_state(node, key, leader_epoch).await?;
    let start = match durable.start_offset {
        Some(start) => start,
        None => {
            let start = initial_offset(node, &log, &settings)?;
            let write = Write {
                state_epoch: durable.state_epoch,
                leader_epoch,
                start_offset: Some(start),
                batches: Vec::new(),
            };
            let write = StateWrite { key: key.clone(), write };
            write_states(node, &[write]).await.into_iter().collect::<Result<(), ErrorCode>>()?;
            info!(share_partition = %key, start_offset = %start, "a share partition was initialised");
            start
        }
    };
    let partition = SharePartition::load(&durable, start, limits_of(&settings));
    Ok(Arc::new(ShareLeader::new(key.clone(), log, durable.state_epoch, partition)))
}

fn initial_offset(node: &Node, log: &Partition, settings: &GroupSettings) -> Result<Offset, ErrorCode> {
    let ends = log.ends();
    match settings.offset_reset {
        OffsetReset::Earliest => Ok(ends.log_start),
        OffsetReset::Latest => Ok(ends.high_watermark),
        OffsetReset::ByDuration(duration) => {
            let age_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
            let since_ms = node.env.clock.wall_ms().saturating_sub(age_ms);
            let found = log.find_by_time(TimestampQuery::AtOrAfter(since_ms))?;
            Ok(found.map_or(ends.high_watermark, |found| found.offset))
        }
    }
}
