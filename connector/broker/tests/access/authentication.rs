//! SASL PLAIN (KIP-43, KIP-152): what may be said before it is known who speaks.

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_base::Env;
use sharestream_broker::Broker;
use sharestream_wire::KafkaError;

use crate::fixtures::Connection;
use crate::world::World;

fn handshake(mechanism: &'static str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(mechanism.into())
}

fn plain(message: &'static [u8]) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(message))
}

fn versions_request() -> ApiVersionsRequest {
    let named = ApiVersionsRequest::default().with_client_software_name("test".into());
    named.with_client_software_version("1".into())
}

async fn stranger(world: &World) -> Connection {
    Connection::open(&world.address, &world.env).await
}

async fn only_versions_are_told(world: &World) {
    let mut connection = stranger(world).await;
    let versions = connection.call(versions_request(), 3).await;
    assert_eq!(versions.error_code, 0);
    // Version 0 goes on with bytes that are no requests: no client of today uses it, and ours does not have
    // it.
    let handshakes = (if world.is_kafka() { 0 } else { 1 }, 1);
    let expected = [
        (<SaslHandshakeRequest as Request>::KEY, handshakes),
        (<SaslAuthenticateRequest as Request>::KEY, (0, 2)),
    ];
    for (key, range) in expected {
        let listed = versions.api_keys.iter().find(|api| api.api_key == key).unwrap();
        assert_eq!((listed.min_version, listed.max_version), range);
    }
    connection.send(&MetadataRequest::default(), 12).await;
    assert!(connection.is_closed().await);
    let mut connection = stranger(world).await;
    connection.send(&plain(b"\0worker\0worker-secret"), 2).await;
    assert!(connection.is_closed().await, "no handshake");
    let mut connection = stranger(world).await;
    assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
    let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(TopicName("t".into())));
    let asked = MetadataRequest::default().with_topics(Some(vec![topic]));
    let refused = connection.call(asked, 12).await;
    assert_eq!(refused.topics[0].error_code, KafkaError::ILLEGAL_SASL_STATE.0, "no password");
    assert!((refused.brokers.is_empty()) && connection.is_closed().await);
}

async fn the_right_password_opens(world: &World) {
    for version in 0..=2 {
        let mut connection = stranger(world).await;
        let agreed = connection.call(handshake("PLAIN"), 1).await;
        assert_eq!((agreed.error_code, agreed.mechanisms), (0, vec!["PLAIN".into()]));
        let known = connection.call(plain(b"\0worker\0worker-secret"), version).await;
        assert_eq!((known.error_code, known.session_lifetime_ms), (0, 0));
        let nodes = connection.call(MetadataRequest::default().with_topics(Some(vec![])), 12).await;
        assert_eq!(nodes.brokers.len(), 1);
        // Sessions do not end, so there is nothing to authenticate again (KIP-368).
        let illegal = KafkaError::ILLEGAL_SASL_STATE.0;
        assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, illegal);
        let again = connection.call(plain(b"\0worker\0worker-secret"), version).await;
        assert_eq!(again.error_code, illegal);
        assert_eq!(connection.call(versions_request(), 3).await.error_code, 0, "it goes on");
    }
}

async fn a_wrong_password_is_answered_before_the_end(world: &World) {
    let cases: [(&[u8], &str); 6] = [
        (b"\0worker\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0worker-secret", "Authentication failed: Invalid username or password"),
        (b"worker", "Invalid SASL/PLAIN response: expected 3 tokens"),
        (b"\0worker\0", "Authentication failed: password not specified"),
        (b"\0\0worker-secret", "Authentication failed: username not specified"),
        (
            b"admin\0worker\0worker-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ];
    for (message, words) in cases {
        let mut connection = stranger(world).await;
        assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
        let refused = connection.call(plain(message), 2).await;
        assert_eq!(refused.error_code, KafkaError::SASL_AUTHENTICATION_FAILED.0);
        let text = refused.error_message.unwrap();
        assert!(text.starts_with(words), "{text:?}");
        assert!(!text.contains("worker-secret") && !text.contains("wrong"), "{text:?}");
        assert!(connection.is_closed().await);
    }
    let mut connection = stranger(world).await;
    let refused = connection.call(handshake("SCRAM-SHA-256"), 1).await;
    let expected = (KafkaError::UNSUPPORTED_SASL_MECHANISM.0, vec!["PLAIN".into()]);
    assert_eq!((refused.error_code, refused.mechanisms), expected);
    assert!(connection.is_closed().await);
}

/// What is the same here and in Apache Kafka.
pub(crate) async fn connections_say_who_they_are(world: &World) {
    only_versions_are_told(world).await;
    the_right_password_opens(world).await;
    a_wrong_password_is_answered_before_the_end(world).await;
}

#[tokio::test]
async fn only_versions_are_told_before_a_password_and_a_wrong_one_is_answered_before_the_end() {
    let world = World::embedded().await;
    connections_say_who_they_are(&world).await;
    world.shutdown().await;
}

#[tokio::test]
async fn a_stranger_can_neither_be_a_node_nor_send_much() {
    let world = World::embedded().await;
    let mut connection = stranger(&world).await;
    assert_eq!(connection.call(handshake("SHARESTREAM-NODE"), 1).await.error_code, 0);
    let refused = connection.call(plain(b"0000000000000000"), 2).await;
    assert_eq!(refused.error_code, KafkaError::SASL_AUTHENTICATION_FAILED.0);
    assert!(connection.is_closed().await);
    let mut connection = stranger(&world).await;
    assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
    let much = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(vec![b'a'; 600 * 1024]));
    connection.send(&much, 2).await;
    assert!(connection.is_closed().await);
    world.shutdown().await;
}

#[tokio::test]
async fn without_users_everybody_is_anonymous_and_sasl_has_no_place() {
    let env = Env::system();
    let broker = Broker::builder(env.clone()).start().await.unwrap();
    let mut connection = Connection::open(broker.address(), &env).await;
    let illegal = KafkaError::ILLEGAL_SASL_STATE.0;
    assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, illegal);
    assert_eq!(connection.call(plain(b"\0worker\0worker-secret"), 2).await.error_code, illegal);
    assert_eq!(
        connection.call(MetadataRequest::default().with_topics(None), 12).await.topics.len(),
        3,
        "the broker's own"
    );
    broker.shutdown().await;
}
