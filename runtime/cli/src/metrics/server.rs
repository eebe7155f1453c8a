//! The listener: three paths, read only, one request for each connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::prometheus_text;
use sharestream_base::{
    BoxIo, CancellationToken, Clock, Env, HostPort, Listener, OwnedTask, TaskKind, TaskSet,
};
use sharestream_core::JobState;

use super::exporter::Exporter;
use super::values::word;

/// Connections at a time; more wait in the backlog of the listener.
const CONNECTIONS_MAX: usize = 16;
/// A request and its answer take no longer: whoever says nothing must not keep a place.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(10);
/// Pause after a failed accept: without file descriptors left it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running listener. Dropping it ends it and its connections.
pub(crate) struct Server {
    address: HostPort,
    _task: OwnedTask<()>,
}

impl Server {
    /// Listens on `address`. Errors: of the operating system.
    pub(crate) async fn start(env: &Env, address: &HostPort, exporter: Arc<Exporter>) -> io::Result<Self> {
        let listener = env.network.bind(address).await?;
        let address = listener.local_address();
        let accepting = accept(env.clone(), listener, exporter);
        let task = OwnedTask::spawn(&env.spawner, "metrics", TaskKind::Job, accepting);
        Ok(Server { address, _task: task })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &HostPort {
        &self.address
    }
}

async fn accept(env: Env, mut listener: Box<dyn Listener>, exporter: Arc<Exporter>) {
    let mut connections = TaskSet::new(&env.spawner, CancellationToken::new());
    loop {
        tokio::select! {
            biased;
            Some(exit) = connections.join_next() => {
                if let Err(panic) = exit.result {
                    tracing::error!(%panic, "a scrape failed");
                }
            }
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((io, peer)) => {
                    let serving = serve(env.clock.clone(), io, exporter.clone());
                    connections.spawn(format!("metrics-{peer}"), TaskKind::Connection, serving);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics could not be accepted");
                    env.clock.sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn serve(clock: Clock, io: BoxIo, exporter: Arc<Exporter>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &exporter);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(io), service);
    match clock.timeout(CONNECTION_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ended early"),
        Err(_elapsed) => tracing::debug!("a connection for metrics took too long"),
    }
}

fn respond(method: &Method, path: &str, exporter: &Exporter) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let state = exporter.state();
    match path {
        "/metrics" => match exporter.text() {
            Ok(metrics) => answer(StatusCode::OK, prometheus_text::CONTENT_TYPE, metrics),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        // Alive: also while the job waits for brokers, which a restart of the process would not bring back.
        "/healthz" if state == JobState::Ended => text(StatusCode::SERVICE_UNAVAILABLE, "ended"),
        "/healthz" => text(StatusCode::OK, "ok"),
        "/readyz" if state == JobState::Running => text(StatusCode::OK, "running"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, word(&state)),
        _ => text(StatusCode::NOT_FOUND, "use /metrics, /healthz or /readyz"),
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", body.into() + "\n")
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
