//! The first exchanges on a new connection, one at a time: versions, then who we are (KIP-35, KIP-43).

use bytes::BytesMut;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::{BoxIo, ErrorKind, HostPort};
use sharestream_wire::{KafkaError, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::ClientConfig;
use crate::security::{NotKafka, SaslWire, explain_io, is_refusal, wipe};
use crate::versions::{AgreedVersions, api_name};
use crate::{Error, Result};

/// Longest answer before the connection is in use: ApiVersions needs a few kilobytes; a greeting of another protocol,
/// read as a length, is far above.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A connection that nobody uses yet.
pub(crate) struct Setup<'a> {
    io: BoxIo,
    address: HostPort,
    config: &'a ClientConfig,
    versions: AgreedVersions,
    next_id: i32,
}

impl<'a> Setup<'a> {
    /// Over `io`, which is protected already where the settings ask for it.
    pub(crate) fn new(io: BoxIo, address: HostPort, config: &'a ClientConfig) -> Self {
        Setup { io, address, config, versions: AgreedVersions::default(), next_id: 0 }
    }

    /// What is left to be used.
    pub(crate) fn finish(self) -> (BoxIo, AgreedVersions) {
        (self.io, self.versions)
    }

    /// ApiVersions before all else: newest first; a broker that does not know that version says so in version 0.
    pub(crate) async fn agree_on_versions(&mut self) -> Result<ApiVersionsResponse> {
        let address = self.address.clone();
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("sharestream"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        for version in [4, 3] {
            let frame = self.round_trip(&request, version).await?;
            // Correlation id, then the error code, in every version.
            let code = frame.get(4..6).map_or(0, |code| i16::from_be_bytes([code[0], code[1]]));
            match KafkaError(code) {
                KafkaError::NONE => {
                    let decoded = frame::decode_response::<ApiVersionsRequest>(frame.freeze(), version);
                    let (_id, response) = decoded.map_err(|error| {
                        let context =
                            format!("{address} does not answer like a Kafka broker; check the port");
                        Error::new(ErrorKind::InvalidInput, context).with_source(error)
                    })?;
                    let keys = response.api_keys.iter();
                    self.versions = AgreedVersions::agree(
                        keys.map(|api| (api.api_key, api.min_version, api.max_version)),
                    );
                    return Ok(response);
                }
                KafkaError::UNSUPPORTED_VERSION => {}
                KafkaError(code) => {
                    return Err(Error::from_code(code, format!("ApiVersions of {address}")));
                }
            }
        }
        let context =
            format!("the broker at {address} is older than Kafka 2.4, which this client does not speak to");
        Err(Error::new(ErrorKind::InvalidInput, context))
    }

    /// The mechanisms that the broker offers, when it wants SASL; `None` when it does not or cannot be asked. Ends the
    /// connection's use: a broker hangs up on a mechanism without a name.
    pub(crate) async fn offered_mechanisms(&mut self) -> Option<String> {
        let answer = self.exchange(SaslHandshakeRequest::default()).await.ok()?;
        if KafkaError(answer.error_code) != KafkaError::UNSUPPORTED_SASL_MECHANISM {
            return None;
        }
        let offered: Vec<&str> = answer.mechanisms.iter().map(|offered| offered.as_str()).take(20).collect();
        Some(offered.join(", "))
    }

    async fn round_trip<R: Request>(&mut self, request: &R, version: i16) -> Result<BytesMut> {
        let id = self.next_id;
        self.next_id += 1;
        let sent = frame::encode_request(request, version, id, &self.config.client_id).map_err(|error| {
            Error::new(ErrorKind::Bug, format!("cannot encode {}", api_name(R::KEY))).with_source(error)
        })?;
        let written = async {
            self.io.write_all(&sent).await?;
            self.io.flush().await
        };
        let written = written.await;
        // It may have held a password.
        wipe(sent);
        // A peer that refuses us may have said why before it stopped reading: its words are worth more.
        let read = self.read_frame().await;
        match (written, read) {
            (_, Ok(Ok(frame))) => Ok(frame),
            (_, Ok(Err(not_kafka))) => {
                let text = not_kafka.explain(&self.address, self.config.security.protocol).to_string();
                Err(Error::new(ErrorKind::InvalidInput, text))
            }
            (Err(error), Err(read_error)) if !is_refusal(&read_error) => Err(self.broken::<R>(&error)),
            (Ok(()) | Err(_), Err(error)) => Err(self.broken::<R>(&error)),
        }
    }

    async fn read_frame(&mut self) -> std::io::Result<Result<BytesMut, NotKafka>> {
        let mut first = [0u8; 4];
        self.io.read_exact(&mut first).await?;
        if let Some(not_kafka) = NotKafka::of(first, ANSWER_BYTES_MAX) {
            return Ok(Err(not_kafka));
        }
        let length = usize::try_from(i32::from_be_bytes(first)).unwrap_or(0);
        let mut frame = BytesMut::zeroed(length);
        self.io.read_exact(&mut frame).await?;
        Ok(Ok(frame))
    }

    fn broken<R: Request>(&self, error: &std::io::Error) -> Error {
        let tls = self.config.security.protocol.has_tls().then_some(&self.config.security.tls);
        let why = explain_io(error, &self.address, tls);
        if is_refusal(error) {
            return Error::new(ErrorKind::InvalidInput, why);
        }
        if self.versions.is_empty() {
            return unreachable(&self.address, &why);
        }
        let text = format!("{} did not answer {} ({why})", self.address, api_name(R::KEY));
        Error::new(ErrorKind::Retry, text)
    }
}

impl SaslWire for Setup<'_> {
    fn address(&self) -> &HostPort {
        &self.address
    }

    async fn exchange<R>(&mut self, request: R) -> Result<R::Response>
    where
        R: Request + Send + Sync,
        R::Response: Send,
    {
        let version = self.versions.of::<R>(&self.address)?;
        let frame = self.round_trip(&request, version).await?;
        let (_id, response) = frame::decode_response::<R>(frame.freeze(), version).map_err(|error| {
            let text = format!("cannot read the answer of {} to {}", self.address, api_name(R::KEY));
            Error::new(ErrorKind::Retry, text).with_source(error)
        })?;
        Ok(response)
    }
}

/// Nobody who speaks Kafka is there.
pub(crate) fn unreachable(address: &HostPort, why: &dyn std::fmt::Display) -> Error {
    let context = format!(
        "cannot reach a Kafka broker at {address} ({why}); check the address and that the broker runs"
    );
    Error::new(ErrorKind::Retry, context)
}
