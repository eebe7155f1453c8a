//! A schema registry over HTTP, by the REST interface of Confluent's, which others (Karapace, Apicurio, Redpanda) have, too.
//!
//! ```text
//! source:  record --> id --> GET /schemas/ids/{id} --> the writer's schema (asked for once, kept by connector/kafka)
//! start:   GET /subjects/{topic}-value/versions/latest --> the reader's schema, where none is given
//!          POST /subjects/{topic}-value/versions (register), or POST /subjects/{topic}-value (look up) --> id for the sink
//! ```
//!
//! An answer is never confused with none: only a registry's own 404, with its error code, says that a schema is missing. What
//! does not answer, or answers something else, is asked again within a bound, at the next address if there are several, and is
//! an error of kind `Retry` then: the attempt ends, and no record is bad because of it.
//!
//! What this crate is not: a client for everything that a registry does. References between schemas are not followed.

mod answer;
mod client;
mod settings;

pub use client::{HttpRegistry, Registered};
pub use settings::{RegistryFault, RegistrySettings, RegistryUser};
