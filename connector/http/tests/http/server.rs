//! A server of HTTP/1.1 in this process. What it does with a request is in the request's path.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, LOCATION, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use sharestream_base::{BoxIo, CancellationToken, Env, HostPort, OwnedTask, TaskKind, TaskSet};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// Path and query as sent.
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

#[derive(Default)]
struct Facts {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
}

pub(crate) struct Server {
    pub(crate) address: HostPort,
    facts: Arc<Facts>,
    _accepting: OwnedTask<()>,
}

/// What wraps a connection before HTTP is spoken on it.
pub(crate) type Wrap = Arc<dyn Fn(BoxIo) -> futures::future::BoxFuture<'static, Option<BoxIo>> + Send + Sync>;

impl Server {
    pub(crate) async fn start() -> Server {
        Server::wrapped(Arc::new(|io| Box::pin(async move { Some(io) }))).await
    }

    pub(crate) async fn wrapped(wrap: Wrap) -> Server {
        let env = Env::system();
        let mut listener = env.network.bind(&HostPort::new("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_address();
        let facts = Arc::new(Facts::default());
        let (spawner, counted) = (env.spawner.clone(), facts.clone());
        let accepting = OwnedTask::spawn(&env.spawner, "server", TaskKind::Service, async move {
            let mut connections = TaskSet::new(&spawner, CancellationToken::new());
            while let Ok((io, _peer)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                let (facts, wrap) = (counted.clone(), wrap.clone());
                connections.spawn("connection", TaskKind::Connection, async move {
                    let Some(io) = wrap(io).await else { return };
                    let service = service_fn(move |request| answer(request, facts.clone()));
                    // An answer that breaks off is an error here: it was asked for.
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(io), service)
                        .await;
                });
            }
        });
        Server { address, facts, _accepting: accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.facts.seen.lock().unwrap().clone()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.facts.connections.load(Ordering::SeqCst)
    }
}

type AnyBody = UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn chunks(chunks: Vec<Result<&'static str, std::io::Error>>) -> AnyBody {
    let frames =
        stream::iter(chunks).map(|chunk| chunk.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))));
    StreamBody::new(frames).boxed_unsync()
}

async fn answer(request: Request<Incoming>, facts: Arc<Facts>) -> Result<Response<AnyBody>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes().to_vec();
    let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
    let seen = Seen { method: parts.method, target, version: parts.version, headers: parts.headers, body };
    let same = {
        let mut all = facts.seen.lock().unwrap();
        all.push(seen.clone());
        all.iter().filter(|other| other.target == seen.target).count()
    };
    let words: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
    let broken = || std::io::Error::other("broken off on purpose");
    let mut response = Response::builder();
    let body = match words.as_slice() {
        ["slow", ms, ..] => {
            Env::system().clock.sleep(Duration::from_millis(ms.parse().unwrap())).await;
            whole("late")
        }
        ["status", code, ..] => {
            response = response.status(StatusCode::from_u16(code.parse().unwrap()).unwrap());
            whole("why\nit failed")
        }
        ["pause", code, after, ..] => {
            response = response.status(StatusCode::from_u16(code.parse().unwrap()).unwrap());
            response = response.header(RETRY_AFTER, after.replace('_', " "));
            whole("later")
        }
        ["burst", count, ..] if same <= count.parse().unwrap() => {
            response = response.status(503);
            whole("busy")
        }
        ["redirect", ..] => {
            response = response.status(302).header(LOCATION, "http://elsewhere.example/");
            whole("")
        }
        // No answer at all.
        ["hang-up", ..] => return Err(broken()),
        ["mid-body", "chunked", ..] => chunks(vec![Ok("half of"), Err(broken())]),
        ["mid-body", ..] => {
            response = response.header(CONTENT_LENGTH, 100);
            chunks(vec![Ok("half of"), Err(broken())])
        }
        ["huge", ..] => {
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b'x'; 64 * 1024]))));
            StreamBody::new(frames).boxed_unsync()
        }
        ["huge-told", ..] => whole(vec![b'x'; 3 << 20]),
        ["huge-failure", ..] => {
            response = response.status(404);
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b'x'; 64 * 1024]))));
            StreamBody::new(frames).boxed_unsync()
        }
        ["chunked", ..] => chunks(vec![Ok("one, "), Ok("two, "), Ok("three")]),
        ["json", ..] => whole(r#"{"price": 12.5, "deep": [{"n": 7}], "ok": true, "who": "me"}"#),
        ["bad-json", ..] => whole("{\"price\": "),
        ["bytes", ..] => whole(vec![0xff, 0xfe]),
        ["empty", ..] => {
            response = response.status(204);
            whole("")
        }
        _ => whole("ok"),
    };
    response.body(body).map_err(std::io::Error::other)
}
