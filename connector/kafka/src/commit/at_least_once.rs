//! Mode `at-least-once`: the transaction first, then ordinary acknowledgements (KIP-932). A crash between the two
//! doubles records, by the user's choice.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::Clock;
use sharestream_base::ids::{CheckpointId, JobEpoch, TopicId};
use sharestream_checkpoints::CommitPermit;
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};

use super::transactional::offset_count;
use super::transactions::Transactions;
use crate::Result;
use crate::attempt::Attempt;

/// Pause between two looks at whether the sources have acknowledged.
const ACKNOWLEDGED_PAUSE: Duration = Duration::from_millis(1);

/// Commits the writes; the sources acknowledge when they hear of the commit.
pub(crate) struct AtLeastOnceCommit {
    transactions: Transactions,
}

impl AtLeastOnceCommit {
    pub(crate) fn new(transactions: Transactions) -> Self {
        AtLeastOnceCommit { transactions }
    }
}

/// Ends when the transaction is complete and every source has acknowledged what it decided.
pub(super) fn acknowledged_everywhere(
    complete: BoxFuture<'static, Result<()>>,
    attempt: Arc<Attempt>,
    clock: Clock,
    checkpoint: CheckpointId,
) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move {
        complete.await?;
        while !attempt.is_acknowledged(checkpoint) {
            clock.sleep(ACKNOWLEDGED_PAUSE).await;
        }
        Ok(())
    })
}

#[async_trait]
impl CommitProtocol for AtLeastOnceCommit {
    fn mode(&self) -> AckMode {
        AckMode::AtLeastOnce
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
        let terms = self.transactions.terms();
        self.transactions.write_outcome(epoch, terms).await?;
        Ok(())
    }

    /// Nothing is staged: this mode exists for brokers that cannot.
    async fn stage(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        Ok(())
    }

    async fn commit(&mut self, epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        self.transactions.commit(epoch.checkpoint).await?;
        // Not before: an acknowledgement is final, and a record acknowledged without its effects is lost.
        self.transactions.attempt().release_decisions(epoch.checkpoint, &epoch.decided);
        Ok(CommitReceipt { offset_count: offset_count(&epoch.decided) })
    }

    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        let checkpoint = epoch.checkpoint;
        let complete = self.transactions.visible(checkpoint);
        let attempt = Arc::clone(self.transactions.attempt());
        let clock = self.transactions.client().env().clock.clone();
        acknowledged_everywhere(complete, attempt, clock, checkpoint)
    }

    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.transactions.abort(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
