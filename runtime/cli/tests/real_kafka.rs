//! The flights job against a real Apache Kafka: our client, a foreign broker.
//!
//! No released Kafka has KIP-1289, so the mode is `at-least-once`; without a crash nothing may be doubled either.
//! Needs `SHARESTREAM_KAFKA_BOOTSTRAP` (Apache Kafka 4.2 or later). Without it the test says so and passes, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.

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

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sharestream(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream")).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "sharestream {}:\n{}\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn the_flights_job_runs_on_apache_kafka() {
    let Some(bootstrap) = bootstrap() else { return };
    // Names of its own, so that a cluster can be used twice.
    #[allow(clippy::disallowed_methods, reason = "a real run: nothing is replayed")]
    let run = std::process::id();
    let (input, output, rejected) =
        (format!("flights-{run}"), format!("delayed-flights-{run}"), format!("flights-rejected-{run}"));
    let example = std::fs::read_to_string(repository().join("examples/flights/job.toml")).unwrap();
    let job = example
        .replace("topics = [\"flights\"]", &format!("topics = [\"{input}\"]"))
        .replace("topic = \"delayed-flights\"", &format!("topic = \"{output}\""))
        .replace("topic = \"flights-rejected\"", &format!("topic = \"{rejected}\""))
        .replace("group = \"delayed-flights\"", &format!("group = \"delayed-flights-{run}\""))
        .replace("name = \"delayed-flights\"", &format!("name = \"delayed-flights-{run}\""));
    let folder = tempfile::tempdir().unwrap();
    let job_file = folder.path().join("job.toml");
    std::fs::write(&job_file, job).unwrap();
    let job_file = job_file.to_str().unwrap();
    let flights = repository().join("examples/data/flights.csv.gz");

    for topic in [&input, &output, &rejected] {
        sharestream(&["topic", "create", topic, "--partitions", "8", "--brokers", &bootstrap]);
    }
    let data = flights.to_str().unwrap();
    sharestream(&["produce", &input, data, "--header", "--key-column", "carrier", "--brokers", &bootstrap]);
    let mode = ["--mode", "at-least-once", "--brokers", &bootstrap];
    let ran = sharestream(&[&["run", job_file, "--until-caught-up", "--json"], mode.as_slice()].concat());
    println!("{}", String::from_utf8_lossy(&ran.stdout).lines().last().unwrap_or_default());
    let verified = sharestream(&[&["verify", job_file, "--json"], mode.as_slice()].concat());
    println!("{}", String::from_utf8_lossy(&verified.stdout));
}
