//! Offsets of consumer groups without members (KIP-98, KIP-447): committed, staged in transactions, fetched, deleted.
//!
//! Each partition of `__consumer_offsets` that this node leads is one [`Shard`]. A request is decided, appended to the
//! partition's log and replayed under one short lock; answers follow the append. A shard that is not in memory yet is
//! replayed from its log first. The append is made under the leader epoch that was loaded, so what a deposed
//! coordinator decides is neither written nor answered.
//!
//! What a producer stages is a transactional batch of the same log. The log refuses older incarnations and those whose
//! transaction the transaction coordinator does not know, and the marker that ends the transaction comes by the same
//! way as to every other participant.
//!
//! Members (JoinGroup, ConsumerGroupHeartbeat) are not served: Sharestream's jobs read share groups, and consumers that
//! are assigned their partitions, or producers that move a group on, need none.

mod progress;
pub(crate) mod records;
mod shard;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sharestream_base::TaskKind;
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, ProducerId};
use sharestream_wire::records::{BatchBuilder, BatchMeta, control};
use tracing::{info, warn};

use self::progress::Progress;
use self::records::Record;
use self::shard::{Decided, Retention, Shard};
use crate::cluster::GROUP_TOPIC;
use crate::error::ErrorCode;
use crate::inspect::ConsumerOffsetView;
use crate::led_shards::{self, LedShard, LedShards, lock};
use crate::log::{Led, Marker, Origin, Partition, TransactionVersion, VerificationGuard};
use crate::node::Node;
use crate::txn::{Identity, TopicPartition};

pub(crate) use self::progress::CommittedOffset;

/// Most UTF-16 units of metadata with an offset (Kafka: `offset.metadata.max.bytes`, which counts so too).
const METADATA_UNITS_MAX: usize = 4_096;
/// How often old offsets are looked for (Kafka: `offsets.retention.check.interval.ms`).
const SWEEP: Duration = Duration::from_secs(600);
/// Batches of the coordinator have no sequence: a producer's requests come one after another, and the last one counts.
const SEQUENCE: i32 = 0;

/// What a group committed for a partition; none where it did not. Errors: UNSTABLE_OFFSET_COMMIT.
pub(crate) type Fetched = Result<Option<CommittedOffset>, ErrorCode>;

/// Where a producer stages offsets, and that it may.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    /// The right under which the transaction coordinator was asked: one that has ended counts for nothing.
    pub(crate) led: Led,
    /// Who stages.
    pub(crate) identity: Identity,
    /// For the first batch of a transaction in this log.
    pub(crate) guard: Option<VerificationGuard>,
    /// Rules that the transaction follows.
    pub(crate) version: TransactionVersion,
}

/// The offsets that one node coordinates.
#[derive(Debug, Default)]
pub(crate) struct OffsetCoordinator {
    shards: LedShards<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    led: Led,
    shard: Shard,
    builder: BatchBuilder,
}

impl OffsetCoordinator {
    /// Starts what runs by itself: offsets that are too old go, and those of deleted topics.
    pub(crate) fn start(&self, node: &Arc<Node>) {
        let owner = Arc::clone(node);
        node.spawn("offset-sweep", TaskKind::Service, async move {
            loop {
                tokio::select! {
                    biased;
                    () = owner.stop.cancelled() => return,
                    () = owner.env.clock.sleep(SWEEP) => owner.offsets.sweep(&owner),
                }
            }
        });
    }

    /// Commits offsets outside a transaction, or stages them in one; a generation of -1 says to be no member.
    ///
    /// Errors: NOT_COORDINATOR; GROUP_ID_NOT_FOUND (a share group); UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION;
    /// INVALID_COMMIT_OFFSET_SIZE; INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE (staged).
    pub(crate) fn commit(
        &self,
        node: &Node,
        group: &str,
        generation: i32,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        staging: Option<&Staging>,
    ) -> Result<(), ErrorCode> {
        self.decide(node, group, staging, |shard| {
            if is_share_group(node, group) {
                return Err(ErrorCode::GroupIdNotFound);
            }
            shard.decide_commit(group, generation, offsets)
        })
    }

