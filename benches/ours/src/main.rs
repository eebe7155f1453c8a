//! Measures what `sharestream run` cannot measure of itself: a share consumer without a job, the time from a producer to
//! a read-committed reader behind a running job, and the embedded broker. Each command prints one JSON object.

mod calls;
mod consume;
mod latency;
mod load;
mod serve;
mod shape;
mod visible;

use clap::{Args, Parser, Subcommand};
use sharestream_base::Env;
use sharestream_client::{Client, ClientConfig};

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
    /// Time from a producer at a steady rate, through a job that runs elsewhere, to a read-committed reader
    Latency(latency::LatencyArgs),
    /// Write records without end, as fast as wanted
    Load(load::LoadArgs),
    /// Embedded broker in memory, until it is told to end
    Broker(serve::ServeArgs),
    /// Price of the check of a message against its shape (ADR 0017), beside its decoding
    Shape,
    /// Time from EndTxn to everybody's eyes, for transactions of one record and one staged range
    Visible(visible::VisibleArgs),
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let env = Env::system();
    match Cli::parse().command {
        Command::Calls(args) => Box::pin(calls::run(env, args)).await,
        Command::Consume(args) => Box::pin(consume::run(env, args)).await,
        Command::Latency(args) => Box::pin(latency::run(env, args)).await,
        Command::Load(args) => Box::pin(load::run(env, args)).await,
        Command::Broker(args) => Box::pin(serve::run(env, args)).await,
        Command::Shape => shape::run(&env),
        Command::Visible(args) => Box::pin(visible::run(env, args)).await,
    }
}
