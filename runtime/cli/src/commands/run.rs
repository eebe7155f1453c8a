//! `sharestream run`: a job from its file to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use serde_json::json;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, HostPort};
use sharestream_broker::{BrokerConfig, RunningBroker};
use sharestream_checkpoints::{CheckpointStore, JobKey, OpenedStore, Retention, StoreLocation};
use sharestream_client::{Client, NewTopic};
use sharestream_core::async_map::AsyncMap;
use sharestream_core::commit::CommitStep;
use sharestream_core::remote::Workers;
use sharestream_core::{
    AttemptFactory, Job, JobBuilder, JobControl, JobId, JobReport, RestartOptions, StepHook, Supervisor,
};
use sharestream_kafka::savepoint::{self, SavepointStart, StartChoice, Started};
use sharestream_kafka::{KafkaJob, fit};
use sharestream_sql::SqlTransform;

use super::caught_up::CaughtUp;
use super::processes::{self, Place};
use super::topic::client_config;
use crate::args::{CrashAt, RunArgs, step_name};
use crate::exit::Exit;
use crate::failure;
use crate::job_file::{self, Brokers, JobFile};
use crate::metrics::Monitoring;
use crate::output::{self, Reporter, Style};
use crate::registry::{self, Purpose};
use crate::settings;
use crate::signals::{StopSignals, parent_gone};
use crate::transform;

/// Partitions of the topics that an embedded run creates.
const EMBEDDED_PARTITIONS: i32 = 8;

/// Runs the job until it is drained, stopped, caught up, or fails.
pub(crate) async fn run(env: Env, args: RunArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    let mut job = job_file::load(&args.job, &args.overrides.set)?;
    settings::apply(&mut job, &args.overrides);
    let place = Place::of(&args, &job)?;
    if let Place::Worker(role) = place {
        return Box::pin(processes::run_worker(env, job, args, role, signals)).await;
    }
    let mut reporter = Reporter::new(Style::choose(args.json), env.clock.clone());
    let control = JobControl::new();
    if args.metrics_listen.is_some() {
        job.metrics.listen.clone_from(&args.metrics_listen);
    }
    // First of all: whoever watches wants to see a job that waits for its brokers, too.
    let mut monitoring = match Monitoring::start(&env, &job, &control).await {
        Ok(monitoring) => monitoring,
        Err(error) => {
            reporter.failed(&failure::judge(&error));
            return Err(error);
        }
    };
    if let Some(monitoring) = &monitoring {
        reporter.serves_metrics(monitoring.address());
    }
    let prepared = tokio::select! {
        prepared = prepare(&env, &mut job, &args, &mut reporter, monitoring.as_mut()) => prepared,
        () = signals.next() => return Ok(Exit::Done),
    };
    let prepared = match (prepared, place) {
        (Ok(prepared), Place::Coordinator) => prepared.with_workers(&env, &job, &args, &reporter).await,
        (prepared, _) => prepared,
    };
    let result = match prepared {
        Ok(prepared) => drive(&env, &job, &args, prepared, &control, &mut reporter, &mut signals).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(Ended::Report(report)) => {
            reporter.ended(&report);
            Ok(Exit::Done)
        }
        Ok(Ended::Interrupted) => Ok(Exit::Interrupted),
        Err(error) => {
            reporter.failed(&failure::judge(&error));
            Err(error)
        }
    }
}

/// What is ready before the job starts.
pub(super) struct Prepared {
    pub(super) attempts: Attempts,
    caught_up: Option<CaughtUp>,
    /// Lives as long as the run.
    broker: Option<RunningBroker>,
}

impl Prepared {
    /// Opens the door for workers, which will run the tasks.
    async fn with_workers(
        mut self,
        env: &Env,
        job: &JobFile,
        args: &RunArgs,
        reporter: &Reporter,
    ) -> anyhow::Result<Self> {
        let workers = processes::listen(env, job, args).await?;
        reporter.waits_for_workers(workers.address());
        self.attempts.workers = Some(workers);
        Ok(self)
    }
}

enum Ended {
    Report(Box<JobReport>),
    Interrupted,
}

