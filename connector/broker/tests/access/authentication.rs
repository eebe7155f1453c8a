//! SASL PLAIN (KIP-43, KIP-152): what may be said before it is known who speaks.

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_base::Env;
use sharestream_broker::{Broker, BrokerConfig};
use sharestream_wire::KafkaError;

use crate::fixtures::{Cluster, Connection};

fn handshake(mechanism: &'static str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(mechanism.into())
}

fn plain(message: &'static [u8]) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(message))
}

async fn stranger(cluster: &Cluster) -> Connection {
    Connection::open(cluster.broker.address(), &cluster.env).await
}

#[tokio::test]
async fn only_versions_are_told_before_it_is_known_who_asks() {
    let cluster = Cluster::start_secured(BrokerConfig::default(), 1).await;
    let mut connection = stranger(&cluster).await;
    let versions = connection.call(ApiVersionsRequest::default(), 3).await;
    assert_eq!(versions.error_code, 0);
    for (key, range) in [
        (<SaslHandshakeRequest as Request>::KEY, (1, 1)),
        (<SaslAuthenticateRequest as Request>::KEY, (0, 2)),
    ] {
        let listed = versions.api_keys.iter().find(|api| api.api_key == key).unwrap();
        assert_eq!((listed.min_version, listed.max_version), range);
    }
    connection.send(&MetadataRequest::default(), 12).await;
    assert!(connection.is_closed().await);
    let mut connection = stranger(&cluster).await;
    connection.send(&plain(b"\0worker\0worker-secret"), 2).await;
    assert!(connection.is_closed().await, "no handshake");
    let mut connection = stranger(&cluster).await;
    assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
    connection.send(&MetadataRequest::default(), 12).await;
    assert!(connection.is_closed().await, "no password");
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn the_right_password_opens_and_a_wrong_one_is_answered_before_the_end() {
    let cluster = Cluster::start_secured(BrokerConfig::default(), 1).await;
    for version in 0..=2 {
        let mut connection = stranger(&cluster).await;
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
        assert_eq!(connection.call(ApiVersionsRequest::default(), 3).await.error_code, 0, "it goes on");
    }
    for message in
        [b"\0worker\0wrong".as_slice(), b"\0nobody\0worker-secret", b"worker", b"\0worker\0", b"\xff"]
    {
        let mut connection = stranger(&cluster).await;
        assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
        let refused = connection.call(plain(message), 2).await;
        assert_eq!(refused.error_code, KafkaError::SASL_AUTHENTICATION_FAILED.0);
        let text = refused.error_message.unwrap();
        assert!(!text.contains("worker-secret") && !text.contains("wrong"), "{text:?}");
        assert!(connection.is_closed().await);
    }
    let mut connection = stranger(&cluster).await;
    let refused = connection.call(handshake("SCRAM-SHA-256"), 1).await;
    let expected = (KafkaError::UNSUPPORTED_SASL_MECHANISM.0, vec!["PLAIN".into()]);
    assert_eq!((refused.error_code, refused.mechanisms), expected);
    assert!(connection.is_closed().await);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_stranger_can_neither_be_a_node_nor_send_much() {
    let cluster = Cluster::start_secured(BrokerConfig::default(), 1).await;
    let mut connection = stranger(&cluster).await;
    assert_eq!(connection.call(handshake("SHARESTREAM-NODE"), 1).await.error_code, 0);
    let refused = connection.call(plain(b"0000000000000000"), 2).await;
    assert_eq!(refused.error_code, KafkaError::SASL_AUTHENTICATION_FAILED.0);
    assert!(connection.is_closed().await);
    let mut connection = stranger(&cluster).await;
    assert_eq!(connection.call(handshake("PLAIN"), 1).await.error_code, 0);
    let much = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(vec![b'a'; 600 * 1024]));
    connection.send(&much, 2).await;
    assert!(connection.is_closed().await);
    cluster.broker.shutdown().await;
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
