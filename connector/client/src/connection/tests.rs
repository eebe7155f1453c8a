use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::Env;

use super::*;

/// The other end of a connection.
struct FakeBroker {
    io: tokio::io::DuplexStream,
    decoder: frame::FrameDecoder,
    buffer: BytesMut,
}

const VERSION: i16 = 4;

fn pair(env: &Env) -> (Connection, FakeBroker) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let options = ConnectionOptions {
        address: HostPort::new("broker", 9092),
        tls: None,
        client_id: "test".to_owned(),
        request_timeout: Duration::from_secs(30),
    };
    let versions = AgreedVersions::agree([(FindCoordinatorRequest::KEY, 0, VERSION)]);
    let connection = Connection::start(Box::new(ours), env, options, versions, None);
    let decoder = frame::FrameDecoder::new(frame::FRAME_BYTES_MAX);
    (connection, FakeBroker { io: theirs, decoder, buffer: BytesMut::new() })
}

fn request(key: &str) -> FindCoordinatorRequest {
    FindCoordinatorRequest::default().with_coordinator_keys(vec![StrBytes::from_string(key.to_owned())])
}

impl FakeBroker {
    /// Correlation id and key of the next request.
    async fn read(&mut self) -> (i32, String) {
        loop {
            if let Some(mut frame) = self.decoder.next(&mut self.buffer).unwrap() {
                let header = frame::decode_request_header(&mut frame).unwrap();
                let request = frame::decode_request_body::<FindCoordinatorRequest>(frame, VERSION).unwrap();
                return (header.correlation_id, request.coordinator_keys[0].to_string());
            }
            assert_ne!(self.io.read_buf(&mut self.buffer).await.unwrap(), 0);
        }
    }

    async fn answer(&mut self, id: i32, text: &str, throttle_time_ms: i32) {
        // The message travels in a field that every version has a place for.
        let coordinator = kafka_protocol::messages::find_coordinator_response::Coordinator::default()
            .with_key(StrBytes::from_string(text.to_owned()));
        let response = FindCoordinatorResponse::default()
            .with_throttle_time_ms(throttle_time_ms)
            .with_coordinators(vec![coordinator]);
        let bytes = frame::encode_response(&response, VERSION, id).unwrap();
        self.io.write_all(&bytes).await.unwrap();
    }
}

fn text(response: &FindCoordinatorResponse) -> String {
    response.coordinators[0].key.to_string()
}

#[tokio::test(start_paused = true)]
async fn pipelined_answers_find_their_owners_and_a_caller_that_gave_up_disturbs_nobody() {
    let (connection, mut broker) = pair(&Env::seeded(1));
    let mut first = connection.send(&request("a")).await.unwrap();
    let given_up = connection.send(&request("b")).await.unwrap();
    let mut third = connection.send(&request("c")).await.unwrap();
    drop(given_up);
    for _ in 0..3 {
        let (id, key) = broker.read().await;
        broker.answer(id, &key, 0).await;
    }
    assert_eq!(text(&third.answer().await.unwrap()), "c");
    assert_eq!(text(&first.answer().await.unwrap()), "a");
    assert!(connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_says_what_may_have_happened() {
    let (connection, mut broker) = pair(&Env::seeded(1));
    let mut sent = connection.send(&request("a")).await.unwrap();
    broker.read().await;
    drop(broker);
    assert_eq!(sent.answer().await.unwrap_err().kind(), ErrorKind::Indeterminate, "the broker has read it");
    let error = connection.call(&request("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "it never left");
    assert!(error.to_string().contains("broker:9092"), "{error}");
    assert!(!connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_ends_the_connection_for_all() {
    let env = Env::seeded(1);
    let (connection, mut broker) = pair(&env);
    let before = env.clock.now();
    let mut late = connection.send_with(&request("late"), Duration::from_secs(1)).await.unwrap();
    let mut behind = connection.send(&request("behind")).await.unwrap();
    broker.read().await;
    broker.read().await;
    assert_eq!(late.answer().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(behind.answer().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(env.clock.now() - before, Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_connection() {
    let (connection, mut broker) = pair(&Env::seeded(1));
    let mut sent = connection.send(&request("a")).await.unwrap();
    let (id, _) = broker.read().await;
    broker.answer(id + 7, "nobody asked", 0).await;
    let error = sent.answer().await.unwrap_err();
    assert!(error.to_string().contains("nobody asked for"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn throttle_times_are_kept() {
    let env = Env::seeded(1);
    let (connection, mut broker) = pair(&env);
    let mut first = connection.send(&request("a")).await.unwrap();
    let (id, key) = broker.read().await;
    broker.answer(id, &key, 750).await;
    first.answer().await.unwrap();
    let before = env.clock.now();
    let _second = connection.send(&request("b")).await.unwrap();
    assert!(env.clock.now() - before >= Duration::from_millis(750));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_tells_those_who_wait() {
    let (connection, _broker) = pair(&Env::seeded(1));
    let mut sent = connection.send(&request("a")).await.unwrap();
    sent.written().await;
    drop(connection);
    assert_eq!(sent.answer().await.unwrap_err().kind(), ErrorKind::Indeterminate);
}
