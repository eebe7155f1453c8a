//! What a start makes of earlier incarnations: their numbers, their outcome topic, and those that start as well.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_checkpoints::{CheckpointStore, CommitPermit, JobKey};
use sharestream_core::commit::{
    AckMode, CommitProtocol, CommitReceipt, CommitStep, LastCommitted, RecoverRequest, SealedEpoch,
};
use sharestream_core::{Error, ErrorKind, JobControl, Result};

use crate::failures::supervise;
use crate::fixtures::{Fault, Setup};

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(start_paused = true)]
async fn incarnations_are_numbered_upwards_although_the_clock_goes_back() {
    let setup = Setup::new(2, 300);
    // The first attempt commits and ends; the clock is set back before the second.
    setup.faults.plan(CommitStep::DuringEndTxn, Fault::Error(ErrorKind::Indeterminate), 1, true);
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    let first = setup.broker.highest_job_epoch().unwrap();
    setup.env.clock.step_wall(-HOUR_MS);
    let report = supervise(&setup).await.unwrap();
    assert_eq!(report.status.job_epoch, Some(JobEpoch(first.0 + 1)));
}

#[tokio::test(start_paused = true)]
async fn an_incarnation_that_numbered_itself_higher_while_we_started_is_followed_by_a_higher_one() {
    let setup = Setup::new(2, 300);
    let now = u64::try_from(setup.env.clock.wall_ms()).unwrap();
    let other = JobEpoch(now + 1_000_000);
    setup.broker.write_late(other);
    let report = supervise(&setup).await.unwrap();
    assert_eq!(report.status.job_epoch, Some(JobEpoch(other.0 + 1)));
    assert_eq!(report.status.attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_topic_that_was_created_again_is_corrupt_when_the_only_commit_is_still_pending() {
    let mut setup = Setup::new(2, 300);
    setup.store = Some(store().await);
    setup.faults.plan(CommitStep::DuringEndTxn, Fault::Error(ErrorKind::Indeterminate), 0, true);
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    setup.broker.forget_outcomes();
    let again = Box::pin(setup.job().run(setup.env.clone(), JobControl::new()));
    let ended = setup.env.clock.timeout(Duration::from_secs(60), again).await;
    let error = ended.expect("it does not start").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("created again"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_job_while_it_recovers_is_fenced_whatever_else_went_wrong() {
    for kind in [ErrorKind::Retry, ErrorKind::Abort, ErrorKind::Indeterminate, ErrorKind::Corrupt] {
        let mut setup = Setup::new(2, 300);
        let store = store().await;
        setup.store = Some(store.clone());
        let protocol = Box::new(LosesWhileItRecovers { store, kind });
        let job = setup.builder().commit(protocol).build().unwrap();
        let error = job.run(setup.env.clone(), JobControl::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "another attempt would take the job back: {error}");
    }
}

async fn store() -> CheckpointStore {
    CheckpointStore::open(Arc::new(InMemory::new()), JobKey::new("test", "0")).await.unwrap()
}

/// Its job is taken over while it recovers, and it fails for a reason of its own.
struct LosesWhileItRecovers {
    store: CheckpointStore,
    kind: ErrorKind,
}

#[async_trait]
impl CommitProtocol for LosesWhileItRecovers {
    fn mode(&self) -> AckMode {
        AckMode::Transactional
    }
    fn transactional_id(&self, _checkpoint: CheckpointId) -> Option<String> {
        None
    }
    async fn recover(&mut self, _request: RecoverRequest) -> Result<LastCommitted> {
        self.store.acquire_ownership("the newer one", 1).await?;
        Err(Error::new(self.kind, "planned"))
    }
    async fn open(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        unreachable!("it does not recover")
    }
    async fn write_outcome(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        unreachable!("it does not recover")
    }
    async fn stage(&mut self, _epoch: &SealedEpoch) -> Result<()> {
        unreachable!("it does not recover")
    }
    async fn commit(&mut self, _epoch: &SealedEpoch, _permit: CommitPermit) -> Result<CommitReceipt> {
        unreachable!("it does not recover")
    }
    fn visible(&mut self, _epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>> {
        unreachable!("it does not recover")
    }
    async fn abort(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        unreachable!("it does not recover")
    }
    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}
