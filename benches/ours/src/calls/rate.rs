//! The rate beside its bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sharestream_base::Env;
use sharestream_core::BoundBy;

use super::job::{Run, Running};
use crate::report::{median, milliseconds};
use crate::world::{Spread, World};

/// `calls rate`.
#[derive(Args)]
pub(crate) struct RateArgs {
    /// Milliseconds of work for each record
    #[arg(long, value_delimiter = ',', default_value = "1,5,50", value_parser = milliseconds)]
    work: Vec<Duration>,
    /// Calls at once, over all subtasks
    #[arg(long, value_delimiter = ',', default_value = "32,256,1024")]
    concurrency: Vec<usize>,
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Subtasks that the calls are shared between
    #[arg(long, default_value_t = 1)]
    subtasks: usize,
    /// Locks of a partition
    #[arg(long, default_value_t = 4_000)]
    locks: u64,
    /// Records in the topic
    #[arg(long, default_value_t = 2_500_000)]
    records: u64,
    /// Longest time between two checkpoints
    #[arg(long, default_value = "100", value_parser = milliseconds)]
    interval: Duration,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds that are measured
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// What one run came to.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    /// Seconds of a call.
    work: f64,
    /// Records a second that the lock windows allow.
    window: f64,
    bound_by: &'static str,
    commit_ms: f64,
}

/// So long after the first commit the clock starts.
const WARM_UP: Duration = Duration::from_millis(700);
/// Length of a value.
const VALUE_BYTES: usize = 16;
/// Between two looks at the status.
const LOOK: Duration = Duration::from_millis(20);

/// Measures and prints.
pub(super) async fn run(env: Env, args: RateArgs) -> anyhow::Result<()> {
    let mut world = World::start(env, None).await?;
    world.topic("numbers", args.partitions, args.records, VALUE_BYTES, Spread::Even).await?;
    for concurrency in &args.concurrency {
        // Each cell has the job's own rate beside it, taken in the same round: the machine has other users.
        let mut cells: BTreeMap<Duration, Vec<(Measured, f64)>> = BTreeMap::new();
        for _round in 0..args.rounds {
            let idle = one(&mut world, &args, Duration::ZERO, *concurrency).await?.rate;
            for work in &args.work {
                let measured = one(&mut world, &args, *work, *concurrency).await?;
                cells.entry(*work).or_default().push((measured, idle));
            }
        }
        for (work, rounds) in cells {
            report(work, *concurrency, &rounds);
        }
    }
    world.end().await;
    Ok(())
}

fn report(work: Duration, concurrency: usize, rounds: &[(Measured, f64)]) {
    let of = |value: &dyn Fn(&(Measured, f64)) -> f64| median(rounds.iter().map(value).collect());
    let ideal = |measured: &Measured| concurrency as f64 / measured.work;
    let least = |(measured, idle): &(Measured, f64)| ideal(measured).min(measured.window).min(*idle);
    let bounds: Vec<&str> = rounds.iter().map(|(measured, _)| measured.bound_by).collect();
    let line = json!({
        "name": "calls-rate", "work_ms": work.as_secs_f64() * 1e3, "concurrency": concurrency,
        "rate": of(&|(measured, _)| measured.rate).round(),
        "part_of_least_bound": (of(&|round| round.0.rate / least(round)) * 1e3).round() / 1e3,
        "measured_work_ms": (of(&|(measured, _)| measured.work) * 1e5).round() / 1e2,
        "ideal": of(&|(measured, _)| ideal(measured)).round(),
        "lock_window": of(&|(measured, _)| measured.window).round(),
        "without_work": of(&|(_, idle)| *idle).round(),
        "bound_by": bounds,
        "commit_ms": (of(&|(measured, _)| measured.commit_ms) * 1e2).round() / 1e2,
        "rates": rounds.iter().map(|(measured, _)| measured.rate.round()).collect::<Vec<_>>(),
    });
    println!("{line}");
}

async fn one(
    world: &mut World,
    args: &RateArgs,
    work: Duration,
    concurrency: usize,
) -> anyhow::Result<Measured> {
    let clock = world.env.clock.clone();
    let run = Run {
        partitions: args.partitions,
        work,
        concurrency,
        subtasks: args.subtasks,
        locks: args.locks,
        interval: args.interval,
    };
    let running = Running::start(world, "numbers", run).await?;
    while running.control.status().borrow().commits == 0 {
        running.check()?;
        clock.sleep(LOOK).await;
    }
    clock.sleep(WARM_UP).await;
    let (begin, before) = (clock.now(), running.control.snapshot());
    let (calls_before, seconds_before) = running.work.totals();
    let end = begin + Duration::from_secs(args.seconds);
    let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
    // What is left when the topic runs out is not measured.
    let enough = args.records * 9 / 10;
    while clock.now() < end && running.control.status().borrow().records_in < enough {
        running.check()?;
        clock.sleep(LOOK).await;
        let bound_by = running.control.status().borrow().bound_by;
        *seen.entry(name(bound_by)).or_default() += 1;
    }
    let (after, took) = (running.control.snapshot(), clock.now().duration_since(begin).as_secs_f64());
    let (calls, seconds) = running.work.totals();
    running.drain().await?;
    let work = (seconds - seconds_before) / (calls - calls_before).max(1) as f64;
    let epoch = took / (after.commits - before.commits).max(1) as f64;
    // A record is locked while it is worked on, while its epoch is open, and while that commits.
    let held = work + epoch / 2.0 + (after.barrier_ms.p50 + after.commit_ms.p50) / 1e3;
    let bound_by = seen.into_iter().max_by_key(|(_, times)| *times).map_or("", |(bound, _)| bound);
    Ok(Measured {
        rate: (after.records_in - before.records_in) as f64 / took,
        work,
        window: args.locks as f64 * f64::from(args.partitions) / held,
        bound_by,
        commit_ms: after.commit_ms.p50,
    })
}

fn name(bound: Option<BoundBy>) -> &'static str {
    match bound {
        Some(BoundBy::Concurrency) => "concurrency",
        Some(BoundBy::LockWindow) => "lock window",
        Some(BoundBy::Source) => "source",
        Some(BoundBy::Circuit) => "circuit",
        Some(_) => "other",
        None => "the job itself",
    }
}
