//! Settings of the share group that the job has to know.

use std::collections::BTreeMap;

/// Kafka: `share.delivery.count.limit`.
pub(crate) const DELIVERY_COUNT_LIMIT: &str = "share.delivery.count.limit";
/// Kafka: `share.partition.max.record.locks`.
pub(crate) const RECORD_LOCKS_MAX: &str = "share.partition.max.record.locks";

/// Limits under which the group hands out records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    pub(crate) delivery_count_limit: u16,
    pub(crate) record_locks_max: u64,
}

impl GroupSettings {
    /// Reads them from the group's settings; what a broker does not tell has Kafka's default.
    pub(crate) fn of(described: &BTreeMap<String, String>) -> Self {
        GroupSettings {
            delivery_count_limit: described
                .get(DELIVERY_COUNT_LIMIT)
                .and_then(|text| text.parse().ok())
                .unwrap_or(5),
            record_locks_max: described
                .get(RECORD_LOCKS_MAX)
                .and_then(|text| text.parse().ok())
                .unwrap_or(2_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_the_broker_does_not_tell_have_kafkas_defaults() {
        let defaults = GroupSettings { delivery_count_limit: 5, record_locks_max: 2_000 };
        assert_eq!(GroupSettings::of(&BTreeMap::new()), defaults);
        let told = [(DELIVERY_COUNT_LIMIT, "9"), (RECORD_LOCKS_MAX, "4000")];
        let told = told.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = GroupSettings { delivery_count_limit: 9, record_locks_max: 4_000 };
        assert_eq!(GroupSettings::of(&told.into()), expected);
    }
}
