//! `sharestream group ...` and `sharestream transactions ...`.

use std::path::PathBuf;
use std::str::FromStr;

use arrow_cast::parse::string_to_timestamp_nanos;
use clap::{Args, Subcommand};
use sharestream_base::HostPort;
use sharestream_base::ids::Offset;
use sharestream_client::ResetTo;

use super::{BROKERS_VARIABLE, Connection};
use crate::properties::CommandConfig;

/// `sharestream group ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List share groups
    List(GroupListArgs),
    /// Show a share group: state, members, and where it stands in each partition
    Describe(GroupDescribeArgs),
    /// Let a share group without members start anew, at the offsets that you say
    Reset(GroupResetArgs),
    /// Delete a share group without members, with everything it has decided
    Delete(GroupDeleteArgs),
    /// Take a share group without members back from transactional to ledger mode
    Ledger(GroupLedgerArgs),
}

/// `sharestream group list`.
#[derive(Debug, Args)]
pub(crate) struct GroupListArgs {
    /// One JSON object per group
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream group describe`.
#[derive(Debug, Args)]
pub(crate) struct GroupDescribeArgs {
    /// Share group
    pub(crate) group: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream group reset`.
#[derive(Debug, Args)]
pub(crate) struct GroupResetArgs {
    /// Share group; it must have no members
    pub(crate) group: String,
    /// Where to start: the first or behind the last record, an offset, or the first record from a moment on (UTC
    /// unless it names a zone, such as 2026-11-30T12:00:00+01:00)
    #[arg(long, value_name = "earliest|latest|OFFSET|DATETIME")]
    pub(crate) to: ResetTarget,
    /// Only this topic, with all its partitions; may be repeated. Without it, all that the group has read
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Outcome topic of the job, whose ledger has to know of the reset
    #[arg(long, value_name = "TOPIC", default_value = "sharestream.outcomes")]
    pub(crate) outcome_topic: String,
    /// Show what would change and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// One JSON object per partition
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream group delete`.
#[derive(Debug, Args)]
pub(crate) struct GroupDeleteArgs {
    /// Share group; it must have no members
    pub(crate) group: String,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream group ledger`.
#[derive(Debug, Args)]
pub(crate) struct GroupLedgerArgs {
    /// Share group; it must have no members
    pub(crate) group: String,
    /// Outcome topic of the job
    #[arg(long, value_name = "TOPIC", default_value = "sharestream.outcomes")]
    pub(crate) outcome_topic: String,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream transactions ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum TransactionsCommand {
    /// List the transactional ids of a job, and what is open under them
    List(TransactionsListArgs),
    /// End an open transaction and fence its producer, as a new producer with its id would (InitProducerId)
    Abort(TransactionsAbortArgs),
}

/// `sharestream transactions list`.
#[derive(Debug, Args)]
pub(crate) struct TransactionsListArgs {
    /// Whose transactions.
    #[command(flatten)]
    pub(crate) owner: Owner,
    /// Only those that are open
    #[arg(long)]
    pub(crate) open: bool,
    /// One JSON object per transactional id
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream transactions abort`.
#[derive(Debug, Args)]
pub(crate) struct TransactionsAbortArgs {
    /// Transactional id
    pub(crate) transactional_id: String,
    /// Whose transaction it must be.
    #[command(flatten)]
    pub(crate) owner: Owner,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose transactions a command may touch.
#[derive(Clone, Debug, Args)]
pub(crate) struct Owner {
    /// Only transactional ids of this job, any of its instances
    #[arg(value_name = "JOB.toml", required_unless_present = "any")]
    pub(crate) job: Option<PathBuf>,
    /// Those of anybody
    #[arg(long, conflicts_with = "job")]
    pub(crate) any: bool,
    /// Bootstrap brokers; without it those of the job file, or 127.0.0.1:9092
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = BROKERS_VARIABLE)]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
}

/// The word behind `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetTarget(pub(crate) ResetTo);

impl FromStr for ResetTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let target = match text {
            "earliest" => ResetTo::Earliest,
            "latest" => ResetTo::Latest,
            offset if offset.bytes().all(|byte| byte.is_ascii_digit()) => ResetTo::Offset(Offset(
                offset.parse().map_err(|_| format!("{offset} is too large an offset"))?,
            )),
            moment => match string_to_timestamp_nanos(moment) {
                Ok(nanos) => ResetTo::Timestamp(nanos.div_euclid(1_000_000)),
                Err(_) => {
                    return Err(
                        "use earliest, latest, an offset from 0, or a moment such as 2026-11-30T12:00:00"
                            .to_owned(),
                    );
                }
            },
        };
        Ok(ResetTarget(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_targets_are_words_offsets_and_moments() {
        let parse = |text: &str| text.parse::<ResetTarget>().map(|target| target.0);
        assert_eq!(parse("earliest"), Ok(ResetTo::Earliest));
        assert_eq!(parse("latest"), Ok(ResetTo::Latest));
        assert_eq!(parse("42"), Ok(ResetTo::Offset(Offset(42))));
        assert_eq!(parse("1970-01-02T00:00:00"), Ok(ResetTo::Timestamp(86_400_000)));
        assert_eq!(parse("1970-01-02T00:00:00.5+01:00"), Ok(ResetTo::Timestamp(82_800_500)));
        for wrong in ["-1", "tomorrow", "99999999999999999999", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
