//! The settings that the group will have, and where it stands.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_client::TopicDescription;

use super::finding::{Area, Asked, Finding, Found, NoAnswer};
use crate::group::{
    BROKER_DEAD_LETTER_TOPIC, DELIVERY_COUNT_LIMIT, ISOLATION_LEVEL, OFFSET_RESET, READ_COMMITTED,
    RECORD_LOCKS_MAX, RENEWAL_ENABLED,
};

/// Kafka: a topic must allow that brokers write dead letters to it (KIP-1191).
const LETTERS_ALLOWED: &str = "errors.deadletterqueue.group.enable";
/// Kafka: how the names of such topics begin.
const LETTERS_PREFIX: &str = "errors.deadletterqueue.topic.name.prefix";
/// Kafka: whether brokers make them.
const LETTERS_CREATED: &str = "errors.deadletterqueue.auto.create.topics.enable";
/// From this level of `share.version` on brokers write dead letters.
const SHARE_VERSION_WITH_LETTERS: i16 = 2;
/// The least limit that leaves a delivery to stop with (ADR 0019).
const DELIVERY_LIMIT_PROTECTED: u64 = 3;

type Settings = BTreeMap<String, String>;

/// What is known of the group.
#[derive(Clone, Debug)]
pub(crate) struct GroupFacts {
    pub(crate) group: String,
    /// What the job will set.
    pub(crate) wanted: Settings,
    /// What the brokers say to that; `None` where nothing is wanted.
    pub(crate) change: Option<Asked<()>>,
    /// Wanted settings that the brokers do not know and the job can do without.
    pub(crate) unknown: Vec<String>,
    /// What the group has.
    pub(crate) told: Asked<Settings>,
    /// What the brokers have.
    pub(crate) brokers: Asked<Settings>,
    pub(crate) share_version: i16,
    /// Where it stands in the source topics that there are.
    pub(crate) standing: Asked<Standing>,
    /// The topic of the brokers' dead letters, if the group has one.
    pub(crate) letters: Option<BrokerLetters>,
    pub(crate) delivery_reserve: u16,
    pub(crate) goal: Duration,
    /// The job has a dead letter topic of its own.
    pub(crate) has_dead_letters: bool,
}

/// Where the group stands in the source topics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) partition_count: u64,
    /// Partitions that it has never read.
    pub(crate) unread_count: u64,
    /// Records that lie in those.
    pub(crate) unread_records: u64,
}

/// The topic that the brokers write dead letters to.
#[derive(Clone, Debug)]
pub(crate) struct BrokerLetters {
    pub(crate) topic: String,
    pub(crate) described: Asked<Option<TopicDescription>>,
    pub(crate) settings: Asked<Settings>,
}

/// The topic of the brokers' dead letters that these settings name, the first that says something.
pub(crate) fn letters_topic<'a>(settings: impl IntoIterator<Item = &'a Settings>) -> Option<String> {
    let mut named = settings.into_iter().filter_map(|settings| settings.get(BROKER_DEAD_LETTER_TOPIC));
    named.next().filter(|topic| !topic.is_empty()).cloned()
}

impl GroupFacts {
    /// The value that will hold; what nobody tells is `Ok(None)` where everybody was asked.
    fn setting(&self, name: &str) -> Asked<Option<&str>> {
        let is_unknown = self.unknown.iter().any(|unknown| unknown == name);
        if let Some(value) = self.wanted.get(name).filter(|_| !is_unknown) {
            return Ok(Some(value));
        }
        let told = match &self.told {
            Ok(told) => told.get(name),
            Err(why) => return Err(why.clone()),
        };
        if let Some(value) = told {
            return Ok(Some(value));
        }
        match &self.brokers {
            Ok(brokers) => Ok(brokers.get(&format!("group.{name}")).map(String::as_str)),
            Err(why) => Err(why.clone()),
        }
    }

    fn number(&self, name: &str) -> Asked<Option<u64>> {
        Ok(self.setting(name)?.and_then(|text| text.parse().ok()))
    }
}

/// Each setting of the group that decides about records.
pub(crate) fn group(facts: &GroupFacts) -> Vec<Finding> {
    let mut found = Found::of(Area::Group);
    change(facts, &mut found);
    offset_reset(facts, &mut found);
    isolation(facts, &mut found);
    deliveries(facts, &mut found);
    window(facts, &mut found);
    broker_letters(facts, &mut found);
    found.list
}

fn change(facts: &GroupFacts, found: &mut Found) {
    let names = || facts.wanted.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    match &facts.change {
        None => {}
        Some(Ok(())) => found.ok("settings", format!("the start may set {}", names())),
        Some(Err(_)) if !facts.unknown.is_empty() => {
            let unknown = facts.unknown.join(", ");
            let message = format!(
                "these brokers do not have {unknown} for each group; what they say under group.<name> holds"
            );
            found.warning("settings", message, "set it there, or take it out of [source.group_config]");
        }
        Some(Err(no)) => {
            let message = format!("{} cannot be set for group '{}': {no}", names(), facts.group);
            found.refused("settings", message, "correct [source.group_config], or allow it");
        }
    }
}

