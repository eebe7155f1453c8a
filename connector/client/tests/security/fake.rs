//! A broker that knows versions, metadata and SASL, and an identity provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use hmac::{Hmac, Mac};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{
    ApiVersionsResponse, MetadataResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use sharestream_base::{BoxIo, CancellationToken, Env, HostPort, Spawner, TaskKind, TaskSet};
use sharestream_wire::frame::{self, FrameDecoder, RequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

/// How the broker behaves.
#[derive(Clone, Default)]
pub(crate) struct Broker {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Mechanisms that it offers; empty: no SASL.
    pub(crate) offers: Vec<&'static str>,
    /// Passwords (and tokens by the user `token`).
    pub(crate) users: BTreeMap<&'static str, String>,
    /// Signs SCRAM wrongly: it does not know the password.
    pub(crate) is_impostor: bool,
    pub(crate) session_lifetime_ms: i64,
    /// Where it says that it is; else where it listens.
    pub(crate) advertises: Option<HostPort>,
    /// Answers every request with this instead.
    pub(crate) greets_with: Option<&'static [u8]>,
    /// Every api key that came, in order.
    pub(crate) seen: Arc<Mutex<Vec<i16>>>,
}

#[derive(Default)]
enum Sasl {
    #[default]
    None,
    Agreed(String),
    Challenged {
        bare: String,
        first: String,
    },
    Refused,
    Done,
}

impl Broker {
    /// Runs until the tasks are dropped.
    pub(crate) async fn start(self, env: &Env) -> TaskSet<()> {
        let mut listener = env.network.bind(&super::broker()).await.unwrap();
        let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
        tasks.spawn("fake-broker", TaskKind::Service, async move {
            let mut connections = TaskSet::new(&Spawner::system(), CancellationToken::new());
            while let Ok((io, _peer)) = listener.accept().await {
                connections.spawn("fake-connection", TaskKind::Connection, self.clone().accept(io));
            }
        });
        tasks
    }

    async fn accept(self, io: BoxIo) {
        match &self.tls {
            None => self.serve(io).await,
            Some(config) => match TlsAcceptor::from(Arc::clone(config)).accept(io).await {
                Ok(stream) => self.serve(Box::new(stream)).await,
                // Like a broker: the alert was sent, the connection ends.
                Err(_refused) => {}
            },
        }
    }

    async fn serve(&self, mut io: BoxIo) {
        let (mut decoder, mut buffer) = (FrameDecoder::new(frame::FRAME_BYTES_MAX), BytesMut::new());
        let mut sasl = Sasl::default();
        loop {
            let mut body = match decoder.next(&mut buffer) {
                // Like a broker: a length beyond reason ends the connection.
                Err(_too_long) => return,
                Ok(Some(frame)) => frame,
                Ok(None) if io.read_buf(&mut buffer).await.unwrap_or(0) == 0 => return,
                Ok(None) => continue,
            };
            let header = frame::decode_request_header(&mut body).unwrap();
            self.seen.lock().unwrap().push(header.api_key);
            if let Some(greeting) = self.greets_with {
                let _gone = io.write_all(greeting).await;
                return;
            }
            let version = header.api_version;
            let answer = match header.api_key {
                18 => encode(&api_versions(), &header),
                17 => {
                    let request = frame::decode_request_body::<SaslHandshakeRequest>(body, version).unwrap();
                    let (answer, next) = self.handshake(request.mechanism.as_str());
                    sasl = next;
                    encode(&answer, &header)
                }
                36 => {
                    let request =
                        frame::decode_request_body::<SaslAuthenticateRequest>(body, version).unwrap();
                    let answer = self.authenticate(&mut sasl, &request.auth_bytes);
                    encode(&answer, &header)
                }
                3 if self.offers.is_empty() || matches!(sasl, Sasl::Done) => {
                    encode(&self.metadata(), &header)
                }
                // Like Kafka: no word, the connection ends.
                _ => return,
            };
            if io.write_all(&answer).await.is_err() || io.flush().await.is_err() {
                return;
            }
        }
    }

    fn handshake(&self, mechanism: &str) -> (SaslHandshakeResponse, Sasl) {
        let offers = self.offers.iter().map(|offer| StrBytes::from_static_str(offer)).collect();
        let answer = SaslHandshakeResponse::default().with_mechanisms(offers);
        if self.offers.is_empty() {
            (answer.with_error_code(34), Sasl::None)
        } else if self.offers.contains(&mechanism) {
            (answer, Sasl::Agreed(mechanism.to_owned()))
        } else {
            (answer.with_error_code(33), Sasl::None)
        }
    }

    fn authenticate(&self, sasl: &mut Sasl, bytes: &[u8]) -> SaslAuthenticateResponse {
        let answer = SaslAuthenticateResponse::default();
        let done = answer.clone().with_session_lifetime_ms(self.session_lifetime_ms);
        // A chatty broker: it repeats what it was sent.
        let words = format!("no: {}.", String::from_utf8_lossy(bytes));
        let refused =
            answer.clone().with_error_code(58).with_error_message(Some(StrBytes::from_string(words)));
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (next, answer) = match std::mem::take(sasl) {
            Sasl::Agreed(mechanism) if mechanism == "PLAIN" => {
                let is_right =
                    self.users.iter().any(|(name, password)| text == format!("\0{name}\0{password}"));
                if is_right { (Sasl::Done, done) } else { (Sasl::Refused, refused) }
            }
            Sasl::Agreed(mechanism) if mechanism == "OAUTHBEARER" => {
                if text == format!("n,,\x01auth=Bearer {}\x01\x01", self.users["token"]) {
                    (Sasl::Done, done)
                } else {
                    let challenge = Bytes::from_static(br#"{"status":"invalid_token"}"#);
                    (Sasl::Refused, answer.with_auth_bytes(challenge))
                }
            }
            Sasl::Agreed(_scram) => {
                let bare = text.strip_prefix("n,,").unwrap().to_owned();
                let nonce = bare.split_once(",r=").unwrap().1;
                let first = format!("r={nonce}server,s={},i=4096", BASE64.encode("salt"));
                let auth_bytes = Bytes::from(first.clone());
                (Sasl::Challenged { bare, first }, answer.with_auth_bytes(auth_bytes))
            }
            Sasl::Challenged { bare, first } => match self.signature(&bare, &first, &text) {
                Some(signature) => (Sasl::Done, done.with_auth_bytes(Bytes::from(signature))),
                None => (Sasl::Refused, refused),
            },
            Sasl::Refused | Sasl::None | Sasl::Done => (Sasl::Refused, refused),
        };
        *sasl = next;
        answer
    }

    /// The server's side of SCRAM-SHA-256: its final message, when the proof is right.
    fn signature(&self, bare: &str, first: &str, last: &str) -> Option<String> {
        let name = bare.strip_prefix("n=")?.split_once(',')?.0;
        let mut salted = [0u8; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(self.users.get(name)?.as_bytes(), b"salt", 4096, &mut salted);
        let (without_proof, proof) = last.split_once(",p=")?;
        let signed = format!("{bare},{first},{without_proof}");
        let client_key = hmac(&salted, b"Client Key");
        let signature = hmac(&Sha256::digest(&client_key), signed.as_bytes());
        let expected: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if BASE64.decode(proof).ok()? != expected {
            return None;
        }
        let server_key = if self.is_impostor { vec![0; 32] } else { hmac(&salted, b"Server Key") };
        Some(format!("v={}", BASE64.encode(hmac(&server_key, signed.as_bytes()))))
    }

    fn metadata(&self) -> MetadataResponse {
        let at = self.advertises.clone().unwrap_or_else(super::broker);
        let broker = MetadataResponseBroker::default()
            .with_node_id(1.into())
            .with_host(StrBytes::from_string(at.host))
            .with_port(i32::from(at.port));
        MetadataResponse::default().with_brokers(vec![broker])
    }
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap().chain_update(data).finalize().into_bytes().to_vec()
}

fn api_versions() -> ApiVersionsResponse {
    let served = [(18, 4), (3, 13), (10, 6), (17, 1), (36, 2)];
    let keys = served.map(|(key, max)| ApiVersion::default().with_api_key(key).with_max_version(max));
    ApiVersionsResponse::default().with_api_keys(keys.to_vec())
}

fn encode<M: Encodable + HeaderVersion>(message: &M, header: &RequestHeader) -> Bytes {
    frame::encode_response(message, header.api_version, header.correlation_id).unwrap()
}

/// A token endpoint: one answer, and every request that came.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) status: &'static str,
    pub(crate) body: String,
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// Listens on `idp:443` until the tasks are dropped.
    pub(crate) async fn start(self, env: &Env) -> TaskSet<()> {
        let mut listener = env.network.bind(&HostPort::new("idp", 443)).await.unwrap();
        let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
        tasks.spawn("fake-provider", TaskKind::Service, async move {
            while let Ok((io, _peer)) = listener.accept().await {
                let Ok(mut io) = TlsAcceptor::from(Arc::clone(&self.tls)).accept(io).await else { continue };
                let mut request = BytesMut::new();
                while !is_whole(&String::from_utf8_lossy(&request)) {
                    if io.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                self.seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let length = self.body.len();
                let answer = format!(
                    "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{}",
                    self.status, self.body
                );
                let _gone = io.write_all(answer.as_bytes()).await;
                let _gone = io.shutdown().await;
            }
        });
        tasks
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| body.len() >= length.parse().unwrap())
}
