//! The command line: every command, flag and default that a user sees.

pub(crate) mod check;
pub(crate) mod checkpoints;
pub(crate) mod dead_letters;
pub(crate) mod groups;
pub(crate) mod processes;
pub(crate) mod savepoints;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sharestream_base::HostPort;
use sharestream_broker::FsyncPolicy;
use sharestream_core::commit::CommitStep;

use crate::properties::CommandConfig;

/// Environment variable that stands for `--brokers`.
pub(crate) const BROKERS_VARIABLE: &str = "SHARESTREAM_BROKERS";

/// Process Kafka share groups exactly once.
///
/// Exit codes: 0 done and right; 1 failed, or violated (verify, demo); 2 wrong usage, refused (check), or could not check;
/// 130 interrupted twice.
#[derive(Debug, Parser)]
#[command(name = "sharestream", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Log lines as text, or as one JSON object each
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// More log lines on standard error: -v for info, -vv for debug (SHARESTREAM_LOG takes a filter)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For programs: fields of the event, and of the spans that it is in
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a job until it is stopped
    Run(RunArgs),
    /// Crash the flights job again and again and show that it is still right
    Demo(DemoArgs),
    /// Look at everything that a job needs before it starts, and change nothing
    Check(check::CheckArgs),
    /// Check that a job lost, doubled and tore nothing, without trusting the job
    Verify(VerifyArgs),
    /// Start the embedded broker (development and tests; --data DIR keeps what it holds)
    Broker(BrokerArgs),
    /// Create or list topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Write lines of a file or of standard input to a topic
    Produce(ProduceArgs),
    /// Print records of a topic
    Read(ReadArgs),
    /// List, describe, reset or delete share groups
    #[command(subcommand)]
    Group(groups::GroupCommand),
    /// List or end the transactions of a job
    #[command(subcommand)]
    Transactions(groups::TransactionsCommand),
    /// List, show, check or delete the checkpoints of a job
    #[command(subcommand)]
    Checkpoint(checkpoints::CheckpointCommand),
    /// Make a savepoint of a job, or list, show, check or delete savepoints
    Savepoint(Box<savepoints::SavepointArgs>),
    /// List, show or replay dead letters
    #[command(subcommand)]
    DeadLetter(dead_letters::DeadLetterCommand),
}

/// What a run or a check may take from the command line instead of the job file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Overrides {
    /// Brokers instead of those in the job file
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = BROKERS_VARIABLE)]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
    /// Acknowledgement mode instead of the one in the job file
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Checkpoint folder instead of the one in the job file
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint_directory: Option<PathBuf>,
    /// A setting instead of the one in the job file, such as source.brokers=HOST:PORT; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// `sharestream run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Job file
    #[arg(value_name = "JOB.toml")]
    pub(crate) job: PathBuf,
    /// End when everything that the topics held at the start is processed
    #[arg(long)]
    pub(crate) until_caught_up: bool,
    /// One JSON object per line instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Serve metrics here (/metrics, /healthz, /readyz) instead of where the job file says; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<HostPort>,
    /// Start from this savepoint: its place, or its name in the job's store. It must be the last commit, unless --rewind
    #[arg(long, value_name = "SAVEPOINT")]
    pub(crate) from: Option<String>,
    /// Go back to the savepoint: group, offsets and state; what came after it is processed again
    #[arg(long, requires = "from")]
    pub(crate) rewind: bool,
    /// Also where the job went back to this savepoint before, and has committed since
    #[arg(long, requires = "rewind")]
    pub(crate) again: bool,
    /// Longest wait for the last checkpoint after Ctrl-C or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) drain_timeout: u64,
    /// Instead of the job file.
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// One job in three processes.
    #[command(flatten)]
    pub(crate) processes: processes::ProcessArgs,
    /// Stop for ever at the COUNT-th commit that reaches STEP (crash tests)
    #[arg(long, value_name = "STEP:COUNT", hide = true)]
    pub(crate) crash_at: Option<CrashAt>,
    /// Say so and pause for a moment there (crash tests of the other processes)
    #[arg(long, value_name = "STEP:COUNT", hide = true, conflicts_with = "crash_at")]
    pub(crate) pause_at: Option<CrashAt>,
    /// End when standard input ends (the parent is gone)
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