/// Everything that can be checked and connected before the job starts; `job` has the schemas of registries then.
pub(super) async fn prepare(
    env: &Env,
    job: &mut JobFile,
    args: &RunArgs,
    reporter: &mut Reporter,
    monitoring: Option<&mut Monitoring>,
) -> anyhow::Result<Prepared> {
    let registry = registry::settle(job, &env.clock, Purpose::Run).await?;
    let job = &*job;
    // Before anything is touched: a fault in the SQL or in a call needs no broker to be found.
    let plan = transform::plan(job)?;
    let (bootstrap, broker) = brokers(env, job, reporter).await?;
    let client = Client::connect(env.clone(), client_config(&bootstrap, job.source.security.clone())).await?;
    let crash_step = args.crash_at.or(args.pause_at).map(|crash| crash.step);
    let mut config = settings::kafka_config(job, &bootstrap, crash_step);
    // Before anything is created: times that do not fit are refused.
    let options = settings::job_options(job, Duration::from_secs(args.drain_timeout));
    fit::check(&client, &config, &options).await?;
    create_topics(&client, job, broker.is_some()).await?;
    // Opened again by each attempt; here so that another job's folder is refused before anything starts.
    let store = match &job.checkpoint.store {
        Some(location) => Some(JobStore::open(location, job, reporter).await?),
        None => None,
    };
    // The outcomes are what recovery and `verify` believe: they must outlive a broker where there are several.
    config.outcome_replication_factor = settings::outcome_replicas(client.admin().node_count());
    let mut kafka = KafkaJob::connect(env.clone(), config).await?;
    if let Some(registry) = registry {
        kafka = kafka.with_registry(registry);
    }
    if let Some(from) = &args.from {
        start_from(job, args, from, &kafka, store.as_ref(), reporter).await?;
    }
    if let Some(monitoring) = monitoring {
        monitoring.watch_offsets(env, client.clone(), job);
    }
    let caught_up = if args.until_caught_up {
        let watch = CaughtUp::from_here(client, job).await?;
        reporter.expect(watch.record_count());
        Some(watch)
    } else {
        None
    };
    reporter.started(&format!("{}/{}", job.job, job.instance), kafka.mode());
    let cluster_id = kafka.client().cluster_id();
    let calls = transform::calls(job, &plan, cluster_id.as_deref(), &env.clock).await?;
    let attempts = Attempts {
        job: job.clone(),
        store,
        kafka,
        transform: plan.transform,
        calls,
        hook: args.crash_at.map(crash_hook).or_else(|| args.pause_at.map(pause_hook)),
        workers: None,
        drain_deadline: Duration::from_secs(args.drain_timeout),
    };
    Ok(Prepared { attempts, caught_up, broker })
}

/// Prepares the start from a savepoint: goes back to it, where that is wanted.
async fn start_from(
    job: &JobFile,
    args: &RunArgs,
    from: &str,
    kafka: &KafkaJob,
    store: Option<&JobStore>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let options: Vec<(String, String)> = Vec::new();
    let savepoint = super::savepoint::place_of(from, Some(job), &options).await?.load().await?;
    let own = match store {
        Some(store) => Some(store.for_attempt().await?),
        None => None,
    };
    let choice = StartChoice { rewind: args.rewind, again: args.again };
    let started = savepoint::start_from(SavepointStart::new(kafka, own, &savepoint).choice(choice)).await?;
    let name = &savepoint.savepoint.name;
    match started {
        Started::GoesOn { checkpoint_restored: false } => {
            reporter.note(&format!("{name} is the last commit"))
        }
        Started::GoesOn { checkpoint_restored: true } => {
            reporter.note(&format!("{name} is the last commit; the store had lost it and has it back"));
        }
        Started::Rewound { generation, notes, .. } => {
            for note in &notes {
                reporter.note(note);
            }
            reporter.note(&format!("went back to {name}: replay generation {generation} begins"));
        }
        other => reporter.note(&format!("started from {name}: {other:?}")),
    }
    Ok(())
}

/// The brokers of the job file; embedded ones are started.
async fn brokers(
    env: &Env,
    job: &JobFile,
    reporter: &Reporter,
) -> anyhow::Result<(Vec<HostPort>, Option<RunningBroker>)> {
    match &job.source.brokers {
        Brokers::Addresses(addresses) => Ok((addresses.clone(), None)),
        Brokers::Embedded => {
            let broker = super::broker::start(env.clone(), BrokerConfig::default()).await?;
            let address = broker.address().clone();
            reporter.note(&format!(
                "embedded broker on {address}: its records live as long as this process; fill it with `sharestream \
                 produce --brokers {address}`"
            ));
            Ok((vec![address], Some(broker)))
        }
    }
}

