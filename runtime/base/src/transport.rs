//! Sockets: TCP in production, in-memory pipes where one process plays the whole network.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A host name or address and a port, as Kafka writes them in `bootstrap.servers` and `listeners`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Host name, IPv4 address or IPv6 address without brackets.
    pub host: String,
    /// TCP port; 0 asks for any free port when binding.
    pub port: u16,
}

/// The text is not `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not host:port (for example localhost:9092)")]
pub struct HostPortError {
    /// What was given.
    pub text: String,
}

impl HostPort {
    /// Puts the two together.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        HostPort { host: host.into(), port }
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let error = || HostPortError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(error());
        }
        Ok(HostPort { host: host.to_owned(), port: port.parse().map_err(|_| error())? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A connected byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connected byte stream of any transport.
pub type BoxIo = Box<dyn Io>;

/// Opens and accepts connections.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Connects to `address`. Cancel safe.
    async fn connect(&self, address: &HostPort) -> io::Result<BoxIo>;
    /// Listens on `address`; port 0 takes a free port. Cancel safe.
    async fn bind(&self, address: &HostPort) -> io::Result<Box<dyn Listener>>;
}

/// Accepts connections on one address.
#[async_trait]
pub trait Listener: Send {
    /// The next connection and a printable name of its peer. Cancel safe.
    async fn accept(&mut self) -> io::Result<(BoxIo, String)>;
    /// The address that was bound, with its real port.
    fn local_address(&self) -> HostPort;
}

/// TCP of the operating system, without Nagle's delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpNetwork;

struct TcpListening {
    listener: tokio::net::TcpListener,
    local_address: HostPort,
}

#[async_trait]
#[allow(clippy::disallowed_methods, reason = "this is the door to sockets")]
impl Network for TcpNetwork {
    async fn connect(&self, address: &HostPort) -> io::Result<BoxIo> {
        let stream = tokio::net::TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    async fn bind(&self, address: &HostPort) -> io::Result<Box<dyn Listener>> {
        let listener = tokio::net::TcpListener::bind((address.host.as_str(), address.port)).await?;
        let bound = listener.local_addr()?;
        Ok(Box::new(TcpListening {
            listener,
            local_address: HostPort::new(address.host.clone(), bound.port()),
        }))
    }
}

#[async_trait]
impl Listener for TcpListening {
    async fn accept(&mut self) -> io::Result<(BoxIo, String)> {
        let (stream, peer) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((Box::new(stream), peer.to_string()))
    }

    fn local_address(&self) -> HostPort {
        self.local_address.clone()
    }
}

/// Bytes in flight each way of one in-memory connection; a full pipe makes the writer wait.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that wait for `accept`; beyond it `connect` waits.
const BACKLOG: usize = 64;

/// A network inside one process: no socket, no port of the machine.
#[derive(Clone, Default)]
pub struct MemoryNetwork {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Default)]
struct MemoryState {
    listeners: BTreeMap<HostPort, mpsc::Sender<BoxIo>>,
    last_port: u16,
}

struct MemoryListener {
    incoming: mpsc::Receiver<BoxIo>,
    local_address: HostPort,
    accepted_count: u64,
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryNetwork")
    }
}

#[async_trait]
impl Network for MemoryNetwork {
    async fn connect(&self, address: &HostPort) -> io::Result<BoxIo> {
        let refused =
            || io::Error::new(io::ErrorKind::ConnectionRefused, format!("nobody listens on {address}"));
        let listener = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.listeners.get(address).cloned().ok_or_else(refused)?
        };
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        listener.send(Box::new(theirs)).await.map_err(|_| refused())?;
        Ok(Box::new(ours))
    }

    async fn bind(&self, address: &HostPort) -> io::Result<Box<dyn Listener>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut address = address.clone();
        if address.port == 0 {
            state.last_port = state.last_port.max(40_000) + 1;
            address.port = state.last_port;
        }
        if state.listeners.get(&address).is_some_and(|listener| !listener.is_closed()) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{address} is taken")));
        }
        let (sender, incoming) = mpsc::channel(BACKLOG);
        state.listeners.insert(address.clone(), sender);
        Ok(Box::new(MemoryListener { incoming, local_address: address, accepted_count: 0 }))
    }
}

#[async_trait]
impl Listener for MemoryListener {
    async fn accept(&mut self) -> io::Result<(BoxIo, String)> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the network is gone");
        let io = self.incoming.recv().await.ok_or_else(closed)?;
        self.accepted_count += 1;
        Ok((io, format!("memory-{}", self.accepted_count)))
    }

    fn local_address(&self) -> HostPort {
        self.local_address.clone()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn memory_network_carries_bytes_and_refuses_unknown_addresses() {
        let network = MemoryNetwork::default();
        let mut listener = network.bind(&HostPort::new("broker", 0)).await.unwrap();
        let mut client = network.connect(&listener.local_address()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        client.write_all(b"ping").await.unwrap();
        let mut bytes = [0u8; 4];
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"ping");
        let refused = network.connect(&HostPort::new("broker", 1)).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn host_port_reads_what_it_writes() {
        for text in ["localhost:9092", "127.0.0.1:0", "[::1]:9092"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        assert!("localhost".parse::<HostPort>().is_err());
        assert!(":9092".parse::<HostPort>().is_err());
    }
}
