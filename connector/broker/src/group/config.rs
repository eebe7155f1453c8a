//! Settings of share groups (KIP-932, KIP-1191, KIP-1222, KIP-1240): what an administrator sets, over the broker's defaults.
//!
//! They may be set before the group exists.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::ShareDefaults;
use crate::disk::{Disk, MetaRecord};
use crate::error::ErrorCode;
use crate::share::GroupConfigEntry;

/// Where a group without a start offset begins in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffsetReset {
    /// At the log's start.
    Earliest,
    /// At the log's end.
    Latest,
    /// At the first record that is not older.
    ByDuration(Duration),
}

/// All settings of one group, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    /// `share.auto.offset.reset`.
    pub(crate) offset_reset: OffsetReset,
    /// `share.isolation.level` is `read_committed`.
    pub(crate) read_committed: bool,
    /// `share.record.lock.duration.ms`.
    pub(crate) lock_duration: Duration,
    /// `share.delivery.count.limit`.
    pub(crate) delivery_count_limit: u16,
    /// `share.partition.max.record.locks`.
    pub(crate) max_record_locks: i64,
    /// `share.session.timeout.ms`.
    pub(crate) session_timeout: Duration,
    /// `share.heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `share.renew.acknowledge.enable`.
    pub(crate) renew_enabled: bool,
    /// `errors.deadletterqueue.topic.name` is set.
    pub(crate) dead_letters: bool,
    /// `errors.deadletterqueue.copy.record.enable`.
    pub(crate) dead_letters_copy: bool,
}

const RESET: &str = "share.auto.offset.reset";
const ISOLATION: &str = "share.isolation.level";
const LOCK_MS: &str = "share.record.lock.duration.ms";
const COUNT_LIMIT: &str = "share.delivery.count.limit";
const MAX_LOCKS: &str = "share.partition.max.record.locks";
const SESSION_MS: &str = "share.session.timeout.ms";
const HEARTBEAT_MS: &str = "share.heartbeat.interval.ms";
const RENEW: &str = "share.renew.acknowledge.enable";
const LETTER_TOPIC: &str = "errors.deadletterqueue.topic.name";
const LETTER_COPY: &str = "errors.deadletterqueue.copy.record.enable";
const KEYS: [&str; 10] = [
    RESET,
    ISOLATION,
    LOCK_MS,
    COUNT_LIMIT,
    MAX_LOCKS,
    SESSION_MS,
    HEARTBEAT_MS,
    RENEW,
    LETTER_TOPIC,
    LETTER_COPY,
];

/// Settings of every group.
#[derive(Debug)]
pub(crate) struct GroupConfigs {
    defaults: GroupSettings,
    groups: Mutex<BTreeMap<String, BTreeMap<&'static str, String>>>,
    /// Where settings are kept as well; none live in memory only.
    disk: Option<Arc<Disk>>,
}

impl GroupConfigs {
    /// Nothing set; the broker's defaults hold.
    pub(crate) fn new(defaults: &ShareDefaults, disk: Option<Arc<Disk>>) -> Self {
        GroupConfigs {
            defaults: GroupSettings {
                offset_reset: OffsetReset::Latest,
                read_committed: false,
                lock_duration: defaults.record_lock_duration,
                delivery_count_limit: u16::try_from(defaults.delivery_count_limit).unwrap_or(1),
                max_record_locks: i64::from(defaults.partition_max_record_locks),
                session_timeout: defaults.session_timeout,
                heartbeat_interval: defaults.heartbeat_interval,
                renew_enabled: true,
                dead_letters: false,
                dead_letters_copy: false,
            },
            groups: Mutex::default(),
            disk,
        }
    }

