//! Requests to the nodes of the cluster, this one included: leaders and coordinators are addressed here.
//!
//! A connection carries one request at a time. A handler may call a peer while it serves a peer; on a shared,
//! ordered connection the second request would wait for the first, which waits for the second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::ids::NodeId;
use sharestream_base::{BoxIo, Env, Instant};
use sharestream_wire::frame::{self, FrameDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::access::NODE_MECHANISM;
use crate::cluster::Cluster;
use crate::error::ErrorCode;

/// Idle connections kept for each node; more are closed after use.
const IDLE_MAX: usize = 32;
/// Longest wait for an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a coordinator that moves is looked for; clients wait longer than that for an answer.
const ATTEMPTS_FOR: Duration = Duration::from_secs(2);
const ATTEMPT_BACKOFF_FIRST: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 16 * 1024;
const HANDSHAKE_VERSION: i16 = 1;
const AUTHENTICATE_VERSION: i16 = 2;

/// A request to a peer gave no answer; it may or may not have been served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// The cluster has no such node.
    #[error("node {0} is not in the cluster")]
    UnknownNode(NodeId),
    /// The connection failed or could not be opened.
    #[error("connection to node {node} failed")]
    Connection {
        /// Which node.
        node: NodeId,
        /// Why.
        source: std::io::Error,
    },
    /// Request or answer cannot be encoded or decoded.
    #[error("message from or to node {node} is malformed")]
    Message {
        /// Which node.
        node: NodeId,
        /// Why.
        source: sharestream_wire::WireError,
    },
    /// The node does not take us for one of its cluster.
    #[error("node {0} refuses this node")]
    Refused(NodeId),
    /// No answer in time.
    #[error("node {0} did not answer in time")]
    TimedOut(NodeId),
}

impl PeerError {
    /// What the one who waits for us is told: try again, after looking for the leader or coordinator.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            PeerError::UnknownNode(_) | PeerError::Connection { .. } => ErrorCode::CoordinatorNotAvailable,
            PeerError::TimedOut(_) => ErrorCode::RequestTimedOut,
            PeerError::Message { .. } | PeerError::Refused(_) => ErrorCode::UnknownServerError,
        }
    }
}

/// Attempts to reach a coordinator that may be moving: the caller looks it up anew each time, for a bounded time.
/// Only for requests whose repetition changes nothing.
#[derive(Debug)]
pub(crate) struct Attempts {
    deadline: Instant,
    backoff: Duration,
}

impl Attempts {
    /// From now on.
    pub(crate) fn new(env: &Env) -> Self {
        Attempts { deadline: env.clock.now() + ATTEMPTS_FOR, backoff: ATTEMPT_BACKOFF_FIRST }
    }

    /// Waits before another attempt; false when the refusal is final or the time is up.
    pub(crate) async fn again(&mut self, env: &Env, code: ErrorCode) -> bool {
        if !is_elsewhere(code) || env.clock.now() + self.backoff >= self.deadline {
            return false;
        }
        env.clock.sleep(self.backoff).await;
        self.backoff *= 2;
        true
    }
}

/// True when another node may coordinate by now.
pub(crate) fn is_elsewhere(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable)
}

struct Connection {
    io: BoxIo,
    decoder: FrameDecoder,
    buffer: BytesMut,
    next_correlation_id: i32,
}

/// Connections from one node to all.
pub(crate) struct Peers {
    env: Env,
    cluster: Arc<Cluster>,
    client_id: String,
    idle: Mutex<BTreeMap<NodeId, Vec<Connection>>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Peers {
    /// Without connections; they open at the first call.
    pub(crate) fn new(env: Env, cluster: Arc<Cluster>, node: NodeId) -> Self {
        Peers { env, cluster, client_id: format!("node-{node}"), idle: Mutex::default() }
    }

    /// Sends a request to a node and waits for its answer. On `Err` it may or may not have been served.
    ///
    /// Not cancel safe: a cancelled call may have been served; its connection is closed.
    pub(crate) async fn call<R: Request>(
        &self,
        node: NodeId,
        request: R,
        version: i16,
    ) -> Result<R::Response, PeerError> {
        let call = self.call_once(node, &request, version);
        self.env.clock.timeout(CALL_TIMEOUT, call).await.map_err(|_| PeerError::TimedOut(node))?
    }

    /// Closes all idle connections.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    async fn call_once<R: Request>(
        &self,
        node: NodeId,
        request: &R,
        version: i16,
    ) -> Result<R::Response, PeerError> {
        let idle = self.lock().get_mut(&node).and_then(Vec::pop);
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.open(node).await?,
        };
        let answer = connection.exchange(node, &self.client_id, request, version).await?;
        let mut idle = self.lock();
        let idle = idle.entry(node).or_default();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }

    async fn open(&self, node: NodeId) -> Result<Connection, PeerError> {
        let address = self.cluster.address(node).ok_or(PeerError::UnknownNode(node))?;
        let io = self.env.network.connect(&address).await;
        let mut connection = Connection {
            io: io.map_err(|source| PeerError::Connection { node, source })?,
            decoder: FrameDecoder::new(frame::FRAME_BYTES_MAX),
            buffer: BytesMut::new(),
            next_correlation_id: 0,
        };
        // Where everybody may do everything, nodes need not say who they are.
        if self.cluster.access.tells_nodes_apart() {
            self.authenticate(node, &mut connection).await?;
        }
        Ok(connection)
    }

    async fn authenticate(&self, node: NodeId, connection: &mut Connection) -> Result<(), PeerError> {
        let mechanism = StrBytes::from_static_str(NODE_MECHANISM);
        let handshake = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let key = Bytes::copy_from_slice(self.cluster.access.node_key().as_bytes());
        let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(key);
        let agreed = connection.exchange(node, &self.client_id, &handshake, HANDSHAKE_VERSION).await?;
        if agreed.error_code != 0 {
            return Err(PeerError::Refused(node));
        }
        let known = connection.exchange(node, &self.client_id, &authenticate, AUTHENTICATE_VERSION).await?;
        if known.error_code == 0 { Ok(()) } else { Err(PeerError::Refused(node)) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    async fn exchange<R: Request>(
        &mut self,
        node: NodeId,
        client_id: &str,
        request: &R,
        version: i16,
    ) -> Result<R::Response, PeerError> {
        let malformed = |source| PeerError::Message { node, source };
        let broken = |source| PeerError::Connection { node, source };
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let bytes = frame::encode_request(request, version, correlation_id, client_id).map_err(malformed)?;
        self.io.write_all(&bytes).await.map_err(broken)?;
        loop {
            if let Some(answer) = self.decoder.next(&mut self.buffer).map_err(malformed)? {
                let (answered, response) = frame::decode_response::<R>(answer, version).map_err(malformed)?;
                if answered != correlation_id {
                    let text = format!("answer {answered} to request {correlation_id}");
                    return Err(broken(std::io::Error::new(std::io::ErrorKind::InvalidData, text)));
                }
                return Ok(response);
            }
            self.buffer.reserve(READ_BYTES);
            if self.io.read_buf(&mut self.buffer).await.map_err(broken)? == 0 {
                return Err(broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}
