//! A network of byte streams with delays, losses, cuts and resets, all drawn from one seed.
//!
//! A connection is two pipes. Bytes of one pipe arrive in order; different connections overtake each other, since
//! each chunk draws its own delay. What TCP hides stays hidden: a lost packet is a delay, a cut link keeps what was
//! sent and delivers it when the link heals. What TCP does not hide happens: a reset loses a suffix of what was on
//! the way, in both directions, and each side knows only what it has read.

mod pipe;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sharestream_base::{BoxIo, Clock, HostPort, Listener, Network, Rng};
use tokio::sync::{Notify, mpsc};

use crate::trace::Trace;
use crate::traps::Traps;
use pipe::{Pipe, PipeId};
use stream::Stream;

/// Connections that wait for `accept`; beyond it `connect` waits.
const BACKLOG: usize = 64;
/// First retransmission of a lost packet, as TCP does it.
const RETRANSMIT: Duration = Duration::from_millis(200);

/// A machine or container, by name; one for each incarnation of a process.
pub type Host = Arc<str>;

/// How good the network is at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// Ordinary delay of a chunk: 0 up to this, drawn for each.
    pub delay_max: Duration,
    /// Part of the chunks that are slow, 0.0 to 1.0.
    pub slow: f64,
    /// Delay of a slow chunk: 0 up to this.
    pub slow_max: Duration,
    /// Part of the chunks that are lost and sent again by TCP, 0.0 to 1.0.
    pub loss: f64,
}

impl Default for Weather {
    fn default() -> Self {
        Weather {
            delay_max: Duration::from_millis(2),
            slow: 0.01,
            slow_max: Duration::from_millis(20),
            loss: 0.0,
        }
    }
}

struct ListenerEntry {
    host: Host,
    incoming: mpsc::Sender<(BoxIo, String)>,
}

struct State {
    rng: Rng,
    weather: Weather,
    listeners: BTreeMap<HostPort, ListenerEntry>,
    pipes: BTreeMap<PipeId, Pipe>,
    next_connection: u64,
    cut: BTreeSet<(Host, Host)>,
    dark: BTreeSet<Host>,
    names: BTreeMap<String, Host>,
}

/// All hosts and what lies between them. Cheap to clone.
#[derive(Clone)]
pub struct Fabric {
    clock: Clock,
    trace: Trace,
    traps: Traps,
    changed: Arc<Notify>,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}

impl Fabric {
    /// A network without hosts.
    pub fn new(clock: &Clock, rng: Rng, trace: Trace) -> Self {
        let state = State {
            rng,
            weather: Weather::default(),
            listeners: BTreeMap::new(),
            pipes: BTreeMap::new(),
            next_connection: 0,
            cut: BTreeSet::new(),
            dark: BTreeSet::new(),
            names: BTreeMap::new(),
        };
        Fabric {
            clock: clock.clone(),
            trace,
            traps: Traps::default(),
            changed: Arc::new(Notify::new()),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The same with traps for what is sent.
    pub(crate) fn with_traps(self, traps: Traps) -> Self {
        Fabric { traps, ..self }
    }

    /// The network as `host` sees it.
    pub fn attach(&self, host: impl Into<Host>) -> Arc<dyn Network> {
        Arc::new(Attached { fabric: self.clone(), host: host.into() })
    }

    /// From now on whoever connects to `name` reaches `host`, as an address that moves with a service.
    pub fn name(&self, name: &str, host: Host) {
        self.lock().names.insert(name.to_owned(), host);
    }

    /// Changes delays and losses from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Nothing that `from` sends reaches `to` any more, until [`Fabric::heal`].
    pub fn cut(&self, from: &Host, to: &Host) {
        let mut state = self.lock();
        state.cut.insert((Arc::clone(from), Arc::clone(to)));
        let now = self.clock.now();
        for pipe in state.pipes.values_mut().filter(|pipe| pipe.from == *from && pipe.to == *to) {
            pipe.hold(now);
        }
    }

    /// Ends one cut: what was held back arrives.
    pub fn mend(&self, from: &Host, to: &Host) {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            state.cut.remove(&(Arc::clone(from), Arc::clone(to)));
            let State { pipes, rng, weather, dark, .. } = &mut *state;
            let between = |pipe: &&mut Pipe| pipe.from == *from && pipe.to == *to && !dark.contains(&pipe.to);
            for pipe in pipes.values_mut().filter(between) {
                pipe.release(now, || delay(rng, weather));
            }
        }
        self.changed.notify_waiters();
    }

    /// Ends all cuts: what was held back arrives.
    pub fn heal(&self) {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            state.cut.clear();
            let State { pipes, rng, weather, dark, .. } = &mut *state;
            for pipe in pipes.values_mut().filter(|pipe| !dark.contains(&pipe.to)) {
                pipe.release(now, || delay(rng, weather));
            }
        }
        self.changed.notify_waiters();
    }

    /// Resets every connection between hosts that `concerns` accepts, in either order of the two.
    pub fn reset(&self, concerns: impl Fn(&str, &str) -> bool) -> usize {
        let mut state = self.lock();
        let State { pipes, rng, .. } = &mut *state;
        let mut count = 0;
        for (id, pipe) in pipes.iter_mut() {
            if !pipe.is_reset() && (concerns(&pipe.from, &pipe.to) || concerns(&pipe.to, &pipe.from)) {
                pipe.reset(rng.unit());
                if id.by_opener {
                    self.trace.closed(id.connection);
                    count += 1;
                }
            }
        }
        count
    }

    /// The machine loses power: it says nothing any more, not even goodbye.
    pub fn power_off(&self, host: &Host) {
        let mut state = self.lock();
        state.dark.insert(Arc::clone(host));
        state.listeners.retain(|_, listener| listener.host != *host);
    }

