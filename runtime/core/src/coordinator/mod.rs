//! The coordinator of one attempt.
//!
//! ```text
//! start: recover, connect --> drive: barriers, commits, drain --> end: drained, stopped or failed
//! ```
//!
//! It sends barriers, collects acknowledgements, and has the commit protocol commit epochs in order. It owns every
//! task of the attempt and leaves none running.

mod calls;
mod commit;
mod drain;
mod end;
mod job;
mod job_state;
mod on_request;
mod pending_checkpoint;
mod requests;
mod seat;
mod start;
mod trace;

use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, OwnedTask, TaskKind};

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::JobGraph;
use crate::kept::KeptSources;
use crate::status::{JobControl, JobEnd, JobReport, JobState};
pub(crate) use commit::{CommitEnd, CommitTools, commit_epoch};
pub(crate) use end::still_owner;
pub(crate) use on_request::CheckpointRequests;
pub(crate) use pending_checkpoint::{PendingCheckpoint, Report, Sealed, Subtask};
pub(crate) use start::{Position, close, recover, within};
pub(crate) use trace::Trace;

use job::{Coordinator, DriveEnd};
use start::Started;

/// Runs one attempt from start to end. A failed one leaves the state at `Failing`: the caller knows what follows.
pub(crate) async fn run(
    graph: JobGraph,
    env: Env,
    control: JobControl,
    kept: Option<KeptSources>,
) -> Result<JobReport> {
    let (end, unresolved) = attempt(graph, env, &control, kept).await?;
    control.set_state(JobState::Ended);
    Ok(JobReport { end, unresolved, status: control.snapshot() })
}

async fn attempt(
    graph: JobGraph,
    env: Env,
    control: &JobControl,
    kept: Option<KeptSources>,
) -> Result<(JobEnd, Option<CheckpointId>)> {
    // In a task of its own, so that a panic of a factory or of the protocol is an error of the attempt.
    let start = start::start(graph, env.clone(), control.clone(), kept);
    let mut start = OwnedTask::spawn(&env.spawner, "start", TaskKind::Job, start);
    let end = tokio::select! {
        biased;
        () = control.stop_token().cancelled() => JobEnd::Stopped,
        () = control.drain_token().cancelled() => JobEnd::Drained,
        started = start.join() => {
            let Some(started) = started? else {
                return Err(Error::new(ErrorKind::Closed, "the runtime is shutting down"));
            };
            return drive(started?, control).await;
        }
    };
    // Nothing was processed yet, so there is nothing to give back.
    start.abort();
    start.join().await?;
    Ok((end, None))
}

async fn drive(started: Started, control: &JobControl) -> Result<(JobEnd, Option<CheckpointId>)> {
    let mut coordinator = Coordinator::new(started, control.clone())?;
    let end = match coordinator.drive().await {
        Ok(DriveEnd::Drained) => coordinator.finish().await.map(|()| (JobEnd::Drained, None)),
        Ok(DriveEnd::Stopped) => {
            let unresolved = coordinator.stop().await;
            Ok((JobEnd::Stopped, unresolved))
        }
        Err(error) => Err(coordinator.fail(error).await),
    };
    control.recorder().detach();
    end
}
