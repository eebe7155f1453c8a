//! Accepts connections and serves each one's requests in order.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sharestream_base::{BoxIo, CancellationToken, Listener, TaskKind};
use sharestream_wire::frame::FrameDecoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tracing::{debug, warn};

use crate::access::Authentication;
use crate::faults::FaultAction;
use crate::handlers::{self, Connection, ConnectionId, DispatchError, Dispatched};
use crate::node::Node;

/// Bytes asked for at a time; the frame decoder reserves what a large frame needs.
const READ_BYTES: usize = 64 * 1024;
/// Room below which a read would be too small.
const READ_BYTES_MIN: usize = 8 * 1024;
/// Bytes of later requests that are taken in while one is served; beyond it the peer's socket fills up.
const AHEAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Accepts until the node stops.
pub(crate) async fn accept(node: Arc<Node>, mut listener: Box<dyn Listener>) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = node.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((io, peer)) => {
                let id = node.next_connection();
                let connection = serve(Arc::clone(&node), io, id, peer.clone());
                node.spawn(format!("connection {peer}"), TaskKind::Connection, connection);
            }
            Err(error) => {
                // Out of file descriptors, say: others go on, and accept is tried again a little later.
                warn!(%error, "cannot accept a connection");
                node.env.clock.sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves one connection until either side closes it. What depends on the connection (share sessions) ends with it.
async fn serve(node: Arc<Node>, io: BoxIo, id: ConnectionId, peer: String) {
    // Share services learn of the end also when this task is aborted.
    let _closing = Closing { node: Arc::clone(&node), id };
    let (mut reader, mut writer) = tokio::io::split(io);
    let closed = node.stop.child_token();
    let _closed_on_drop = closed.clone().drop_guard();
    let authentication = Authentication::new(&node.cluster.access);
    let mut connection = Connection { id, closed, authentication };
    let mut input = Input { buffer: BytesMut::with_capacity(READ_BYTES), ended: false };
    loop {
        let frame_bytes_max = connection.authentication.frame_bytes_max(node.config.frame_bytes_max);
        let frame = tokio::select! {
            biased;
            () = node.stop.cancelled() => return,
            frame = input.next_frame(&mut reader, frame_bytes_max) => frame,
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => {
                debug!(peer, %error, "connection ended");
                return;
            }
        };
        let (met, dispatched) = {
            let closed = connection.closed.clone();
            let serving = meet_and_serve(&node, &mut connection, frame);
            input.read_while(&mut reader, serving, &closed).await
        };
        let is_last = matches!(dispatched, Ok(Dispatched::Last(_)));
        let answer = match dispatched {
            Ok(Dispatched::Answer(answer) | Dispatched::Last(answer)) => answer,
            Ok(Dispatched::NoAnswer) => continue,
            Err(error) => {
                warn!(peer, %error, "closing the connection");
                return;
            }
        };
        let answer = match met {
            Some(FaultAction::DropBefore | FaultAction::DropAfter) => continue,
            Some(FaultAction::DisconnectBefore | FaultAction::DisconnectAfter) => return,
            Some(FaultAction::PartialWrite { bytes }) => answer.slice(..bytes.min(answer.len())),
            Some(FaultAction::Error(_) | FaultAction::Delay(_)) | None => answer,
        };
        if let Err(error) = writer.write_all(&answer).await {
            debug!(peer, %error, "connection ended");
            return;
        }
        if is_last || matches!(met, Some(FaultAction::PartialWrite { .. })) {
            return;
        }
    }
}

/// Serves a frame, or does in its place what a planted fault says; what becomes of the answer is for the caller.
async fn meet_and_serve(
    node: &Arc<Node>,
    connection: &mut Connection,
    frame: Bytes,
) -> (Option<FaultAction>, Result<Dispatched, DispatchError>) {
    let met = handlers::planted_fault(node, &frame);
    match met {
        Some(FaultAction::Error(code)) => return (met, handlers::refuse(frame, code.0)),
        Some(FaultAction::DropBefore | FaultAction::DisconnectBefore) => {
            return (met, Ok(Dispatched::Answer(Bytes::new())));
        }
        Some(FaultAction::Delay(delay)) => node.env.clock.sleep(delay).await,
        Some(FaultAction::DropAfter | FaultAction::DisconnectAfter | FaultAction::PartialWrite { .. })
        | None => {}
    }
    (met, handlers::dispatch(node, connection, frame).await)
}

struct Closing {
    node: Arc<Node>,
    id: ConnectionId,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.node.share.connection_closed(self.id);
    }
}

struct Input {
    buffer: BytesMut,
    ended: bool,
}

impl Input {
    /// The next whole frame of at most so many bytes; `None` at the end. Cancel safe: what was read stays in the
    /// buffer.
    async fn next_frame(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        frame_bytes_max: usize,
    ) -> std::io::Result<Option<Bytes>> {
        loop {
            let decoded = FrameDecoder::new(frame_bytes_max).next(&mut self.buffer);
            let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            if let Some(frame) = decoded.map_err(invalid)? {
                return Ok(Some(frame));
            }
            if self.ended || !self.read(reader).await? {
                return Ok(None);
            }
        }
    }

    /// Runs `work` to its end and meanwhile reads on, to notice when the peer goes: then `closed` is triggered and
    /// waits inside `work` end early. The work itself is never cut off half done.
    async fn read_while<T>(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        work: impl Future<Output = T>,
        closed: &CancellationToken,
    ) -> T {
        tokio::pin!(work);
        while !self.ended && self.buffer.len() < AHEAD_BYTES_MAX {
            tokio::select! {
                biased;
                done = &mut work => return done,
                read = self.read(reader) => match read {
                    Ok(true) => {}
                    Ok(false) | Err(_) => {
                        self.ended = true;
                        closed.cancel();
                    }
                },
            }
        }
        work.await
    }

    /// Reads once; false at the end of the stream.
    async fn read(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<bool> {
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES);
        }
        let read = reader.read_buf(&mut self.buffer).await?;
        self.ended |= read == 0;
        Ok(read > 0)
    }
}
