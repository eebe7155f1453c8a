//! The flights job and its demo against a real Apache Kafka: our client, a foreign broker.
//!
//! Needs `SHARESTREAM_KAFKA_BOOTSTRAP` (Apache Kafka 4.2 or later). Without it the tests say so and pass, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does. `SHARESTREAM_KAFKA_MODE` sets the mode (default `ledger`: no
//! released Kafka has KIP-1289).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bootstrap() -> Option<String> {
    if let Ok(bootstrap) = std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP") {
        return Some(bootstrap);
    }
    let needs = "skipped: needs a real Apache Kafka (SHARESTREAM_KAFKA_BOOTSTRAP=host:port)";
    assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
    println!("{needs}");
    None
}

fn mode() -> String {
    std::env::var("SHARESTREAM_KAFKA_MODE").unwrap_or_else(|_| "ledger".to_owned())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sharestream")).args(arguments).output().unwrap()
}

fn sharestream(arguments: &[&str]) -> Output {
    let output = run(arguments);
    assert!(output.status.success(), "{}", explained(arguments, &output));
    output
}

fn explained(arguments: &[&str], output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("sharestream {}:\n{stdout}\n{stderr}", arguments.join(" "))
}

#[test]
fn the_example_runs_unchanged_on_apache_kafka() {
    let Some(bootstrap) = bootstrap() else { return };
    // Names of its own, so that a cluster can be used twice.
    #[allow(clippy::disallowed_methods, reason = "a real run: nothing is replayed")]
    let run = std::process::id();
    let (input, output, rejected) =
        (format!("flights-{run}"), format!("delayed-flights-{run}"), format!("flights-rejected-{run}"));
    let job_file = repository().join("examples/flights/job.toml");
    let job_file = job_file.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let flights = repository().join("examples/data/flights.csv.gz");
    for topic in [&input, &output, &rejected] {
        sharestream(&["topic", "create", topic, "--partitions", "8", "--brokers", &bootstrap]);
    }
    let data = flights.to_str().unwrap();
    sharestream(&["produce", &input, data, "--header", "--key-column", "carrier", "--brokers", &bootstrap]);
    let settings = [
        format!("source.brokers={bootstrap}"),
        format!("job.name=delayed-flights-{run}"),
        format!("source.topics={input}"),
        format!("source.group=delayed-flights-{run}"),
        format!("sink.topic={output}"),
        format!("dead_letter.topic={rejected}"),
        format!("ack.outcome_topic=outcomes-{run}"),
        format!("ack.mode={}", mode()),
        format!("checkpoint.directory={}", folder.path().display()),
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting.as_str()]).collect();
    let ran = sharestream(&[&["run", job_file, "--until-caught-up", "--json"], settings.as_slice()].concat());
    println!("{}", String::from_utf8_lossy(&ran.stdout).lines().last().unwrap_or_default());
    // Without a crash nothing may be doubled in any mode.
    let verified = sharestream(&[&["verify", job_file, "--json"], settings.as_slice()].concat());
    let report: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    for (count, expected) in [("records_in", 336_776), ("records_out", 70_288), ("dead_lettered", 9_430)] {
        assert_eq!(report[count], expected, "{count} in {report}");
    }
}

#[test]
fn the_demo_crashes_on_apache_kafka_and_leaves_no_topic_behind() {
    let Some(bootstrap) = bootstrap() else { return };
    let mode = mode();
    let arguments =
        ["demo", "--brokers", &bootstrap, "--mode", &mode, "--crashes", "3", "--seed", "5", "--json"];
    let arguments = [arguments.as_slice(), &["--records", "20000"]].concat();
    let output = run(&arguments);
    let explained = explained(&arguments, &output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&explained);
    assert_eq!((&report["crashes"], &report["records_in"]), (&3.into(), &20_000.into()), "{explained}");
    let mut forbidden = vec!["lost", "torn", "open_transactions", "remaining", "wrong"];
    if mode != "at-least-once" {
        forbidden.extend(["doubled", "decided_twice"]);
    }
    for count in forbidden {
        assert_eq!(report[count], 0, "{count}\n{explained}");
    }
    let topics = sharestream(&["topic", "list", "--json", "--brokers", &bootstrap]);
    let topics = String::from_utf8_lossy(&topics.stdout).into_owned();
    assert!(!topics.contains("\"demo-"), "{topics}");
}