/// Creates the output topics where the job file says how many partitions they have; an embedded broker starts
/// empty, so there the source topics are created too.
async fn create_topics(client: &Client, job: &JobFile, is_embedded: bool) -> anyhow::Result<()> {
    let default = is_embedded.then_some(EMBEDDED_PARTITIONS);
    let sources = job.source.topics.iter().map(|topic| (topic, default));
    let outputs = std::iter::once(&job.sink.topic).chain(&job.dead_letter_topic).chain(job.parking_topic());
    let outputs = outputs.map(|topic| (topic, job.sink.partitions.or(default)));
    let wanted: Vec<(&String, i32)> =
        sources.chain(outputs).filter_map(|(topic, partitions)| Some((topic, partitions?))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let admin = client.admin();
    let existing = admin.list_topics().await?;
    for (topic, partitions) in wanted {
        if existing.iter().any(|known| *known.name == **topic) {
            continue;
        }
        // Another replica may be faster, and the broker that listed them may not have heard of it.
        admin.ensure_topic(NewTopic::new(topic, partitions)).await?;
    }
    Ok(())
}

/// The job's checkpoint store.
struct JobStore {
    location: StoreLocation,
    opened: OpenedStore,
    key: JobKey,
    owners_kept: usize,
    retention: Retention,
}

impl JobStore {
    /// Opens it once, so that whatever is wrong with it is told before anything starts.
    async fn open(
        location: &StoreLocation,
        job: &JobFile,
        reporter: &Reporter,
    ) -> sharestream_core::Result<JobStore> {
        if location.is_memory() {
            reporter.note(
                "checkpoints are kept in memory: after the end of this process the job refuses to go on from its \
                 outcome topic, so use it with topics that you throw away",
            );
        }
        let (location, opened) = (location.clone(), location.open().await?);
        let key = JobKey::new(&job.job, &job.instance);
        let owners_kept = job.checkpoint.retain_owners;
        let retention = Retention::keep_last(job.checkpoint.retain);
        let store = JobStore { location, opened, key, owners_kept, retention };
        store.for_attempt().await?;
        Ok(store)
    }

    /// The store for one attempt. A folder is opened anew, as one whose sync failed must be; others keep their
    /// connections, and memory what it holds.
    async fn for_attempt(&self) -> sharestream_core::Result<CheckpointStore> {
        let opened = match self.location.as_folder() {
            Some(_) => self.location.open().await?,
            None => self.opened.clone(),
        };
        let store = CheckpointStore::open_in(&opened, self.key.clone()).await?;
        Ok(store.with_owners_kept(self.owners_kept).with_retention(self.retention))
    }
}

/// Builds the job anew for each attempt.
pub(super) struct Attempts {
    job: JobFile,
    store: Option<JobStore>,
    kafka: KafkaJob,
    transform: Option<Arc<SqlTransform>>,
    calls: Vec<AsyncMap>,
    hook: Option<StepHook>,
    /// Where the tasks run, if not here.
    workers: Option<Workers>,
    drain_deadline: Duration,
}

#[async_trait]
impl AttemptFactory for Attempts {
    async fn build(&mut self, _attempt: u64) -> sharestream_core::Result<Job> {
        let job = &self.job;
        let store = match &self.store {
            Some(store) => Some(store.for_attempt().await?),
            None => None,
        };
        let options = settings::job_options(job, self.drain_deadline);
        let mut builder = JobBuilder::new(JobId::new(&job.job, &job.instance))
            .source(self.kafka.source_factory(), job.source.parallelism)
            .sink(self.kafka.sink_factory(), job.sink.parallelism)
            .commit(self.kafka.commit_protocol(self.hook.clone()))
            .checkpoints(store)
            .link(self.kafka.link())
            .options(options);
        if let Some(workers) = &self.workers {
            builder = builder.workers(workers.clone());
        }
        if let Some(transform) = &self.transform {
            builder = builder.operator(transform.clone());
        }
        for call in &self.calls {
            builder = builder.async_map(call.clone());
        }
        if let Some(hook) = &self.hook {
            builder = builder.step_hook(hook.clone());
        }
        builder.build()
    }
}

/// Runs the job and everything beside it: signals, progress, the end when caught up.
async fn drive(
    env: &Env,
    job: &JobFile,
    args: &RunArgs,
    prepared: Prepared,
    control: &JobControl,
    reporter: &mut Reporter,
    signals: &mut StopSignals,
) -> anyhow::Result<Ended> {
    let Prepared { attempts, caught_up, broker } = prepared;
    let workers = attempts.workers.clone();
    let supervisor = Supervisor::new(attempts, RestartOptions::default());
    let mut running = Box::pin(supervisor.run(env.clone(), control.clone()));
    let mut caught_up = Box::pin(wait_caught_up(env, caught_up, control.clone()));
    let (parent, _watch) = if args.with_parent {
        let (token, watch) = parent_gone();
        (token, Some(watch))
    } else {
        (sharestream_base::CancellationToken::new(), None)
    };
    let mut is_draining = false;
    let mut is_caught_up = false;
    let interval = Style::choose(args.json).interval();
    let mut next_report = env.clock.now() + interval;
    let mut reported_error = None;
    let ended = loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                if is_draining {
                    control.stop();
                    break Ended::Interrupted;
                }
                is_draining = true;
                reporter.note("stopping after a last checkpoint; interrupt again to stop at once");
                control.drain();
            }
            () = parent.cancelled() => {
                control.stop();
                break Ended::Interrupted;
            }
            report = &mut running => {
                let report = report.with_context(|| format!("job {}/{}", job.job, job.instance))?;
                break Ended::Report(Box::new(report));
            }
            reached = &mut caught_up, if !is_caught_up => {
                reached?;
                is_caught_up = true;
                reporter.caught_up(&control.snapshot());
                control.drain();
            }
            () = env.clock.sleep_until(next_report) => {
                next_report = env.clock.now() + interval;
                let status = control.snapshot();
                if status.last_error != reported_error {
                    reported_error.clone_from(&status.last_error);
                    if let Some(error) = &reported_error {
                        reporter.note(&format!("the attempt failed, another one follows: {error}"));
                    }
                }
                reporter.progress(&status);
            }
        }
    };
    drop(running);
    if let (Some(workers), Ended::Report(_)) = (workers, &ended) {
        workers.end(processes::FAREWELL_MAX).await;
    }
    if let Some(broker) = broker {
        broker.shutdown().await;
    }
    Ok(ended)
}

