//! Marks: which dead letters were put back. Records of a compacted topic, keyed by the dead letter's position, written in
//! the transaction of the replay.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sharestream_base::ErrorKind;
use sharestream_client::{Client, KafkaError, NewTopic, ProducerIdentity, TopicInfo};

use crate::args::dead_letters::Position;
use crate::failure::Refused;
use crate::verify::scan::{self, Scan};

/// Name of the topic with the marks of a dead letter topic.
pub(super) fn topic_name(dead_letter_topic: &str) -> String {
    format!("{dead_letter_topic}.replayed")
}

/// The value of a mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// `<producer id>/<producer epoch>` of the transaction. Each transaction has an epoch of its own (KIP-890), so
    /// this tells whose mark it is.
    pub(super) by: String,
    /// `<topic>/<partition>` that the record was written to.
    pub(super) to: String,
    /// How often the record has been put back with this one.
    pub(super) replays: u32,
    /// When, milliseconds since 1970.
    pub(super) time_ms: i64,
}

impl Mark {
    /// The name of a transaction.
    pub(super) fn by(identity: &ProducerIdentity) -> String {
        format!("{}/{}", identity.producer_id, identity.producer_epoch)
    }
}

/// The key of a mark. With the topic's id: positions in a topic that was deleted and created again are others.
pub(super) fn key(dead_letters: &TopicInfo, position: Position) -> String {
    format!("{}/{position}", dead_letters.topic_id)
}

/// The committed marks of one dead letter topic.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// By position: the transaction that wrote it.
    by: BTreeMap<Position, String>,
}

impl Marks {
    /// Reads them. None yet where there is no topic of marks.
    pub(super) async fn read(client: &Client, dead_letters: &TopicInfo) -> anyhow::Result<Marks> {
        let name = topic_name(&dead_letters.name);
        match client.fresh_topic(&name).await {
            Ok(_) => Marks::read_existing(client, dead_letters).await,
            Err(error) if is_missing(&error) => Ok(Marks::default()),
            Err(error) => Err(error).with_context(|| format!("marks of replays: topic {name}")),
        }
    }

    /// The same where the topic must be there: a replay must not take marks that it cannot see for none.
    pub(super) async fn read_existing(client: &Client, dead_letters: &TopicInfo) -> anyhow::Result<Marks> {
        let name = topic_name(&dead_letters.name);
        let prefix = format!("{}/", dead_letters.topic_id);
        let mut marks = Marks::default();
        let read = scan::topic(client, &name, Scan::Committed, |partition, record| {
            let at = || format!("mark {name}[{partition}]@{}", record.offset);
            let key = std::str::from_utf8(record.key.unwrap_or_default()).with_context(at)?;
            let Some(position) = key.strip_prefix(&prefix) else { return Ok(()) };
            let position: Position = position.parse().map_err(anyhow::Error::msg).with_context(at)?;
            match record.value {
                Some(value) => {
                    let mark: Mark = serde_json::from_slice(value).with_context(at)?;
                    marks.by.insert(position, mark.by);
                }
                None => {
                    marks.by.remove(&position);
                }
            }
            Ok(())
        });
        read.await.with_context(|| format!("marks of replays: topic {name}"))?;
        Ok(marks)
    }

    /// True when the dead letter there was put back.
    pub(super) fn has(&self, position: Position) -> bool {
        self.by.contains_key(&position)
    }

    /// True when that transaction put it back.
    pub(super) fn is_by(&self, position: Position, by: &str) -> bool {
        self.by.get(&position).is_some_and(|marked_by| marked_by == by)
    }
}

fn is_missing(error: &sharestream_client::Error) -> bool {
    error.kind() == ErrorKind::InvalidInput
        && error.code().is_none_or(|code| code == KafkaError::UNKNOWN_TOPIC_OR_PARTITION)
}

/// Makes the topic of the marks where there is none. One that forgets marks is refused.
pub(super) async fn ensure_topic(client: &Client, dead_letters: &TopicInfo) -> anyhow::Result<()> {
    const POLICY: &str = "cleanup.policy";
    let name = topic_name(&dead_letters.name);
    let doing = || format!("marks of replays: topic {name}");
    // One partition: marks are few, and their order does not matter. Compaction keeps the last one of each key, and
    // there is but one.
    let wanted = NewTopic::new(&name, 1).with_config(POLICY, "compact");
    client.admin().ensure_topic(wanted).await.with_context(doing)?;
    let settings = client.admin().describe_topic_config(&name).await.with_context(doing)?;
    match settings.get(POLICY) {
        Some(policy) if policy != "compact" => Err(Refused::error(format!(
            "topic {name} keeps the marks of what was replayed, but its {POLICY} is {policy}: marks would be removed, \
             and their dead letters replayed again; set it to compact"
        ))),
        Some(_) | None => Ok(()),
    }
}
