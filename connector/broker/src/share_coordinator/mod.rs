//! The share coordinator: durable state of share partitions in `__share_group_state` (KIP-932), and the place where
//! a transaction's marker becomes final for share groups (KIP-1289, steps 15 to 17).
//!
//! Each partition of `__share_group_state` that this node leads is one [`Shard`]. A request is decided, appended to
//! the partition's log and replayed under one short lock; answers follow the append. A shard that is not in memory
//! yet is replayed from its log first. The append is made under the leader epoch that was loaded, so what a deposed
//! coordinator decides is neither written nor answered.

mod persister;
pub(crate) mod records;
mod shard;

use std::sync::{Arc, Mutex};

use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, StateEpoch};
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use tracing::{debug, warn};

use crate::cluster::SHARE_STATE_TOPIC;
use crate::config::BrokerConfig;
use crate::error::ErrorCode;
use crate::features::STAGING;
use crate::led_shards::{self, LedShard, LedShards, lock};
use crate::log::{Led, Origin, Partition};
use crate::node::Node;
use crate::share::durable::{DurableShare, DurableState, ShareKey, StateBatch};
use crate::share::record_state::{Marker, TxnOutcome};

pub(crate) use persister::{StateWrite, read_state, write_states};
use records::Record;
pub(crate) use shard::Write;
use shard::{Decided, Shard};

/// Private version of the share-state APIs: the one whose batches carry producer id, epoch and intent.
pub(crate) const STATE_VERSION: i16 = 10;

/// The share coordinator of one node.
#[derive(Debug, Default)]
pub(crate) struct ShareCoordinator {
    shards: LedShards<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    led: Led,
    shard: Shard,
    builder: BatchBuilder,
    /// Outcomes that are final but whose leaders have not confirmed them: pushed again when the marker is repeated.
    unconfirmed: Vec<(ShareKey, StateEpoch, Marker)>,
    /// How long markers are remembered.
    remember_ms: i64,
}

/// Longer than any transaction and than any idle transactional id, in milliseconds.
fn remember_ms(config: &BrokerConfig) -> i64 {
    let longest = config.transactional_id_expiration.max(2 * config.transaction_timeout_max);
    i64::try_from(longest.as_millis()).unwrap_or(i64::MAX)
}

impl ShareCoordinator {
    /// Makes a leader's write durable.
    pub(crate) fn write(&self, node: &Node, key: &ShareKey, write: Write) -> Result<(), ErrorCode> {
        self.decide(node, key, |shard| shard.decide_write(key, write))
    }

    /// Creates or resets a share partition.
    pub(crate) fn initialize(
        &self,
        node: &Node,
        key: &ShareKey,
        state_epoch: StateEpoch,
        start_offset: Option<Offset>,
    ) -> Result<(), ErrorCode> {
        self.decide(node, key, |shard| shard.decide_initialize(key, state_epoch, start_offset))
    }

    /// Forgets a share partition.
    pub(crate) fn remove(&self, node: &Node, key: &ShareKey) -> Result<(), ErrorCode> {
        self.decide(node, key, |shard| shard.decide_remove(key))
    }

