//! Asks each API for one thing, and gives the first error code of the answer.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use uuid::Uuid;

use crate::fixtures::{Connection, GROUP, TOPIC};

/// The transactional id.
pub(crate) const ID: &str = "job-0";
/// A consumer group: what share groups are asked for leaves a share group behind.
pub(crate) const CONSUMERS: &str = "consumers";
const NEW_TOPIC: &str = "new-topic";

/// Asks one request; gives the first error code of its answer.
macro_rules! ask {
    ($connection:expr, $request:expr, $version:expr, |$answer:ident| $code:expr) => {{
        let $answer = $connection.call($request, $version).await;
        $code
    }};
}

// After the macro that they use.
mod administration;
mod consumer_groups;
mod nodes;
mod share_groups;
mod transactions;

/// What is asked for in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Produce,
    ProduceInTransaction,
    Fetch,
    FetchById,
    ListOffsets,
    DeleteRecords,
    Metadata,
    FindGroup,
    FindTransaction,
    FindShare,
    DeleteGroups,
    DescribeProducers,
    CreateTopics,
    DeleteTopics,
    TopicConfigs,
    GroupConfigs,
    NodeConfigs,
    AlterTopicConfigs,
    AlterGroupConfigs,
    UpdateFeatures,
    DescribeAcls,
    CreateAcls,
    DeleteAcls,
    InitTransaction,
    InitIdempotent,
    AddPartitions,
    AddPartitionsFromLeader,
    EndTxn,
    WriteTxnMarkers,
    DescribeTransactions,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchOfOne,
    OffsetFetchOfOld,
    OffsetForLeaderEpoch,
    DescribeGroups,
    AddOffsets,
    TxnOffsetCommit,
    OffsetCommit,
    Heartbeat,
    ShareDescribe,
    ShareOffsets,
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareFetch,
    ShareAcknowledge,
    Stage,
    InitializeState,
    ReadState,
    WriteState,
    DeleteState,
    TxnOutcome,
}

/// Who asks, and for what.
pub(crate) struct Asker {
    connection: Connection,
    topic_id: Uuid,
    /// Every API that was asked.
    pub(crate) keys: BTreeSet<i16>,
}

impl Asker {
    pub(crate) fn new(connection: Connection, topic_id: Uuid) -> Self {
        Asker { connection, topic_id, keys: BTreeSet::new() }
    }

    async fn call<R: Request>(&mut self, request: R, version: i16) -> R::Response {
        self.keys.insert(R::KEY);
        self.connection.call(request, version).await
    }

