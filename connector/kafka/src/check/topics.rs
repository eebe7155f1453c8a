//! The topics of a job: whether they are there or will be, what they keep, and what of it is safe.

use std::collections::BTreeMap;

use sharestream_client::{AclOperation, AclResource, TopicDescription, acl_advice};

use super::finding::{Area, Asked, Finding, Found};
use crate::outcome_topic::NODES_FOR_TWO_COPIES;

const CLEANUP_POLICY: &str = "cleanup.policy";
const MIN_IN_SYNC: &str = "min.insync.replicas";
const UNCLEAN_ELECTION: &str = "unclean.leader.election.enable";
const MESSAGE_BYTES_MAX: &str = "max.message.bytes";
/// Kafka: copies of a topic that is made without a number.
const REPLICATION_DEFAULT: &str = "default.replication.factor";

/// What a job does with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    /// Parked records: written, and read again.
    Parking,
    Output,
    DeadLetters,
    Outcomes,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Parking => "parking",
            Role::Output => "output",
            Role::DeadLetters => "dead letter",
            Role::Outcomes => "outcome",
        }
    }

    fn is_written(self) -> bool {
        self != Role::Source
    }

    fn needs(self) -> &'static [AclOperation] {
        use AclOperation::{Read, Write};
        match self {
            Role::Source => &[Read],
            Role::Parking | Role::Outcomes => &[Read, Write],
            Role::Output | Role::DeadLetters => &[Write],
        }
    }
}

/// What is known of a topic.
#[derive(Clone, Debug)]
pub(crate) struct TopicFacts {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) described: Asked<Option<TopicDescription>>,
    /// Of a topic that is there.
    pub(crate) settings: Asked<BTreeMap<String, String>>,
    /// How the start makes it, if it does and it is not there.
    pub(crate) creation: Option<Creation>,
}

/// A topic that the start would make.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    pub(crate) partitions: i32,
    /// Copies that are asked for; `None`: the brokers' default.
    pub(crate) copies: Option<i16>,
    /// What the brokers say to it.
    pub(crate) checked: Asked<()>,
}

impl TopicFacts {
    fn is_there(&self) -> Option<&TopicDescription> {
        self.described.as_ref().ok()?.as_ref()
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref().ok()?.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    fn title(&self) -> String {
        format!("{} topic '{}'", self.role.word(), self.name)
    }

    fn change(&self, key: &str, value: &str) -> String {
        format!("kafka-configs.sh --alter --topic {} --add-config {key}={value}", self.name)
    }
}

/// What the topics are held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster<'a> {
    pub(crate) node_count: usize,
    /// Settings of the brokers, if they tell.
    pub(crate) brokers: Option<&'a BTreeMap<String, String>>,
    /// Bytes of one output batch.
    pub(crate) batch_bytes_max: u64,
    /// Bytes of a source record that is decoded.
    pub(crate) record_bytes_max: u64,
}

/// What is wrong with the topics, or good to know. The settings of the outcome topic are looked at where it is made.
pub(crate) fn topics(topics: &[TopicFacts], cluster: &Cluster<'_>) -> Vec<Finding> {
    let mut found = Found::of(Area::Topics);
    for topic in topics {
        existence(topic, cluster, &mut found);
        if let Some(there) = topic.is_there() {
            copies(topic, there, cluster, &mut found);
        }
        if let (Some(_), Err(why)) = (topic.is_there(), &topic.settings) {
            found.not_checked("settings", &format!("settings of {}", topic.title()), why);
        }
        compaction(topic, &mut found);
    }
    sizes(topics, cluster, &mut found);
    found.list
}