    /// The durable state, `None` when there is none; a leader epoch of 0 or more fences older leaders.
    pub(crate) fn read(
        &self,
        node: &Node,
        key: &ShareKey,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<DurableShare>, ErrorCode> {
        self.decide(node, key, |shard| shard.decide_read(key, leader_epoch))?;
        let loaded = self.shard_of(node, key)?;
        Ok(lock(&loaded).shard.read(key))
    }

    /// A marker reached a partition of `__share_group_state`: finalises what it resolves, remembers it, and tells
    /// the source leaders before it answers, so that a completed transaction is visible everywhere. A leader that
    /// cannot be told is an error: the transaction coordinator sends the marker again.
    pub(crate) async fn complete_transaction(
        &self,
        node: &Arc<Node>,
        index: PartitionIndex,
        marker: Marker,
    ) -> Result<(), ErrorCode> {
        let loaded = self.shards.get(node, index)?;
        let unconfirmed = {
            let mut loaded = lock(&loaded);
            let touched = loaded.shard.awaiting(&marker);
            let now_ms = node.env.clock.wall_ms();
            let records = loaded.shard.decide_complete(marker, now_ms);
            loaded.append(records, now_ms)?;
            loaded.unconfirmed.extend(touched.into_iter().map(|(key, epoch)| (key, epoch, marker)));
            let own =
                |(_, _, known): &&(ShareKey, StateEpoch, Marker)| known.producer_id == marker.producer_id;
            loaded.unconfirmed.iter().filter(own).cloned().collect::<Vec<_>>()
        };
        // Leaders must not act on an outcome that a crash could take back.
        node.cluster.durable().await.map_err(|_| ErrorCode::KafkaStorageError)?;
        let pushes = unconfirmed.iter().map(|(key, epoch, marker)| push_outcome(node, key, *epoch, *marker));
        let results = futures::future::join_all(pushes).await;
        let mut failed = None;
        let mut loaded = lock(&loaded);
        for (outcome, result) in unconfirmed.iter().zip(results) {
            match result {
                Ok(()) => loaded.unconfirmed.retain(|known| known != outcome),
                Err(code) => failed = Some(code),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Ends of transactions that the loaded shards remember.
    pub(crate) fn remembered_markers(&self) -> u64 {
        self.shards.loaded().iter().map(|loaded| lock(loaded).shard.marker_count()).sum()
    }

    /// Writes a snapshot of every partition that this node leads and whose log still has values of the version with
    /// pending runs, and cuts the log before it: a reader of the old schema can read what is left.
    pub(crate) fn snapshot_for_old_readers(&self, node: &Node) {
        let Some(topic) = node.cluster.topics.by_name(SHARE_STATE_TOPIC) else { return };
        for index in (0..topic.partition_count()).map(PartitionIndex) {
            if !topic.partition(index).is_some_and(|log| needs_newer_reader(log)) {
                continue;
            }
            // Another leads it, and does the same.
            let Ok(loaded) = self.shards.get(node, index) else { continue };
            if let Err(code) = lock(&loaded).cut(node.env.clock.wall_ms()) {
                warn!(partition = %index, %code, "no snapshot for older readers: it is tried again");
            }
        }
    }

    fn decide(
        &self,
        node: &Node,
        key: &ShareKey,
        decide: impl FnOnce(&Shard) -> Decided,
    ) -> Result<(), ErrorCode> {
        let loaded = self.shard_of(node, key)?;
        let mut loaded = lock(&loaded);
        // Held over the append: who lowers the level finds in the log whatever was staged before.
        let held = node.cluster.features.hold();
        let records = decide(&loaded.shard)?;
        if held.share_version() < STAGING && records.iter().any(Record::has_pending) {
            return Err(ErrorCode::UnsupportedVersion);
        }
        loaded.append(records, node.env.clock.wall_ms())
    }

    fn shard_of(&self, node: &Node, key: &ShareKey) -> Result<Arc<Mutex<Loaded>>, ErrorCode> {
        let index = state_partition(node, key).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        self.shards.get(node, index)
    }
}

impl LedShard for Loaded {
    const TOPIC: &'static str = SHARE_STATE_TOPIC;

    fn load(node: &Node, led: Led) -> Result<Self, ErrorCode> {
        Loaded::load(led, remember_ms(&node.config))
    }

    fn led(&self) -> &Led {
        &self.led
    }
}

impl Loaded {
    /// What the log says.
    fn load(led: Led, remember_ms: i64) -> Result<Loaded, ErrorCode> {
        let shard = replay(&led)?;
        Ok(Loaded { led, shard, builder: BatchBuilder::new(), unconfirmed: Vec::new(), remember_ms })
    }

    /// Appends and replays. A shard that has grown many updates is snapshot, and its log cut before that.
    /// Errors: NOT_COORDINATOR (deposed meanwhile; nothing has changed).
    fn append(&mut self, records: Vec<Record>, now_ms: i64) -> Result<(), ErrorCode> {
        if records.is_empty() {
            return Ok(());
        }
        self.store(&records, now_ms)?;
        for record in records {
            self.shard.replay(record);
        }
        if self.shard.wants_snapshot()
            && let Err(code) = self.cut(now_ms)
        {
            // What was asked is durable, so the answer is yes; whoever leads next makes the snapshot.
            debug!(partition = %self.led.index, %code, "a snapshot was not finished");
        }
        Ok(())
    }

    /// Writes a snapshot and cuts the log before it.
    fn cut(&mut self, now_ms: i64) -> Result<(), ErrorCode> {
        let snapshot = self.shard.snapshot(now_ms, self.remember_ms);
        let first = self.store(&snapshot, now_ms)?;
        self.led.delete_before(first).map(|_| ())
    }

    fn store(&mut self, records: &[Record], now_ms: i64) -> Result<Offset, ErrorCode> {
        self.builder.clear();
        for record in records {
            let (key, value) = record.encode();
            let appended = self.builder.append(now_ms, Some(&key), value.as_deref(), &[]);
            appended.map_err(|_| ErrorCode::UnknownServerError)?;
        }
        let blob = self.builder.build(&BatchMeta::default()).map_err(|_| ErrorCode::UnknownServerError)?;
        let appended = self.led.append(&blob, Origin::Coordinator).map_err(|code| match code {
            ErrorCode::NotLeaderOrFollower => ErrorCode::NotCoordinator,
            code => code,
        });
        Ok(appended?.base_offset)
    }
}

/// Reads a whole log into a shard.
fn replay(log: &Partition) -> Result<Shard, ErrorCode> {
    let mut shard = Shard::default();
    read_from(log, log.ends().log_start, |record| shard.replay(record))?;
    Ok(shard)
}

/// Reads the records of a log from `from` to its end; gives that end.
fn read_from(log: &Partition, from: Offset, mut take: impl FnMut(Record)) -> Result<Offset, ErrorCode> {
    led_shards::replay(log, from, |batch| {
        if batch.header.is_control() {
            return Ok(());
        }
        let records = batch.records().map_err(|_| ErrorCode::CorruptMessage)?;
        for record in records.iter() {
            let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
            let record = Record::decode(record.key.unwrap_or_default(), record.value);
            take(record.map_err(|_| ErrorCode::CorruptMessage)?);
        }
        Ok(())
    })
}

/// True when a reader of Kafka's schemas would refuse a value of the log (ADR 0014). Markers of transactions are no
/// such values.
pub(crate) fn needs_newer_reader(log: &Partition) -> bool {
    let batches = log.batches();
    let data = batches.iter().filter(|batch| !batch.header.is_control());
    data.filter_map(|batch| batch.records().ok()).any(|records| {
        records.iter().filter_map(Result::ok).any(|record| {
            record
                .value
                .is_some_and(|value| Record::is_of_newer_schema(record.key.unwrap_or_default(), value))
        })
    })
}

/// A share partition with staged records in the log, if there is one. Errors: CORRUPT_MESSAGE.
pub(crate) fn pending_of(log: &Partition) -> Result<Option<ShareKey>, ErrorCode> {
    let staged = |batch: &StateBatch| matches!(batch.state, DurableState::TxnPending(_));
    let shard = replay(log)?;
    Ok(shard.all().into_iter().find(|(_, share)| share.batches.iter().any(staged)).map(|(key, _)| key))
}

/// What a partition of the log says of every share partition, whoever leads it; nothing when it is damaged.
pub(crate) fn recorded(log: &Partition) -> Vec<(ShareKey, DurableShare)> {
    replay(log).map_or(Vec::new(), |shard| shard.all())
}

/// A share partition, its state epoch where its whole state was written, and the runs that were written.
pub(crate) type Written = (ShareKey, Option<StateEpoch>, Vec<StateBatch>);

/// What was written to a partition of the log since `from`, in order: of each share partition the changed runs, and its
/// state epoch where its whole state was written. With the end of the log; nothing when it is damaged.
pub(crate) fn written_since(log: &Partition, from: Offset) -> (Vec<Written>, Offset) {
    let mut written = Vec::new();
    let from = from.max(log.ends().log_start);
    let end = read_from(log, from, |record| match record {
        Record::Snapshot { key, share } => written.push((key, Some(share.state_epoch), share.batches)),
        Record::Update { key, batches, .. } => written.push((key, None, batches)),
        Record::Removed { .. } | Record::Ended { .. } => {}
    });
    end.map_or((Vec::new(), from), |end| (written, end))
}

/// Tells the leader of a source partition how a transaction ended there. A topic that is gone needs no telling.
async fn push_outcome(
    node: &Node,
    key: &ShareKey,
    state_epoch: StateEpoch,
    marker: Marker,
) -> Result<(), ErrorCode> {
    let Some(source) = node.cluster.topics.partition_by_id(key.topic_id, key.partition) else {
        return Ok(());
    };
    loop {
        let leadership = source.leadership();
        let leader = leadership.leader.ok_or(ErrorCode::LeaderNotAvailable)?;
        let request = ShareTxnOutcomeRequest {
            group_id: key.group.to_string().into(),
            topic_id: key.topic_id.0,
            partition: key.partition.0,
            producer_id: marker.producer_id.0,
            marker_epoch: marker.producer_epoch.0,
            commit: marker.outcome == TxnOutcome::Commit,
            state_epoch: state_epoch.0,
        };
        let response = node.peers.call(leader, request, 0).await.map_err(|error| {
            warn!(share_partition = %key, %error, "a source leader was not told how a transaction ended");
            error.code()
        })?;
        if let Some(code) = ErrorCode::try_from_code(response.error_code) {
            return Err(code);
        }
        // A leader that came meanwhile may have read the state before the marker: it is told as well.
        if source.leadership() == leadership {
            return Ok(());
        }
    }
}

/// The `__share_group_state` partition of a share partition; `None` while the topic does not exist.
pub(crate) fn state_partition(node: &Node, key: &ShareKey) -> Option<PartitionIndex> {
    let count = node.cluster.topics.by_name(SHARE_STATE_TOPIC)?.partition_count();
    let index =
        sharestream_wire::share_state::state_partition(&key.group, key.topic_id, key.partition, count);
    Some(PartitionIndex(index))
}

#[cfg(test)]
mod tests;
