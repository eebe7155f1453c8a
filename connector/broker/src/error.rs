//! The error of the embedded broker's own interface. What clients see are Kafka error codes, not these.

use std::fmt;

use sharestream_base::ErrorKind;

/// Result of the broker's public interface.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The Kafka error codes that handlers answer with.
pub(crate) use kafka_protocol::ResponseError as ErrorCode;

/// What went wrong, where, and what the caller must do ([`ErrorKind`]).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with a context (lower case, no full stop, no secrets, no payloads).
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None }
    }

    /// Attaches the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Where it happened.
    pub fn context(&self) -> &str {
        &self.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The code of a result, 0 when it is good.
pub(crate) fn code_of<T>(result: &Result<T, ErrorCode>) -> i16 {
    match result {
        Ok(_) => 0,
        Err(error) => error.code(),
    }
}
