//! Kafka jobs and sessions for programs of one's own: from settings to a running job in one call.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use sharestream_base::Env;
use sharestream_checkpoints::CheckpointStore;
use sharestream_core::commit::{CommitProtocol, StepHook};
use sharestream_core::session::{Session, SessionBuilder};
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::SourceFactory;
use sharestream_core::{
    AttemptFactory, Job, JobBuilder, JobControl, JobId, JobOptions, JobParts, JobReport, RestartOptions,
    Stream, Supervisor,
};

use crate::Result;
use crate::config::KafkaJobConfig;
use crate::formats::SchemaRegistry;
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
    // Of what EndTxn leaves a fifth is for the open epoch; the rest for what comes before EndTxn in a commit, and for the
    // barrier.
    let rest = config.transaction_timeout.saturating_sub(config.commit_deadline) * 2 / 5;
    let commit = config.commit_deadline + rest;
    let options = JobOptions::default();
    let recovery = options.recovery_deadline.max(commit);
    options.with_barrier_alignment_timeout(rest).with_commit_deadline(commit).with_recovery_deadline(recovery)
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
    registry: Option<Arc<dyn SchemaRegistry>>,
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
            registry: None,
        }
    }

    /// Where source records name their schemas, who knows them. Default nobody.
    #[must_use]
    pub fn registry(mut self, registry: Arc<dyn SchemaRegistry>) -> Self {
        self.registry = Some(registry);
        self
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
    /// Brokers that cannot be reached are tried again, as often as an attempt that fails.
    ///
    /// # Errors
    /// Those of [`KafkaJob::connect_for`]; `InvalidInput`, the stream does not fit together; then the error of the last
    /// attempt, as [`Supervisor::run`].
    ///
    /// # Cancel safety
    /// Dropping the future ends everything at once, like [`JobControl::stop`].
    pub async fn run(self, env: Env, control: JobControl) -> Result<JobReport> {
        let restarts = self.restarts.clone();
        let attempts = Attempts { pipeline: self, env: env.clone(), kafka: None };
        Supervisor::new(attempts, restarts).run(env, control).await
    }

    fn job(&self, kafka: &KafkaJob) -> Result<Job> {
        let source = Stream::from_source(kafka.source_factory(), self.source_parallelism);
        let builder = JobBuilder::new(kafka.id())
            .stream((self.shape)(source))
            .sink(kafka.sink_factory(), self.sink_parallelism)
            .commit(kafka.commit_protocol(self.step_hook.clone()))
            .checkpoints(self.store.clone())
            .options(self.options.clone());
        match &self.step_hook {
            Some(hook) => builder.step_hook(hook.clone()).build(),
            None => builder.build(),
        }
    }
}

/// Connects with the first attempt that can, and builds the job for each.
struct Attempts {
    pipeline: Pipeline,
    env: Env,
    kafka: Option<KafkaJob>,
}

#[async_trait]
impl AttemptFactory for Attempts {
    async fn build(&mut self, _attempt: u64) -> Result<Job> {
        let kafka = match self.kafka.take() {
            Some(kafka) => kafka,
            None => {
                let Pipeline { config, options, registry, .. } = &self.pipeline;
                let kafka = KafkaJob::connect_for(self.env.clone(), config.clone(), options).await?;
                match registry {
                    Some(registry) => kafka.with_registry(registry.clone()),
                    None => kafka,
                }
            }
        };
        self.pipeline.job(self.kafka.insert(kafka))
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ErrorKind;

    use super::*;

    #[test]
    fn barrier_and_commit_fit_into_the_transaction_timeout() {
        for (timeout_s, commit_s) in [(30, 20), (2, 1), (900, 1), (900, 899)] {
            let config = KafkaJobConfig {
                transaction_timeout: std::time::Duration::from_secs(timeout_s),
                commit_deadline: std::time::Duration::from_secs(commit_s),
                ..KafkaJobConfig::default()
            };
            let options = fitting_options(&config);
            options.validate().unwrap();
            let longest = options.interval() + options.barrier_alignment_timeout + options.commit_deadline;
            assert!(longest < config.transaction_timeout, "{longest:?} of {timeout_s} s");
            assert!(options.commit_deadline > config.commit_deadline, "EndTxn comes last, and has its time");
        }
    }

    #[tokio::test]
    async fn settings_that_cannot_be_are_a_typed_error_and_no_job_runs() {
        let control = JobControl::new();
        let config = KafkaJobConfig { job: "a job".to_owned(), ..KafkaJobConfig::default() };
        let error = Pipeline::new(config).run(Env::system(), control.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        // Nobody waits for a job that never came to run.
        assert_eq!(control.checkpoint().await.unwrap_err().kind(), ErrorKind::Closed);
        for name in ["bootstrap", "job", "group", "topics", "sink.topic"] {
            assert!(error.to_string().contains(name), "{name} is missing in: {error}");
        }
    }

    #[tokio::test]
    async fn a_pipeline_without_brokers_can_be_stopped_and_gives_up_in_the_end() {
        let sink = crate::SinkConfig::to_topic("output");
        let mut config = KafkaJobConfig::new("job", "group", vec!["input".to_owned()], sink);
        config.bootstrap = vec!["127.0.0.1:1".to_owned()];
        let env = Env::system();
        let control = JobControl::new();
        let run = Pipeline::new(config.clone()).run(env.clone(), control.clone());
        let (report, ()) = tokio::join!(run, async {
            env.clock.sleep(std::time::Duration::from_millis(50)).await;
            control.stop();
        });
        assert_eq!(report.unwrap().end, sharestream_core::JobEnd::Stopped);
        let restarts = RestartOptions::default().with_attempts_without_commit_max(1);
        let run = Pipeline::new(config).restarts(restarts).run(env, JobControl::new());
        assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Retry);
    }
}
