//! The error of this crate: what went wrong, where, and what the caller must do.

pub(crate) mod class;

use std::fmt;

use sharestream_base::ErrorKind;
use sharestream_wire::error_code::KafkaError;

pub use class::{ErrorClass, classify};

use crate::security::{Access, advice_for};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and what the caller must do ([`ErrorKind`]).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    class: ErrorClass,
    code: Option<KafkaError>,
    context: String,
    /// What to do about it, where the code alone does not tell.
    advice: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of ours: its class follows from its kind.
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        let class = match kind {
            ErrorKind::Retry => ErrorClass::Retry,
            ErrorKind::Abort => ErrorClass::Abort,
            ErrorKind::Fenced => ErrorClass::Fenced,
            ErrorKind::Indeterminate => ErrorClass::Indeterminate,
            kind => ErrorClass::Fatal(kind),
        };
        Error { kind, class, code: None, context: context.into(), advice: None, source: None }
    }

    /// A broker's error code, with what we were doing.
    pub(crate) fn from_code(code: i16, context: impl fmt::Display) -> Self {
        let class = classify(code);
        let code = KafkaError(code);
        Error {
            kind: class.kind(),
            class,
            code: Some(code),
            context: format!("{context}: {code}"),
            advice: advice_for(code).map(str::to_owned),
            source: None,
        }
    }

    /// The same with the broker's own words, if it sent any.
    pub(crate) fn from_answer(code: i16, message: Option<&str>, context: impl fmt::Display) -> Self {
        let mut error = Error::from_code(code, context);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            error.context = format!("{} ({})", error.context, message.trim_end_matches('.'));
        }
        error
    }

    /// Attaches the cause.
    #[must_use]
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Changes what the caller must do, where the call knows better than the code.
    #[must_use]
    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same, said of one share partition by its leader. Codes that blame the request or the group then only mean
    /// that what the leader knew is lost, and the locks with it; no reason to end a job, whose next attempt acquires
    /// anew:
    /// - INVALID_REQUEST: a leader that leads anew has never given out these offsets, and Kafka calls an offset beyond
    ///   what was ever acquired an invalid request;
    /// - GROUP_ID_NOT_FOUND: the group's share state was deleted (KIP-932, the persister's answer).
    ///
    /// Kafka's persister answers FENCED_STATE_EPOCH, which is retried: the leader then loads the state of after the reset,
    /// and knows nothing of the locks.
    #[must_use]
    pub(crate) fn of_share_partition(self) -> Self {
        let lost = [KafkaError::INVALID_REQUEST, KafkaError::GROUP_ID_NOT_FOUND];
        if self.code.is_some_and(|code| lost.contains(&code)) {
            return Error { class: ErrorClass::Abort, ..self.with_kind(ErrorKind::Abort) };
        }
        self
    }

    /// What to do about a refusal by the brokers' ACLs; nothing where it is none.
    #[must_use]
    pub(crate) fn needing(mut self, access: &Access<'_>, principal: Option<&str>) -> Self {
        if self.advice.is_some() {
            self.advice = Some(access.advice(principal));
        }
        self
    }

    /// Puts `outer` before the context.
    #[must_use]
    pub(crate) fn within(mut self, outer: impl fmt::Display) -> Self {
        self.context = format!("{outer}: {}", self.context);
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The broker's error code, if a broker answered with one.
    pub fn code(&self) -> Option<KafkaError> {
        self.code
    }

    /// How the protocol classes it.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Where it happened.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// True when the identical request may be sent again, given that repeating it does no harm.
    pub(crate) fn is_retriable(&self) -> bool {
        self.class.is_retriable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
