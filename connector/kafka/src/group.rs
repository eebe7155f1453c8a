//! Settings of the share group that the job has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_core::coordinates::RejectKind;
use sharestream_core::decision::Decision;

use crate::config::{BadRecords, KafkaJobConfig};

/// Kafka: `share.delivery.count.limit`.
pub(crate) const DELIVERY_COUNT_LIMIT: &str = "share.delivery.count.limit";
/// Kafka: `share.partition.max.record.locks`.
pub(crate) const RECORD_LOCKS_MAX: &str = "share.partition.max.record.locks";
/// Kafka: `share.record.lock.duration.ms`.
pub(crate) const LOCK_DURATION_MS: &str = "share.record.lock.duration.ms";
/// Kafka: `share.renew.acknowledge.enable` (KIP-1222).
pub(crate) const RENEWAL_ENABLED: &str = "share.renew.acknowledge.enable";
/// Kafka: topic to which the broker itself writes rejected records (KIP-1191).
pub(crate) const BROKER_DEAD_LETTER_TOPIC: &str = "errors.deadletterqueue.topic.name";

/// Splits off the names of those configs that the brokers do not know (`known`: what they describe) and that only tune: a
/// job is as right without them. Kafka 4.2 has them as settings of the brokers alone. Others stay: without them the group
/// might read something else.
pub(crate) fn split_unknown_tuning(
    wanted: Vec<(String, String)>,
    known: &BTreeMap<String, String>,
) -> (Vec<(String, String)>, Vec<String>) {
    let is_unknown_tuning = |(name, _): &(String, String)| {
        [DELIVERY_COUNT_LIMIT, RECORD_LOCKS_MAX].contains(&name.as_str()) && !known.contains_key(name)
    };
    let (unknown, kept): (Vec<_>, Vec<_>) = wanted.into_iter().partition(is_unknown_tuning);
    (kept, unknown.into_iter().map(|(name, _)| name).collect())
}

/// Kafka's default of `group.share.record.lock.duration.ms`.
const LOCK_DURATION_DEFAULT: Duration = Duration::from_secs(30);

/// Limits under which the group hands out records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    pub(crate) delivery_count_limit: u16,
    pub(crate) record_locks_max: u64,
    /// How long an acquired record stays locked.
    pub(crate) lock_duration: Duration,
    /// Locks may be renewed. A refusal does not tell that from a lost lock.
    pub(crate) renews_locks: bool,
    /// The broker writes rejected records to a dead letter topic of its own.
    pub(crate) broker_dead_letters: bool,
}

/// Whether the group has the limits as settings of its own. In Kafka 4.2 only the brokers have them.
pub(crate) fn tells_limits(described: &BTreeMap<String, String>) -> bool {
    [DELIVERY_COUNT_LIMIT, RECORD_LOCKS_MAX, LOCK_DURATION_MS]
        .iter()
        .all(|name| described.contains_key(*name))
}

impl GroupSettings {
    /// Reads them from the group's settings, or where it lacks one from the brokers' (`group.` before the name); what
    /// nobody tells has Kafka's default.
    pub(crate) fn of(described: &BTreeMap<String, String>, brokers: &BTreeMap<String, String>) -> Self {
        let told = |name: &str| described.get(name).or_else(|| brokers.get(&format!("group.{name}")));
        GroupSettings {
            delivery_count_limit: told(DELIVERY_COUNT_LIMIT).and_then(|text| text.parse().ok()).unwrap_or(5),
            record_locks_max: told(RECORD_LOCKS_MAX).and_then(|text| text.parse().ok()).unwrap_or(2_000),
            lock_duration: told(LOCK_DURATION_MS)
                .and_then(|text| text.parse().ok())
                .filter(|ms| *ms > 0)
                .map_or(LOCK_DURATION_DEFAULT, Duration::from_millis),
            renews_locks: described.get(RENEWAL_ENABLED).is_none_or(|text| text != "false"),
            broker_dead_letters: described
                .get(BROKER_DEAD_LETTER_TOPIC)
                .is_some_and(|topic| !topic.is_empty()),
        }
    }

    /// The decision on a record that cannot be processed. Where the broker keeps dead letters too, a REJECT
    /// would make it write the record a second time.
    pub(crate) fn decision_on_bad(&self, policy: BadRecords) -> Decision {
        match policy {
            BadRecords::DeadLetter if self.broker_dead_letters => Decision::Accept,
            BadRecords::DeadLetter | BadRecords::Reject | BadRecords::Fail => Decision::Reject,
        }
    }
}

/// What becomes of records that cannot be processed, by the kind of their error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RejectPlan {
    decode: (BadRecords, Decision),
    transform: (BadRecords, Decision),
    call: (BadRecords, Decision),
    delivery_limit: (BadRecords, Decision),
}

