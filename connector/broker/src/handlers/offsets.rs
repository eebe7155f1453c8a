//! What the requests that commit or delete offsets have in common: the right to each topic comes first, then
//! its partitions are looked up, and what is refused there is answered first, as Kafka does it.

use std::sync::Arc;

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex};

use crate::error::{ErrorCode, code_of};
use crate::group::offsets::{CommittedOffset, check_metadata};
use crate::node::Node;
use crate::txn::TopicPartition;

/// Partitions with their codes, in the order of the answer.
pub(super) type Results = Vec<(i32, i16)>;

/// One offset of a request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Topic by name.
    pub(super) topic: TopicName,
    /// Partition.
    pub(super) partition: i32,
    /// The offset.
    pub(super) offset: Offset,
    /// Leader epoch of the record before; -1 when it is not known.
    pub(super) leader_epoch: LeaderEpoch,
    /// What the client wants to keep with it.
    pub(super) metadata: Option<StrBytes>,
}

/// The offset that a partition of either request names: the two have the same fields and no type in common.
macro_rules! asked {
    ($topic:expr, $partition:ident) => {
        Asked {
            topic: $topic.clone(),
            partition: $partition.partition_index,
            offset: Offset($partition.committed_offset),
            leader_epoch: LeaderEpoch($partition.committed_leader_epoch),
            metadata: $partition.committed_metadata,
        }
    };
}
pub(super) use asked;

/// A partition that exists. Errors: UNKNOWN_TOPIC_OR_PARTITION.
pub(super) fn known(node: &Node, topic: &TopicName, partition: i32) -> Result<TopicPartition, ErrorCode> {
    let index = PartitionIndex(partition);
    let known = node.cluster.topics.partition(topic, index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok(TopicPartition { topic: Arc::clone(&known.topic), partition: index })
}

/// The offsets of one request, and what becomes of each.
#[derive(Debug, Default)]
pub(super) struct Committing {
    /// Partitions that may not be used or are not there.
    refused: Vec<(TopicName, i32, i16)>,
    /// Those that the coordinator is asked for, and the codes of those that it shall not keep.
    asked: Vec<(TopicName, i32, i16)>,
    offsets: Vec<(TopicPartition, CommittedOffset)>,
}

impl Committing {
    /// Takes an offset in; `allowed` is the right to its topic.
    pub(super) fn add(&mut self, node: &Node, allowed: Result<(), ErrorCode>, asked: Asked) {
        let partition = match allowed.and_then(|()| known(node, &asked.topic, asked.partition)) {
            Ok(partition) => partition,
            Err(code) => return self.refused.push((asked.topic, asked.partition, code.code())),
        };
        let metadata = asked.metadata.unwrap_or_default();
        let fits = check_metadata(&metadata);
        if fits.is_ok() {
            let topic_id = node.cluster.topics.by_name(&asked.topic).map(|topic| topic.id);
            let value = CommittedOffset {
                offset: asked.offset,
                leader_epoch: asked.leader_epoch,
                metadata: metadata.to_string(),
                committed_ms: node.env.clock.wall_ms(),
                topic_id: topic_id.unwrap_or_default(),
            };
            self.offsets.push((partition, value));
        }
        self.asked.push((asked.topic, asked.partition, code_of(&fits)));
    }

    /// True when there is nothing to ask the coordinator.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// The offsets to keep.
    pub(super) fn take_offsets(&mut self) -> Vec<(TopicPartition, CommittedOffset)> {
        std::mem::take(&mut self.offsets)
    }

    /// A refusal of the coordinator is for all that it was asked.
    pub(super) fn settle(&mut self, committed: Result<(), ErrorCode>) {
        if let Err(code) = committed {
            self.asked.iter_mut().for_each(|(_, _, known)| *known = code.code());
        }
    }

    /// Every partition by topic: those that were refused at once, then the others.
    pub(super) fn results(self) -> Vec<(TopicName, Results)> {
        by_topic(self.refused.into_iter().chain(self.asked))
    }
}

/// Groups results by topic, each topic where it comes first.
pub(super) fn by_topic(
    results: impl IntoIterator<Item = (TopicName, i32, i16)>,
) -> Vec<(TopicName, Results)> {
    let mut topics: Vec<(TopicName, Results)> = Vec::new();
    for (name, index, code) in results {
        match topics.iter_mut().find(|(known, _)| *known == name) {
            Some((_, partitions)) => partitions.push((index, code)),
            None => topics.push((name, vec![(index, code)])),
        }
    }
    topics
}
