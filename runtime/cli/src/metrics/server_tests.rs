//! The listener over an in-memory network.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use sharestream_base::MemoryNetwork;
use sharestream_core::JobControl;

use super::*;

async fn started() -> (Env, Server, JobControl) {
    let env = Env { network: Arc::new(MemoryNetwork::default()), ..Env::seeded(1) };
    let control = JobControl::new();
    let exporter = Arc::new(Exporter::new("late", "main", control.clone(), env.clock.clone()));
    let server = Server::start(&env, &HostPort::new("metrics", 0), exporter).await.unwrap();
    (env, server, control)
}

/// Status and body of one request, which begins with `line`.
async fn ask(env: &Env, server: &Server, line: &str) -> (u16, String) {
    let mut io = env.network.connect(server.address()).await.unwrap();
    io.write_all(format!("{line} HTTP/1.1\r\nhost: metrics\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("connection: close"), "one request for each connection: {head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_not_started_is_alive_and_not_ready() {
    let (env, server, _control) = started().await;
    assert_eq!(ask(&env, &server, "GET /healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(ask(&env, &server, "GET /readyz").await, (503, "created\n".to_owned()));
    let (status, text) = ask(&env, &server, "GET /metrics").await;
    assert_eq!(status, 200);
    assert!(
        text.contains("sharestream_job_state{job=\"late\",instance=\"main\",state=\"created\"} 1.0\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_the_three_paths_are_answered_and_only_read() {
    let (env, server, _control) = started().await;
    assert_eq!(ask(&env, &server, "GET /").await.0, 404);
    assert_eq!(ask(&env, &server, "POST /metrics").await.0, 405);
    assert_eq!(ask(&env, &server, "HEAD /healthz").await, (200, String::new()));
}

#[tokio::test(start_paused = true)]
async fn whoever_says_nothing_loses_his_place() {
    let (env, server, _control) = started().await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        silent.push(env.network.connect(server.address()).await.unwrap());
    }
    let begun_at = env.clock.now();
    assert_eq!(ask(&env, &server, "GET /healthz").await.0, 200);
    let waited = env.clock.now() - begun_at;
    assert!(waited >= CONNECTION_DEADLINE && waited < 2 * CONNECTION_DEADLINE, "{waited:?}");
}
