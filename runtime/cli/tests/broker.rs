//! `sharestream broker` with nodes, a data folder and a control port, each as its own process.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A broker that dies with the test.
struct Broker {
    child: Child,
    nodes: Vec<String>,
    control: String,
}

fn sharestream(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sharestream")).args(arguments).output().unwrap()
}

impl Broker {
    fn start(folder: &Path) -> Broker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(["broker", "--nodes", "3", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--json"])
            .arg("--data")
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let nodes = event["nodes"].as_array().unwrap().iter().map(text).collect();
        Broker { child, nodes, control: text(&event["control"]) }
    }

    fn control(&self, arguments: &[&str]) -> (bool, String) {
        let mut all = vec!["broker", "control", "--control", &self.control];
        all.extend(arguments);
        let output = sharestream(&all);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nodes_are_moved_from_another_process_and_a_killed_broker_keeps_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    assert_eq!(broker.nodes.len(), 3);
    let brokers = broker.nodes.join(",");
    let created = sharestream(&["topic", "create", "orders", "--partitions", "3", "--brokers", &brokers]);
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let lines = folder.path().join("lines.txt");
    std::fs::write(&lines, "one\ntwo\nthree\n").unwrap();
    let produced = sharestream(&["produce", "orders", lines.to_str().unwrap(), "--brokers", &brokers]);
    assert!(produced.status.success(), "{}", String::from_utf8_lossy(&produced.stderr));
    assert_eq!(broker.control(&["pause-node", "2"]), (true, "done\n".to_owned()));
    let (_, status) = broker.control(&["status"]);
    assert!(status.contains("is paused") && status.lines().count() == 3, "{status}");
    assert!(broker.control(&["resume-node", "2"]).0);
    let (ok, reply) = broker.control(&["move-leader", "orders", "0", "3", "--json"]);
    assert!(ok && reply.starts_with(r#"{"ok":true,"leader_epoch":"#), "{reply}");
    let (_, metrics) = broker.control(&["metrics"]);
    assert!(metrics.contains("staged") && metrics.lines().count() == 7, "{metrics}");
    let (ok, metrics) = broker.control(&["metrics", "--json"]);
    assert!(ok && metrics.contains(r#""TxnPendingRecordsCount":0"#), "{metrics}");
    assert!(broker.control(&["stop-node", "1"]).0);
    let (ok, refused) = broker.control(&["stop-node", "1"]);
    assert!(!ok && refused.contains("node 1 is down already"), "{refused}");
    broker.kill();

    let broker = Broker::start(folder.path());
    let second =
        sharestream(&["broker", "--listen", "127.0.0.1:0", "--data", folder.path().to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by another broker"));
    let read = sharestream(&["read", "orders", "--brokers", &broker.nodes.join(",")]);
    let read = String::from_utf8(read.stdout).unwrap();
    assert!(["one", "two", "three"].iter().all(|word| read.contains(word)), "{read}");
}

#[test]
fn a_control_command_without_a_broker_says_so() {
    let output = sharestream(&["broker", "control", "--control", "127.0.0.1:1", "status"]);
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no broker listens for commands at 127.0.0.1:1")
    );
}
