//! The commit of whoever starts a job from a savepoint (ADR 0023): one transaction that holds an outcome and decides nothing,
//! under the same ids and fences as the job's own.
//!
//! In ledger mode such a claim needs no verdict: it overlaps nothing, and between the steps of a rewind nobody else claims.

use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::ids::{CheckpointId, JobEpoch, TopicId};
use sharestream_checkpoints::CommitPermit;
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};

use super::transactions::Transactions;
use crate::Result;
use crate::error::bug;

/// Commits epochs without decisions.
pub(crate) struct RewindCommit {
    transactions: Transactions,
}

impl RewindCommit {
    pub(crate) fn new(transactions: Transactions) -> Self {
        RewindCommit { transactions: transactions.rewinding() }
    }
}

#[async_trait]
impl CommitProtocol for RewindCommit {
    fn mode(&self) -> AckMode {
        self.transactions.config().mode
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        Some(self.transactions.transactional_id(checkpoint))
    }

    fn outcome_topic_id(&self) -> Option<TopicId> {
        Some(self.transactions.outcome_topic_id())
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        self.transactions.recover(request).await
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
        if !epoch.decided.is_empty() {
            return Err(bug(format!("checkpoint {} of a rewind decides records", epoch.checkpoint)));
        }
        let terms = self.transactions.terms();
        self.transactions.write_outcome(epoch, terms).await?;
        Ok(())
    }

    async fn stage(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        Ok(())
    }

    async fn commit(&mut self, epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        self.transactions.commit(epoch.checkpoint).await?;
        Ok(CommitReceipt::default())
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
