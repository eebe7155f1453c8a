//! Measures what `sharestream run` cannot measure of itself: a share consumer without a job, the time from a producer to
//! a read-committed reader behind a running job, whole jobs side by side, several processes of one job, and the embedded
//! broker. Commands print JSON objects, one a line; those that have `--json` print a table without it. `crashes` kills
//! jobs and looks whether they are still right.

mod calls;
mod consume;
mod crashes;
mod jobs;
mod latency;
mod load;
mod place;
mod process;
mod replicas;
mod report;
mod serve;
mod shape;
mod visible;
mod worker;
mod world;

use clap::{Args, Parser, Subcommand};
use sharestream_base::Env;
use sharestream_client::{Client, ClientConfig};
use sharestream_kafka::AckModeChoice;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Slow work for each record, by a whole job on an embedded broker in this process
    Calls(calls::CallsArgs),
    /// Several share consumers take and acknowledge records; nothing else
    Consume(consume::ConsumeArgs),
    /// Kill jobs at every step of a commit and at random moments, again and again, and check that they are still right
    Crashes(crashes::CrashesArgs),
    /// Throughput exactly once beside at least once, by jobs in this process
    Guarantee(jobs::GuaranteeArgs),
    /// Time from a producer at a steady rate, through a job that runs elsewhere, to a read-committed reader
    Latency(latency::LatencyArgs),
    /// Write records without end, as fast as wanted
    Load(load::LoadArgs),
    /// A job with two epochs open at a time beside the same with one
    Pipeline(jobs::PipelineArgs),
    /// One job in several processes that share its group
    Replicas(replicas::ReplicasArgs),
    /// Embedded broker in memory, until it is told to end
    Broker(serve::ServeArgs),
    /// Price of the check of a message against its shape (ADR 0017), beside its decoding
    Shape,
    /// Time from EndTxn to everybody's eyes, for transactions of one record and one staged range
    Visible(visible::VisibleArgs),
    /// A job of other commands, in a process of its own
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

/// Where the brokers are.
#[derive(Args, Clone)]
struct Brokers {
    /// Bootstrap brokers
    #[arg(long, value_name = "HOST:PORT,...")]
    brokers: String,
}

impl Brokers {
    async fn connect(&self, env: &Env) -> anyhow::Result<Client> {
        Ok(Client::connect(env.clone(), ClientConfig::with_bootstrap(&self.brokers)?).await?)
    }
}

/// An acknowledgement mode by its word in job files.
fn mode(word: &str) -> Result<AckModeChoice, String> {
    serde_json::from_value(word.into()).map_err(|error| error.to_string())
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(Env::system(), Cli::parse().command));
    // A thread that still reads standard input must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn run(env: Env, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Calls(args) => Box::pin(calls::run(env, args)).await,
        Command::Consume(args) => Box::pin(consume::run(env, args)).await,
        Command::Crashes(args) => Box::pin(crashes::run(env, args)).await,
        Command::Guarantee(args) => Box::pin(jobs::guarantee(env, args)).await,
        Command::Latency(args) => Box::pin(latency::run(env, args)).await,
        Command::Load(args) => Box::pin(load::run(env, args)).await,
        Command::Pipeline(args) => Box::pin(jobs::pipeline(env, args)).await,
        Command::Replicas(args) => Box::pin(replicas::run(env, args)).await,
        Command::Broker(args) => Box::pin(serve::run(env, args)).await,
        Command::Shape => shape::run(&env),
        Command::Visible(args) => Box::pin(visible::run(env, args)).await,
        Command::Worker(args) => Box::pin(worker::run(env, args)).await,
    }
}
