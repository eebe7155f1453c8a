//! The transaction session against a broker whose every answer the test writes, over a network in memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{
    ApiVersionsResponse, EndTxnRequest, EndTxnResponse, FindCoordinatorResponse, InitProducerIdResponse,
    MetadataResponse, ProducerId,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use sharestream_base::ids::ProducerEpoch;
use sharestream_base::{BoxIo, CancellationToken, Env, ErrorKind, HostPort, Spawner, TaskKind, TaskSet};
use sharestream_client::{Client, ClientConfig, TransactionConfig, TransactionSession};
use sharestream_wire::frame::{self, FrameDecoder, RequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the broker does with one EndTxn.
#[derive(Clone, Copy, Debug)]
enum EndTxn {
    Answer(i16),
    Disconnect,
    Silence,
}

#[derive(Debug)]
struct Script {
    transaction_version: i16,
    end_txn: Mutex<VecDeque<EndTxn>>,
    /// Every EndTxn body that came, byte for byte.
    seen: Mutex<Vec<Bytes>>,
    /// InitProducerId requests that are still to be put off with CONCURRENT_TRANSACTIONS.
    concurrent_count: AtomicU32,
    /// Those that came.
    init_count: AtomicU32,
}

struct Fake {
    client: Client,
    script: Arc<Script>,
    _tasks: TaskSet<()>,
}

async fn fake(transaction_version: i16, end_txn: &[EndTxn]) -> Fake {
    let env = Env::seeded(7);
    let script = Arc::new(Script {
        transaction_version,
        end_txn: Mutex::new(end_txn.iter().copied().collect()),
        seen: Mutex::default(),
        concurrent_count: AtomicU32::new(0),
        init_count: AtomicU32::new(0),
    });
    let mut listener = env.network.bind(&HostPort::new("fake", 9092)).await.unwrap();
    let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
    let serving = Arc::clone(&script);
    tasks.spawn("fake-broker", TaskKind::Service, async move {
        let mut connections = TaskSet::new(&Spawner::system(), CancellationToken::new());
        while let Ok((io, _peer)) = listener.accept().await {
            connections.spawn("fake-connection", TaskKind::Connection, serve(io, Arc::clone(&serving)));
        }
    });
    let config =
        ClientConfig::with_bootstrap("fake:9092").unwrap().with_request_timeout(Duration::from_secs(2));
    Fake { client: Client::connect(env, config).await.unwrap(), script, _tasks: tasks }
}

async fn serve(mut io: BoxIo, script: Arc<Script>) {
    let (mut decoder, mut buffer) = (FrameDecoder::new(frame::FRAME_BYTES_MAX), BytesMut::new());
    loop {
        let mut body = match decoder.next(&mut buffer).unwrap() {
            Some(frame) => frame,
            None if io.read_buf(&mut buffer).await.unwrap_or(0) == 0 => return,
            None => continue,
        };
        let header = frame::decode_request_header(&mut body).unwrap();
        let answer = match header.api_key {
            18 => encode(&api_versions(script.transaction_version), &header),
            3 => encode(&metadata(), &header),
            10 => encode(&coordinator(), &header),
            22 => {
                script.init_count.fetch_add(1, Ordering::SeqCst);
                let take = |left: u32| left.checked_sub(1);
                let put_off =
                    script.concurrent_count.try_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
                let answer =
                    InitProducerIdResponse::default().with_producer_id(ProducerId(7)).with_producer_epoch(3);
                encode(&answer.with_error_code(if put_off { 51 } else { 0 }), &header)
            }
            26 => {
                script.seen.lock().unwrap().push(body);
                let next = script.end_txn.lock().unwrap().pop_front().expect("an EndTxn that nobody expects");
                match next {
                    EndTxn::Disconnect => return,
                    EndTxn::Silence => continue,
                    EndTxn::Answer(code) => {
                        let answer = EndTxnResponse::default().with_error_code(code);
                        encode(&answer.with_producer_id(ProducerId(7)).with_producer_epoch(4), &header)
                    }
                }
            }
            key => panic!("api key {key} is not scripted"),
        };
        io.write_all(&answer).await.unwrap();
    }
}

fn encode<M: Encodable + HeaderVersion>(message: &M, header: &RequestHeader) -> Bytes {
    frame::encode_response(message, header.api_version, header.correlation_id).unwrap()
}

fn api_versions(transaction_version: i16) -> ApiVersionsResponse {
    let served = [(18, 4), (3, 13), (10, 6), (22, 5), (26, 5)];
    let keys = served.map(|(key, max)| ApiVersion::default().with_api_key(key).with_max_version(max));
    let feature = FinalizedFeatureKey::default()
        .with_name(StrBytes::from_static_str("transaction.version"))
        .with_max_version_level(transaction_version);
    ApiVersionsResponse::default().with_api_keys(keys.to_vec()).with_finalized_features(vec![feature])
}

fn metadata() -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_static_str("fake"))
        .with_port(9092);
    MetadataResponse::default().with_brokers(vec![broker])
}

