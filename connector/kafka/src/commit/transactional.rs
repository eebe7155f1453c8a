//! Mode `transactional`: share acknowledgements are part of the transaction (KIP-1289). Exactly once.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::ids::{CheckpointId, JobEpoch, NodeId, TopicId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{ErrorKind, Instant};
use sharestream_checkpoints::CommitPermit;
use sharestream_client::{AcknowledgementBatch, Client, KafkaError, ShareAcknowledgements, StagingOrder};
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, CommitStep, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::decision::{Decision, Decisions, MemberDecisions, ShareMember};

use super::ledger::Arbitration;
use super::transactions::Transactions;
use crate::ledger::{LedgerTail, must_arbitrate, start_offsets};
use crate::source::acknowledge_type;
use crate::{Error, Result};

/// Pause before a stale member epoch is asked for again.
const STALE_PAUSE: Duration = Duration::from_millis(20);

/// Stages every decision at its source leader, last, and commits.
pub(crate) struct TransactionalCommit {
    transactions: Transactions,
    /// Stages in at least two requests, one after another.
    separately: bool,
    /// Of the outcome partition: read only where the group was in another mode before.
    tail: LedgerTail,
    /// While replicas in ledger mode may be about (F6): claims are arbitrated as theirs are.
    roll_out: Option<RollOut>,
}

/// Between a `transactional` mode record and the end of arbitration.
struct RollOut {
    arbitration: Arbitration,
    /// When it was looked last whether arbitration may end.
    looked_at: Option<Instant>,
}

/// Pause between two looks at whether arbitration may end.
const ROLL_OUT_PAUSE: Duration = Duration::from_secs(1);

/// One call of the session.
#[derive(Clone, Debug, PartialEq)]
struct StagingCall {
    member: ShareMember,
    acknowledgements: ShareAcknowledgements,
}

impl TransactionalCommit {
    pub(crate) fn new(transactions: Transactions, separately: bool, tail: LedgerTail) -> Self {
        TransactionalCommit { transactions, separately, tail, roll_out: None }
    }

    /// Waits for the verdict on the claim, and looks now and then whether that is still needed (F6).
    async fn arbitrate(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let Some(roll_out) = &mut self.roll_out else { return Ok(()) };
        roll_out.arbitration.arbitrate(&mut self.transactions, checkpoint).await?;
        let now = self.transactions.client().env().clock.now();
        if roll_out.looked_at.is_some_and(|at| now.duration_since(at) < ROLL_OUT_PAUSE) {
            return Ok(());
        }
        roll_out.looked_at = Some(now);
        let (client, config) = (self.transactions.client().clone(), self.transactions.config().clone());
        let topics = config.topic_names.iter().map(|(id, name)| (*id, name.as_str()));
        let starts = match start_offsets(&client, &config.group, topics).await {
            Ok(starts) => starts,
            Err(error) => {
                // Arbitration goes on, which is always right.
                tracing::warn!(%error, "start offsets could not be read");
                return Ok(());
            }
        };
        if !self.tail.look(|view| must_arbitrate(view, &starts))? {
            tracing::info!(group = %self.transactions.config().group, "no claim of ledger mode is left to look at");
            self.roll_out = None;
        }
        Ok(())
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
            let clock = self.transactions.client().env().clock.clone();
            let metadata = self.transactions.attempt().live_member(&call.member, &clock).await?;
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
                    // The answer that carries the new epoch is on its way to the member.
                    self.transactions.client().env().clock.clone().sleep(STALE_PAUSE).await;
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
        if is_planted(Bug::GapNotStaged) && range.decision == Decision::Gap {
            continue;
        }
        let last = if is_planted(Bug::LastOffsetNotStaged) {
            range.first.max(range.last.plus(-1))
        } else {
            range.last
        };
        let batch = AcknowledgementBatch::uniform(range.first, last, acknowledge_type(range.decision));
        let key = (partition.topic_id, partition.partition);
        acknowledgements.partitions.entry(key).or_default().push(batch);
    }
    acknowledgements
}

/// Offsets decided on in an epoch.
pub(super) fn offset_count(decided: &[MemberDecisions]) -> u64 {
    decided.iter().map(|member| member.decisions.offset_count()).sum()
}

