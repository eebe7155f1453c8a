//! Where a dead letter goes back to.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_client::{Client, Partitioner, TopicInfo};

use super::letter::Letter;

/// A partition to write to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) topic: Arc<str>,
    pub(super) partition: PartitionIndex,
}

/// Finds targets, and asks for each topic once.
pub(super) struct Targets<'a> {
    client: &'a Client,
    /// Instead of the source topics.
    to_topic: Option<&'a str>,
    /// By name: the topic, or why it cannot be written to.
    topics: BTreeMap<String, Result<Arc<TopicInfo>, String>>,
    partitioner: Partitioner,
}

impl<'a> Targets<'a> {
    pub(super) fn new(client: &'a Client, to_topic: Option<&'a str>) -> Self {
        let partitioner = Partitioner::new(client.env().rng.fork("replay"));
        Targets { client, to_topic, topics: BTreeMap::new(), partitioner }
    }

    /// The partition that the record came from; in another topic the one of its key. The inner error says why there is
    /// none.
    pub(super) async fn of(&mut self, letter: &Letter<'_>) -> anyhow::Result<Result<Target, String>> {
        let name = self.to_topic.map_or_else(|| letter.topic(), str::to_owned);
        let topic = match self.topic(&name).await? {
            Ok(topic) => topic,
            Err(why) => return Ok(Err(why)),
        };
        if self.to_topic.is_none() {
            if let Err(why) = is_same(&topic, letter.source.topic_id) {
                return Ok(Err(why));
            }
            if topic.partition(letter.source.partition).is_some() {
                return Ok(Ok(Target { topic: topic.name.clone(), partition: letter.source.partition }));
            }
        }
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let partition = self.partitioner.partition(letter.record.key, count);
        Ok(Ok(Target { topic: topic.name.clone(), partition }))
    }

    async fn topic(&mut self, name: &str) -> anyhow::Result<Result<Arc<TopicInfo>, String>> {
        if let Some(known) = self.topics.get(name) {
            return Ok(known.clone());
        }
        let found = match self.client.fresh_topic(name).await {
            Ok(topic) => Ok(topic),
            Err(error) if error.kind() == ErrorKind::InvalidInput => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        self.topics.insert(name.to_owned(), found.clone());
        Ok(found)
    }
}

/// A topic of the same name need not be the one that the record came from.
fn is_same(topic: &TopicInfo, topic_id: TopicId) -> Result<(), String> {
    if topic.topic_id == topic_id {
        return Ok(());
    }
    Err(format!(
        "topic '{}' was deleted and created again since: its id was {topic_id} and is {}; --to-topic {} writes to it \
         all the same",
        topic.name, topic.topic_id, topic.name
    ))
}
