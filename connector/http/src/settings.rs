//! What is called, and what is taken of the response.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of an [`HttpFunction`](crate::HttpFunction).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HttpSettings {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE` or `HEAD`. Since 0.1.
    pub method: String,
    /// The URL. `{column}` is the text of a column, percent-encoded; it may stand behind the host only. `{{` and `}}` are
    /// braces. Since 0.1.
    pub url: String,
    /// Headers of each request. Default none. Since 0.1.
    pub headers: Vec<Header>,
    /// Body of each request. Default [`Body::Auto`]. Since 0.1.
    pub body: Body,
    /// Header that carries the idempotency key; `None` sends none. Default `Idempotency-Key`. Since 0.1.
    pub idempotency_header: Option<String>,
    /// Longest time until a connection stands. Default 5 s; above zero. Since 0.1.
    pub connect_timeout: Duration,
    /// How long a connection that nobody uses is kept. Default 60 s. Since 0.1.
    pub idle_timeout: Duration,
    /// Connections that nobody uses and that are kept, for each host. Default 1,024; at least 1. Since 0.1.
    pub idle_connections_max: usize,
    /// Longest body that is taken, in bytes; a longer one is a permanent failure. Default 1 MiB; 1 to 64 MiB. As many
    /// bytes may be held for each call that runs. Since 0.1.
    pub body_bytes_max: usize,
    /// Status codes beside 2xx that are answers and no failures, for example 404. Default none. Since 0.1.
    pub accepted: Vec<u16>,
    /// Column for the status code, `Int32`; `None`: no column. Default `status`. Since 0.1.
    pub status_column: Option<String>,
    /// Column for the body, `Utf8`; `None`: no column. Default `body`. Since 0.1.
    pub body_column: Option<String>,
    /// Columns taken out of a body of JSON. Default none. Since 0.1.
    pub fields: Vec<JsonField>,
    /// PEM file of the authorities to trust; `None`: those of the operating system. Default `None`. Since 0.1.
    pub ca_file: Option<PathBuf>,
}

impl HttpSettings {
    /// Calls `url` by `method`, all else as the defaults say.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        HttpSettings {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Body::Auto,
            idempotency_header: Some("Idempotency-Key".to_owned()),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            idle_connections_max: 1_024,
            body_bytes_max: 1 << 20,
            accepted: Vec::new(),
            status_column: Some("status".to_owned()),
            body_column: Some("body".to_owned()),
            fields: Vec::new(),
            ca_file: None,
        }
    }
}

/// A header of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub value: HeaderSource,
}

/// Where the value of a header comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderSource {
    /// This text, which may be seen in logs.
    Text(String),
    /// A secret behind a text such as `Bearer `.
    Secret {
        /// What stands before the secret.
        prefix: String,
        /// Where the secret is kept.
        source: SecretSource,
    },
}

/// Where a secret is kept. There is no third place: a secret in a job file would end up in logs and repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The content of this file without its last line break. Looked at again every ten seconds, so that a new content
    /// needs no restart.
    File(PathBuf),
    /// The value of this environment variable.
    Env(String),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "file {}", path.display()),
            SecretSource::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// Body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// For POST, PUT and PATCH a JSON object of all columns of the user; else none.
    #[default]
    Auto,
    /// No body.
    None,
    /// The value of the record as it came.
    Value,
    /// A JSON object of these columns.
    Columns(Vec<String>),
    /// A text: `{column}` is the text of a column as it is, `{column:json}` its value as JSON; `{{` and `}}` are braces.
    Template(String),
}

/// A column that is taken out of a body of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonField {
    /// Name of the column.
    pub name: String,
    /// JSON pointer (RFC 6901): `/data/0/price`; empty: the whole body.
    pub pointer: String,
    /// Type of the column.
    pub field_type: FieldType,
    /// True: a body without the value is a permanent failure. False: the column is null then.
    pub is_required: bool,
}

/// Type of a column that is taken out of a body of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldType {
    /// Text; a value that is none is taken as its JSON.
    Utf8,
    /// A whole number.
    Int64,
    /// A number.
    Float64,
    /// True or false.
    Boolean,
}

/// A fault of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Name of the setting, for example `url` or `headers.Accept` or `fields.price`.
    pub setting: String,
    /// What is wrong.
    pub message: String,
    /// What to do, where that is more than the message says.
    pub help: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}