fn coordinator() -> FindCoordinatorResponse {
    let coordinator = Coordinator::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_static_str("fake"))
        .with_port(9092);
    FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
}

async fn open_session(fake: &Fake, end_deadline: Duration) -> TransactionSession {
    let config = TransactionConfig { end_deadline, ..TransactionConfig::new("job-0") };
    let mut session = TransactionSession::new(fake.client.clone(), config).unwrap();
    session.init().await.unwrap();
    session.begin().unwrap();
    session
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_is_sent_again_identically() {
    let steps =
        [EndTxn::Disconnect, EndTxn::Silence, EndTxn::Answer(51), EndTxn::Answer(16), EndTxn::Answer(0)];
    let fake = fake(2, &steps).await;
    let mut session = open_session(&fake, MINUTE).await;
    let mut sent_count = 0;
    session.commit_with(|| sent_count += 1).await.unwrap();
    assert_eq!(sent_count, 1, "the hook runs once");
    let seen = fake.script.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), steps.len());
    assert!(seen.iter().all(|body| *body == seen[0]), "every attempt is the same request");
    let request = frame::decode_request_body::<EndTxnRequest>(seen[0].clone(), 5).unwrap();
    assert!(request.committed && request.producer_epoch == 3);
    assert_eq!(
        session.identity().unwrap().producer_epoch,
        ProducerEpoch(4),
        "the answered epoch is taken over"
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_never_answered_is_indeterminate_and_may_be_called_again() {
    let fake = fake(2, &[EndTxn::Silence, EndTxn::Silence, EndTxn::Silence, EndTxn::Answer(0)]).await;
    let mut session = open_session(&fake, Duration::from_secs(5)).await;
    assert_eq!(session.commit().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let error = session.abort().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "it may have committed: {error}");
    session.commit().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_unanswered_commit_proves_nothing() {
    let fake = fake(2, &[EndTxn::Disconnect, EndTxn::Answer(48)]).await;
    let mut session = open_session(&fake, MINUTE).await;
    assert_eq!(session.commit().await.unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test(start_paused = true)]
async fn a_transactional_id_is_not_taken_again_by_someone_who_has_lost_it() {
    let fake = fake(2, &[]).await;
    fake.script.concurrent_count.store(1_000, Ordering::SeqCst);
    let mut session = TransactionSession::new(fake.client.clone(), TransactionConfig::new("job-0")).unwrap();
    let mut asked_count = 0;
    let goes_on = || {
        asked_count += 1;
        Box::pin(std::future::ready(asked_count < 3)) as futures::future::BoxFuture<'static, bool>
    };
    let error = session.init_while(goes_on).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert_eq!(asked_count, 3, "before each repetition, not before the first request");
    assert_eq!(fake.script.init_count.load(Ordering::SeqCst), 3);
    // Without a reason to stop it goes on until the other transaction is over.
    fake.script.concurrent_count.store(5, Ordering::SeqCst);
    session.init().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_tell_what_to_do() {
    for (code, kind, then_abort) in [
        (48, ErrorKind::Abort, false),
        (120, ErrorKind::Abort, true),
        (47, ErrorKind::Fenced, false),
        (90, ErrorKind::Fenced, false),
    ] {
        let fake = fake(2, &[EndTxn::Answer(code), EndTxn::Answer(0)]).await;
        let mut session = open_session(&fake, MINUTE).await;
        assert_eq!(session.commit().await.unwrap_err().kind(), kind, "{code}");
        assert_eq!(session.abort().await.is_ok(), then_abort, "{code}");
        session.init().await.unwrap();
        session.begin().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_transaction_version_2_is_refused_by_name() {
    let fake = fake(1, &[]).await;
    let error = TransactionSession::new(fake.client.clone(), TransactionConfig::new("job-0")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("transaction.version 2"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_not_there_is_named() {
    let config = ClientConfig::with_bootstrap("nobody:9092").unwrap();
    let error = Client::connect(Env::seeded(1), config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    let text = error.to_string();
    assert!(text.contains("nobody:9092") && text.contains("check"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_costs_no_more_than_the_connect_timeout() {
    let env = Env::seeded(1);
    let _silent = env.network.bind(&HostPort::new("silent", 9092)).await.unwrap();
    let before = env.clock.now();
    let config = ClientConfig::with_bootstrap("silent:9092").unwrap();
    let error = Client::connect(env.clone(), config).await.unwrap_err();
    assert!(error.to_string().contains("silent:9092"), "{error}");
    assert!(env.clock.now() - before <= Duration::from_secs(6));
}
