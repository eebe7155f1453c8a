//! A job in a process of its own, for what kills processes or needs several. It says what it does, one JSON object a
//! line: `started`, `progress`, `step` (it stands still there and waits to be killed), `ended`, `failed`.

mod count;
mod spec;
mod work;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use sharestream_base::{CancellationToken, Env, OwnedTask, Spawner, TaskKind};
use sharestream_core::{Histogram, JobControl, JobMetrics, JobState};
use tokio::signal::unix::{SignalKind, signal};

use crate::report::rounded;

pub(crate) use count::{Count, schema as counted_schema};
pub(crate) use spec::{CrashAt, TRANSACTION_TIMEOUT, WorkerSpec};
pub(crate) use work::Work;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// `worker`.
#[derive(Args)]
pub(crate) struct WorkerArgs {
    /// A worker's settings as JSON
    spec: WorkerSpec,
}

/// Runs the job until SIGTERM (a last checkpoint), the end of standard input (at once), or its failure.
pub(crate) async fn run(env: Env, args: WorkerArgs) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let (parent, _watch) = parent_gone();
    let control = JobControl::new();
    let pipeline = args.spec.pipeline(&env).await?;
    let mut running = Box::pin(pipeline.run(env.clone(), control.clone()));
    let mut status = control.status();
    let (mut is_started, mut next) = (false, env.clock.now() + PROGRESS);
    let report = loop {
        tokio::select! {
            biased;
            _ = terminated.recv() => control.drain(),
            // Dropping the job ends it at once.
            () = parent.cancelled() => return Ok(()),
            report = &mut running => break report,
            started = status.wait_for(|status| status.state == JobState::Running), if !is_started => {
                drop(started?);
                is_started = true;
                println!("{}", json!({ "event": "started" }));
            }
            () = env.clock.sleep_until(next) => {
                next = env.clock.now() + PROGRESS;
                let now = control.snapshot();
                let line = json!({
                    "event": "progress", "records_in": now.records_in, "commits": now.commits,
                    "attempts": now.attempts, "last_error": now.last_error,
                });
                println!("{line}");
            }
        }
    };
    match report {
        Ok(report) => {
            let status = report.status;
            let line = json!({
                "event": "ended", "records_in": status.records_in, "commits": status.commits,
                "attempts": status.attempts, "checkpoints": checkpoints(&control.metrics()),
            });
            println!("{line}");
            Ok(())
        }
        Err(error) => {
            println!("{}", json!({ "event": "failed", "error": error.to_string() }));
            Err(error.into())
        }
    }
}

/// What caused the checkpoints, how large they were, and how long their steps took on average.
fn checkpoints(metrics: &JobMetrics) -> Value {
    let mean = |all: &Histogram| all.sum() / all.count().max(1) as f64;
    let steps = metrics.step_seconds.iter();
    let steps: BTreeMap<_, _> =
        steps.map(|(step, all)| (step.name(), rounded(mean(all) * 1_000.0, 2))).collect();
    json!({
        "caused_by": metrics.checkpoints, "records": rounded(mean(&metrics.checkpoint_records), 1),
        "mean_ms": rounded(mean(&metrics.checkpoint_seconds) * 1_000.0, 2), "steps_mean_ms": steps,
    })
}

/// Triggered when standard input ends: the pipe to the parent breaks with the parent, however it dies.
pub(crate) fn parent_gone() -> (CancellationToken, OwnedTask<()>) {
    let token = CancellationToken::new();
    let gone = token.clone();
    let task = OwnedTask::spawn(&Spawner::system(), "parent", TaskKind::Service, async move {
        let read_to_end = || {
            let mut sink = [0u8; 256];
            while matches!(std::io::stdin().read(&mut sink), Ok(count) if count > 0) {}
        };
        // A panic in there ends the watch, and with it the process: better than living on without a parent.
        let _ = sharestream_base::run_blocking("stdin", read_to_end).await;
        gone.cancel();
    });
    (token, task)
}
