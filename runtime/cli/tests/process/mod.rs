//! The embedded broker as a process of its own, and the command against it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A broker that dies with the test.
pub(crate) struct Broker {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Broker {
    /// On a free port.
    pub(crate) fn start() -> Broker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(["broker", "--port", "0", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = event["bootstrap"].as_str().unwrap().to_owned();
        Broker { child, address }
    }

    /// Runs the command against it.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(arguments)
            .args(["--brokers", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What the command prints; it must succeed.
    pub(crate) fn text(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job file with this text; gives its path.
pub(crate) fn write_job(folder: &Path, text: &str) -> String {
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
