//! Opens connections and keeps them, by node and purpose: a long poll must not stand in the way of a commit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::NodeId;
use sharestream_base::{BoxIo, Env, ErrorKind, HostPort};
use sharestream_wire::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::ClientConfig;
use crate::connection::{Connection, ConnectionOptions};
use crate::features::Features;
use crate::versions::AgreedVersions;
use crate::{Error, Result};

/// What a pooled connection is for. Long-lived streams of one owner (share fetches, a writer's batches) are opened
/// with [`Cluster::open`] and not pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Metadata and administration.
    General,
    /// Coordinators: heartbeats, InitProducerId, EndTxn.
    Coordinator,
    /// Staging of share acknowledgements.
    Staging,
}

/// Settings and open connections of one client.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) env: Env,
    pub(crate) config: ClientConfig,
    pool: Mutex<BTreeMap<(HostPort, Purpose), Connection>>,
}

impl Cluster {
    pub(crate) fn new(env: Env, config: ClientConfig) -> Self {
        Cluster { env, config, pool: Mutex::new(BTreeMap::new()) }
    }

    /// A pooled connection, opened when there is none. Cancel safe.
    pub(crate) async fn pooled(&self, address: &HostPort, purpose: Purpose) -> Result<Connection> {
        let key = (address.clone(), purpose);
        if let Some(connection) = self.lock_pool().get(&key).filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        let (opened, _features) = self.open(address).await?;
        let mut pool = self.lock_pool();
        // Two callers may have opened one each: the second takes the first one's, its own closes.
        match pool.get(&key).filter(|connection| connection.is_open()) {
            Some(first) => Ok(first.clone()),
            None => {
                pool.insert(key, opened.clone());
                Ok(opened)
            }
        }
    }

    /// A connection of the caller's own, with the versions agreed. Cancel safe.
    pub(crate) async fn open(&self, address: &HostPort) -> Result<(Connection, Features)> {
        let opening = async {
            let mut io =
                self.env.network.connect(address).await.map_err(|error| unreachable(address, &error))?;
            let answer = self.exchange_versions(&mut io, address).await?;
            Ok((io, answer))
        };
        let limit = self.config.connect_timeout;
        let (io, answer) = match self.env.clock.timeout(limit, opening).await {
            Ok(result) => result?,
            Err(_elapsed) => {
                let context = format!(
                    "no answer from {address} within {limit:?}; check that a Kafka broker listens there and that no \
                     firewall is between"
                );
                return Err(Error::new(ErrorKind::Retry, context));
            }
        };
        let theirs = answer.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version));
        let versions = AgreedVersions::agree(theirs);
        let features = Features::of(&answer, &versions);
        let options = ConnectionOptions {
            address: address.clone(),
            client_id: self.config.client_id.clone(),
            request_timeout: self.config.request_timeout,
        };
        Ok((Connection::start(io, &self.env, options, versions), features))
    }

    /// ApiVersions before all else: newest first; a broker that does not know that version says so in version 0.
    async fn exchange_versions(&self, io: &mut BoxIo, address: &HostPort) -> Result<ApiVersionsResponse> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("sharestream"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        for version in [4, 3] {
            let client_id = &self.config.client_id;
            let sent = frame::encode_request(&request, version, 0, client_id).map_err(|error| {
                Error::new(ErrorKind::Bug, "cannot encode ApiVersions").with_source(error)
            })?;
            let exchange = async {
                io.write_all(&sent).await?;
                io.flush().await?;
                read_frame(io).await
            };
            let frame = exchange.await.map_err(|error| unreachable(address, &error))?;
            // Correlation id, then the error code, in every version.
            let code = frame.get(4..6).map_or(0, |code| i16::from_be_bytes([code[0], code[1]]));
            const UNSUPPORTED_VERSION: i16 = 35;
            match code {
                0 => {
                    let decoded = frame::decode_response::<ApiVersionsRequest>(frame.freeze(), version);
                    let (_id, response) = decoded.map_err(|error| {
                        let context =
                            format!("{address} does not answer like a Kafka broker; check the port");
                        Error::new(ErrorKind::InvalidInput, context).with_source(error)
                    })?;
                    return Ok(response);
                }
                UNSUPPORTED_VERSION => {}
                code => return Err(Error::from_code(code, format!("ApiVersions of {address}"))),
            }
        }
        let context =
            format!("the broker at {address} is older than Kafka 2.4, which this client does not speak to");
        Err(Error::new(ErrorKind::InvalidInput, context))
    }

    fn lock_pool(&self) -> std::sync::MutexGuard<'_, BTreeMap<(HostPort, Purpose), Connection>> {
        // Every change of the map is one call: a panic elsewhere leaves it whole.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreachable(address: &HostPort, error: &std::io::Error) -> Error {
    let context = format!(
        "cannot reach a Kafka broker at {address} ({error}); check the address and that the broker runs"
    );
    Error::new(ErrorKind::Retry, context)
}

/// A node that is not in the metadata (any more).
pub(crate) fn unknown_node(node: NodeId) -> Error {
    Error::new(ErrorKind::Retry, format!("broker {node} is not known to the cluster at the moment"))
}

/// Longest first answer: ApiVersions needs a few kilobytes; a web server's greeting read as a length is far above.
const FIRST_FRAME_BYTES_MAX: usize = 1024 * 1024;

async fn read_frame(io: &mut BoxIo) -> std::io::Result<BytesMut> {
    let length = usize::try_from(io.read_i32().await?).unwrap_or(usize::MAX);
    if length > FIRST_FRAME_BYTES_MAX {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "it does not speak the Kafka protocol",
        ));
    }
    let mut frame = BytesMut::zeroed(length);
    io.read_exact(&mut frame).await?;
    Ok(frame)
}
