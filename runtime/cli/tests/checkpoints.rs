//! `sharestream checkpoint` and the stores that a job file names, with jobs as processes of their own.
//!
//! The tests over S3 need MinIO (`SHARESTREAM_S3_SERVER` names the program). Without it they say so and pass, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod process;
#[path = "../../../checkpoints/tests/s3_server/server.rs"]
mod server;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use process::{Broker, write_job};
use serde_json::Value;
use server::{BUCKET, PASSWORD, Server};

const JOB: &str = r#"
[job]
name = "long-words"
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
partitions = 2
"#;

/// A broker with a topic, and a job whose file says where its checkpoints are.
struct World {
    broker: Broker,
    folder: tempfile::TempDir,
    job: String,
}

impl World {
    fn new(checkpoint: &str) -> World {
        let broker = Broker::start();
        broker.text(&["topic", "create", "words", "--partitions", "2"], "");
        let folder = tempfile::tempdir().unwrap();
        let text = JOB.replace("127.0.0.1:1", &broker.address);
        let job = write_job(folder.path(), &format!("{text}[checkpoint]\n{checkpoint}\n"));
        World { broker, job, folder }
    }

    /// Runs the job over a record more; each run is one checkpoint.
    fn run_once(&self) {
        self.broker.text(&["produce", "words"], "streams,7\n");
        self.broker.text(&["run", &self.job, "--until-caught-up"], "");
    }

    /// The command, without brokers of its own.
    fn command(arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(arguments)
            .env_remove("SHARESTREAM_BROKERS")
            .output()
            .unwrap()
    }

    fn checkpoint(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let output = Self::command(&[&["checkpoint", command, &self.job], arguments].concat());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, command: &str, arguments: &[&str]) -> (i32, Vec<Value>) {
        let (code, stdout, stderr) = self.checkpoint(command, &[arguments, &["--json"]].concat());
        let lines = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line} {stderr}")));
        (code, lines.collect())
    }

    fn ids(&self) -> Vec<u64> {
        self.json("list", &[]).1.iter().map(|line| line["checkpoint"].as_u64().unwrap()).collect()
    }

    fn object(&self, id: u64, suffix: &str) -> PathBuf {
        let folder = self.folder.path().join("checkpoints/instances/main/manifests");
        let named = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            name.starts_with(&format!("{id:020}-")) && name.ends_with(suffix)
        };
        let mut found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.find(|path| named(path)).unwrap()
    }
}

#[test]
fn checkpoints_are_listed_shown_checked_and_deleted() {
    let world = World::new("directory = \"checkpoints\"");
    for _ in 0..3 {
        world.run_once();
    }
    assert_eq!(world.ids(), [1, 2, 3]);
    let (code, table, _) = world.checkpoint("list", &[]);
    assert_eq!(code, 0);
    assert!(table.contains("completed") && table.contains("owned by job epoch 3"), "{table}");
    let widths: Vec<usize> =
        table.lines().filter(|line| line.starts_with(['│', '╞'])).map(|line| line.chars().count()).collect();
    assert!(widths.len() > 4 && widths.iter().all(|width| *width == widths[0]), "it lines up:\n{table}");

    let (code, shown) = world.json("show", &["--id", "2"]);
    assert_eq!((code, &shown[0]["predecessor"], &shown[0]["state"]), (0, &1.into(), &"completed".into()));
    assert_eq!(shown[0]["content"]["sources"][0]["decided"][0][2], "accept");
    let (code, text, _) = world.checkpoint("show", &[]);
    assert!(code == 0 && text.contains("accepted") && text.contains("sha256"), "{text}");

    let (code, found) = world.json("verify", &[]);
    assert_eq!(
        (code, &found[0]["right"], &found[0]["last_committed"]),
        (0, &true.into(), &3.into()),
        "{found:?}"
    );

    let (code, _, told) = world.checkpoint("delete", &["--id", "1", "--id", "3"]);
    assert_eq!(code, 2);
    assert!(
        told.contains("checkpoint 3: it is the last completed one") && told.contains("--force"),
        "{told}"
    );
    assert_eq!(world.ids(), [1, 2, 3], "all or none");
    let (code, would) = world.json("delete", &["--id", "1", "--id", "3", "--dry-run"]);
    let goes: Vec<&Value> = would.iter().map(|line| &line["would_delete"]).collect();
    assert_eq!((code, goes), (0, vec![&Value::from(true), &Value::from(false)]));
    assert_eq!(world.ids(), [1, 2, 3], "a dry run changes nothing");
    assert_eq!(world.checkpoint("delete", &["--id", "1"]).0, 0);
    assert_eq!(world.ids(), [2, 3]);
    assert_eq!(world.json("verify", &[]).0, 0);
    world.run_once();

    let (code, _, told) = world.checkpoint("show", &["--id", "77"]);
    assert_eq!((code, told.contains("stored: 2, 3, 4")), (2, true), "{told}");
}

