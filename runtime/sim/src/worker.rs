//! One incarnation of a replica: the code that ships, in a process of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use sharestream_base::{CancellationToken, Env, HostPort};
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::commit::{CommitStep, StepHook};
use sharestream_core::remote::{WorkerEnd, WorkerIdentity, WorkerOptions, Workers, run_worker};
use sharestream_core::sink::SinkFactory;
use sharestream_core::{AttemptFactory, RestartOptions, Supervisor};
use sharestream_core::{Job, JobBuilder, JobControl, JobId, JobOptions, JobReport, Stream};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, SinkConfig, SinkKey};

use crate::network::Host;
use crate::operators::{self, CountById};
use crate::plan::{Calls, OperatorsPlan, Part, Plan, WorkerPlan};
use crate::process::ProcessGate;
use crate::slow::SlowSinks;
use crate::traps::Traps;
use crate::workload::{ByFate, DEAD_LETTERS, GROUP, JOB, OUTCOMES, OUTPUT, SOURCE};

/// Longest wait for the slowest subtask of a barrier, as the command has it.
const BARRIER_MAX: Duration = Duration::from_secs(12);
/// Longest commit, as the command has it.
const COMMIT_MAX: Duration = Duration::from_secs(15);
/// Part of it in which an unanswered EndTxn is sent again.
const END_TXN_MAX: Duration = Duration::from_secs(10);
/// Where a coordinator waits for the other processes of its job.
const WORKERS_PORT: u16 = 7_000;
/// Where sinks wait for rows.
const ROWS_PORT: u16 = 7_001;
/// How long those try without a coordinator. The command has five minutes, in which a settling world gives up.
const COORDINATOR_WAIT: Duration = Duration::from_secs(60);
/// Longest wait for those that have not heard that the job has ended, as the command has it.
const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// A step at which the process dies, once.
pub(crate) type Trap = Arc<Mutex<Option<CommitStep>>>;

/// What a worker is given.
pub(crate) struct Worker {
    /// Its clocks, chance, network and tasks.
    pub(crate) env: Env,
    /// Settings of the replica.
    pub(crate) plan: WorkerPlan,
    /// The mode that it is asked for.
    pub(crate) mode: AckModeChoice,
    /// Name of the replica.
    pub(crate) instance: String,
    /// `host:port` of the brokers.
    pub(crate) bootstrap: Vec<String>,
    /// The object store, when the replica keeps manifests.
    pub(crate) objects: Option<Arc<dyn ObjectStore>>,
    /// Asks it to stop, and shows what it does.
    pub(crate) control: JobControl,
    /// Where it dies.
    pub(crate) trap: Trap,
    /// Where else something happens.
    pub(crate) traps: Traps,
    /// Its name there.
    pub(crate) host: Host,
    /// What then stands still.
    pub(crate) gate: Arc<ProcessGate>,
    /// Whoever starts it has been told that a record has one delivery left, and goes on.
    pub(crate) risks_last_delivery: bool,
}

impl Worker {
    /// Runs the job to its end, with a supervisor as the command does; of a job in three processes the coordinator.
    pub(crate) async fn run(self, plan: &Plan) -> anyhow::Result<JobReport> {
        let mut attempts = self.attempts(plan).await?;
        if self.plan.in_three_processes {
            let address = HostPort::new(&*self.host, WORKERS_PORT);
            attempts.workers = Some(Workers::listen(&self.env, &address, self.identity()).await?);
        }
        let workers = attempts.workers.clone();
        let supervisor = Supervisor::new(attempts, RestartOptions::default());
        let report = supervisor.run(self.env, self.control).await?;
        if let Some(workers) = workers {
            workers.end(FAREWELL_MAX).await;
        }
        Ok(report)
    }

    /// Runs one part of the job for the coordinator that `name` leads to, until the job ends or `stop`.
    pub(crate) async fn run_part(
        self,
        plan: &Plan,
        part: Part,
        name: &str,
        stop: CancellationToken,
    ) -> anyhow::Result<WorkerEnd> {
        let attempts = self.attempts(plan).await?;
        let options = WorkerOptions {
            role: part.role(),
            identity: self.identity(),
            coordinator: HostPort::new(name, WORKERS_PORT),
            listen: HostPort::new(&*self.host, ROWS_PORT),
            advertised_host: None,
            patience: COORDINATOR_WAIT,
        };
        Ok(run_worker(self.env, options, attempts, stop).await?)
    }

    fn identity(&self) -> WorkerIdentity {
        WorkerIdentity::of(JobId::new(JOB, &self.instance), &[&format!("{:?}", self.mode)])
    }

    async fn attempts(&self, plan: &Plan) -> anyhow::Result<Attempts> {
        Ok(Attempts {
            kafka: KafkaJob::connect(self.env.clone(), self.config(plan)).await?,
            plan: self.plan.clone(),
            instance: self.instance.clone(),
            objects: self.objects.clone(),
            hook: self.hook(),
            operators: plan.operators.clone(),
            env: self.env.clone(),
            slow_write: plan.slow_write,
            workers: None,
        })
    }

