//! Mode `ledger`: exactly once on released Kafka. The outcome record is a claim, the order of the outcome partition
//! arbitrates, and ordinary acknowledgements follow the commit (`crate::ledger`, ADR 0012).
//!
//! ```text
//! write_outcome: claim at p --> stage: read past p, caught up; wait for, or end, earlier open claims --> commit: EndTxn
//!                                     \--an earlier claim has committed: abort                            |
//!                                                                      sources acknowledge (may fail) <--/
//! ```
//! One claim for each transaction, in the order of the checkpoints: the coordinator settles n before it claims n+1, and an
//! abort ends the attempt with every open epoch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, TopicId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_checkpoints::CommitPermit;
use sharestream_client::{ProducerIdentity, end_transaction_of};
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, LastCommitted, RecoverRequest, SealedEpoch,
};

use super::at_least_once::acknowledged_everywhere;
use super::transactional::offset_count;
use super::transactions::{ClaimTerms, Transactions};
use crate::error::{bug, client_error};
use crate::ledger::{Keeper, KeeperConfig, LedgerTail, OwnClaim, Verdict, judge};
use crate::{Error, Result};

/// Claims, arbitrates, commits; the sources acknowledge when they hear of the commit.
pub(crate) struct LedgerCommit {
    transactions: Transactions,
    arbitration: Arbitration,
    keeper_config: KeeperConfig,
    keeper: Option<Keeper>,
}

/// Claims of one replica and their verdicts. Transactional replicas arbitrate as well, as long as ledger ones may be
/// about (F6).
pub(super) struct Arbitration {
    tail: LedgerTail,
    /// The claim of the epoch that is being committed.
    claim: Option<(CheckpointId, Claimed)>,
}

/// A claim that was produced.
struct Claimed {
    own: OwnClaim,
    /// Whether the broker told its position.
    is_placed: bool,
    identity: ProducerIdentity,
}

impl Arbitration {
    pub(super) fn new(tail: LedgerTail) -> Self {
        Arbitration { tail, claim: None }
    }

    pub(super) fn tail(&self) -> &LedgerTail {
        &self.tail
    }

    /// Produces the claim of an epoch.
    pub(super) async fn claim(&mut self, transactions: &mut Transactions, epoch: &SealedEpoch) -> Result<()> {
        self.claim = None;
        let mode = transactions.config().mode;
        let (generation, era, known_mode) =
            self.tail.look(|view| (view.generation(), view.era(), view.mode().map(|(_, mode)| mode.mode)))?;
        if let Some(other) = known_mode.filter(|known| *known != mode) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "group {} was switched to mode {other:?} while this job ran in mode {mode:?}; start the job again, \
                     with that ack mode or auto",
                    transactions.config().group
                ),
            ));
        }
        let deadline_ms = claim_deadline_ms(transactions);
        let identity = transactions.identity(epoch.checkpoint)?;
        let terms = ClaimTerms { generation, deadline_ms: Some(deadline_ms) };
        let position = transactions.write_outcome(epoch, terms).await?;
        let own = OwnClaim {
            position: position.unwrap_or(Offset(-1)),
            decisions: Transactions::decisions_of(epoch),
            generation,
            era,
            mode,
            deadline_ms,
        };
        let claimed = Claimed { own, is_placed: position.is_some(), identity };
        self.claim = Some((epoch.checkpoint, claimed));
        Ok(())
    }

    /// Waits for the verdict on the claim of an epoch. Errors: `Abort` with the reason.
    pub(super) async fn arbitrate(
        &mut self,
        transactions: &mut Transactions,
        checkpoint: CheckpointId,
    ) -> Result<()> {
        let claimed = match self.claim.take() {
            Some((claimed, claim)) if claimed == checkpoint => claim,
            Some(_) | None => return Err(bug(format!("checkpoint {checkpoint} is staged without a claim"))),
        };
        let mut own = claimed.own;
        if claimed.is_placed {
            if !is_planted(Bug::ClaimPositionNotAwaited) {
                self.tail.read_past(own.position).await?;
            }
        } else {
            // Known to be there, not where: found by reading.
            self.tail.catch_up().await?;
            let ProducerIdentity { producer_id, producer_epoch, .. } = claimed.identity;
            let found = self.tail.look(|view| view.position_of(producer_id, producer_epoch))?;
            own.position = found.ok_or_else(|| {
                let context = format!("the claim of checkpoint {checkpoint} is not open any more");
                Error::new(ErrorKind::Abort, context)
            })?;
        }
        self.await_verdict(transactions, checkpoint, &own).await
    }

    async fn await_verdict(
        &self,
        transactions: &mut Transactions,
        checkpoint: CheckpointId,
        own: &OwnClaim,
    ) -> Result<()> {
        let client = transactions.client().clone();
        let clock = client.env().clock.clone();
        let timeout = transactions.config().transaction_timeout;
        let mut ended = BTreeSet::new();
        let mut seen = 0;
        loop {
            let now_ms = clock.wall_ms();
            let verdict = self.tail.look(|view| judge(view, own, now_ms, |on| ended.contains(&on)))?;
            let wait = match verdict {
                Verdict::Commit => return Ok(()),
                Verdict::Abort(reason) => {
                    let context = format!("checkpoint {checkpoint} must not commit: {reason}");
                    return Err(Error::new(ErrorKind::Abort, context));
                }
                Verdict::EndOther { on, transactional_id, producer_id, producer_epoch } => {
                    tracing::info!(%checkpoint, claim = %on, transactional_id, "its owner is late, its transaction is ended");
                    let identity = ProducerIdentity {
                        transactional_id: transactional_id.as_str().into(),
                        producer_id,
                        producer_epoch,
                    };
                    end_transaction_of(&client, &identity, timeout)
                        .await
                        .map_err(client_error(format!("end the transaction of the claim at offset {on}")))?;
                    ended.insert(on);
                    continue;
                }
                Verdict::ReadOn => None,
                Verdict::Wait { until_ms, .. } => {
                    Some(Duration::from_millis(u64::try_from(until_ms - now_ms).unwrap_or(0).max(1)))
                }
            };
            let news = self.tail.news(seen);
            match wait {
                None => seen = news.await?,
                Some(limit) => {
                    if let Ok(news) = clock.timeout(limit, news).await {
                        seen = news?;
                    }
                }
            }
        }
    }
}

