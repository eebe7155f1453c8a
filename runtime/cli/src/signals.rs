//! Ctrl-C, SIGTERM and the parent's end: the first asks for an orderly stop, the second stops at once.

use std::io::Read;

use anyhow::Context;
use sharestream_base::{CancellationToken, OwnedTask, Spawner, TaskKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears the signals of this process.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Starts to listen; from now on a signal no longer ends the process by itself.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// The next Ctrl-C or SIGTERM. Cancel safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
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