impl RejectPlan {
    pub(crate) fn new(config: &KafkaJobConfig, group: &GroupSettings) -> Self {
        let of = |kind| {
            let policy = config.policy(kind);
            (policy, group.decision_on_bad(policy))
        };
        RejectPlan {
            decode: of(RejectKind::Decode),
            transform: of(RejectKind::Transform),
            call: of(RejectKind::Call),
            delivery_limit: of(RejectKind::DeliveryLimit),
        }
    }

    fn of(&self, kind: RejectKind) -> (BadRecords, Decision) {
        match kind {
            RejectKind::Decode => self.decode,
            RejectKind::Transform => self.transform,
            RejectKind::Call => self.call,
            RejectKind::DeliveryLimit => self.delivery_limit,
        }
    }

    pub(crate) fn policy(&self, kind: RejectKind) -> BadRecords {
        self.of(kind).0
    }

    /// What is staged for such a record.
    #[inline]
    pub(crate) fn decision(&self, kind: RejectKind) -> Decision {
        self.of(kind).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_the_broker_does_not_tell_have_kafkas_defaults() {
        let defaults = GroupSettings {
            delivery_count_limit: 5,
            record_locks_max: 2_000,
            lock_duration: Duration::from_secs(30),
            renews_locks: true,
            broker_dead_letters: false,
        };
        let nothing = BTreeMap::new();
        assert_eq!(GroupSettings::of(&nothing, &nothing), defaults);
        let told = [
            (DELIVERY_COUNT_LIMIT, "9"),
            (RECORD_LOCKS_MAX, "4000"),
            (LOCK_DURATION_MS, "15000"),
            (BROKER_DEAD_LETTER_TOPIC, "dlq.g"),
        ];
        let told = told.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = GroupSettings {
            delivery_count_limit: 9,
            record_locks_max: 4_000,
            lock_duration: Duration::from_secs(15),
            renews_locks: true,
            broker_dead_letters: true,
        };
        assert_eq!(GroupSettings::of(&told.into(), &nothing), expected);
    }

    #[test]
    fn limits_that_the_group_lacks_are_those_of_the_brokers() {
        let brokers = BTreeMap::from([
            (format!("group.{DELIVERY_COUNT_LIMIT}"), "2".to_owned()),
            (format!("group.{RECORD_LOCKS_MAX}"), "100".to_owned()),
        ]);
        let of_the_brokers = GroupSettings {
            delivery_count_limit: 2,
            record_locks_max: 100,
            lock_duration: Duration::from_secs(30),
            renews_locks: true,
            broker_dead_letters: false,
        };
        assert_eq!(GroupSettings::of(&BTreeMap::new(), &brokers), of_the_brokers);
        let group = BTreeMap::from([(DELIVERY_COUNT_LIMIT.to_owned(), "9".to_owned())]);
        assert!(!tells_limits(&group));
        assert_eq!(
            GroupSettings::of(&group, &brokers),
            GroupSettings { delivery_count_limit: 9, ..of_the_brokers }
        );
    }

    #[test]
    fn only_tuning_that_the_brokers_do_not_know_is_left_out() {
        let pair = |name: &str| (name.to_owned(), "10".to_owned());
        let wanted = ["share.isolation.level", DELIVERY_COUNT_LIMIT, RECORD_LOCKS_MAX].map(pair).to_vec();
        let known = BTreeMap::from([pair(RECORD_LOCKS_MAX)]);
        let (kept, unknown) = split_unknown_tuning(wanted.clone(), &known);
        assert_eq!(kept, ["share.isolation.level", RECORD_LOCKS_MAX].map(pair));
        assert_eq!(unknown, [DELIVERY_COUNT_LIMIT]);
        let all: BTreeMap<_, _> = wanted.iter().cloned().collect();
        assert_eq!(split_unknown_tuning(wanted.clone(), &all), (wanted, Vec::new()));
    }

    #[test]
    fn a_dead_letter_of_ours_is_not_rejected_where_the_broker_would_write_it_again() {
        let settings = |broker_dead_letters| GroupSettings {
            delivery_count_limit: 5,
            record_locks_max: 2_000,
            lock_duration: Duration::from_secs(30),
            renews_locks: true,
            broker_dead_letters,
        };
        assert_eq!(settings(false).decision_on_bad(BadRecords::DeadLetter), Decision::Reject);
        assert_eq!(settings(true).decision_on_bad(BadRecords::DeadLetter), Decision::Accept);
        assert_eq!(settings(true).decision_on_bad(BadRecords::Reject), Decision::Reject);
    }
}
