//! The commit of one sealed epoch, step by step (DESIGN section 2, steps 1 to 5).
//!
//! ```text
//! [BeforeManifest] manifest n, pending [AfterManifest] outcome record n [AfterOutcome]
//! [BeforeStaging] acknowledgements staged at every source leader [AfterStaging]
//! [BeforeEndTxn] EndTxn: the commit point [AfterEndTxn]
//! [BeforeCompleted] manifest n, completed [AfterCompleted]
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{Clock, Elapsed, Instant, OwnedTask, Spawner, TaskKind};
use sharestream_checkpoints::{
    CheckpointStore, CommitPermit, DecidedOffsets, JobKey, Manifest, ManifestRef, OffsetDecision,
    OperatorSnapshot, Owner, SourceSnapshot,
};
use tracing::Instrument;

use super::pending_checkpoint::Sealed;
use super::trace::{Steps, step_event};
use crate::ErrorKind;
use crate::commit::{CommitProtocol, CommitStep, SealedEpoch, StepHook};
use crate::decision::{Decision, all_of};
use crate::error::{Error, Result};
use crate::kept::KeptSources;
use crate::metrics::CheckpointStep;

/// The checkpoint store and our right to write to it.
#[derive(Clone, Debug)]
pub(crate) struct OwnedStore {
    pub(crate) store: CheckpointStore,
    pub(crate) owner: Owner,
}

/// What commits need beside the protocol. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CommitTools {
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    pub(crate) job_epoch: JobEpoch,
    pub(crate) store: Option<OwnedStore>,
    pub(crate) step_hook: StepHook,
    /// Sources that outlive the attempt must know what may have been staged.
    pub(crate) kept: Option<KeptSources>,
    /// Longest time of a visibility probe.
    pub(crate) probe_deadline: Duration,
}

/// When the probed epoch was seen to be visible, or why not.
pub(crate) struct ProbeEnd {
    pub(crate) at: Instant,
    /// Since the commit was known.
    pub(crate) took: Duration,
    pub(crate) result: Result<Result<()>, Elapsed>,
}

/// What a commit measured.
#[derive(Debug, Default)]
pub(crate) struct CommitFigures {
    pub(crate) steps: Steps,
    /// Offsets that it decided.
    pub(crate) offset_count: u64,
    /// Of the pending manifest; 0 without a store.
    pub(crate) manifest_bytes: u64,
}

/// How a commit ended.
pub(crate) enum CommitEnd {
    /// The outcome is known: committed. `after` is how the steps behind the commit point went.
    Committed { at: Instant, probe: Option<OwnedTask<ProbeEnd>>, figures: CommitFigures, after: Result<()> },
    /// It failed. `may_abort`: the epoch is known not to be committed and still ours.
    Failed { error: Error, may_abort: bool },
}

/// Commits `sealed`; with `with_probe`, starts a probe of its visibility.
pub(crate) async fn commit_epoch(
    protocol: &mut dyn CommitProtocol,
    sealed: Sealed,
    predecessor: Option<CheckpointId>,
    with_probe: bool,
    tools: &CommitTools,
) -> CommitEnd {
    let checkpoint = sealed.checkpoint;
    let step = |step| (tools.step_hook)(checkpoint, step);
    let mut epoch = SealedEpoch {
        checkpoint,
        predecessor,
        job_epoch: tools.job_epoch,
        decided: sealed.decided,
        manifest: None,
    };
    let mut figures = CommitFigures::default();
    let permit = match prepare(protocol, &mut epoch, sealed.operators, &mut figures, tools).await {
        Ok(permit) => permit,
        Err(error) => {
            let may_abort = error.kind() != ErrorKind::Fenced;
            return CommitEnd::Failed { error, may_abort };
        }
    };
    if is_planted(Bug::CompletedBeforeEndTxn)
        && let Err(error) = complete(epoch.manifest.as_ref(), tools).await
    {
        return CommitEnd::Failed { error, may_abort: true };
    }
    step(CommitStep::BeforeEndTxn);
    let committed = protocol.commit(&epoch, permit);
    match figures.steps.time(CheckpointStep::EndTxn, &tools.clock, committed).await {
        Ok(receipt) => figures.offset_count = receipt.offset_count,
        Err(error) => {
            // Unknown means unknown: an abort could meet a transaction that is committed. The next attempt finds out.
            let may_abort = !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate);
            return CommitEnd::Failed { error, may_abort };
        }
    }
    let at = tools.clock.now();
    step(CommitStep::AfterEndTxn);
    let probe = with_probe.then(|| {
        let (visible, clock, limit) = (protocol.visible(&epoch), tools.clock.clone(), tools.probe_deadline);
        let probe = async move {
            let result = clock.timeout(limit, visible).await;
            let (at, took) = (clock.now(), clock.now().duration_since(at));
            if let Ok(Ok(())) = &result {
                step_event(CheckpointStep::Visible, took);
            }
            ProbeEnd { at, took, result }
        };
        let name = format!("visible-{checkpoint}");
        OwnedTask::spawn(&tools.spawner, name, TaskKind::Job, probe.instrument(tracing::Span::current()))
    });
    step(CommitStep::BeforeCompleted);
    let completing = complete(epoch.manifest.as_ref(), tools);
    let after = if epoch.manifest.is_some() {
        figures.steps.time(CheckpointStep::Complete, &tools.clock, completing).await
    } else {
        completing.await
    };
    if after.is_ok() {
        step(CommitStep::AfterCompleted);
    }
    CommitEnd::Committed { at, probe, figures, after }
}

