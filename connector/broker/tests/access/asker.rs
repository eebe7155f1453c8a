//! Asks each API for one thing, and gives the first error code of the answer.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_wire::messages::initialize_share_group_state as initialize;
use sharestream_wire::messages::read_share_group_state as read_state;
use sharestream_wire::messages::share_acknowledge::{self, ShareAcknowledgeRequest};
use sharestream_wire::messages::share_fetch::{self, ShareFetchRequest};
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state as write_state;
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use sharestream_wire::txn_share_acknowledge::{
    TxnAcknowledgePartition, TxnAcknowledgeTopic, TxnShareAcknowledgeRequest,
};
use uuid::Uuid;

use crate::fixtures::{Connection, GROUP, TOPIC};

/// The transactional id.
pub(crate) const ID: &str = "job-0";
const NEW_TOPIC: &str = "new-topic";

/// Asks one request; gives the first error code of its answer.
macro_rules! ask {
    ($connection:expr, $request:expr, $version:expr, |$answer:ident| $code:expr) => {{
        let $answer = $connection.call($request, $version).await;
        $code
    }};
}

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

    async fn ask_as_admin(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::Metadata => {
                let topic =
                    metadata_request::MetadataRequestTopic::default().with_name(Some(topic_name(TOPIC)));
                let request = MetadataRequest::default().with_topics(Some(vec![topic]));
                ask!(self, request, 12, |answer| answer.topics[0].error_code)
            }
            Ask::DeleteGroups => {
                let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id()]);
                ask!(self, request, 2, |answer| answer.results[0].error_code)
            }
            Ask::CreateTopics => {
                let topic = create_topics_request::CreatableTopic::default()
                    .with_name(topic_name(NEW_TOPIC))
                    .with_num_partitions(1)
                    .with_replication_factor(1);
                let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
                ask!(self, request, 7, |answer| answer.topics[0].error_code)
            }
            Ask::DeleteTopics => {
                let topic =
                    delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name(NEW_TOPIC)));
                let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
                ask!(self, request, 6, |answer| answer.responses[0].error_code)
            }
            Ask::UpdateFeatures => {
                let request = UpdateFeaturesRequest::default().with_timeout_ms(1_000);
                ask!(self, request, 2, |answer| answer.error_code)
            }
            _find => {
                let (kind, key) = match ask {
                    Ask::FindGroup => (0, GROUP.to_owned()),
                    Ask::FindTransaction => (1, ID.to_owned()),
                    _share => (2, format!("{GROUP}:{}:0", self.topic_id)),
                };
                let request = FindCoordinatorRequest::default()
                    .with_key_type(kind)
                    .with_coordinator_keys(vec![key.into()]);
                ask!(self, request, 6, |answer| answer.coordinators[0].error_code)
            }
        }
    }

    async fn ask_for_acls(&mut self, ask: Ask) -> i16 {
        const ANY: i8 = 1;
        match ask {
            Ask::DescribeAcls => {
                let request = DescribeAclsRequest::default()
                    .with_resource_type_filter(ANY)
                    .with_resource_name_filter(None)
                    .with_pattern_type_filter(ANY)
                    .with_principal_filter(None)
                    .with_host_filter(None)
                    .with_operation(ANY)
                    .with_permission_type(ANY);
                ask!(self, request, 3, |answer| answer.error_code)
            }
            Ask::CreateAcls => {
                let creation = create_acls_request::AclCreation::default()
                    .with_resource_type(3)
                    .with_resource_name("group-of-another".into())
                    .with_resource_pattern_type(3)
                    .with_principal("User:another".into())
                    .with_host("*".into())
                    .with_operation(3)
                    .with_permission_type(3);
                let request = CreateAclsRequest::default().with_creations(vec![creation]);
                ask!(self, request, 3, |answer| answer.results[0].error_code)
            }
            _delete => {
                let filter = delete_acls_request::DeleteAclsFilter::default()
                    .with_resource_type_filter(3)
                    .with_resource_name_filter(Some("group-of-another".into()))
                    .with_pattern_type_filter(3)
                    .with_principal_filter(None)
                    .with_host_filter(None)
                    .with_operation(ANY)
                    .with_permission_type(ANY);
                let request = DeleteAclsRequest::default().with_filters(vec![filter]);
                ask!(self, request, 3, |answer| answer.filter_results[0].error_code)
            }
        }
    }

    async fn ask_for_configs(&mut self, ask: Ask) -> i16 {
        let (kind, name) = match ask {
            Ask::TopicConfigs => (2, TOPIC),
            Ask::GroupConfigs => (32, GROUP),
            _node => (4, "1"),
        };
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(name.into())
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        ask!(self, request, 4, |answer| answer.results[0].error_code)
    }

    async fn alter_configs(&mut self, ask: Ask) -> i16 {
        let (kind, name) = if ask == Ask::AlterTopicConfigs { (2, TOPIC) } else { (32, GROUP) };
        let resource = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(name.into());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        ask!(self, request, 1, |answer| answer.responses[0].error_code)
    }

    async fn ask_for_transactions(&mut self, ask: Ask) -> i16 {
        let id = || TransactionalId(ID.to_owned().into());
        let partitions = || {
            add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
                .with_name(topic_name(TOPIC))
                .with_partitions(vec![0])
        };
        match ask {
            Ask::InitTransaction | Ask::InitIdempotent => {
                let request = InitProducerIdRequest::default()
                    .with_transactional_id((ask == Ask::InitTransaction).then(id))
                    .with_transaction_timeout_ms(1_000)
                    .with_producer_id((-1).into())
                    .with_producer_epoch(-1);
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::AddPartitions => {
                let request = AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(id())
                    .with_v3_and_below_topics(vec![partitions()]);
                ask!(self, request, 3, |answer| {
                    let topic = &answer.results_by_topic_v3_and_below[0];
                    topic.results_by_partition[0].partition_error_code
                })
            }
            Ask::AddPartitionsFromLeader => {
                let transaction = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default()
                    .with_transactional_id(id())
                    .with_topics(vec![partitions()]);
                let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::EndTxn => {
                let request = EndTxnRequest::default().with_transactional_id(id());
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::WriteTxnMarkers => {
                let topic = write_txn_markers_request::WritableTxnMarkerTopic::default()
                    .with_name(topic_name(TOPIC))
                    .with_partition_indexes(vec![0]);
                let marker = write_txn_markers_request::WritableTxnMarker::default().with_topics(vec![topic]);
                let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
                ask!(self, request, 1, |answer| answer.markers[0].topics[0].partitions[0].error_code)
            }
            _describe => {
                let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
                ask!(self, request, 0, |answer| answer.transaction_states[0].error_code)
            }
        }
    }

    async fn ask_for_groups(&mut self, ask: Ask) -> i16 {
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

    async fn ask_for_shares(&mut self, ask: Ask) -> i16 {
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

    async fn ask_as_node(&mut self, ask: Ask) -> i16 {
        let topic_id = self.topic_id;
        match ask {
            Ask::InitializeState => {
                let partitions = vec![initialize::PartitionData::default()];
                let request = initialize::InitializeShareGroupStateRequest {
                    group_id: GROUP.into(),
                    topics: vec![initialize::InitializeStateData { topic_id, partitions }],
                };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::ReadState => {
                let data = read_state::PartitionData { leader_epoch: -1, ..Default::default() };
                let topics = vec![read_state::ReadStateData { topic_id, partitions: vec![data] }];
                let request = read_state::ReadShareGroupStateRequest { group_id: GROUP.into(), topics };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::WriteState => {
                let partitions = vec![write_state::PartitionData::default()];
                let topics = vec![write_state::WriteStateData { topic_id, partitions }];
                let request = write_state::WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::DeleteState => {
                use delete_share_group_state_request as asked;
                let topic = asked::DeleteStateData::default()
                    .with_topic_id(topic_id)
                    .with_partitions(vec![asked::PartitionData::default()]);
                let request = DeleteShareGroupStateRequest::default()
                    .with_group_id(GROUP.into())
                    .with_topics(vec![topic]);
                ask!(self, request, 0, |answer| answer.results[0].partitions[0].error_code)
            }
            _outcome => {
                let request = ShareTxnOutcomeRequest {
                    group_id: GROUP.into(),
                    topic_id,
                    ..ShareTxnOutcomeRequest::default()
                };
                ask!(self, request, 0, |answer| answer.error_code)
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
