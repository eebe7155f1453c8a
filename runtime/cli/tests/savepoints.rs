//! `sharestream savepoint` and `run --from`, with jobs as processes of their own.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod process;

use std::process::Output;

use process::{Broker, write_job};
use serde_json::Value;

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

struct World {
    broker: Broker,
    folder: tempfile::TempDir,
    job: String,
}

impl World {
    fn new(more: &str) -> World {
        let broker = Broker::start();
        broker.text(&["topic", "create", "words", "--partitions", "2"], "");
        let folder = tempfile::tempdir().unwrap();
        let text = JOB.replace("127.0.0.1:1", &broker.address);
        let job = write_job(folder.path(), &format!("{text}{more}\n"));
        World { broker, job, folder }
    }

    /// Runs the job over some records more.
    fn run_once(&self) {
        self.broker.text(&["produce", "words"], "streams,7\nflows,5\n");
        self.broker.text(&["run", &self.job, "--until-caught-up"], "");
    }

    /// A run from a savepoint: exit code, and what it says.
    fn run_from(&self, savepoint: &str, more: &[&str]) -> (i32, String) {
        let arguments = [&["run", &self.job, "--until-caught-up", "--from", savepoint], more].concat();
        let Output { status, stdout, stderr } = self.broker.run(&arguments, "");
        let text = [stdout, stderr].concat();
        (status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    fn output_count(&self) -> usize {
        self.broker.text(&["read", "long", "--json"], "").lines().count()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = World::alone(&[arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("{arguments:?}: {text}"))
    }

    fn alone(arguments: &[&str]) -> Output {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sharestream"));
        command.args(arguments).env_remove("SHARESTREAM_BROKERS").output().unwrap()
    }
}

#[test]
fn a_job_goes_back_to_a_savepoint_in_its_store_and_verify_knows_it() {
    let world = World::new("[checkpoint]\nstore = \"checkpoints\"\nretain = 1");
    world.run_once();
    let made = world.broker.text(&["savepoint", &world.job], "");
    assert!(made.contains("--from "), "{made}");
    let listed = world.json(&["savepoint", "list", &world.job]);
    let name = listed["savepoint"].as_str().unwrap().to_owned();
    assert_eq!((&listed["checkpoint"], &listed["job"]), (&1.into(), &"long-words".into()), "{listed}");
    assert_eq!(world.run_from(&name, &[]).0, 0, "it is the last commit");

    world.run_once();
    world.run_once();
    let before = world.output_count();
    assert_eq!(before, 6);
    let (code, text) = world.run_from(&name, &[]);
    assert!(
        code == 2 && text.contains("checkpoint 1 of job long-words") && text.contains("--rewind"),
        "{text}"
    );
    let (code, text) = world.run_from(&name, &["--rewind"]);
    assert!(code == 0 && text.contains("went back to"), "{text}");
    assert_eq!(world.output_count(), before + 4, "what came after the savepoint is there once more");
    let verified = world.broker.text(&["verify", &world.job], "");
    assert!(verified.contains(&name), "{verified}");
    let (code, text) = world.run_from(&name, &["--rewind"]);
    assert!(code == 2 && text.contains("--again"), "a process manager starts it again: {text}");
    world.run_once();
    let (code, text) = world.run_from(&name, &["--rewind", "--again"]);
    assert_eq!(code, 0, "{text}");
    world.broker.text(&["verify", &world.job], "");

    let shown = world.json(&["savepoint", "show", &name, "--of", &world.job]);
    assert_eq!(shown["content"]["sources"].as_array().unwrap().len(), 2, "{shown}");
    let table = World::alone(&["savepoint", "show", &name, "--of", &world.job]).stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("start offset") && table.contains("decided above it"), "{table}");
    assert_eq!(world.json(&["savepoint", "verify", &name, "--of", &world.job])["right"], true);
    let manifest = world.folder.path().join("checkpoints/savepoints").join(&name).join("manifest");
    std::fs::write(manifest, "x").unwrap();
    let output = World::alone(&["savepoint", "verify", &name, "--of", &world.job]);
    assert_eq!(output.status.code(), Some(1), "it is damaged");
    assert!(String::from_utf8(output.stdout).unwrap().contains("DAMAGED"));
    let (code, text) = world.run_from(&name, &["--rewind", "--again"]);
    assert!(code == 1 && text.contains("damaged"), "{code} {text}");
    let output = World::alone(&["savepoint", "delete", &name, "--of", &world.job]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(World::alone(&["savepoint", "list", &world.job, "--json"]).stdout)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_job_without_a_store_keeps_its_savepoint_elsewhere() {
    let world = World::new("");
    let refused = world.broker.run(&["savepoint", &world.job], "");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--to"));
    world.run_once();
    let place = world.folder.path().join("saved");
    let place = place.to_str().unwrap();
    let made = world.broker.text(&["savepoint", &world.job, "--to", place, "--json"], "");
    let made: Value = serde_json::from_str(made.trim()).unwrap();
    let savepoint = made["place"].as_str().unwrap().to_owned();
    assert_eq!(made["state_bytes"], 0);
    world.run_once();
    let (code, text) = world.run_from(&savepoint, &[]);
    assert!(code == 2 && text.contains("second time"), "{text}");
    let (code, text) = world.run_from(&savepoint, &["--rewind"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(world.output_count(), 6);
    world.broker.text(&["verify", &world.job], "");
    assert_eq!(world.json(&["savepoint", "list", "--in", place])["savepoint"], made["savepoint"]);
}