fn existence(topic: &TopicFacts, cluster: &Cluster<'_>, found: &mut Found) {
    const NAME: &str = "exists";
    let title = topic.title();
    match (&topic.described, &topic.creation) {
        (Ok(Some(there)), _) => {
            let partitions = counted(there.partition_count, "partition", "partitions");
            let copies = counted(there.replicas_min, "copy", "copies");
            found.ok(NAME, format!("{title} has {partitions}, {copies} of each"));
        }
        (Ok(None), None) => {
            let name = &topic.name;
            let fix = match topic.role {
                Role::Output | Role::DeadLetters | Role::Parking => {
                    format!(
                        "sharestream topic create {name}; or sink.partitions in the job file, and the start creates it"
                    )
                }
                Role::Source | Role::Outcomes => format!("sharestream topic create {name}"),
            };
            found.refused(NAME, format!("{title} does not exist"), fix);
        }
        (Ok(None), Some(Creation { checked: Err(no), .. })) => {
            found.refused(
                NAME,
                format!("{title} does not exist, and cannot be created: {no}"),
                "create it, or allow it",
            );
        }
        (Ok(None), Some(Creation { partitions, copies, checked: Ok(()) })) => {
            let default = cluster.brokers.and_then(|brokers| brokers.get(REPLICATION_DEFAULT));
            let copies = copies.map(i64::from).or_else(|| default.and_then(|text| text.parse().ok()));
            let said = copies.map_or_else(
                || "as many copies as the brokers make".to_owned(),
                |count| counted(count, "copy", "copies"),
            );
            let partitions = counted(*partitions, "partition", "partitions");
            let message = format!("{title} will be created: {partitions}, {said}");
            match copies {
                Some(1) if cluster.node_count >= NODES_FOR_TWO_COPIES => {
                    let fix = format!(
                        "create it by hand with three copies, or raise {REPLICATION_DEFAULT} of the brokers"
                    );
                    found.warning(NAME, message, fix);
                }
                _ => found.ok(NAME, message),
            }
        }
        (Err(no), _) if no.is_refusal => found.refused(NAME, no.why.as_str(), ""),
        (Err(why), _) => found.not_checked(NAME, &title, why),
    }
}

fn counted(count: impl std::fmt::Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let word = if count == "1" { one } else { many };
    format!("{count} {word}")
}

/// Whether what is written outlives a broker, and whether it can be written at all.
fn copies(topic: &TopicFacts, there: &TopicDescription, cluster: &Cluster<'_>, found: &mut Found) {
    let title = topic.title();
    let TopicDescription { replicas_min, in_sync_min, leaderless_count, .. } = *there;
    if leaderless_count > 0 {
        let message =
            format!("{title} has {leaderless_count} partitions without a leader: the start waits for them");
        found.warning("leaders", message, "start the brokers that hold them");
    }
    if !topic.role.is_written() {
        return;
    }
    if replicas_min == 1 && cluster.node_count > 1 {
        let message = format!(
            "{title} has one copy on {} brokers: what was committed there is gone with its broker",
            cluster.node_count
        );
        found.warning("copies", message, "three copies: kafka-reassign-partitions.sh, or create it anew");
    }
    // Those of the outcome topic have a check of their own.
    if topic.role == Role::Outcomes {
        return;
    }
    let copies = u64::try_from(replicas_min).unwrap_or(u64::MAX);
    let in_sync = u64::try_from(in_sync_min).unwrap_or(u64::MAX);
    match topic.number(MIN_IN_SYNC) {
        Some(least) if least > copies => {
            let message =
                format!("{title} has {copies} copies and {MIN_IN_SYNC}={least}: every write is refused");
            found.refused(
                "in-sync",
                message,
                topic.change(MIN_IN_SYNC, &copies.saturating_sub(1).max(1).to_string()),
            );
        }
        Some(least) if least > in_sync => {
            let in_sync_copies = counted(in_sync, "copy", "copies");
            let message = format!(
                "{title} has a partition with {in_sync_copies} in sync, and {MIN_IN_SYNC}={least}: writes wait for the others"
            );
            found.warning("in-sync", message, "start the brokers that hold them");
        }
        Some(1) if copies >= 3 => {
            let message = format!(
                "{title} has {MIN_IN_SYNC}=1: a write counts when its leader alone has it, and may be lost with it"
            );
            found.warning("in-sync", message, topic.change(MIN_IN_SYNC, "2"));
        }
        Some(_) | None => {}
    }
    if topic.setting(UNCLEAN_ELECTION) == Some("true") {
        let message = format!(
            "{title} has {UNCLEAN_ELECTION}=true: what was committed may be lost when a broker fails"
        );
        found.warning("unclean-election", message, topic.change(UNCLEAN_ELECTION, "false"));
    }
}

