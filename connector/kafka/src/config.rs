//! Settings of a Kafka job: what the job file says, without clocks, sockets or stores.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_base::HostPort;
use sharestream_client::SecuritySettings;
use sharestream_core::commit::AckMode;
use sharestream_core::coordinates::RejectKind;
use sharestream_wire::records::DECOMPRESSED_BYTES_MAX;

use crate::formats::{Format, OutputFormat};
use crate::group::{ISOLATION_LEVEL, READ_COMMITTED};

/// Settings of one job instance.
///
/// `Default` leaves the names empty: fill them in, then ask [`KafkaJobConfig::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct KafkaJobConfig {
    /// Brokers to ask first, each `host:port`. Kafka: `bootstrap.servers`. Since 0.1.
    pub bootstrap: Vec<String>,
    /// How connections are protected and who the job is, as Kafka's properties. Default plain text. Since 0.1.
    pub security: SecuritySettings,
    /// Name of the job. Letters, digits, `.`, `_` and `-`, 1 to 100 characters. Since 0.1.
    pub job: String,
    /// Name of this replica, stable over restarts. As `job`. Default `0`. Since 0.1.
    pub instance: String,
    /// Share group that the job reads with. Kafka: `group.id`. Since 0.1.
    pub group: String,
    /// Source topics; at least one. Since 0.1.
    pub topics: Vec<String>,
    /// Group settings to apply before joining, by their Kafka names (`share.auto.offset.reset` and so on). Since
    /// 0.1.
    pub group_configs: BTreeMap<String, String>,
    /// How record values become rows. Since 0.1.
    pub format: Format,
    /// Where rows go. Since 0.1.
    pub sink: SinkConfig,
    /// Topic of the dead letters; without one, see [`BadRecords`]. Since 0.1.
    pub dead_letter_topic: Option<String>,
    /// Topic of records whose calls take too long (`AsyncMapOptions::park_after`): they are copied there in the transaction of
    /// their ACCEPT, and read again from there, as it is a source of the job, too. It must exist. The job sets
    /// `share.isolation.level = read_committed` for its group, or copies of transactions that aborted would be read. Default
    /// none. Since 0.2.
    pub parking_topic: Option<String>,
    /// What becomes of a record that cannot be processed. Default: dead letters when there is a dead letter topic,
    /// else the job fails. Since 0.1.
    pub bad_records: Option<BadRecords>,
    /// Acknowledgement mode. Default `auto`. Since 0.1.
    pub mode: AckModeChoice,
    /// Topic of the outcome records. Default `sharestream.outcomes`. Since 0.1.
    pub outcome_topic: String,
    /// Partitions of the outcome topic when the job creates it; an existing topic keeps its own count. Default 4,
    /// 1 to 1000. Since 0.1.
    pub outcome_partition_count: i32,
    /// Replicas of the outcome topic when the job creates it. Default 1; 3 in production. Since 0.1.
    pub outcome_replication_factor: i16,
    /// Kafka: `transaction.timeout.ms`. Must exceed the longest barrier plus `commit_deadline`; as short as that
    /// allows, because a dead job's open transaction holds up its readers. Default 30 s. Since 0.1.
    #[serde(with = "duration_ms")]
    pub transaction_timeout: Duration,
    /// How long an unknown commit is asked for again before the attempt ends. Default 20 s; below
    /// `transaction_timeout`. Since 0.1.
    #[serde(with = "duration_ms")]
    pub commit_deadline: Duration,
    /// Records of one poll. Well above the lock window of a partition, so that one fetch brings several partitions and
    /// they share a commit. Kafka: `max.poll.records`. Default 16,000, at least 1. Since 0.1.
    pub max_poll_records: i32,
    /// Rows of one batch. Default 4096, at least 1. Since 0.1.
    pub batch_rows_max: usize,
    /// Bytes of one fetch. Kafka: `fetch.max.bytes`. Default 8 MiB, at least 1 KiB. Since 0.1.
    pub fetch_bytes_max: i32,
    /// Longest wait for records. Kafka: `fetch.max.wait.ms`. Default 100 ms. Since 0.1.
    #[serde(with = "duration_ms")]
    pub fetch_wait: Duration,
    /// Protection from the group's delivery limit, at which the broker archives a record in silence. With this many
    /// deliveries left after the present one a record is processed in an epoch of its own, with fewer it is given up
    /// (`delivery_limit_policy`); a job that dies with such a record stays down. 0 switches the protection off. Default
    /// 2 (ADR 0019). Since 0.1.
    pub delivery_reserve: u16,
    /// What becomes of a record that does not fit the format. Default: as `bad_records`. Since 0.2.
    pub decode_policy: Option<BadRecords>,
    /// What becomes of a record that an operator rejects, such as an SQL expression. Default: as `bad_records`. Since 0.2.
    pub transform_policy: Option<BadRecords>,
    /// What becomes of a record that a call to the outside rejects. Default: as `bad_records`. Since 0.2.
    pub call_policy: Option<BadRecords>,
    /// What becomes of a record that was delivered too often. Default: as `bad_records`. Since 0.2.
    pub delivery_limit_policy: Option<BadRecords>,
    /// What becomes of a record that is larger than `record_bytes_max`, or whose output is larger than the output topic takes.
    /// Default: as `bad_records`. Since 0.2.
    pub too_large_policy: Option<BadRecords>,
    /// Key, value and headers of a source record together, decompressed; a larger one is not decoded, but handled by
    /// `too_large_policy`. Default 32 MiB, at least 1 KiB. Since 0.2.
    pub record_bytes_max: usize,
    /// What is decompressed at a time of the batches that a source subtask has polled, in whole batches; the rest stays as it came
    /// until that is handed on. Default 8 MiB, at least 1 KiB. Since 0.2.
    pub decompressed_bytes_max: usize,
    /// What one batch may decompress to; each record of a larger one is handled by `too_large_policy`, without its bytes. Default
    /// 100 MiB, 1 KiB to 100 MiB. Since 0.2.
    pub decompressed_batch_bytes_max: usize,
    /// Keeps the outcome record of every transaction for ever, for tools that look at the whole history; the topic then
    /// grows without bound. Only ledger mode removes records. Default false. Since 0.2.
    pub outcome_history: bool,
    /// Stages the share acknowledgements of one epoch in at least two requests, so that a crash test can stop
    /// between them on a cluster of one node. Default false. Since 0.1.
    pub stage_separately: bool,
}

