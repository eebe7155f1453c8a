//! Strategies that make any message of ours.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sharestream_wire::messages::{
    AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint, StateBatch, share_acknowledge, share_fetch,
    write_share_group_state,
};
use sharestream_wire::txn_share_acknowledge as txn;
use uuid::Uuid;

pub(crate) fn text() -> impl Strategy<Value = StrBytes> {
    "[a-zä]{0,40}".prop_map(StrBytes::from_string)
}

pub(crate) fn text_or_null() -> impl Strategy<Value = Option<StrBytes>> {
    option::of(text())
}

pub(crate) fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

pub(crate) fn acknowledgements() -> impl Strategy<Value = Vec<AcknowledgementBatch>> {
    let batch = (any::<i64>(), any::<i64>(), vec(any::<i8>(), 0..20)).prop_map(
        |(first_offset, last_offset, acknowledge_types)| AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types,
        },
    );
    vec(batch, 0..4)
}

fn leader() -> impl Strategy<Value = LeaderIdAndEpoch> {
    any::<(i32, i32)>().prop_map(|(leader_id, leader_epoch)| LeaderIdAndEpoch { leader_id, leader_epoch })
}

fn endpoints() -> impl Strategy<Value = Vec<NodeEndpoint>> {
    let endpoint = (any::<i32>(), text(), any::<i32>(), text_or_null())
        .prop_map(|(node_id, host, port, rack)| NodeEndpoint { node_id, host, port, rack });
    vec(endpoint, 0..3)
}

pub(crate) fn share_fetch_request(version: i16) -> impl Strategy<Value = share_fetch::ShareFetchRequest> {
    let partition =
        (any::<i32>(), acknowledgements()).prop_map(|(partition_index, acknowledgement_batches)| {
            share_fetch::FetchPartition { partition_index, acknowledgement_batches }
        });
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| share_fetch::FetchTopic { topic_id, partitions });
    let forgotten = (uuid(), vec(any::<i32>(), 0..3))
        .prop_map(|(topic_id, partitions)| share_fetch::ForgottenTopic { topic_id, partitions });
    let ids = (text_or_null(), text_or_null(), any::<i32>());
    let numbers = any::<(i32, i32, i32, i32, i32)>();
    (ids, numbers, any::<(i8, bool)>(), vec(topic, 0..3), vec(forgotten, 0..3)).prop_map(
        move |(ids, numbers, newer, topics, forgotten_topics_data)| share_fetch::ShareFetchRequest {
            group_id: ids.0,
            member_id: ids.1,
            share_session_epoch: ids.2,
            max_wait_ms: numbers.0,
            min_bytes: numbers.1,
            max_bytes: numbers.2,
            max_records: numbers.3,
            batch_size: numbers.4,
            share_acquire_mode: if version >= 2 { newer.0 } else { 0 },
            is_renew_ack: version >= 2 && newer.1,
            topics,
            forgotten_topics_data,
        },
    )
}

pub(crate) fn share_fetch_response() -> impl Strategy<Value = share_fetch::ShareFetchResponse> {
    let acquired = any::<(i64, i64, i16)>().prop_map(|(first_offset, last_offset, delivery_count)| {
        share_fetch::AcquiredRecords { first_offset, last_offset, delivery_count }
    });
    let records = option::of(vec(any::<u8>(), 0..200).prop_map(Bytes::from));
    let errors = (any::<i16>(), text_or_null(), any::<i16>(), text_or_null());
    let partition = (any::<i32>(), errors, leader(), records, vec(acquired, 0..4)).prop_map(
        |(partition_index, errors, current_leader, records, acquired_records)| share_fetch::PartitionData {
            partition_index,
            error_code: errors.0,
            error_message: errors.1,
            acknowledge_error_code: errors.2,
            acknowledge_error_message: errors.3,
            current_leader,
            records,
            acquired_records,
        },
    );
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| share_fetch::ShareFetchableTopicResponse { topic_id, partitions });
    (any::<i32>(), any::<i16>(), text_or_null(), any::<i32>(), vec(topic, 0..3), endpoints()).prop_map(
        |(throttle_time_ms, error_code, error_message, lock_timeout_ms, responses, node_endpoints)| {
            share_fetch::ShareFetchResponse {
                throttle_time_ms,
                error_code,
                error_message,
                acquisition_lock_timeout_ms: lock_timeout_ms,
                responses,
                node_endpoints,
            }
        },
    )
}

