//! Settings that cannot work, and what is said of them.

use arrow_schema::{DataType, Field};

use super::*;
use crate::settings::{FieldType, Header, JsonField};

fn schema() -> Schema {
    let list = DataType::List(std::sync::Arc::new(Field::new("item", DataType::Int64, true)));
    let user = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("many", list, true),
    ]);
    coordinates::with_coordinates(&user).as_ref().clone()
}

fn faults(settings: &HttpSettings) -> Vec<String> {
    settings.faults(Some(&schema())).iter().map(ToString::to_string).collect()
}

#[test]
fn a_url_must_say_whom_to_call() {
    for (url, part) in [
        ("ftp://h/", "must begin with"),
        ("http://{name}/", "behind the host"),
        ("https://h{name}", "behind the host"),
        ("https://h", "a path is missing"),
        ("https://user:word@h/", "seen in logs"),
        ("https://h/a/../b", "the path is not as it will be sent"),
        ("https://h/a b", "the path is not as it will be sent"),
        ("https://h:port/", "it is no URL"),
        ("https://h/{nam}", "column 'nam' is not there (columns: id, name, many)"),
        ("https://h/{many}", "has no one text"),
        ("https://h/{id:json}", "is for bodies"),
        ("https://h/{id", "never closed"),
    ] {
        let found = faults(&HttpSettings::new("GET", url));
        assert_eq!(found.len(), 1, "{url}: {found:?}");
        assert!(found[0].contains(part), "{url}: {found:?}");
    }
    for url in
        ["https://h/{id}", "http://h:1/a?b={name}&c={_offset}", "https://[::1]/{id}", "http://h?q={id}"]
    {
        assert_eq!(faults(&HttpSettings::new("GET", url)), Vec::<String>::new(), "{url}");
    }
}

#[test]
fn every_fault_is_named_at_once() {
    let mut settings = HttpSettings::new("FETCH", "gopher://x");
    let text = |name: &str, value: &str| Header {
        name: name.to_owned(),
        value: HeaderSource::Text(value.to_owned()),
    };
    settings.headers = vec![
        text("Host", "h"),
        text("a b", "c"),
        text("X", "1"),
        text("x", "2"),
        text("idempotency-key", "3"),
        text("Y", "a\nb"),
    ];
    settings.body = Body::Columns(vec!["id".to_owned(), "id".to_owned(), "nme".to_owned()]);
    settings.connect_timeout = Duration::ZERO;
    settings.idle_connections_max = 0;
    settings.body_bytes_max = 0;
    settings.accepted = vec![404, 200];
    settings.status_column = Some("id".to_owned());
    settings.body_column = Some(String::new());
    settings.fields = vec![JsonField {
        name: "_offset".to_owned(),
        pointer: "$.a.b".to_owned(),
        field_type: FieldType::Utf8,
        is_required: false,
    }];
    let found = faults(&settings);
    for part in [
        "method: 'FETCH'",
        "url: it must begin",
        "headers.Host: the connection",
        "headers.a b: it is no name",
        "headers.x: the header is set twice",
        "headers.idempotency-key: this header carries",
        "headers.Y: the value has a control",
        "body: column 'id' is named twice",
        "body: column 'nme' is not there",
        "connect_timeout: it is zero",
        "idle_connections_max: it is 0",
        "body_bytes_max: it is 0",
        "accepted: 200",
        "status_column: column 'id' is there already",
        "body_column: the name of a column",
        "fields._offset: column '_offset' is there already",
        "fields._offset: '$.a.b' is no JSON pointer (write /a/b)",
    ] {
        assert!(found.iter().any(|fault| fault.contains(part)), "{part} in {found:#?}");
    }
    assert_eq!(found.len(), 17, "{found:#?}");
}

#[test]
fn a_body_that_nobody_sends_or_nobody_can_write_is_refused() {
    let mut settings = HttpSettings::new("GET", "http://h/");
    settings.body = Body::Value;
    assert!(faults(&settings)[0].contains("a GET request has no body"));
    // All columns of the user, one of which is a list.
    assert!(faults(&HttpSettings::new("POST", "http://h/"))[0].contains("'many' is List"));
    settings.method = "POST".to_owned();
    settings.body = Body::Template("{id} {".to_owned());
    assert!(faults(&settings)[0].contains("never closed"));
}
