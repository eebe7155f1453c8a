//! Partitions, and what is in their logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharestream_base::ids::{
    LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{self as wire, BatchHeader, RawBatch};

use crate::broker_cluster::BrokerCluster;
use crate::log::Partition;

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

    /// The records of a partition that are plain or of a committed transaction, by offset, wherever the last
    /// stable offset is. Records that cannot be decoded are left out: the broker does not look into batches.
    pub fn committed_records(&self, topic: &str, partition: PartitionIndex) -> Vec<RecordView> {
        let visible = |batch: &BatchView| matches!(batch.fate, Fate::Plain | Fate::Committed);
        self.batches(topic, partition)
            .iter()
            .filter(|batch| visible(batch))
            .flat_map(BatchView::records)
            .collect()
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
