//! The job as the user describes it: a stream, a sink, how epochs are committed, and settings.

use std::fmt;
use std::sync::Arc;

use sharestream_checkpoints::CheckpointStore;

use super::stages::{Plan, Upstream};
use super::stream::Stream;
use super::validate;
use crate::Result;
use crate::async_map::AsyncMap;
use crate::commit::{CommitProtocol, StepHook};
use crate::job::Job;
use crate::operator::OperatorFactory;
use crate::options::JobOptions;
use crate::remote::{ConnectorLink, Workers};
use crate::sink::SinkFactory;
use crate::source::SourceFactory;

/// Name of a job and of one copy of it. Two running copies need two instances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId {
    /// Name of the job.
    pub job: String,
    /// Name of this copy; stable over restarts, so that a restart ends its own leftovers at once.
    pub instance: String,
}

impl JobId {
    /// Puts the two together.
    pub fn new(job: impl Into<String>, instance: impl Into<String>) -> Self {
        JobId { job: job.into(), instance: instance.into() }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.instance)
    }
}

/// A checked graph and all that one attempt needs.
pub(crate) struct JobGraph {
    pub(crate) id: JobId,
    pub(crate) plan: Plan,
    /// What the sink reads from.
    pub(crate) last: Upstream,
    pub(crate) sink: Arc<dyn SinkFactory>,
    pub(crate) sink_parallelism: usize,
    pub(crate) protocol: Box<dyn CommitProtocol>,
    pub(crate) store: Option<CheckpointStore>,
    pub(crate) options: JobOptions,
    pub(crate) step_hook: StepHook,
    /// Workers that run the tasks; `None`: this process does.
    pub(crate) workers: Option<Workers>,
    pub(crate) link: Option<Arc<dyn ConnectorLink>>,
}

/// Describes a job:
///
/// ```text
/// source 0 --> operators 0 --+--> sink 0        one channel from each upstream subtask to each sink subtask;
/// source 1 --> operators 1 --+--> sink 1        operators run as one chain beside each source subtask
/// ```
pub struct JobBuilder {
    pub(super) id: JobId,
    pub(super) stream: Option<Stream>,
    /// Operators that were given before there was a stream.
    pub(super) misplaced: Vec<String>,
    pub(super) sink: Option<(Arc<dyn SinkFactory>, usize)>,
    pub(super) protocol: Option<Box<dyn CommitProtocol>>,
    pub(super) store: Option<CheckpointStore>,
    pub(super) options: JobOptions,
    pub(super) step_hook: Option<StepHook>,
    pub(super) workers: Option<Workers>,
    pub(super) link: Option<Arc<dyn ConnectorLink>>,
}

impl fmt::Debug for JobBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBuilder").field("id", &self.id).finish_non_exhaustive()
    }
}

impl JobBuilder {
    /// A job without parts.
    pub fn new(id: JobId) -> Self {
        JobBuilder {
            id,
            stream: None,
            misplaced: Vec::new(),
            sink: None,
            protocol: None,
            store: None,
            options: JobOptions::default(),
            step_hook: None,
            workers: None,
            link: None,
        }
    }

    /// Reads from `source` with `parallelism` subtasks; what follows is appended to it. For anything but one source and a
    /// line of operators, build a [`Stream`] and use [`JobBuilder::stream`].
    #[must_use]
    pub fn source(self, source: Arc<dyn SourceFactory>, parallelism: usize) -> Self {
        self.stream(Stream::from_source(source, parallelism))
    }

    /// Appends an operator to the stream, which must be there: [`JobBuilder::build`] fails otherwise.
    #[must_use]
    pub fn operator(mut self, operator: Arc<dyn OperatorFactory>) -> Self {
        match self.stream {
            Some(stream) => self.stream = Some(stream.operator(operator)),
            None => self.misplaced.push(operator.name().to_owned()),
        }
        self
    }

    /// Appends calls to the outside to the stream, as [`Stream::async_map`]; likewise.
    #[must_use]
    pub fn async_map(mut self, map: AsyncMap) -> Self {
        match self.stream {
            Some(stream) => self.stream = Some(stream.async_map(map)),
            None => self.misplaced.push(map.name().to_owned()),
        }
        self
    }

    /// Reads a whole stream; replaces the one that is there.
    #[must_use]
    pub fn stream(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Writes to `sink` with `parallelism` subtasks.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn SinkFactory>, parallelism: usize) -> Self {
        self.sink = Some((sink, parallelism));
        self
    }

    /// Commits epochs by `protocol`.
    #[must_use]
    pub fn commit(mut self, protocol: Box<dyn CommitProtocol>) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Publishes a manifest for each checkpoint. `None`: the job has no operator state and only sinks that commit
    /// with the protocol, so that its transaction is its checkpoint (DESIGN section 2).
    #[must_use]
    pub fn checkpoints(mut self, store: Option<CheckpointStore>) -> Self {
        self.store = store;
        self
    }

    /// Replaces the settings.
    #[must_use]
    pub fn options(mut self, options: JobOptions) -> Self {
        self.options = options;
        self
    }

    /// Is called at each step of each commit that the coordinator performs. The protocol calls its own hook for
    /// `BetweenStagedLeaders` and `DuringEndTxn`.
    #[must_use]
    pub fn step_hook(mut self, hook: StepHook) -> Self {
        self.step_hook = Some(hook);
        self
    }

    /// Has these workers run the tasks, in processes of their own ([`crate::remote`]); this process coordinates. Each attempt
    /// waits for them, at most nine tenths of `connect_deadline`.
    #[must_use]
    pub fn workers(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }

    /// What the connector's parts tell each other when they are in several processes. Unused where one process runs
    /// everything.
    #[must_use]
    pub fn link(mut self, link: Arc<dyn ConnectorLink>) -> Self {
        self.link = Some(link);
        self
    }

    /// Checks the whole graph. Errors: `InvalidInput`, naming every fault at once.
    pub fn build(self) -> Result<Job> {
        validate::check(self).map(Job::new)
    }
}
