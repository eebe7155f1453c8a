//! Producing: leaders that move, epochs that run out, brokers that want silence.

use std::time::Duration;

use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, InitProducerIdRequest, InitProducerIdResponse,
    MetadataRequest, ProduceRequest, ProduceResponse,
};
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::ErrorKind;
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};
use sharestream_client::{
    BatchWriter, KafkaError, OffsetSpec, Producer, TransactionConfig, TransactionSession, WriterConfig,
};
use sharestream_wire::records::RawBatch;
use uuid::Uuid;

use crate::common::fake::{Fake, Reply, Seen, TOPIC_ID, coordinator, host, metadata};

const ONE: PartitionIndex = PartitionIndex(0);

fn produced(version: i16, partition: PartitionProduceResponse) -> ProduceResponse {
    let topic = TopicProduceResponse::default().with_partition_responses(vec![partition]);
    let topic = match version {
        13.. => topic.with_topic_id(TOPIC_ID),
        _by_name => topic.with_name(kafka_protocol::messages::TopicName(StrBytes::from_static_str("t"))),
    };
    ProduceResponse::default().with_responses(vec![topic])
}

/// A topic led by node 1 that takes everything.
fn usual(seen: &Seen) -> Reply {
    match seen.header.api_key {
        MetadataRequest::KEY => seen.answer(&metadata(2, &[1], 1)),
        FindCoordinatorRequest::KEY => seen.answer(&coordinator()),
        InitProducerIdRequest::KEY => {
            let answer = InitProducerIdResponse::default().with_producer_id(7.into());
            seen.answer(&answer.with_producer_epoch(i16::MAX - 2))
        }
        ProduceRequest::KEY => {
            seen.answer(&produced(seen.header.api_version, PartitionProduceResponse::default()))
        }
        key => panic!("api key {key} is not scripted"),
    }
}

/// The batch of a Produce request.
fn batch_of(seen: &Seen) -> RawBatch {
    let request: ProduceRequest = seen.read();
    let records = request.topic_data[0].partition_data[0].records.clone().unwrap();
    RawBatch::from_bytes(records).unwrap()
}

