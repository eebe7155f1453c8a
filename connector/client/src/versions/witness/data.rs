//! Produce, Fetch, ListOffsets, Metadata, ApiVersions, and transactions.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};

use super::*;

pub(super) fn witnesses() -> Vec<Witness> {
    vec![
        produce(),
        fetch(),
        list_offsets(),
        metadata(),
        api_versions(),
        find_coordinator(),
        init_producer_id(),
        end_txn(),
    ]
}

fn produce() -> Witness {
    use k::produce_request as q;
    use k::produce_response as r;
    let records = Bytes::from_static(b"records");
    let partition = PartitionProduceData::default().with_index(4).with_records(Some(records.clone()));
    let ours = m::ProduceRequest::default()
        .with_transactional_id(Some(transactional("tx")))
        .with_acks(-1)
        .with_timeout_ms(2)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(topic("t"))
                .with_topic_id(ID)
                .with_partition_data(vec![partition]),
        ]);
    let theirs = move |version: i16| q::ProduceRequestData {
        transactional_id: Some(kt("tx")),
        acks: -1,
        timeout_ms: 2,
        topic_data: vec![q::TopicProduceData {
            name: if version <= 12 { kt("t") } else { KafkaString::default() },
            topic_id: since(version, 13, kid()),
            partition_data: vec![q::PartitionProduceData {
                index: 4,
                records: Some(records.clone()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = move |version: i16| r::ProduceResponseData {
        responses: vec![r::TopicProduceResponse {
            name: if version <= 12 { kt("t") } else { KafkaString::default() },
            topic_id: since(version, 13, kid()),
            partition_responses: vec![r::PartitionProduceResponse {
                index: 1,
                error_code: 6,
                base_offset: 2,
                log_append_time_ms: 3,
                log_start_offset: 4,
                record_errors: vec![r::BatchIndexAndErrorMessage {
                    batch_index: 5,
                    batch_index_error_message: Some(kt("bad")),
                    ..Default::default()
                }],
                error_message: Some(kt("text")),
                current_leader: if version >= 10 {
                    r::LeaderIdAndEpoch { leader_id: 7, leader_epoch: 8, ..Default::default() }
                } else {
                    r::LeaderIdAndEpoch::default()
                },
                ..Default::default()
            }],
            ..Default::default()
        }],
        throttle_time_ms: 9,
        node_endpoints: since(
            version,
            10,
            vec![r::NodeEndpoint { node_id: 7, host: kt("h"), port: 10, rack: None, ..Default::default() }],
        ),
        ..Default::default()
    };
    witness!(m::ProduceRequest, |version| ours.clone(), theirs(version), answer(version))
}

fn fetch() -> Witness {
    use k::fetch_request as q;
    use k::fetch_response as r;
    let partition = FetchPartition::default()
        .with_partition(1)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(2)
        .with_last_fetched_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(3);
    let ours = m::FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(4)
        .with_min_bytes(5)
        .with_max_bytes(6)
        .with_isolation_level(1)
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default().with_topic(topic("t")).with_topic_id(ID).with_partitions(vec![partition]),
        ]);
    let theirs = move |version: i16| q::FetchRequestData {
        replica_id: -1,
        max_wait_ms: 4,
        min_bytes: 5,
        max_bytes: 6,
        isolation_level: 1,
        session_id: 0,
        session_epoch: -1,
        topics: vec![q::FetchTopic {
            topic: if version <= 12 { kt("t") } else { KafkaString::default() },
            topic_id: since(version, 13, kid()),
            partitions: vec![q::FetchPartition {
                partition: 1,
                current_leader_epoch: -1,
                fetch_offset: 2,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: 3,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = move |version: i16| r::FetchResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        session_id: 3,
        responses: vec![r::FetchableTopicResponse {
            topic: if version <= 12 { kt("t") } else { KafkaString::default() },
            topic_id: since(version, 13, kid()),
            partitions: vec![r::PartitionData {
                partition_index: 4,
                error_code: 5,
                high_watermark: 6,
                last_stable_offset: 7,
                log_start_offset: 8,
                current_leader: r::LeaderIdAndEpoch { leader_id: 9, leader_epoch: 10, ..Default::default() },
                aborted_transactions: Some(vec![r::AbortedTransaction {
                    producer_id: 11,
                    first_offset: 12,
                    ..Default::default()
                }]),
                preferred_read_replica: 13,
                records: Some(Bytes::from_static(b"records")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        node_endpoints: since(
            version,
            16,
            vec![r::NodeEndpoint { node_id: 9, host: kt("h"), port: 14, rack: None, ..Default::default() }],
        ),
        ..Default::default()
    };
    witness!(m::FetchRequest, |version| ours.clone(), theirs(version), answer(version))
}

fn list_offsets() -> Witness {
    use k::list_offsets_request as q;
    use k::list_offsets_response as r;
    let partition = ListOffsetsPartition::default()
        .with_partition_index(1)
        .with_current_leader_epoch(-1)
        .with_timestamp(2);
    let ours = move |version: i16| {
        m::ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(1)
            .with_topics(vec![
                ListOffsetsTopic::default().with_name(topic("t")).with_partitions(vec![partition.clone()]),
            ])
            // As the client does, whatever the version: before 10 it is left out.
            .with_timeout_ms(if version >= 10 { 3 } else { 30_000 })
    };
    let theirs = move |version: i16| q::ListOffsetsRequestData {
        replica_id: -1,
        isolation_level: 1,
        topics: vec![q::ListOffsetsTopic {
            name: kt("t"),
            partitions: vec![q::ListOffsetsPartition {
                partition_index: 1,
                current_leader_epoch: -1,
                timestamp: 2,
                ..Default::default()
            }],
            ..Default::default()
        }],
        timeout_ms: since(version, 10, 3),
        ..Default::default()
    };
    let answer = r::ListOffsetsResponseData {
        throttle_time_ms: 1,
        topics: vec![r::ListOffsetsTopicResponse {
            name: kt("t"),
            partitions: vec![r::ListOffsetsPartitionResponse {
                partition_index: 2,
                error_code: 3,
                timestamp: 4,
                offset: 5,
                leader_epoch: 6,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::ListOffsetsRequest, |version| ours(version), theirs(version), answer)
}

fn metadata() -> Witness {
    use k::metadata_request as q;
    use k::metadata_response as r;
    let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(ID);
    let by_name = MetadataRequestTopic::default().with_name(Some(topic("t")));
    let ours = m::MetadataRequest::default()
        .with_topics(Some(vec![by_id, by_name]))
        .with_allow_auto_topic_creation(false);
    let theirs = q::MetadataRequestData {
        topics: Some(vec![
            q::MetadataRequestTopic { topic_id: kid(), name: None, ..Default::default() },
            q::MetadataRequestTopic { name: Some(kt("t")), ..Default::default() },
        ]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let answer = move |version: i16| r::MetadataResponseData {
        throttle_time_ms: 1,
        brokers: vec![r::MetadataResponseBroker {
            node_id: 2,
            host: kt("h"),
            port: 3,
            rack: Some(kt("rack")),
            ..Default::default()
        }],
        cluster_id: Some(kt("cluster")),
        controller_id: 4,
        topics: vec![r::MetadataResponseTopic {
            error_code: 5,
            name: Some(kt("t")),
            topic_id: kid(),
            is_internal: true,
            partitions: vec![r::MetadataResponsePartition {
                error_code: 6,
                partition_index: 7,
                leader_id: 8,
                leader_epoch: 9,
                replica_nodes: vec![10, 11],
                isr_nodes: vec![12],
                offline_replicas: vec![13, 14, 15],
                ..Default::default()
            }],
            topic_authorized_operations: 16,
            ..Default::default()
        }],
        error_code: since(version, 13, 17),
        ..Default::default()
    };
    witness!(m::MetadataRequest, |version| ours.clone(), theirs, answer(version))
}

fn api_versions() -> Witness {
    use k::api_versions_response as r;
    let ours = m::ApiVersionsRequest::default()
        .with_client_software_name(text("sharestream"))
        .with_client_software_version(text("0.1.0"));
    let theirs = k::ApiVersionsRequestData {
        client_software_name: kt("sharestream"),
        client_software_version: kt("0.1.0"),
        ..Default::default()
    };
    let answer = r::ApiVersionsResponseData {
        error_code: 1,
        api_keys: vec![r::ApiVersion { api_key: 2, min_version: 3, max_version: 4, ..Default::default() }],
        throttle_time_ms: 5,
        finalized_features_epoch: 6,
        finalized_features: vec![r::FinalizedFeatureKey {
            name: kt("share.version"),
            max_version_level: 7,
            min_version_level: 8,
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::ApiVersionsRequest, |version| ours.clone(), theirs, answer)
}

fn find_coordinator() -> Witness {
    use k::find_coordinator_response as r;
    let ours = m::FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("tx")]);
    let theirs =
        k::FindCoordinatorRequestData { key_type: 1, coordinator_keys: vec![kt("tx")], ..Default::default() };
    let answer = r::FindCoordinatorResponseData {
        throttle_time_ms: 1,
        coordinators: vec![r::Coordinator {
            key: kt("tx"),
            node_id: 2,
            host: kt("h"),
            port: 3,
            error_code: 4,
            error_message: Some(kt("text")),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::FindCoordinatorRequest, |version| ours.clone(), theirs, answer)
}

fn init_producer_id() -> Witness {
    let ours = m::InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional("tx")))
        .with_transaction_timeout_ms(1)
        .with_producer_id(2.into())
        .with_producer_epoch(3);
    let theirs = k::InitProducerIdRequestData {
        transactional_id: Some(kt("tx")),
        transaction_timeout_ms: 1,
        producer_id: 2,
        producer_epoch: 3,
        ..Default::default()
    };
    let answer = k::InitProducerIdResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        producer_id: 3,
        producer_epoch: 4,
        ..Default::default()
    };
    witness!(m::InitProducerIdRequest, |version| ours.clone(), theirs, answer)
}

fn end_txn() -> Witness {
    let ours = m::EndTxnRequest::default()
        .with_transactional_id(transactional("tx"))
        .with_producer_id(1.into())
        .with_producer_epoch(2)
        .with_committed(true);
    let theirs = k::EndTxnRequestData {
        transactional_id: kt("tx"),
        producer_id: 1,
        producer_epoch: 2,
        committed: true,
        ..Default::default()
    };
    let answer = k::EndTxnResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        producer_id: 3,
        producer_epoch: 4,
        ..Default::default()
    };
    witness!(m::EndTxnRequest, |version| ours.clone(), theirs, answer)
}
