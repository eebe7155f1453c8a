//! Looks into a cluster, for tests and tools: logs, transactions, share partitions, groups.
//!
//! Everything here reads the shared memory at once, without the network and whether or not a node is alive, and
//! changes nothing. What is durable is replayed from the logs, not taken from what a coordinator believes; what a
//! leader holds in memory is shown beside it. Fates of batches follow from the markers in the log alone, so they are
//! evidence against the broker's own index of aborted transactions.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharestream_base::Instant;
use sharestream_base::ids::{
    LeaderEpoch, MemberEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, StateEpoch, TopicId,
};
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{self as wire, BatchHeader, RawBatch};

use crate::broker_cluster::BrokerCluster;
use crate::cluster::{SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use crate::log::Partition;
use crate::node::Node;
use crate::share::durable::{DurableState, ShareKey};
use crate::share::leader::ShareLeader;
use crate::share::record_state::{Intent, RecordState, StageWrite, Staged};
use crate::share_coordinator;
use crate::txn;

mod offsets;

pub use offsets::ConsumerOffsetView;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Topic by name.
    pub topic: String,
    /// Topic by id.
    pub topic_id: TopicId,
    /// Number within the topic.
    pub partition: PartitionIndex,
    /// Who leads; none while nobody does.
    pub leader: Option<NodeId>,
    /// Incarnation of that; -1 before the first leader.
    pub leader_epoch: LeaderEpoch,
    /// First offset that is still there.
    pub log_start: Offset,
    /// As the broker tells read-committed readers: first offset of the oldest open transaction, or the high
    /// watermark.
    pub last_stable_offset: Offset,
    /// Offset that the next record gets.
    pub high_watermark: Offset,
}

/// What became of a batch, by the markers in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not transactional: visible to all at once.
    Plain,
    /// Its transaction's commit marker follows.
    Committed,
    /// Its transaction's abort marker follows.
    Aborted,
    /// No marker follows yet.
    Open,
    /// It is a commit marker.
    CommitMarker,
    /// It is an abort marker.
    AbortMarker,
}

/// A batch of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchView {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// Epoch of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
    /// Who wrote it, or whose transaction the marker ends; none of producers without an id.
    pub producer: Option<(ProducerId, ProducerEpoch)>,
    /// Sequence number of its first record; -1 without a producer id and in markers.
    pub base_sequence: i32,
    /// What became of it.
    pub fate: Fate,
    /// The batch as it is on the wire.
    pub bytes: Bytes,
}

/// A record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Its offset.
    pub offset: Offset,
    /// Unix milliseconds.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order; a key may occur more than once.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

/// A transactional id, as the last record in `__transaction_state` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView {
    /// The id.
    pub transactional_id: String,
    /// Who may go on with it.
    pub producer_id: ProducerId,
    /// In which incarnation.
    pub producer_epoch: ProducerEpoch,
    /// As Kafka prints it: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`.
    pub state: &'static str,
    /// Time-out of each transaction, in milliseconds.
    pub timeout_ms: i32,
    /// Wall time at which the open transaction began, in Unix milliseconds; none when none is open.
    pub started_ms: Option<i64>,
    /// Participants that may lack the marker of the open transaction, by topic and number.
    pub participants: Vec<(String, PartitionIndex)>,
}

impl TransactionView {
    /// True while a transaction is open or its markers are under way.
    pub fn is_open(&self) -> bool {
        self.started_ms.is_some()
    }
}

/// What a staged acknowledgement becomes when its transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedIntent {
    /// Archived: the offsets carry no record.
    Gap,
    /// Acknowledged.
    Accept,
    /// Archived.
    Reject,
}

/// The transaction that owns staged records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedView {
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Its producer epoch; its marker carries a higher one.
    pub producer_epoch: ProducerEpoch,
    /// What the records become on commit.
    pub intent: StagedIntent,
}

/// Durable state of a run of offsets of a share partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableStateView {
    /// Deliverable.
    Available,
    /// Done: processed.
    Acknowledged,
    /// Given up; its dead letter is to be written.
    Archiving,
    /// Done: rejected, a gap, aborted data or out of attempts.
    Archived,
    /// TX_PENDING: staged into a transaction that has no marker yet.
    TxnPending(StagedView),
}

/// A run of offsets in one durable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableRunView {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// Deliveries so far, as far as they are durable.
    pub delivery_count: u16,
    /// The state.
    pub state: DurableStateView,
}

