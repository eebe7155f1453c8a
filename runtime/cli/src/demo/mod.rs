//! `sharestream demo`: the flights job, killed again and again, and still right.
//!
//! ```text
//! demo (this process)                broker (process)          worker (process, one after another)
//!   loads a slice of the flights ------> log
//!   starts a worker --------------------------------------------> runs the job, dies at step or moment k
//!   ... until every death has happened, then the rest of the flights and a worker that may finish ...
//!   verify: reads topics and share state, recomputes the SQL, prints one table
//! ```

mod display;
mod flights;
mod plan;
mod process;
mod report;
mod worker;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use sharestream_base::{Env, HostPort};
use sharestream_client::{Client, NewTopic, Producer, WriterConfig};

use self::display::Display;
use self::flights::Flights;
use self::plan::Death;
use self::process::Process;
use self::report::DemoReport;
use self::worker::{Outcome, Workers};
use crate::args::{DemoArgs, Overrides, step_name};
use crate::commands::topic::client_config;
use crate::commands::verify::SETTLE_MAX;
use crate::exit::Exit;
use crate::job_file::{self, JobFile};
use crate::output::{self, Style};
use crate::settings;
use crate::signals::StopSignals;
use crate::verify;

/// Partitions of every topic of the demo.
const PARTITIONS: i32 = 8;
/// Pieces in which a slice is loaded while a worker runs.
const PIECES: usize = 12;
/// Violations that the table is followed by.
const VIOLATIONS_SHOWN: usize = 5;
/// Pause between two pieces: about the checkpoint interval of the job, so that a worker makes several commits.
const PIECE_PAUSE: Duration = Duration::from_millis(40);

/// Runs the demo. Exit: right, or not.
pub(crate) async fn run(env: Env, args: DemoArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    tokio::select! {
        exit = Box::pin(demo(env, args)) => exit,
        // Dropping the demo kills its children.
        () = signals.next() => Ok(Exit::Interrupted),
    }
}

async fn demo(env: Env, args: DemoArgs) -> anyhow::Result<Exit> {
    let seed = args.seed.unwrap_or_else(|| env.rng.next_u64() % 1_000_000);
    let mut flights = Flights::unpack(args.records)?;
    let total = flights.left();
    let mut display = Display::new(Style::choose(args.json), total as u64);
    let folder = tempfile::Builder::new().prefix("sharestream-demo-").tempdir()?;
    let (broker, address) = start_broker().await?;
    display.say(&format!(
        "broker on {address}; {} flights, {} crashes, {}, seed {seed}",
        output::thousands(total as u64),
        args.crashes,
        args.mode.word()
    ));
    let job = write_job(folder.path(), &address, &args)?;
    let client = Client::connect(env.clone(), client_config(std::slice::from_ref(&address))).await?;
    let topics = [&job.source.topics[0], &job.sink.topic].into_iter().chain(&job.dead_letter_topic);
    for topic in topics {
        client.admin().create_topic(NewTopic::new(topic, PARTITIONS)).await?;
    }
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await?;
    let deaths = plan::deaths(seed, args.crashes, &plan::steps_of(args.mode), args.crash_at);
    let slice = total / 2 / deaths.len().max(1);
    if deaths.is_empty() {
        let everything = flights.left();
        flights.load(&mut producer, &job.source.topics[0], everything).await?;
    }
    let mut workers = Workers::new(&env.clock, &job, &args, folder.path());
    for (index, death) in deaths.iter().enumerate() {
        let load = load_in_pieces(&env, &mut flights, &mut producer, &job.source.topics[0], slice);
        let outcome = workers.run_until_death(*death, load, &mut display).await?;
        let number = format!("{}/{}", index + 1, deaths.len());
        display.say(&match (outcome, death) {
            (Outcome::DiedAtStep { checkpoint }, Death::AtStep { step, .. }) => {
                format!("crash {number}: killed {} (checkpoint {checkpoint})", step_name(*step))
            }
            (Outcome::NeverReached, Death::AtStep { step, .. }) => {
                format!("crash {number}: {} was not reached, killed anyway", step_name(*step))
            }
            (_, Death::After(life)) => {
                format!("crash {number}: killed {} ms after its start", life.as_millis())
            }
            (Outcome::DiedAtRandom, Death::AtStep { .. }) => format!("crash {number}: killed"),
        });
    }
    let rest = flights.left();
    flights.load(&mut producer, &job.source.topics[0], rest).await?;
    workers.finish(&mut display).await?;
    display.say("checking");
    let found = verify::verify(&client, &job, SETTLE_MAX).await.context("the check could not be made")?;
    display.finish();
    broker.kill().await?;
    let mut report = DemoReport::checked(args.mode.word(), seed, &found);
    workers.complete(&mut report);
    if report.records_in + report.remaining != total as u64 {
        bail!("{} flights were loaded, but the check saw {}", total, report.records_in + report.remaining);
    }
    show(&report, &found, args.json)
}

fn show(report: &DemoReport, found: &verify::Report, json: bool) -> anyhow::Result<Exit> {
    if json {
        output::line(&serde_json::to_string(report)?);
    } else {
        output::line(&report.table());
        for note in &found.notes {
            output::line(&format!("note: {note}"));
        }
        for violation in report.violations.iter().take(VIOLATIONS_SHOWN) {
            output::line(violation);
        }
        let hidden = found.violation_count.saturating_sub(VIOLATIONS_SHOWN as u64);
        if hidden > 0 {
            output::line(&format!("... and {} more", output::thousands(hidden)));
        }
        output::line(&report.verdict());
    }
    Ok(if report.is_right() { Exit::Done } else { Exit::Failed })
}

async fn start_broker() -> anyhow::Result<(Process, HostPort)> {
    let arguments = ["broker", "--port", "0", "--json", "--with-parent"].map(str::to_owned);
    let mut broker = Process::start("broker", &arguments)?;
    let event = broker.event().await?;
    let address = event.get("bootstrap").and_then(Value::as_str).context("the broker gave no address")?;
    Ok((broker, address.parse()?))
}

/// Puts the example's job where the workers read it, and reads it as they will.
fn write_job(folder: &Path, address: &HostPort, args: &DemoArgs) -> anyhow::Result<JobFile> {
    let path = folder.join("job.toml");
    std::fs::write(&path, flights::JOB).with_context(|| format!("cannot write {}", path.display()))?;
    let mut job = job_file::load(&path)?;
    let overrides =
        Overrides { brokers: vec![address.clone()], mode: Some(args.mode), checkpoint_directory: None };
    settings::apply(&mut job, &overrides);
    Ok(job)
}

async fn load_in_pieces(
    env: &Env,
    flights: &mut Flights,
    producer: &mut Producer,
    topic: &str,
    count: usize,
) -> anyhow::Result<()> {
    let piece = count.div_ceil(PIECES);
    let mut left = count;
    while left > 0 {
        let now = piece.min(left);
        flights.load(producer, topic, now).await?;
        left -= now;
        env.clock.sleep(PIECE_PAUSE).await;
    }
    Ok(())
}
