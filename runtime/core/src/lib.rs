//! The dataflow runtime: job graph, tasks, barriers, coordinator, commit protocol.
//!
//! A job is source tasks, operator tasks and sink tasks joined by bounded channels. The coordinator sends barrier
//! `n` through the graph; when every subtask has acknowledged it, the [`commit::CommitProtocol`] commits the epoch
//! (the sink's writes and the source's decisions) as one. The runtime knows share-group coordinates
//! ([`decision`]) but no Kafka: sources, sinks and commit protocols come from outside.

pub mod commit;
pub mod coordinates;
pub mod decision;
pub mod element;
mod error;
pub mod operator;
pub mod sink;
pub mod source;

pub use error::{Error, Result};
pub use sharestream_base::ErrorKind;
