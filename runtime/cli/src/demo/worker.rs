//! The worker processes, one after another, and what they report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use sharestream_base::{Clock, Instant};

use super::display::Display;
use super::place::Place;
use super::plan::Death;
use super::process::Process;
use super::report::{DemoReport, Latencies};
use crate::args::step_name;

/// A worker that does not come to its step so long after its last flight was loaded is killed anyway.
const STEP_WAIT_MAX: Duration = Duration::from_secs(10);
/// A worker that has not started by then is killed anyway.
const START_WAIT_MAX: Duration = Duration::from_secs(60);
/// A worker that has not caught up by then is given up.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(300);

/// How a planned death came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// At the step, in the commit of this checkpoint.
    DiedAtStep {
        /// The checkpoint.
        checkpoint: u64,
    },
    /// The step did not come in time.
    NeverReached,
    /// At a random moment.
    DiedAtRandom,
}

/// Starts workers and adds up what they did.
pub(crate) struct Workers {
    clock: Clock,
    arguments: Vec<String>,
    started_at: Option<Instant>,
    seconds: f64,
    latencies: Latencies,
    crashes_by_step: BTreeMap<String, u64>,
    peak_memory_mb: u64,
}

impl Workers {
    /// Workers for the job file in `folder` with the settings of `place` instead of what it says.
    pub(crate) fn new(clock: &Clock, place: &Place, folder: &Path) -> Self {
        let path: PathBuf = folder.join("job.toml");
        let mut arguments = vec!["run".to_owned(), path.display().to_string()];
        arguments.extend(place.settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]));
        arguments.extend(["--json", "--with-parent"].map(str::to_owned));
        arguments.extend(place.security.iter().cloned());
        Workers {
            clock: clock.clone(),
            arguments,
            started_at: None,
            seconds: 0.0,
            latencies: Latencies::default(),
            crashes_by_step: BTreeMap::new(),
            peak_memory_mb: 0,
        }
    }

    /// Starts a worker, lets `load` run beside it, and kills it as planned. Returns when both is done.
    pub(crate) async fn run_until_death<F>(
        &mut self,
        death: Death,
        load: F,
        display: &mut Display,
    ) -> anyhow::Result<Outcome>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let mut extra = Vec::new();
        if let Death::AtStep { step, count } = death {
            extra.extend(["--crash-at".to_owned(), format!("{}:{count}", step_name(step))]);
        }
        let mut worker = self.start(&extra)?;
        let mut load = pin!(load);
        let (mut is_started, mut is_loaded) = (false, false);
        let mut deadline = self.clock.now() + START_WAIT_MAX;
        let outcome = loop {
            tokio::select! {
                // Flights come while the worker runs, so that it makes many small commits.
                loaded = &mut load, if is_started && !is_loaded => {
                    loaded?;
                    is_loaded = true;
                    if let Death::AtStep { .. } = death {
                        deadline = self.clock.now() + STEP_WAIT_MAX;
                    }
                }
                event = worker.event() => {
                    let event = event?;
                    self.note(&event, &worker, display);
                    match (name(&event), death) {
                        ("started", _) => {
                            is_started = true;
                            if let Death::After(life) = death {
                                deadline = self.clock.now() + life;
                            }
                        }
                        ("step", _) => {
                            let checkpoint = event.get("checkpoint").and_then(Value::as_u64).unwrap_or(0);
                            break Outcome::DiedAtStep { checkpoint };
                        }
                        _ => {}
                    }
                }
                () = self.clock.sleep_until(deadline) => {
                    break match death {
                        Death::AtStep { .. } => Outcome::NeverReached,
                        Death::After(_) => Outcome::DiedAtRandom,
                    };
                }
            }
        };
        worker.kill().await?;
        display.worker_gone();
        let step = match (outcome, death) {
            (Outcome::DiedAtStep { .. }, Death::AtStep { step, .. }) => step_name(step),
            _ => "random".to_owned(),
        };
        *self.crashes_by_step.entry(step).or_default() += 1;
        if !is_loaded {
            load.await?;
        }
        Ok(outcome)
    }

    /// Starts the last worker and waits until it has caught up and ended.
    pub(crate) async fn finish(&mut self, display: &mut Display) -> anyhow::Result<()> {
        let mut worker = self.start(&["--until-caught-up".to_owned()])?;
        let deadline = self.clock.now() + FINISH_WAIT_MAX;
        loop {
            let event = match self.clock.timeout_at(deadline, worker.event()).await {
                Ok(event) => event?,
                Err(_) => bail!("the worker did not catch up within {} s", FINISH_WAIT_MAX.as_secs()),
            };
            self.note(&event, &worker, display);
            match name(&event) {
                "caught_up" => {
                    let started_at = self.started_at.context("a worker was started")?;
                    self.seconds = self.clock.now().duration_since(started_at).as_secs_f64();
                }
                "ended" => break,
                _ => {}
            }
        }
        if !worker.wait().await? {
            bail!("the worker caught up, but did not end well");
        }
        Ok(())
    }

    /// Adds crashes and times to the report.
    pub(crate) fn complete(&self, report: &mut DemoReport) {
        report.crashes = self.crashes_by_step.values().sum();
        report.worker_peak_mb = self.peak_memory_mb;
        report.crashes_by_step.clone_from(&self.crashes_by_step);
        report.timed(self.seconds, self.latencies);
    }

    fn start(&mut self, extra: &[String]) -> anyhow::Result<Process> {
        let now = self.clock.now();
        self.started_at.get_or_insert(now);
        let arguments: Vec<String> = self.arguments.iter().chain(extra).cloned().collect();
        Process::start("worker", &arguments)
    }

    fn note(&mut self, event: &Value, worker: &Process, display: &mut Display) {
        self.peak_memory_mb = self.peak_memory_mb.max(worker.peak_memory_mb().unwrap_or(0));
        match name(event) {
            "progress" => {
                display.progress(event);
                self.latencies = Latencies::of(event).unwrap_or(self.latencies);
            }
            "ended" | "caught_up" => {
                let status = event.get("status").unwrap_or(event);
                display.progress(status);
                self.latencies = Latencies::of(status).unwrap_or(self.latencies);
            }
            "note" | "failed" => {
                let text = event.get("text").or_else(|| event.get("error")).and_then(Value::as_str);
                display.say(&format!("worker: {}", text.unwrap_or("?")));
            }
            _ => {}
        }
    }
}

fn name(event: &Value) -> &str {
    event.get("event").and_then(Value::as_str).unwrap_or("")
}
