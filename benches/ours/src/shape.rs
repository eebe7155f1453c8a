//! What it costs to hold a message against its shape before it is decoded (ADR 0017): the decoder alone, and the door
//! through which every message from outside comes.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::{Request, StrBytes};
use serde_json::json;
use sharestream_base::{Clock, Env};
use sharestream_wire::frame;
use sharestream_wire::messages::AcknowledgementBatch;
use sharestream_wire::messages::share_fetch::{
    FetchPartition as SharePartition, FetchTopic as ShareTopic, ShareFetchRequest,
};
use uuid::Uuid;

/// Times that a message is decoded in one measurement.
const TIMES: u32 = 200_000;
/// Measurements, in turn; the median is reported.
const ROUNDS: usize = 9;
/// Partitions that a message names.
const PARTITIONS: i32 = 8;
/// Bytes of a batch: what a producer sends by default.
const BATCH_BYTES: usize = 16 * 1024;

/// Measures and prints, one line for each message.
pub(crate) fn run(env: &Env) -> anyhow::Result<()> {
    measure(&env.clock, "produce", &produce(), 12)?;
    measure(&env.clock, "fetch", &fetch(), 16)?;
    measure(&env.clock, "share fetch", &share_fetch(), 2)?;
    measure(&env.clock, "metadata", &metadata(), 13)?;
    Ok(())
}

fn measure<R: Request>(clock: &Clock, name: &str, request: &R, version: i16) -> anyhow::Result<()> {
    let mut body = BytesMut::new();
    request.encode(&mut body, version)?;
    let body = body.freeze();
    let (mut alone, mut checked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(nanos(clock, || R::decode(&mut body.clone(), version))?);
        checked.push(nanos(clock, || Ok(frame::decode_request_body::<R>(body.clone(), version)?))?);
    }
    let (alone, checked) = (median(alone), median(checked));
    let report = json!({
        "name": "shape", "message": name, "version": version, "bytes": body.len(),
        "decoder_ns": alone, "checked_ns": checked, "price_ns": checked - alone,
    });
    println!("{report}");
    Ok(())
}

/// Nanoseconds of one call.
fn nanos<T>(clock: &Clock, mut decode: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let start = clock.now();
    for _ in 0..TIMES {
        black_box(decode()?);
    }
    Ok((clock.now().duration_since(start).as_nanos() as f64 / f64::from(TIMES)).round())
}

fn median(mut measured: Vec<f64>) -> f64 {
    measured.sort_by(f64::total_cmp);
    measured[measured.len() / 2]
}

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

fn produce() -> ProduceRequest {
    let batch = Bytes::from(vec![0; BATCH_BYTES]);
    let partition =
        |index| PartitionProduceData::default().with_index(index).with_records(Some(batch.clone()));
    let data = TopicProduceData::default()
        .with_name(topic())
        .with_partition_data((0..PARTITIONS).map(partition).collect());
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![data])
}

fn fetch() -> FetchRequest {
    let partition = |index| {
        FetchPartition::default().with_partition(index).with_fetch_offset(7).with_partition_max_bytes(1 << 20)
    };
    let asked = FetchTopic::default().with_partitions((0..PARTITIONS).map(partition).collect());
    FetchRequest::default().with_max_wait_ms(500).with_min_bytes(1).with_topics(vec![asked])
}

fn share_fetch() -> ShareFetchRequest {
    let partition = |index| SharePartition {
        partition_index: index,
        acknowledgement_batches: vec![AcknowledgementBatch {
            first_offset: 0,
            last_offset: 499,
            acknowledge_types: vec![1],
        }],
    };
    let topic_id = Uuid::from_u128(1);
    let topic = ShareTopic { topic_id, partitions: (0..PARTITIONS).map(partition).collect() };
    ShareFetchRequest {
        group_id: Some(StrBytes::from_static_str("workers")),
        member_id: Some(StrBytes::from_static_str("3f2504e0-4f89-41d3-9a0c-0305e82c3301")),
        max_wait_ms: 500,
        topics: vec![topic],
        ..ShareFetchRequest::default()
    }
}

fn metadata() -> MetadataRequest {
    let asked = MetadataRequestTopic::default().with_name(Some(topic()));
    MetadataRequest::default().with_topics(Some(vec![asked]))
}
