//! The start of an attempt: take ownership, fence and resolve what older incarnations left, find the last committed
//! checkpoint, connect (DESIGN section 2, Recovery).

use std::time::Duration;

use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::{Clock, Env};
use sharestream_checkpoints::{CheckpointStore, Manifest, Recovery, decide};

use super::commit::{CommitTools, OwnedStore};
use crate::ErrorKind;
use crate::commit::{CommitProtocol, LastCommitted, RecoverRequest};
use crate::error::{Error, Result};
use crate::graph::{Blueprint, JobGraph, JobId, Parts, Restored};
use crate::kept::KeptSources;
use crate::options::JobOptions;
use crate::status::{JobControl, JobState};

/// A recovered and connected attempt.
pub(crate) struct Started {
    pub(crate) id: JobId,
    pub(crate) env: Env,
    pub(crate) options: JobOptions,
    pub(crate) protocol: Box<dyn CommitProtocol>,
    pub(crate) tools: CommitTools,
    pub(crate) blueprint: Blueprint,
    pub(crate) parts: Parts,
    pub(crate) last_committed: Option<CheckpointId>,
    pub(crate) first: CheckpointId,
}

/// Where recovery says that the job goes on.
pub(crate) struct Position {
    pub(crate) job_epoch: JobEpoch,
    store: Option<OwnedStore>,
    pub(crate) last_committed: Option<CheckpointId>,
    /// Its manifest, where a store keeps them.
    restored: Option<Manifest>,
    pub(crate) next_checkpoint: CheckpointId,
}

/// Recovers and connects. On an error the protocol is closed.
pub(crate) async fn start(
    graph: JobGraph,
    env: Env,
    control: JobControl,
    kept: Option<KeptSources>,
) -> Result<Started> {
    let mut graph = graph;
    let blueprint = Blueprint::of(&mut graph);
    let JobGraph { id, mut protocol, store, options, step_hook, .. } = graph;
    let mode = protocol.mode();
    tracing::info!(job = %id, mode = ?mode, has_store = store.is_some(), "starting, guarantee as the mode says");
    control.update(|status| {
        status.state = JobState::Recovering;
        status.mode = Some(mode);
        status.in_flight = 0;
    });
    let result = async {
        let recovery = recover(&id, protocol.as_mut(), store, &env);
        let position = within(&env.clock, options.recovery_deadline, "recovery", recovery).await?;
        let job_epoch = position.job_epoch;
        control.update(|status| {
            status.state = JobState::Connecting;
            status.job_epoch = Some(job_epoch);
            status.checkpoint = position.last_committed;
        });
        let allows_unclaimed = options.allow_unclaimed_state;
        check_state_is_claimed(&blueprint, position.restored.as_ref(), allows_unclaimed)?;
        let restored = Restored {
            store: position.store.as_ref().map(|owned| (&owned.store, &owned.owner)),
            manifest: position.restored.as_ref(),
        };
        let connect = blueprint.connect(restored, position.last_committed, kept.as_ref());
        let parts =
            within(&env.clock, options.connect_deadline, "connecting sources and sinks", connect).await?;
        Ok((position, parts))
    };
    match result.await {
        Ok((position, parts)) => {
            let Position { job_epoch, store, last_committed, next_checkpoint: first, .. } = position;
            tracing::info!(job = %id, %job_epoch, ?last_committed, first_checkpoint = %first, "recovered");
            let (clock, spawner) = (env.clock.clone(), env.spawner.clone());
            let probe_deadline = options.commit_deadline;
            let tools = CommitTools { clock, spawner, job_epoch, store, step_hook, probe_deadline, kept };
            Ok(Started { id, env, options, protocol, tools, blueprint, parts, last_committed, first })
        }
        Err(error) => {
            close(protocol.as_mut(), &env.clock, options.close_deadline).await;
            Err(error)
        }
    }
}

/// State that no operator of the job claims would be gone with the next checkpoint.
fn check_state_is_claimed(
    blueprint: &Blueprint,
    restored: Option<&Manifest>,
    is_allowed: bool,
) -> Result<()> {
    let claimed = blueprint.state_ids();
    let operators = restored.map_or(&[][..], |manifest| &manifest.operators);
    let left: Vec<&str> = operators
        .iter()
        .map(|operator| operator.operator.as_str())
        .filter(|operator| !claimed.contains(operator))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let left = left.join(", ");
    if is_allowed {
        tracing::warn!(operators = left, "state that no operator claims is left behind, as allowed");
        return Ok(());
    }
    let context = format!(
        "the last checkpoint has state of operators that the job does not have ({left}): give them their ids back, or \
         allow it to be dropped with allow_unclaimed_state"
    );
    Err(Error::new(ErrorKind::InvalidInput, context))
}

