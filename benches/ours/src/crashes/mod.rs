//! Jobs that are killed again and again, in processes of their own, on one broker: is anything lost, doubled or torn?
//!
//! ```text
//! crashes (this process)            broker (process)      worker (process, one after another, for each kind of job)
//!   sends records piece by piece --------> log <------------- runs the job, dies at step or moment k
//!   ... until every death has happened, then a worker that may finish ...
//!   reads output and state, and compares them with what it sent
//! ```
//!
//! All kinds run side by side. `sharestream demo --crashes` does the same with a job file, SQL and `verify`.

mod check;
mod line;
mod plan;
mod replicas;

use clap::Args;
use serde_json::{Value, json};
use sharestream_base::Env;
use sharestream_core::commit::CommitStep;
use sharestream_kafka::AckModeChoice;

use self::line::{Kind, Outcome, Rounds, step_word};
use crate::place::Place;
use crate::report::{print, rounded};

/// `crashes`.
#[derive(Args)]
pub(crate) struct CrashesArgs {
    /// How often each job is killed: at every step once, at one random moment, and so on
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stateless,stateful,replicas")]
    kinds: Vec<Kind>,
    /// Seed of the moments of death
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Acknowledgement mode
    #[arg(long, default_value = "transactional", value_parser = crate::mode)]
    mode: AckModeChoice,
    /// Only these steps (and random moments)
    #[arg(long, value_delimiter = ',', value_parser = parse_step)]
    steps: Vec<CommitStep>,
    /// Use these brokers and not an embedded one
    #[arg(long, value_name = "HOST:PORT,...")]
    brokers: Option<String>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// Columns of the table.
const COLUMNS: [&str; 10] = [
    "kind",
    "mode",
    "rounds",
    "records",
    "lost",
    "doubled",
    "torn",
    "open_transactions",
    "seconds",
    "seconds_per_round",
];

/// Runs everything and prints; an error when something was lost, doubled or torn.
pub(crate) async fn run(env: Env, args: CrashesArgs) -> anyhow::Result<()> {
    let place = Place::open(&env, args.brokers.as_deref()).await?;
    let folder = tempfile::Builder::new().prefix("sharestream-crashes-").tempdir()?;
    let steps = if args.steps.is_empty() { steps_of(args.mode) } else { args.steps.clone() };
    let rounds = Rounds { count: args.rounds, seed: args.seed, mode: args.mode, steps };
    let lines = args.kinds.iter().map(|kind| line::run(&place, *kind, &rounds, folder.path()));
    let outcomes = futures::future::try_join_all(lines).await?;
    let rows: Vec<Value> =
        args.kinds.iter().zip(&outcomes).map(|(kind, outcome)| row(*kind, &rounds, outcome)).collect();
    print(&rows, &COLUMNS, args.json);
    if !args.json {
        print_steps(&args.kinds, &outcomes);
    }
    place.close().await?;
    anyhow::ensure!(outcomes.iter().all(Outcome::is_right), "something was lost, doubled or torn");
    Ok(())
}

fn row(kind: Kind, rounds: &Rounds, outcome: &Outcome) -> Value {
    json!({
        "name": "crashes", "kind": kind.word(), "mode": rounds.mode, "seed": rounds.seed, "rounds": rounds.count,
        "records": outcome.records, "lost": outcome.lost, "doubled": outcome.doubled, "torn": outcome.torn,
        "open_transactions": outcome.open_transactions, "seconds": rounded(outcome.seconds, 1),
        "seconds_per_round": rounded(outcome.seconds / f64::from(rounds.count.max(1)), 2),
        "by_step": outcome.by_step,
    })
}

/// Rounds by the step at which they ended.
fn print_steps(kinds: &[Kind], outcomes: &[Outcome]) {
    let mut steps: Vec<&String> = outcomes.iter().flat_map(|outcome| outcome.by_step.keys()).collect();
    steps.sort();
    steps.dedup();
    let of_step = |step: &String| {
        let counts = kinds.iter().zip(outcomes).map(|(kind, outcome)| {
            (kind.word().to_owned(), outcome.by_step.get(step).copied().unwrap_or(0).into())
        });
        Value::Object([("step".to_owned(), step.clone().into())].into_iter().chain(counts).collect())
    };
    let rows: Vec<Value> = steps.into_iter().map(of_step).collect();
    let columns: Vec<&str> = ["step"].into_iter().chain(kinds.iter().map(|kind| kind.word())).collect();
    print(&rows, &columns, false);
}

/// The steps that a mode has: where nothing is staged, nothing comes between two staged leaders.
fn steps_of(mode: AckModeChoice) -> Vec<CommitStep> {
    let is_there =
        |step: &CommitStep| *step != CommitStep::BetweenStagedLeaders || mode == AckModeChoice::Transactional;
    CommitStep::ALL.into_iter().filter(is_there).collect()
}

fn parse_step(word: &str) -> Result<CommitStep, String> {
    let found = CommitStep::ALL.into_iter().find(|step| step_word(*step) == word);
    found.ok_or_else(|| {
        let known: Vec<String> = CommitStep::ALL.into_iter().map(step_word).collect();
        format!("no step is called '{word}'; steps: {}", known.join(", "))
    })
}