/// When others may end the transaction of a claim that is made now: half of the time that a commit may take, so that
/// whoever waits for it has the other half.
fn claim_deadline_ms(transactions: &Transactions) -> i64 {
    let half = transactions.config().commit_deadline / 2;
    let now_ms = transactions.client().env().clock.wall_ms();
    now_ms.saturating_add(i64::try_from(half.as_millis()).unwrap_or(i64::MAX))
}

impl LedgerCommit {
    pub(crate) fn new(transactions: Transactions, tail: LedgerTail, keeper_config: KeeperConfig) -> Self {
        LedgerCommit { transactions, arbitration: Arbitration::new(tail), keeper_config, keeper: None }
    }
}

#[async_trait]
impl CommitProtocol for LedgerCommit {
    fn mode(&self) -> AckMode {
        AckMode::Ledger
    }

    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String> {
        Some(self.transactions.transactional_id(checkpoint))
    }

    fn outcome_topic_id(&self) -> Option<TopicId> {
        Some(self.transactions.outcome_topic_id())
    }

    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        let tail = self.arbitration.tail().clone();
        tail.ensure_running();
        let last_committed = self.transactions.recover(request).await?;
        // Nothing is claimed, and nothing dropped, by a view that ends before the own start.
        tail.catch_up().await?;
        self.keeper = Some(Keeper::start(tail, self.keeper_config.clone()).await?);
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
        self.arbitration.tail().check()?;
        self.transactions.open(checkpoint)
    }

    /// Produces the claim.
    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.arbitration.claim(&mut self.transactions, epoch).await
    }

    /// Nothing is staged: the verdict on the claim takes the place of it.
    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()> {
        self.arbitration.arbitrate(&mut self.transactions, epoch.checkpoint).await
    }

    async fn commit(&mut self, epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        // A refusal ends the attempt at once (ADR 0010): the claim would stay open, and nobody would end it.
        match self.transactions.commit(epoch.checkpoint).await {
            Err(error)
                if error.kind() == ErrorKind::Indeterminate
                    && is_planted(Bug::LostCommitAnswerAcknowledged) => {}
            // Rule 8: without an answer nothing is acknowledged; the marker will tell whoever gets the records next.
            ended => ended?,
        }
        self.transactions.attempt().release_decisions(epoch.checkpoint, &epoch.decided);
        Ok(CommitReceipt { offset_count: offset_count(&epoch.decided) })
    }

    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        let complete = self.transactions.visible(epoch.checkpoint);
        let attempt = Arc::clone(self.transactions.attempt());
        let clock = self.transactions.client().env().clock.clone();
        acknowledged_everywhere(complete, attempt, clock, epoch.checkpoint)
    }

    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.transactions.abort(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop().await;
        }
        Ok(())
    }
}
