//! Topics, settings, and what an operator asks about transactions.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};

use super::*;

pub(super) fn witnesses() -> Vec<Witness> {
    vec![
        create_topics(),
        create_partitions(),
        delete_topics(),
        describe_configs(),
        incremental_alter_configs(),
        describe_transactions(),
        list_transactions(),
        sasl_handshake(),
        sasl_authenticate(),
    ]
}

fn create_topics() -> Witness {
    use k::create_topics_request as q;
    use k::create_topics_response as r;
    let config = CreatableTopicConfig::default().with_name(text("k")).with_value(Some(text("v")));
    let wanted = CreatableTopic::default()
        .with_name(topic("t"))
        .with_num_partitions(1)
        .with_replication_factor(2)
        .with_configs(vec![config]);
    let ours = m::CreateTopicsRequest::default().with_timeout_ms(3).with_topics(vec![wanted]);
    let theirs = q::CreateTopicsRequestData {
        topics: vec![q::CreatableTopic {
            name: kt("t"),
            num_partitions: 1,
            replication_factor: 2,
            configs: vec![q::CreatableTopicConfig {
                name: kt("k"),
                value: Some(kt("v")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        timeout_ms: 3,
        ..Default::default()
    };
    let answer = move |version: i16| r::CreateTopicsResponseData {
        throttle_time_ms: 1,
        topics: vec![r::CreatableTopicResult {
            name: kt("t"),
            topic_id: since(version, 7, kid()),
            error_code: 2,
            error_message: Some(kt("text")),
            num_partitions: 3,
            replication_factor: 4,
            configs: Some(Vec::new()),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::CreateTopicsRequest, |version| ours.clone(), theirs, answer(version))
}

fn create_partitions() -> Witness {
    use k::create_partitions_request as q;
    use k::create_partitions_response as r;
    let wanted = CreatePartitionsTopic::default().with_name(topic("t")).with_count(1).with_assignments(None);
    let ours = m::CreatePartitionsRequest::default().with_timeout_ms(2).with_topics(vec![wanted]);
    let theirs = q::CreatePartitionsRequestData {
        topics: vec![q::CreatePartitionsTopic {
            name: kt("t"),
            count: 1,
            assignments: None,
            ..Default::default()
        }],
        timeout_ms: 2,
        ..Default::default()
    };
    let answer = r::CreatePartitionsResponseData {
        throttle_time_ms: 1,
        results: vec![r::CreatePartitionsTopicResult {
            name: kt("t"),
            error_code: 2,
            error_message: Some(kt("text")),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::CreatePartitionsRequest, |version| ours.clone(), theirs, answer)
}

fn delete_topics() -> Witness {
    use k::delete_topics_request as q;
    use k::delete_topics_response as r;
    let ours = move |version: i16| {
        let request = m::DeleteTopicsRequest::default().with_timeout_ms(1);
        if version >= 6 {
            request.with_topics(vec![DeleteTopicState::default().with_name(Some(topic("t")))])
        } else {
            request.with_topic_names(vec![topic("t")])
        }
    };
    let theirs = move |version: i16| q::DeleteTopicsRequestData {
        topics: since(version, 6, vec![q::DeleteTopicState { name: Some(kt("t")), ..Default::default() }]),
        topic_names: if version < 6 { vec![kt("t")] } else { Vec::new() },
        timeout_ms: 1,
        ..Default::default()
    };
    let answer = move |version: i16| r::DeleteTopicsResponseData {
        throttle_time_ms: 1,
        responses: vec![r::DeletableTopicResult {
            name: Some(kt("t")),
            topic_id: since(version, 6, kid()),
            error_code: 2,
            error_message: since(version, 5, Some(kt("text"))),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::DeleteTopicsRequest, |version| ours(version), theirs(version), answer(version))
}

fn describe_configs() -> Witness {
    use k::describe_configs_request as q;
    use k::describe_configs_response as r;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text("g"))
        .with_configuration_keys(None);
    let ours = m::DescribeConfigsRequest::default().with_resources(vec![resource]);
    let theirs = q::DescribeConfigsRequestData {
        resources: vec![q::DescribeConfigsResource {
            resource_type: 32,
            resource_name: kt("g"),
            configuration_keys: None,
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = r::DescribeConfigsResponseData {
        throttle_time_ms: 1,
        results: vec![r::DescribeConfigsResult {
            error_code: 2,
            error_message: Some(kt("text")),
            resource_type: 32,
            resource_name: kt("g"),
            configs: vec![r::DescribeConfigsResourceResult {
                name: kt("k"),
                value: Some(kt("v")),
                read_only: true,
                config_source: 3,
                config_type: 4,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::DescribeConfigsRequest, |version| ours.clone(), theirs, answer)
}

fn incremental_alter_configs() -> Witness {
    use k::incremental_alter_configs_request as q;
    use k::incremental_alter_configs_response as r;
    let change =
        AlterableConfig::default().with_name(text("k")).with_config_operation(1).with_value(Some(text("v")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text("g"))
        .with_configs(vec![change]);
    let ours = m::IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let theirs = q::IncrementalAlterConfigsRequestData {
        resources: vec![q::AlterConfigsResource {
            resource_type: 32,
            resource_name: kt("g"),
            configs: vec![q::AlterableConfig {
                name: kt("k"),
                config_operation: 1,
                value: Some(kt("v")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = r::IncrementalAlterConfigsResponseData {
        throttle_time_ms: 1,
        responses: vec![r::AlterConfigsResourceResponse {
            error_code: 2,
            error_message: Some(kt("text")),
            resource_type: 32,
            resource_name: kt("g"),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::IncrementalAlterConfigsRequest, |version| ours.clone(), theirs, answer)
}

fn describe_transactions() -> Witness {
    use k::describe_transactions_response as r;
    let ours = m::DescribeTransactionsRequest::default().with_transactional_ids(vec![transactional("tx")]);
    let theirs =
        k::DescribeTransactionsRequestData { transactional_ids: vec![kt("tx")], ..Default::default() };
    let answer = r::DescribeTransactionsResponseData {
        throttle_time_ms: 1,
        transaction_states: vec![r::TransactionState {
            error_code: 2,
            transactional_id: kt("tx"),
            transaction_state: kt("Ongoing"),
            transaction_timeout_ms: 3,
            transaction_start_time_ms: 4,
            producer_id: 5,
            producer_epoch: 6,
            topics: vec![r::TopicData { topic: kt("t"), partitions: vec![7, 8], ..Default::default() }],
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::DescribeTransactionsRequest, |version| ours.clone(), theirs, answer)
}

fn list_transactions() -> Witness {
    use k::list_transactions_response as r;
    let ours = m::ListTransactionsRequest::default().with_duration_filter(-1);
    let theirs = k::ListTransactionsRequestData { duration_filter: -1, ..Default::default() };
    let answer = r::ListTransactionsResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        transaction_states: vec![r::TransactionState {
            transactional_id: kt("tx"),
            producer_id: 3,
            transaction_state: kt("Ongoing"),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::ListTransactionsRequest, |version| ours.clone(), theirs, answer)
}

fn sasl_handshake() -> Witness {
    use k::sasl_handshake_request as q;
    use k::sasl_handshake_response as r;
    let ours = m::SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let theirs = q::SaslHandshakeRequestData { mechanism: kt("PLAIN"), ..Default::default() };
    let answer = r::SaslHandshakeResponseData {
        error_code: 33,
        mechanisms: vec![kt("PLAIN"), kt("SCRAM-SHA-256")],
        ..Default::default()
    };
    witness!(m::SaslHandshakeRequest, |version| ours.clone(), theirs, answer)
}

fn sasl_authenticate() -> Witness {
    use k::sasl_authenticate_request as q;
    use k::sasl_authenticate_response as r;
    let token = Bytes::from_static(b"token");
    let ours = m::SaslAuthenticateRequest::default().with_auth_bytes(token.clone());
    let theirs = q::SaslAuthenticateRequestData { auth_bytes: token, ..Default::default() };
    let answer = r::SaslAuthenticateResponseData {
        error_code: 58,
        error_message: Some(kt("text")),
        auth_bytes: Bytes::from_static(b"answer"),
        session_lifetime_ms: 1,
        ..Default::default()
    };
    witness!(m::SaslAuthenticateRequest, |version| ours.clone(), theirs, answer)
}
