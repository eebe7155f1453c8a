//! The demo as a test: real processes, killed with SIGKILL at every named step, and still right.
//!
//! `SHARESTREAM_CRASH_ROUNDS` sets the number of rounds (12 by default, so that each step comes once; 200 for the long
//! run) and `SHARESTREAM_SEED` the first seed. A failure prints both.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::Value;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn demo(arguments: &[&str]) -> (Output, Value) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_sharestream")).arg("demo").arg("--json").args(arguments).output();
    let output = output.unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, report)
}

fn explained(arguments: &[&str], output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("again with: sharestream demo {}\n{stdout}\n{stderr}", arguments.join(" "))
}

#[test]
fn crashes_at_every_step_lose_double_and_tear_nothing() {
    let rounds = setting("SHARESTREAM_CRASH_ROUNDS", 12);
    let seed = setting("SHARESTREAM_SEED", 1).to_string();
    // Half of the flights are shared by the rounds: enough for each to make several commits.
    let records = (rounds * 4_000).clamp(20_000, 336_776).to_string();
    let rounds_text = rounds.to_string();
    let arguments =
        ["--crashes", rounds_text.as_str(), "--seed", seed.as_str(), "--records", records.as_str()];
    let (output, report) = demo(&arguments);
    let explained = explained(&arguments, &output);
    assert!(output.status.success(), "{explained}");
    for count in ["lost", "doubled", "torn", "open_transactions", "remaining", "wrong", "decided_twice"] {
        assert_eq!(report[count], 0, "{count}\n{explained}");
    }
    assert_eq!(report["crashes"], rounds, "{explained}");
    assert_eq!(report["records_in"].to_string(), records, "{explained}");
    let steps = report["crashes_by_step"].as_object().unwrap();
    if rounds >= 12 {
        assert_eq!(steps.len(), 12, "every step and a random moment\n{explained}");
    }
}

#[test]
fn at_least_once_counts_its_duplicates_and_loses_nothing() {
    // At this step everything is committed and nothing acknowledged.
    let arguments =
        ["--mode", "at-least-once", "--crash-at", "during_end_txn", "--crashes", "2", "--seed", "1"];
    let arguments: Vec<&str> = arguments.into_iter().chain(["--records", "10000"]).collect();
    let (output, report) = demo(&arguments);
    let explained = explained(&arguments, &output);
    assert_eq!(output.status.code(), Some(1), "doubles are not right, and it says so\n{explained}");
    assert!(report["doubled"].as_u64().unwrap() > 0, "{explained}");
    for count in ["lost", "torn", "open_transactions", "remaining", "wrong"] {
        assert_eq!(report[count], 0, "{count}\n{explained}");
    }
}

/// A worker that looked elsewhere would find nothing, or somebody's topics.
#[test]
fn the_embedded_broker_is_found_whatever_brokers_the_environment_names() {
    let folder = tempfile::tempdir().unwrap();
    let properties = folder.path().join("client.properties");
    std::fs::write(&properties, "security.protocol=SSL\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(["demo", "--json", "--crashes", "0", "--records", "1000"])
        .env("SHARESTREAM_BROKERS", "127.0.0.1:1")
        .env("SHARESTREAM_COMMAND_CONFIG", &properties)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", explained(&[], &output));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test without a reactor waits for another process")]
fn a_cluster_is_spoken_to_as_the_command_config_says() {
    let folder = tempfile::tempdir().unwrap();
    let properties = folder.path().join("client.properties");
    std::fs::write(&properties, "security.protocol=SSL\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(["demo", "--json", "--brokers", &address, "--command-config"])
        .arg(&properties)
        .spawn()
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut connection = loop {
        if let Ok((connection, _)) = listener.accept() {
            break connection;
        }
        assert!(demo.try_wait().unwrap().is_none(), "it ended before it connected");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    connection.set_nonblocking(false).unwrap();
    let mut first = [0];
    connection.read_exact(&mut first).unwrap();
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert_eq!(first, [22], "the kind of a TLS handshake (RFC 8446, section 5.1)");
}