async fn write(writer: &mut BatchWriter, value: &[u8]) {
    writer.append("t", ONE, 0, None, Some(value), &[]).await.unwrap();
    writer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_epoch_goes_on_under_the_producer_id_that_the_coordinator_names() {
    let mut ended_count = 0;
    let fake = Fake::start(1, &[], move |seen| {
        if !seen.is::<EndTxnRequest>() {
            return usual(seen);
        }
        ended_count += 1;
        // The epoch that is left is for fencing; then the id is used up (KIP-890).
        let (id, epoch) = [(7, i16::MAX - 1), (8, 0), (8, 1)][ended_count - 1];
        let answer = EndTxnResponse::default().with_producer_id(id.into()).with_producer_epoch(epoch);
        seen.answer(&answer)
    })
    .await;
    let mut session = TransactionSession::new(fake.client.clone(), TransactionConfig::new("tx")).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(fake.client.clone(), WriterConfig::default());
    for commits in [true, false, true] {
        writer.set_identity(&session.begin().unwrap());
        write(&mut writer, b"a").await;
        write(&mut writer, b"b").await;
        if commits { session.commit().await.unwrap() } else { session.abort().await.unwrap() }
    }
    let identity = session.identity().unwrap();
    assert_eq!((identity.producer_id, identity.producer_epoch), (ProducerId(8), ProducerEpoch(1)));
    let written: Vec<(i64, i16, i32)> = fake
        .seen::<ProduceRequest>()
        .iter()
        .map(|seen| batch_of(seen).header)
        .map(|header| (header.producer_id, header.producer_epoch, header.base_sequence))
        .collect();
    let (last, fence) = (i16::MAX - 2, i16::MAX - 1);
    assert_eq!(written, [(7, last, 0), (7, last, 1), (7, fence, 0), (7, fence, 1), (8, 0, 0), (8, 0, 1)]);
    let ended: Vec<(i64, i16)> = fake
        .seen::<EndTxnRequest>()
        .iter()
        .map(|seen| seen.read::<EndTxnRequest>())
        .map(|request| (request.producer_id.0, request.producer_epoch))
        .collect();
    assert_eq!(ended, [(7, last), (7, fence), (8, 0)]);
}

/// Node 1 says that node 2 leads, with its address.
async fn moved_leader(versions: (i16, i16), hint: bool) -> (Vec<i32>, usize) {
    let served = [(ProduceRequest::KEY, versions.0, versions.1)];
    let mut metadata_count = 0;
    let fake = Fake::start(2, &served, move |seen| {
        if seen.is::<MetadataRequest>() {
            metadata_count += 1;
            let moved = metadata_count > 1;
            return seen.answer(&metadata(2, &[if moved { 2 } else { 1 }], if moved { 5 } else { 1 }));
        }
        if !seen.is::<ProduceRequest>() || seen.node == 2 {
            return usual(seen);
        }
        let refused =
            PartitionProduceResponse::default().with_error_code(KafkaError::NOT_LEADER_OR_FOLLOWER.0);
        if !hint {
            return seen.answer(&produced(seen.header.api_version, refused));
        }
        let leader = LeaderIdAndEpoch::default().with_leader_id(2.into()).with_leader_epoch(5);
        let node = NodeEndpoint::default()
            .with_node_id(2.into())
            .with_host(StrBytes::from_string(host(2)))
            .with_port(9092);
        let answer = produced(seen.header.api_version, refused.with_current_leader(leader));
        seen.answer(&answer.with_node_endpoints(vec![node]))
    })
    .await;
    let mut producer = Producer::connect(fake.client.clone(), WriterConfig::default()).await.unwrap();
    write(producer.writer(), b"v").await;
    let nodes = fake.seen::<ProduceRequest>().iter().map(|seen| seen.node).collect();
    (nodes, fake.seen::<MetadataRequest>().len())
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_found_by_its_hint_or_by_asking_in_every_version() {
    assert_eq!(moved_leader((3, 13), true).await, (vec![1, 2], 1), "by topic id");
    assert_eq!(moved_leader((3, 12), true).await, (vec![1, 2], 1), "by topic name");
    assert_eq!(moved_leader((3, 13), false).await, (vec![1, 2], 2));
    assert_eq!(moved_leader((3, 9), false).await, (vec![1, 2], 2), "9 has no hints");
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_written_by_its_id_where_the_broker_can() {
    for (max, id) in [(13, TOPIC_ID), (12, Uuid::nil())] {
        let fake = Fake::start(1, &[(ProduceRequest::KEY, 3, max)], usual).await;
        let mut producer = Producer::connect(fake.client.clone(), WriterConfig::default()).await.unwrap();
        write(producer.writer(), b"v").await;
        let request: ProduceRequest = fake.seen::<ProduceRequest>()[0].read();
        assert_eq!(request.topic_data[0].topic_id, id);
        assert_eq!(request.topic_data[0].name.is_empty(), max == 13);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_asks_for_silence_gets_it() {
    let silence = Duration::from_secs(3);
    let fake = Fake::start(1, &[], |seen| match seen.header.api_key {
        FindCoordinatorRequest::KEY => seen.answer(&coordinator().with_throttle_time_ms(3_000)),
        _usual => usual(seen),
    })
    .await;
    let mut session = TransactionSession::new(fake.client.clone(), TransactionConfig::new("tx")).unwrap();
    session.init().await.unwrap();
    let asked_at = fake.seen::<FindCoordinatorRequest>()[0].at;
    // The coordinator has a connection of its own, which is not muted; the general one is.
    assert!(fake.seen::<InitProducerIdRequest>()[0].at < asked_at + silence);
    fake.client.fresh_topic("t").await.unwrap();
    assert!(fake.seen::<MetadataRequest>().last().unwrap().at >= asked_at + silence);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_topic_ages() {
    let fake = Fake::start(1, &[], usual).await;
    fake.client.topic("t").await.unwrap();
    let asked = fake.seen::<MetadataRequest>().len();
    fake.env.clock.sleep(fake.client.config().metadata_age_max / 2).await;
    fake.client.topic("t").await.unwrap();
    assert_eq!(fake.seen::<MetadataRequest>().len(), asked, "still young");
    fake.env.clock.sleep(fake.client.config().metadata_age_max / 2).await;
    fake.client.topic("t").await.unwrap();
    assert_eq!(fake.seen::<MetadataRequest>().len(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_nobody_has_are_refused_after_one_more_look() {
    let fake = Fake::start(1, &[], usual).await;
    let mut producer = Producer::connect(fake.client.clone(), WriterConfig::default()).await.unwrap();
    write(producer.writer(), b"v").await;
    let asked = fake.seen::<MetadataRequest>().len();
    let refused = producer.writer().append("t", PartitionIndex(1), 0, None, None, &[]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(fake.seen::<MetadataRequest>().len(), asked + 1);
    let partitions = [PartitionIndex(4)];
    let refused = fake.client.admin().list_offsets("t", &partitions, OffsetSpec::Latest).await.unwrap_err();
    assert!(refused.to_string().contains("has 1 partitions"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_first_batch_of_a_producer_is_not_overtaken_when_a_leader_refuses_it() {
    // As a leader does: while it is not ready it refuses, and of a producer that it does not know it takes any
    // sequence number.
    let (mut produce_count, mut next) = (0, None);
    let fake = Fake::start(1, &[], move |seen| {
        if !seen.is::<ProduceRequest>() {
            return usual(seen);
        }
        produce_count += 1;
        let header = batch_of(seen).header;
        let code = match next {
            _first if produce_count == 1 => KafkaError::NOT_LEADER_OR_FOLLOWER.0,
            Some(next) if next != header.base_sequence => KafkaError::OUT_OF_ORDER_SEQUENCE_NUMBER.0,
            Some(_) | None => 0,
        };
        if code == 0 {
            next = Some(header.base_sequence + 1);
        }
        let answer = PartitionProduceResponse::default().with_error_code(code);
        seen.answer(&produced(seen.header.api_version, answer))
    })
    .await;
    let config = WriterConfig { batch_bytes_max: 1_024, ..WriterConfig::default() };
    let mut producer = Producer::connect(fake.client.clone(), config).await.unwrap();
    for _ in 0..6 {
        producer.writer().append("t", ONE, 0, None, Some(&[7; 1_000]), &[]).await.unwrap();
    }
    producer.flush().await.unwrap();
    let sequences: Vec<i32> =
        fake.seen::<ProduceRequest>().iter().map(|seen| batch_of(seen).header.base_sequence).collect();
    assert_eq!(sequences, [0, 0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_advertises_an_address_out_of_reach_is_told_what_to_correct() {
    // Node 2 leads, and nobody listens where it says.
    let fake = Fake::start(1, &[], |seen| match seen.header.api_key {
        MetadataRequest::KEY => seen.answer(&metadata(2, &[2], 1)),
        _usual => usual(seen),
    })
    .await;
    let error = fake.client.admin().list_offsets("t", &[], OffsetSpec::Latest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    let text = error.to_string();
    assert!(text.contains("broker 2") && text.contains("node-2:9092"), "{text}");
    assert!(text.contains("advertised.listeners"), "{text}");
}