/// Where rows go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct SinkConfig {
    /// Output topic. Since 0.1.
    pub topic: String,
    /// Key of the output records. Default: the key of the source record. Since 0.1.
    pub key: SinkKey,
    /// How rows become record values. Default JSON. Since 0.1.
    pub format: OutputFormat,
    /// Compression of the output: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Kafka: `compression.type`. Default
    /// none. Since 0.1.
    pub compression: CompressionChoice,
    /// Bytes of one output batch. Kafka: `batch.size`. Default 512 KiB, 1 KiB to 1 MB;
    /// at most the topic's `max.message.bytes`. A request holds one batch for each partition, so a batch should hold what
    /// an epoch writes to one. Since 0.1.
    pub batch_bytes_max: usize,
    /// Bytes written and not yet acknowledged, by sink subtask; beyond it the sink waits. Default 8 MiB, at least
    /// `batch_bytes_max`. Since 0.1.
    pub in_flight_bytes_max: usize,
}

/// Key of the output records: it also chooses the partition, as Kafka's default partitioner does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkKey {
    /// The key of the source record, byte for byte.
    #[default]
    Source,
    /// The text of a column; null gives a record without a key.
    Column(String),
    /// No key: partitions take turns.
    None,
}

/// Compression of output batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompressionChoice {
    /// Uncompressed.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// What becomes of a record that does not decode, that an operator rejects, or whose deliveries run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BadRecords {
    /// Written to the dead letter topic in the transaction that REJECTs it.
    DeadLetter,
    /// REJECTed, counted and logged, not kept.
    #[serde(alias = "drop")]
    Reject,
    /// Given back to the group, to be tried again, at the cost of a delivery; near the delivery limit the policy for records that
    /// run out of deliveries holds. Not for those themselves, and only where a record is one row at most.
    Release,
    /// The job ends with an error that names the record.
    Fail,
}

