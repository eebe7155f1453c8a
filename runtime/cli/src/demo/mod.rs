//! `sharestream demo`: the flights job, killed again and again, and still right.
//!
//! ```text
//! demo (this process)          broker (process or cluster)     worker (process, one after another)
//!   loads a slice of the flights ------> log
//!   starts a worker --------------------------------------------> runs the job, dies at step or moment k
//!   ... until every death has happened, then the rest of the flights and a worker that may finish ...
//!   verify: reads topics and share state, recomputes the SQL, prints one table
//! ```

mod display;
mod flights;
mod place;
mod plan;
mod process;
mod report;
mod worker;

use std::time::Duration;

use anyhow::{Context, bail};
use sharestream_base::Env;
use sharestream_client::{Producer, WriterConfig};

use self::display::Display;
use self::flights::Flights;
use self::place::Place;
use self::plan::Death;
use self::report::DemoReport;
use self::worker::{Outcome, Workers};
use crate::args::{DemoArgs, step_name};
use crate::commands::verify::SETTLE_MAX;
use crate::exit::Exit;
use crate::output::{self, Style};
use crate::signals::StopSignals;
use crate::verify;

/// Longest wait for the share group on somebody's cluster to be empty: a killed worker stays its member for a session, by
/// default 45 s.
const GROUP_WAIT_MAX: Duration = Duration::from_secs(90);
/// Pieces in which a slice is loaded while a worker runs.
const PIECES: usize = 12;
/// Violations that the table is followed by.
const VIOLATIONS_SHOWN: usize = 5;
/// Pause between two pieces: about the checkpoint interval of the job, so that a worker makes several commits.
const PIECE_PAUSE: Duration = Duration::from_millis(40);

/// Runs the demo. Exit: right, or not.
pub(crate) async fn run(env: Env, args: DemoArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    let place = tokio::select! {
        place = Box::pin(Place::open(&env, &args)) => place?,
        () = signals.next() => return Ok(Exit::Interrupted),
    };
    let clock = env.clock.clone();
    let result = tokio::select! {
        exit = Box::pin(demo(env, &args, &place)) => exit,
        // Dropping the demo kills its workers.
        () = signals.next() => Ok(Exit::Interrupted),
    };
    // After a failure too: what was made on somebody's cluster does not stay.
    let group_wait = match &result {
        Ok(Exit::Interrupted) => Duration::ZERO,
        Ok(_) | Err(_) => GROUP_WAIT_MAX,
    };
    let closed = place.close(args.keep, &clock, group_wait, signals.next()).await;
    let exit = result?;
    if let Some(left) = closed? {
        eprintln!("{left}");
    }
    Ok(exit)
}

async fn demo(env: Env, args: &DemoArgs, place: &Place) -> anyhow::Result<Exit> {
    let seed = args.seed.unwrap_or_else(|| env.rng.next_u64() % 1_000_000);
    let mut flights = Flights::unpack(args.records)?;
    let total = flights.left();
    let mut display = Display::new(Style::choose(args.json), total as u64);
    let folder = tempfile::Builder::new().prefix("sharestream-demo-").tempdir()?;
    display.say(&format!(
        "broker on {}; {} flights, {} crashes, {}, seed {seed}",
        place.addresses,
        output::thousands(total as u64),
        args.crashes,
        place.mode.word()
    ));
    let job = place.write_job(folder.path())?;
    place.create_topics(&job).await?;
    let mut producer = Producer::connect(place.client.clone(), WriterConfig::default()).await?;
    let deaths = plan::deaths(seed, args.crashes, &plan::steps_of(place.mode), args.crash_at);
    let slice = total / 2 / deaths.len().max(1);
    if deaths.is_empty() {
        let everything = flights.left();
        flights.load(&mut producer, &job.source.topics[0], everything).await?;
    }
    let mut workers = Workers::new(&env.clock, place, folder.path());
    for (index, death) in deaths.iter().enumerate() {
        let load = load_in_pieces(&env, &mut flights, &mut producer, &job.source.topics[0], slice);
        let outcome = workers.run_until_death(*death, load, &mut display).await?;
        display.say(&format!("crash {}/{}: {}", index + 1, deaths.len(), told(outcome, *death)));
    }
    let rest = flights.left();
    flights.load(&mut producer, &job.source.topics[0], rest).await?;
    workers.finish(&mut display).await?;
    display.say("checking");
    let found =
        verify::verify(&place.client, &job, None, SETTLE_MAX).await.context("the check could not be made")?;
    display.finish();
    let mut report = DemoReport::checked(place.mode.word(), seed, &found);
    workers.complete(&mut report);
    if report.records_in + report.remaining != total as u64 {
        bail!("{} flights were loaded, but the check saw {}", total, report.records_in + report.remaining);
    }
    show(&report, &found, args.json)
}

/// A death in words.
fn told(outcome: Outcome, death: Death) -> String {
    match (outcome, death) {
        (Outcome::DiedAtStep { checkpoint }, Death::AtStep { step, .. }) => {
            format!("killed {} (checkpoint {checkpoint})", step_name(step))
        }
        (Outcome::NeverReached, Death::AtStep { step, .. }) => {
            format!("{} was not reached, killed anyway", step_name(step))
        }
        (_, Death::After(life)) => format!("killed {} ms after its start", life.as_millis()),
        (Outcome::DiedAtRandom, Death::AtStep { .. }) => "killed".to_owned(),
    }
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
