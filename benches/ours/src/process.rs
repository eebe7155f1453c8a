//! Other processes of a measurement, each this same program: brokers and workers. They die with their parent.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use serde_json::Value;
use sharestream_base::{Env, Instant, OwnedTask, TaskKind};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// Events that nobody has asked for yet; a process that says more waits.
const EVENTS_MAX: usize = 256;
/// Samples of progress that are kept, the newest: some minutes of them.
const SAMPLES_MAX: usize = 10_000;

/// A process that says what it does, one JSON object a line. Dropping it kills it.
pub(crate) struct Process {
    name: String,
    child: Child,
    /// Held open: when it breaks, the process knows that its parent is gone, however that died.
    _stdin: Option<ChildStdin>,
    events: mpsc::Receiver<Value>,
    samples: Arc<Mutex<Vec<Sample>>>,
    _reader: OwnedTask<()>,
}

/// What a worker has committed by then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) records_in: u64,
}

/// What a process can be told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Asks for a last checkpoint.
    Term,
    /// Stands still.
    Stop,
    /// Goes on.
    Continue,
}

impl Process {
    /// Starts this program with `arguments`.
    pub(crate) fn start(env: &Env, name: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C on the terminal is for the parent alone; it ends its children itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the child has a standard output")?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let samples = Arc::default();
        let reading = read(env.clone(), stdout, sender, Arc::clone(&samples));
        let reader = OwnedTask::spawn(&env.spawner, format!("{name}-output"), TaskKind::Service, reading);
        Ok(Process { name: name.to_owned(), child, _stdin: stdin, events, samples, _reader: reader })
    }

    /// The next event that is not progress; an error when the process has ended. Cancel safe.
    pub(crate) async fn event(&mut self) -> anyhow::Result<Value> {
        match self.events.recv().await {
            Some(event) => Ok(event),
            None => {
                let status = self.child.wait().await?;
                anyhow::bail!("{} ended ({status}); what it had to say is above", self.name)
            }
        }
    }

    /// Waits for the event with this name, whatever comes before it. Cancel safe.
    pub(crate) async fn wait_for(&mut self, name: &str) -> anyhow::Result<Value> {
        loop {
            let event = self.event().await?;
            if event["event"] == name {
                return Ok(event);
            }
            ensure!(event["event"] != "failed", "{}: {}", self.name, event["error"]);
        }
    }

    /// Progress so far, oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        locked(&self.samples).clone()
    }

    /// False when it has ended.
    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let name = match signal {
            Signal::Term => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let pid = self.child.id().with_context(|| format!("{} is gone", self.name))?.to_string();
        let sent = Command::new("kill").args([name, &pid]).status().await?;
        ensure!(sent.success(), "{} cannot be sent {signal:?}", self.name);
        Ok(())
    }

    /// Ends the process with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Asks for a last checkpoint and waits for the end.
    pub(crate) async fn drain(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::Term).await?;
        Ok(self.child.wait().await?)
    }
}

fn locked(samples: &Mutex<Vec<Sample>>) -> MutexGuard<'_, Vec<Sample>> {
    // A push leaves a valid list, whoever panics.
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(env: Env, stdout: ChildStdout, events: mpsc::Sender<Value>, samples: Arc<Mutex<Vec<Sample>>>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            eprintln!("not an event: {line}");
            continue;
        };
        if event["event"] == "progress" {
            let records_in = event["records_in"].as_u64().unwrap_or(0);
            let mut samples = locked(&samples);
            if samples.len() == SAMPLES_MAX {
                samples.remove(0);
            }
            samples.push(Sample { at: env.clock.now(), records_in });
        } else if events.send(event).await.is_err() {
            return;
        }
    }
}