    pub(crate) async fn ask(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::Produce
            | Ask::ProduceInTransaction
            | Ask::Fetch
            | Ask::FetchById
            | Ask::ListOffsets
            | Ask::DeleteRecords
            | Ask::DescribeProducers => self.ask_for_records(ask).await,
            Ask::Metadata
            | Ask::FindGroup
            | Ask::FindTransaction
            | Ask::FindShare
            | Ask::DeleteGroups
            | Ask::CreateTopics
            | Ask::DeleteTopics
            | Ask::UpdateFeatures => self.ask_as_admin(ask).await,
            Ask::DescribeAcls | Ask::CreateAcls | Ask::DeleteAcls => self.ask_for_acls(ask).await,
            Ask::TopicConfigs | Ask::GroupConfigs | Ask::NodeConfigs => self.ask_for_configs(ask).await,
            Ask::AlterTopicConfigs | Ask::AlterGroupConfigs => self.alter_configs(ask).await,
            Ask::InitTransaction
            | Ask::InitIdempotent
            | Ask::AddPartitions
            | Ask::AddPartitionsFromLeader
            | Ask::EndTxn
            | Ask::WriteTxnMarkers
            | Ask::DescribeTransactions => self.ask_for_transactions(ask).await,
            Ask::OffsetDelete
            | Ask::OffsetFetch
            | Ask::OffsetFetchOfOne
            | Ask::OffsetFetchOfOld
            | Ask::OffsetForLeaderEpoch
            | Ask::DescribeGroups
            | Ask::AddOffsets
            | Ask::TxnOffsetCommit
            | Ask::OffsetCommit => self.ask_for_consumer_groups(ask).await,
            Ask::Heartbeat
            | Ask::ShareDescribe
            | Ask::ShareOffsets
            | Ask::AlterShareOffsets
            | Ask::DeleteShareOffsets => self.ask_for_groups(ask).await,
            Ask::ShareFetch | Ask::ShareAcknowledge | Ask::Stage => self.ask_for_shares(ask).await,
            Ask::InitializeState | Ask::ReadState | Ask::WriteState | Ask::DeleteState | Ask::TxnOutcome => {
                self.ask_as_node(ask).await
            }
        }
    }

    async fn ask_for_records(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::Fetch | Ask::FetchById => {
                let by_id = ask == Ask::FetchById;
                let asked = fetch_request::FetchPartition::default().with_partition_max_bytes(1);
                let topic = fetch_request::FetchTopic::default()
                    .with_topic(topic_name(if by_id { "" } else { TOPIC }))
                    .with_topic_id(if by_id { self.topic_id } else { Uuid::nil() })
                    .with_partitions(vec![asked]);
                let request = FetchRequest::default().with_session_epoch(-1).with_topics(vec![topic]);
                let version = if by_id { 16 } else { 12 };
                ask!(self, request, version, |answer| answer.responses[0].partitions[0].error_code)
            }
            Ask::ListOffsets => {
                let asked = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
                let topic = list_offsets_request::ListOffsetsTopic::default()
                    .with_name(topic_name(TOPIC))
                    .with_partitions(vec![asked]);
                let request = ListOffsetsRequest::default().with_topics(vec![topic]);
                ask!(self, request, 8, |answer| answer.topics[0].partitions[0].error_code)
            }
            Ask::DeleteRecords => {
                let topic = delete_records_request::DeleteRecordsTopic::default()
                    .with_name(topic_name(TOPIC))
                    .with_partitions(vec![delete_records_request::DeleteRecordsPartition::default()]);
                let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
                ask!(self, request, 2, |answer| answer.topics[0].partitions[0].error_code)
            }
            Ask::DescribeProducers => {
                let topic = describe_producers_request::TopicRequest::default()
                    .with_name(topic_name(TOPIC))
                    .with_partition_indexes(vec![0]);
                let request = DescribeProducersRequest::default().with_topics(vec![topic]);
                ask!(self, request, 0, |answer| answer.topics[0].partitions[0].error_code)
            }
            _produce => {
                let transactional = ask == Ask::ProduceInTransaction;
                let data = produce_request::PartitionProduceData::default()
                    .with_records(Some(one_record(transactional)));
                let topic = produce_request::TopicProduceData::default()
                    .with_name(topic_name(TOPIC))
                    .with_partition_data(vec![data]);
                let request = ProduceRequest::default()
                    .with_acks(-1)
                    .with_transactional_id(transactional.then(|| ID.to_owned().into()).map(TransactionalId))
                    .with_topic_data(vec![topic]);
                ask!(self, request, 12, |answer| answer.responses[0].partition_responses[0].error_code)
            }
        }
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(name.to_owned().into())
}

fn group_id() -> GroupId {
    GroupId(GROUP.into())
}

fn transactional_id() -> TransactionalId {
    TransactionalId(ID.to_owned().into())
}

fn one_record(transactional: bool) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.append(1_000, None, Some(b"v"), &[]).unwrap();
    let meta = match transactional {
        true => BatchMeta {
            producer_id: 1,
            producer_epoch: 0,
            base_sequence: 0,
            transactional,
            ..BatchMeta::default()
        },
        false => BatchMeta::default(),
    };
    builder.build(&meta).unwrap()
}
