//! Asks for consumer groups and their offsets.

use kafka_protocol::messages::*;

use super::{Ask, Asker, CONSUMERS, topic_name, transactional_id};
use crate::fixtures::TOPIC;

impl Asker {
    pub(super) async fn ask_for_consumer_groups(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::OffsetDelete => {
                use offset_delete_request as asked;
                let topic = asked::OffsetDeleteRequestTopic::default()
                    .with_name(topic_name(TOPIC))
                    .with_partitions(vec![asked::OffsetDeleteRequestPartition::default()]);
                let request =
                    OffsetDeleteRequest::default().with_group_id(consumers()).with_topics(vec![topic]);
                ask!(self, request, 0, |answer| {
                    answer.topics.first().map_or(answer.error_code, |topic| topic.partitions[0].error_code)
                })
            }
            Ask::DescribeGroups => {
                let request = DescribeGroupsRequest::default().with_groups(vec![consumers()]);
                ask!(self, request, 6, |answer| answer.groups[0].error_code)
            }
            Ask::OffsetForLeaderEpoch => {
                use offset_for_leader_epoch_request as asked;
                let topic = asked::OffsetForLeaderTopic::default()
                    .with_topic(topic_name(TOPIC))
                    .with_partitions(vec![asked::OffsetForLeaderPartition::default()]);
                let request = OffsetForLeaderEpochRequest::default()
                    .with_replica_id(BrokerId(-2))
                    .with_topics(vec![topic]);
                ask!(self, request, 4, |answer| answer.topics[0].partitions[0].error_code)
            }
            Ask::AddOffsets => {
                let request = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(transactional_id())
                    .with_group_id(consumers());
                ask!(self, request, 4, |answer| answer.error_code)
            }
            fetch @ (Ask::OffsetFetch | Ask::OffsetFetchOfOne | Ask::OffsetFetchOfOld) => {
                self.ask_for_offsets(fetch).await
            }
            commit => self.commit_offsets(commit).await,
        }
    }

    /// In the three forms that the request has had.
    async fn ask_for_offsets(&mut self, ask: Ask) -> i16 {
        use offset_fetch_request as asked;
        if ask == Ask::OffsetFetch {
            let topic = asked::OffsetFetchRequestTopics::default()
                .with_name(topic_name(TOPIC))
                .with_partition_indexes(vec![0]);
            let group = asked::OffsetFetchRequestGroup::default()
                .with_group_id(consumers())
                .with_topics(Some(vec![topic]));
            let request = OffsetFetchRequest::default().with_groups(vec![group]);
            return ask!(self, request, 9, |answer| {
                let group = &answer.groups[0];
                group.topics.first().map_or(group.error_code, |topic| topic.partitions[0].error_code)
            });
        }
        let topic = asked::OffsetFetchRequestTopic::default()
            .with_name(topic_name(TOPIC))
            .with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(consumers()).with_topics(Some(vec![topic]));
        let version = if ask == Ask::OffsetFetchOfOne { 7 } else { 1 };
        ask!(self, request, version, |answer| {
            answer.topics.first().map_or(answer.error_code, |topic| topic.partitions[0].error_code)
        })
    }

    async fn commit_offsets(&mut self, ask: Ask) -> i16 {
        if ask == Ask::OffsetCommit {
            use offset_commit_request as asked;
            let topic = asked::OffsetCommitRequestTopic::default()
                .with_name(topic_name(TOPIC))
                .with_partitions(vec![asked::OffsetCommitRequestPartition::default()]);
            let request = OffsetCommitRequest::default().with_group_id(consumers()).with_topics(vec![topic]);
            return ask!(self, request, 9, |answer| answer.topics[0].partitions[0].error_code);
        }
        use txn_offset_commit_request as asked;
        let topic = asked::TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name(TOPIC))
            .with_partitions(vec![asked::TxnOffsetCommitRequestPartition::default()]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(transactional_id())
            .with_group_id(consumers())
            .with_topics(vec![topic]);
        ask!(self, request, 5, |answer| answer.topics[0].partitions[0].error_code)
    }
}

fn consumers() -> GroupId {
    GroupId(CONSUMERS.into())
}
