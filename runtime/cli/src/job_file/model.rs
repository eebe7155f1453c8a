//! A job as its file describes it, checked and with defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sharestream_base::HostPort;
use sharestream_checkpoints::StoreLocation;
use sharestream_client::SecuritySettings;
use sharestream_kafka::BadRecords;
use sharestream_kafka::formats::{Format, OutputFormat};
use sharestream_registry::RegistrySettings;

use super::http::HttpStage;

/// A job file without faults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobFile {
    /// Where it was read from.
    pub(crate) path: PathBuf,
    /// What was read: the file, and behind it what the command line set.
    pub(crate) text: String,
    /// End of the file in `text`.
    pub(crate) file_end: usize,
    /// Name of the job: with `instance` it is the identity that two runs fence each other by.
    pub(crate) job: String,
    /// Which replica of the job this is. Default "main".
    pub(crate) instance: String,
    /// What the job holds of payload at most; `None`: every queue has its own default.
    pub(crate) memory: Option<u64>,
    /// Where records come from.
    pub(crate) source: SourceSettings,
    /// SQL that transforms them; `None` passes every record on.
    pub(crate) transform: Option<Sql>,
    /// Calls for each row of the SQL, one after the other.
    pub(crate) http: Vec<HttpStage>,
    /// When records whose calls take too long are parked; `None`: never.
    pub(crate) slow: Option<SlowSettings>,
    /// Where rows go.
    pub(crate) sink: SinkSettings,
    /// Topic for records that cannot be processed; `None` stops the job at the first one.
    pub(crate) dead_letter_topic: Option<String>,
    /// What becomes of records that cannot be processed.
    pub(crate) errors: ErrorPolicies,
    /// Time from the hand-over of a record to its visibility that the job aims for. Default: `checkpoint.interval`, and
    /// 200 ms where neither is given.
    pub(crate) latency_goal: Duration,
    /// When and where checkpoints are kept.
    pub(crate) checkpoint: CheckpointSettings,
    /// How records are acknowledged.
    pub(crate) ack_mode: AckModeSetting,
    /// Topic of the outcome records; `None` takes the default.
    pub(crate) outcome_topic: Option<String>,
    /// What is shown to monitoring.
    pub(crate) metrics: MetricsSettings,
}

/// Which brokers to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Brokers {
    /// A broker inside the command's own process; its data lives as long as the process.
    Embedded,
    /// Bootstrap addresses.
    Addresses(Vec<HostPort>),
}

/// The `[source]` section.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceSettings {
    /// Brokers of the whole job: transactions do not span clusters, so the sink uses the same.
    pub(crate) brokers: Brokers,
    /// How connections are protected and who the job is. Default plain text.
    pub(crate) security: SecuritySettings,
    /// Topics the share group reads.
    pub(crate) topics: Vec<String>,
    /// Share group.
    pub(crate) group: String,
    /// Settings of the group, under Kafka's own names; set before the job joins.
    pub(crate) group_config: BTreeMap<String, String>,
    /// How record values are decoded. With a registry the schema may be missing, until it has been asked for.
    pub(crate) format: Format,
    /// Who knows the schemas that records name.
    pub(crate) registry: Option<RegistrySettings>,
    /// Largest source record in bytes; `None` takes the default.
    pub(crate) record_bytes_max: Option<usize>,
    /// Source subtasks, each a member of the group. Default 1.
    pub(crate) parallelism: usize,
}

/// SQL and where it starts in the file, so that the planner's places can be turned into the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sql {
    /// The statement.
    pub(crate) text: String,
    /// Byte of the file at which the statement begins.
    pub(crate) start: usize,
}

/// The `[sink]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkSettings {
    /// Output topic.
    pub(crate) topic: String,
    /// Column that becomes the record key and picks the partition; `None` writes without keys.
    pub(crate) key: Option<String>,
    /// How rows are encoded. Default JSON.
    pub(crate) format: OutputFormat,
    /// Where the schema of the rows is registered, so that its id stands in front of each value.
    pub(crate) registry: Option<SinkRegistry>,
    /// Sink subtasks; they write disjoint partitions. Default 1.
    pub(crate) parallelism: usize,
    /// Partitions of the output (and dead letter) topic when the job has to create it.
    pub(crate) partitions: Option<i32>,
}

/// The `[sink.schema_registry]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkRegistry {
    /// Where it is.
    pub(crate) settings: RegistrySettings,
    /// False: the schema must be registered already. Default true.
    pub(crate) register: bool,
}

/// The `[slow]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowSettings {
    /// How long calls of a record may take in all before it is parked for the first time.
    pub(crate) park_after: Duration,
    /// Topic of parked records. Default `<job>.parked`.
    pub(crate) topic: String,
    /// How often a record may be parked. Default 3.
    pub(crate) park_max: u32,
}

/// The `[errors]` section: a policy for each kind of error. `None`: dead letters where there is a topic for them, else
/// the job ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorPolicies {
    /// A record that does not fit the format.
    pub(crate) decode: Option<BadRecords>,
    /// A row that an SQL expression or another operator rejects.
    pub(crate) transform: Option<BadRecords>,
    /// A row that a call to the outside rejects.
    pub(crate) call: Option<BadRecords>,
    /// A record that was delivered so often that a further delivery could be its last.
    pub(crate) delivery_limit: Option<BadRecords>,
    /// A record that is larger than it may be, or whose output is.
    pub(crate) too_large: Option<BadRecords>,
}

/// The `[checkpoint]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointSettings {
    /// Where the checkpoint store is; `None`: the transaction is the checkpoint.
    pub(crate) store: Option<StoreLocation>,
    /// The longest that a checkpoint is left open, whatever the goal allows. `None`: as long as the goal allows.
    pub(crate) interval: Option<Duration>,
    /// A checkpoint is also taken after this many records; `None` takes the runtime's default.
    pub(crate) records: Option<u64>,
    /// Completed checkpoints that are kept; the job needs the last one. Default 3.
    pub(crate) retain: usize,
    /// Records of older owners that are kept, for people to read. Default 16.
    pub(crate) retain_owners: usize,
}

/// The `[metrics]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsSettings {
    /// Where metrics are served over HTTP; port 0 takes a free one. `None`, the default: nowhere.
    pub(crate) listen: Option<HostPort>,
    /// Pause between two times that the brokers are asked for the group's offsets. Default 5 s.
    pub(crate) offsets_interval: Duration,
}

/// The `ack.mode` that the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckModeSetting {
    /// Exactly once where the brokers can, else refuse with the reason.
    Auto,
    /// KIP-1289 transactions.
    Transactional,
    /// Exactly once on released Kafka, by claims in the outcome topic.
    Ledger,
    /// Commit, then acknowledge: a crash in between doubles records.
    AtLeastOnce,
}