/// The mode that the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckModeChoice {
    /// The strongest exactly-once mode that the cluster can do, or an error; never at least once.
    #[default]
    Auto,
    /// KIP-1289, or an error.
    Transactional,
    /// Exactly once on released Kafka (4.2 and later), if every consumer of the group runs in this mode; or an error.
    Ledger,
    /// Commit, then acknowledge: duplicates after a crash, by choice.
    AtLeastOnce,
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Setting, in the spelling of the job file.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl std::fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Default for KafkaJobConfig {
    fn default() -> Self {
        KafkaJobConfig {
            bootstrap: Vec::new(),
            security: SecuritySettings::default(),
            job: String::new(),
            instance: "0".to_owned(),
            group: String::new(),
            topics: Vec::new(),
            group_configs: BTreeMap::new(),
            format: Format::default(),
            sink: SinkConfig::default(),
            dead_letter_topic: None,
            parking_topic: None,
            bad_records: None,
            mode: AckModeChoice::default(),
            outcome_topic: "sharestream.outcomes".to_owned(),
            outcome_partition_count: 4,
            outcome_replication_factor: 1,
            transaction_timeout: Duration::from_secs(30),
            commit_deadline: Duration::from_secs(20),
            max_poll_records: 16_000,
            batch_rows_max: 4_096,
            fetch_bytes_max: 8 << 20,
            fetch_wait: Duration::from_millis(100),
            delivery_reserve: 2,
            decode_policy: None,
            transform_policy: None,
            call_policy: None,
            delivery_limit_policy: None,
            too_large_policy: None,
            record_bytes_max: 32 << 20,
            decompressed_bytes_max: 8 << 20,
            decompressed_batch_bytes_max: DECOMPRESSED_BYTES_MAX,
            outcome_history: false,
            stage_separately: false,
        }
    }
}

impl Default for SinkConfig {
    fn default() -> Self {
        SinkConfig {
            topic: String::new(),
            key: SinkKey::default(),
            format: OutputFormat::default(),
            compression: CompressionChoice::default(),
            batch_bytes_max: 512 << 10,
            in_flight_bytes_max: 8 << 20,
        }
    }
}

impl SinkConfig {
    /// Rows to `topic`, everything else by default.
    pub fn to_topic(topic: impl Into<String>) -> Self {
        SinkConfig { topic: topic.into(), ..SinkConfig::default() }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: SinkKey) -> Self {
        self.key = key;
        self
    }

    /// Sets the format.
    #[must_use]
    pub fn with_format(mut self, format: OutputFormat) -> Self {
        self.format = format;
        self
    }
}

/// Longest topic, group, job and instance name that fits where it is used.
const TOPIC_NAME_MAX: usize = 249;
const JOB_NAME_MAX: usize = 100;

impl KafkaJobConfig {
    /// A job named `job` that reads `topics` with `group` and writes as `sink` says.
    pub fn new(
        job: impl Into<String>,
        group: impl Into<String>,
        topics: Vec<String>,
        sink: SinkConfig,
    ) -> Self {
        KafkaJobConfig { job: job.into(), group: group.into(), topics, sink, ..KafkaJobConfig::default() }
    }

    /// Everything that is wrong with the settings by themselves; the cluster is asked by
    /// [`crate::KafkaJob::connect`].
    pub fn validate(&self) -> Vec<ConfigFault> {
        let mut faults = Faults::default();
        faults.check("bootstrap", !self.bootstrap.is_empty(), || {
            "name at least one broker, for example localhost:9092".to_owned()
        });
        for address in &self.bootstrap {
            if let Err(error) = address.parse::<HostPort>() {
                faults.add("bootstrap", error.to_string());
            }
        }
        faults.name("job", &self.job, JOB_NAME_MAX);
        faults.name("instance", &self.instance, JOB_NAME_MAX);
        faults.check("group", !self.group.is_empty(), || "name the share group".to_owned());
        faults.check("topics", !self.topics.is_empty(), || "name at least one source topic".to_owned());
        for (index, topic) in self.topics.iter().enumerate() {
            faults.name("topics", topic, TOPIC_NAME_MAX);
            faults.check("topics", !self.topics[..index].contains(topic), || {
                format!("'{topic}' is named twice")
            });
        }
        self.validate_topics(&mut faults);
        self.validate_parking(&mut faults);
        for message in self.format.faults() {
            faults.add("format", message);
        }
        self.validate_limits(&mut faults);
        faults.list
    }

