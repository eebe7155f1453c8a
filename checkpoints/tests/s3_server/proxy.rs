//! A proxy in front of the server that loses the answer to a write that has happened, or the write itself.

use std::sync::{Arc, Mutex};

use sharestream_base::{BoxIo, CancellationToken, Env, HostPort, Listener, OwnedTask, TaskKind, TaskSet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What happens to the next PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server does it; its answer never comes.
    AnswerLost,
    /// The server does it; the client is told that the service is unavailable, which it may try again.
    AnswerIs503,
    /// The server never hears of it.
    RequestLost,
}

/// A running proxy.
pub(crate) struct Proxy {
    port: u16,
    fault: Arc<Mutex<Option<Fault>>>,
    _accepting: OwnedTask<()>,
}

impl Proxy {
    /// Forwards to `port` of this machine.
    pub(crate) async fn start(env: &Env, port: u16) -> Proxy {
        let listener = env.network.bind(&HostPort::new("127.0.0.1", 0)).await.unwrap();
        let fault = Arc::new(Mutex::new(None));
        let own_port = listener.local_address().port;
        let accepting = accept(env.clone(), listener, HostPort::new("127.0.0.1", port), fault.clone());
        let accepting = OwnedTask::spawn(&env.spawner, "proxy", TaskKind::Service, accepting);
        Proxy { port: own_port, fault, _accepting: accepting }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Lets the next PUT suffer `fault`.
    pub(crate) fn spoil_next_put(&self, fault: Fault) {
        *self.fault.lock().unwrap() = Some(fault);
    }

    /// True when the fault has happened.
    pub(crate) fn has_spoiled(&self) -> bool {
        self.fault.lock().unwrap().is_none()
    }
}

async fn accept(env: Env, mut listener: Box<dyn Listener>, to: HostPort, fault: Arc<Mutex<Option<Fault>>>) {
    let mut connections = TaskSet::new(&env.spawner, CancellationToken::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let one = exchange(env.clone(), client, to.clone(), fault.clone());
                connections.spawn("proxied", TaskKind::Connection, one);
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One request and its answer; the server is told to close, so the answer ends where its bytes do.
async fn exchange(env: Env, mut client: BoxIo, to: HostPort, fault: Arc<Mutex<Option<Fault>>>) {
    let Some(request) = read_request(&mut client).await else { return };
    let due = if request.starts_with(b"PUT ") { fault.lock().unwrap().take() } else { None };
    if due == Some(Fault::RequestLost) {
        return;
    }
    let Ok(mut server) = env.network.connect(&to).await else { return };
    let line_end = request.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    let (line, rest) = request.split_at(line_end);
    for part in [line, b"Connection: close\r\n", rest] {
        server.write_all(part).await.unwrap();
    }
    server.flush().await.unwrap();
    let mut answer = Vec::new();
    let _ = server.read_to_end(&mut answer).await;
    let answer = match due {
        None => answer,
        Some(Fault::AnswerLost | Fault::RequestLost) => return,
        Some(Fault::AnswerIs503) => {
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    };
    let _ = client.write_all(&answer).await;
    let _ = client.flush().await;
}

async fn read_request(client: &mut BoxIo) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        let mut chunk = vec![0; 16 * 1024];
        let count = client.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&chunk[..count]);
        let Some(head_end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..head_end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if request.len() >= head_end + 4 + length {
            return Some(request);
        }
    }
}
