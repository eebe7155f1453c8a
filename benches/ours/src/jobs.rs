//! Whole jobs side by side on one broker, over the same records: what two alternating transactional ids win (`pipeline`),
//! and what exactly once costs (`guarantee`). Records pass as they are; jobs and, unless there are other brokers, the
//! broker are in this process.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use sharestream_base::{Env, OwnedTask, TaskKind};
use sharestream_client::NewTopic;
use sharestream_core::{JobControl, JobReport, JobStatus};
use sharestream_kafka::formats::{Format, OutputFormat};
use sharestream_kafka::{AckModeChoice, KafkaJobConfig, Pipeline, SinkConfig};

use crate::report::{median, milliseconds, print, rounded};
use crate::worker::TRANSACTION_TIMEOUT;
use crate::world::{Spread, World};

/// Between two looks at the status.
const LOOK: Duration = Duration::from_millis(2);
/// Parts of the records behind which a measurement begins and ends, in tenths.
const MEASURED_TENTHS: (u64, u64) = (2, 9);

/// Columns of the table, before the ratio.
const COLUMNS: [&str; 10] = [
    "mode",
    "epochs_open",
    "records_per_second",
    "slowest",
    "fastest",
    "barrier_ms_p50",
    "commit_ms_p50",
    "commit_ms_p99",
    "visible_ms_p50",
    "records_per_epoch",
];

/// `pipeline`.
#[derive(Args)]
pub(crate) struct PipelineArgs {
    /// Acknowledgement modes
    #[arg(long, value_delimiter = ',', default_value = "transactional,ledger", value_parser = crate::mode)]
    modes: Vec<AckModeChoice>,
    #[command(flatten)]
    jobs: JobsArgs,
}

/// `guarantee`.
#[derive(Args)]
pub(crate) struct GuaranteeArgs {
    /// Modes beside at-least-once
    #[arg(long, value_delimiter = ',', default_value = "transactional,ledger", value_parser = crate::mode)]
    modes: Vec<AckModeChoice>,
    #[command(flatten)]
    jobs: JobsArgs,
}

/// What all jobs of a measurement share.
#[derive(Args)]
struct JobsArgs {
    /// Use these brokers and not an embedded one in this process
    #[arg(long, alias = "bootstrap", value_name = "HOST:PORT,...")]
    brokers: Option<String>,
    /// Records in the topic
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// Length of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// Locks of a partition
    #[arg(long, default_value_t = 4_000)]
    locks: u64,
    /// Longest time between two checkpoints, milliseconds
    #[arg(long, default_value = "20", value_parser = milliseconds)]
    interval: Duration,
    /// Time that the embedded broker keeps every EndTxn waiting, milliseconds: what replication and a busy coordinator cost
    #[arg(long, default_value = "0", value_parser = milliseconds, conflicts_with = "brokers")]
    end_txn_delay: Duration,
    /// Rounds that are measured, after one that is not
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// One of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    mode: AckModeChoice,
    epochs_open: usize,
    /// Which case it is compared with.
    against: usize,
}

/// What one run came to.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    epoch_records: f64,
    barrier_p50: f64,
    commit_p50: f64,
    commit_p99: f64,
    visible_p50: f64,
}

/// Measures and prints.
pub(crate) async fn pipeline(env: Env, args: PipelineArgs) -> anyhow::Result<()> {
    let of_mode = |(index, mode): (usize, &AckModeChoice)| {
        let against = 2 * index + 1;
        [2, 1].map(|epochs_open| Case { mode: *mode, epochs_open, against })
    };
    let cases: Vec<Case> = args.modes.iter().enumerate().flat_map(of_mode).collect();
    run(env, "pipeline", &cases, &args.jobs).await
}

/// Measures and prints.
pub(crate) async fn guarantee(env: Env, args: GuaranteeArgs) -> anyhow::Result<()> {
    let modes = [AckModeChoice::AtLeastOnce].into_iter().chain(args.modes);
    let cases: Vec<Case> = modes.map(|mode| Case { mode, epochs_open: 2, against: 0 }).collect();
    run(env, "guarantee", &cases, &args.jobs).await
}

async fn run(env: Env, name: &str, cases: &[Case], args: &JobsArgs) -> anyhow::Result<()> {
    let mut world = World::start(env, args.brokers.as_deref()).await?;
    let input = world.fresh_name("input");
    world.topic(&input, args.partitions, args.records, args.value_bytes, Spread::Even).await?;
    if args.end_txn_delay > Duration::ZERO {
        world.delay_end_txn(args.end_txn_delay)?;
    }
    let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
    for round in 0..=args.rounds {
        // There and back: who comes first has it no easier than who comes last.
        let mut order: Vec<usize> = (0..cases.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let one = measure(&mut world, &input, cases[index], args)
                .await
                .with_context(|| format!("{:?}", cases[index]))?;
            if round > 0 {
                measured[index].push(one);
            }
        }
    }
    let delay_ms = args.end_txn_delay.as_millis();
    let broker = match (world.is_embedded(), delay_ms) {
        (false, _) => "outside".to_owned(),
        (true, 0) => "embedded, in this process".to_owned(),
        (true, _) => format!("embedded, in this process, EndTxn {delay_ms} ms later"),
    };
    let row = |index: usize| row(name, &broker, cases, &measured, index);
    let rows: Vec<Value> = (0..cases.len()).map(row).collect();
    let columns: Vec<&str> = COLUMNS.into_iter().chain([ratio_name(name)]).collect();
    print(&rows, &columns, args.json);
    world.client.admin().delete_topic(&input).await?;
    world.end().await;
    Ok(())
}

