//! One job in three processes of the command, against the embedded broker as a fourth: each of the three is killed with
//! SIGKILL at every named step of a commit, started again, and nothing is lost, doubled or torn.
//!
//! `SHARESTREAM_PROCESS_ROUNDS` sets the number of rounds (one kill each) of the long run, which is ignored by default:
//! 33 are every step times every process. `SHARESTREAM_PROCESS_MODE=ledger` has it run in that mode. It prints its counts
//! at the end.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod process;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use process::{Broker, write_job};
use serde_json::Value;

const STEPS: [&str; 11] = [
    "before_manifest",
    "after_manifest",
    "after_outcome",
    "before_staging",
    "between_staged_leaders",
    "after_staging",
    "before_end_txn",
    "during_end_txn",
    "after_end_txn",
    "before_completed",
    "after_completed",
];
const ROLES: [&str; 3] = ["coordinator", "sources", "sinks"];

const JOB: &str = r#"
[job]
name = "words"
[source]
brokers = "BROKERS"
topics = ["words"]
group = "words"
format = "csv"
parallelism = 2
columns = [{ name = "word", type = "string" }, { name = "length", type = "int64" }]
[source.group_config]
share.auto.offset.reset = "earliest"
share.delivery.count.limit = 10
share.record.lock.duration.ms = 15000
[transform]
sql = "SELECT word, length * 2 AS twice FROM source WHERE length <> 7"
[sink]
topic = "twice"
parallelism = 2
partitions = 4
[dead_letter]
topic = "bad"
[checkpoint]
directory = "checkpoints"
interval = "30ms"
[ack]
mode = "MODE"
"#;

/// Records come in pieces, at most so many until the step is reached, so that there are several commits.
const PIECES: usize = 40;
const PIECE_RECORDS: usize = 40;
/// Longest wait for an event of a process.
const EVENT_MAX: Duration = Duration::from_secs(60);

/// A process of the job. It dies with the test.
struct Part {
    child: Child,
    events: Receiver<Value>,
}

