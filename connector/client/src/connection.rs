//! One connection to one broker: requests go out in order and are pipelined, answers come back by correlation id.
//!
//! ```text
//! callers --queue--> writer task --socket--> broker --socket--> reader task --oneshot--> callers
//! ```
//! A caller that stops waiting loses only its answer: the request stays in the map, so the answers behind it still
//! find their owners. A late answer, garbage or the end of the stream poisons the connection: every request in
//! flight ends with an error that says whether it had left this process. Where the broker limits how long it knows us,
//! the writer task authenticates again between two requests.

mod in_flight;
mod reauthentication;
mod setup;
mod throttle;

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use sharestream_base::{
    BoxIo, CancellationToken, Clock, Env, ErrorKind, HostPort, Instant, OwnedTask, TaskKind,
};
use sharestream_wire::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::security::{Login, TlsSettings, explain_io};
use crate::versions::{AgreedVersions, api_name};
use crate::{Error, Result};
use in_flight::InFlight;
use reauthentication::LiveWire;
pub(crate) use reauthentication::Renewal;
pub(crate) use setup::{Setup, unreachable};
pub(crate) use throttle::Throttled;

/// Requests that wait for the writer task; beyond it senders wait.
const QUEUE: usize = 16;
/// Read from the socket at once when no longer frame is known to come.
const READ_BYTES: usize = 64 * 1024;

/// Longest throttle time that is kept.
const THROTTLE_MAX: Duration = Duration::from_secs(30);

/// A cheap handle; the connection closes with its last handle.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Outgoing>,
    versions: Arc<AgreedVersions>,
    client_id: Arc<str>,
    request_timeout: Duration,
    _writer: OwnedTask<()>,
    _reader: OwnedTask<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Answers may still be waited for; they will not come.
        self.shared.poison("closed by us");
    }
}

/// What the tasks and the handles share. The tasks hold no handle: the last handle ends them.
struct Shared {
    address: HostPort,
    /// With what it is protected, for errors.
    tls: Option<TlsSettings>,
    clock: Clock,
    in_flight: Mutex<InFlight<Waiter>>,
    closed: CancellationToken,
    /// The broker asked us to be silent until then (KIP-219).
    muted_until: Mutex<Option<Instant>>,
}

struct Waiter {
    answer: oneshot::Sender<Arrived>,
    written: Arc<AtomicBool>,
}

/// An answer and when it came: locks are counted from there, however late the caller looks.
struct Arrived {
    frame: Bytes,
    at: Instant,
}

struct Outgoing {
    frame: Bytes,
    written: Arc<AtomicBool>,
    /// Told when the request has been handed to the operating system.
    on_written: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.inner.shared.address).finish()
    }
}

/// Settings of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) address: HostPort,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) client_id: String,
    pub(crate) request_timeout: Duration,
}