/// What the rate is compared with.
fn ratio_name(name: &str) -> &'static str {
    if name == "pipeline" { "to_one_at_a_time" } else { "to_at_least_once" }
}

fn row(name: &str, broker: &str, cases: &[Case], measured: &[Vec<Measured>], index: usize) -> Value {
    let (case, rounds) = (cases[index], &measured[index]);
    let of = |value: fn(&Measured) -> f64| median(rounds.iter().map(value).collect());
    let rates = || rounds.iter().map(|round| round.rate);
    // Round by round: the machine has other users, and what they do changes.
    let ratios = rates().zip(&measured[case.against]).map(|(rate, against)| rate / against.rate).collect();
    json!({
        "name": name, "broker": broker, "mode": case.mode, "epochs_open": case.epochs_open,
        "records_per_second": of(|one| one.rate).round(),
        "slowest": rates().fold(f64::INFINITY, f64::min).round(), "fastest": rates().fold(0.0, f64::max).round(),
        "barrier_ms_p50": rounded(of(|one| one.barrier_p50), 2),
        "commit_ms_p50": rounded(of(|one| one.commit_p50), 2),
        "commit_ms_p99": rounded(of(|one| one.commit_p99), 2),
        "visible_ms_p50": rounded(of(|one| one.visible_p50), 2),
        "records_per_epoch": of(|one| one.epoch_records).round(),
        ratio_name(name): rounded(median(ratios), 3),
    })
}

async fn measure(world: &mut World, input: &str, case: Case, args: &JobsArgs) -> anyhow::Result<Measured> {
    let name = world.fresh_name("job");
    let output = format!("{name}-output");
    let admin = world.client.admin();
    admin.create_topic(NewTopic::new(&output, args.partitions)).await?;
    let clock = world.env.clock.clone();
    let control = JobControl::new();
    let job = pipeline_of(world, input, &output, &name, case, args).run(world.env.clone(), control.clone());
    let mut job = OwnedTask::spawn(&world.env.spawner, name.clone(), TaskKind::Job, job);
    let status = control.status();
    let mut marks = Vec::new();
    for tenths in [MEASURED_TENTHS.0, MEASURED_TENTHS.1] {
        while status.borrow().records_in < args.records * tenths / 10 {
            anyhow::ensure!(!job.is_finished(), "the job ended: {:?}", control.snapshot().last_error);
            clock.sleep(LOOK).await;
        }
        marks.push((clock.now(), control.snapshot()));
    }
    control.drain();
    let ended: JobReport = job.join().await?.context("the job was aborted")??;
    anyhow::ensure!(ended.status.attempts == 1, "an attempt failed: {:?}", ended.status.last_error);
    // Outputs go when they are measured: brokers in memory keep them.
    world.client.admin().delete_topic(&output).await?;
    let [(begin, before), (end, after)] = <[(_, JobStatus); 2]>::try_from(marks)
        .map_err(|marks| anyhow::anyhow!("{} marks, not two", marks.len()))?;
    let records = (after.records_in - before.records_in) as f64;
    Ok(Measured {
        rate: records / end.duration_since(begin).as_secs_f64(),
        epoch_records: records / (after.commits - before.commits).max(1) as f64,
        barrier_p50: after.barrier_ms.p50,
        commit_p50: after.commit_ms.p50,
        commit_p99: after.commit_ms.p99,
        visible_p50: after.visible_ms.p50,
    })
}

fn pipeline_of(
    world: &World,
    input: &str,
    output: &str,
    name: &str,
    case: Case,
    args: &JobsArgs,
) -> Pipeline {
    let sink = SinkConfig::to_topic(output).with_format(OutputFormat::Raw);
    let mut config = KafkaJobConfig::new(name, name, vec![input.to_owned()], sink);
    config.bootstrap = vec![world.bootstrap()];
    config.format = Format::Raw;
    config.mode = case.mode;
    config.outcome_topic = "bench-outcomes".to_owned();
    config.transaction_timeout = TRANSACTION_TIMEOUT;
    let locks = args.locks.to_string();
    let group = [("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", &locks)];
    config.group_configs.extend(group.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let (interval, epochs_open) = (args.interval, case.epochs_open);
    Pipeline::new(config)
        .options(move |options| options.with_checkpoint_interval(interval).with_epochs_open_max(epochs_open))
}
