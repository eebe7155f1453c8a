//! The three parts that a job or a session is made of, made anew for every attempt.

use std::sync::Arc;

use crate::commit::{CommitProtocol, StepHook};
use crate::sink::SinkFactory;
use crate::source::SourceFactory;

/// Makes source, sink and commit protocol, which belong together: what the source acquires, the protocol commits with
/// what the sink writes.
///
/// An attempt takes one of each, and two attempts must not run at once.
pub trait JobParts: Send + Sync {
    /// The source.
    fn source_factory(&self) -> Arc<dyn SourceFactory>;
    /// The sink.
    fn sink_factory(&self) -> Arc<dyn SinkFactory>;
    /// The commit protocol of one attempt; forgets what the attempt before left. `hook` is called at the steps that
    /// only the protocol knows.
    fn commit_protocol(&self, hook: Option<StepHook>) -> Box<dyn CommitProtocol>;
}
