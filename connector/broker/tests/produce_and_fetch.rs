//! Logs over the protocol: appending, deduplication, reading, waiting, metadata.

mod fixtures;

use std::time::Duration;

use fixtures::{Client, READ_COMMITTED, READ_UNCOMMITTED, batch, fetch_request, produce_request, tcp, text};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use sharestream_base::Env;
use sharestream_broker::{Broker, BrokerConfig};

#[tokio::test]
async fn what_is_produced_is_fetched_in_order_from_any_offset() {
    let (broker, mut client) = tcp().await;
    assert_eq!(client.produce(9, None, 0, batch(None, -1, false, &["a", "b"])).await.base_offset, 0);
    assert_eq!(client.produce(9, None, 0, batch(None, -1, false, &["c"])).await.base_offset, 2);
    assert_eq!(client.values(0, READ_UNCOMMITTED).await, ["a", "b", "c"]);
    let tail = client.fetch(0, 2, READ_COMMITTED).await;
    assert_eq!(fixtures::visible(&tail), ["c"]);
    assert_eq!((tail.high_watermark, tail.last_stable_offset, tail.log_start_offset), (3, 3, 0));
    // A fetch from inside a batch gets the whole batch.
    assert_eq!(fixtures::visible(&client.fetch(0, 1, READ_COMMITTED).await), ["a", "b", "c"]);
    assert_eq!(client.fetch(0, 4, READ_COMMITTED).await.error_code, 1, "OFFSET_OUT_OF_RANGE");
    assert_eq!(client.fetch(7, 0, READ_COMMITTED).await.error_code, 3, "UNKNOWN_TOPIC_OR_PARTITION");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_repeated_batch_of_an_idempotent_producer_is_recognised_within_five_and_a_gap_is_refused() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(None).await.unwrap();
    for sequence in 0..6 {
        let appended = client.produce(9, None, 0, batch(Some(producer), sequence, false, &["x"])).await;
        assert_eq!((appended.error_code, appended.base_offset), (0, i64::from(sequence)));
    }
    let again = client.produce(9, None, 0, batch(Some(producer), 1, false, &["x"])).await;
    assert_eq!((again.error_code, again.base_offset), (0, 1), "the same answer");
    let too_old = client.produce(9, None, 0, batch(Some(producer), 0, false, &["x"])).await;
    assert_eq!(too_old.error_code, 45, "OUT_OF_ORDER_SEQUENCE_NUMBER");
    let gap = client.produce(9, None, 0, batch(Some(producer), 7, false, &["x"])).await;
    assert_eq!(gap.error_code, 45);
    assert_eq!(client.fetch(0, 0, READ_UNCOMMITTED).await.high_watermark, 6);
    broker.shutdown().await;
}

#[tokio::test]
async fn damaged_batches_and_the_brokers_own_topics_are_refused() {
    let (broker, mut client) = tcp().await;
    let good = batch(None, -1, false, &["a"]);
    let mut damaged = good.to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(client.produce(9, None, 0, damaged.into()).await.error_code, 2, "CORRUPT_MESSAGE");
    let cut = good.slice(..good.len() - 1);
    assert_eq!(client.produce(9, None, 0, cut).await.error_code, 2);
    let two: Vec<u8> = [&good[..], &good[..]].concat();
    assert_eq!(client.produce(9, None, 0, two.into()).await.error_code, 87, "INVALID_RECORD");
    let mut request = produce_request(None, vec![(0, good)], -1);
    request.topic_data[0].name = TopicName(text("__share_group_state"));
    let response = client.call(request, 9).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 17, "INVALID_TOPIC_EXCEPTION");
    assert_eq!(client.fetch(0, 0, READ_UNCOMMITTED).await.high_watermark, 0);
    broker.shutdown().await;
}

