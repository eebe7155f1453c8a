//! The outcome topic: found, or created; and its settings checked.
//!
//! Ledger mode stands on it: a record that was acknowledged and is lost again would let two transactions commit one
//! source record.

use std::collections::BTreeMap;

use sharestream_base::ErrorKind;
use sharestream_client::{Client, NewTopic};
use sharestream_core::commit::AckMode;

use crate::check::finding::{Area, Finding, Found, Weight};
use crate::commit::OutcomeTopic;
use crate::config::KafkaJobConfig;
use crate::error::{client_error, invalid_input};
use crate::job::is_missing;
use crate::outcome::outcome_partition;
use crate::{Error, Result};

/// Time after which a segment is closed, so that it can be compacted.
const SEGMENT_MS: &str = "600000";
/// Size at which it is.
const SEGMENT_BYTES: &str = "16777216";
/// How long tombstones stay: a reader that was caught up before may pause so long without missing one.
const DELETE_RETENTION_MS: &str = "86400000";
/// Longest outcome record.
const MESSAGE_BYTES_MAX: &str = "8388608";
/// Brokers from which on two of three copies must have every record.
pub(crate) const NODES_FOR_TWO_COPIES: usize = 3;

/// Finds the outcome topic, or creates it: compacted, in segments so small that compaction really runs.
pub(crate) async fn outcome_topic(
    client: &Client,
    config: &KafkaJobConfig,
    mode: AckMode,
) -> Result<OutcomeTopic> {
    let name = &config.outcome_topic;
    let doing = || client_error(format!("outcome topic {name}"));
    let node_count = client.admin().node_count();
    let topic = match client.fresh_topic(name).await {
        Ok(topic) => topic,
        Err(error) if is_missing(&error) => {
            // Another replica may be faster.
            client.admin().ensure_topic(wanted(config, node_count)).await.map_err(doing())?
        }
        Err(error) => return Err(doing()(error)),
    };
    let settings = match client.admin().describe_topic_config(name).await {
        Ok(settings) => settings,
        // Not everyone may see settings; that is no reason not to run.
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            tracing::warn!(%error, "the settings of the outcome topic cannot be checked");
            BTreeMap::new()
        }
        Err(error) => return Err(doing()(error)),
    };
    let mut refused = Vec::new();
    for finding in faults(name, &settings, node_count, mode == AckMode::Ledger) {
        match finding.weight {
            Weight::Refused => refused.push(finding.to_string()),
            _ => tracing::warn!(%finding, "outcome topic"),
        }
    }
    if !refused.is_empty() {
        return Err(invalid_input(refused.join("; ")));
    }
    let partition_count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if partition_count == 0 {
        return Err(Error::new(ErrorKind::Retry, format!("outcome topic {name} has no partitions yet")));
    }
    Ok(OutcomeTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partition_count,
        partition: outcome_partition(&config.group, partition_count),
    })
}

/// The outcome topic as the job makes it.
pub(crate) fn wanted(config: &KafkaJobConfig, node_count: usize) -> NewTopic {
    let copies = config.outcome_replication_factor;
    let mut wanted = NewTopic::new(&config.outcome_topic, config.outcome_partition_count)
        .with_config("cleanup.policy", "compact")
        .with_config("segment.ms", SEGMENT_MS)
        .with_config("segment.bytes", SEGMENT_BYTES)
        .with_config("delete.retention.ms", DELETE_RETENTION_MS)
        .with_config("unclean.leader.election.enable", "false")
        .with_config("max.message.bytes", MESSAGE_BYTES_MAX);
    if node_count >= NODES_FOR_TWO_COPIES && copies >= 3 {
        wanted = wanted.with_config("min.insync.replicas", "2");
    }
    wanted.replication = copies;
    wanted
}

