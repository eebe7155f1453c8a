//! Settings of a share consumer.

use std::time::Duration;

use sharestream_base::ErrorKind;

use crate::{Error, Result};

/// How the broker cuts what it hands out (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AcquireMode {
    /// Whole batches; may exceed `max_poll_records`.
    #[default]
    BatchOptimized,
    /// Never more than `max_poll_records`; needs ShareFetch version 2.
    RecordLimit,
}

/// Settings of a share consumer.
#[derive(Clone, Debug)]
pub struct ShareConsumerConfig {
    /// The share group. Kafka: `group.id`. Since 0.1.
    pub group: String,
    /// Topics to subscribe to; at least one. Since 0.1.
    pub topics: Vec<String>,
    /// Rack of this consumer. Default none. Kafka: `client.rack`. Since 0.1.
    pub client_rack: Option<String>,
    /// Records acquired by one fetch from one leader. Default 10,000; at least 1. Kafka: `max.poll.records`. Since 0.1.
    pub max_poll_records: i32,
    /// Bytes of one fetch from one leader; one batch may exceed it. Default 8 MiB. Kafka: `fetch.max.bytes`. Since 0.1.
    pub fetch_bytes_max: i32,
    /// Longest wait of a poll. An acknowledgement to a leader waits for the fetch that is under way there, so this is
    /// also its longest delay. Default 100 ms. Kafka: `fetch.max.wait.ms`. Since 0.1.
    pub max_wait: Duration,
    /// How the broker cuts what it hands out. Default whole batches. Kafka: `share.acquire.mode`. Since 0.1.
    pub acquire_mode: AcquireMode,
    /// Fetch the next records while the last ones are processed: at most one answer per leader waits. Their locks run
    /// meanwhile. Default true. Since 0.1.
    pub prefetch: bool,
}

impl ShareConsumerConfig {
    /// The defaults for this group and these topics.
    pub fn new(group: impl Into<String>, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        ShareConsumerConfig {
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            client_rack: None,
            max_poll_records: 10_000,
            fetch_bytes_max: 8 * 1024 * 1024,
            max_wait: Duration::from_millis(100),
            acquire_mode: AcquireMode::default(),
            prefetch: true,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault at once.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        if self.group.is_empty() {
            faults.push("group must not be empty");
        }
        if self.topics.is_empty() {
            faults.push("topics names no topic");
        }
        if self.max_poll_records < 1 {
            faults.push("max_poll_records must be at least 1");
        }
        if self.fetch_bytes_max < 1 {
            faults.push("fetch_bytes_max must be at least 1");
        }
        if self.max_wait.is_zero() {
            faults.push("max_wait must be above zero");
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("share consumer settings: {}", faults.join("; "))))
    }
}
