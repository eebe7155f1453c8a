//! Slow work for each record: a whole job, exactly once, on an embedded broker in this process. The work is a sleep.
//!
//! `rate`: for each work time and concurrency the measured rate beside its bounds (concurrency by measured work time,
//! the lock windows, the same job without work). `skew`: how much longer the same records take when four fifths of them
//! are in one partition, beside a loop that owns its partitions as a member of a consumer group does.

mod group;
mod job;
mod rate;
mod skew;

use clap::{Args, Subcommand};
use sharestream_base::Env;

/// `calls`.
#[derive(Args)]
pub(crate) struct CallsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The rate beside its bounds
    Rate(rate::RateArgs),
    /// The price of skew, beside a consumer-group style loop
    Skew(skew::SkewArgs),
}

/// Measures and prints: one JSON object a line.
pub(crate) async fn run(env: Env, args: CallsArgs) -> anyhow::Result<()> {
    match args.what {
        What::Rate(args) => rate::run(env, args).await,
        What::Skew(args) => skew::run(env, args).await,
    }
}
