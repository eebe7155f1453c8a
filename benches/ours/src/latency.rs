//! End-to-end latency: from the producer's call to the read-committed reader behind the job. The job runs elsewhere, or,
//! with `--embedded`, it and an embedded broker run in processes of their own.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{CancellationToken, Clock, Env, Instant, OwnedTask, TaskKind, TaskSet};
use sharestream_client::{
    Client, ClientConfig, Isolation, OffsetSpec, PartitionReader, Producer, WriterConfig, committed_records,
};
use sharestream_kafka::AckModeChoice;

use crate::place::Place;
use crate::process::{Process, Signal};
use crate::report::{median, milliseconds};
use crate::worker::WorkerSpec;

/// Longest wait of a reader for records.
const FETCH_WAIT: Duration = Duration::from_millis(500);
const FETCH_BYTES: i32 = 1 << 20;
/// Longest time that a measured record may take; more is an error.
const LATE_MAX: Duration = Duration::from_secs(60);
/// Length of a value: about that of a flight.
const VALUE_BYTES: usize = 100;
/// Partitions of the topics of `--embedded`.
const PARTITIONS: i32 = 8;
/// Keys of the records.
const KEYS: u64 = 64;

/// `latency`.
#[derive(Args)]
pub(crate) struct LatencyArgs {
    /// Bootstrap brokers
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        required_unless_present = "embedded",
        conflicts_with = "embedded"
    )]
    brokers: Option<String>,
    /// Topic that the job reads
    #[arg(long, required_unless_present = "embedded")]
    input: Option<String>,
    /// Topic that the job writes
    #[arg(long, required_unless_present = "embedded")]
    output: Option<String>,
    /// Start an embedded broker and a job that copies records, each in a process of its own
    #[arg(long)]
    embedded: bool,
    /// Acknowledgement mode of the job of --embedded
    #[arg(long, default_value = "transactional", value_parser = crate::mode)]
    mode: AckModeChoice,
    /// Its latency goal, milliseconds
    #[arg(long, default_value = "5", value_parser = milliseconds)]
    goal: Duration,
    /// Records a second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Groups in which the records of a second are sent
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    ticks: u64,
    /// Seconds that are not counted
    #[arg(long, default_value_t = 10)]
    warm_up: u64,
    /// Seconds that are counted
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How often all of it is done; the medians are reported
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

/// What is measured, and where.
struct Scene {
    env: Env,
    brokers: String,
    input: String,
    output: String,
}

/// Measures and prints.
pub(crate) async fn run(env: Env, args: LatencyArgs) -> anyhow::Result<()> {
    if let (Some(brokers), Some(input), Some(output)) = (&args.brokers, &args.input, &args.output) {
        let (brokers, input, output) = (brokers.clone(), input.clone(), output.clone());
        return measure(&Scene { env, brokers, input, output }, &args).await;
    }
    let place = Place::open(&env, None).await?;
    let [name, input, output] = ["latency", "latency-in", "latency-out"].map(|what| place.named(what));
    place.topic(&input, PARTITIONS).await?;
    place.topic(&output, PARTITIONS).await?;
    let mut spec = WorkerSpec::new(&place.brokers, &name, &input, &output);
    // Without a goal of its own, a job takes its interval for it.
    (spec.mode, spec.interval) = (args.mode, args.goal);
    let mut worker = Process::start(&env, "the job", &spec.arguments()?)?;
    worker.wait_for("started").await?;
    measure(&Scene { env, brokers: place.brokers.clone(), input, output }, &args).await?;
    worker.signal(Signal::Term).await?;
    println!("{}", worker.wait_for("ended").await?);
    place.close().await
}

async fn measure(scene: &Scene, args: &LatencyArgs) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push(round(scene, args).await?);
    }
    let ms = |micros: u64| micros as f64 / 1_000.0;
    let of = |value: &dyn Fn(&Histogram<u64>) -> u64| median(rounds.iter().map(value).map(ms).collect());
    let report = json!({
        "name": "latency", "embedded": args.embedded, "mode": args.embedded.then_some(args.mode), "rate": args.rate,
        "ticks": args.ticks, "rounds": args.rounds, "records": rounds.iter().map(Histogram::len).sum::<u64>(),
        "p50_ms": of(&|all| all.value_at_quantile(0.5)), "p99_ms": of(&|all| all.value_at_quantile(0.99)),
        "max_ms": of(&|all| all.max()),
        "p99_ms_of_rounds": rounds.iter().map(|all| ms(all.value_at_quantile(0.99))).collect::<Vec<_>>(),
    });
    println!("{report}");
    Ok(())
}

