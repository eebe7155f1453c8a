//! Topic settings that a log heeds, under Kafka's names.

use std::collections::BTreeMap;

/// What the settings of a topic mean for its logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogSettings {
    /// `cleanup.policy` has `delete`: retention holds.
    pub(crate) delete: bool,
    /// `cleanup.policy` has `compact`: of each key the last record stays.
    pub(crate) compact: bool,
    /// `retention.bytes`; none means no limit.
    pub(crate) retention_bytes: Option<usize>,
    /// `retention.ms`; none means for ever.
    pub(crate) retention_ms: Option<i64>,
    /// `segment.bytes`.
    pub(crate) segment_bytes: u64,
    /// `segment.ms`.
    pub(crate) segment_ms: i64,
    /// `min.cleanable.dirty.ratio`, in hundredths.
    pub(crate) dirty_percent_min: u64,
    /// `min.compaction.lag.ms`.
    pub(crate) compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long deletions and markers outlive what they delete or end.
    pub(crate) delete_retention_ms: i64,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            delete: true,
            compact: false,
            retention_bytes: None,
            retention_ms: None,
            segment_bytes: 64 * 1024 * 1024,
            segment_ms: 7 * 24 * 3_600_000,
            dirty_percent_min: 50,
            compaction_lag_ms: 0,
            delete_retention_ms: 24 * 3_600_000,
        }
    }
}

impl LogSettings {
    /// Reads what is set; other keys mean nothing here. On `Err` it says which setting is wrong and what it may be.
    pub(crate) fn read(configs: &BTreeMap<String, String>) -> Result<LogSettings, String> {
        let mut settings = LogSettings::default();
        for (key, value) in configs {
            let want = settings.set(key, value);
            want.map_err(|want| format!("{key} is '{value}', not {want}"))?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        match key {
            "cleanup.policy" => {
                (self.delete, self.compact) = (false, false);
                for policy in value.split(',').map(str::trim) {
                    match policy {
                        "delete" => self.delete = true,
                        "compact" => self.compact = true,
                        _ => return Err("delete, compact, or both separated by a comma"),
                    }
                }
            }
            "errors.deadletterqueue.group.enable" if value.parse::<bool>().is_err() => {
                return Err("true or false");
            }
            "retention.bytes" => self.retention_bytes = usize::try_from(number(value, -1)?).ok(),
            "retention.ms" => self.retention_ms = Some(number(value, -1)?).filter(|ms| *ms >= 0),
            "segment.bytes" => self.segment_bytes = number(value, 14)?.unsigned_abs(),
            "segment.ms" => self.segment_ms = number(value, 1)?,
            "min.compaction.lag.ms" => self.compaction_lag_ms = number(value, 0)?,
            "delete.retention.ms" => self.delete_retention_ms = number(value, 0)?,
            "min.cleanable.dirty.ratio" => {
                const WANT: &str = "a number from 0 to 1";
                let ratio = value.parse::<f64>().map_err(|_| WANT)?;
                if !(0.0..=1.0).contains(&ratio) {
                    return Err(WANT);
                }
                self.dirty_percent_min = (ratio * 100.0).ceil() as u64;
            }
            _ => {}
        }
        Ok(())
    }
}

fn number(value: &str, min: i64) -> Result<i64, &'static str> {
    match value.parse() {
        Ok(number) if number >= min => Ok(number),
        Ok(_) | Err(_) => Err("a whole number that is large enough"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<LogSettings, String> {
        LogSettings::read(
            &pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn settings_are_read_under_kafkas_names_and_bad_ones_are_named() {
        let settings = read(&[
            ("cleanup.policy", "compact, delete"),
            ("retention.ms", "1000"),
            ("retention.bytes", "-1"),
            ("min.cleanable.dirty.ratio", "0.25"),
            ("unclean.leader.election.enable", "false"),
        ]);
        let settings = settings.unwrap();
        assert!(settings.compact && settings.delete);
        assert_eq!((settings.retention_ms, settings.retention_bytes), (Some(1_000), None));
        assert_eq!(settings.dirty_percent_min, 25);
        let bad = [
            ("cleanup.policy", "none"),
            ("retention.ms", "-2"),
            ("segment.bytes", "13"),
            ("segment.ms", "x"),
        ];
        for (key, value) in bad {
            let text = read(&[(key, value)]).unwrap_err();
            assert!(text.contains(key) && text.contains(value), "{text}");
        }
    }
}