    /// Takes in what a data folder has. What this build does not know stays there and means nothing.
    pub(crate) fn restore(&self, stored: BTreeMap<String, BTreeMap<String, String>>) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, set) in stored {
            let known = set.into_iter().filter_map(|(key, value)| {
                let key = KEYS.into_iter().find(|known| **known == key)?;
                Some((key, value))
            });
            groups.insert(group, known.collect());
        }
    }

    /// The settings that hold for a group.
    pub(crate) fn settings(&self, group: &str) -> GroupSettings {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut settings = self.defaults;
        for (key, value) in groups.get(group).into_iter().flatten() {
            // Checked when it was set.
            let _checked = apply(&mut settings, key, value);
        }
        settings
    }

    /// The dead letter topic of a group.
    pub(crate) fn dead_letter_topic(&self, group: &str) -> Option<String> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get(group)?.get(LETTER_TOPIC).filter(|name| !name.is_empty()).cloned()
    }

    /// Every setting of a group.
    pub(crate) fn entries(&self, group: &str) -> Vec<GroupConfigEntry> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let set = groups.get(group);
        let entry = |name: &'static str| {
            let value = set.and_then(|set| set.get(name));
            GroupConfigEntry {
                name,
                value: value.cloned().unwrap_or_else(|| print(&self.defaults, name)),
                is_default: value.is_none(),
            }
        };
        KEYS.into_iter().map(entry).collect()
    }

    /// Checks a change and, unless `validate_only`, makes it. `None` goes back to the default.
    pub(crate) fn alter(
        &self,
        group: &str,
        name: &str,
        value: Option<&str>,
        validate_only: bool,
    ) -> Result<(), (ErrorCode, String)> {
        let invalid = |text: String| (ErrorCode::InvalidConfig, text);
        let key = KEYS.into_iter().find(|key| *key == name);
        let key = key.ok_or_else(|| invalid(format!("unknown group config {name}")))?;
        if let Some(value) = value {
            let mut settings = self.defaults;
            apply(&mut settings, key, value)
                .map_err(|want| invalid(format!("{key} is '{value}', not {want}")))?;
        }
        if validate_only {
            return Ok(());
        }
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(disk) = &self.disk {
            let (group, value) = (group.to_owned(), value.map(str::to_owned));
            let noted = disk.record(MetaRecord::GroupConfig { group, key: key.to_owned(), value });
            noted.map_err(|code| (code, format!("{key} was not written: {code}")))?;
        }
        let set = groups.entry(group.to_owned()).or_default();
        match value {
            Some(value) => set.insert(key, value.to_owned()),
            None => set.remove(key),
        };
        Ok(())
    }
}

/// Sets one field from its text; on `Err` it says what was expected.
fn apply(settings: &mut GroupSettings, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        RESET => {
            settings.offset_reset = match value {
                "earliest" => OffsetReset::Earliest,
                "latest" => OffsetReset::Latest,
                _ => {
                    let duration = value.strip_prefix("by_duration:").and_then(iso_duration);
                    OffsetReset::ByDuration(duration.ok_or("earliest, latest or by_duration:PT...")?)
                }
            };
        }
        ISOLATION => {
            settings.read_committed = match value {
                "read_committed" => true,
                "read_uncommitted" => false,
                _ => return Err("read_committed or read_uncommitted"),
            };
        }
        RENEW => settings.renew_enabled = value.parse().map_err(|_| "true or false")?,
        LETTER_TOPIC if value.starts_with("__") => return Err("a name that does not start with '__'"),
        LETTER_TOPIC => settings.dead_letters = !value.is_empty(),
        LETTER_COPY => settings.dead_letters_copy = value.parse().map_err(|_| "true or false")?,
        // Kafka bounds these much closer; tests of lock expiry must not wait for 15 seconds.
        LOCK_MS => settings.lock_duration = milliseconds(value, 3_600_000)?,
        SESSION_MS => settings.session_timeout = milliseconds(value, 3_600_000)?,
        HEARTBEAT_MS => settings.heartbeat_interval = milliseconds(value, 3_600_000)?,
        COUNT_LIMIT => settings.delivery_count_limit = number(value, 1, 100)?,
        MAX_LOCKS => settings.max_record_locks = number(value, 1, 1_000_000)?,
        _ => return Err("a known key"),
    }
    Ok(())
}