/// Sends, reads, and gives the times in microseconds.
async fn round(scene: &Scene, args: &LatencyArgs) -> anyhow::Result<Histogram<u64>> {
    let env = &scene.env;
    let start = env.clock.now();
    let client = connect(env, &scene.brokers).await?;
    let ends = client.admin().list_offsets(&scene.output, &[], OffsetSpec::Latest).await?;
    let mut readers = TaskSet::new(&env.spawner, CancellationToken::new());
    let stop = readers.token().clone();
    for (partition, end) in ends {
        let reader = Reader {
            client: connect(env, &scene.brokers).await?,
            topic: scene.output.clone(),
            partition,
            start,
        };
        let stop = stop.clone();
        readers.spawn("reader", TaskKind::Job, async move { reader.run(end.0, stop).await });
    }
    let pace = Pace {
        rate: args.rate,
        ticks: args.ticks,
        warm_up: args.rate * args.warm_up,
        total: args.rate * (args.warm_up + args.seconds),
    };
    let sent = send(env.clock.clone(), connect(env, &scene.brokers).await?, scene.input.clone(), pace, start);
    let mut sender = OwnedTask::spawn(&env.spawner, "sender", TaskKind::Job, sent);
    sender.join().await?.context("the sender was stopped")??;
    // What is on its way arrives, or is late.
    env.clock.sleep(Duration::from_secs(3)).await;
    stop.cancel();
    let mut all = histogram()?;
    while let Some(exit) = readers.join_next().await {
        all.add(exit.result?.context("a reader was stopped")??)?;
    }
    let expected = args.rate * args.seconds;
    anyhow::ensure!(all.len() == expected, "{} of {expected} records arrived: does the job run?", all.len());
    Ok(all)
}

async fn connect(env: &Env, brokers: &str) -> anyhow::Result<Client> {
    Ok(Client::connect(env.clone(), ClientConfig::with_bootstrap(brokers)?).await?)
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(LATE_MAX.as_micros())?, 3)?)
}

/// How records are sent.
#[derive(Clone, Copy)]
struct Pace {
    /// Records a second.
    rate: u64,
    /// Groups a second.
    ticks: u64,
    /// Records that are not counted.
    warm_up: u64,
    total: u64,
}

/// Sends records that carry the moment at which they were made.
async fn send(clock: Clock, client: Client, topic: String, pace: Pace, start: Instant) -> anyhow::Result<()> {
    let mut producer = Producer::connect(client, WriterConfig::default()).await?;
    let (mut sent, mut tick) = (0, 0);
    let begin = clock.now();
    while sent < pace.total {
        tick += 1;
        clock.sleep_until(begin + Duration::from_micros(tick * 1_000_000 / pace.ticks)).await;
        let due = (pace.rate * tick / pace.ticks).min(pace.total);
        while sent < due {
            // Those of the warm-up carry no moment and so are not counted.
            let made = clock.now().duration_since(start).as_micros();
            let made = if sent < pace.warm_up { "-".to_owned() } else { made.to_string() };
            let value = format!("{made},{}", "x".repeat(VALUE_BYTES));
            let key = (sent % KEYS).to_string();
            producer.send(&topic, Some(key.as_bytes()), Some(value.as_bytes()), &[]).await?;
            sent += 1;
        }
        producer.flush().await?;
    }
    Ok(())
}

struct Reader {
    client: Client,
    topic: String,
    partition: PartitionIndex,
    start: Instant,
}

impl Reader {
    async fn run(self, from: i64, stop: CancellationToken) -> anyhow::Result<Histogram<u64>> {
        let clock = self.client.env().clock.clone();
        let mut reader = PartitionReader::new(self.client.clone());
        let mut seen = histogram()?;
        let mut offset = Offset(from);
        loop {
            let fetching = reader.fetch(
                &self.topic,
                self.partition,
                offset,
                Isolation::ReadCommitted,
                FETCH_BYTES,
                FETCH_WAIT,
            );
            let fetched = tokio::select! {
                fetched = fetching => fetched?,
                () = stop.cancelled() => return Ok(seen),
            };
            let now = clock.now().duration_since(self.start);
            for batch in committed_records(&fetched)? {
                let records = batch.records()?;
                for record in &records {
                    let record = record?;
                    let made = record.value.and_then(made).filter(|_| record.offset >= offset.0);
                    if let Some(made) = made {
                        seen.record(u64::try_from(now.saturating_sub(made).as_micros())?)?;
                    }
                }
            }
            offset = fetched.next_offset(offset);
        }
    }
}

/// The moment that a value carries.
fn made(value: &[u8]) -> Option<Duration> {
    let digits = value.split(|byte| *byte == b',').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok().map(Duration::from_micros)
}