    /// Deletes offsets. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND.
    pub(crate) fn delete_offsets(
        &self,
        node: &Node,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<(), ErrorCode> {
        self.decide(node, group, None, |shard| shard.decide_delete_offsets(group, partitions))
    }

    /// Deletes a group with its offsets. Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND.
    pub(crate) fn delete_group(&self, node: &Node, group: &str) -> Result<(), ErrorCode> {
        self.decide(node, group, None, |shard| shard.decide_delete_group(group))
    }

    /// How far a group is in each of these partitions. A group that is not there is nowhere. Errors: NOT_COORDINATOR.
    pub(crate) fn fetch(
        &self,
        node: &Node,
        group: &str,
        partitions: &[TopicPartition],
        stable: bool,
    ) -> Result<Vec<Fetched>, ErrorCode> {
        let loaded = self.shard_of(node, group)?;
        let loaded = lock(&loaded);
        let read = |partition: &TopicPartition| match loaded.shard.progress(group, partition) {
            Some(progress) => read(node, partition, progress, stable),
            None => Ok(None),
        };
        Ok(partitions.iter().map(read).collect())
    }

    /// Every partition that a group committed something for, and that. Errors: NOT_COORDINATOR.
    pub(crate) fn fetch_all(
        &self,
        node: &Node,
        group: &str,
        stable: bool,
    ) -> Result<Vec<(TopicPartition, Fetched)>, ErrorCode> {
        let loaded = self.shard_of(node, group)?;
        let loaded = lock(&loaded);
        let there = loaded.shard.progress_of(group).filter(|(partition, progress)| {
            progress.committed().is_some_and(|value| !is_gone(node, partition, value))
        });
        let read = |(partition, progress): (&TopicPartition, &Progress)| {
            (partition.clone(), read(node, partition, progress, stable))
        };
        Ok(there.map(read).collect())
    }

    /// True for a group that has committed or staged something. Errors: NOT_COORDINATOR.
    pub(crate) fn has_group(&self, node: &Node, group: &str) -> Result<bool, ErrorCode> {
        Ok(lock(&*self.shard_of(node, group)?).shard.has_group(group))
    }

    /// Begins a group of another kind, unless this one has offsets; none begins to have any meanwhile.
    ///
    /// Errors: NOT_COORDINATOR, GROUP_ID_NOT_FOUND (it has offsets), those of `begin`.
    pub(crate) fn begin_other<T>(
        &self,
        node: &Node,
        group: &str,
        begin: impl FnOnce() -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        let loaded = self.shard_of(node, group)?;
        let loaded = lock(&loaded);
        if loaded.shard.has_group(group) { Err(ErrorCode::GroupIdNotFound) } else { begin() }
    }

    /// Every group that this node coordinates, by name.
    pub(crate) fn groups(&self, node: &Node) -> Vec<String> {
        let mut groups = Vec::new();
        for (_, loaded) in self.shards.every(node) {
            groups.extend(lock(&loaded).shard.groups().map(|group| group.to_string()));
        }
        groups.sort();
        groups
    }

    /// A marker reached a partition of `__consumer_offsets`: it is appended, and what the producer staged there counts
    /// from now on or never did. Errors: NOT_COORDINATOR and those of the log.
    pub(crate) fn complete_transaction(
        &self,
        node: &Node,
        index: PartitionIndex,
        marker: &Marker,
    ) -> Result<(), ErrorCode> {
        let loaded = self.shards.get(node, index)?;
        let mut loaded = lock(&loaded);
        let at = loaded.led.append_marker(marker, node.env.clock.wall_ms())?;
        loaded.shard.replay_marker(marker.producer_id, marker.commit, at);
        Ok(())
    }

    fn sweep(&self, node: &Node) {
        let now_ms = node.env.clock.wall_ms();
        let keep_ms = i64::try_from(node.config.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        for (index, loaded) in self.shards.every(node) {
            let mut loaded = lock(&loaded);
            let retention = Retention { now_ms, keep_ms };
            let records =
                loaded.shard.decide_sweep(retention, |partition, value| is_gone(node, partition, value));
            let count = records.len();
            match loaded.append(records, None, now_ms) {
                Ok(()) if count > 0 => info!(partition = %index, count, "old offsets of groups were deleted"),
                Ok(()) => {}
                // Whoever leads now, or a later sweep, does it.
                Err(code) => warn!(partition = %index, %code, "old offsets of groups were not deleted"),
            }
        }
    }

    fn decide(
        &self,
        node: &Node,
        group: &str,
        staging: Option<&Staging>,
        decide: impl FnOnce(&Shard) -> Decided,
    ) -> Result<(), ErrorCode> {
        let loaded = self.shard_of(node, group)?;
        let mut loaded = lock(&loaded);
        if staging.is_some_and(|staging| staging.led.epoch() != loaded.led.epoch()) {
            return Err(ErrorCode::NotCoordinator);
        }
        let records = decide(&loaded.shard)?;
        loaded.append(records, staging, node.env.clock.wall_ms())
    }

    fn shard_of(&self, node: &Node, group: &str) -> Result<Arc<Mutex<Loaded>>, ErrorCode> {
        let index = node.cluster.group_partition(group).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        self.shards.get(node, index)
    }
}

impl LedShard for Loaded {
    const TOPIC: &'static str = GROUP_TOPIC;

    fn load(_node: &Node, led: Led) -> Result<Self, ErrorCode> {
        let shard = replay(&led)?;
        Ok(Loaded { led, shard, builder: BatchBuilder::new() })
    }

    fn led(&self) -> &Led {
        &self.led
    }
}

impl Loaded {
    /// Appends and replays. Errors: those of [`OffsetCoordinator::commit`]; nothing has changed then.
    fn append(
        &mut self,
        records: Vec<Record>,
        staging: Option<&Staging>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        if records.is_empty() {
            return Ok(());
        }
        self.builder.clear();
        for record in &records {
            let (key, value) = record.encode();
            let appended = self.builder.append(now_ms, Some(&key), value.as_deref(), &[]);
            appended.map_err(|_| ErrorCode::InvalidCommitOffsetSize)?;
        }
        let (meta, origin) = match staging {
            None => (BatchMeta::default(), Origin::Coordinator),
            Some(Staging { identity, guard, version, .. }) => {
                let meta = BatchMeta {
                    producer_id: identity.producer_id.0,
                    producer_epoch: identity.epoch.0,
                    base_sequence: SEQUENCE,
                    transactional: true,
                    ..BatchMeta::default()
                };
                (meta, Origin::TransactionalCoordinator { guard: *guard, version: *version })
            }
        };
        let batch = self.builder.build(&meta).map_err(|_| ErrorCode::InvalidCommitOffsetSize)?;
        let appended = self.led.append(&batch, origin).map_err(for_client)?;
        let staged_by = staging.map(|staging| staging.identity.producer_id);
        let mut at = appended.base_offset;
        for record in records {
            self.shard.replay(record, at, staged_by);
            at = at.next();
        }
        Ok(())
    }
}

/// Errors: OFFSET_METADATA_TOO_LARGE.
pub(crate) fn check_metadata(metadata: &str) -> Result<(), ErrorCode> {
    // A unit takes at least a byte, so that short texts need no counting.
    if metadata.len() <= METADATA_UNITS_MAX || metadata.encode_utf16().count() <= METADATA_UNITS_MAX {
        Ok(())
    } else {
        Err(ErrorCode::OffsetMetadataTooLarge)
    }
}

/// What a client of the group coordinator is told when the log refuses, as Kafka tells it.
fn for_client(code: ErrorCode) -> ErrorCode {
    match code {
        // Retriable there: the coordinator is looked up again.
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge => ErrorCode::InvalidCommitOffsetSize,
        code => code,
    }
}

fn is_share_group(node: &Node, group: &str) -> bool {
    node.share.groups.with_group(node, group, |_| ()).is_ok()
}

/// True when the topic of an offset was deleted since, also when there is another one of its name.
fn is_gone(node: &Node, partition: &TopicPartition, value: &CommittedOffset) -> bool {
    node.cluster.topics.by_name(&partition.topic).is_none_or(|topic| topic.id != value.topic_id)
}

fn read(node: &Node, partition: &TopicPartition, progress: &Progress, stable: bool) -> Fetched {
    let value = progress.read(stable)?.filter(|value| !is_gone(node, partition, value));
    Ok(value.cloned())
}

/// Reads a whole log into a shard. Errors: CORRUPT_MESSAGE.
fn replay(log: &Partition) -> Result<Shard, ErrorCode> {
    let damaged = |error: &dyn std::fmt::Display| {
        warn!(partition = %log.index, %error, "a partition of the log of groups is damaged");
        ErrorCode::CorruptMessage
    };
    let mut shard = Shard::default();
    led_shards::replay(log, log.ends().log_start, |batch| {
        let producer_id = ProducerId(batch.header.producer_id);
        if batch.header.is_control() {
            let (marker, _) = control::decode(batch).map_err(|error| damaged(&error))?;
            let commit = marker == control::ControlMarker::Commit;
            shard.replay_marker(producer_id, commit, Offset(batch.header.base_offset));
            return Ok(());
        }
        let staged_by = batch.header.is_transactional().then_some(producer_id);
        for record in batch.records().map_err(|error| damaged(&error))?.iter() {
            let record = record.map_err(|error| damaged(&error))?;
            let at = Offset(record.offset);
            let record = Record::decode(record.key.unwrap_or_default(), record.value);
            shard.replay(record.map_err(|error| damaged(&error))?, at, staged_by);
        }
        Ok(())
    })?;
    Ok(shard)
}

/// What a partition of the log says of every group, whoever leads it; nothing when it is damaged.
pub(crate) fn recorded(log: &Partition) -> Vec<ConsumerOffsetView> {
    let Ok(shard) = replay(log) else { return Vec::new() };
    let mut all = Vec::new();
    for group in shard.groups() {
        for (of, progress) in shard.progress_of(group) {
            let value = progress.committed();
            all.push(ConsumerOffsetView {
                group: group.to_string(),
                topic: of.topic.to_string(),
                partition: of.partition,
                offset: value.map(|value| value.offset),
                leader_epoch: value.map_or(LeaderEpoch(-1), |value| value.leader_epoch),
                staged: progress.is_staged(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests;