fn print(settings: &GroupSettings, key: &str) -> String {
    match key {
        RESET => match settings.offset_reset {
            OffsetReset::Earliest => "earliest".to_owned(),
            OffsetReset::Latest => "latest".to_owned(),
            OffsetReset::ByDuration(duration) => format!("by_duration:PT{}S", duration.as_secs()),
        },
        ISOLATION => if settings.read_committed { "read_committed" } else { "read_uncommitted" }.to_owned(),
        RENEW => settings.renew_enabled.to_string(),
        LETTER_COPY => settings.dead_letters_copy.to_string(),
        LOCK_MS => settings.lock_duration.as_millis().to_string(),
        SESSION_MS => settings.session_timeout.as_millis().to_string(),
        HEARTBEAT_MS => settings.heartbeat_interval.as_millis().to_string(),
        COUNT_LIMIT => settings.delivery_count_limit.to_string(),
        MAX_LOCKS => settings.max_record_locks.to_string(),
        _ => String::new(),
    }
}

fn milliseconds(value: &str, max: u64) -> Result<Duration, &'static str> {
    match value.parse::<u64>() {
        Ok(ms) if (1..=max).contains(&ms) => Ok(Duration::from_millis(ms)),
        Ok(_) | Err(_) => Err("a number of milliseconds from 1 to 3600000"),
    }
}

fn number<T: TryFrom<u64>>(value: &str, min: u64, max: u64) -> Result<T, &'static str> {
    const WANT: &str = "a whole number within its bounds";
    match value.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => T::try_from(number).map_err(|_| WANT),
        Ok(_) | Err(_) => Err(WANT),
    }
}

/// `P[nD][T[nH][nM][nS]]` with whole numbers, as `java.time.Duration` prints them.
fn iso_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('P')?;
    let (mut seconds, mut in_time, mut any) = (0u64, false, false);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            if in_time {
                return None;
            }
            (rest, in_time) = (after, true);
            continue;
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest.get(..digits)?.parse().ok()?;
        let unit = match (rest.get(digits..)?.chars().next()?, in_time) {
            ('D', false) => 86_400,
            ('H', true) => 3_600,
            ('M', true) => 60,
            ('S', true) => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(count.checked_mul(unit)?)?;
        rest = rest.get(digits + 1..)?;
        any = true;
    }
    any.then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_before_they_hold() {
        let configs = GroupConfigs::new(&ShareDefaults::default(), None);
        let good = [
            (RESET, "earliest"),
            (RESET, "by_duration:P1DT2H"),
            (ISOLATION, "read_committed"),
            (LOCK_MS, "1500"),
            (COUNT_LIMIT, "7"),
            (MAX_LOCKS, "4000"),
            (RENEW, "false"),
        ];
        for (key, value) in good {
            configs.alter("g", key, Some(value), false).unwrap();
        }
        let settings = configs.settings("g");
        assert_eq!(settings.offset_reset, OffsetReset::ByDuration(Duration::from_secs(26 * 3_600)));
        assert!(settings.read_committed && !settings.renew_enabled);
        assert_eq!(settings.lock_duration, Duration::from_millis(1_500));
        assert_eq!((settings.delivery_count_limit, settings.max_record_locks), (7, 4_000));
        let bad =
            [(RESET, "first"), (RESET, "by_duration:P1H"), (LOCK_MS, "0"), (COUNT_LIMIT, "-1"), ("x", "1")];
        for (key, value) in bad {
            assert_eq!(configs.alter("g", key, Some(value), false).unwrap_err().0, ErrorCode::InvalidConfig);
        }
        configs.alter("g", LOCK_MS, None, false).unwrap();
        assert_eq!(configs.settings("g").lock_duration, Duration::from_secs(30));
        assert_eq!(configs.settings("other").delivery_count_limit, 5);
        let entries = configs.entries("g");
        assert_eq!(entries.iter().filter(|entry| !entry.is_default).count(), 5);
    }
}