    fn config(&self, plan: &Plan) -> KafkaJobConfig {
        let key = if plan.output_partitions > 1 { SinkKey::None } else { SinkKey::Source };
        let sink = SinkConfig::to_topic(OUTPUT).with_key(key);
        let mut config = KafkaJobConfig::new(JOB, GROUP, vec![SOURCE.to_owned()], sink);
        config.bootstrap.clone_from(&self.bootstrap);
        config.instance.clone_from(&self.instance);
        let columns = vec![Column::new("id", ColumnType::Int64), Column::new("n", ColumnType::Int64)];
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        config.dead_letter_topic = Some(DEAD_LETTERS.to_owned());
        config.outcome_topic = OUTCOMES.to_owned();
        config.mode = self.mode;
        config.max_poll_records = self.plan.poll_records;
        config.stage_separately = self.plan.stage_separately;
        config.commit_deadline = plan.ledger.as_ref().map_or(END_TXN_MAX, |ledger| ledger.commit_deadline);
        config.transaction_timeout = self.plan.checkpoint_interval + COMMIT_MAX + BARRIER_MAX + COMMIT_MAX;
        config.group_configs = group_configs(plan);
        if self.risks_last_delivery {
            config.delivery_reserve = 0;
        }
        config
    }

    fn hook(&self) -> StepHook {
        let (trap, gate) = (Arc::clone(&self.trap), Arc::clone(&self.gate));
        let (traps, host) = (self.traps.clone(), Arc::clone(&self.host));
        Arc::new(move |_checkpoint, step| {
            let mut armed = trap.lock().unwrap_or_else(PoisonError::into_inner);
            if *armed == Some(step) {
                *armed = None;
                gate.kill();
                return;
            }
            drop(armed);
            traps.at_step(&host, step);
        })
    }
}

fn group_configs(plan: &Plan) -> BTreeMap<String, String> {
    let session_timeout = plan.ledger.as_ref().and_then(|ledger| ledger.session_timeout);
    let session = session_timeout.map(|timeout| {
        let times = [("share.session.timeout.ms", timeout), ("share.heartbeat.interval.ms", timeout / 5)];
        times.map(|(key, value)| (key, value.as_millis().to_string()))
    });
    let isolation = if plan.group.read_committed { "read_committed" } else { "read_uncommitted" };
    [
        ("share.auto.offset.reset", "earliest".to_owned()),
        ("share.isolation.level", isolation.to_owned()),
        ("share.record.lock.duration.ms", plan.group.lock_duration.as_millis().to_string()),
        ("share.delivery.count.limit", plan.group.delivery_limit.to_string()),
        ("share.partition.max.record.locks", plan.group.record_locks.to_string()),
    ]
    .into_iter()
    .chain(session.into_iter().flatten())
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Builds the job anew for each attempt.
struct Attempts {
    kafka: KafkaJob,
    plan: WorkerPlan,
    instance: String,
    objects: Option<Arc<dyn ObjectStore>>,
    hook: StepHook,
    operators: OperatorsPlan,
    env: Env,
    slow_write: Option<Duration>,
    /// Where the tasks run, if not here.
    workers: Option<Workers>,
}

impl Attempts {
    fn stream(&self, attempt: u64) -> Stream {
        let OperatorsPlan { calls, is_ordered, is_stateful } = self.operators;
        let mut stream = Stream::from_source(self.kafka.source_factory(), self.plan.parallelism);
        if calls == Calls::Deferred {
            stream = stream.async_map(operators::calls(&self.env, is_ordered));
        }
        stream = stream.operator(Arc::new(ByFate));
        if calls == Calls::Awaited {
            stream = stream.async_map(operators::calls(&self.env, is_ordered));
        }
        if is_stateful {
            // Each attempt has another parallelism, so that state moves; processes that count their own attempts would not
            // agree on it.
            let attempt = if self.plan.in_three_processes { 2 } else { attempt };
            let parallelism = [1, 3, 2][usize::try_from(attempt % 3).unwrap_or(0)];
            stream = stream.keyed(Arc::new(CountById), parallelism);
        }
        stream
    }

    fn sinks(&self) -> Arc<dyn SinkFactory> {
        let sinks = self.kafka.sink_factory();
        match self.slow_write {
            Some(first_write) => Arc::new(SlowSinks { sinks, first_write, clock: self.env.clock.clone() }),
            None => sinks,
        }
    }
}

#[async_trait]
impl AttemptFactory for Attempts {
    async fn build(&mut self, attempt: u64) -> sharestream_core::Result<Job> {
        let store = match &self.objects {
            Some(objects) => {
                Some(CheckpointStore::open(Arc::clone(objects), JobKey::new(JOB, &self.instance)).await?)
            }
            None => None,
        };
        let mut builder = JobBuilder::new(JobId::new(JOB, &self.instance));
        if let Some(workers) = &self.workers {
            builder = builder.workers(workers.clone());
        }
        builder
            .link(self.kafka.link())
            .stream(self.stream(attempt))
            .sink(self.sinks(), self.plan.parallelism)
            .commit(self.kafka.commit_protocol(Some(Arc::clone(&self.hook))))
            .checkpoints(store)
            .options(
                JobOptions::default()
                    .with_checkpoint_interval(self.plan.checkpoint_interval)
                    .with_barrier_alignment_timeout(BARRIER_MAX)
                    .with_commit_deadline(COMMIT_MAX),
            )
            .step_hook(Arc::clone(&self.hook))
            .build()
    }
}