/// State of a run of offsets in the memory of the share partition's leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryStateView {
    /// Deliverable.
    Available,
    /// Held by a member until its lock runs out.
    Acquired {
        /// The member.
        member: String,
        /// When the lock runs out.
        lock_deadline: Instant,
    },
    /// Decided; the durable write is under way.
    Settling,
    /// Staged; the durable write is under way.
    Staging(StagedView),
    /// Staged, durably.
    TxnPending(StagedView),
    /// Given up; its dead letter is to be written.
    Archiving,
    /// Done: processed.
    Acknowledged,
    /// Done: rejected, a gap, aborted data or out of attempts.
    Archived,
}

/// A run of offsets in one state in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRunView {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// Deliveries so far.
    pub delivery_count: u16,
    /// The state.
    pub state: MemoryStateView,
}

/// A share partition in the memory of its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The leader.
    pub node: NodeId,
    /// Its incarnation.
    pub leader_epoch: LeaderEpoch,
    /// Incarnation of the durable state that it has loaded.
    pub state_epoch: StateEpoch,
    /// Everything below is done.
    pub start_offset: Offset,
    /// The runs from the start offset on, ascending and without holes.
    pub runs: Vec<MemoryRunView>,
}

/// A share partition: a partition as one group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharePartitionView {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Incarnation of the durable state: a reset of offsets raises it.
    pub state_epoch: StateEpoch,
    /// Highest epoch of a source leader that has read or written the state.
    pub leader_epoch: LeaderEpoch,
    /// Everything below is done; none while nobody has chosen it.
    pub start_offset: Option<Offset>,
    /// Runs at and above the start offset, ascending and disjoint; what is missing is available.
    pub runs: Vec<DurableRunView>,
    /// What its leader holds in memory; none when no live leader has loaded it.
    pub memory: Option<MemoryView>,
}

/// A write to the durable state of a share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareStateWritten {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The incarnation, where the whole state was written: when it began, and with each snapshot of the log.
    pub state_epoch: Option<StateEpoch>,
    /// The runs that were written.
    pub runs: Vec<DurableRunView>,
}

/// A share group at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The group.
    pub group: String,
    /// Its coordinator.
    pub coordinator: NodeId,
    /// Its members and their epochs, by member id.
    pub members: Vec<(String, MemberEpoch)>,
}

impl BrokerCluster {
    /// Every partition, the broker's own topics included, by topic name and number.
    pub fn partitions(&self) -> Vec<PartitionView> {
        self.cluster.partitions().map(|partition| partition_view(&partition)).collect()
    }

    /// Every batch of a partition, by offset. Empty when there is no such partition.
    pub fn batches(&self, topic: &str, partition: PartitionIndex) -> Vec<BatchView> {
        let Some(partition) = self.cluster.topics.partition(topic, partition) else { return Vec::new() };
        let batches = partition.batches();
        let fates = fates(&batches);
        batches.iter().zip(fates).map(|(batch, fate)| batch_view(batch, fate)).collect()
    }

    /// The records of a partition that are plain or of a committed transaction, by offset, wherever the last stable
    /// offset is. Records that cannot be decoded are left out: the broker does not look into batches.
    pub fn committed_records(&self, topic: &str, partition: PartitionIndex) -> Vec<RecordView> {
        let visible = |batch: &BatchView| matches!(batch.fate, Fate::Plain | Fate::Committed);
        self.batches(topic, partition)
            .iter()
            .filter(|batch| visible(batch))
            .flat_map(BatchView::records)
            .collect()
    }

    /// Every transactional id, by name. Those in a damaged log are left out.
    pub fn transactions(&self) -> Vec<TransactionView> {
        let logs = self.cluster.topics.by_name(TRANSACTION_STATE_TOPIC);
        let logs = logs.iter().flat_map(|topic| topic.partitions());
        let mut all: Vec<TransactionView> =
            logs.flat_map(|log| txn::recorded(log)).map(transaction_view).collect();
        all.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        all
    }

    /// Every share partition that has durable state, by group, topic id and number.
    pub fn share_partitions(&self) -> Vec<SharePartitionView> {
        let mut loaded = self.loaded_share_partitions();
        let logs = self.cluster.topics.by_name(SHARE_STATE_TOPIC);
        let logs = logs.iter().flat_map(|topic| topic.partitions());
        let mut all: Vec<SharePartitionView> = logs
            .flat_map(|log| share_coordinator::recorded(log))
            .map(|(key, share)| SharePartitionView {
                group: key.group.to_string(),
                topic_id: key.topic_id,
                partition: key.partition,
                state_epoch: share.state_epoch,
                leader_epoch: share.leader_epoch,
                start_offset: share.start_offset,
                runs: share.batches.iter().map(durable_run_view).collect(),
                memory: loaded.remove(&key),
            })
            .collect();
        all.sort_by(|a, b| (&a.group, a.topic_id, a.partition).cmp(&(&b.group, b.topic_id, b.partition)));
        all
    }