async fn wait_caught_up(env: &Env, watch: Option<CaughtUp>, control: JobControl) -> anyhow::Result<()> {
    match watch {
        Some(watch) => watch.wait(&env.clock, &control).await,
        None => std::future::pending().await,
    }
}

/// A hook that says so and never returns once its step was reached often enough: the demo then kills the process.
fn crash_hook(crash: CrashAt) -> StepHook {
    let seen = AtomicU32::new(0);
    Arc::new(move |checkpoint: CheckpointId, step: CommitStep| {
        if step != crash.step || seen.fetch_add(1, Ordering::Relaxed) + 1 != crash.count {
            return;
        }
        let step = step_name(step);
        output::line(&json!({ "event": "step", "step": step, "checkpoint": checkpoint.0 }).to_string());
        loop {
            std::thread::park();
        }
    })
}

/// How long the job stands still at a step, so that another of its processes can be killed meanwhile.
const PAUSE_AT_STEP: Duration = Duration::from_millis(300);

/// A hook that says so once its step was reached often enough, and goes on after a moment.
fn pause_hook(pause: CrashAt) -> StepHook {
    let seen = AtomicU32::new(0);
    Arc::new(move |checkpoint: CheckpointId, step: CommitStep| {
        if step != pause.step || seen.fetch_add(1, Ordering::Relaxed) + 1 != pause.count {
            return;
        }
        let step = step_name(step);
        output::line(&json!({ "event": "step", "step": step, "checkpoint": checkpoint.0 }).to_string());
        std::thread::park_timeout(PAUSE_AT_STEP);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHTS_JOB: &str = include_str!("../../../../examples/flights/job.toml");

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn replicas_that_start_together_create_the_output_topics_once() {
        let env = Env::system();
        let broker = super::super::broker::start(env.clone(), BrokerConfig::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.toml");
        std::fs::write(&path, FLIGHTS_JOB).unwrap();
        let job = crate::job_file::load(&path, &[]).unwrap();
        let bootstrap = vec![broker.address().clone()];
        let config = || client_config(&bootstrap, job.source.security.clone());
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::connect(env.clone(), config()).await.unwrap());
        }
        let made = clients.iter().map(|client| create_topics(client, &job, false));
        for result in futures::future::join_all(made).await {
            result.unwrap();
        }
        broker.shutdown().await;
    }
}
