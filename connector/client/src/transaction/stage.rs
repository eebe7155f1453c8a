//! Staging of share acknowledgements at every leader of an affected source partition (KIP-1289).
//!
//! The request is idempotent for the same producer id and epoch, so whatever is not known to be staged is sent again:
//! to the same leader, or to a new one after the metadata was refreshed.

use std::collections::BTreeMap;
use std::fmt;

use futures::stream::{FuturesUnordered, StreamExt};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{NodeId, PartitionIndex, TopicId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_wire::KafkaError;
use sharestream_wire::txn_share_acknowledge::{
    TxnAcknowledgePartition, TxnAcknowledgeTopic, TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse,
};

use super::session::{ProducerIdentity, SHORT_PAUSE};
use crate::client::Client;
use crate::cluster::Purpose;
use crate::error::ErrorClass;
use crate::security::Access;
use crate::share::{AcknowledgeType, ShareAcknowledgements, ShareGroupMetadata};
use crate::{Error, Result};

/// The member's epoch is not (or not yet) the one that the leader knows; nothing is wrong with the locks.
pub(super) fn asks_for_member_epoch(error: &Error) -> bool {
    let codes = [KafkaError::STALE_MEMBER_EPOCH, KafkaError::FENCED_MEMBER_EPOCH];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// In which order the leaders are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StagingOrder {
    /// All at once: the fastest.
    #[default]
    Concurrent,
    /// One after another: lets a test stop between two of them.
    OneByOne,
}

type PartitionKey = (TopicId, PartitionIndex);

/// One call of the session.
#[derive(Debug)]
pub(super) struct Staging<'a> {
    pub(super) client: &'a Client,
    pub(super) identity: ProducerIdentity,
    pub(super) acknowledgements: &'a ShareAcknowledgements,
    pub(super) metadata: &'a ShareGroupMetadata,
    pub(super) order: StagingOrder,
}

/// What one leader said about its partitions.
type LeaderAnswer = (NodeId, Vec<PartitionKey>, Result<TxnShareAcknowledgeResponse>);