    /// Partitions of [`crate::SHARE_STATE_TOPIC`] with values that a reader of Kafka's schemas refuses: none may be left
    /// before an older broker reads them (ADR 0014).
    pub fn share_state_for_newer_readers(&self) -> Vec<PartitionIndex> {
        let logs = self.cluster.topics.by_name(SHARE_STATE_TOPIC);
        let logs = logs.iter().flat_map(|topic| topic.partitions());
        logs.filter(|log| share_coordinator::needs_newer_reader(log)).map(|log| log.index).collect()
    }

    /// What was written to the durable state of share partitions since the last call with the same `read`, which notes how
    /// far the log is read; unlike [`BrokerCluster::share_partitions`], it shows what a start offset has passed meanwhile. A
    /// log that was cut since is read from its new beginning.
    pub fn share_state_written(&self, read: &mut BTreeMap<PartitionIndex, Offset>) -> Vec<ShareStateWritten> {
        let Some(topic) = self.cluster.topics.by_name(SHARE_STATE_TOPIC) else { return Vec::new() };
        let mut all = Vec::new();
        for log in topic.partitions() {
            let from = read.entry(log.index).or_insert(Offset(0));
            if *from >= log.ends().high_watermark {
                continue;
            }
            let (written, end) = share_coordinator::written_since(log, *from);
            *from = end;
            all.extend(written.into_iter().map(|(key, state_epoch, batches)| ShareStateWritten {
                group: key.group.to_string(),
                topic_id: key.topic_id,
                partition: key.partition,
                state_epoch,
                runs: batches.iter().map(durable_run_view).collect(),
            }));
        }
        all
    }

    /// Every share group that a live coordinator knows, by name.
    pub fn groups(&self) -> Vec<GroupView> {
        let view = |node: &Node| {
            let groups = node.share.groups.memberships().into_iter();
            let coordinator = node.id;
            groups.map(move |(group, members)| GroupView { group, coordinator, members }).collect::<Vec<_>>()
        };
        let mut all: Vec<GroupView> = self.all_running().iter().flat_map(|node| view(node)).collect();
        all.sort_by(|a, b| a.group.cmp(&b.group));
        all
    }

    /// Open share sessions of each live node.
    pub fn share_session_counts(&self) -> BTreeMap<NodeId, usize> {
        let nodes = self.all_running();
        nodes.iter().map(|node| (node.id, node.share.manager.sessions().count())).collect()
    }

    fn loaded_share_partitions(&self) -> BTreeMap<ShareKey, MemoryView> {
        let mut loaded = BTreeMap::new();
        for node in self.all_running() {
            for leader in node.share.manager.loaded() {
                if let Some(view) = memory_view(node.id, &leader) {
                    loaded.insert(leader.key.clone(), view);
                }
            }
        }
        loaded
    }
}

impl BatchView {
    /// Its records; none of a marker or of a batch that cannot be decoded.
    pub fn records(&self) -> Vec<RecordView> {
        if matches!(self.fate, Fate::CommitMarker | Fate::AbortMarker) {
            return Vec::new();
        }
        let Ok(batch) = RawBatch::from_bytes(self.bytes.clone()) else { return Vec::new() };
        let Ok(records) = batch.records() else { return Vec::new() };
        let copied = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
        let header = |(key, value): (&[u8], Option<&[u8]>)| (copied(key), value.map(copied));
        let view = |record: wire::RecordView<'_>| RecordView {
            offset: Offset(record.offset),
            timestamp_ms: record.timestamp,
            key: record.key.map(copied),
            value: record.value.map(copied),
            headers: record.headers.iter().map(header).collect(),
        };
        records.iter().filter_map(Result::ok).map(view).collect()
    }
}

fn partition_view(partition: &Partition) -> PartitionView {
    let (leadership, ends) = (partition.leadership(), partition.ends());
    PartitionView {
        topic: partition.topic.to_string(),
        topic_id: partition.topic_id,
        partition: partition.index,
        leader: leadership.leader,
        leader_epoch: leadership.epoch,
        log_start: ends.log_start,
        last_stable_offset: ends.last_stable_offset,
        high_watermark: ends.high_watermark,
    }
}

