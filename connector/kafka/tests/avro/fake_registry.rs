//! A schema registry in this process: the documented REST interface, as much of it as is used.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sharestream_base::{CancellationToken, Env, HostPort, OwnedTask, TaskKind, TaskSet};

/// What it holds, and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By id, from 1 on.
    schemas: Vec<String>,
    subjects: BTreeMap<String, Vec<u32>>,
    /// How often each path was asked for.
    pub(crate) asked: BTreeMap<String, usize>,
    /// It answers 503 to everything.
    pub(crate) is_down: bool,
    /// User and password that it wants, as in the header.
    pub(crate) authorization: Option<String>,
    /// Registrations that it calls incompatible.
    pub(crate) refuses: bool,
}

impl State {
    pub(crate) fn register(&mut self, subject: &str, schema: &str) -> u32 {
        let known = self.schemas.iter().position(|known| known == schema);
        let index = known.unwrap_or_else(|| {
            self.schemas.push(schema.to_owned());
            self.schemas.len() - 1
        });
        let id = index as u32 + 1;
        let versions = self.subjects.entry(subject.to_owned()).or_default();
        if !versions.contains(&id) {
            versions.push(id);
        }
        id
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        authorization: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        *self.asked.entry(path.to_owned()).or_default() += 1;
        let error = |status: u16, code: u32, message: &str| {
            (status, json!({ "error_code": code, "message": message }))
        };
        if self.is_down {
            return error(503, 50003, "down");
        }
        if self.authorization.is_some() && self.authorization.as_deref() != authorization {
            return error(401, 40101, "who is there?");
        }
        let schema = body["schema"].as_str().unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET", ["schemas", "ids", id]) => {
                let index = id.parse::<usize>().ok().and_then(|id| id.checked_sub(1));
                match index.and_then(|index| self.schemas.get(index)) {
                    Some(schema) => (200, json!({ "schema": schema })),
                    None => error(404, 40403, "Schema not found"),
                }
            }
            ("GET", ["subjects", subject, "versions", "latest"]) => match self.subjects.get(*subject) {
                Some(ids) => {
                    let id = ids[ids.len() - 1];
                    let schema = &self.schemas[id as usize - 1];
                    (200, json!({ "subject": subject, "version": ids.len(), "id": id, "schema": schema }))
                }
                None => error(404, 40401, "Subject not found"),
            },
            ("POST", ["subjects", _, "versions"]) if self.refuses => {
                error(409, 409, "Schema being registered is incompatible with an earlier schema")
            }
            ("POST", ["subjects", subject, "versions"]) => {
                (200, json!({ "id": self.register(subject, schema) }))
            }
            ("POST", ["subjects", subject]) => {
                let id = self.schemas.iter().position(|known| known == schema).map(|index| index as u32 + 1);
                match (self.subjects.get(*subject), id) {
                    (None, _) => error(404, 40401, "Subject not found"),
                    (Some(ids), Some(id)) if ids.contains(&id) => (200, json!({ "id": id, "version": 1 })),
                    (Some(_), _) => error(404, 40403, "Schema not found"),
                }
            }
            _ => (404, Value::Null),
        }
    }
}

/// A registry that runs.
pub(crate) struct FakeRegistry {
    pub(crate) url: String,
    pub(crate) state: Arc<Mutex<State>>,
    _accepting: OwnedTask<()>,
}

impl FakeRegistry {
    /// Serves in the runtime of the caller.
    pub(crate) async fn start() -> FakeRegistry {
        let env = Env::system();
        let mut listener = env.network.bind(&HostPort::new("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_address());
        let state: Arc<Mutex<State>> = Arc::default();
        let (spawner, serving) = (env.spawner.clone(), state.clone());
        let accepting = OwnedTask::spawn(&env.spawner, "registry", TaskKind::Service, async move {
            let mut connections = TaskSet::new(&spawner, CancellationToken::new());
            while let Ok((io, _peer)) = listener.accept().await {
                let state = serving.clone();
                connections.spawn("connection", TaskKind::Connection, async move {
                    let service = service_fn(move |request| serve(request, state.clone()));
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(io), service)
                        .await;
                });
            }
        });
        FakeRegistry { url, state, _accepting: accepting }
    }

    pub(crate) fn register(&self, subject: &str, schema: &str) -> u32 {
        self.state.lock().unwrap().register(subject, schema)
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    /// How often a path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.state.lock().unwrap().asked.get(path).copied().unwrap_or(0)
    }
}

async fn serve(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.map(str::to_owned);
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, answer) = state.lock().unwrap().answer(&method, &path, authorization.as_deref(), &body);
    let answer = Full::new(Bytes::from(answer.to_string()));
    Ok(Response::builder().status(status).body(answer).unwrap())
}
