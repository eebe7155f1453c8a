//! Calls over HTTP as an operator of a job: a URL is called for each record, and the response becomes columns.
//!
//! ```text
//! row --> request (URL, headers, body from columns; Idempotency-Key) --> 2xx --> status, body, fields of its JSON
//!                                   |                                     |
//!                                   | 408, 429, 5xx, no connection        | other 4xx, 3xx, a body that is not
//!                                   v                                     v what was asked for
//!                       again after a pause (Retry-After)             dead letter
//! ```
//!
//! [`HttpFunction`] is what an [`AsyncMap`](sharestream_core::async_map::AsyncMap) calls; concurrency, order, time-outs,
//! pauses and the circuit are the map's. Connections are kept and shared by all calls of a function.
//!
//! A call may run more than once for one record: after a failure, and after a crash before its commit. Each call of a
//! record carries the same idempotency key, so a service that honours it has one effect for each record.
//!
//! What this crate is not: a general HTTP client. Redirects are not followed, proxies of the environment are not used,
//! HTTP/1.1 is spoken. It opens real sockets, so simulations put a function of their own in its place.
//!
//! ```
//! use sharestream_http::HttpSettings;
//!
//! let settings = HttpSettings::new("GET", "https://rates.example/v1/{currency}?day={day}");
//! assert!(settings.faults(None).is_empty());
//! ```

mod call;
mod check;
mod client;
mod fields;
mod headers;
mod response;
mod secret;
mod settings;
mod template;
mod tls;
mod values;

pub use call::HttpFunction;
pub use client::client_builder;
pub use secret::read as read_secret;
pub use settings::{Body, Fault, FieldType, Header, HeaderSource, HttpSettings, JsonField, SecretSource};
