//! What is sent.

use hyper::{Method, Version};
use sharestream_core::async_map::AsyncFunction;
use sharestream_http::{Body, Header, HeaderSource, HttpFunction, HttpSettings};

use crate::server::Server;
use crate::{columns, connect, row, schema};

#[tokio::test]
async fn columns_are_percent_encoded_and_every_call_carries_the_key() {
    let server = Server::start().await;
    let function = connect(HttpSettings::new("GET", server.url("/a/{name}?id={id}&at={_timestamp}"))).await;
    columns(&function, row(7, Some("ä/b? &%.x"))).await.unwrap();
    columns(&function, row(7, Some("ä/b? &%.x"))).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].target, "/a/%C3%A4%2Fb%3F%20%26%25.x?id=7&at=1970-01-01T00%3A00%3A00Z");
    assert_eq!(seen[0].method, Method::GET);
    assert_eq!(seen[0].version, Version::HTTP_11);
    assert!(seen[0].body.is_empty() && seen[0].header("content-type").is_none());
    for call in &seen {
        assert_eq!(call.header("idempotency-key"), Some("cluster-1/AAAAAAAAAAAAAAAAAAAAAQ/3/7/0"));
        assert!(call.header("user-agent").unwrap().starts_with("sharestream/"));
    }
}

#[tokio::test]
async fn a_value_cannot_choose_another_path() {
    let server = Server::start().await;
    let function = connect(HttpSettings::new("GET", server.url("/users/{name}/orders"))).await;
    for name in ["..", "."] {
        let error = columns(&function, row(1, Some(name))).await.unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains("steps out"), "{error}");
    }
    let error = columns(&function, row(1, None)).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'name' is null"), "{error}");
    assert!(server.seen().is_empty());
    columns(&function, row(1, Some("..."))).await.unwrap();
    columns(&function, row(1, Some("../x"))).await.unwrap();
    assert_eq!(server.seen()[1].target, "/users/..%2Fx/orders");
}

#[tokio::test]
async fn bodies_are_of_all_columns_some_the_value_or_a_template() {
    let server = Server::start().await;
    let text = |text: &str| Body::Template(text.to_owned());
    for (body, wanted, content_type) in [
        (Body::Auto, r#"{"id":5,"name":"a\"b"}"#, Some("application/json")),
        (Body::Columns(vec!["name".to_owned()]), r#"{"name":"a\"b"}"#, Some("application/json")),
        (Body::Value, "5;a\"b", Some("application/octet-stream")),
        (text("{{\"q\":{name:json}}} {name}"), r#"{"q":"a\"b"} a"b"#, Some("text/plain; charset=utf-8")),
        (Body::None, "", None),
    ] {
        let mut settings = HttpSettings::new("POST", server.url("/"));
        settings.body = body.clone();
        columns(&connect(settings).await, row(5, Some("a\"b"))).await.unwrap();
        let seen = server.seen().pop().unwrap();
        assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), wanted, "{body:?}");
        assert_eq!(seen.header("content-type"), content_type, "{body:?}");
    }
}

#[tokio::test]
async fn headers_of_the_settings_win_and_the_key_may_have_another_name_or_none() {
    let server = Server::start().await;
    let mut settings = HttpSettings::new("PUT", server.url("/"));
    let header = |name: &str, value: &str| Header {
        name: name.to_owned(),
        value: HeaderSource::Text(value.to_owned()),
    };
    settings.headers = vec![header("Content-Type", "application/x-own"), header("X-Team", "rates")];
    settings.idempotency_header = Some("X-Request-Id".to_owned());
    columns(&connect(settings.clone()).await, row(5, None)).await.unwrap();
    settings.idempotency_header = None;
    columns(&connect(settings).await, row(5, None)).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("content-type"), Some("application/x-own"));
    assert_eq!(seen[0].header("x-team"), Some("rates"));
    assert!(seen[0].header("x-request-id").is_some() && seen[0].header("idempotency-key").is_none());
    assert!(seen[1].header("x-request-id").is_none() && seen[1].header("idempotency-key").is_none());
}

#[tokio::test]
async fn connections_are_kept_and_used_again() {
    let server = Server::start().await;
    let function = connect(HttpSettings::new("POST", server.url("/"))).await;
    for id in 0..100 {
        columns(&function, row(id, Some("x"))).await.unwrap();
    }
    assert_eq!(server.connection_count(), 1, "one call at a time needs one connection");
    // Failures with a short body give their connection back too.
    let failing = connect(HttpSettings::new("POST", server.url("/status/404"))).await;
    for id in 0..10 {
        columns(&failing, row(id, Some("x"))).await.unwrap_err();
    }
    assert_eq!(server.connection_count(), 2);
    let slow = connect(HttpSettings::new("GET", server.url("/slow/20/{id}"))).await;
    for _round in 0..5 {
        let calls = (0..16).map(|id| columns(&slow, row(id, None)));
        for result in futures::future::join_all(calls).await {
            result.unwrap();
        }
    }
    let opened = server.connection_count() - 2;
    assert!((1..=16).contains(&opened), "80 calls, 16 at a time, opened {opened} connections");
    assert_eq!(server.seen().len(), 190);
}

#[tokio::test]
async fn a_start_names_every_fault() {
    let mut settings = HttpSettings::new("GET", "http://h/{nope}");
    settings.body_bytes_max = 0;
    settings.ca_file = Some("/does/not/exist".into());
    let error = HttpFunction::connect(settings, &schema(), None, sharestream_base::Clock::system()).await;
    let error = error.map(|function| function.columns()).unwrap_err().to_string();
    for part in ["'nope' is not there", "body_bytes_max: it is 0", "ca_file: cannot read"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}