impl Connection {
    /// Runs the two tasks over `io`. `versions` is what the two sides agreed on; `renewal` is there when we have
    /// authenticated.
    pub(crate) fn start(
        io: BoxIo,
        env: &Env,
        options: ConnectionOptions,
        versions: AgreedVersions,
        renewal: Option<Renewal>,
    ) -> Self {
        let (read_half, write_half) = tokio::io::split(io);
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            address: options.address,
            tls: options.tls,
            clock: env.clock.clone(),
            in_flight: Mutex::new(InFlight::new()),
            closed: CancellationToken::new(),
            muted_until: Mutex::new(None),
        });
        let name = format!("connection-{}", shared.address);
        let (versions, client_id) = (Arc::new(versions), Arc::<str>::from(options.client_id));
        let writer = Writer {
            shared: Arc::clone(&shared),
            io: write_half,
            renewal,
            versions: Arc::clone(&versions),
            client_id: Arc::clone(&client_id),
            request_timeout: options.request_timeout,
        };
        let writer = writer.run(outgoing);
        let reader = read_loop(Arc::clone(&shared), read_half);
        Connection {
            inner: Arc::new(Inner {
                queue,
                versions,
                client_id,
                request_timeout: options.request_timeout,
                _writer: OwnedTask::spawn(
                    &env.spawner,
                    format!("{name}-write"),
                    TaskKind::Connection,
                    writer,
                ),
                _reader: OwnedTask::spawn(&env.spawner, format!("{name}-read"), TaskKind::Connection, reader),
                shared,
            }),
        }
    }

    /// Where it leads.
    pub(crate) fn address(&self) -> &HostPort {
        &self.inner.shared.address
    }

    /// What both sides speak.
    pub(crate) fn versions(&self) -> &AgreedVersions {
        &self.inner.versions
    }

    /// True until it is poisoned.
    pub(crate) fn is_open(&self) -> bool {
        !self.inner.shared.closed.is_cancelled()
    }

    /// Sends a request and waits for its answer for at most the request time-out.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer, not the connection; the request may have been sent.
    pub(crate) async fn call<R>(&self, request: &R) -> Result<R::Response>
    where
        R: Request,
        R::Response: Throttled,
    {
        self.send(request).await?.answer().await
    }

    /// Sends a request, after all those sent before it, and returns what will hold its answer.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the request has not been sent.
    pub(crate) async fn send<R>(&self, request: &R) -> Result<PendingAnswer<R>>
    where
        R: Request,
        R::Response: Throttled,
    {
        self.send_with(request, self.inner.request_timeout).await
    }

    /// The same with another time-out: a long poll adds its own wait.
    pub(crate) async fn send_with<R>(&self, request: &R, timeout: Duration) -> Result<PendingAnswer<R>>
    where
        R: Request,
        R::Response: Throttled,
    {
        let shared = &self.inner.shared;
        let version = self.inner.versions.of::<R>(&shared.address)?;
        shared.wait_out_throttle().await;
        let deadline = shared.clock.now() + timeout;
        let not_sent = |reason: &str| not_sent(&shared.address, R::KEY, reason);
        // Room in the queue first: id, map and queue then change together, so that the order of ids is the order on
        // the wire and a dropped caller has sent nothing.
        let room = match shared.clock.timeout_at(deadline, self.inner.queue.reserve()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(not_sent(&shared.reason())),
            Err(_elapsed) => return Err(not_sent("the connection is stuck")),
        };
        let (answer, receiver) = oneshot::channel();
        let (on_written, when_written) = oneshot::channel();
        let written = Arc::new(AtomicBool::new(false));
        {
            let mut in_flight = shared.lock_in_flight();
            let waiter = Waiter { answer, written: Arc::clone(&written) };
            let id = in_flight.register(waiter).map_err(|reason| not_sent(&reason))?;
            let encoded = frame::encode_request(request, version, id, &self.inner.client_id);
            let frame = encoded.map_err(|error| {
                let _nobody_waits = in_flight.complete(id);
                let context = format!("cannot encode {} version {version}", api_name(R::KEY));
                Error::new(ErrorKind::Bug, context).with_source(error)
            })?;
            room.send(Outgoing { frame, written: Arc::clone(&written), on_written: Some(on_written) });
        }
        Ok(PendingAnswer {
            receiver,
            when_written: Some(when_written),
            written,
            shared: Arc::clone(shared),
            version,
            deadline,
            request: PhantomData,
        })
    }
}

