//! Settings of a share consumer.

use std::time::Duration;

use regex::Regex;
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
    /// Topics to subscribe to; at least one, or `topic_pattern`. Since 0.1.
    pub topics: Vec<String>,
    /// Subscribes to every topic whose whole name matches this regular expression, instead of `topics`. Share groups
    /// subscribe by names, so the client looks for topics that match every `metadata_age_max`; internal topics never
    /// do. Default none. Kafka: `subscribe(Pattern)` of consumer groups. Since 0.1.
    pub topic_pattern: Option<String>,
    /// Rack of this consumer. Default none. Kafka: `client.rack`. Since 0.1.
    pub client_rack: Option<String>,
    /// Records acquired by one fetch from one leader. Default 10,000; at least 1. Kafka: `max.poll.records`. Since 0.1.
    pub max_poll_records: i32,
    /// Records of one range of acquired records, where the broker can choose; a smaller one is cheaper to
    /// acknowledge in parts. Default `max_poll_records`; at least 1. Kafka: the `BatchSize` of ShareFetch. Since 0.1.
    pub batch_size: Option<i32>,
    /// Bytes that a fetch waits for, up to `max_wait`. Default 1; at least 1. Kafka: `fetch.min.bytes`. Since 0.1.
    pub fetch_bytes_min: i32,
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
            topic_pattern: None,
            client_rack: None,
            max_poll_records: 10_000,
            batch_size: None,
            fetch_bytes_min: 1,
            fetch_bytes_max: 8 * 1024 * 1024,
            max_wait: Duration::from_millis(100),
            acquire_mode: AcquireMode::default(),
            prefetch: true,
        }
    }

    /// The defaults for this group and every topic whose whole name matches `pattern`.
    pub fn matching(group: impl Into<String>, pattern: impl Into<String>) -> Self {
        let topics: [String; 0] = [];
        ShareConsumerConfig { topic_pattern: Some(pattern.into()), ..ShareConsumerConfig::new(group, topics) }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault at once.
    pub fn validate(&self) -> Result<()> {
        let mut faults: Vec<String> = Vec::new();
        let mut require = |holds: bool, text: &str| {
            if !holds {
                faults.push(text.to_owned());
            }
        };
        require(!self.group.is_empty(), "group must not be empty");
        match &self.topic_pattern {
            Some(_) => require(self.topics.is_empty(), "topics and topic_pattern exclude each other"),
            None => require(!self.topics.is_empty(), "topics names no topic"),
        }
        require(self.max_poll_records >= 1, "max_poll_records must be at least 1");
        require(self.batch_size.is_none_or(|size| size >= 1), "batch_size must be at least 1");
        require(self.fetch_bytes_min >= 1, "fetch_bytes_min must be at least 1");
        require(
            self.fetch_bytes_max >= self.fetch_bytes_min,
            "fetch_bytes_max must not be below fetch_bytes_min",
        );
        require(!self.max_wait.is_zero(), "max_wait must be above zero");
        if let Some(Err(error)) = self.topic_pattern.as_deref().map(whole_name) {
            faults.push(format!("topic_pattern is no regular expression: {error}"));
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("share consumer settings: {}", faults.join("; "))))
    }

    /// What to subscribe to. Errors: `InvalidInput` for a pattern that is none.
    pub(super) fn subscription(&self) -> Result<Subscription> {
        match self.topic_pattern.as_deref() {
            None => Ok(Subscription::Names(self.topics.clone())),
            Some(pattern) => whole_name(pattern).map(Subscription::Pattern).map_err(|error| {
                let context = format!("topic_pattern '{pattern}' is no regular expression");
                Error::new(ErrorKind::InvalidInput, context).with_source(error)
            }),
        }
    }
}

/// Topics by name or by what their names look like.
#[derive(Clone, Debug)]
pub(super) enum Subscription {
    /// These.
    Names(Vec<String>),
    /// Every one whose whole name matches.
    Pattern(Regex),
}

/// As Java's `Matcher.matches`: the whole name, not a part of it.
fn whole_name(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named_at_once() {
        let config = ShareConsumerConfig {
            max_poll_records: 0,
            batch_size: Some(0),
            fetch_bytes_min: 0,
            ..ShareConsumerConfig::matching("", "flights-(")
        };
        let text = config.validate().unwrap_err().to_string();
        for part in ["group", "max_poll_records", "batch_size", "fetch_bytes_min", "regular expression"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let both =
            ShareConsumerConfig { topics: vec!["t".into()], ..ShareConsumerConfig::matching("g", "t") };
        assert!(both.validate().unwrap_err().to_string().contains("exclude"));
        ShareConsumerConfig::new("g", ["t"]).validate().unwrap();
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        let Subscription::Pattern(regex) = ShareConsumerConfig::matching("g", "a|b.").subscription().unwrap()
        else {
            panic!("a pattern was given")
        };
        let matching = ["a", "ab", "b", "bc", "bcd"].map(|name| regex.is_match(name));
        assert_eq!(matching, [true, false, false, true, false]);
    }
}