    /// The address that powered off answers again, with resets: whoever waits for it learns that it is gone.
    pub fn power_on(&self, host: &Host) {
        {
            let mut state = self.lock();
            state.dark.remove(host);
            state.pipes.values_mut().filter(|pipe| pipe.to == *host).for_each(Pipe::abandon);
        }
        self.reset(|from, to| from == &**host || to == &**host);
        self.forget_ended(host);
        self.changed.notify_waiters();
    }

    /// Both ends may have been dropped while the host was dark: then nobody else takes the connection away.
    fn forget_ended(&self, host: &Host) {
        let mut state = self.lock();
        let of_host =
            state.pipes.iter().filter(|(id, pipe)| id.by_opener && (pipe.from == *host || pipe.to == *host));
        let connections: Vec<u64> = of_host.map(|(id, _)| id.connection).collect();
        for connection in connections {
            let both = [true, false].map(|by_opener| PipeId { connection, by_opener });
            if both.iter().all(|id| state.pipes.get(id).is_none_or(Pipe::is_over)) {
                both.iter().for_each(|id| drop(state.pipes.remove(id)));
            }
        }
    }

    /// Open connections by who opened them and to whom.
    pub fn links(&self) -> BTreeMap<(Host, Host), usize> {
        let state = self.lock();
        let mut links = BTreeMap::new();
        for pipe in state.pipes.iter().filter(|(id, _)| id.by_opener).map(|(_, pipe)| pipe) {
            *links.entry((Arc::clone(&pipe.from), Arc::clone(&pipe.to))).or_default() += 1;
        }
        links
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reaches(&self, from: &Host, to: &Host) -> bool {
        !self.dark.contains(from)
            && !self.dark.contains(to)
            && !self.cut.contains(&(Arc::clone(from), Arc::clone(to)))
    }

    /// How long the next chunk takes; `None` while the link is cut.
    fn travel(&mut self, from: &Host, to: &Host) -> Option<Duration> {
        if from == to {
            return Some(Duration::ZERO);
        }
        self.reaches(from, to).then(|| delay(&self.rng, &self.weather))
    }
}

fn delay(rng: &Rng, weather: &Weather) -> Duration {
    let mut delay = weather.delay_max.mul_f64(rng.unit());
    if rng.unit() < weather.slow {
        delay += weather.slow_max.mul_f64(rng.unit());
    }
    let mut lost = RETRANSMIT;
    while weather.loss > 0.0 && rng.unit() < weather.loss && lost < Duration::from_secs(10) {
        delay += lost;
        lost *= 2;
    }
    // Timers count milliseconds; anything shorter is now.
    Duration::from_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

struct Attached {
    fabric: Fabric,
    host: Host,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network of {}", self.host)
    }
}

#[async_trait]
impl Network for Attached {
    async fn connect(&self, address: &HostPort) -> io::Result<BoxIo> {
        let fabric = &self.fabric;
        let named = fabric.lock().names.get(&address.host).cloned();
        let there = named.unwrap_or_else(|| Arc::from(address.host.as_str()));
        let address = &HostPort::new(&*there, address.port);
        let travel = loop {
            let changed = fabric.changed.notified();
            {
                let mut state = fabric.lock();
                if state.reaches(&there, &self.host)
                    && let Some(travel) = state.travel(&self.host, &there)
                {
                    break travel;
                }
            }
            changed.await;
        };
        if !travel.is_zero() {
            fabric.clock.sleep(travel * 2).await;
        }
        let refused =
            || io::Error::new(io::ErrorKind::ConnectionRefused, format!("nobody listens on {address}"));
        let (ours, theirs, incoming) = {
            let mut state = fabric.lock();
            let listener = state.listeners.get(address).ok_or_else(refused)?;
            let incoming = listener.incoming.clone();
            let connection = state.next_connection;
            state.next_connection += 1;
            let now = fabric.clock.now();
            for by_opener in [true, false] {
                let (from, to) = if by_opener { (&self.host, &there) } else { (&there, &self.host) };
                let pipe = Pipe::new(Arc::clone(from), Arc::clone(to), now);
                state.pipes.insert(PipeId { connection, by_opener }, pipe);
            }
            let ours = Stream::new(fabric.clone(), connection, true);
            (ours, Stream::new(fabric.clone(), connection, false), incoming)
        };
        let peer = self.host.to_string();
        incoming.send((Box::new(theirs), peer)).await.map_err(|_| refused())?;
        Ok(Box::new(ours))
    }

    async fn bind(&self, address: &HostPort) -> io::Result<Box<dyn Listener>> {
        let mut state = self.fabric.lock();
        let mut address = address.clone();
        if address.port == 0 {
            let free = (40_000..u16::MAX).find(|port| {
                !state.listeners.contains_key(&HostPort { host: address.host.clone(), port: *port })
            });
            address.port = free.ok_or(io::ErrorKind::AddrInUse)?;
        }
        if state.listeners.get(&address).is_some_and(|listener| !listener.incoming.is_closed()) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{address} is taken")));
        }
        let (sender, incoming) = mpsc::channel(BACKLOG);
        let entry = ListenerEntry { host: Arc::clone(&self.host), incoming: sender };
        state.listeners.insert(address.clone(), entry);
        Ok(Box::new(Listening { incoming, address }))
    }
}

struct Listening {
    incoming: mpsc::Receiver<(BoxIo, String)>,
    address: HostPort,
}

#[async_trait]
impl Listener for Listening {
    async fn accept(&mut self) -> io::Result<(BoxIo, String)> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the network is gone");
        self.incoming.recv().await.ok_or_else(closed)
    }

    fn local_address(&self) -> HostPort {
        self.address.clone()
    }
}

#[cfg(test)]
mod tests;
