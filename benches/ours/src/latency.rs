//! End-to-end latency: from the producer's call to the read-committed reader behind the job.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{CancellationToken, Clock, Env, Instant, OwnedTask, TaskKind, TaskSet};
use sharestream_client::{
    Client, Isolation, OffsetSpec, PartitionReader, Producer, WriterConfig, committed_records,
};

use crate::Brokers;

/// Records are sent in so many groups a second.
const TICKS_PER_SECOND: u64 = 200;
/// Longest wait of a reader for records.
const FETCH_WAIT: Duration = Duration::from_millis(500);
const FETCH_BYTES: i32 = 1 << 20;
/// Longest time that a measured record may take; more is an error.
const LATE_MAX: Duration = Duration::from_secs(60);
/// Length of a value: about that of a flight.
const VALUE_BYTES: usize = 100;

/// `latency`.
#[derive(Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Topic that the job reads
    #[arg(long)]
    input: String,
    /// Topic that the job writes
    #[arg(long)]
    output: String,
    /// Records a second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Seconds that are not counted
    #[arg(long, default_value_t = 10)]
    warm_up: u64,
    /// Seconds that are counted
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Measures and prints.
pub(crate) async fn run(env: Env, args: LatencyArgs) -> anyhow::Result<()> {
    let client = args.brokers.connect(&env).await?;
    let start = env.clock.now();
    let ends = client.admin().list_offsets(&args.output, &[], OffsetSpec::Latest).await?;
    let total = args.rate * (args.warm_up + args.seconds);
    let mut readers = TaskSet::new(&env.spawner, CancellationToken::new());
    let stop = readers.token().clone();
    for (partition, end) in ends {
        let reader = Reader {
            client: args.brokers.connect(&env).await?,
            topic: args.output.clone(),
            partition,
            start,
        };
        let stop = stop.clone();
        readers.spawn("reader", TaskKind::Job, async move { reader.run(end.0, stop).await });
    }
    let counts = (args.rate, args.rate * args.warm_up, total);
    let sent = send(env.clock.clone(), args.brokers.connect(&env).await?, args.input, counts, start);
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
    let ms = |quantile: f64| all.value_at_quantile(quantile) as f64 / 1_000.0;
    let report = json!({
        "name": "latency", "rate": args.rate, "expected": expected, "records": all.len(),
        "p50_ms": ms(0.5), "p99_ms": ms(0.99), "max_ms": all.max() as f64 / 1_000.0,
    });
    println!("{report}");
    anyhow::ensure!(all.len() == expected, "{} of {expected} records arrived: does the job run?", all.len());
    Ok(())
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(LATE_MAX.as_micros())?, 3)?)
}

/// Sends records that carry the moment at which they were made.
async fn send(
    clock: Clock,
    client: Client,
    topic: String,
    (rate, warm_up, total): (u64, u64, u64),
    start: Instant,
) -> anyhow::Result<()> {
    let mut producer = Producer::connect(client, WriterConfig::default()).await?;
    let (mut sent, mut tick) = (0, 0);
    let begin = clock.now();
    while sent < total {
        tick += 1;
        clock.sleep_until(begin + Duration::from_micros(tick * 1_000_000 / TICKS_PER_SECOND)).await;
        let due = (rate * tick / TICKS_PER_SECOND).min(total);
        while sent < due {
            // Those of the warm-up carry no moment and so are not counted.
            let made = clock.now().duration_since(start).as_micros();
            let made = if sent < warm_up { "-".to_owned() } else { made.to_string() };
            let value = format!("{made},{}", "x".repeat(VALUE_BYTES));
            let key = (sent % 64).to_string();
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
