//! How one epoch is committed: the seam between the coordinator and an acknowledgement mode.
//!
//! ```text
//! recover --> open(n) --> [tasks write] --> write_outcome(n) --> stage(n) --> commit(n) --> open(n+2) ...
//!                              |                 |                 |
//!                              +---- any error --+-----------------+--> abort(n), the attempt ends
//! ```
//!
//! Two epochs may be open at once (their transactional ids alternate); `write_outcome`, `stage` and `commit` come
//! strictly in checkpoint order: none of them is called for n+1 before `commit(n)` has returned.

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sharestream_base::ids::{CheckpointId, JobEpoch, TopicId};
use sharestream_checkpoints::{CommitPermit, ManifestRef};

use crate::Result;
use crate::decision::MemberDecisions;

/// The guarantee that a job runs with (G5: it is stated, never implied).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckMode {
    /// Writes and share acknowledgements in one Kafka transaction (KIP-1289).
    Transactional,
    /// Exactly once on released Kafka through a ledger.
    Ledger,
    /// Commit, then acknowledge: a crash between the two doubles records.
    AtLeastOnce,
}

/// An epoch whose barrier every subtask has acknowledged.
#[derive(Clone, Debug)]
pub struct SealedEpoch {
    /// Its checkpoint.
    pub checkpoint: CheckpointId,
    /// The last committed checkpoint before it, if the job has one.
    pub predecessor: Option<CheckpointId>,
    /// Incarnation of the job that sealed it.
    pub job_epoch: JobEpoch,
    /// Final decisions by member, rejections overlaid.
    pub decided: Vec<MemberDecisions>,
    /// The pending manifest, when the job has a checkpoint store.
    pub manifest: Option<ManifestRef>,
}

/// What recovery found in the outcome log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastCommitted {
    /// Checkpoint of the last committed outcome record of this (job, instance).
    pub checkpoint: Option<CheckpointId>,
    /// The manifest that this record names.
    pub manifest: Option<ManifestRef>,
    /// Highest checkpoint id seen in any own outcome record, committed or not: ids are never reused.
    pub highest_seen: Option<CheckpointId>,
    /// Highest incarnation of any own outcome record, committed or not.
    pub highest_job_epoch: Option<JobEpoch>,
}

/// What the coordinator gives to recovery.
#[derive(Clone, Debug)]
pub struct RecoverRequest {
    /// Incarnation that recovers; it owns the (job, instance).
    pub job_epoch: JobEpoch,
    /// Transactional ids that pending manifests name: they are fenced too, their transactions resolved.
    pub pending_transactional_ids: Vec<String>,
}

/// Step of one commit, reported before and after the work, for tracing and for crash tests.
///
/// The names are the `--crash-at` values of the demo and stay stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommitStep {
    /// All subtasks acked; nothing durable yet.
    BeforeManifest,
    /// The pending manifest is durable.
    AfterManifest,
    /// The outcome record is acknowledged, inside the open transaction.
    AfterOutcome,
    /// All writes are durable, no acknowledgement is staged.
    BeforeStaging,
    /// One source leader has staged, the next has not.
    BetweenStagedLeaders,
    /// Every acknowledgement is staged.
    AfterStaging,
    /// EndTxn is about to be sent.
    BeforeEndTxn,
    /// EndTxn was sent, its answer not yet read.
    DuringEndTxn,
    /// EndTxn is known to have committed.
    AfterEndTxn,
    /// The completed manifest is about to be written.
    BeforeCompleted,
    /// The completed manifest is durable.
    AfterCompleted,
}

impl CommitStep {
    /// All steps, in order.
    pub const ALL: [CommitStep; 11] = [
        CommitStep::BeforeManifest,
        CommitStep::AfterManifest,
        CommitStep::AfterOutcome,
        CommitStep::BeforeStaging,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::BeforeEndTxn,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
        CommitStep::BeforeCompleted,
        CommitStep::AfterCompleted,
    ];
}

