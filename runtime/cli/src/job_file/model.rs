//! A job as its file describes it, checked and with defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sharestream_base::HostPort;

/// A job file without faults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobFile {
    /// Where it was read from.
    pub(crate) path: PathBuf,
    /// Name of the job: with `instance` it is the identity that two runs fence each other by.
    pub(crate) job: String,
    /// Which replica of the job this is. Default "main".
    pub(crate) instance: String,
    /// Where records come from.
    pub(crate) source: SourceSettings,
    /// SQL that transforms them; `None` passes every record on.
    pub(crate) transform: Option<Sql>,
    /// Where rows go.
    pub(crate) sink: SinkSettings,
    /// Topic for records that cannot be processed; `None` stops the job at the first one.
    pub(crate) dead_letter_topic: Option<String>,
    /// When and where checkpoints are kept.
    pub(crate) checkpoint: CheckpointSettings,
    /// How records are acknowledged.
    pub(crate) ack_mode: AckModeSetting,
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
    /// Topics the share group reads.
    pub(crate) topics: Vec<String>,
    /// Share group.
    pub(crate) group: String,
    /// Settings of the group, under Kafka's own names; set before the job joins.
    pub(crate) group_config: BTreeMap<String, String>,
    /// How record values are decoded.
    pub(crate) format: SourceFormat,
    /// Source subtasks, each a member of the group. Default 1.
    pub(crate) parallelism: usize,
}

/// How record values become rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceFormat {
    /// One line of comma-separated values per record.
    Csv {
        /// Columns in the order of the line.
        columns: Vec<Column>,
        /// Texts that mean null. Default: the empty text.
        nulls: Vec<String>,
    },
    /// One JSON object per record.
    Json {
        /// Fields to read; others are ignored.
        columns: Vec<Column>,
    },
    /// Bytes as they are, in one column `value`.
    Raw,
}

/// One column of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Name, as SQL sees it.
    pub(crate) name: String,
    /// Arrow type.
    pub(crate) data_type: DataType,
    /// Whether null is allowed; where it is not, a record with a null becomes a dead letter.
    pub(crate) nullable: bool,
}

/// SQL and where it starts in the file, so that the planner's line numbers can be turned into the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sql {
    /// The statement.
    pub(crate) text: String,
    /// Line of the file on which the statement's first line stands, from 1.
    pub(crate) first_line: usize,
}

/// The `[sink]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkSettings {
    /// Output topic.
    pub(crate) topic: String,
    /// Column that becomes the record key and picks the partition; `None` writes without keys.
    pub(crate) key: Option<String>,
    /// How rows are encoded. Default JSON.
    pub(crate) format: SinkFormat,
    /// Sink subtasks; they write disjoint partitions. Default 1.
    pub(crate) parallelism: usize,
    /// Partitions of the output (and dead letter) topic when the job has to create it.
    pub(crate) partitions: Option<i32>,
}

/// How rows become record values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkFormat {
    /// One JSON object per row.
    Json,
    /// One line of comma-separated values per row.
    Csv,
}

/// The `[checkpoint]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointSettings {
    /// Folder of the checkpoint store, relative to the job file; `None`: the transaction is the checkpoint.
    pub(crate) directory: Option<PathBuf>,
    /// Longest time between two checkpoints. Default 200 ms.
    pub(crate) interval: Duration,
}

/// The `ack.mode` that the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckModeSetting {
    /// Exactly once where the brokers can, else refuse with the reason.
    Auto,
    /// KIP-1289 transactions.
    Transactional,
    /// Commit, then acknowledge: a crash in between doubles records.
    AtLeastOnce,
}

impl SourceFormat {
    /// Schema of the decoded rows.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> = match self {
            SourceFormat::Csv { columns, .. } | SourceFormat::Json { columns } => columns
                .iter()
                .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable))
                .collect(),
            SourceFormat::Raw => vec![Field::new("value", DataType::Binary, true)],
        };
        std::sync::Arc::new(Schema::new(fields))
    }
}
