//! The sharestream command: run, check and show jobs; small tools around them.
//!
//! ```text
//! args --> commands/<command> --> job_file, settings, transform --> the runtime
//!                            \--> verify (facts, check, report), demo (plan, processes, table)
//! ```

mod args;
mod commands;
mod demo;
mod exit;
mod failure;
mod group_offsets;
mod job_file;
mod metrics;
mod output;
mod properties;
mod registry;
mod settings;
mod signals;
mod transform;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use sharestream_base::Env;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, LogFormat};
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.verbose, cli.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the async runtime: {error}");
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(run(cli.command));
    // A thread that still reads standard input must not hold up the end.
    runtime.shutdown_background();
    exit.into()
}

async fn run(command: Command) -> Exit {
    let env = Env::system();
    let result = match command {
        Command::Run(args) => Box::pin(commands::run::run(env, args)).await,
        Command::Demo(args) => Box::pin(demo::run(env, args)).await,
        Command::Check(args) => Box::pin(commands::check::run(env, args)).await,
        Command::Verify(args) => Box::pin(commands::verify::run(env, args)).await,
        Command::Broker(args) => Box::pin(commands::broker::run(env, args)).await,
        Command::Topic(command) => Box::pin(commands::topic::run(env, command)).await,
        Command::Produce(args) => Box::pin(commands::produce::run(env, args)).await,
        Command::Read(args) => Box::pin(commands::read::run(env, args)).await,
        Command::Group(command) => Box::pin(commands::group::run(env, command)).await,
        Command::Transactions(command) => Box::pin(commands::transactions::run(env, command)).await,
        Command::Checkpoint(command) => Box::pin(commands::checkpoint::run(env, command)).await,
        Command::Savepoint(args) => Box::pin(commands::savepoint::run(env, *args)).await,
        Command::DeadLetter(command) => Box::pin(commands::dead_letter::run(env, command)).await,
    };
    match result {
        Ok(exit) => exit,
        Err(error) => {
            let failure = failure::judge(&error);
            failure::print(&failure);
            failure.exit
        }
    }
}

/// Warnings by default; `-v` and `SHARESTREAM_LOG` show more. Logs go to standard error.
fn start_logging(verbose: u8, format: LogFormat) {
    let default = match verbose {
        0 => "error",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("SHARESTREAM_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // It fails where a subscriber is set already, and none is set before this.
    let _ = match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