/// Called at each step of each commit; a crash test never returns from it. Must not block otherwise.
pub type StepHook = std::sync::Arc<dyn Fn(CheckpointId, CommitStep) + Send + Sync>;

/// What a commit measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitReceipt {
    /// Decisions that were staged or acknowledged, as offsets.
    pub offset_count: u64,
}

/// One acknowledgement mode. Owned by the coordinator task.
#[async_trait]
pub trait CommitProtocol: Send {
    /// The mode, stated at start, in status and in metrics.
    fn mode(&self) -> AckMode;

    /// The transactional id that epoch `checkpoint` uses, for its manifest; `None` when the mode has none.
    fn transactional_id(&self, checkpoint: CheckpointId) -> Option<String>;

    /// Topic that holds the outcomes: each manifest names it, and recovery refuses a manifest that names another, for a
    /// topic that was created again knows nothing. `None`, the default: outcomes are in no topic.
    fn outcome_topic_id(&self) -> Option<TopicId> {
        None
    }

    /// Fences older incarnations, resolves what they left open, and reads the last committed outcome (DESIGN
    /// section 2, Recovery). Errors: `Fenced`, `Corrupt`.
    async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted>;

    /// Asked before an attempt takes the job: errors with `Fenced` when somebody else has taken it since an earlier
    /// attempt of the same process, which must then end. The default knows nothing of that. May read from the brokers.
    async fn check_not_replaced(&mut self) -> Result<()> {
        Ok(())
    }

    /// The highest incarnation of this (job, instance) that anything of it names, where no checkpoint store counts
    /// them. Asked before `recover`, so that the next incarnation gets a higher number. `None`, the default: there was
    /// none, or nobody knows. May read from the brokers.
    async fn last_job_epoch(&mut self) -> Result<Option<JobEpoch>> {
        Ok(None)
    }

    /// Whether this incarnation still owns the job, where no checkpoint store knows it: asked when something was
    /// fenced, for a broker that fences is not the last word (a late answer of an incarnation that has lost, a
    /// transaction time-out). `false`, the default: not known, so believe the fence. May read from the brokers.
    async fn still_owns(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Opens the epoch: from now on sinks may write into it. Called for n+1 as soon as barrier n is sent, so it may
    /// wait for `commit(n-1)` to have returned, never for `commit(n)`.
    async fn open(&mut self, checkpoint: CheckpointId) -> Result<()>;

    /// Step 1: puts the outcome record, the last write, into the transaction, and waits for its acknowledgement.
    async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()>;

    /// Step 3: stages the decisions at every source leader. Errors: `Abort` (locks lost), `Fenced`.
    async fn stage(&mut self, epoch: &SealedEpoch) -> Result<()>;

    /// Step 4: the commit point. Returns when the outcome is known. An unknown answer is resolved inside; what
    /// cannot be resolved until the deadline is `Indeterminate` and ends the attempt (recovery finds out).
    async fn commit(&mut self, epoch: &SealedEpoch, permit: CommitPermit) -> Result<CommitReceipt>;

    /// A future that ends when the committed epoch is visible: share state applied at the source leaders and
    /// read-committed readers past it. Measured as `visible_ms`; it runs beside the next commits, and the
    /// coordinator keeps at most one running (a sample), so it may poll.
    fn visible(&mut self, epoch: &SealedEpoch) -> BoxFuture<'static, Result<()>>;

    /// Gives the epoch up: its writes never become visible. The attempt ends afterwards.
    async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()>;

    /// Takes back `open(checkpoint)` of an epoch that stayed empty: nothing was written into it and nothing is
    /// decided in it. The job goes on: `checkpoint` is skipped and the next epochs follow. Rare (an epoch is
    /// normally closed only when it holds something), and called once for the epoch that is open when the job ends.
    async fn discard(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.abort(checkpoint).await
    }

    /// Closes connections after the last commit.
    async fn close(&mut self) -> Result<()>;
}