pub(crate) fn share_acknowledge_request(
    version: i16,
) -> impl Strategy<Value = share_acknowledge::ShareAcknowledgeRequest> {
    let partition =
        (any::<i32>(), acknowledgements()).prop_map(|(partition_index, acknowledgement_batches)| {
            share_acknowledge::AcknowledgePartition { partition_index, acknowledgement_batches }
        });
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| share_acknowledge::AcknowledgeTopic { topic_id, partitions });
    (text_or_null(), text_or_null(), any::<i32>(), any::<bool>(), vec(topic, 0..3)).prop_map(
        move |(group_id, member_id, share_session_epoch, renew, topics)| {
            share_acknowledge::ShareAcknowledgeRequest {
                group_id,
                member_id,
                share_session_epoch,
                is_renew_ack: version >= 2 && renew,
                topics,
            }
        },
    )
}

pub(crate) fn share_acknowledge_response(
    version: i16,
) -> impl Strategy<Value = share_acknowledge::ShareAcknowledgeResponse> {
    let partition = (any::<i32>(), any::<i16>(), text_or_null(), leader()).prop_map(
        |(partition_index, error_code, error_message, current_leader)| share_acknowledge::PartitionData {
            partition_index,
            error_code,
            error_message,
            current_leader,
        },
    );
    let topic = (uuid(), vec(partition, 0..3)).prop_map(|(topic_id, partitions)| {
        share_acknowledge::ShareAcknowledgeTopicResponse { topic_id, partitions }
    });
    (any::<i32>(), any::<i16>(), text_or_null(), any::<i32>(), vec(topic, 0..3), endpoints()).prop_map(
        move |(throttle_time_ms, error_code, error_message, lock_timeout_ms, responses, node_endpoints)| {
            share_acknowledge::ShareAcknowledgeResponse {
                throttle_time_ms,
                error_code,
                error_message,
                acquisition_lock_timeout_ms: if version >= 2 { lock_timeout_ms } else { 0 },
                responses,
                node_endpoints,
            }
        },
    )
}

pub(crate) fn txn_share_acknowledge_request() -> impl Strategy<Value = txn::TxnShareAcknowledgeRequest> {
    let partition =
        (any::<i32>(), acknowledgements()).prop_map(|(partition_index, acknowledgement_batches)| {
            txn::TxnAcknowledgePartition { partition_index, acknowledgement_batches }
        });
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| txn::TxnAcknowledgeTopic { topic_id, partitions });
    (text_or_null(), text(), any::<(i64, i16)>(), text(), any::<i32>(), vec(topic, 0..3)).prop_map(
        |(transactional_id, group_id, producer, member_id, member_epoch, topics)| {
            txn::TxnShareAcknowledgeRequest {
                transactional_id,
                group_id,
                producer_id: producer.0,
                producer_epoch: producer.1,
                member_id,
                member_epoch,
                topics,
            }
        },
    )
}

pub(crate) fn txn_share_acknowledge_response() -> impl Strategy<Value = txn::TxnShareAcknowledgeResponse> {
    let partition = (any::<i32>(), any::<i16>(), text_or_null()).prop_map(
        |(partition_index, error_code, error_message)| txn::TxnAcknowledgePartitionResponse {
            partition_index,
            error_code,
            error_message,
        },
    );
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| txn::TxnAcknowledgeTopicResponse { topic_id, partitions });
    (any::<i32>(), any::<i16>(), vec(topic, 0..3)).prop_map(|(throttle_time_ms, error_code, responses)| {
        txn::TxnShareAcknowledgeResponse { throttle_time_ms, error_code, responses }
    })
}

pub(crate) fn write_share_group_state_request()
-> impl Strategy<Value = write_share_group_state::WriteShareGroupStateRequest> {
    let batch = any::<(i64, i64, i8, i16, i64, i16, i8)>().prop_map(|fields| StateBatch {
        first_offset: fields.0,
        last_offset: fields.1,
        delivery_state: fields.2,
        delivery_count: fields.3,
        producer_id: fields.4,
        producer_epoch: fields.5,
        ack_type: fields.6,
    });
    let partition = (any::<(i32, i32, i32, i64)>(), vec(batch, 0..4)).prop_map(|(fields, state_batches)| {
        write_share_group_state::PartitionData {
            partition: fields.0,
            state_epoch: fields.1,
            leader_epoch: fields.2,
            start_offset: fields.3,
            state_batches,
        }
    });
    let topic = (uuid(), vec(partition, 0..3))
        .prop_map(|(topic_id, partitions)| write_share_group_state::WriteStateData { topic_id, partitions });
    (text(), vec(topic, 0..3)).prop_map(|(group_id, topics)| {
        write_share_group_state::WriteShareGroupStateRequest { group_id, topics }
    })
}