/// An answer on its way.
pub(crate) struct PendingAnswer<R> {
    receiver: oneshot::Receiver<Arrived>,
    when_written: Option<oneshot::Receiver<()>>,
    written: Arc<AtomicBool>,
    shared: Arc<Shared>,
    version: i16,
    deadline: Instant,
    request: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for PendingAnswer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAnswer").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<R> PendingAnswer<R>
where
    R: Request,
    R::Response: Throttled,
{
    /// Waits until the request has been handed to the operating system, or the connection ended. Cancel safe.
    pub(crate) async fn written(&mut self) {
        if let Some(when_written) = self.when_written.as_mut() {
            // Either outcome ends the wait: the answer tells which it was.
            let _told_or_closed = when_written.await;
            self.when_written = None;
        }
    }

    /// The answer. Must not be called again after it returned.
    ///
    /// # Errors
    /// `Retry` when the request never left; `Indeterminate` when it did and no answer came: the caller knows
    /// whether repeating it does harm.
    ///
    /// # Cancel safety
    /// Cancel safe: call it again.
    pub(crate) async fn answer(&mut self) -> Result<R::Response> {
        Ok(self.answer_with_arrival().await?.0)
    }

    /// The same with the moment at which it came. Cancel safe.
    pub(crate) async fn answer_with_arrival(&mut self) -> Result<(R::Response, Instant)> {
        let Arrived { frame, at } =
            match self.shared.clock.timeout_at(self.deadline, &mut self.receiver).await {
                Ok(Ok(arrived)) => arrived,
                Ok(Err(_closed)) => return Err(self.lost(&self.shared.reason())),
                Err(_elapsed) => {
                    // Answers come in order: whatever is behind this one is late too, and a caller that retries on the
                    // same connection would wait behind it.
                    let reason = format!("no answer to {} in time", api_name(R::KEY));
                    self.shared.poison(&reason);
                    return Err(self.lost(&reason));
                }
            };
        let decoded = frame::decode_response::<R>(frame, self.version).map_err(|error| {
            let reason = format!("cannot read the answer to {} version {}", api_name(R::KEY), self.version);
            self.shared.poison(&reason);
            Error::new(ErrorKind::Indeterminate, format!("{reason} from {}", self.shared.address))
                .with_source(error)
        })?;
        let (_id, response) = decoded;
        self.shared.mute(response.throttle_time_ms());
        Ok((response, at))
    }

    fn lost(&self, reason: &str) -> Error {
        if self.written.load(Ordering::Acquire) {
            let name = api_name(R::KEY);
            let context = format!("{name} to {} was sent and not answered: {reason}", self.shared.address);
            Error::new(ErrorKind::Indeterminate, context)
        } else {
            not_sent(&self.shared.address, R::KEY, reason)
        }
    }
}

fn not_sent(address: &HostPort, key: i16, reason: &str) -> Error {
    Error::new(ErrorKind::Retry, format!("{} to {address} was not sent: {reason}", api_name(key)))
}

impl Shared {
    fn lock_in_flight(&self) -> std::sync::MutexGuard<'_, InFlight<Waiter>> {
        // Every change of the map is one call: a panic elsewhere leaves it whole.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poison(&self, reason: &str) {
        let waiters = self.lock_in_flight().poison(reason);
        if !waiters.is_empty() {
            let unsent = waiters.iter().filter(|waiter| !waiter.written.load(Ordering::Acquire)).count();
            tracing::debug!(address = %self.address, reason, lost = waiters.len(), unsent, "connection ended");
        }
        // Dropping the senders tells those who wait.
        drop(waiters);
        self.closed.cancel();
    }

    fn cannot(&self, what: &str, error: &std::io::Error) -> String {
        format!("cannot {what}: {}", explain_io(error, &self.address, self.tls.as_ref()))
    }

    fn reason(&self) -> String {
        self.lock_in_flight().poisoned().unwrap_or("closed").to_owned()
    }

    fn mute(&self, throttle_time_ms: i32) {
        if let Ok(ms @ 1..) = u64::try_from(throttle_time_ms) {
            // A broker that asks for more than our patience has its answer in the time-outs.
            let until = self.clock.now() + Duration::from_millis(ms).min(THROTTLE_MAX);
            *self.muted_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
    }

    async fn wait_out_throttle(&self) {
        let until = *self.muted_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until.filter(|until| *until > self.clock.now()) {
            self.clock.sleep_until(until).await;
        }
    }
}

/// The task that owns the way out.
struct Writer {
    shared: Arc<Shared>,
    io: WriteHalf<BoxIo>,
    renewal: Option<Renewal>,
    versions: Arc<AgreedVersions>,
    client_id: Arc<str>,
    request_timeout: Duration,
}

impl Writer {
    async fn run(mut self, mut outgoing: mpsc::Receiver<Outgoing>) {
        let shared = Arc::clone(&self.shared);
        let ended = tokio::select! {
            biased;
            () = shared.closed.cancelled() => Ok(()),
            ended = self.write_all(&mut outgoing) => ended,
        };
        shared.poison(&ended.err().unwrap_or_else(|| "closed".to_owned()));
    }

