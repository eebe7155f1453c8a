//! `sharestream savepoint ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Overrides, parse_config};

/// `sharestream savepoint JOB.toml`, and what is done with savepoints that are there.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SavepointArgs {
    /// What to do instead of making one.
    #[command(subcommand)]
    pub(crate) command: Option<SavepointCommand>,
    /// What to make one of.
    #[command(flatten)]
    pub(crate) take: SavepointTakeArgs,
}

/// The making of a savepoint.
#[derive(Debug, Args)]
pub(crate) struct SavepointTakeArgs {
    /// Job file; the job may run or not
    #[arg(value_name = "JOB.toml", required = true)]
    pub(crate) job: Option<PathBuf>,
    /// Keep it there, in a folder of its own, and not in the job's checkpoint store: a folder, s3://, gs:// or az://
    #[arg(long, value_name = "LOCATION")]
    pub(crate) to: Option<String>,
    /// Option of that place, such as region=eu-central-1; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_config, requires = "to")]
    pub(crate) to_option: Vec<(String, String)>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead of the job file.
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// `sharestream savepoint list|show|verify|delete`.
#[derive(Debug, Subcommand)]
pub(crate) enum SavepointCommand {
    /// List the savepoints in a job's checkpoint store, or in any place
    List(SavepointListArgs),
    /// Show one: where the group stood in each source partition, and the state
    Show(SavepointOneArgs),
    /// Check the hashes of everything that one holds
    Verify(SavepointOneArgs),
    /// Delete one, for good
    Delete(SavepointOneArgs),
}

/// `sharestream savepoint list`.
#[derive(Debug, Args)]
pub(crate) struct SavepointListArgs {
    /// Job file: the savepoints in its store
    #[arg(value_name = "JOB.toml", required_unless_present = "place")]
    pub(crate) job: Option<PathBuf>,
    /// The savepoints in this place
    #[arg(long = "in", value_name = "LOCATION", conflicts_with = "job", id = "place")]
    pub(crate) place: Option<String>,
    /// Option of that place; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_config, requires = "place")]
    pub(crate) option: Vec<(String, String)>,
    /// One JSON object per savepoint
    #[arg(long)]
    pub(crate) json: bool,
}

/// One savepoint.
#[derive(Debug, Args)]
pub(crate) struct SavepointOneArgs {
    /// Where it lies, as `savepoint` printed it; or its name, with --of
    #[arg(value_name = "SAVEPOINT")]
    pub(crate) savepoint: String,
    /// Job file, in whose store a savepoint of that name is
    #[arg(long, value_name = "JOB.toml")]
    pub(crate) of: Option<PathBuf>,
    /// Option of the place; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_config)]
    pub(crate) option: Vec<(String, String)>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
