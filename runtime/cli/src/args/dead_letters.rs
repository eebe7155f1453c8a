//! `sharestream dead-letter ...`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use arrow_cast::parse::string_to_timestamp_nanos;
use clap::{Args, Subcommand, ValueEnum};
use sharestream_base::HostPort;
use sharestream_base::ids::{Offset, PartitionIndex};

use super::BROKERS_VARIABLE;
use crate::properties::CommandConfig;

/// `sharestream dead-letter ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters, and count them by error
    List(ListArgs),
    /// Show one: its headers, key and value
    Show(ShowArgs),
    /// Put dead letters back into the topics that they came from, each at most once, in one transaction
    Replay(ReplayArgs),
}

/// Which dead letter topic.
#[derive(Clone, Debug, Args)]
pub(crate) struct LetterTopic {
    /// Job file, whose dead letter topic it is
    #[arg(value_name = "JOB.toml", required_unless_present = "topic")]
    pub(crate) job: Option<PathBuf>,
    /// The topic, without a job file
    #[arg(long, value_name = "TOPIC", conflicts_with = "job")]
    pub(crate) topic: Option<String>,
    /// Bootstrap brokers; without it those of the job file, or 127.0.0.1:9092
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = BROKERS_VARIABLE)]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
}

/// Which dead letters.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Chosen {
    /// Only records of this time or later: a moment (UTC unless it names a zone), or so long ago, such as 90s, 15m, 2h, 1d
    #[arg(long, value_name = "DATETIME|AGE")]
    pub(crate) since: Option<Since>,
    /// Only those whose error contains this text, in whatever case
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Only those of this kind of error
    #[arg(long, value_name = "KIND", value_parser = ["decode", "transform", "call", "delivery-limit"])]
    pub(crate) kind: Option<String>,
}

impl Chosen {
    /// True where nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none() && self.error.is_none() && self.kind.is_none()
    }
}

/// `sharestream dead-letter list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Which topic.
    #[command(flatten)]
    pub(crate) topic: LetterTopic,
    /// Which of them.
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// List at most so many; all are counted
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) limit: u64,
    /// One JSON object per dead letter, and one with the counts
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream dead-letter show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Where it stands in the dead letter topic
    #[arg(value_name = "PARTITION/OFFSET")]
    pub(crate) position: Position,
    /// Which topic.
    #[command(flatten)]
    pub(crate) topic: LetterTopic,
    /// Write the value to standard output as it is, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sharestream dead-letter replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Which topic.
    #[command(flatten)]
    pub(crate) topic: LetterTopic,
    /// All of them
    #[arg(long, conflicts_with_all = ["since", "error", "kind", "at"])]
    pub(crate) all: bool,
    /// Which of them.
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// The one that stands there; may be repeated
    #[arg(long, value_name = "PARTITION/OFFSET", conflicts_with_all = ["since", "error", "kind"])]
    pub(crate) at: Vec<Position>,
    /// At most so many; a further replay goes on behind them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Leave out records that were replayed so often before: they would come round for ever
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_replays: u32,
    /// Put them into this topic instead, by their keys
    #[arg(long, value_name = "TOPIC")]
    pub(crate) to_topic: Option<String>,
    /// Replay also for a group that reads uncommitted records: if the replay fails, the group gets them all the same
    #[arg(long)]
    pub(crate) allow_uncommitted_readers: bool,
    /// Show what would be done and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// End there as a crash does (crash tests)
    #[arg(long, value_enum, hide = true)]
    pub(crate) crash_at: Option<ReplayCrash>,
}

impl ReplayArgs {
    /// The positions that were named.
    pub(crate) fn positions(&self) -> BTreeSet<Position> {
        self.at.iter().copied().collect()
    }
}

/// Where a crash test ends a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayCrash {
    /// All is written, the commit is not asked for: the process waits to be killed
    BeforeCommit,
    /// The commit is asked for, and its answer never read: the process ends
    CommitSent,
    /// The same, but the process goes on
    AnswerLost,
}

/// Where a dead letter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Partition of the dead letter topic.
    pub(crate) partition: PartitionIndex,
    /// Offset in it.
    pub(crate) offset: Offset,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.partition, self.offset)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (partition, offset) = text.split_once('/')?;
            let position = Position {
                partition: PartitionIndex(partition.parse().ok()?),
                offset: Offset(offset.parse().ok()?),
            };
            (position.partition.0 >= 0 && position.offset.0 >= 0).then_some(position)
        };
        parse().ok_or_else(|| "use PARTITION/OFFSET, such as 0/17".to_owned())
    }
}

/// The word behind `--since`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Milliseconds since 1970.
    At(i64),
    /// Milliseconds before now.
    Ago(i64),
}

impl Since {
    /// Milliseconds since 1970.
    pub(crate) fn at_ms(self, now_ms: i64) -> i64 {
        match self {
            Since::At(ms) => ms,
            Since::Ago(ms) => now_ms.saturating_sub(ms),
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let ago = units.into_iter().find_map(|(unit, unit_ms)| {
            let number: i64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number >= 0)?;
            Some(Since::Ago(number.saturating_mul(unit_ms)))
        });
        match (ago, string_to_timestamp_nanos(text)) {
            (Some(ago), _) => Ok(ago),
            (None, Ok(nanos)) => Ok(Since::At(nanos.div_euclid(1_000_000))),
            (None, Err(_)) => {
                Err("use a moment such as 2026-11-30T12:00:00, or an age such as 15m".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_ages_are_told_apart() {
        let parse = |text: &str| text.parse::<Since>();
        assert_eq!(parse("15m"), Ok(Since::Ago(900_000)));
        assert_eq!(parse("250ms"), Ok(Since::Ago(250)));
        assert_eq!(parse("1970-01-02T00:00:00"), Ok(Since::At(86_400_000)));
        assert_eq!(parse("1d").map(|since| since.at_ms(86_400_001)), Ok(1));
        for wrong in ["", "m", "-1h", "soon"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_position_is_a_partition_and_an_offset() {
        let at = Position { partition: PartitionIndex(3), offset: Offset(17) };
        assert_eq!(("3/17".parse(), at.to_string()), (Ok(at), "3/17".to_owned()));
        for wrong in ["3", "3/", "/17", "-1/0", "0/-1", "0/1/2"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
