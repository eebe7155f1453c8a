//! Kafka jobs and sessions for programs of one's own: from settings to a running job in one call.

use std::fmt;
use std::sync::Arc;

use sharestream_base::Env;
use sharestream_checkpoints::CheckpointStore;
use sharestream_core::commit::{CommitProtocol, StepHook};
use sharestream_core::session::{Session, SessionBuilder};
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::SourceFactory;
use sharestream_core::{
    JobBuilder, JobControl, JobId, JobOptions, JobParts, JobReport, RestartOptions, Stream, Supervisor,
};

use crate::Result;
use crate::config::KafkaJobConfig;
use crate::job::KafkaJob;

impl JobParts for KafkaJob {
    fn source_factory(&self) -> Arc<dyn SourceFactory> {
        KafkaJob::source_factory(self)
    }

    fn sink_factory(&self) -> Arc<dyn SinkFactory> {
        KafkaJob::sink_factory(self)
    }

    fn commit_protocol(&self, hook: Option<StepHook>) -> Box<dyn CommitProtocol> {
        KafkaJob::commit_protocol(self, hook)
    }
}

impl KafkaJob {
    /// Name of the job and of this copy of it.
    pub fn id(&self) -> JobId {
        JobId::new(&self.config().job, &self.config().instance)
    }

    /// A session over this job's source and sink, for a loop of one's own. Barrier and commit have the time that the
    /// transaction time-out leaves; it also bounds the time from the first write to the commit.
    pub fn into_session(self) -> SessionBuilder {
        let options = fitting_options(self.config());
        Session::builder(self.id(), Arc::new(self)).options(options)
    }
}

/// Deadlines that fit into the transaction time-out: an epoch that is flushed or committed later is aborted by the broker.
fn fitting_options(config: &KafkaJobConfig) -> JobOptions {
    // Half of what EndTxn leaves is for what comes before it in a commit, half for the barrier.
    let rest = config.transaction_timeout.saturating_sub(config.commit_deadline);
    let commit = config.commit_deadline + rest / 2;
    let options = JobOptions::default();
    let recovery = options.recovery_deadline.max(commit);
    options
        .with_barrier_alignment_timeout(rest / 2)
        .with_commit_deadline(commit)
        .with_recovery_deadline(recovery)
}

type Shape = Box<dyn Fn(Stream) -> Stream + Send>;

/// A whole job from Kafka to Kafka: connected once, supervised, built anew for each attempt.
///
/// ```no_run
/// use sharestream_base::Env;
/// use sharestream_core::async_map::AsyncMap;
/// use sharestream_core::{JobControl, JobReport, Result};
/// use sharestream_kafka::{KafkaJobConfig, Pipeline, SinkConfig};
///
/// async fn run(calls: AsyncMap, control: JobControl) -> Result<JobReport> {
///     let sink = SinkConfig::to_topic("answers");
///     let mut config = KafkaJobConfig::new("ask", "ask", vec!["questions".to_owned()], sink);
///     config.bootstrap = vec!["127.0.0.1:9092".to_owned()];
///     Pipeline::new(config)
///         .parallelism(2)
///         .stream(move |source| source.async_map(calls.clone()))
///         .run(Env::system(), control)
///         .await
/// }
/// ```
pub struct Pipeline {
    config: KafkaJobConfig,
    source_parallelism: usize,
    sink_parallelism: usize,
    shape: Shape,
    options: JobOptions,
    restarts: RestartOptions,
    store: Option<CheckpointStore>,
    step_hook: Option<StepHook>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// A job that copies rows from the source to the sink, with one subtask each. Deadlines of barrier and commit are set
    /// such that they fit into the transaction time-out.
    pub fn new(config: KafkaJobConfig) -> Self {
        let options = fitting_options(&config);
        Pipeline {
            config,
            source_parallelism: 1,
            sink_parallelism: 1,
            shape: Box::new(|source| source),
            options,
            restarts: RestartOptions::default(),
            store: None,
            step_hook: None,
        }
    }

    /// Subtasks of the source and of the sink. Default 1 each.
    #[must_use]
    pub fn parallelism(mut self, parallelism: usize) -> Self {
        (self.source_parallelism, self.sink_parallelism) = (parallelism, parallelism);
        self
    }

    /// What happens between source and sink. Called for each attempt.
    #[must_use]
    pub fn stream(mut self, shape: impl Fn(Stream) -> Stream + Send + 'static) -> Self {
        self.shape = Box::new(shape);
        self
    }

    /// Changes the settings of the runtime.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(JobOptions) -> JobOptions) -> Self {
        self.options = change(self.options);
        self
    }

    /// Replaces the settings of restarts.
    #[must_use]
    pub fn restarts(mut self, restarts: RestartOptions) -> Self {
        self.restarts = restarts;
        self
    }

    /// Where state and manifests are kept: needed when an operator keeps state.
    #[must_use]
    pub fn checkpoints(mut self, store: CheckpointStore) -> Self {
        self.store = Some(store);
        self
    }

    /// Is called at each step of each commit; a crash test never returns from it. Must not block otherwise.
    #[must_use]
    pub fn step_hook(mut self, hook: StepHook) -> Self {
        self.step_hook = Some(hook);
        self
    }

    /// Connects, checks everything, and runs attempts until the job is drained or stopped, or restarting does not help.
    ///
    /// # Errors
    /// Those of [`KafkaJob::connect`]; `InvalidInput`, the stream does not fit together; then the error of the last
    /// attempt, as [`Supervisor::run`].
    ///
    /// # Cancel safety
    /// Dropping the future ends everything at once, like [`JobControl::stop`].
    pub async fn run(self, env: Env, control: JobControl) -> Result<JobReport> {
        let Pipeline {
            config,
            source_parallelism,
            sink_parallelism,
            shape,
            options,
            restarts,
            store,
            step_hook,
        } = self;
        let kafka = KafkaJob::connect(env.clone(), config).await?;
        let attempts = move |_attempt: u64| {
            let source = Stream::from_source(kafka.source_factory(), source_parallelism);
            let builder = JobBuilder::new(kafka.id())
                .stream(shape(source))
                .sink(kafka.sink_factory(), sink_parallelism)
                .commit(kafka.commit_protocol(step_hook.clone()))
                .checkpoints(store.clone())
                .options(options.clone());
            match &step_hook {
                Some(hook) => builder.step_hook(hook.clone()).build(),
                None => builder.build(),
            }
        };
        Supervisor::new(attempts, restarts).run(env, control).await
    }
}