#[async_trait]
impl CommitProtocol for TransactionalCommit {
    fn mode(&self) -> AckMode {
        AckMode::Transactional
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        Some(self.transactions.transactional_id(checkpoint))
    }

    fn outcome_topic_id(&self) -> Option<TopicId> {
        Some(self.transactions.outcome_topic_id())
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        let last_committed = self.transactions.recover(request).await?;
        if self.transactions.era > 0 {
            self.tail.ensure_running();
            self.tail.catch_up().await?;
            let arbitration = Arbitration::new(self.tail.clone());
            self.roll_out = Some(RollOut { arbitration, looked_at: None });
        }
        Ok(last_committed)
    }

    async fn check_not_replaced(&mut self) -> Result<()> {
        self.transactions.check_not_replaced().await
    }

    async fn last_job_epoch(&mut self) -> Result<Option<JobEpoch>> {
        self.transactions.last_job_epoch().await
    }

    async fn still_owns(&mut self) -> Result<bool> {
        self.transactions.still_owns().await
    }

    async fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.transactions.open(checkpoint)
    }

    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        match &mut self.roll_out {
            Some(roll_out) => roll_out.arbitration.claim(&mut self.transactions, epoch).await,
            None => {
                let terms = self.transactions.terms();
                self.transactions.write_outcome(epoch, terms).await?;
                Ok(())
            }
        }
    }

    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.arbitrate(epoch.checkpoint).await?;
        let calls = staging_calls(&epoch.decided, self.separately);
        let mut left = 0;
        if self.transactions.hook().is_some() {
            let client = self.transactions.client().clone();
            for call in &calls {
                left += leader_count(&client, &call.acknowledgements).await;
            }
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

#[cfg(test)]
mod tests {
    use sharestream_base::ids::{MemberEpoch, Offset, PartitionIndex, TopicId};
    use sharestream_client::AcknowledgeType;
    use sharestream_core::decision::{DecidedRange, SourcePartition};

    use super::*;

    fn decided(member_id: &str, partitions: &[i32]) -> MemberDecisions {
        let mut decisions = Decisions::new();
        for partition in partitions {
            let source =
                SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(*partition) };
            for (first, decision) in [(0, Decision::Accept), (10, Decision::Reject), (20, Decision::Gap)] {
                decisions
                    .set(source, DecidedRange { first: Offset(first), last: Offset(first + 9), decision });
            }
        }
        let member = ShareMember {
            group_id: "g".to_owned(),
            member_id: member_id.to_owned(),
            member_epoch: MemberEpoch(1),
        };
        MemberDecisions { member, decisions }
    }

    fn staged(calls: &[StagingCall]) -> Vec<(String, Vec<i32>)> {
        let partitions = |call: &StagingCall| -> Vec<i32> {
            call.acknowledgements.partitions.keys().map(|(_, partition)| partition.0).collect()
        };
        calls.iter().map(|call| (call.member.member_id.clone(), partitions(call))).collect()
    }

    #[test]
    fn every_member_stages_its_own_decisions_and_nobody_stages_nothing() {
        let calls = staging_calls(&[decided("a", &[0, 2]), decided("b", &[]), decided("c", &[1])], false);
        assert_eq!(staged(&calls), [("a".to_owned(), vec![0, 2]), ("c".to_owned(), vec![1])]);
        let batches = &calls[0].acknowledgements.partitions[&(TopicId::default(), PartitionIndex(2))];
        let types: Vec<_> =
            batches.iter().map(|batch| (batch.first.0, batch.last.0, batch.types.clone())).collect();
        assert_eq!(
            types,
            [
                (0, 9, vec![AcknowledgeType::Accept]),
                (10, 19, vec![AcknowledgeType::Reject]),
                (20, 29, vec![AcknowledgeType::Gap])
            ]
        );
        assert_eq!(offset_count(&[decided("a", &[0, 2])]), 60);
    }

    #[test]
    fn separate_staging_splits_the_partitions_of_a_single_member() {
        let calls = staging_calls(&[decided("a", &[0, 1, 2])], true);
        assert_eq!(staged(&calls), [("a".to_owned(), vec![0]), ("a".to_owned(), vec![1, 2])]);
        assert_eq!(staged(&staging_calls(&[decided("a", &[0])], true)), [("a".to_owned(), vec![0])]);
        assert_eq!(staged(&staging_calls(&[], true)), []);
    }
}