    fn validate_topics(&self, faults: &mut Faults) {
        faults.name("sink.topic", &self.sink.topic, TOPIC_NAME_MAX);
        faults.name("outcome-topic", &self.outcome_topic, TOPIC_NAME_MAX);
        let dead_letter_topic = self.dead_letter_topic.as_deref();
        if let Some(topic) = dead_letter_topic {
            faults.name("dead-letter-topic", topic, TOPIC_NAME_MAX);
        }
        faults.check("sink.topic", !self.topics.contains(&self.sink.topic), || {
            format!(
                "'{}' is also a source topic: the job would read its own output for ever",
                self.sink.topic
            )
        });
        let used = [Some(self.sink.topic.as_str()), dead_letter_topic, Some(self.outcome_topic.as_str())];
        let is_source = |topic: &str| self.topics.iter().any(|source| source == topic);
        if let Some(topic) = dead_letter_topic {
            faults.check("dead-letter-topic", !is_source(topic) && used[0] != Some(topic), || {
                format!("'{topic}' is also a source or sink topic: give dead letters a topic of their own")
            });
        }
        let taken = is_source(&self.outcome_topic) || used[..2].contains(&used[2]);
        faults.check("outcome-topic", !taken, || {
            format!("'{}' is also used for records: outcomes need a topic of their own", self.outcome_topic)
        });
        let wants_dead_letters = self.bad_records == Some(BadRecords::DeadLetter);
        faults.check("bad-records", !wants_dead_letters || dead_letter_topic.is_some(), || {
            "dead-letter needs dead-letter-topic".to_owned()
        });
        for (field, policy) in [
            ("decode-policy", self.decode_policy),
            ("transform-policy", self.transform_policy),
            ("call-policy", self.call_policy),
            ("delivery-limit-policy", self.delivery_limit_policy),
            ("too-large-policy", self.too_large_policy),
        ] {
            let wants_letters = policy == Some(BadRecords::DeadLetter);
            faults.check(field, !wants_letters || dead_letter_topic.is_some(), || {
                "dead-letter needs dead-letter-topic".to_owned()
            });
        }
        let at_limit = self.policy(RejectKind::DeliveryLimit);
        faults.check("delivery-limit-policy", at_limit != BadRecords::Release, || {
            "must not be release: a record that is given back after its last delivery is archived by the broker".to_owned()
        });
        if let (SinkKey::Column(name), true) = (&self.sink.key, dead_letter_topic.is_some()) {
            faults.check("sink.key", !name.is_empty(), || "the column has no name".to_owned());
        }
    }

    fn validate_parking(&self, faults: &mut Faults) {
        let Some(topic) = &self.parking_topic else { return };
        faults.name("parking-topic", topic, TOPIC_NAME_MAX);
        let used = [&self.sink.topic, &self.outcome_topic];
        let is_used =
            used.into_iter().chain(&self.topics).chain(&self.dead_letter_topic).any(|used| used == topic);
        faults.check("parking-topic", !is_used, || {
            format!("'{topic}' is also used for other records: parked ones need a topic of their own")
        });
        let isolation = self.group_configs.get(ISOLATION_LEVEL);
        faults.check("parking-topic", isolation.is_none_or(|level| level == READ_COMMITTED), || {
            format!(
                "parking needs {ISOLATION_LEVEL} = {READ_COMMITTED} for the group, or copies of transactions that aborted would \
                 be processed as well"
            )
        });
    }

    fn validate_limits(&self, faults: &mut Faults) {
        let mut at_least = |field, ok: bool, what: &str| faults.check(field, ok, || what.to_owned());
        at_least("max-poll-records", self.max_poll_records >= 1, "must be at least 1");
        at_least("batch-rows-max", self.batch_rows_max >= 1, "must be at least 1");
        at_least("fetch-bytes-max", self.fetch_bytes_max >= 1 << 10, "must be at least 1024");
        at_least("record-bytes-max", self.record_bytes_max >= 1 << 10, "must be at least 1024");
        at_least("decompressed-bytes-max", self.decompressed_bytes_max >= 1 << 10, "must be at least 1024");
        let batch_bytes = 1 << 10..=DECOMPRESSED_BYTES_MAX;
        at_least("decompressed-batch-bytes-max", batch_bytes.contains(&self.decompressed_batch_bytes_max), {
            "must be 1024 to 104857600"
        });
        at_least("sink.batch-bytes-max", (1 << 10..=1_000_000).contains(&self.sink.batch_bytes_max), {
            "must be 1024 to 1000000"
        });
        at_least("sink.in-flight-bytes-max", self.sink.in_flight_bytes_max >= self.sink.batch_bytes_max, {
            "must be at least sink.batch-bytes-max"
        });
        at_least("outcome-partition-count", (1..=1_000).contains(&self.outcome_partition_count), {
            "must be 1 to 1000"
        });
        at_least("outcome-replication-factor", self.outcome_replication_factor >= 1, "must be at least 1");
        at_least("transaction-timeout", self.transaction_timeout >= Duration::from_secs(1), {
            "must be at least 1 s"
        });
        at_least("commit-deadline", self.commit_deadline < self.transaction_timeout, {
            "must be below transaction-timeout: a commit that takes longer is aborted by the broker"
        });
    }