/// What became of each batch: a marker decides on every earlier undecided batch of its producer id.
fn fates(batches: &[RawBatch]) -> Vec<Fate> {
    let mut fates = Vec::with_capacity(batches.len());
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, batch) in batches.iter().enumerate() {
        let producer_id = batch.header.producer_id;
        let fate = match marker_of(batch) {
            Some(marker) => {
                let (fate, own) = match marker {
                    ControlMarker::Commit => (Fate::Committed, Fate::CommitMarker),
                    ControlMarker::Abort => (Fate::Aborted, Fate::AbortMarker),
                };
                for ended in open.remove(&producer_id).unwrap_or_default() {
                    fates[ended] = fate;
                }
                own
            }
            None if batch.header.is_transactional() => {
                open.entry(producer_id).or_default().push(index);
                Fate::Open
            }
            None => Fate::Plain,
        };
        fates.push(fate);
    }
    fates
}

fn marker_of(batch: &RawBatch) -> Option<ControlMarker> {
    let marker = batch.header.is_control().then(|| control::decode(batch).ok())?;
    marker.map(|(marker, _)| marker)
}

fn batch_view(batch: &RawBatch, fate: Fate) -> BatchView {
    let header: &BatchHeader = &batch.header;
    let producer = (ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch));
    BatchView {
        first: Offset(header.base_offset),
        last: Offset(header.last_offset()),
        leader_epoch: LeaderEpoch(header.partition_leader_epoch),
        producer: (header.producer_id >= 0).then_some(producer),
        base_sequence: header.base_sequence,
        fate,
        bytes: batch.bytes.clone(),
    }
}

fn transaction_view(summary: txn::TransactionSummary) -> TransactionView {
    let participants = summary.partitions.iter();
    TransactionView {
        transactional_id: summary.transactional_id.to_string(),
        producer_id: summary.identity.producer_id,
        producer_epoch: summary.identity.epoch,
        state: summary.state,
        timeout_ms: summary.timeout_ms,
        started_ms: summary.started_ms,
        participants: participants.map(|one| (one.topic.to_string(), one.partition)).collect(),
    }
}

fn staged_view(staged: &Staged) -> StagedView {
    StagedView {
        producer_id: staged.producer_id,
        producer_epoch: staged.producer_epoch,
        intent: match staged.intent {
            Intent::Gap => StagedIntent::Gap,
            Intent::Accept => StagedIntent::Accept,
            Intent::Reject | Intent::DeadLetter => StagedIntent::Reject,
        },
    }
}

fn durable_run_view(batch: &crate::share::durable::StateBatch) -> DurableRunView {
    DurableRunView {
        first: batch.range.first,
        last: batch.range.last,
        delivery_count: batch.delivery_count,
        state: match &batch.state {
            DurableState::Available => DurableStateView::Available,
            DurableState::Acknowledged => DurableStateView::Acknowledged,
            DurableState::Archiving => DurableStateView::Archiving,
            DurableState::Archived => DurableStateView::Archived,
            DurableState::TxnPending(staged) => DurableStateView::TxnPending(staged_view(staged)),
        },
    }
}

/// `None` when the leader is not one any more.
fn memory_view(node: NodeId, leader: &ShareLeader) -> Option<MemoryView> {
    let looked = leader.with(|partition| {
        let runs = partition.window().iter().map(|(range, run)| MemoryRunView {
            first: range.first,
            last: range.last,
            delivery_count: run.delivery_count,
            state: memory_state_view(&run.state),
        });
        (partition.start_offset(), runs.collect())
    });
    let (start_offset, runs) = looked.ok()?;
    let (leader_epoch, state_epoch) = (leader.log.epoch(), leader.state_epoch);
    Some(MemoryView { node, leader_epoch, state_epoch, start_offset, runs })
}

fn memory_state_view(state: &RecordState) -> MemoryStateView {
    match state {
        RecordState::Available => MemoryStateView::Available,
        RecordState::Acquired { holder, lock_deadline } => {
            MemoryStateView::Acquired { member: holder.to_string(), lock_deadline: *lock_deadline }
        }
        RecordState::Settling { .. } => MemoryStateView::Settling,
        RecordState::TxnPending { staged, write: StageWrite::Durable } => {
            MemoryStateView::TxnPending(staged_view(staged))
        }
        RecordState::TxnPending { staged, write: StageWrite::Outstanding { .. } } => {
            MemoryStateView::Staging(staged_view(staged))
        }
        RecordState::Acknowledged => MemoryStateView::Acknowledged,
        RecordState::Archiving { .. } => MemoryStateView::Archiving,
        RecordState::Archived => MemoryStateView::Archived,
    }
}
