//! Real processes, killed at every named step and at random moments, and still right: jobs without state, with state, and
//! in several processes at once.
//!
//! `SHARESTREAM_CRASH_ROUNDS` sets the rounds of each kind of job (12 by default: each step once, and one random moment;
//! 1000 for the long run) and `SHARESTREAM_SEED` the seed. A failure prints both.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Command;

use serde_json::Value;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `sharestream-bench crashes`; whether all was right, the rows, and what to say about a failure.
fn crashes(arguments: &[&str]) -> (bool, Vec<Value>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream-bench"))
        .args(["crashes", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let explained =
        format!("again with: sharestream-bench crashes {}\n{stdout}\n{stderr}", arguments.join(" "));
    let rows = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (output.status.success(), rows, explained)
}

#[test]
fn crashes_at_every_step_lose_double_and_tear_nothing_with_state_and_without() {
    let rounds = setting("SHARESTREAM_CRASH_ROUNDS", 12);
    let (rounds_text, seed) = (rounds.to_string(), setting("SHARESTREAM_SEED", 1).to_string());
    let arguments =
        ["--rounds", rounds_text.as_str(), "--seed", seed.as_str(), "--kinds", "stateless,stateful"];
    let (is_right, rows, explained) = crashes(&arguments);
    assert!(is_right, "{explained}");
    assert_eq!(rows.len(), 2, "{explained}");
    for row in &rows {
        for count in ["lost", "doubled", "torn", "open_transactions"] {
            assert_eq!(row[count], 0, "{count}\n{explained}");
        }
        let by_step = row["by_step"].as_object().unwrap();
        let sum: u64 = by_step.values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, rounds, "{explained}");
        let named = by_step.keys().filter(|step| !["random", "recovery"].contains(&step.as_str()));
        if rounds >= 12 {
            assert_eq!(named.count(), 11, "every step\n{explained}");
        }
    }
    println!("{explained}");
}

#[test]
fn replicas_that_start_stop_stand_still_and_are_killed_lose_and_double_nothing() {
    let rounds = (setting("SHARESTREAM_CRASH_ROUNDS", 12) / 2).to_string();
    let seed = setting("SHARESTREAM_SEED", 1).to_string();
    let arguments = ["--rounds", rounds.as_str(), "--seed", seed.as_str(), "--kinds", "replicas"];
    let (is_right, rows, explained) = crashes(&arguments);
    assert!(is_right, "{explained}");
    for act in ["kill", "drain", "pause"] {
        assert!(rows[0]["by_step"][act].as_u64().unwrap() > 0, "{act}\n{explained}");
    }
    println!("{explained}");
}

/// The check can fail: at this step everything is committed and nothing acknowledged.
#[test]
fn at_least_once_is_found_to_double() {
    let arguments = [
        "--mode",
        "at-least-once",
        "--steps",
        "during_end_txn",
        "--rounds",
        "2",
        "--kinds",
        "stateless,stateful",
    ];
    let (is_right, rows, explained) = crashes(&arguments);
    assert!(!is_right && rows.len() == 2, "{explained}");
    for row in rows {
        assert!(row["doubled"].as_u64().unwrap() > 0, "{explained}");
        assert_eq!(row["lost"], 0, "{explained}");
    }
}
