//! `sharestream run --role`: one job in three processes.

use clap::{Args, ValueEnum};
use sharestream_base::HostPort;

/// Which of the three this process is, and where the others are.
///
/// Connections between the three are plain TCP without authentication: keep them in a network where everybody is trusted
/// (docs/processes.md).
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProcessArgs {
    /// Run the job as three processes, of which this is one: start one of each role, with the same job file. They speak
    /// plain TCP without authentication, for a trusted network
    #[arg(long, value_enum)]
    pub(crate) role: Option<RunRole>,
    /// Where a coordinator takes workers, or a sinks worker takes rows; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", requires = "role")]
    pub(crate) listen: Option<HostPort>,
    /// Where the coordinator is (roles sources and sinks)
    #[arg(long, value_name = "HOST:PORT", requires = "role")]
    pub(crate) coordinator: Option<HostPort>,
    /// Host by which the sources worker reaches the sinks worker, if it is not that of --listen
    #[arg(long, value_name = "HOST", requires = "role")]
    pub(crate) advertise: Option<String>,
    /// How long a worker tries without a coordinator before it ends
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) coordinator_wait: u64,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunRole {
    /// Sends barriers and commits
    Coordinator,
    /// Acquires records and transforms them
    Sources,
    /// Writes to the output topic
    Sinks,
}
