//! `sharestream check`.

use std::path::PathBuf;

use clap::Args;

use super::Overrides;

/// `sharestream check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Job file
    #[arg(value_name = "JOB.toml")]
    pub(crate) job: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead of the job file.
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}
