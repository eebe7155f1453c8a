//! Which failures are called again, and how whole maps deal with them.

use std::time::Duration;

use sharestream_base::{Clock, Env, HostPort};
use sharestream_http::HttpSettings;

use crate::server::Server;
use crate::{columns, connect, row};

#[tokio::test]
async fn a_status_says_whether_another_call_may_help() {
    let server = Server::start().await;
    for (code, is_transient) in [
        (408, true),
        (429, true),
        (500, true),
        (502, true),
        (503, true),
        (504, true),
        (400, false),
        (401, false),
        (404, false),
        (409, false),
        (422, false),
        (501, false),
    ] {
        let function = connect(HttpSettings::new("POST", server.url(&format!("/status/{code}")))).await;
        let error = columns(&function, row(1, None)).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{code}");
        let text = error.to_string();
        assert!(text.contains(&code.to_string()) && text.ends_with(": why it failed"), "{text}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = Server::start().await;
    let error =
        columns(&connect(HttpSettings::new("GET", server.url("/redirect"))).await, row(1, None)).await;
    let error = error.unwrap_err();
    assert!(!error.is_transient());
    assert_eq!(
        error.to_string(),
        "status 302 Found to http://elsewhere.example/ (redirects are not followed)"
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn the_pause_that_a_service_asks_for_is_kept() {
    let server = Server::start().await;
    let pause = async |path: &str| {
        let error = columns(&connect(HttpSettings::new("GET", server.url(path))).await, row(1, None)).await;
        error.unwrap_err().pause().unwrap()
    };
    assert_eq!(pause("/pause/429/7").await, Duration::from_secs(7));
    assert_eq!(pause("/pause/503/7").await, Duration::from_secs(7));
    assert_eq!(pause("/pause/503/soon").await, Duration::ZERO);
    assert_eq!(pause("/pause/429/Sun,_06_Nov_1994_08:49:37_GMT").await, Duration::ZERO);
    assert_eq!(pause("/pause/429/Thu,_01_Jan_2150_00:00:00_GMT").await, Duration::from_secs(600));
}

#[tokio::test]
async fn connections_that_fail_or_break_off_are_called_again() {
    let server = Server::start().await;
    for path in ["/hang-up", "/mid-body/chunked", "/mid-body/told"] {
        let function = connect(HttpSettings::new("POST", server.url(path))).await;
        let error = columns(&function, row(1, Some("secret-word"))).await.unwrap_err();
        assert!(error.is_transient(), "{path}: {error}");
        assert!(!error.to_string().contains("secret-word"), "{error}");
        // The next call is made on a connection of its own and works.
        let fine = connect(HttpSettings::new("POST", server.url("/"))).await;
        columns(&fine, row(1, None)).await.unwrap();
    }
    let nobody = Env::system().network.bind(&HostPort::new("127.0.0.1", 0)).await.unwrap();
    let address = nobody.local_address();
    drop(nobody);
    let function = connect(HttpSettings::new("GET", format!("http://{address}/{{name}}"))).await;
    let error = columns(&function, row(1, Some("secret-word"))).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("refused"), "{error}");
    assert!(!error.to_string().contains("secret-word"), "the URL is of the record: {error}");
}

#[tokio::test]
async fn a_call_that_is_dropped_harms_no_other() {
    let server = Server::start().await;
    let function = connect(HttpSettings::new("GET", server.url("/slow/{id}"))).await;
    let clock = Clock::system();
    let calls = (0..8).map(|id| {
        let (function, clock) = (&function, &clock);
        async move {
            let ms = if id % 2 == 0 { 60_000 } else { 5 };
            clock.timeout(Duration::from_millis(500), columns(function, row(ms, None))).await
        }
    });
    for (id, result) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(result.is_ok(), id % 2 == 1, "{id}");
        if let Ok(result) = result {
            result.unwrap();
        }
    }
    columns(&function, row(1, None)).await.unwrap();
}

#[tokio::test]
async fn a_burst_of_failures_passes() {
    let server = Server::start().await;
    let function = connect(HttpSettings::new("GET", server.url("/burst/3"))).await;
    for _ in 0..3 {
        assert!(columns(&function, row(1, None)).await.unwrap_err().is_transient());
    }
    columns(&function, row(1, None)).await.unwrap();
}
