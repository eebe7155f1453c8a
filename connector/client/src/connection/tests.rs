use kafka_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::Env;

use super::*;
use crate::security::{Authenticated, Credentials, SaslMechanism, SaslSettings, SecretSource};

/// The other end of a connection.
struct FakeBroker {
    io: tokio::io::DuplexStream,
    decoder: frame::FrameDecoder,
    buffer: BytesMut,
}

const VERSION: i16 = 4;

fn pair(env: &Env) -> (Connection, FakeBroker) {
    pair_with(env, None)
}

fn pair_with(env: &Env, renewal: Option<Renewal>) -> (Connection, FakeBroker) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let options = ConnectionOptions {
        address: HostPort::new("broker", 9092),
        tls: None,
        client_id: "test".to_owned(),
        request_timeout: Duration::from_secs(30),
    };
    let versions = AgreedVersions::agree([
        (FindCoordinatorRequest::KEY, 0, VERSION),
        (SaslHandshakeRequest::KEY, 0, 1),
        (SaslAuthenticateRequest::KEY, 0, 2),
    ]);
    let connection = Connection::start(Box::new(ours), env, options, versions, renewal);
    let decoder = frame::FrameDecoder::new(frame::FRAME_BYTES_MAX);
    (connection, FakeBroker { io: theirs, decoder, buffer: BytesMut::new() })
}

fn request(key: &str) -> FindCoordinatorRequest {
    FindCoordinatorRequest::default().with_coordinator_keys(vec![StrBytes::from_string(key.to_owned())])
}

impl FakeBroker {
    /// Correlation id and key of the next request.
    async fn read(&mut self) -> (i32, String) {
        let (id, request) = self.read_as::<FindCoordinatorRequest>(VERSION).await;
        (id, request.coordinator_keys[0].to_string())
    }

    /// Correlation id and body of the next request, which must be such a one.
    async fn read_as<R: Request>(&mut self, version: i16) -> (i32, R) {
        loop {
            if let Some(mut frame) = self.decoder.next(&mut self.buffer).unwrap() {
                let header = frame::decode_request_header(&mut frame).unwrap();
                assert_eq!(header.api_key, R::KEY, "what comes next on the wire");
                let request = frame::decode_request_body::<R>(frame, version).unwrap();
                return (header.correlation_id, request);
            }
            assert_ne!(self.io.read_buf(&mut self.buffer).await.unwrap(), 0);
        }
    }

    /// True when nothing (more) has been sent.
    async fn hears_nothing(&mut self, clock: &Clock) -> bool {
        let waited = clock.timeout(Duration::from_millis(10), self.io.read_buf(&mut self.buffer)).await;
        waited.is_err() && self.buffer.is_empty()
    }

    async fn answer_as<M>(&mut self, id: i32, version: i16, response: &M)
    where
        M: kafka_protocol::protocol::Encodable + kafka_protocol::protocol::HeaderVersion,
    {
        self.io.write_all(&frame::encode_response(response, version, id).unwrap()).await.unwrap();
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

/// A session of ten seconds that has just begun, by a password in `folder`.
fn session(env: &Env, folder: &tempfile::TempDir) -> Renewal {
    let settings = SaslSettings::Password {
        mechanism: SaslMechanism::Plain,
        username: "alice".to_owned(),
        password: SecretSource::File(folder.path().join("password")),
    };
    let begun = Authenticated { session_lifetime: Some(Duration::from_secs(10)) };
    Renewal::new(env, Arc::new(Credentials::new(env, settings)), begun, env.clock.now())
}

#[tokio::test(start_paused = true)]
async fn a_session_is_renewed_before_it_ends_and_no_request_changes_its_place() {
    let env = Env::seeded(1);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "secret").unwrap();
    let (connection, mut broker) = pair_with(&env, Some(session(&env, &folder)));
    for round in 0..3 {
        let mut before = connection.send(&request("before")).await.unwrap();
        let (id_before, key) = broker.read().await;
        assert_eq!(key, "before");
        let started = env.clock.now();
        // Between two requests, whether or not the first is answered.
        let (id, handshake) = broker.read_as::<SaslHandshakeRequest>(1).await;
        let waited = (env.clock.now() - started).as_millis();
        assert!((8_450..9_600).contains(&waited), "round {round}: renewed after {waited} ms");
        assert_eq!(handshake.mechanism.as_str(), "PLAIN");
        let mut behind = connection.send(&request("behind")).await.unwrap();
        assert!(broker.hears_nothing(&env.clock).await, "only SASL until it is over");
        broker.answer(id_before, "before", 0).await;
        assert_eq!(text(&before.answer().await.unwrap()), "before");
        broker.answer_as(id, 1, &SaslHandshakeResponse::default()).await;
        let (id, proof) = broker.read_as::<SaslAuthenticateRequest>(2).await;
        assert_eq!(&proof.auth_bytes[..], b"\0alice\0secret");
        assert!(broker.hears_nothing(&env.clock).await, "only SASL until it is over");
        let begun = SaslAuthenticateResponse::default().with_session_lifetime_ms(10_000);
        broker.answer_as(id, 2, &begun).await;
        let (id, key) = broker.read().await;
        broker.answer(id, &key, 0).await;
        assert_eq!(text(&behind.answer().await.unwrap()), "behind");
    }
    assert!(connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_ends_the_connection_and_what_waited_was_not_sent() {
    let env = Env::seeded(1);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "secret").unwrap();
    let (connection, mut broker) = pair_with(&env, Some(session(&env, &folder)));
    let (id, _handshake) = broker.read_as::<SaslHandshakeRequest>(1).await;
    let mut behind = connection.send(&request("behind")).await.unwrap();
    broker.answer_as(id, 1, &SaslHandshakeResponse::default()).await;
    let (id, _proof) = broker.read_as::<SaslAuthenticateRequest>(2).await;
    broker.answer_as(id, 2, &SaslAuthenticateResponse::default().with_error_code(58)).await;
    let error = behind.answer().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "it never left");
    let said = error.to_string();
    assert!(said.contains("could not authenticate again") && said.contains("user 'alice'"), "{said}");
    assert!(!said.contains("secret "), "{said}");
    assert!(!connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_on_a_session_that_has_ended() {
    let env = Env::seeded(1);
    let folder = tempfile::tempdir().unwrap();
    // There is no password to renew it with.
    let (connection, mut broker) = pair_with(&env, Some(session(&env, &folder)));
    env.clock.sleep(Duration::from_millis(9_600)).await;
    let mut within = connection.send(&request("within")).await.unwrap();
    broker.read().await;
    env.clock.sleep(Duration::from_millis(500)).await;
    let error = connection.call(&request("after")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "it never left");
    assert!(error.to_string().contains("cannot read the password"), "{error}");
    assert_eq!(within.answer().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(broker.io.read_buf(&mut broker.buffer).await.unwrap() == 0, "nothing more came");
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