impl Part {
    fn start(arguments: &[String]) -> Part {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(arguments)
            .env_remove("SHARESTREAM_BROKERS")
            .env_remove("SHARESTREAM_COMMAND_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        #[allow(
            clippy::disallowed_methods,
            reason = "a test without a reactor reads the lines of a process"
        )]
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Part { child, events }
    }

    /// The first event that `is_wanted`; `None` when it does not come in time, or the process ends first.
    fn wait_for(&self, limit: Duration, is_wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let deadline = now() + limit;
        loop {
            let left = deadline.saturating_duration_since(now());
            match self.events.recv_timeout(left) {
                Ok(event) if is_wanted(&event) => return Some(event),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// SIGKILL, and waits until it is gone.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "a test of processes runs in real time")]
fn now() -> Instant {
    Instant::now()
}

fn is(name: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["event"] == name
}

/// The broker, and how to start each of the three.
struct World {
    broker: Broker,
    _folder: tempfile::TempDir,
    job: String,
    /// Where the coordinator is, one after another.
    address: String,
    record_count: usize,
    may_double: bool,
}

impl World {
    fn new(mode: &str) -> World {
        let broker = Broker::start();
        broker.text(&["topic", "create", "words", "--partitions", "4"], "");
        let folder = tempfile::tempdir().unwrap();
        let job = write_job(folder.path(), &JOB.replace("BROKERS", &broker.address).replace("MODE", mode));
        // Taken and given back: nobody else takes it in between, as long as ports are handed out in turn.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        World {
            broker,
            _folder: folder,
            job,
            address: free.to_string(),
            record_count: 0,
            may_double: mode == "at-least-once",
        }
    }

    fn start(&self, role: &str, extra: &[&str]) -> Part {
        let place = if role == "coordinator" { "--listen" } else { "--coordinator" };
        let arguments = ["run", &self.job, "--json", "--role", role, place, &self.address];
        Part::start(&arguments.iter().chain(extra).map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    /// A piece more. Some words are longer than the job wants, and some lines are no words.
    fn produce(&mut self) {
        let lines = (self.record_count..self.record_count + PIECE_RECORDS).map(|number| match number % 29 {
            0 => format!("word-{number},many\n"),
            rest => format!("word-{number},{rest}\n"),
        });
        // By key, so that every piece is in every partition, and an epoch has more than one leader to stage with.
        let lines = ["word,length\n".to_owned()].into_iter().chain(lines).collect::<String>();
        self.broker.text(&["produce", "words", "--key-column", "word"], &lines);
        self.record_count += PIECE_RECORDS;
    }

    /// One kill: of `role`, when the coordinator is at `step` of its second commit. Workers stay from round to round.
    fn round(&mut self, role: &str, step: &str, sources: &mut Part, sinks: &mut Part) {
        let at = format!("{step}:2");
        let what = if role == "coordinator" { "--crash-at" } else { "--pause-at" };
        let mut coordinator = self.start("coordinator", &[what, &at]);
        let started = coordinator.wait_for(EVENT_MAX, is("started"));
        assert!(started.is_some(), "the coordinator did not start in the round of {role} at {step}");
        let mut reached = None;
        for _ in 0..PIECES {
            self.produce();
            reached = coordinator.wait_for(Duration::from_millis(60), is("step"));
            if reached.is_some() {
                break;
            }
        }
        let reached = reached.or_else(|| coordinator.wait_for(EVENT_MAX, is("step")));
        assert!(reached.is_some(), "{step} was not reached in the round of {role}");
        match role {
            "coordinator" => {
                coordinator.kill();
                return;
            }
            "sources" => {
                sources.kill();
                *sources = self.start("sources", &[]);
            }
            _ => {
                sinks.kill();
                *sinks = self.start("sinks", &[]);
            }
        }
        // The attempt that was hit is over, and another commits something with the new process.
        self.produce();
        let committed = reached.and_then(|step| step["checkpoint"].as_u64()).unwrap();
        let goes_on = coordinator.wait_for(EVENT_MAX, |event| {
            event["event"] == "progress"
                && event["attempts"].as_u64() > Some(1)
                && event["checkpoint"].as_u64() > Some(committed)
        });
        assert!(goes_on.is_some(), "the job did not go on without {role} at {step}");
        coordinator.kill();
    }

    /// Runs to the end, and has everything checked from outside. Gives the report.
    fn finish(&mut self, mut sources: Part, mut sinks: Part) -> Value {
        self.produce();
        let mut coordinator = self.start("coordinator", &["--until-caught-up"]);
        let ended = coordinator.wait_for(EVENT_MAX, is("ended"));
        assert!(ended.is_some(), "the job did not catch up");
        assert!(coordinator.child.wait().unwrap().success());
        for (role, part) in [("sources", &mut sources), ("sinks", &mut sinks)] {
            let told = part.wait_for(EVENT_MAX, |event| event["text"] == "the job has ended");
            assert!(told.is_some(), "{role} did not hear of the end");
            assert!(part.child.wait().unwrap().success(), "{role}");
        }
        let verified = self.broker.run(&["verify", &self.job, "--json"], "");
        let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
        for count in ["lost", "doubled", "torn", "open_transactions", "remaining"] {
            let may = count == "doubled" && self.may_double;
            assert!(may || report[count] == 0, "{count} in {report}");
        }
        assert!(verified.status.success() || self.may_double, "{report}");
        assert_eq!(report["records_in"].as_u64(), Some(self.record_count as u64), "{report}");
        report
    }
}

/// Kills by `plan`, each of one process at one step.
fn run(mode: &str, plan: impl Iterator<Item = (&'static str, &'static str)>) -> (usize, Value) {
    let mut world = World::new(mode);
    let (mut sources, mut sinks) = (world.start("sources", &[]), world.start("sinks", &[]));
    let mut rounds = 0;
    for (role, step) in plan {
        world.round(role, step, &mut sources, &mut sinks);
        rounds += 1;
    }
    (rounds, world.finish(sources, sinks))
}

#[test]
fn each_of_three_processes_is_killed_and_nothing_is_lost_or_doubled() {
    let plan = [
        ("sources", "after_outcome"),
        ("sinks", "between_staged_leaders"),
        ("coordinator", "during_end_txn"),
    ];
    run("transactional", plan.into_iter());
}

#[test]
fn at_least_once_loses_nothing_when_a_process_is_killed_beside_its_commit() {
    run("at-least-once", [("sinks", "before_end_txn"), ("coordinator", "after_end_txn")].into_iter());
}

#[test]
#[ignore = "long: SHARESTREAM_PROCESS_ROUNDS kills, 33 by default (every step of every process), in SHARESTREAM_PROCESS_MODE"]
fn every_process_killed_at_every_step_loses_doubles_and_tears_nothing() {
    let wanted = std::env::var("SHARESTREAM_PROCESS_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mode = std::env::var("SHARESTREAM_PROCESS_MODE").unwrap_or_else(|_| "transactional".to_owned());
    // A ledger stages nothing.
    let steps = STEPS.into_iter().filter(|step| mode == "transactional" || *step != "between_staged_leaders");
    let all: Vec<_> = steps.flat_map(|step| ROLES.map(|role| (role, step))).collect();
    let plan = all.iter().copied().cycle().take(wanted.unwrap_or(all.len()));
    let (rounds, report) = run(&mode, plan);
    println!(
        "mode {mode}, rounds {rounds}, records {}, lost {}, doubled {}, torn {}",
        report["records_in"], report["lost"], report["doubled"], report["torn"]
    );
}

#[test]
fn a_worker_of_another_job_file_is_refused_with_what_to_do() {
    let mut world = World::new("auto");
    world.produce();
    let coordinator = world.start("coordinator", &[]);
    assert!(coordinator.wait_for(EVENT_MAX, is("started")).is_some());
    let arguments = ["run", &world.job, "--role", "sinks", "--coordinator", &world.address];
    let other = [&arguments[..], &["--set", "checkpoint.interval=31ms"]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(other)
        .env_remove("SHARESTREAM_BROKERS")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the job file, its settings or the program differ"), "{stderr}");
}
