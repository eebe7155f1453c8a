//! Mode `transactional`: share acknowledgements are part of the transaction (KIP-1289). Exactly once.

use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{CheckpointId, NodeId};
use sharestream_checkpoints::CommitPermit;
use sharestream_client::{AcknowledgementBatch, Client, KafkaError, ShareAcknowledgements, StagingOrder};
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, CommitStep, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::decision::{Decisions, MemberDecisions, ShareMember};

use super::transactions::Transactions;
use crate::source::acknowledge_type;
use crate::{Error, Result};

/// Stages every decision at its source leader, last, and commits.
pub(crate) struct TransactionalCommit {
    transactions: Transactions,
    /// Stages in at least two requests, one after another.
    separately: bool,
}

/// One call of the session.
#[derive(Clone, Debug, PartialEq)]
struct StagingCall {
    member: ShareMember,
    acknowledgements: ShareAcknowledgements,
}

impl TransactionalCommit {
    pub(crate) fn new(transactions: Transactions, separately: bool) -> Self {
        TransactionalCommit { transactions, separately }
    }

    /// Stages one call; a stale member epoch is asked for again, once.
    async fn stage_call(
        &mut self,
        checkpoint: CheckpointId,
        call: &StagingCall,
        left: &mut usize,
    ) -> Result<()> {
        let order = if self.separately { StagingOrder::OneByOne } else { StagingOrder::Concurrent };
        for is_last_try in [false, true] {
            let metadata = self.transactions.attempt().live_member(&call.member);
            let hook = self.transactions.hook();
            let on_leader_staged = |_leader: NodeId| {
                *left = left.saturating_sub(1);
                if let Some(hook) = hook.as_ref().filter(|_| *left > 0) {
                    hook(checkpoint, CommitStep::BetweenStagedLeaders);
                }
            };
            let session = self.transactions.session(checkpoint)?;
            let staged = session.stage_with(&call.acknowledgements, &metadata, order, on_leader_staged).await;
            match staged {
                Ok(()) => return Ok(()),
                Err(error) if error.code() == Some(KafkaError::STALE_MEMBER_EPOCH) && !is_last_try => {
                    tracing::debug!(%checkpoint, member_id = %call.member.member_id, "member epoch was stale, once more");
                }
                Err(error) => {
                    // Nothing may be left half staged, so whatever it was, this epoch is over.
                    let kind = match error.kind() {
                        ErrorKind::Retry | ErrorKind::Indeterminate => ErrorKind::Abort,
                        kind => kind,
                    };
                    let context =
                        format!("stage checkpoint {checkpoint} for member {}", call.member.member_id);
                    return Err(Error::new(kind, format!("{context}: {error}")).with_source(error));
                }
            }
        }
        Ok(())
    }
}

/// Leaders that a call goes to, as far as metadata knows.
async fn leader_count(client: &Client, acknowledgements: &ShareAcknowledgements) -> usize {
    let mut leaders: Vec<Option<NodeId>> = Vec::new();
    for (topic_id, partition) in acknowledgements.partitions.keys() {
        let leader = match client.topic_by_id(*topic_id).await {
            Ok(topic) => topic.leader(*partition),
            Err(_unknown) => None,
        };
        if !leaders.contains(&leader) {
            leaders.push(leader);
        }
    }
    leaders.len()
}

/// The staging calls of an epoch: one for each member. With `separately`, one member's partitions make two calls, so
/// that there is a point between two staged requests even on a single node.
fn staging_calls(decided: &[MemberDecisions], separately: bool) -> Vec<StagingCall> {
    let mut calls: Vec<StagingCall> = decided
        .iter()
        .filter(|member| !member.decisions.is_empty())
        .map(|member| StagingCall {
            member: member.member.clone(),
            acknowledgements: acknowledgements_of(&member.decisions),
        })
        .collect();
    if let ([only], true) = (calls.as_mut_slice(), separately) {
        let partitions = &mut only.acknowledgements.partitions;
        if let Some(middle) =
            partitions.keys().nth(partitions.len() / 2).filter(|_| partitions.len() > 1).copied()
        {
            let rest = partitions.split_off(&middle);
            let member = only.member.clone();
            calls.push(StagingCall { member, acknowledgements: ShareAcknowledgements { partitions: rest } });
        }
    }
    calls
}

fn acknowledgements_of(decisions: &Decisions) -> ShareAcknowledgements {
    let mut acknowledgements = ShareAcknowledgements::default();
    for (partition, range) in decisions.ranges() {
        let batch = AcknowledgementBatch::uniform(range.first, range.last, acknowledge_type(range.decision));
        let key = (partition.topic_id, partition.partition);
        acknowledgements.partitions.entry(key).or_default().push(batch);
    }
    acknowledgements
}

/// Offsets decided on in an epoch.
pub(super) fn offset_count(decided: &[MemberDecisions]) -> u64 {
    let ranges = decided.iter().flat_map(|member| member.decisions.ranges());
    ranges.map(|(_, range)| (range.last.0 - range.first.0 + 1).unsigned_abs()).sum()
}

#[async_trait]
impl CommitProtocol for TransactionalCommit {
    fn mode(&self) -> AckMode {
        AckMode::Transactional
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        Some(self.transactions.transactional_id(checkpoint))
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        self.transactions.recover(request).await
    }

    async fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.transactions.open(checkpoint)
    }

    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.transactions.write_outcome(epoch).await
    }

    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()> {
        let calls = staging_calls(&epoch.decided, self.separately);
        let client = self.transactions.client().clone();
        let mut left = 0;
        for call in &calls {
            left += leader_count(&client, &call.acknowledgements).await;
        }
        for call in &calls {
            self.stage_call(epoch.checkpoint, call, &mut left).await?;
        }
        Ok(())
    }

    async fn commit(&mut self, epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        self.transactions.commit(epoch.checkpoint).await?;
        Ok(CommitReceipt { offset_count: offset_count(&epoch.decided) })
    }

    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        self.transactions.visible(epoch.checkpoint)
    }

    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.transactions.abort(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
