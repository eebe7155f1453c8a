//! The error of the protocol layer.

use std::fmt;

use sharestream_base::ErrorKind;

/// Bytes that are not what the protocol says, or a value that the protocol cannot carry.
///
/// Kinds: `Corrupt` (bytes from a peer or a log), `InvalidInput` (a value too large, a field that the version
/// lacks, a codec we do not have).
#[derive(Debug)]
pub struct WireError {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl WireError {
    /// An error with a context (lower case, no full stop, no payloads).
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        WireError { kind, context: context.into(), source: None }
    }

    /// Bytes that contradict the protocol.
    #[cold]
    pub fn corrupt(context: impl Into<String>) -> Self {
        WireError::new(ErrorKind::Corrupt, context)
    }

    /// A value or request that cannot be expressed.
    #[cold]
    pub fn invalid(context: impl Into<String>) -> Self {
        WireError::new(ErrorKind::InvalidInput, context)
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

    /// Wraps what `kafka_protocol` returns as `anyhow`, keeping a [`WireError`] of ours as it was.
    pub(crate) fn from_anyhow(kind: ErrorKind, context: impl Into<String>, error: anyhow::Error) -> Self {
        match error.downcast::<WireError>() {
            Ok(ours) => WireError::new(ours.kind, context).with_source(ours),
            Err(theirs) => WireError::new(kind, context)
                .with_source(Box::<dyn std::error::Error + Send + Sync>::from(theirs)),
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.source {
            // The cause is part of the text: most callers print only the outermost error.
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for WireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
