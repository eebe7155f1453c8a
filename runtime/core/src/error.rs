//! The error of the runtime and of everything that plugs into it.

use std::fmt;

use sharestream_base::{ErrorKind, TaskPanic};

/// Result of the runtime's traits.
pub type Result<T, E = Error> = std::result::Result<T, E>;

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

    /// Says where it happened, in front of what is known already.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.context = format!("{place}: {}", self.context);
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True when another attempt may succeed where this one failed: after `Abort`, `Retry` and `Indeterminate`.
    pub fn is_restartable(&self) -> bool {
        crate::supervisor::restartable(self.kind)
    }

    /// Where it happened.
    pub fn context(&self) -> &str {
        &self.context
    }
}

impl From<sharestream_checkpoints::Error> for Error {
    fn from(error: sharestream_checkpoints::Error) -> Self {
        Error::new(error.kind(), format!("checkpoint store: {}", error.context())).with_source(error)
    }
}

/// A panic is a defect of ours.
impl From<TaskPanic> for Error {
    fn from(panic: TaskPanic) -> Self {
        Error::new(ErrorKind::Bug, panic.to_string())
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
