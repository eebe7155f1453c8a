//! Worker processes: `sharestream run` with its events.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use sharestream_base::{Env, OwnedTask, TaskKind};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::nodes::signal;

/// Lines that are kept to explain a failure.
const LINES_MAX: usize = 60;

/// What a worker said.
#[derive(Default)]
struct Said {
    lines: VecDeque<String>,
    records_in: u64,
}

/// A running worker. Dropping it kills it.
pub(crate) struct Worker {
    child: Child,
    said: Arc<Mutex<Said>>,
    _readers: [OwnedTask<()>; 2],
}

impl Worker {
    /// Starts `sharestream` with these arguments; `--json` must be one of them.
    pub(crate) fn start(env: &Env, arguments: &[String]) -> Worker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Said::default()));
        let stdout = keep(child.stdout.take().unwrap(), said.clone());
        let stderr = keep(child.stderr.take().unwrap(), said.clone());
        let readers = [
            OwnedTask::spawn(&env.spawner, "worker-output", TaskKind::Service, stdout),
            OwnedTask::spawn(&env.spawner, "worker-errors", TaskKind::Service, stderr),
        ];
        Worker { child, said, _readers: readers }
    }

    /// Committed records, as the worker last told.
    pub(crate) fn records_in(&self) -> u64 {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).records_in
    }

    /// The last lines it wrote.
    pub(crate) fn last_words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// How it ended, if it did.
    pub(crate) fn exit(&mut self) -> Option<i32> {
        let status = self.child.try_wait().unwrap()?;
        Some(status.code().unwrap_or(-1))
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGSTOP.
    pub(crate) async fn pause(&self) {
        self.signal("STOP").await;
    }

    /// SIGCONT.
    pub(crate) async fn resume(&self) {
        self.signal("CONT").await;
    }

    /// SIGTERM, which asks for a last checkpoint; gives the exit code.
    pub(crate) async fn drain(&mut self) -> i32 {
        self.signal("TERM").await;
        // Its drain time-out bounds it.
        self.child.wait().await.unwrap().code().unwrap_or(-1)
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("the worker was not waited for yet").to_string();
        assert!(signal(name, &pid).await, "worker {pid} is gone:\n{}", self.last_words());
    }
}

async fn keep(output: impl AsyncRead + Unpin, said: Arc<Mutex<Said>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let event: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if event["event"] == "progress" {
            // One a fifth of a second: only the count of the last is worth keeping.
            said.records_in = event["records_in"].as_u64().unwrap_or(said.records_in);
            continue;
        }
        if said.lines.len() == LINES_MAX {
            said.lines.pop_front();
        }
        said.lines.push_back(line);
    }
}
