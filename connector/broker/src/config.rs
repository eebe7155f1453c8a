//! Settings of the embedded broker. `Default` works.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_base::ErrorKind;

use crate::disk::FsyncPolicy;
use crate::error::{Error, Result};
use crate::features::SHARE_VERSION_MAX;

/// Settings of the embedded broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerConfig {
    /// Address to listen on, also the one that clients are told. Default `127.0.0.1`. Since 0.1.
    pub host: String,
    /// Port to listen on; 0 takes a free one. Default 0. Since 0.1.
    pub port: u16,
    /// Creates a topic when a client asks for its metadata and allows it (Kafka: `auto.create.topics.enable`).
    /// Default false. Since 0.1.
    pub auto_create_topics: bool,
    /// Partitions of a topic whose creator does not say (Kafka: `num.partitions`). Default 1; above zero. Since 0.1.
    pub default_partitions: i32,
    /// Partitions of `__share_group_state` (Kafka: `share.coordinator.state.topic.num.partitions`). Default 8; above
    /// zero. Since 0.1.
    pub share_state_partitions: i32,
    /// Partitions of `__transaction_state` (Kafka: `transaction.state.log.num.partitions`). Default 8; above zero.
    /// Since 0.1.
    pub transaction_state_partitions: i32,
    /// Longest time-out that a transactional producer may ask for (Kafka: `transaction.max.timeout.ms`). Default
    /// 15 min. Since 0.1.
    pub transaction_timeout_max: Duration,
    /// A transactional id that nobody has used for so long is forgotten (Kafka: `transactional.id.expiration.ms`).
    /// Default 7 days; above zero. Since 0.1.
    pub transactional_id_expiration: Duration,
    /// Offsets of a consumer group without members are forgotten so long after they were committed (Kafka:
    /// `offsets.retention.minutes`). Default 7 days; above zero. Since 0.1.
    pub offsets_retention: Duration,
    /// How often open transactions are checked for their time-out. Default 100 ms; above zero. Since 0.1.
    pub transaction_check_interval: Duration,
    /// Largest request frame, in bytes (Kafka: `socket.request.max.bytes`). Default 100 MiB. Since 0.1.
    pub frame_bytes_max: usize,
    /// Largest record batch, in bytes (Kafka: `message.max.bytes`). Default 8 MiB. Since 0.1.
    pub batch_bytes_max: usize,
    /// Most bytes of records in one fetch answer, whatever the client asks for (Kafka: `fetch.max.bytes`). Default
    /// 55 MiB. Since 0.1.
    pub fetch_bytes_max: usize,
    /// Folder in which everything is kept; without one it lives in memory and ends with the broker. One broker at a
    /// time may use a folder. What is kept is in memory as well. Default none. Since 0.1.
    pub data: Option<PathBuf>,
    /// When written bytes are forced to the disk; means nothing without a data folder. Default `always`. Since 0.1.
    pub fsync: FsyncPolicy,
    /// Finalized level of `share.version` of a fresh cluster: 0 no share groups, 1 share groups, 2 dead letters of the
    /// broker as well (what Kafka 4.4 has), 3 transactional acknowledgements as well. UpdateFeatures changes it; a data
    /// folder keeps it. Default 3. Since 0.1.
    pub share_version: i16,
    /// Creates dead letter topics of share groups that are not there (Kafka:
    /// `errors.deadletterqueue.auto.create.topics.enable`). Default false. Since 0.1.
    pub dead_letter_auto_create_topics: bool,
    /// What names of dead letter topics must begin with; empty allows all (Kafka:
    /// `errors.deadletterqueue.topic.name.prefix`). Default `dlq.`. Since 0.1.
    pub dead_letter_topic_prefix: String,
    /// Defaults of share groups; group configs override them per group.
    pub share: ShareDefaults,
}

/// Defaults of share groups (KIP-932); a group's own config overrides them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShareDefaults {
    /// How long an acquired record is locked (Kafka: `group.share.record.lock.duration.ms`). Default 30 s. Since 0.1.
    pub record_lock_duration: Duration,
    /// Deliveries before a record is archived (Kafka: `group.share.delivery.count.limit`). Default 5. Since 0.1.
    pub delivery_count_limit: i16,
    /// Span of offsets that one share partition keeps in flight (Kafka: `group.share.partition.max.record.locks`).
    /// Default 2000. Since 0.1.
    pub partition_max_record_locks: i32,
    /// A member that sends no heartbeat for so long is out (Kafka: `group.share.session.timeout.ms`). Default 45 s.
    /// Since 0.1.
    pub session_timeout: Duration,
    /// How often members send heartbeats (Kafka: `group.share.heartbeat.interval.ms`). Default 5 s. Since 0.1.
    pub heartbeat_interval: Duration,
}

impl Default for ShareDefaults {
    fn default() -> Self {
        ShareDefaults {
            record_lock_duration: Duration::from_secs(30),
            delivery_count_limit: 5,
            partition_max_record_locks: 2_000,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(5),
        }
    }
}

impl Default for BrokerConfig {
    fn default() -> Self {
        BrokerConfig {
            host: "127.0.0.1".to_owned(),
            port: 0,
            auto_create_topics: false,
            default_partitions: 1,
            share_state_partitions: 8,
            transaction_state_partitions: 8,
            transaction_timeout_max: Duration::from_secs(15 * 60),
            transactional_id_expiration: Duration::from_secs(7 * 24 * 3_600),
            offsets_retention: Duration::from_secs(7 * 24 * 3_600),
            transaction_check_interval: Duration::from_millis(100),
            frame_bytes_max: 100 * 1024 * 1024,
            batch_bytes_max: 8 * 1024 * 1024,
            fetch_bytes_max: 55 * 1024 * 1024,
            data: None,
            fsync: FsyncPolicy::default(),
            share_version: SHARE_VERSION_MAX,
            dead_letter_auto_create_topics: false,
            dead_letter_topic_prefix: "dlq.".to_owned(),
            share: ShareDefaults::default(),
        }
    }
}

impl BrokerConfig {
    /// Checks every field and reports all faults at once. Errors: InvalidInput.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut check = |good: bool, fault: &str| {
            if !good {
                faults.push(fault.to_owned());
            }
        };
        check(!self.host.is_empty(), "host is empty");
        check(self.default_partitions > 0, "default_partitions is not above zero");
        check(self.share_state_partitions > 0, "share_state_partitions is not above zero");
        check(self.transaction_state_partitions > 0, "transaction_state_partitions is not above zero");
        check(!self.transaction_check_interval.is_zero(), "transaction_check_interval is zero");
        check(!self.transactional_id_expiration.is_zero(), "transactional_id_expiration is zero");
        check(!self.offsets_retention.is_zero(), "offsets_retention is zero");
        check(!self.transaction_timeout_max.is_zero(), "transaction_timeout_max is zero");
        check(self.batch_bytes_max <= self.frame_bytes_max, "batch_bytes_max is above frame_bytes_max");
        check((0..=SHARE_VERSION_MAX).contains(&self.share_version), "share_version is not from 0 to 3");
        check(self.share.delivery_count_limit > 0, "share.delivery_count_limit is not above zero");
        check(
            self.share.partition_max_record_locks > 0,
            "share.partition_max_record_locks is not above zero",
        );
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("broker settings: {}", faults.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_valid() {
        assert!(BrokerConfig::default().validate().is_ok());
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let config =
            BrokerConfig { default_partitions: 0, share_state_partitions: 0, ..BrokerConfig::default() };
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.context().contains("default_partitions"));
        assert!(error.context().contains("share_state_partitions"));
    }
}