/// Everything up to the commit point.
async fn prepare(
    protocol: &mut dyn CommitProtocol,
    epoch: &mut SealedEpoch,
    operators: Vec<OperatorSnapshot>,
    figures: &mut CommitFigures,
    tools: &CommitTools,
) -> Result<CommitPermit> {
    let checkpoint = epoch.checkpoint;
    let step = |step| (tools.step_hook)(checkpoint, step);
    step(CommitStep::BeforeManifest);
    let permit = match &tools.store {
        None => CommitPermit::transaction_is_the_checkpoint(),
        Some(OwnedStore { store, owner }) => {
            let manifest = Manifest {
                transactional_id: protocol.transactional_id(checkpoint),
                outcome_topic_id: protocol.outcome_topic_id(),
                operators,
                ..manifest_of(store.key(), epoch, tools.clock.wall_ms())
            };
            let publishing = store.publish_pending(owner, &manifest);
            let published = figures.steps.time(CheckpointStep::Manifest, &tools.clock, publishing).await?;
            figures.manifest_bytes = published.manifest_bytes;
            epoch.manifest = Some(published.manifest_ref.clone());
            published.permit()
        }
    };
    step(CommitStep::AfterManifest);
    let (clock, steps) = (&tools.clock, &mut figures.steps);
    steps.time(CheckpointStep::Outcome, clock, protocol.write_outcome(epoch)).await?;
    step(CommitStep::AfterOutcome);
    step(CommitStep::BeforeStaging);
    if let Some(kept) = &tools.kept {
        kept.staging(checkpoint);
    }
    steps.time(CheckpointStep::Stage, clock, protocol.stage(epoch)).await?;
    step(CommitStep::AfterStaging);
    Ok(permit)
}

async fn complete(manifest: Option<&ManifestRef>, tools: &CommitTools) -> Result<()> {
    match (&tools.store, manifest) {
        (Some(OwnedStore { store, owner }), Some(manifest)) => Ok(store.complete(owner, manifest).await?),
        (Some(_), None) | (None, Some(_) | None) => Ok(()),
    }
}

/// The manifest of an epoch, without what its protocol knows: decisions by partition, whoever holds them.
fn manifest_of(key: &JobKey, epoch: &SealedEpoch, created_ms: i64) -> Manifest {
    let all = all_of(&epoch.decided);
    let mut ranges: BTreeMap<_, Vec<DecidedOffsets>> = BTreeMap::new();
    for (partition, range) in all.ranges() {
        let decision = match range.decision {
            Decision::Accept => OffsetDecision::Accept,
            Decision::Reject => OffsetDecision::Reject,
            Decision::Gap => OffsetDecision::Gap,
        };
        let decided = DecidedOffsets { first: range.first, last: range.last, decision };
        ranges.entry(partition).or_default().push(decided);
    }
    let sources = ranges
        .into_iter()
        .map(|(source, decided)| SourceSnapshot {
            topic: None,
            topic_id: source.topic_id,
            partition: source.partition,
            decided,
        })
        .collect();
    let SealedEpoch { checkpoint, predecessor, job_epoch, .. } = *epoch;
    Manifest { sources, ..Manifest::new(key, job_epoch, checkpoint, predecessor, created_ms) }
}
