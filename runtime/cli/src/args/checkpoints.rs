//! `sharestream checkpoint ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sharestream_base::HostPort;

use super::BROKERS_VARIABLE;
use crate::properties::CommandConfig;

/// `sharestream checkpoint ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List the checkpoints that are stored of a job
    List(CheckpointListArgs),
    /// Show one: its manifest, and what it decided in each source partition
    Show(CheckpointShowArgs),
    /// Check hashes, predecessors and owners, and against the outcome topic what is committed; changes nothing
    Verify(Box<CheckpointVerifyArgs>),
    /// Delete checkpoints that nobody needs
    Delete(CheckpointDeleteArgs),
}

/// Whose checkpoints.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Job file, which says where the store is and whose it is
    #[arg(value_name = "JOB.toml", conflicts_with_all = ["store", "store_option", "name"])]
    pub(crate) job: Option<PathBuf>,
    /// Where the store is, without a job file: a folder, file:///, s3://, gs:// or az://
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Option of the store, such as endpoint=http://127.0.0.1:9000; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::parse_config, requires = "store")]
    pub(crate) store_option: Vec<(String, String)>,
    /// Job that the store must belong to; without it, the one that it belongs to
    #[arg(long = "job", value_name = "NAME", id = "name", requires = "store")]
    pub(crate) name: Option<String>,
    /// Instance of the job; without it that of the job file, or main
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,
}

/// `sharestream checkpoint list`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointListArgs {
    /// Whose checkpoints.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// One JSON object per checkpoint
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream checkpoint show`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointShowArgs {
    /// Whose checkpoints.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Its id; without it the last completed one
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream checkpoint verify`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointVerifyArgs {
    /// Whose checkpoints.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Check against the outcome topic there; without it at the brokers of the job file, if there is one
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = BROKERS_VARIABLE)]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
    /// Share group of the job; needed for the outcome topic where there is no job file
    #[arg(long, value_name = "GROUP", conflicts_with = "job")]
    pub(crate) group: Option<String>,
    /// Outcome topic of the job, where there is no job file
    #[arg(long, value_name = "TOPIC", conflicts_with = "job")]
    pub(crate) outcome_topic: Option<String>,
    /// Look at the store alone
    #[arg(long, conflicts_with_all = ["brokers", "group", "outcome_topic"])]
    pub(crate) store_only: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream checkpoint delete`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointDeleteArgs {
    /// Whose checkpoints.
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Its id; may be repeated
    #[arg(long = "id", value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    /// Also what a start of the job needs
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would go and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// One JSON object per checkpoint
    #[arg(long)]
    pub(crate) json: bool,
}