    /// The topics that the group reads: the source topics, and that of parked records.
    pub fn acquired_topics(&self) -> Vec<String> {
        self.topics.iter().chain(&self.parking_topic).cloned().collect()
    }

    /// The policy for bad records of any kind that has none of its own, defaults applied.
    pub fn bad_record_policy(&self) -> BadRecords {
        match (self.bad_records, &self.dead_letter_topic) {
            (Some(policy), _) => policy,
            (None, Some(_)) => BadRecords::DeadLetter,
            (None, None) => BadRecords::Fail,
        }
    }

    /// The policy for records with errors of this kind, defaults applied.
    pub fn policy(&self, kind: RejectKind) -> BadRecords {
        let own = match kind {
            RejectKind::Decode => self.decode_policy,
            RejectKind::Transform => self.transform_policy,
            RejectKind::Call => self.call_policy,
            RejectKind::DeliveryLimit => self.delivery_limit_policy,
            RejectKind::TooLarge => self.too_large_policy,
        };
        own.unwrap_or_else(|| self.bad_record_policy())
    }

    /// The transactional id of one of the two alternating slots.
    pub fn transactional_id(&self, slot: usize) -> String {
        format!("{}.{}.{slot}", self.job, self.instance)
    }
}

/// Collects faults, so that a user sees all of them at once.
#[derive(Default)]
struct Faults {
    list: Vec<ConfigFault>,
}

impl Faults {
    fn add(&mut self, field: &'static str, message: String) {
        self.list.push(ConfigFault { field, message });
    }

    fn check(&mut self, field: &'static str, ok: bool, message: impl FnOnce() -> String) {
        if !ok {
            self.add(field, message());
        }
    }

    fn name(&mut self, field: &'static str, name: &str, length_max: usize) {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() {
            self.add(field, "must be named".to_owned());
        } else if name.len() > length_max {
            self.add(field, format!("'{name}' is longer than {length_max} characters"));
        } else if !name.chars().all(legal) {
            self.add(field, format!("'{name}' may hold letters, digits, '.', '_' and '-' only"));
        }
    }
}

/// What a cluster can do: each mode, or why not.
#[derive(Clone, Debug)]
pub(crate) struct ModeSupport {
    pub(crate) transactional: Result<(), String>,
    pub(crate) ledger: Result<(), String>,
}

/// Finds the mode for a cluster: `auto` is transactional, else ledger, never at least once.
///
/// # Errors
/// The reason why the wanted mode cannot be had, for the user.
pub(crate) fn resolve_mode(choice: AckModeChoice, support: ModeSupport) -> Result<AckMode, String> {
    let ModeSupport { transactional, ledger } = support;
    match choice {
        AckModeChoice::AtLeastOnce => Ok(AckMode::AtLeastOnce),
        AckModeChoice::Transactional => match transactional {
            Ok(()) => Ok(AckMode::Transactional),
            Err(reason) => Err(format!("mode transactional needs KIP-1289 on the brokers: {reason}")),
        },
        AckModeChoice::Ledger => match ledger {
            Ok(()) => Ok(AckMode::Ledger),
            Err(reason) => Err(format!("mode ledger is not possible: {reason}")),
        },
        AckModeChoice::Auto => match (transactional, ledger) {
            (Ok(()), _) => Ok(AckMode::Transactional),
            (Err(_), Ok(())) => Ok(AckMode::Ledger),
            (Err(transactional), Err(ledger)) => Err(format!(
                "mode auto found no exactly-once mode: transactional is not possible ({transactional}), and ledger is \
                 not ({ledger}); write mode = \"at-least-once\" to run with duplicates after a crash"
            )),
        },
    }
}

/// Durations as whole milliseconds.
mod duration_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests;
