//! Errors: the runtime's own type, and the way from the client's errors to it.

use std::fmt::Display;

use sharestream_base::ErrorKind;
pub use sharestream_core::{Error, Result};

/// An error of the user's making, with what to change.
pub(crate) fn invalid_input(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, context)
}

/// A defect of ours.
pub(crate) fn bug(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Bug, context)
}

/// Takes over an error of the client with its kind; `doing` says what it interrupted.
pub(crate) fn client_error(doing: impl Display) -> impl FnOnce(sharestream_client::Error) -> Error {
    move |error| Error::new(error.kind(), format!("{doing}: {error}")).with_source(error)
}

/// Takes over an error of the protocol layer: bytes that a broker sent and that make no sense.
pub(crate) fn wire_error(doing: impl Display) -> impl FnOnce(sharestream_wire::WireError) -> Error {
    move |error| Error::new(ErrorKind::Corrupt, format!("{doing}: {error}")).with_source(error)
}

/// Takes over an error of arrow: our columns do not fit together.
pub(crate) fn arrow_error(doing: impl Display) -> impl FnOnce(arrow_schema::ArrowError) -> Error {
    move |error| Error::new(ErrorKind::Bug, format!("{doing}: {error}")).with_source(error)
}
