//! The demo's other processes: the broker and the worker, each this same program. They die with the demo.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use serde_json::Value;
use sharestream_base::{OwnedTask, Spawner, TaskKind};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::args::BROKERS_VARIABLE;
use crate::properties::COMMAND_CONFIG_VARIABLE;

/// Lines of standard error that are kept to explain an unexpected end.
const ERROR_LINES_MAX: usize = 20;

/// A child process that writes one JSON object per line.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Arc<Mutex<Vec<String>>>,
    /// Held open: when it breaks, the child knows that the demo is gone, however it died.
    _stdin: Option<ChildStdin>,
    error_reader: OwnedTask<()>,
}

impl Process {
    /// Starts this program with `arguments`.
    pub(crate) fn start(name: &'static str, arguments: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the sharestream program")?;
        let mut child = Command::new(program)
            .args(arguments)
            // Where its brokers are, and how to speak to them, the arguments say.
            .env_remove(BROKERS_VARIABLE)
            .env_remove(COMMAND_CONFIG_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on the terminal is for the demo alone; it ends its children itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the {name}"))?;
        let stdout = child.stdout.take().context("the child has a standard output")?;
        let stderr = child.stderr.take().context("the child has a standard error")?;
        let errors = Arc::new(Mutex::new(Vec::new()));
        let error_reader = OwnedTask::spawn(
            &Spawner::system(),
            "child-errors",
            TaskKind::Service,
            keep_tail(stderr, errors.clone()),
        );
        let stdin = child.stdin.take();
        let lines = BufReader::new(stdout).lines();
        Ok(Process { name, child, lines, errors, _stdin: stdin, error_reader })
    }

    /// The next event; an error when the process has ended. Cancel safe.
    pub(crate) async fn event(&mut self) -> anyhow::Result<Value> {
        match self.lines.next_line().await? {
            Some(line) => {
                serde_json::from_str(&line).with_context(|| format!("the {} said '{line}'", self.name))
            }
            None => {
                let status = self.child.wait().await?;
                // Its last words may still be on their way.
                let _ = self.error_reader.join().await;
                let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner).join("\n  ");
                bail!("the {} ended unexpectedly ({status})\n  {errors}", self.name)
            }
        }
    }

    /// Most memory that the process had resident so far, in MB; `None` where the system does not tell (not Linux).
    pub(crate) fn peak_memory_mb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes / 1_000)
    }

    /// Ends the process with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill the {}", self.name))
    }

    /// Waits until the process ends by itself; whether it did so well.
    pub(crate) async fn wait(mut self) -> anyhow::Result<bool> {
        while self.lines.next_line().await?.is_some() {}
        Ok(self.child.wait().await?.success())
    }
}

async fn keep_tail(stderr: impl AsyncRead + Unpin, errors: Arc<Mutex<Vec<String>>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == ERROR_LINES_MAX {
            errors.remove(0);
        }
        errors.push(line);
    }
}