/// `sharestream demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How often the worker is killed
    #[arg(long, default_value_t = 12)]
    pub(crate) crashes: u32,
    /// Seed of the moments of death; the same seed gives the same plan
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Guarantee to run with; auto takes the strongest that the brokers can do
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) mode: Mode,
    /// Use these brokers (Apache Kafka 4.2 or later) and not an embedded one
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them; the embedded one has no security.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
    /// Keep the topics that were made on --brokers
    #[arg(long, requires = "brokers")]
    pub(crate) keep: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Load only so many flights
    #[arg(long, hide = true)]
    pub(crate) records: Option<usize>,
    /// Crash only at this step
    #[arg(long, hide = true, value_parser = parse_step)]
    pub(crate) crash_at: Option<CommitStep>,
}

/// `sharestream verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Job file
    #[arg(value_name = "JOB.toml")]
    pub(crate) job: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print at most so many violations of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) show: usize,
    /// Instead of the job file.
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// `sharestream broker`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BrokerArgs {
    /// Moves leaders and nodes of a running broker.
    #[command(subcommand)]
    pub(crate) command: Option<BrokerCommand>,
    /// Where the first node listens; port 0 takes a free one. Further nodes take the next ports
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092", conflicts_with_all = ["host", "port"])]
    pub(crate) listen: HostPort,
    /// Address to listen on
    #[arg(long, hide = true)]
    pub(crate) host: Option<String>,
    /// Port to listen on
    #[arg(long, hide = true)]
    pub(crate) port: Option<u16>,
    /// Number of nodes in this process; leaders and coordinators are spread over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) nodes: u16,
    /// Keep everything in this folder; without it records live in memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// When written bytes are forced to the disk: always, interval:MILLISECONDS or never
    #[arg(long, value_name = "POLICY", default_value = "always", requires = "data")]
    pub(crate) fsync: FsyncPolicy,
    /// Take commands of `sharestream broker control` here; whoever reaches the port may do everything
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) control: Option<HostPort>,
    /// Create topics that clients ask for
    #[arg(long)]
    pub(crate) auto_create_topics: bool,
    /// Partitions of topics that are created without a number
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(crate) partitions: i32,
    /// Print the addresses as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// End when standard input ends (the parent is gone)
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

/// `sharestream broker ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Move leaders, stop, start and pause nodes of a broker that was started with --control
    Control(ControlArgs),
}

/// `sharestream broker control`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Where the broker takes commands (its --control)
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9091", global = true)]
    pub(crate) control: HostPort,
    /// Print the broker's reply as one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: ControlAction,
}

/// What `sharestream broker control` does.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ControlAction {
    /// Show the nodes and how many partitions each leads
    Status,
    /// Show what each running node counts of staged records and dead letters (KIP-1289, KIP-1191)
    Metrics,
    /// Make a node the leader of a partition (of __transaction_state, __share_group_state or __consumer_offsets: the
    /// coordinator)
    MoveLeader {
        /// Topic of the partition
        topic: String,
        /// Its number
        partition: i32,
        /// The node that shall lead
        node: i32,
    },
    /// Stop a node in good order: the others take over what it leads
    StopNode {
        /// Its id
        node: i32,
    },
    /// End a node as a crash does: what it leads has no leader
    KillNode {
        /// Its id
        node: i32,
    },
    /// Start a node that is down
    StartNode {
        /// Its id
        node: i32,
    },
    /// Make a node stand still, as a stopped process does
    PauseNode {
        /// Its id
        node: i32,
    },
    /// Let a paused node go on
    ResumeNode {
        /// Its id
        node: i32,
    },
    /// Deal what a dead node led out among the others
    FailOver {
        /// Its id
        node: i32,
    },
}

/// Where the brokers are, for the small commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Bootstrap brokers
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = BROKERS_VARIABLE,
        default_value = "127.0.0.1:9092"
    )]
    pub(crate) brokers: Vec<HostPort>,
    /// How to speak to them.
    #[command(flatten)]
    pub(crate) command_config: CommandConfig,
}

/// `sharestream topic ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic
    Create(TopicCreateArgs),
    /// List topics with their partitions and offsets
    List(TopicListArgs),
}

