//! The flights job and its demo against a real Apache Kafka: our client, a foreign broker.
//!
//! Needs `SHARESTREAM_KAFKA_BOOTSTRAP` (Apache Kafka 4.2 or later). Without it the tests say so and pass, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does. One starts a node with SASL of its own by
//! `SHARESTREAM_KAFKA_LAUNCHER`. `SHARESTREAM_KAFKA_MODE` sets the mode (default `ledger`: no
//! released Kafka has KIP-1289).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Looks, half a second apart, until what was deleted is gone from a list.
const DELETION_TRIES: u32 = 20;

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
fn a_job_is_checked_on_apache_kafka_without_a_trace() {
    let Some(bootstrap) = bootstrap() else { return };
    #[allow(clippy::disallowed_methods, reason = "a real run: nothing is replayed")]
    let run_id = std::process::id();
    let name = format!("checked-{run_id}");
    let (input, rejected) = (format!("{name}-in"), format!("{name}-rejected"));
    for topic in [&input, &rejected] {
        sharestream(&["topic", "create", topic, "--partitions", "2", "--brokers", &bootstrap]);
    }
    let job_file = repository().join("examples/flights/job.toml");
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        format!("source.brokers={bootstrap}"),
        format!("job.name={name}"),
        format!("source.topics={input}"),
        format!("source.group={name}"),
        format!("sink.topic={name}-out"),
        format!("dead_letter.topic={rejected}"),
        format!("ack.outcome_topic={name}-outcomes"),
        format!("ack.mode={}", mode()),
        format!("checkpoint.directory={}", folder.path().join("checkpoints").display()),
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting.as_str()]).collect();
    let arguments = [&["check", job_file.to_str().unwrap()], settings.as_slice()].concat();
    println!("{}", String::from_utf8_lossy(&sharestream(&arguments).stdout));
    let arguments = [&arguments[..], &["--json"]].concat();
    let checked = sharestream(&arguments);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&report["refused"], &report["mode"]), (&0.into(), &mode().into()), "{report:#}");
    let not_checked = report["findings"].as_array().unwrap().iter();
    let not_checked: Vec<&str> = not_checked
        .filter(|finding| finding["weight"] == "not-checked")
        .map(|finding| finding["area"].as_str().unwrap())
        .collect();
    assert_eq!(not_checked, ["clock", "clock"], "Kafka tells everything else: {report:#}");
    for what in ["topic", "group"] {
        let listed = sharestream(&[what, "list", "--json", "--brokers", &bootstrap]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let own = listed.lines().filter(|line| line.contains(&name)).count();
        assert_eq!(own, if what == "topic" { 2 } else { 0 }, "{listed}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is kept");
    // Without the source topic it is refused, and the rest is told all the same.
    let refused = run(&[&arguments[..], &["--set", "source.topics=nowhere"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", explained(&arguments, &refused));
    let report: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(report["refused"], 1, "{report:#}");
}

#[test]
fn the_demo_crashes_on_apache_kafka_and_leaves_no_topic_or_group_behind() {
    let Some(bootstrap) = bootstrap() else { return };
    the_demo_crashes_and_leaves_nothing_behind(&bootstrap, 3, &[]);
}

/// Workers, and the keeper of the ledger in them, must authenticate as the demo does.
#[test]
fn the_demo_crashes_on_apache_kafka_with_tls_and_sasl() {
    let Some(kafka) = SecureKafka::start() else { return };
    for (mechanism, crashes) in [("PLAIN", 0), ("SCRAM-SHA-512", 1)] {
        let file = kafka.properties(mechanism);
        kafka.is_ready(&file);
        the_demo_crashes_and_leaves_nothing_behind(&kafka.address(), crashes, &["--command-config", &file]);
    }
    // A wrong password is told before anything is made.
    std::fs::write(kafka.folder.path().join("password"), "wrong").unwrap();
    let file = kafka.properties("PLAIN");
    let output = run(&["demo", "--brokers", &kafka.address(), "--command-config", &file]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("refused user 'alice' by PLAIN"), "{said}");
}

#[allow(clippy::disallowed_methods, reason = "a real run: nothing is replayed")]
fn the_demo_crashes_and_leaves_nothing_behind(bootstrap: &str, crashes: u64, security: &[&str]) {
    let mode = mode();
    let count = crashes.to_string();
    let arguments =
        ["demo", "--brokers", bootstrap, "--mode", &mode, "--crashes", &count, "--seed", "5", "--json"];
    let arguments = [arguments.as_slice(), &["--records", "20000"], security].concat();
    let output = run(&arguments);
    let explained = explained(&arguments, &output);
    assert!(output.status.success(), "{explained}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&explained);
    assert_eq!((&report["crashes"], &report["records_in"]), (&crashes.into(), &20_000.into()), "{explained}");
    let mut forbidden = vec!["lost", "torn", "open_transactions", "remaining", "wrong"];
    if mode != "at-least-once" {
        forbidden.extend(["doubled", "decided_twice"]);
    }
    for count in forbidden {
        assert_eq!(report[count], 0, "{count}\n{explained}");
    }
    for what in ["topic", "group"] {
        let list = || {
            let listed = sharestream(&[&[what, "list", "--json", "--brokers", bootstrap], security].concat());
            String::from_utf8_lossy(&listed.stdout).into_owned()
        };
        // A node hears of what the controller has deleted a little later than whoever asked for it.
        let mut listed = list();
        for _ in 0..DELETION_TRIES {
            if !listed.contains("\"demo-") {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
            listed = list();
        }
        assert!(!listed.contains("\"demo-"), "{listed}\n{explained}");
    }
}

/// A node whose listener for users wants TLS and SASL; stopped with the value.
struct SecureKafka {
    launcher: String,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for SecureKafka {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

impl SecureKafka {
    fn start() -> Option<Self> {
        let Ok(launcher) = std::env::var("SHARESTREAM_KAFKA_LAUNCHER") else {
            let needs =
                "skipped: needs SHARESTREAM_KAFKA_LAUNCHER, the program that starts a real Apache Kafka";
            assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
            println!("{needs}");
            return None;
        };
        let kafka = SecureKafka { launcher, folder: tempfile::tempdir().unwrap(), port: free_ports() };
        assert!(kafka.run(&["up", "--auth", "--port", &kafka.port.to_string()]), "Kafka did not start");
        std::fs::write(kafka.folder.path().join("password"), "alice-secret").unwrap();
        Some(kafka)
    }

    fn run(&self, verb: &[&str]) -> bool {
        // Its output would hold up the test: the broker inherits it.
        let mut command = Command::new(&self.launcher);
        command.args(verb).arg("--dir").arg(self.folder.path()).stdout(Stdio::null());
        command.status().unwrap().success()
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port + 3)
    }

    /// A file of Kafka's properties; what it names lies beside it.
    fn properties(&self, mechanism: &str) -> String {
        let file = self.folder.path().join(format!("{mechanism}.properties"));
        let text = format!(
            "security.protocol=SASL_SSL\nssl.ca.file=tls/ca.pem\nsasl.mechanism={mechanism}\n\
             sasl.username=alice\nsasl.password.file=password\n"
        );
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// Waits until the listener lets us in: the launcher waits for another one.
    fn is_ready(&self, file: &str) {
        let arguments = ["topic", "list", "--brokers", &self.address(), "--command-config", file];
        let is_in = || run(&arguments).status.success();
        assert!((0..10).any(|_| is_in()), "{}", explained(&arguments, &run(&arguments)));
    }
}

/// Four ports in a row that nobody listens on.
fn free_ports() -> u16 {
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (31_140..31_190).step_by(10).find(|port| (*port..port + 4).all(is_free)).expect("free ports")
}