/// What is wrong with the settings of the outcome topic: what no job may run with, and what loses or grows only where
/// something else fails. A setting that the broker does not tell is taken for right.
pub(crate) fn faults(
    topic: &str,
    settings: &BTreeMap<String, String>,
    node_count: usize,
    is_ledger: bool,
) -> Vec<Finding> {
    let change = |key: &str, value: &str| {
        format!("kafka-configs.sh --alter --topic {topic} --add-config {key}={value}")
    };
    let mut found = Found::of(Area::Outcomes);
    // Other modes need it less.
    let grave = if is_ledger { Weight::Refused } else { Weight::Warning };
    if let Some(policy) = settings.get("cleanup.policy").filter(|policy| *policy != "compact") {
        let message = format!(
            "outcome topic {topic} has cleanup.policy={policy}, so that outcomes are removed by age or size while they \
             are needed"
        );
        found.add("cleanup-policy", grave, message, change("cleanup.policy", "compact"));
    }
    if settings.get("unclean.leader.election.enable").is_some_and(|value| value == "true") {
        let message = format!(
            "outcome topic {topic} has unclean.leader.election.enable=true, so that acknowledged outcomes may be lost"
        );
        found.add("unclean-election", grave, message, change("unclean.leader.election.enable", "false"));
    }
    let number = |key: &str| settings.get(key).and_then(|value| value.parse::<u64>().ok());
    if node_count >= NODES_FOR_TWO_COPIES && number("min.insync.replicas").is_some_and(|count| count < 2) {
        let message = format!(
            "outcome topic {topic} has min.insync.replicas=1 on {node_count} brokers, so that one failure may lose \
             acknowledged outcomes"
        );
        let fix = format!(
            "give it 3 replicas (outcome-replication-factor when it is created) and {}",
            change("min.insync.replicas", "2")
        );
        found.warning("in-sync", message, fix);
    }
    if is_ledger && number("delete.retention.ms").is_some_and(|ms| ms < 3_600_000) {
        let message = format!("outcome topic {topic} has delete.retention.ms below an hour");
        found.warning("delete-retention", message, change("delete.retention.ms", DELETE_RETENTION_MS));
    }
    let slow_segments = number("segment.ms").is_some_and(|ms| ms > 86_400_000)
        && number("segment.bytes").is_some_and(|bytes| bytes > 256 << 20);
    if is_ledger && slow_segments {
        let message = format!(
            "outcome topic {topic} has segments so large that compaction comes late, and starts take long"
        );
        found.warning("segments", message, change("segment.ms", SEGMENT_MS));
    }
    found.list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(changed: &[(&str, &str)]) -> BTreeMap<String, String> {
        let good = [
            ("cleanup.policy", "compact"),
            ("segment.ms", SEGMENT_MS),
            ("segment.bytes", SEGMENT_BYTES),
            ("delete.retention.ms", DELETE_RETENTION_MS),
            ("unclean.leader.election.enable", "false"),
            ("min.insync.replicas", "2"),
        ];
        good.iter().chain(changed).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_wrong_setting_has_a_sentence_that_says_what_to_do() {
        assert_eq!(faults("o", &settings(&[]), 3, true), []);
        assert_eq!(faults("o", &BTreeMap::new(), 1, true), [], "what is not told is taken for right");
        for (key, value, weight) in [
            ("cleanup.policy", "delete", Weight::Refused),
            ("cleanup.policy", "compact,delete", Weight::Refused),
            ("unclean.leader.election.enable", "true", Weight::Refused),
            ("min.insync.replicas", "1", Weight::Warning),
            ("delete.retention.ms", "1000", Weight::Warning),
        ] {
            let found = faults("o", &settings(&[(key, value)]), 3, true);
            assert_eq!(found.iter().map(|one| one.weight).collect::<Vec<_>>(), [weight], "{key}={value}");
            let text = found[0].to_string();
            assert!(text.contains(key) && text.contains("--add-config"), "{text}");
            let found = faults("o", &settings(&[(key, value)]), 3, false);
            assert!(
                found.iter().all(|one| one.weight < Weight::Refused),
                "other modes need it less: {found:?}"
            );
        }
        assert_eq!(faults("o", &settings(&[("min.insync.replicas", "1")]), 1, true), []);
        let large = [("segment.ms", "604800000"), ("segment.bytes", "1073741824")];
        assert_eq!(faults("o", &settings(&large), 3, true)[0].name, "segments");
    }
}
