//! The dataflow runtime: job graph, tasks, barriers, coordinator, commit protocol.
//!
//! A job is source tasks, operator tasks and sink tasks joined by bounded channels. The coordinator sends barrier
//! `n` through the graph; when every subtask has acknowledged it, the [`commit::CommitProtocol`] commits the epoch
//! (the sink's writes and the source's decisions) as one. The runtime knows share-group coordinates
//! ([`decision`]) but no Kafka: sources, sinks and commit protocols come from outside.

mod barrier;
mod channel;
pub mod commit;
mod controller;
pub mod coordinates;
mod coordinator;
pub mod decision;
pub mod element;
mod error;
mod graph;
mod job;
pub mod operator;
mod options;
pub mod sink;
pub mod source;
mod status;
mod supervisor;
mod task;

pub use commit::StepHook;
pub use error::{Error, Result};
pub use graph::{JobBuilder, JobId};
pub use job::Job;
pub use options::JobOptions;
pub use sharestream_base::ErrorKind;
pub use status::{JobControl, JobEnd, JobReport, JobState, JobStatus, Quantiles};
pub use supervisor::{AttemptFactory, RestartOptions, Supervisor};
