//! The job that is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sharestream_base::{Clock, Env, OwnedTask, TaskKind};
use sharestream_client::NewTopic;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, CallError};
use sharestream_core::{JobBuilder, JobControl, JobId, JobOptions, JobReport};
use sharestream_kafka::formats::{Format, OutputFormat};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, SinkConfig};

use crate::world::World;

/// What a run is.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) partitions: i32,
    /// Sleep of each record.
    pub(super) work: Duration,
    /// Calls at once, over all subtasks.
    pub(super) concurrency: usize,
    pub(super) subtasks: usize,
    /// Locks of a partition.
    pub(super) locks: u64,
    pub(super) interval: Duration,
}

/// Calls that ended, and the nanoseconds that they took.
#[derive(Default)]
pub(super) struct Work {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Work {
    /// Calls so far and the seconds that they took together.
    pub(super) fn totals(&self) -> (u64, f64) {
        (self.count.load(Ordering::Relaxed), self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9)
    }
}

/// A job that runs.
pub(super) struct Running {
    pub(super) control: JobControl,
    pub(super) work: Arc<Work>,
    task: OwnedTask<sharestream_core::Result<JobReport>>,
}

impl Running {
    /// Starts a job over `topic` in a group of its own.
    pub(super) async fn start(world: &mut World, topic: &str, run: Run) -> anyhow::Result<Running> {
        let name = world.fresh_name("job");
        let output = format!("{name}-output");
        world.client.admin().create_topic(NewTopic::new(&output, run.partitions)).await?;
        let sink = SinkConfig::to_topic(&output).with_format(OutputFormat::Raw);
        let mut config = KafkaJobConfig::new(&name, &name, vec![topic.to_owned()], sink);
        config.bootstrap = vec![world.bootstrap()];
        config.format = Format::Raw;
        config.mode = AckModeChoice::Transactional;
        let locks = run.locks.to_string();
        let group = [("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", &locks)];
        config.group_configs.extend(group.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let env = world.env.clone();
        let kafka = KafkaJob::connect(env.clone(), config).await?;
        let work = Arc::new(Work::default());
        let options = AsyncMapOptions::default()
            .with_concurrency(run.concurrency.div_ceil(run.subtasks))
            .with_rows_max(65_536.max(run.concurrency));
        let builder = JobBuilder::new(JobId::new(&name, "main"))
            .source(kafka.source_factory(), run.subtasks)
            .async_map(map(run.work, work.clone(), env.clock.clone()).options(options))
            .sink(kafka.sink_factory(), 1)
            .commit(kafka.commit_protocol(None))
            .options(JobOptions::default().with_checkpoint_interval(run.interval));
        let job = builder.build()?;
        let control = JobControl::new();
        let task = OwnedTask::spawn(
            &env.spawner,
            name,
            TaskKind::Job,
            run_job(job, env.clone(), control.clone(), kafka),
        );
        Ok(Running { control, work, task })
    }

    /// Fails when the job has ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.task.is_finished(), "the job ended: {:?}", self.control.snapshot());
        Ok(())
    }

    /// Ends the job after a last checkpoint.
    pub(super) async fn drain(mut self) -> anyhow::Result<JobReport> {
        self.control.drain();
        let report = self.task.join().await?;
        Ok(report.ok_or_else(|| anyhow::anyhow!("the job was aborted"))??)
    }
}

async fn run_job(
    job: sharestream_core::Job,
    env: Env,
    control: JobControl,
    kafka: KafkaJob,
) -> sharestream_core::Result<JobReport> {
    let report = job.run(env, control).await;
    drop(kafka);
    report
}

fn map(work: Duration, done: Arc<Work>, clock: Clock) -> AsyncMap {
    AsyncMap::from_fn("work", [], move |_row| {
        let (done, clock) = (done.clone(), clock.clone());
        async move {
            let begin = clock.now();
            if work > Duration::ZERO {
                clock.sleep(work).await;
            }
            let took = clock.now().duration_since(begin).as_nanos();
            done.count.fetch_add(1, Ordering::Relaxed);
            done.nanoseconds.fetch_add(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
            Ok::<_, CallError>(AsyncOutcome::Columns(Vec::new()))
        }
    })
}