    /// Writes until there are no more handles. The reason, when it had to stop before.
    async fn write_all(&mut self, outgoing: &mut mpsc::Receiver<Outgoing>) -> Result<(), String> {
        let mut told = Vec::with_capacity(QUEUE);
        loop {
            // Past its end a session is good for nothing but its renewal.
            let is_expired = self.renewal.as_ref().is_some_and(Renewal::is_expired);
            let mut next = tokio::select! {
                biased;
                login = session_due(self.renewal.as_mut()) => {
                    self.authenticate_again(login).await?;
                    continue;
                }
                next = outgoing.recv(), if !is_expired => next,
            };
            if next.is_none() {
                return Ok(());
            }
            while let Some(Outgoing { frame, written, on_written }) = next.take() {
                // From the first byte on the broker may act on it.
                written.store(true, Ordering::Release);
                self.io.write_all(&frame).await.map_err(|error| self.shared.cannot("write", &error))?;
                told.extend(on_written);
                next = outgoing.try_recv().ok();
            }
            self.io.flush().await.map_err(|error| self.shared.cannot("write", &error))?;
            for on_written in told.drain(..) {
                // A caller that does not listen is fine.
                let _no_listener = on_written.send(());
            }
        }
    }

    async fn authenticate_again(&mut self, login: Result<Login>) -> Result<(), String> {
        let Some(renewal) = &mut self.renewal else { return Ok(()) };
        let wire = LiveWire {
            shared: &self.shared,
            io: &mut self.io,
            versions: &self.versions,
            client_id: &self.client_id,
            timeout: self.request_timeout,
        };
        let renewed = match login {
            Ok(login) => renewal.renew(wire, login).await,
            Err(error) => Err(error),
        };
        renewed.map_err(|error| {
            tracing::warn!(address = %self.shared.address, %error, "could not authenticate again");
            format!("could not authenticate again: {error}")
        })
    }
}

async fn session_due(renewal: Option<&mut Renewal>) -> Result<Login> {
    match renewal {
        Some(renewal) => renewal.due().await,
        None => std::future::pending().await,
    }
}

async fn read_loop(shared: Arc<Shared>, mut io: ReadHalf<BoxIo>) {
    let mut decoder = frame::FrameDecoder::new(frame::FRAME_BYTES_MAX);
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    let reason = loop {
        match decoder.next(&mut buffer) {
            Ok(Some(frame)) => match deliver(&shared, frame) {
                Ok(()) => continue,
                Err(reason) => break reason,
            },
            Ok(None) => {}
            Err(error) => break format!("cannot read: {error}"),
        }
        // A known frame length is reserved at once, so that a large fetch is not copied as its buffer grows.
        buffer.reserve(missing_bytes(&buffer));
        let read = tokio::select! {
            biased;
            () = shared.closed.cancelled() => return,
            read = io.read_buf(&mut buffer) => read,
        };
        match read {
            Ok(0) => break "the broker closed it".to_owned(),
            Ok(_) => {}
            Err(error) => break shared.cannot("read", &error),
        }
    };
    shared.poison(&reason);
}

/// Bytes to reserve for the frame that `buffer` begins with.
fn missing_bytes(buffer: &[u8]) -> usize {
    let Some((length, _)) = buffer.split_first_chunk::<4>() else { return READ_BYTES };
    let whole = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0).min(frame::FRAME_BYTES_MAX) + 4;
    whole.saturating_sub(buffer.len()).max(READ_BYTES)
}

fn deliver(shared: &Shared, frame: Bytes) -> Result<(), String> {
    let id = frame::response_correlation_id(&frame).map_err(|error| format!("cannot read: {error}"))?;
    let waiter = shared.lock_in_flight().complete(id);
    let waiter =
        waiter.map_err(|unexpected| format!("an answer that nobody asked for ({})", unexpected.0))?;
    // The caller may have given up; its answer is dropped and the connection stays in step.
    let _gone = waiter.answer.send(Arrived { frame, at: shared.clock.now() });
    Ok(())
}

#[cfg(test)]
mod tests;
