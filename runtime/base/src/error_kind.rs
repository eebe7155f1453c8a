//! What an error asks of its caller: the one vocabulary that every crate's error speaks.

use std::fmt;

/// What the caller must do next. A new kind needs an ADR.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing happened; the same call may succeed later.
    Retry,
    /// Abort the transaction (or the attempt) and process again.
    Abort,
    /// A newer incarnation has taken over; stop.
    Fenced,
    /// It may or may not have happened. Find out before acting.
    Indeterminate,
    /// The user's configuration, data or request is wrong; the text says what to change.
    InvalidInput,
    /// Stored state contradicts itself or the log; a human must look.
    Corrupt,
    /// The component was closed, by us or by shutdown.
    Closed,
    /// A defect of ours.
    Bug,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Retry => "retry",
            ErrorKind::Abort => "abort",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Indeterminate => "indeterminate",
            ErrorKind::InvalidInput => "invalid input",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Closed => "closed",
            ErrorKind::Bug => "bug",
        })
    }
}
