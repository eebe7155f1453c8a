//! Asks for share groups, their offsets and their records.

use kafka_protocol::messages::*;
use sharestream_wire::messages::share_acknowledge::{self, ShareAcknowledgeRequest};
use sharestream_wire::messages::share_fetch::{self, ShareFetchRequest};
use sharestream_wire::txn_share_acknowledge::{
    TxnAcknowledgePartition, TxnAcknowledgeTopic, TxnShareAcknowledgeRequest,
};

use super::{Ask, Asker, ID, group_id, topic_name};
use crate::fixtures::{GROUP, TOPIC};

impl Asker {
    pub(super) async fn ask_for_groups(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::Heartbeat => {
                let request = ShareGroupHeartbeatRequest::default()
                    .with_group_id(group_id())
                    .with_member_id("m".into())
                    // Not there: the group stays without members.
                    .with_member_epoch(7)
                    .with_subscribed_topic_names(Some(vec![topic_name(TOPIC)]));
                ask!(self, request, 1, |answer| answer.error_code)
            }
            Ask::ShareDescribe => {
                let request = ShareGroupDescribeRequest::default().with_group_ids(vec![group_id()]);
                ask!(self, request, 1, |answer| answer.groups[0].error_code)
            }
            Ask::ShareOffsets => {
                use describe_share_group_offsets_request as asked;
                let topic = asked::DescribeShareGroupOffsetsRequestTopic::default()
                    .with_topic_name(topic_name(TOPIC))
                    .with_partitions(vec![0]);
                let group = asked::DescribeShareGroupOffsetsRequestGroup::default()
                    .with_group_id(group_id())
                    .with_topics(Some(vec![topic]));
                let request = DescribeShareGroupOffsetsRequest::default().with_groups(vec![group]);
                ask!(self, request, 0, |answer| {
                    let topics = answer.groups[0].topics.first();
                    topics.map_or(answer.groups[0].error_code, |topic| topic.partitions[0].error_code)
                })
            }
            Ask::AlterShareOffsets => {
                use alter_share_group_offsets_request as asked;
                let topic = asked::AlterShareGroupOffsetsRequestTopic::default()
                    .with_topic_name(topic_name(TOPIC))
                    .with_partitions(vec![asked::AlterShareGroupOffsetsRequestPartition::default()]);
                let request = AlterShareGroupOffsetsRequest::default()
                    .with_group_id(group_id())
                    .with_topics(vec![topic]);
                ask!(self, request, 0, |answer| {
                    answer.responses.first().map_or(answer.error_code, |topic| topic.partitions[0].error_code)
                })
            }
            _delete => {
                use delete_share_group_offsets_request as asked;
                let topic =
                    asked::DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(topic_name(TOPIC));
                let request = DeleteShareGroupOffsetsRequest::default()
                    .with_group_id(group_id())
                    .with_topics(vec![topic]);
                ask!(self, request, 0, |answer| {
                    answer.responses.first().map_or(answer.error_code, |topic| topic.error_code)
                })
            }
        }
    }

    pub(super) async fn ask_for_shares(&mut self, ask: Ask) -> i16 {
        let topic_id = self.topic_id;
        match ask {
            Ask::ShareFetch => {
                let partitions = vec![share_fetch::FetchPartition::default()];
                let request = ShareFetchRequest {
                    group_id: Some(GROUP.into()),
                    member_id: Some("m".into()),
                    max_records: 1,
                    topics: vec![share_fetch::FetchTopic { topic_id, partitions }],
                    ..ShareFetchRequest::default()
                };
                ask!(self, request, 2, |answer| {
                    let topic = answer.responses.first();
                    topic.map_or(answer.error_code, |topic| topic.partitions[0].error_code)
                })
            }
            Ask::ShareAcknowledge => {
                // Continues, and ends, the session of a fetch without partitions.
                let open = ShareFetchRequest {
                    group_id: Some(GROUP.into()),
                    member_id: Some("m".into()),
                    ..ShareFetchRequest::default()
                };
                self.call(open, 2).await;
                let partitions = vec![share_acknowledge::AcknowledgePartition::default()];
                let request = ShareAcknowledgeRequest {
                    group_id: Some(GROUP.into()),
                    member_id: Some("m".into()),
                    share_session_epoch: -1,
                    topics: vec![share_acknowledge::AcknowledgeTopic { topic_id, partitions }],
                    ..ShareAcknowledgeRequest::default()
                };
                ask!(self, request, 2, |answer| {
                    let topic = answer.responses.first();
                    topic.map_or(answer.error_code, |topic| topic.partitions[0].error_code)
                })
            }
            _stage => {
                let partitions = vec![TxnAcknowledgePartition::default()];
                let request = TxnShareAcknowledgeRequest {
                    transactional_id: Some(ID.into()),
                    group_id: GROUP.into(),
                    member_id: "m".into(),
                    topics: vec![TxnAcknowledgeTopic { topic_id, partitions }],
                    ..TxnShareAcknowledgeRequest::default()
                };
                ask!(self, request, 0, |answer| answer.error_code)
            }
        }
    }
}