fn offset_reset(facts: &GroupFacts, found: &mut Found) {
    const NAME: &str = "offset-reset";
    let group = &facts.group;
    let standing = match &facts.standing {
        Ok(standing) => *standing,
        Err(why) => {
            found.not_checked(NAME, &format!("where group '{group}' stands in the source topics"), why);
            Standing { unread_count: 1, ..Standing::default() }
        }
    };
    let Standing { partition_count, unread_count, unread_records } = standing;
    if partition_count > 0 && unread_count == 0 {
        found.ok(NAME, format!("group '{group}' has a start offset in all {partition_count} partitions"));
        return;
    }
    let fix = format!("{OFFSET_RESET} = \"earliest\" in [source.group_config] reads them, too");
    match facts.setting(OFFSET_RESET) {
        Ok(Some("earliest")) => {
            found.ok(NAME, format!("group '{group}' begins at the first record of what it has never read"));
        }
        Ok(Some(reset)) if reset.starts_with("by_duration") => {
            found.ok(NAME, format!("group '{group}' begins in what it has never read as {reset} says"));
        }
        Ok(told) => {
            let by = if told.is_some() { "" } else { ", Kafka's default" };
            let partitions = match partition_count {
                0 => "partitions that it has never read".to_owned(),
                all => format!("{unread_count} of {all} partitions, which it has never read"),
            };
            let message = format!(
                "group '{group}' begins at the end ({OFFSET_RESET} = latest{by}) of {partitions}: {unread_records} records \
                 there are not processed, nor what comes before the first member"
            );
            found.warning(NAME, message, fix);
        }
        Err(why) => {
            let what = format!(
                "where group '{group}' begins in what it has never read (Kafka's default: at the end)"
            );
            found.not_checked(NAME, &what, why);
        }
    }
}

fn isolation(facts: &GroupFacts, found: &mut Found) {
    const NAME: &str = "isolation";
    match facts.setting(ISOLATION_LEVEL) {
        Ok(Some(READ_COMMITTED)) => found.ok(NAME, "records of transactions that aborted are not read"),
        Ok(_) => {
            let message = format!(
                "{ISOLATION_LEVEL} is read_uncommitted: where producers of the source topics use transactions, records of \
                 aborted ones are processed, too"
            );
            found.hint(
                NAME,
                message,
                format!("{ISOLATION_LEVEL} = \"{READ_COMMITTED}\" in [source.group_config]"),
            );
        }
        Err(why) => found.not_checked(NAME, ISOLATION_LEVEL, why),
    }
}

fn deliveries(facts: &GroupFacts, found: &mut Found) {
    const NAME: &str = "delivery-limit";
    let fix = format!("{DELIVERY_COUNT_LIMIT} of at least {DELIVERY_LIMIT_PROTECTED}; 5 is Kafka's default");
    match facts.number(DELIVERY_COUNT_LIMIT) {
        Ok(Some(limit)) if limit < DELIVERY_LIMIT_PROTECTED => {
            let message = format!(
                "{DELIVERY_COUNT_LIMIT} is {limit}: a record that is held when the process dies has no delivery left to stop \
                 with, and may be archived by the broker in silence"
            );
            found.warning(NAME, message, fix);
        }
        Ok(_) if facts.delivery_reserve == 0 => {
            let message =
                "delivery-reserve is 0: a record that kills the job is archived by the broker in silence";
            found.warning(NAME, message, "leave it at 2");
        }
        Ok(limit) => {
            let limit = limit.unwrap_or(5);
            found.ok(
                NAME,
                format!("a record may be delivered {limit} times, and the last ones are never spent unseen"),
            );
        }
        Err(why) => found.not_checked(NAME, DELIVERY_COUNT_LIMIT, why),
    }
    match facts.setting(RENEWAL_ENABLED) {
        Ok(Some("false")) => {
            let message = format!(
                "{RENEWAL_ENABLED} is false: a record that takes longer than its lock goes to somebody else, and its epoch \
                 starts anew"
            );
            found.warning("renewal", message, format!("{RENEWAL_ENABLED} = true in [source.group_config]"));
        }
        Ok(Some(_)) => found.ok("renewal", "locks are renewed as long as a record needs"),
        Ok(None) => found.not_checked(
            "renewal",
            RENEWAL_ENABLED,
            "these brokers have no such setting; their leaders tell when a lock is renewed first",
        ),
        Err(why) => found.not_checked("renewal", RENEWAL_ENABLED, why),
    }
}