/// `sharestream topic create`.
#[derive(Debug, Args)]
pub(crate) struct TopicCreateArgs {
    /// Name of the topic
    pub(crate) name: String,
    /// Number of partitions
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(crate) partitions: i32,
    /// Topic settings under Kafka's names
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_config)]
    pub(crate) config: Vec<(String, String)>,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream topic list`.
#[derive(Debug, Args)]
pub(crate) struct TopicListArgs {
    /// Show internal topics too
    #[arg(long)]
    pub(crate) internal: bool,
    /// One JSON object per topic
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream produce`.
#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    /// Topic to write to
    pub(crate) topic: String,
    /// File with one record per line, `.gz` allowed; standard input without it
    pub(crate) file: Option<PathBuf>,
    /// Key each record by this column: its name in the header line, or its number from 1
    #[arg(long, value_name = "COLUMN", conflicts_with = "key_separator")]
    pub(crate) key_column: Option<String>,
    /// Delimiter of the columns
    #[arg(long, value_name = "CHAR", default_value = ",")]
    pub(crate) key_delimiter: char,
    /// Each line is KEY, this text, VALUE
    #[arg(long, value_name = "TEXT")]
    pub(crate) key_separator: Option<String>,
    /// The first line names the columns and is not a record
    #[arg(long)]
    pub(crate) header: bool,
    /// Stop after so many records
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<u64>,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `sharestream read`.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Topic to read
    pub(crate) topic: String,
    /// Show only committed records (the default)
    #[arg(long, conflicts_with = "uncommitted")]
    pub(crate) committed: bool,
    /// Show also records of open and aborted transactions
    #[arg(long)]
    pub(crate) uncommitted: bool,
    /// Stop after so many records
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<u64>,
    /// Offset to start from in each partition
    #[arg(long, value_name = "earliest|latest|OFFSET", default_value = "earliest")]
    pub(crate) from: ReadFrom,
    /// Only this partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<i32>,
    /// Wait for new records instead of ending at the end
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show headers
    #[arg(long)]
    pub(crate) headers: bool,
    /// One JSON object per record
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the brokers are.
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Guarantee of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Exactly once by the best means that the brokers have, else refused
    Auto,
    /// Exactly once: writes and acknowledgements in one transaction (KIP-1289)
    Transactional,
    /// Exactly once on Kafka 4.2 to 4.4, through a ledger
    Ledger,
    /// A crash may double records
    AtLeastOnce,
}

impl Mode {
    /// The word of the command line and of the job file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Transactional => "transactional",
            Mode::Ledger => "ledger",
            Mode::AtLeastOnce => "at-least-once",
        }
    }
}

/// A commit step and how often it is reached before the worker stops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrashAt {
    /// Step to stop at.
    pub(crate) step: CommitStep,
    /// From 1.
    pub(crate) count: u32,
}

/// The stable name of a step: the `--crash-at` word.
pub(crate) fn step_name(step: CommitStep) -> String {
    match serde_json::to_value(step) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(_) | Err(_) => format!("{step:?}"),
    }
}

/// The step called `name`.
pub(crate) fn parse_step(name: &str) -> Result<CommitStep, String> {
    let known = || CommitStep::ALL.iter().map(|step| step_name(*step)).collect::<Vec<_>>().join(", ");
    CommitStep::ALL
        .into_iter()
        .find(|step| step_name(*step) == name)
        .ok_or_else(|| format!("no step is called '{name}'; steps: {}", known()))
}

impl FromStr for CrashAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (step, count) = text.split_once(':').unwrap_or((text, "1"));
        let count = count.parse().ok().filter(|count| *count > 0).ok_or("COUNT must be a number from 1")?;
        Ok(CrashAt { step: parse_step(step)?, count })
    }
}

/// Where `read` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// First offset kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// This offset.
    Offset(i64),
}

impl FromStr for ReadFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => Ok(ReadFrom::Earliest),
            "latest" => Ok(ReadFrom::Latest),
            offset => match offset.parse() {
                Ok(offset) if offset >= 0 => Ok(ReadFrom::Offset(offset)),
                Ok(_) | Err(_) => Err("use earliest, latest or an offset from 0".to_owned()),
            },
        }
    }
}

fn parse_config(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("use KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests;
