//! A TCP proxy in front of one broker that drops, delays, cuts in the middle of a response, and black-holes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharestream_base::{
    BoxIo, CancellationToken, Clock, Env, HostPort, Listener, Network, OwnedTask, TaskKind, TaskSet,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes that are moved at once.
const CHUNK: usize = 16 * 1024;

/// What the proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Forward,
    /// Closes every connection and takes no new one.
    Refuse,
    /// Each chunk waits so long, each way.
    Delay(Duration),
    /// Gives a client the first half of the next bytes and closes.
    CutResponses,
    /// Takes bytes and gives none. A connection that lost some is dead for ever, as behind a broken router.
    BlackHole,
}

struct State {
    behaviour: Behaviour,
    /// Ends the connections of now.
    connections: CancellationToken,
}

/// A running proxy.
pub(crate) struct Proxy {
    state: Arc<Mutex<State>>,
    _accepting: OwnedTask<()>,
}

impl Proxy {
    /// Listens on `port` and forwards to `to`.
    pub(crate) async fn start(env: &Env, port: u16, to: HostPort) -> Proxy {
        let listener = env.network.bind(&HostPort::new("127.0.0.1", port)).await.unwrap();
        let state = State { behaviour: Behaviour::Forward, connections: CancellationToken::new() };
        let state = Arc::new(Mutex::new(state));
        let accepting = accept(env.clone(), listener, to, state.clone());
        let accepting = OwnedTask::spawn(&env.spawner, "proxy", TaskKind::Service, accepting);
        Proxy { state, _accepting: accepting }
    }

    /// Forwards again.
    pub(crate) fn forward(&self) {
        self.set(Behaviour::Forward);
    }

    /// Closes every connection and refuses new ones.
    pub(crate) fn refuse(&self) {
        self.set(Behaviour::Refuse);
        self.drop_connections();
    }

    /// Delays every chunk.
    pub(crate) fn delay(&self, by: Duration) {
        self.set(Behaviour::Delay(by));
    }

    /// Cuts connections in the middle of their next response.
    pub(crate) fn cut_responses(&self) {
        self.set(Behaviour::CutResponses);
    }

    /// Swallows everything.
    pub(crate) fn black_hole(&self) {
        self.set(Behaviour::BlackHole);
    }

    /// Closes every connection; new ones are taken.
    pub(crate) fn drop_connections(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connections.cancel();
        state.connections = CancellationToken::new();
    }

    fn set(&self, behaviour: Behaviour) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).behaviour = behaviour;
    }
}

fn behaviour(state: &Mutex<State>) -> Behaviour {
    state.lock().unwrap_or_else(PoisonError::into_inner).behaviour
}

async fn accept(env: Env, mut listener: Box<dyn Listener>, to: HostPort, state: Arc<Mutex<State>>) {
    let mut connections = TaskSet::new(&env.spawner, CancellationToken::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let connection =
                    connect(env.network.clone(), env.clock.clone(), client, to.clone(), state.clone());
                connections.spawn("proxied", TaskKind::Connection, connection);
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(
    network: Arc<dyn Network>,
    clock: Clock,
    mut client: BoxIo,
    to: HostPort,
    state: Arc<Mutex<State>>,
) {
    let ended = state.lock().unwrap_or_else(PoisonError::into_inner).connections.clone();
    match behaviour(&state) {
        Behaviour::Refuse => return,
        Behaviour::BlackHole => {
            tokio::select! {
                () = swallow(&mut client) => {}
                () = ended.cancelled() => {}
            }
            return;
        }
        Behaviour::Forward | Behaviour::Delay(_) | Behaviour::CutResponses => {}
    }
    let Ok(broker) = network.connect(&to).await else { return };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_broker, to_broker) = tokio::io::split(broker);
    let is_lost = Arc::new(Mutex::new(false));
    tokio::select! {
        () = pump(from_client, to_broker, &clock, &state, &is_lost, false) => {}
        () = pump(from_broker, to_client, &clock, &state, &is_lost, true) => {}
        () = ended.cancelled() => {}
    }
}

async fn swallow(from: &mut (impl AsyncRead + Unpin)) {
    let mut chunk = vec![0; CHUNK];
    while from.read(&mut chunk).await.is_ok_and(|count| count > 0) {}
}

/// Moves bytes one way until either side ends or the proxy ends it.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    clock: &Clock,
    state: &Mutex<State>,
    is_lost: &Mutex<bool>,
    is_response: bool,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk).await {
            Ok(count) if count > 0 => count,
            Ok(_) | Err(_) => return,
        };
        let bytes = &chunk[..count];
        let now = behaviour(state);
        {
            let mut is_lost = is_lost.lock().unwrap_or_else(PoisonError::into_inner);
            *is_lost |= now == Behaviour::BlackHole;
            if *is_lost {
                continue;
            }
        }
        let sent = match now {
            Behaviour::Refuse => return,
            Behaviour::CutResponses if is_response => {
                let _ = to.write_all(&bytes[..count / 2]).await;
                let _ = to.flush().await;
                return;
            }
            Behaviour::Delay(by) => {
                clock.sleep(by).await;
                to.write_all(bytes).await
            }
            Behaviour::Forward | Behaviour::CutResponses | Behaviour::BlackHole => to.write_all(bytes).await,
        };
        if sent.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
