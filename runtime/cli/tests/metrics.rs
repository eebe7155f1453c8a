//! What a running job says over HTTP, read with a parser of others and held against the report of the same run.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::disallowed_methods, reason = "a test without a reactor waits for other processes")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use prometheus_parse::{Scrape, Value};
use serde_json::Value as Json;

/// Longest wait for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

const JOB: &str = r#"
[job]
name = "long-words"
instance = "a"
[source]
brokers = "127.0.0.1:1"
topics = ["words"]
group = "long-words"
format = "csv"
columns = [{ name = "word", type = "string" }, { name = "length", type = "int64" }]
[source.group_config]
share.auto.offset.reset = "earliest"
[transform]
sql = "SELECT word FROM source WHERE length > 3"
[sink]
topic = "long"
key = "word"
partitions = 2
[dead_letter]
topic = "bad"
[checkpoint]
directory = "checkpoints"
interval = "50ms"
[metrics]
listen = "127.0.0.1:0"
offsets_interval = "100ms"
"#;

/// A process that dies with the test, and the lines that it prints.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(arguments: &[&str], logs: Option<&Path>) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sharestream"));
        command.args(arguments).stdout(Stdio::piped());
        if let Some(logs) = logs {
            command.stderr(std::fs::File::create(logs).unwrap());
            command.env("SHARESTREAM_LOG", "sharestream_core=debug");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    fn event(&mut self) -> Json {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Asks for a last checkpoint and gives the last event.
    fn drain(mut self) -> Json {
        let signalled = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(signalled.success());
        let mut last = self.event();
        for line in self.lines.by_ref() {
            last = serde_json::from_str(&line.unwrap()).unwrap();
        }
        assert!(self.child.wait().unwrap().success(), "{last}");
        last
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of `path`.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut io = TcpStream::connect(address).unwrap();
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(io, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if path == "/metrics" {
        assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    }
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// One scrape.
struct Metrics(Scrape);

impl Metrics {
    fn scrape(address: &str) -> Metrics {
        let (status, text) = get(address, "/metrics");
        assert_eq!(status, 200, "{text}");
        Metrics(Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap())
    }

    /// Sum over all samples of `name` that have these labels; a histogram counts its values.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let name = format!("sharestream_{name}");
        let samples = self.0.samples.iter().filter(|sample| {
            sample.metric == name
                && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(*value))
        });
        samples
            .map(|sample| match &sample.value {
                Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => *value,
                Value::Histogram(buckets) => buckets.last().unwrap().count,
                Value::Summary(_) => panic!("{name} is a summary"),
            })
            .sum()
    }

    fn all(&self, name: &str) -> f64 {
        self.sum(name, &[])
    }

    fn has(&self, name: &str, label: &str, value: &str) -> bool {
        self.sum(name, &[(label, value)]) == 1.0
    }
}

/// Scrapes until `is_so`.
fn wait_for(address: &str, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
    let begun_at = Instant::now();
    loop {
        let metrics = Metrics::scrape(address);
        if is_so(&metrics) {
            return metrics;
        }
        assert!(begun_at.elapsed() < PATIENCE, "{what} was not seen: {:#?}", metrics.0.samples);
        std::thread::sleep(PAUSE);
    }
}

fn sharestream(arguments: &[&str], input: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{arguments:?}");
}

fn job_file(folder: &Path) -> String {
    let path = folder.join("job.toml");
    std::fs::write(&path, JOB).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_a_running_job_says_over_http_is_what_its_report_says() {
    let mut broker = Process::start(&["broker", "--port", "0", "--json"], None);
    let brokers = broker.event()["bootstrap"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let (job, logs) = (job_file(folder.path()), folder.path().join("log.json"));
    sharestream(&["topic", "create", "words", "--partitions", "2", "--brokers", &brokers], "");
    let produce = |input: &str| sharestream(&["produce", "words", "--brokers", &brokers], input);
    produce(&"alpha,5\nat,2\nbeta,4\nbroken,many\nomega,5\n".repeat(200));

    let run = ["--log-format", "json", "run", &job, "--json", "--brokers", &brokers];
    let mut run = Process::start(&run, Some(&logs));
    let event = run.event();
    assert_eq!(event["event"], "metrics", "the address comes first: {event}");
    let address = event["address"].as_str().unwrap().to_owned();
    assert_eq!(get(&address, "/healthz"), (200, "ok\n".to_owned()));
    wait_for(&address, "the job running", |metrics| metrics.has("job_state", "state", "running"));
    assert_eq!(get(&address, "/readyz"), (200, "running\n".to_owned()));
    let first = wait_for(&address, "the first records", |metrics| metrics.all("records_in_total") == 1_000.0);
    produce(&"delta,5\n".repeat(100));
    let last = wait_for(&address, "everything decided", |metrics| {
        metrics.all("records_in_total") == 1_100.0
            && metrics.sum("partition_end_offset", &[("topic", "words")]) == 1_100.0
            && metrics.sum("partition_start_offset", &[("topic", "words")]) == 1_100.0
            && metrics.all("partition_lag_records") == 0.0
            && metrics.all("partition_in_flight_records") == 0.0
    });
    let report = run.drain();
    assert_eq!(report["event"], "ended", "{report}");
    holds_what_the_report_says(&last, &report["status"]);

    assert!(last.all("checkpoints_total") > first.all("checkpoints_total"));
    assert_eq!(last.sum("records_in_total", &[("job", "long-words"), ("instance", "a")]), 1_100.0);
    let decided = last.all("checkpoint_decided_offsets_total");
    assert_eq!(decided, 1_100.0, "every offset holds a record");
    for quiet in ["records_redelivered_total", "job_failures_total", "job_fenced_total", "state_size_bytes"] {
        assert_eq!(last.all(quiet), 0.0, "{quiet}");
    }
    assert_eq!(last.all("partition_oldest_undecided_age_seconds"), 0.0);
    assert_eq!(last.all("partition_removed_by_retention_records_total"), 0.0);
    assert!(last.sum("offset_polls_total", &[("result", "ok")]) > 1.0);
    logs_are_json_and_have_every_step(&logs);
}

fn holds_what_the_report_says(metrics: &Metrics, status: &Json) {
    for (metric, key) in [
        ("records_in_total", "records_in"),
        ("records_out_total", "rows_out"),
        ("records_filtered_total", "filtered"),
        ("records_dead_lettered_total", "dead_letters"),
        ("checkpoints_total", "commits"),
        ("checkpoint_last_id", "checkpoint"),
        ("job_attempts_total", "attempts"),
        ("open_checkpoint_records", "in_flight"),
        ("state_size_bytes", "state_bytes"),
        ("state_written_bytes_total", "state_written_bytes"),
        ("checkpoint_duration_seconds", "commits"),
        ("checkpoint_records", "commits"),
        ("checkpoint_payload_bytes", "commits"),
        ("checkpoint_records_sum", "records_in"),
    ] {
        assert_eq!(Some(metrics.all(metric)), status[key].as_f64(), "{metric} and {key} in {status}");
    }
    assert!(metrics.has("guarantee_info", "mode", status["mode"].as_str().unwrap()), "{status}");
    let commits = status["commits"].as_f64().unwrap();
    for step in ["align", "flush", "manifest", "outcome", "stage", "end_txn", "complete"] {
        let count = metrics.sum("checkpoint_step_duration_seconds", &[("step", step)]);
        assert_eq!(count, commits, "{step}");
    }
    let visible = metrics.sum("checkpoint_step_duration_seconds", &[("step", "visible")]);
    assert!((1.0..=commits).contains(&visible), "a sample: {visible} of {commits}");
    let steps: f64 = metrics.all("checkpoint_step_duration_seconds_sum")
        - metrics.sum("checkpoint_step_duration_seconds_sum", &[("step", "visible")])
        - metrics.sum("checkpoint_step_duration_seconds_sum", &[("step", "complete")]);
    let whole = metrics.all("checkpoint_duration_seconds_sum");
    assert!(steps > 0.0 && steps <= whole, "the steps up to the commit are parts of it: {steps} of {whole}");
    assert!(metrics.all("checkpoint_manifest_bytes_total") > 100.0 * commits);
}

fn logs_are_json_and_have_every_step(logs: &Path) {
    let text = std::fs::read_to_string(logs).unwrap();
    let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let in_span = lines.iter().filter(|line| line["span"]["name"] == "checkpoint");
    let steps: BTreeSet<&str> = in_span.clone().filter_map(|line| line["step"].as_str()).collect();
    let all = ["align", "complete", "end_txn", "flush", "manifest", "outcome", "stage", "visible"];
    assert_eq!(steps, BTreeSet::from(all));
    for line in in_span.filter(|line| line["step"].is_string()) {
        assert!(line["duration_ms"].as_f64().is_some() && line["span"]["reason"].is_string(), "{line}");
        assert_eq!(line["span"]["job"], "long-words/a");
    }
}

#[test]
fn a_job_that_cannot_commit_shows_what_it_holds_and_the_next_run_what_came_again() {
    let mut broker = Process::start(&["broker", "--port", "0", "--json"], None);
    let brokers = broker.event()["bootstrap"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(folder.path());
    sharestream(&["topic", "create", "words", "--partitions", "2", "--brokers", &brokers], "");
    sharestream(&["produce", "words", "--brokers", &brokers], &"omega,5\n".repeat(40));
    let produced_at = Instant::now();

    let stuck = ["run", &job, "--json", "--brokers", &brokers, "--crash-at", "before_manifest:1"];
    let mut stuck = Process::start(&stuck, None);
    let address = stuck.event()["address"].as_str().unwrap().to_owned();
    let held = wait_for(&address, "all records held", |metrics| {
        metrics.all("partition_in_flight_records") == 40.0 && metrics.all("partition_lag_records") == 40.0
    });
    assert_eq!((held.all("records_in_total"), held.all("partition_start_offset")), (0.0, 0.0));
    // Of at most 2,000 locks in a partition, the broker's default; the sum is the same however the lines are dealt out.
    let fill = held.all("partition_window_use_ratio");
    assert!((fill - 40.0 / 2_000.0).abs() < 1e-9, "{fill}");
    let age = held.all("partition_oldest_undecided_age_seconds");
    let bound = 2.0 * (produced_at.elapsed() + PATIENCE).as_secs_f64();
    assert!(age > 0.0 && age < bound, "{age} s");
    drop(stuck);

    let mut run = Process::start(&["run", &job, "--json", "--brokers", &brokers], None);
    let address = run.event()["address"].as_str().unwrap().to_owned();
    let after = wait_for(&address, "all records", |metrics| metrics.all("records_in_total") == 40.0);
    assert_eq!(after.all("records_redelivered_total"), 40.0, "the process that held them was killed");
    assert_eq!(run.drain()["status"]["records_in"], 40);
}

#[test]
fn a_job_that_waits_for_its_brokers_is_alive_and_not_ready() {
    // Somebody listens, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(folder.path());
    let run = ["run", &job, "--json", "--brokers", &brokers, "--metrics-listen", "127.0.0.1:0"];
    let mut run = Process::start(&run, None);
    let address = run.event()["address"].as_str().unwrap().to_owned();
    assert_eq!(get(&address, "/healthz").0, 200);
    assert_eq!(get(&address, "/readyz"), (503, "created\n".to_owned()));
    let metrics = Metrics::scrape(&address);
    assert!(metrics.has("job_state", "state", "created") && metrics.all("records_in_total") == 0.0);
    assert_eq!(get(&address, "/elsewhere").0, 404);
}

#[test]
fn an_address_that_is_taken_is_refused_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(folder.path());
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(["run", &job, "--metrics-listen", &address])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&address) && stderr.contains("choose another address"), "{stderr}");
}
