//! The price of skew.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use sharestream_base::Env;

use super::group;
use super::job::{Run, Running};
use crate::report::{median, milliseconds};
use crate::world::{Spread, World};

/// `calls skew`.
#[derive(Args)]
pub(crate) struct SkewArgs {
    /// Milliseconds of work for each record
    #[arg(long, default_value = "5", value_parser = milliseconds)]
    work: Duration,
    /// Calls at once, over all partitions
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// Subtasks that the calls are shared between
    #[arg(long, default_value_t = 1)]
    subtasks: usize,
    /// Locks of a partition
    #[arg(long, default_value_t = 4_000)]
    locks: u64,
    /// Records in each topic
    #[arg(long, default_value_t = 160_000)]
    records: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Length of a value.
const VALUE_BYTES: usize = 16;
/// Between two looks at the status.
const LOOK: Duration = Duration::from_millis(2);

/// Measures and prints.
pub(super) async fn run(env: Env, args: SkewArgs) -> anyhow::Result<()> {
    let mut world = World::start(env, None).await?;
    // A loop of one record at a time would need hours for all of them.
    let few =
        args.records / u64::try_from(args.concurrency)?.max(1) * u64::from(args.partitions.unsigned_abs());
    for (spread, of_all, of_few) in
        [(Spread::Even, "even", "even-few"), (Spread::Skewed, "skewed", "skewed-few")]
    {
        world.topic(of_all, args.partitions, args.records, VALUE_BYTES, spread).await?;
        world.topic(of_few, args.partitions, few, VALUE_BYTES, spread).await?;
    }
    let per_partition = args.concurrency / usize::try_from(args.partitions)?;
    let mut times: [[Vec<f64>; 2]; 3] = Default::default();
    for _round in 0..args.rounds {
        for (index, (all, few)) in [("even", "even-few"), ("skewed", "skewed-few")].into_iter().enumerate() {
            times[0][index].push(job(&mut world, &args, all).await?);
            times[1][index].push(group::run(&world.client, all, args.work, per_partition).await?);
            times[2][index].push(group::run(&world.client, few, args.work, 1).await?);
        }
    }
    let what = [
        ("job", args.records, args.concurrency),
        ("assigned partitions, in order", args.records, per_partition),
        ("assigned partitions, one at a time", few, 1),
    ];
    for ([even, skewed], (what, records, concurrency)) in times.into_iter().zip(what) {
        let ratios = even.iter().zip(&skewed).map(|(even, skewed)| skewed / even).collect();
        let line = json!({
            "name": "calls-skew", "what": what, "records": records, "concurrency": concurrency,
            "even_seconds": median(even), "skewed_seconds": median(skewed), "ratio": median(ratios),
        });
        println!("{line}");
    }
    world.end().await;
    Ok(())
}

/// Seconds from the start of the job to its last commit.
async fn job(world: &mut World, args: &SkewArgs, topic: &str) -> anyhow::Result<f64> {
    let run = Run {
        partitions: args.partitions,
        work: args.work,
        concurrency: args.concurrency,
        subtasks: args.subtasks,
        locks: args.locks,
        interval: Duration::from_millis(100),
    };
    let clock = world.env.clock.clone();
    let running = Running::start(world, topic, run).await?;
    let begin = clock.now();
    while running.control.status().borrow().records_in < args.records {
        running.check()?;
        clock.sleep(LOOK).await;
    }
    let seconds = clock.now().duration_since(begin).as_secs_f64();
    running.drain().await?;
    Ok(seconds)
}
