//! The dataflow runtime: job graph, tasks, barriers, coordinator, commit protocol.
//!
//! A job is source tasks, operator tasks and sink tasks joined by bounded channels. The coordinator sends barrier
//! `n` through the graph; when every subtask has acknowledged it, the [`commit::CommitProtocol`] commits the epoch
//! (the sink's writes and the source's decisions) as one. The runtime knows share-group coordinates
//! ([`decision`]) but no Kafka: sources, sinks and commit protocols come from outside.
//!
//! ```text
//!  coordinator --barrier n--> source --batches, barrier n--> operators --batches, barrier n--> sink
//!       ^                        |                              |                               |
//!       +---- decisions of n ----+------- rows dropped ---------+---- flushed, dead letters ----+
//!       |
//!       +--> CommitProtocol: write_outcome(n), stage(n), commit(n)     while sinks already write into n+1
//! ```
//!
//! What it guarantees: one outcome for every record, effects and acknowledgement as one (G1, G2 of the design), as
//! far as the protocol's mode allows; commits in order; at most two open epochs; no write into an epoch that is not
//! open; every wait is bounded by [`JobOptions`]; an attempt leaves no task running.
//!
//! Whoever wants no runtime takes a [`session::Session`]: the same parts and the same commit in a loop of one's own.
//!
//! What it is not: a cluster scheduler. One process runs the whole graph of one (job, instance).
//!
//! ```no_run
//! use std::sync::Arc;
//! use sharestream_base::Env;
//! use sharestream_core::commit::CommitProtocol;
//! use sharestream_core::sink::SinkFactory;
//! use sharestream_core::source::SourceFactory;
//! use sharestream_core::{JobBuilder, JobControl, JobId, JobReport, Result};
//!
//! async fn run(
//!     source: Arc<dyn SourceFactory>,
//!     sink: Arc<dyn SinkFactory>,
//!     protocol: Box<dyn CommitProtocol>,
//! ) -> Result<JobReport> {
//!     // control.drain(), control.checkpoint() and control.status_stream() work from anywhere
//!     let control = JobControl::new();
//!     let job = JobBuilder::new(JobId::new("flights", "0"))
//!         .source(source, 2)
//!         .sink(sink, 2)
//!         .commit(protocol)
//!         .build()?;
//!     job.run(Env::system(), control).await
//! }
//! ```

pub mod async_map;
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
mod kept;
mod metrics;
pub mod operator;
mod options;
mod parts;
pub mod session;
pub mod sink;
pub mod source;
pub mod state;
mod status;
mod supervisor;
mod task;

pub use commit::StepHook;
pub use error::{Error, Result};
pub use graph::{JobBuilder, JobId, Stream};
pub use job::Job;
pub use metrics::{CheckpointStep, Histogram, JobMetrics};
pub use options::JobOptions;
pub use parts::JobParts;
pub use sharestream_base::ErrorKind;
pub use status::{
    BoundBy, CallStatus, JobControl, JobEnd, JobReport, JobState, JobStatus, Quantiles, RecordInWork,
};
pub use supervisor::{AttemptFactory, RestartOptions, Supervisor};