#[test]
fn what_is_wrong_with_a_store_is_found_and_what_a_start_would_say() {
    let world = World::new("store = \"checkpoints\"");
    for _ in 0..2 {
        world.run_once();
    }
    // As after a crash between the commit and its note: the outcome topic knows.
    fs::remove_file(world.object(2, ".completed")).unwrap();
    let (code, found) = world.json("verify", &[]);
    assert_eq!(code, 0, "{found:?}");
    assert!(found[0]["notes"][0].as_str().unwrap().contains("completion is not noted yet"), "{found:?}");
    let (code, _, told) = world.checkpoint("delete", &["--id", "2"]);
    assert_eq!((code, told.contains("it is pending")), (2, true), "{told}");
    let (_, text, _) = world.checkpoint("verify", &["--store-only"]);
    assert!(text.contains("may be committed or not"), "{text}");

    fs::write(world.object(2, ".pending"), "garbage").unwrap();
    let (code, found) = world.json("verify", &[]);
    assert_eq!(code, 1);
    let faults = found[0]["faults"].to_string();
    assert!(faults.contains("is damaged") && faults.contains("would not start"), "{faults}");
    assert_eq!(world.checkpoint("show", &["--id", "2"]).0, 1);

    assert_eq!(world.checkpoint("delete", &["--id", "2", "--force"]).0, 0);
    let (code, found) = world.json("verify", &[]);
    let faults = found[0]["faults"].to_string();
    assert!(code == 1 && faults.contains("checkpoint 2 is committed, but its manifest"), "{faults}");
    // And the start says just that: never an older checkpoint in its place.
    let run = World::command(&["run", &world.job, "--until-caught-up"]);
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && told.contains("checkpoint 2 is committed, but its manifest"), "{told}");
}

#[test]
fn a_store_is_looked_at_without_a_job_file_and_retention_is_a_setting() {
    let world = World::new("store = \"checkpoints\"\nretain = 1");
    for _ in 0..4 {
        world.run_once();
    }
    assert_eq!(world.ids(), [3, 4], "one of before, and the one of the last run");
    let store = world.folder.path().join("checkpoints");
    let url = format!("file://{}", store.display());
    for store in [store.to_str().unwrap(), &url] {
        let listed =
            World::command(&["checkpoint", "list", "--store", store, "--job", "long-words", "--json"]);
        assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), 2, "{store}");
    }
    let verify = [
        "checkpoint",
        "verify",
        "--store",
        &url,
        "--group",
        "long-words",
        "--brokers",
        &world.broker.address,
    ];
    let text = String::from_utf8(World::command(&verify).stdout).unwrap();
    assert!(text.contains("right: 2 checkpoints, last completed 4, last committed 4"), "{text}");
    for (arguments, expected) in [
        (&["checkpoint", "list"][..], "name a job file, or the store"),
        (&["checkpoint", "list", "--store", "s4://b"], "unknown scheme 's4'"),
        (&["checkpoint", "list", "--store", &url, "--job", "orders"], "belongs to job 'long-words'"),
        (&["checkpoint", "list", "--store", &url, "--instance", "other"], "--instance takes one of: main"),
        (&["checkpoint", "verify", "--store", &url, "--brokers", "127.0.0.1:1"], "needs --group"),
        (&["checkpoint", "list", "--store", "memory://"], "nothing to look at"),
    ] {
        let output = World::command(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn memory_holds_checkpoints_for_as_long_as_the_process() {
    let world = World::new("store = \"memory://\"");
    world.broker.text(&["produce", "words"], "streams,7\n");
    let text = world.broker.text(&["run", &world.job, "--until-caught-up"], "");
    assert!(text.contains("kept in memory") && text.contains("1 in, 1 out"), "{text}");
    let run = World::command(&["run", &world.job, "--until-caught-up"]);
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && told.contains("is not stored"), "what was promised: {told}");
}

/// A running job tells where it is five times a second: this is a minute.
const EVENTS_MAX: usize = 300;

/// A run that goes on, and its lines.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(job: &str) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(["run", job, "--json"])
            .env_remove("SHARESTREAM_BROKERS")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { child, lines }
    }

    /// The next event for which `is_wanted` holds; a job that makes none is given up after so many others.
    fn wait(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for line in self.lines.by_ref().take(EVENTS_MAX) {
            last = serde_json::from_str(&line.unwrap()).unwrap();
            if is_wanted(&last) {
                return last;
            }
        }
        let _ = self.child.kill();
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        panic!("it did not come to that; last: {last}; {told}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_jobs_over_one_bucket_the_older_is_fenced_and_nothing_is_doubled() {
    let Some(server) = Server::start().await else { return };
    let mut checkpoint = format!("store = \"s3://{BUCKET}/jobs/long-words\"\n[checkpoint.options]\n");
    for (name, value) in server::options(server.port(), PASSWORD) {
        checkpoint.push_str(&format!("{name} = \"{value}\"\n"));
    }
    let both = move || {
        let world = World::new(&checkpoint);
        let mut older = Running::start(&world.job);
        world.broker.text(&["produce", "words"], "streams,7\n");
        older.wait(|event| event["event"] == "progress" && event["commits"] == 1);
        let mut newer = Running::start(&world.job);
        newer.wait(|event| event["event"] == "started");
        let is_taken = || world.checkpoint("list", &[]).1.contains("owned by job epoch 2");
        assert!((0..100).any(|_| is_taken()), "the newer job takes the instance over");
        // Keyed, so that both partitions, and with them both members of the group, have something to commit.
        let words: String = (0..20).map(|n| format!("{n}:word{n},6\n")).collect();
        world.broker.text(&["produce", "words", "--key-separator", ":"], &words);
        let failed = older.wait(|event| event["event"] == "failed");
        assert_eq!(failed["kind"], "fenced", "{failed}");
        assert!(failed["error"].as_str().unwrap().contains("taken over"), "{failed}");
        assert_eq!(older.child.wait().unwrap().code(), Some(1));
        // What the older one held comes back to the newer one.
        newer
            .wait(|event| event["event"] == "progress" && event["rows_out"] == 20 && event["in_flight"] == 0);
        let read = world.broker.text(&["read", "long"], "");
        let mut words: Vec<&str> = read.lines().collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!((words.len(), read.lines().count()), (21, 21), "each word once: {read}");
        let (code, found) = world.json("verify", &[]);
        assert_eq!(code, 0, "{found:?}");
    };
    sharestream_base::run_blocking("two-jobs", both).await.unwrap();
}
