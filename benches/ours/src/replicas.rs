//! One job without state in several processes that share its group: do k of them do k times the work of one?
//!
//! The work of each record is a wait, so that a few processors are enough for many replicas; with `--spin` it is a loop
//! that keeps a processor busy, and more replicas than processors can gain nothing.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use sharestream_base::ids::PartitionIndex;
use sharestream_base::{Env, Instant};
use sharestream_client::{Producer, WriterConfig};

use crate::place::Place;
use crate::process::{Process, Sample};
use crate::report::{median, milliseconds, print, rounded};
use crate::worker::{Work, WorkerSpec};

/// Length of a value.
const VALUE_BYTES: usize = 100;
/// Between two looks at a replica.
const LOOK: Duration = Duration::from_millis(20);
/// All replicas have committed something; then so long until the clock starts.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longest wait for every replica to commit something.
const START_MAX: Duration = Duration::from_secs(60);

/// `replicas`.
#[derive(Args)]
pub(crate) struct ReplicasArgs {
    /// Replicas that run at once; the first number is what the others are compared with
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    replicas: Vec<usize>,
    /// Milliseconds of wait for each record
    #[arg(long, default_value = "5", value_parser = milliseconds)]
    work: Duration,
    /// Records of a replica that wait at once
    #[arg(long, default_value_t = 32)]
    concurrency: usize,
    /// Instead of the wait: so many turns of a loop for each record, one record at a time
    #[arg(long)]
    spin: Option<u32>,
    #[arg(long, default_value_t = 16)]
    partitions: i32,
    /// Records in the topic: enough that the most replicas do not come to the end
    #[arg(long, default_value_t = 500_000)]
    records: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds that are measured
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Use these brokers and not an embedded one in a process of its own
    #[arg(long, alias = "bootstrap", value_name = "HOST:PORT,...")]
    brokers: Option<String>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// Columns of the table.
const COLUMNS: [&str; 6] = ["work", "replicas", "records_per_second", "slowest", "fastest", "linear_gain"];

/// Measures and prints.
pub(crate) async fn run(env: Env, args: ReplicasArgs) -> anyhow::Result<()> {
    let place = Place::open(&env, args.brokers.as_deref()).await?;
    let input = place.named("input");
    place.topic(&input, args.partitions).await?;
    fill(&place, &input, &args).await?;
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); args.replicas.len()];
    for round in 0..args.rounds {
        for (index, count) in args.replicas.iter().enumerate() {
            let name = place.named(&format!("job-{round}-{count}"));
            let rate = measure(&place, &input, &name, *count, &args)
                .await
                .with_context(|| format!("{count} replicas, round {round}"))?;
            rates[index].push(rate);
        }
    }
    let rows: Vec<Value> = (0..rates.len()).map(|index| row(&place, &args, &rates, index)).collect();
    print(&rows, &COLUMNS, args.json);
    if !args.json {
        println!("{} processors; broker {}", processors(), place.kind());
    }
    place.close().await
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn row(place: &Place, args: &ReplicasArgs, rates: &[Vec<f64>], index: usize) -> Value {
    let of = |count: usize| count as f64;
    let (count, base) = (args.replicas[index], args.replicas[0]);
    let gains = rates[index].iter().zip(&rates[0]);
    let gains = gains.map(|(rate, one)| (rate / of(count)) / (one / of(base))).collect();
    let work = match args.spin {
        Some(turns) => format!("{turns} turns, one at a time"),
        None => format!("{:?} wait, {} at once", args.work, args.concurrency),
    };
    json!({
        "name": "replicas", "broker": place.kind(), "work": work, "replicas": count,
        "records_per_second": median(rates[index].clone()).round(),
        "slowest": rates[index].iter().copied().fold(f64::INFINITY, f64::min).round(),
        "fastest": rates[index].iter().copied().fold(0.0, f64::max).round(),
        "linear_gain": rounded(median(gains), 3),
        "processors": processors(),
    })
}

async fn fill(place: &Place, topic: &str, args: &ReplicasArgs) -> anyhow::Result<()> {
    // Batches well below a lock window, as many producers make them.
    let config = WriterConfig { batch_bytes_max: 16 * 1024, ..WriterConfig::default() };
    let mut producer = Producer::connect(place.client.clone(), config).await?;
    let now_ms = place.env.clock.wall_ms();
    for number in 0..args.records {
        let partition = i32::try_from(number % u64::from(args.partitions.unsigned_abs()))?;
        let value = format!("{number:0>VALUE_BYTES$}");
        let writer = producer.writer();
        writer.append(topic, PartitionIndex(partition), now_ms, None, Some(value.as_bytes()), &[]).await?;
    }
    producer.flush().await?;
    Ok(())
}

/// Records a second of `count` replicas together.
async fn measure(
    place: &Place,
    input: &str,
    name: &str,
    count: usize,
    args: &ReplicasArgs,
) -> anyhow::Result<f64> {
    let clock = &place.env.clock;
    let output = format!("{name}-output");
    place.topic(&output, args.partitions).await?;
    let mut spec = WorkerSpec::new(&place.brokers, name, input, &output);
    spec.interval = Duration::from_millis(50);
    spec.work = match args.spin {
        Some(turns) => Work::Spin { turns },
        None => Work::Sleep { for_each: args.work, at_once: args.concurrency },
    };
    let mut workers = Vec::new();
    for replica in 0..count {
        spec.instance = replica.to_string();
        workers.push(Process::start(&place.env, &format!("replica {replica}"), &spec.arguments()?)?);
    }
    let deadline = clock.now() + START_MAX;
    for worker in &mut workers {
        worker.wait_for("started").await?;
        while worker.samples().last().is_none_or(|sample| sample.records_in == 0) {
            ensure!(clock.now() < deadline, "a replica commits nothing");
            clock.sleep(LOOK).await;
        }
    }
    clock.sleep(WARM_UP).await;
    let begin = clock.now();
    clock.sleep(Duration::from_secs(args.seconds)).await;
    let end = clock.now();
    let mut rate = 0.0;
    for worker in &workers {
        rate += rate_between(&worker.samples(), begin, end).context("a replica said too little")?;
    }
    // One that has run dry was not measured at its work.
    ensure!(place.lag(name, input).await? > 0, "the input ran dry: it needs more --records");
    for worker in workers {
        let ended = worker.drain().await?;
        ensure!(ended.success(), "a replica ended with {ended}");
    }
    place.client.admin().delete_topic(&output).await?;
    Ok(rate)
}

/// Records a second from the last sample before `begin` to the last before `end`.
fn rate_between(samples: &[Sample], begin: Instant, end: Instant) -> Option<f64> {
    let before = |moment: Instant| samples.iter().rev().find(|sample| sample.at <= moment);
    let (first, last) = (before(begin)?, before(end)?);
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    (seconds > 0.0).then(|| (last.records_in - first.records_in) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use sharestream_base::Clock;

    use super::*;

    #[test]
    fn the_rate_is_that_between_the_samples_at_hand() {
        let start = Clock::system().now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let sample = |ms: u64, records_in: u64| Sample { at: at(ms), records_in };
        let samples = [sample(0, 0), sample(100, 50), sample(600, 550), sample(1_100, 1_650)];
        assert_eq!(rate_between(&samples, at(150), at(1_050)), Some(1_000.0));
        assert_eq!(rate_between(&samples, at(150), at(1_200)), Some(1_600.0));
        assert_eq!(rate_between(&samples, at(1_150), at(1_200)), None, "nothing in between");
        assert_eq!(rate_between(&[], at(0), at(1)), None);
    }
}
