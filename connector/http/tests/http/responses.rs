//! What is taken of an answer.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use sharestream_core::async_map::AsyncFunction;
use sharestream_http::{FieldType, HttpSettings, JsonField};

use crate::server::Server;
use crate::{columns, connect, row};

fn field(name: &str, pointer: &str, field_type: FieldType) -> JsonField {
    JsonField { name: name.to_owned(), pointer: pointer.to_owned(), field_type, is_required: false }
}

fn with_fields(url: String) -> HttpSettings {
    let mut settings = HttpSettings::new("GET", url);
    settings.body_column = None;
    settings.fields = vec![
        field("price", "/price", FieldType::Float64),
        field("n", "/deep/0/n", FieldType::Int64),
        field("ok", "/ok", FieldType::Boolean),
        field("who", "/who", FieldType::Utf8),
        field("none", "/none", FieldType::Utf8),
    ];
    settings
}

#[tokio::test]
async fn status_body_and_fields_become_columns_of_their_types() {
    let server = Server::start().await;
    let plain = columns(&connect(HttpSettings::new("GET", server.url("/chunked"))).await, row(1, None)).await;
    let plain = plain.unwrap();
    assert_eq!(plain[0].as_primitive::<Int32Type>().value(0), 200);
    assert_eq!(plain[1].as_string::<i32>().value(0), "one, two, three");

    let function = connect(with_fields(server.url("/json"))).await;
    let names: Vec<String> = function.columns().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["status", "price", "n", "ok", "who", "none"]);
    let columns = columns(&function, row(1, None)).await.unwrap();
    for (column, field) in columns.iter().zip(function.columns()) {
        assert_eq!(column.data_type(), field.data_type());
    }
    assert_eq!(columns[1].as_primitive::<Float64Type>().value(0), 12.5);
    assert_eq!(columns[2].as_primitive::<Int64Type>().value(0), 7);
    assert!(columns[3].as_boolean().value(0));
    assert_eq!(columns[4].as_string::<i32>().value(0), "me");
    assert!(columns[5].is_null(0));
}

#[tokio::test]
async fn an_answer_without_a_body_has_no_fields() {
    let server = Server::start().await;
    let columns = columns(&connect(with_fields(server.url("/empty"))).await, row(1, None)).await.unwrap();
    assert_eq!(columns[0].as_primitive::<Int32Type>().value(0), 204);
    assert!(columns[1..].iter().all(|column| column.is_null(0)));
}

#[tokio::test]
async fn bad_json_and_bytes_that_are_no_text_are_the_records_fault() {
    let server = Server::start().await;
    let error =
        columns(&connect(with_fields(server.url("/bad-json"))).await, row(1, None)).await.unwrap_err();
    assert!(
        !error.is_transient() && error.to_string().contains("status 200 OK: the body is not JSON"),
        "{error}"
    );
    let function = connect(HttpSettings::new("GET", server.url("/bytes"))).await;
    let error = columns(&function, row(1, None)).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("not UTF-8"), "{error}");
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_not_held() {
    let server = Server::start().await;
    for path in ["/huge", "/huge-told"] {
        let function = connect(HttpSettings::new("GET", server.url(path))).await;
        let error = columns(&function, row(1, None)).await.unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains("longer than 1048576 bytes"), "{error}");
    }
    // A failure with an endless body is a failure, and its end is not waited for.
    let function = connect(HttpSettings::new("GET", server.url("/huge-failure"))).await;
    let error = columns(&function, row(1, None)).await.unwrap_err();
    assert!(error.to_string().starts_with("status 404 Not Found: xxx"), "{error}");
    assert!(error.to_string().len() < 300);
}

#[tokio::test]
async fn an_accepted_status_is_an_answer() {
    let server = Server::start().await;
    let mut settings = HttpSettings::new("GET", server.url("/status/404"));
    settings.accepted = vec![404];
    let columns = columns(&connect(settings).await, row(1, None)).await.unwrap();
    assert_eq!(columns[0].as_primitive::<Int32Type>().value(0), 404);
    assert_eq!(columns[1].as_string::<i32>().value(0), "why\nit failed");
}
