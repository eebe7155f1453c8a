//! Authenticates again on a live connection before its session ends (KIP-368).
//!
//! The writer task does it between two requests: what was sent before is answered before, what comes behind waits in the
//! queue, so no request changes its place. The broker allows nothing but SASL while it lasts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kafka_protocol::protocol::Request;
use sharestream_base::{BoxIo, Clock, Env, ErrorKind, HostPort, Instant, Rng};
use sharestream_wire::frame;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::oneshot;

use super::{Shared, Waiter};
use crate::security::{Authenticated, Credentials, Login, SaslWire, authenticate, wipe};
use crate::versions::{AgreedVersions, api_name};
use crate::{Error, Result};

/// Part of a session's life after which it is renewed; chance picks a point between, so that the many connections of
/// many clients do not come at once. Kafka's own clients use the same.
const RENEW_FROM: f64 = 0.85;
const RENEW_TO: f64 = 0.95;
/// A broker refuses a second authentication within one second of the first.
const RENEW_AFTER_MIN: Duration = Duration::from_millis(1_050);

/// When a connection's session is renewed, and with what.
pub(crate) struct Renewal {
    credentials: Arc<Credentials>,
    clock: Clock,
    rng: Rng,
    state: State,
    expires_at: Option<Instant>,
}

type Loading = Pin<Box<dyn Future<Output = Result<Login>> + Send>>;

/// ```text
/// never (end)
/// at --due--> loading --login--> (the writer authenticates) --> at or never
///   ^            \-- could not be loaded, and time is left --/
/// ```
enum State {
    /// The broker set no end.
    Never,
    /// Then.
    At(Instant),
    /// It is due; the password or token is on its way.
    Loading(Loading),
}

impl Renewal {
    /// Of a session that has begun after `since`: the broker counts from before we hear of it.
    pub(crate) fn new(
        env: &Env,
        credentials: Arc<Credentials>,
        begun: Authenticated,
        since: Instant,
    ) -> Self {
        let mut renewal = Renewal {
            credentials,
            clock: env.clock.clone(),
            rng: env.rng.clone(),
            state: State::Never,
            expires_at: None,
        };
        renewal.begin(begun, since);
        renewal
    }

    /// A session has begun.
    fn begin(&mut self, begun: Authenticated, since: Instant) {
        self.expires_at = begun.session_lifetime.map(|lifetime| since + lifetime);
        self.state = match begun.session_lifetime {
            None => State::Never,
            Some(lifetime) => {
                let part = RENEW_FROM + (RENEW_TO - RENEW_FROM) * self.rng.unit();
                let at = since + lifetime.mul_f64(part);
                State::At(at.max(self.clock.now() + RENEW_AFTER_MIN))
            }
        };
    }

    /// True when the broker would hang up on the next request.
    pub(super) fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= self.clock.now())
    }

    /// Waits until the session is to be renewed and gives what to show then. Cancel safe.
    ///
    /// # Errors
    /// Why there is nothing to show, once that has lasted until the session's end.
    pub(super) async fn due(&mut self) -> Result<Login> {
        loop {
            match &mut self.state {
                State::Never => std::future::pending().await,
                State::At(at) => {
                    self.clock.sleep_until(*at).await;
                    let credentials = Arc::clone(&self.credentials);
                    self.state = State::Loading(Box::pin(async move { credentials.load().await }));
                }
                State::Loading(loading) => {
                    let loaded = loading.await;
                    // Should renewal fail, the connection ends: there is no state after this one but by `begin`.
                    self.state = State::Never;
                    let error = match loaded {
                        Ok(login) => return Ok(login),
                        Err(error) => error,
                    };
                    let now = self.clock.now();
                    let left =
                        self.expires_at.map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
                    if left < Duration::from_millis(50) {
                        return Err(error);
                    }
                    tracing::warn!(%error, ?left, "cannot authenticate again yet, trying again");
                    self.state = State::At(now + left / 2);
                }
            }
        }
    }

    /// Shows `login`. Not cancel safe: the connection is then of no use.
    pub(super) async fn renew(&mut self, mut wire: LiveWire<'_>, login: Login) -> Result<()> {
        let since = self.clock.now();
        let begun = authenticate(&mut wire, login).await?;
        tracing::debug!(address = %wire.address(), lifetime = ?begun.session_lifetime, "authenticated again");
        self.begin(begun, since);
        Ok(())
    }
}

/// A live connection as the writer task has it.
pub(super) struct LiveWire<'a> {
    pub(super) shared: &'a Shared,
    pub(super) io: &'a mut WriteHalf<BoxIo>,
    pub(super) versions: &'a AgreedVersions,
    pub(super) client_id: &'a str,
    pub(super) timeout: Duration,
}

impl SaslWire for LiveWire<'_> {
    fn address(&self) -> &HostPort {
        &self.shared.address
    }

    async fn exchange<R>(&mut self, request: R) -> Result<R::Response>
    where
        R: Request + Send + Sync,
        R::Response: Send,
    {
        let (shared, name) = (self.shared, api_name(R::KEY));
        let failed = |why: &dyn std::fmt::Display| {
            Error::new(
                ErrorKind::Retry,
                format!("{name} on the connection to {} failed: {why}", shared.address),
            )
        };
        let version = self.versions.of::<R>(&shared.address)?;
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter { answer, written: Arc::new(AtomicBool::new(true)) };
        let id = shared.lock_in_flight().register(waiter).map_err(|reason| failed(&reason))?;
        let sent = frame::encode_request(&request, version, id, self.client_id).map_err(|error| {
            Error::new(ErrorKind::Bug, format!("cannot encode {name} version {version}")).with_source(error)
        })?;
        let written = async {
            self.io.write_all(&sent).await?;
            self.io.flush().await
        };
        let written = written.await;
        wipe(sent);
        written.map_err(|error| failed(&error))?;
        let arrived = match shared.clock.timeout(self.timeout, receiver).await {
            Ok(Ok(arrived)) => arrived,
            Ok(Err(_closed)) => return Err(failed(&shared.reason())),
            Err(_elapsed) => return Err(failed(&"no answer in time")),
        };
        let (_id, response) = frame::decode_response::<R>(arrived.frame, version)
            .map_err(|error| failed(&"its answer cannot be read").with_source(error))?;
        Ok(response)
    }
}