/// Bounds one step of the start. Nothing was committed by it, so another attempt may follow.
pub(crate) async fn within<T>(
    clock: &Clock,
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    match clock.timeout(limit, future).await {
        Ok(result) => result,
        Err(elapsed) => {
            let context = format!("{what} took longer than {limit:?}");
            Err(Error::new(ErrorKind::Retry, context).with_source(elapsed))
        }
    }
}

/// Closes the protocol of an attempt that is over; its error says nothing that the attempt's own does not.
pub(crate) async fn close(protocol: &mut dyn CommitProtocol, clock: &Clock, limit: Duration) {
    match clock.timeout(limit, protocol.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the commit protocol did not close cleanly"),
        Err(_elapsed) => tracing::warn!("the commit protocol did not close in time"),
    }
}

/// Takes the job and finds its last commit.
pub(crate) async fn recover(
    id: &JobId,
    protocol: &mut dyn CommitProtocol,
    store: Option<CheckpointStore>,
    env: &Env,
) -> Result<Position> {
    protocol.check_not_replaced().await?;
    match store {
        Some(store) => recover_with_store(id, protocol, store, env).await,
        None => recover_without_store(protocol, env).await,
    }
}

async fn recover_with_store(
    id: &JobId,
    protocol: &mut dyn CommitProtocol,
    store: CheckpointStore,
    env: &Env,
) -> Result<Position> {
    let key = store.key();
    if (&key.job, &key.instance) != (&id.job, &id.instance) {
        let context = format!("the checkpoint store was opened for {key}, the job is {id}");
        return Err(Error::new(ErrorKind::InvalidInput, context));
    }
    let owner = store.acquire_ownership(&env.process_name(), env.clock.wall_ms()).await?;
    let recovery = Recovery::inspect(&store).await?;
    let request = RecoverRequest {
        job_epoch: owner.epoch,
        pending_transactional_ids: recovery.pending_transactional_ids().map(str::to_owned).collect(),
    };
    let LastCommitted { checkpoint, manifest, highest_seen, .. } = match protocol.recover(request).await {
        Ok(last_committed) => last_committed,
        Err(error) => {
            // Who has lost the job must end here: another attempt would take it from the owner, who would do the same.
            return match store.check_owner(&owner).await {
                Err(fenced) if fenced.kind() == ErrorKind::Fenced => Err(fenced.into()),
                Ok(()) | Err(_) => Err(error),
            };
        }
    };
    let outcomes = decide::Outcomes {
        topic_id: protocol.outcome_topic_id(),
        last_committed: checkpoint.map(|checkpoint| decide::LastCommitted { checkpoint, manifest }),
        highest_seen,
    };
    // Checks the owner again before it trusts or changes anything.
    let recovered = recovery.finish(&store, &owner, outcomes).await?;
    Ok(Position {
        job_epoch: owner.epoch,
        last_committed: recovered.predecessor,
        restored: recovered.restored.map(|(_, manifest)| manifest),
        next_checkpoint: recovered.next_checkpoint,
        store: Some(OwnedStore { store, owner }),
    })
}

/// Without a store the transactional ids fence, and the outcome log alone says where the job is. The job epoch grows
/// from start to start: it is above every one that the log names, and not below wall time, for a log that was lost.
async fn recover_without_store(protocol: &mut dyn CommitProtocol, env: &Env) -> Result<Position> {
    let now = JobEpoch(u64::try_from(env.clock.wall_ms()).unwrap_or_default());
    let last = protocol.last_job_epoch().await?;
    let job_epoch = last.map_or(now, |last| now.max(JobEpoch(last.0 + 1)));
    let request = RecoverRequest { job_epoch, pending_transactional_ids: Vec::new() };
    let recovered = protocol.recover(request).await?;
    let LastCommitted { checkpoint, manifest, highest_seen, highest_job_epoch } = recovered;
    if let Some(other) = highest_job_epoch.filter(|other| *other >= job_epoch) {
        // Whoever it was is fenced now; but it numbered itself after us, and numbers must rise with the commits.
        let context =
            format!("incarnation {other} of this job ran while incarnation {job_epoch} was starting");
        return Err(Error::new(ErrorKind::Retry, context));
    }
    if let Some(manifest) = manifest {
        let context = format!(
            "the last commit of this job names checkpoint manifest {}, but the job has no checkpoint store now",
            manifest.name
        );
        return Err(Error::new(ErrorKind::InvalidInput, context));
    }
    Ok(Position {
        job_epoch,
        store: None,
        last_committed: checkpoint,
        restored: None,
        next_checkpoint: checkpoint.max(highest_seen).map_or(CheckpointId(1), CheckpointId::next),
    })
}