/// Before they were held against their shape, the first of these ended the process: it asked for 154 GB.
#[tokio::test]
async fn a_count_that_its_frame_cannot_hold_ends_the_connection_and_nothing_else() {
    let (broker, mut other) = tcp().await;
    for (version, count) in [(0, &[0x7f, 0xff, 0xff, 0xff][..]), (9, &[0xff, 0xff, 0xff, 0xff, 0x0f])] {
        // Metadata of two thousand million topics, in the plain and the compact form.
        let header =
            [&[0, 3, 0, version, 0, 0, 0, 1, 0xff, 0xff][..], &[0][..usize::from(version / 9)]].concat();
        let body = [&header, count].concat();
        let mut hostile = Client::connect(&Env::system(), broker.address()).await;
        hostile.send_bytes(&[&(body.len() as u32).to_be_bytes(), &body[..]].concat()).await;
        assert!(hostile.receive().await.is_none(), "the connection is closed");
    }
    assert_eq!(other.produce(9, None, 0, batch(None, -1, false, &["a"])).await.base_offset, 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn produce_with_acks_0_gets_no_answer() {
    let (broker, mut client) = tcp().await;
    client.send(&produce_request(None, vec![(0, batch(None, -1, false, &["a"]))], 0), 9).await;
    // The next answer is the fetch's.
    assert_eq!(client.values(0, READ_UNCOMMITTED).await, ["a"]);
    broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_waits_for_records_and_no_longer_than_asked() {
    let env = Env::seeded(2);
    let broker = Broker::builder(env.clone()).start().await.unwrap();
    let mut producer = Client::connect(&env, broker.address()).await;
    producer.create_topic("t", 1).await;
    let mut reader = Client::connect(&env, broker.address()).await;
    let before = env.clock.now();
    let empty = reader.call(fetch_request("t", 0, 0, READ_COMMITTED, 500), 12).await;
    assert!(env.clock.now() - before >= Duration::from_millis(500));
    assert_eq!(empty.responses[0].partitions[0].records.as_ref().map_or(0, |records| records.len()), 0);

    let before = env.clock.now();
    reader.send(&fetch_request("t", 0, 0, READ_COMMITTED, 60_000), 12).await;
    env.clock.sleep(Duration::from_millis(100)).await;
    producer.produce(9, None, 0, batch(None, -1, false, &["late"])).await;
    let answer = reader.receive().await.unwrap();
    assert!(env.clock.now() - before < Duration::from_millis(200));
    let (_, response) = sharestream_wire::frame::decode_response::<FetchRequest>(answer, 12).unwrap();
    assert_eq!(fixtures::visible(&response.responses[0].partitions[0]), ["late"]);
    broker.shutdown().await;
}

#[tokio::test]
async fn offsets_are_found_by_place_and_by_time() {
    let (broker, mut client) = tcp().await;
    client.produce(9, None, 0, batch(None, -1, false, &["a", "b", "c"])).await;
    assert_eq!(client.list_offset(0, -2, READ_UNCOMMITTED).await, (0, -1), "earliest");
    assert_eq!(client.list_offset(0, -1, READ_UNCOMMITTED).await, (3, -1), "latest");
    assert_eq!(client.list_offset(0, -3, READ_UNCOMMITTED).await, (2, 1_002), "greatest timestamp");
    assert_eq!(client.list_offset(0, 1_001, READ_UNCOMMITTED).await, (1, 1_001));
    assert_eq!(client.list_offset(0, 5_000, READ_UNCOMMITTED).await, (-1, -1), "nothing so late");
    broker.shutdown().await;
}

#[tokio::test]
async fn topics_are_found_by_name_and_by_id_and_fetched_by_id() {
    let (broker, mut client) = tcp().await;
    client.produce(9, None, 1, batch(None, -1, false, &["a"])).await;
    let named = MetadataRequestTopic::default().with_name(Some(TopicName(text("t"))));
    let response = client.call(MetadataRequest::default().with_topics(Some(vec![named])), 13).await;
    let topic = &response.topics[0];
    assert_eq!((topic.error_code, topic.partitions.len(), response.brokers.len()), (0, 3, 1));
    let id = topic.topic_id;
    let by_id = MetadataRequestTopic::default().with_topic_id(id);
    let response = client.call(MetadataRequest::default().with_topics(Some(vec![by_id])), 13).await;
    assert_eq!(response.topics[0].name.as_ref().unwrap().as_str(), "t");

    let mut request = fetch_request("", 1, 0, READ_COMMITTED, 0);
    request.topics[0].topic_id = id;
    let response = client.call(request, 16).await;
    assert_eq!(response.session_id, 0);
    assert_eq!(fixtures::visible(&response.responses[0].partitions[0]), ["a"]);
    let mut request = fetch_request("", 1, 0, READ_COMMITTED, 0);
    request.topics[0].topic_id = uuid::Uuid::from_u128(9);
    let response = client.call(request, 16).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 100, "UNKNOWN_TOPIC_ID");

    let unknown = MetadataRequestTopic::default().with_name(Some(TopicName(text("nobody"))));
    let response = client.call(MetadataRequest::default().with_topics(Some(vec![unknown])), 12).await;
    assert_eq!(response.topics[0].error_code, 3, "topics are not created by asking, unless configured");
    broker.shutdown().await;
}

#[tokio::test]
async fn api_versions_shows_the_features_and_answers_versions_of_the_future() {
    let (broker, mut client) = tcp().await;
    let response = client.call(ApiVersionsRequest::default(), 4).await;
    let finalized: Vec<_> = response
        .finalized_features
        .iter()
        .map(|feature| (feature.name.as_str(), feature.max_version_level))
        .collect();
    assert_eq!(finalized, [("group.version", 1), ("share.version", 3), ("transaction.version", 2)]);
    let range = |key: i16| response.api_keys.iter().find(|api| api.api_key == key).unwrap();
    assert_eq!((range(0).min_version, range(0).max_version), (3, 12));
    assert!(response.api_keys.iter().all(|api| api.api_key < 10_000), "private APIs are not shown");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_version_that_is_not_served_closes_the_connection() {
    let (broker, mut client) = tcp().await;
    client.send(&FetchRequest::default().with_session_epoch(-1), 18).await;
    assert!(client.receive().await.is_none());
    broker.shutdown().await;
}

#[tokio::test]
async fn deleted_records_and_topics_are_gone() {
    use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    let (broker, mut client) = tcp().await;
    client.produce(9, None, 0, batch(None, -1, false, &["a"])).await;
    client.produce(9, None, 0, batch(None, -1, false, &["b"])).await;
    let asked = DeleteRecordsPartition::default().with_partition_index(0).with_offset(1);
    let topic = DeleteRecordsTopic::default().with_name(TopicName(text("t"))).with_partitions(vec![asked]);
    let response = client.call(DeleteRecordsRequest::default().with_topics(vec![topic]), 2).await;
    assert_eq!(response.topics[0].partitions[0].low_watermark, 1);
    assert_eq!(client.fetch(0, 0, READ_COMMITTED).await.error_code, 1, "OFFSET_OUT_OF_RANGE");
    assert_eq!(fixtures::visible(&client.fetch(0, 1, READ_COMMITTED).await), ["b"]);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![TopicName(text("t"))]);
    assert_eq!(client.call(request, 5).await.responses[0].error_code, 0);
    assert_eq!(client.fetch(0, 1, READ_COMMITTED).await.error_code, 3);
    assert_eq!(client.create_topic("t", 1).await, 0);
    assert_eq!(client.fetch(0, 0, READ_COMMITTED).await.high_watermark, 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn shutdown_closes_connections_and_frees_the_port() {
    let env = Env::system();
    let broker = Broker::builder(env.clone()).start().await.unwrap();
    let port = broker.address().port;
    let mut client = Client::connect(&env, broker.address()).await;
    client.create_topic("t", 1).await;
    client.send(&fetch_request("t", 0, 0, READ_COMMITTED, 60_000), 12).await;
    broker.shutdown().await;
    assert!(client.receive().await.is_none());
    let again = BrokerConfig { port, ..BrokerConfig::default() };
    Broker::builder(env).config(again).start().await.unwrap().shutdown().await;
}

#[tokio::test]
async fn coordinators_of_groups_transactions_and_share_partitions_are_found() {
    let (broker, mut client) = tcp().await;
    let share = format!("g:{}:0", sharestream_base::ids::TopicId::default());
    for (kind, key) in [(0, "g"), (1, "tx"), (2, share.as_str())] {
        let request =
            FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(vec![text(key)]);
        let found = &client.call(request, 6).await.coordinators[0];
        assert_eq!((found.error_code, found.node_id.0, found.port), (0, 1, i32::from(broker.address().port)));
    }
    let old = FindCoordinatorRequest::default().with_key_type(1).with_key(text("tx"));
    assert_eq!(client.call(old, 2).await.node_id.0, 1);
    broker.shutdown().await;
}

#[tokio::test]
async fn garbage_costs_its_sender_the_connection_and_nobody_else_anything() {
    let (broker, mut client) = tcp().await;
    for garbage in [&[0xff; 64][..], &[0, 0, 0, 8, 0, 0, 0, 9, 1, 2, 3, 4], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut other = Client::connect(&Env::system(), broker.address()).await;
        other.send_bytes(garbage).await;
        assert!(other.receive().await.is_none());
    }
    assert!(client.values(0, READ_COMMITTED).await.is_empty());
    broker.shutdown().await;
}