/// What the lock window and the goal allow for all partitions together; [`crate::fit`] has it for one.
fn window(facts: &GroupFacts, found: &mut Found) {
    let (Ok(Some(locks)), Ok(standing)) = (facts.number(RECORD_LOCKS_MAX), &facts.standing) else { return };
    if standing.partition_count == 0 {
        return;
    }
    let rate = (locks * standing.partition_count) as f64 / facts.goal.as_secs_f64().max(0.001);
    let message = format!(
        "{} source partitions with {locks} record locks each and a goal of {:?} bound the job to {rate:.0} records/s, unless \
         commits are faster than the goal",
        standing.partition_count, facts.goal
    );
    found.hint("window", message, format!("more: partitions, {RECORD_LOCKS_MAX}, or a shorter goal"));
}

fn broker_letters(facts: &GroupFacts, found: &mut Found) {
    const NAME: &str = "broker-dead-letters";
    let Some(BrokerLetters { topic, described, settings }) = &facts.letters else {
        // Only what nobody could tell is worth a word.
        if let (Err(why), false) = (&facts.told, facts.wanted.contains_key(BROKER_DEAD_LETTER_TOPIC)) {
            found.not_checked(NAME, BROKER_DEAD_LETTER_TOPIC, why);
        }
        return;
    };
    let mut fine = true;
    let mut warn = |message: String, fix: String| {
        fine = false;
        found.warning(NAME, message, fix);
    };
    if facts.share_version < SHARE_VERSION_WITH_LETTERS {
        warn(
            format!(
                "{BROKER_DEAD_LETTER_TOPIC} is '{topic}', and share.version is {}: brokers write dead letters from {} on",
                facts.share_version, SHARE_VERSION_WITH_LETTERS
            ),
            "remove it, or upgrade share.version".to_owned(),
        );
    }
    let broker = |name: &str| facts.brokers.as_ref().ok().and_then(|brokers| brokers.get(name));
    if let Some(prefix) = broker(LETTERS_PREFIX).filter(|prefix| !topic.starts_with(prefix.as_str())) {
        warn(
            format!(
                "the brokers' dead letter topic '{topic}' does not begin with '{prefix}' ({LETTERS_PREFIX}): none is written"
            ),
            "give it another name".to_owned(),
        );
    }
    match described {
        Ok(None) if broker(LETTERS_CREATED).is_none_or(|created| created != "true") => warn(
            format!(
                "the brokers' dead letter topic '{topic}' does not exist, and they do not make it ({LETTERS_CREATED})"
            ),
            format!("sharestream topic create {topic} --config {LETTERS_ALLOWED}=true"),
        ),
        Ok(Some(_)) => {
            let is_allowed = settings
                .as_ref()
                .ok()
                .and_then(|settings| settings.get(LETTERS_ALLOWED))
                .is_none_or(|is| is == "true");
            if !is_allowed {
                warn(
                    format!(
                        "topic '{topic}' takes no dead letters of brokers ({LETTERS_ALLOWED} is not true): none is written"
                    ),
                    format!("kafka-configs.sh --alter --topic {topic} --add-config {LETTERS_ALLOWED}=true"),
                );
            }
        }
        Ok(None) => {}
        Err(why) => found.not_checked(NAME, &format!("the brokers' dead letter topic '{topic}'"), why),
    }
    if fine && described.is_ok() {
        let ours = match facts.has_dead_letters {
            true => {
                "; what goes to the job's own dead letter topic is accepted, so that it is not written twice"
            }
            false => "",
        };
        let message = format!("the brokers write what is rejected or archived to '{topic}'{ours}");
        found.ok(NAME, message);
    }
}

/// What may be done with the group.
pub(crate) fn rights(
    operations: &Asked<Option<sharestream_client::Operations>>,
    facts: &GroupFacts,
    principal: Option<&str>,
    found: &mut Found,
) {
    use sharestream_client::AclOperation::{AlterConfigs, Describe, DescribeConfigs, Read};
    const NAME: &str = "group";
    let group = &facts.group;
    let operations = match operations {
        Ok(Some(operations)) => operations,
        Ok(None) => {
            found.not_checked(
                NAME,
                &format!("rights on group '{group}'"),
                NoAnswer::because("the brokers do not tell"),
            );
            return;
        }
        Err(no) if no.is_refusal => return found.refused(NAME, no.why.as_str(), ""),
        Err(why) => {
            return found.not_checked(NAME, &format!("rights on group '{group}'"), why);
        }
    };
    let resource = || sharestream_client::AclResource::Group(group);
    let mut has_all = true;
    for operation in [Read, Describe, AlterConfigs, DescribeConfigs] {
        let is_needed = operation != AlterConfigs || !facts.wanted.is_empty();
        if !is_needed || operations.allows(operation) {
            continue;
        }
        has_all = false;
        let fix = sharestream_client::acl_advice(operation.word(), resource(), principal);
        if operation == DescribeConfigs {
            let message =
                format!("the settings of group '{group}' may not be read: Kafka's defaults are assumed");
            found.warning(NAME, message, fix);
        } else {
            found.refused(NAME, format!("{} on group '{group}' is not allowed", operation.word()), fix);
        }
    }
    if has_all {
        found.ok(NAME, format!("everything that the job does with group '{group}' is allowed"));
    }
}