impl Staging<'_> {
    pub(super) async fn run(&self, mut on_leader_staged: impl FnMut(NodeId) + Send) -> Result<()> {
        self.check()?;
        let mut left: Vec<PartitionKey> = self.acknowledgements.partitions.keys().copied().collect();
        let mut backoff = self.client.backoff().starting_with(SHORT_PAUSE);
        while !left.is_empty() {
            let mut postponed = None;
            let by_leader = self.by_leader(&left, &mut postponed).await?;
            let limit = match self.order {
                StagingOrder::Concurrent => by_leader.len().max(1),
                StagingOrder::OneByOne => 1,
            };
            let mut leaders = by_leader.into_iter();
            let mut asked = FuturesUnordered::new();
            loop {
                while asked.len() < limit {
                    let Some((node, keys)) = leaders.next() else { break };
                    asked.push(self.ask(node, keys));
                }
                let Some(answer) = asked.next().await else { break };
                self.judge(answer, &mut left, &mut postponed, &mut on_leader_staged).await?;
            }
            if let Some(error) = postponed {
                // Staging again is harmless, so what is not known to have happened counts as not happened; at the
                // deadline the transaction is given up.
                backoff.wait(error.with_kind(ErrorKind::Abort)).await?;
            }
        }
        Ok(())
    }

    /// Refuses what a transaction cannot carry before anything is sent.
    fn check(&self) -> Result<()> {
        if !self.client.features().transactional_share_acknowledgements() {
            let features = self.client.features();
            let context = format!(
                "the cluster has no transactional share acknowledgements (KIP-1289 needs share.version 3 and \
                 transaction.version 2; it has {} and {}); choose another acknowledgement mode",
                features.share_version, features.transaction_version
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        for ((topic_id, partition), batches) in &self.acknowledgements.partitions {
            for batch in batches {
                for kind in &batch.types {
                    match kind {
                        AcknowledgeType::Accept | AcknowledgeType::Reject | AcknowledgeType::Gap => {}
                        AcknowledgeType::Release | AcknowledgeType::Renew => {
                            let context = format!(
                                "{kind} of offsets {} to {} of {topic_id}/{partition} cannot be part of a transaction",
                                batch.first, batch.last
                            );
                            return Err(Error::new(ErrorKind::InvalidInput, context));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn by_leader(
        &self,
        left: &[PartitionKey],
        postponed: &mut Option<Error>,
    ) -> Result<BTreeMap<NodeId, Vec<PartitionKey>>> {
        let mut by_leader: BTreeMap<NodeId, Vec<PartitionKey>> = BTreeMap::new();
        for key in left {
            let topic = self.client.topic_by_id(key.0).await?;
            match topic.leader(key.1) {
                Some(leader) => by_leader.entry(leader).or_default().push(*key),
                None => {
                    let what = Place(&topic.name, key.1);
                    *postponed = Some(Error::new(ErrorKind::Retry, format!("{what} has no leader")));
                    self.client.refresh_topic_id(key.0).await.or_else(postpone_retriable)?;
                }
            }
        }
        Ok(by_leader)
    }

    async fn ask(&self, node: NodeId, keys: Vec<PartitionKey>) -> LeaderAnswer {
        let answer = async {
            let connection = self.client.node(node, Purpose::Staging).await?;
            connection.call(&self.request(&keys)).await
        };
        let answer = answer.await;
        (node, keys, answer)
    }

    async fn judge(
        &self,
        (node, keys, answer): LeaderAnswer,
        left: &mut Vec<PartitionKey>,
        postponed: &mut Option<Error>,
        on_leader_staged: &mut (impl FnMut(NodeId) + Send),
    ) -> Result<()> {
        let what = |key: &PartitionKey| {
            let topic = self.client.metadata().topic_by_id(key.0);
            let name = topic.map_or_else(|| key.0.to_string(), |topic| topic.name.to_string());
            format!("stage acknowledgements of group '{}' on {name}/{}", self.metadata.group_id, key.1)
        };
        let errors: Vec<(PartitionKey, Error)> = match answer {
            Err(error)
                if is_planted(Bug::LostStageAnswerIsSuccess) && error.kind() == ErrorKind::Indeterminate =>
            {
                Vec::new()
            }
            // The connection failed: all of them again, at leaders looked up anew.
            Err(error) => keys.first().map(|key| (*key, error)).into_iter().collect(),
            Ok(response) if response.error_code != 0 => {
                let context =
                    format!("stage acknowledgements of group '{}' at broker {node}", self.metadata.group_id);
                let error = self.needing_rights(Error::from_code(response.error_code, context), None);
                keys.first().map(|key| (*key, error)).into_iter().collect()
            }
            Ok(response) => {
                let mut codes: BTreeMap<PartitionKey, (i16, Option<String>)> = BTreeMap::new();
                for topic in &response.responses {
                    for partition in &topic.partitions {
                        let key = (TopicId(topic.topic_id), PartitionIndex(partition.partition_index));
                        let message = partition.error_message.as_ref().map(ToString::to_string);
                        codes.insert(key, (partition.error_code, message));
                    }
                }
                keys.iter()
                    .filter_map(|key| match codes.get(key) {
                        Some((0, _)) => None,
                        Some((code, message)) => {
                            let error = Error::from_answer(*code, message.as_deref(), what(key));
                            Some((*key, self.needing_rights(error.of_share_partition(), Some(key.0))))
                        }
                        None => {
                            Some((*key, Error::new(ErrorKind::Retry, format!("{}: not answered", what(key)))))
                        }
                    })
                    .collect()
            }
        };
        let all_failed = errors.len() == 1 && errors.first().is_some_and(|(_, error)| error.code().is_none());
        if errors.is_empty() {
            left.retain(|key| !keys.contains(key));
            on_leader_staged(node);
            return Ok(());
        }
        for (key, error) in errors {
            if !error.is_retriable() {
                return Err(error);
            }
            let moved = match error.class() {
                ErrorClass::RefreshMetadata => true,
                _other => all_failed,
            };
            if moved {
                self.client.refresh_topic_id(key.0).await.or_else(postpone_retriable)?;
            }
            *postponed = Some(error);
        }
        // What of this leader did succeed is simply staged again with the rest: that is a success without a write.
        Ok(())
    }

    /// Names the right that a refusal by the brokers' ACLs asks for: a stage needs three (KIP-1289).
    fn needing_rights(&self, error: Error, topic: Option<TopicId>) -> Error {
        let topic = topic.and_then(|id| self.client.metadata().topic_by_id(id));
        let access = match (error.code(), &topic) {
            (Some(KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED), _) => {
                Access::transactional_id("Write", &self.identity.transactional_id)
            }
            (Some(KafkaError::GROUP_AUTHORIZATION_FAILED), _) => {
                Access::group("Read", &self.metadata.group_id)
            }
            (Some(KafkaError::TOPIC_AUTHORIZATION_FAILED), Some(topic)) => Access::topic("Read", &topic.name),
            (Some(_) | None, _) => return error,
        };
        self.client.refused(error, &access)
    }

    fn request(&self, keys: &[PartitionKey]) -> TxnShareAcknowledgeRequest {
        let mut topics: BTreeMap<TopicId, Vec<TxnAcknowledgePartition>> = BTreeMap::new();
        for key in keys {
            let batches = self.acknowledgements.partitions.get(key);
            topics.entry(key.0).or_default().push(TxnAcknowledgePartition {
                partition_index: key.1.0,
                acknowledgement_batches: batches.into_iter().flatten().map(|batch| batch.to_wire()).collect(),
            });
        }
        TxnShareAcknowledgeRequest {
            transactional_id: Some(StrBytes::from_string(self.identity.transactional_id.to_string())),
            group_id: StrBytes::from_string(self.metadata.group_id.clone()),
            producer_id: self.identity.producer_id.0,
            producer_epoch: self.identity.producer_epoch.0,
            member_id: StrBytes::from_string(self.metadata.member_id.clone()),
            member_epoch: self.metadata.member_epoch.0,
            topics: topics
                .into_iter()
                .map(|(topic_id, partitions)| TxnAcknowledgeTopic { topic_id: topic_id.0, partitions })
                .collect(),
        }
    }
}

/// A refresh that fails for the moment is tried again with the next round.
fn postpone_retriable(error: Error) -> Result<()> {
    if error.is_retriable() { Ok(()) } else { Err(error) }
}

struct Place<'a>(&'a str, PartitionIndex);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}