fn compaction(topic: &TopicFacts, found: &mut Found) {
    const NAME: &str = "compacted";
    let is_compacted = |policy: &str| policy.split(',').any(|part| part.trim() == "compact");
    if !topic.setting(CLEANUP_POLICY).is_some_and(is_compacted) {
        return;
    }
    let title = topic.title();
    let fix = topic.change(CLEANUP_POLICY, "delete");
    match topic.role {
        Role::Output => {
            let message = format!(
                "{title} is compacted, and a share group gives no order for each key: what compaction keeps of a key need not \
                 be its latest"
            );
            found.warning(NAME, message, format!("{fix}; or an operator that keeps the newest"));
        }
        Role::DeadLetters => {
            let message =
                format!("{title} is compacted: a dead letter is gone when another with its key comes");
            found.warning(NAME, message, fix);
        }
        Role::Parking => {
            let message =
                format!("{title} is compacted: a parked record is lost when another with its key is parked");
            found.refused(NAME, message, fix);
        }
        Role::Source => {
            let message = format!(
                "{title} is compacted: a record may be gone before it is handed out, when a newer one has its key"
            );
            found.hint(NAME, message, "");
        }
        // It must be.
        Role::Outcomes => {}
    }
}

/// Whether what is read fits into what is written.
fn sizes(topics: &[TopicFacts], cluster: &Cluster<'_>, found: &mut Found) {
    const NAME: &str = "record-size";
    let of = |role: Role| topics.iter().filter(move |topic| topic.role == role);
    let largest = of(Role::Source)
        .filter_map(|topic| Some((topic.number(MESSAGE_BYTES_MAX)?, topic)))
        .max_by_key(|(bytes, _)| *bytes);
    let Cluster { batch_bytes_max, record_bytes_max, .. } = *cluster;
    for output in of(Role::Output) {
        if let Some(bytes) = output.number(MESSAGE_BYTES_MAX).filter(|bytes| *bytes < batch_bytes_max) {
            let message = format!(
                "{} takes {bytes} bytes ({MESSAGE_BYTES_MAX}): batches are made no larger than that, in place of \
                 {batch_bytes_max}",
                output.title()
            );
            found.hint(NAME, message, output.change(MESSAGE_BYTES_MAX, &batch_bytes_max.to_string()));
        }
    }
    let Some((source_bytes, source)) = largest else { return };
    for topic in of(Role::DeadLetters).chain(of(Role::Parking)) {
        let Some(bytes) = topic.number(MESSAGE_BYTES_MAX).filter(|bytes| *bytes < source_bytes) else {
            continue;
        };
        let then = match topic.role {
            Role::DeadLetters => "a larger dead letter is kept without its value, and cannot be replayed",
            _ => "a larger record cannot be parked",
        };
        let message = format!(
            "{} takes {bytes} bytes ({MESSAGE_BYTES_MAX}), {} up to {source_bytes}: {then}",
            topic.title(),
            source.title()
        );
        found.warning(NAME, message, topic.change(MESSAGE_BYTES_MAX, &source_bytes.to_string()));
    }
    if source_bytes > record_bytes_max {
        let message = format!(
            "{} takes {source_bytes} bytes ({MESSAGE_BYTES_MAX}), and the job decodes {record_bytes_max}: larger records are \
             handled as errors of kind too_large",
            source.title()
        );
        found.hint(NAME, message, "record_bytes_max in [source]");
    }
}

/// What the job may do with its topics.
pub(crate) fn rights(topics: &[TopicFacts], principal: Option<&str>, found: &mut Found) {
    const NAME: &str = "topic";
    for topic in topics {
        // One that is not there, or may not be seen, has a finding of its own.
        let Some(there) = topic.is_there() else { continue };
        let title = topic.title();
        let Some(operations) = there.operations else {
            found.not_checked(NAME, &format!("rights on {title}"), "the brokers do not tell");
            continue;
        };
        let missing: Vec<AclOperation> =
            topic.role.needs().iter().copied().filter(|operation| !operations.allows(*operation)).collect();
        for operation in &missing {
            let fix = acl_advice(operation.word(), AclResource::Topic(&topic.name), principal);
            found.refused(NAME, format!("{} on {title} is not allowed", operation.word()), fix);
        }
        if missing.is_empty() {
            let words: Vec<&str> = topic.role.needs().iter().map(|operation| operation.word()).collect();
            found.ok(NAME, format!("{} on {title}", words.join(" and ")));
        }
        let may_see = operations.allows(AclOperation::DescribeConfigs);
        if topic.role.is_written() && !may_see {
            let word = AclOperation::DescribeConfigs.word();
            let fix = acl_advice(word, AclResource::Topic(&topic.name), principal);
            found.warning(
                "topic-settings",
                format!("{word} on {title} is not allowed: its settings are not checked"),
                fix,
            );
        }
    }
}
