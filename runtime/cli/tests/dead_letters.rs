//! Dead letters and their replay: the real command against the embedded broker as its own process, with processes that
//! die.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod process;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
share.isolation.level = "read_committed"
[transform]
sql = "SELECT word, 100 / length AS share FROM source"
[sink]
topic = "long"
key = "word"
partitions = 2
[dead_letter]
topic = "bad"
"#;

/// A broker, and a job whose records do not decode (two) or cannot be transformed (one).
struct World {
    broker: Broker,
    _folder: tempfile::TempDir,
    job: String,
}

impl World {
    fn with(job: &str) -> World {
        let broker = Broker::start();
        let folder = tempfile::tempdir().unwrap();
        let path = write_job(folder.path(), job);
        broker.text(&["topic", "create", "words", "--partitions", "2"], "");
        let words = "word,length\nalpha,5\nbroken,many\nbeta,4\nnothing,0\ntorn,\"\nomega,5\n";
        broker.text(&["produce", "words", "--key-column", "word"], words);
        World { broker, _folder: folder, job: path }
    }

    /// The same, and the job has run.
    fn start() -> World {
        let world = World::with(JOB);
        world.run_job();
        world
    }

    fn run_job(&self) {
        self.broker.text(&["run", &self.job, "--until-caught-up"], "");
    }

    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.broker.text(arguments, "");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn replay(&self, arguments: &[&str]) -> Value {
        let all = [&["dead-letter", "replay", &self.job, "--json"], arguments].concat();
        let output = self.broker.run(&all, "");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(report["refused"] != 0)), "{report}");
        report
    }

    /// Values of the committed records of a topic.
    fn values(&self, topic: &str) -> Vec<String> {
        let records = self.lines(&["read", topic, "--json"]);
        let mut values: Vec<String> =
            records.iter().map(|record| record["value"].as_str().unwrap().to_owned()).collect();
        values.sort();
        values
    }

    /// Ends a replay there, as a crash does.
    fn crashed_replay(&self, at: &str) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(["dead-letter", "replay", &self.job, "--all", "--crash-at", at])
            .args(["--brokers", &self.broker.address])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let _end = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.is_empty(), at != "before-commit", "{line}");
        let _ = child.kill();
        assert!(!child.wait().unwrap().success());
    }

    fn refused(&self, arguments: &[&str], expected: &[&str]) {
        let output = self.broker.run(arguments, "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{part} in\n{stderr}");
        }
    }

    fn verified(&self) -> Value {
        self.lines(&["verify", &self.job, "--json"]).remove(0)
    }
}

/// Records of the source topic when nothing was replayed, sorted.
const SOURCE: [&str; 6] = ["alpha,5", "beta,4", "broken,many", "nothing,0", "omega,5", "torn,\""];

#[test]
fn dead_letters_are_listed_filtered_and_shown() {
    let world = World::start();
    let mut listed = world.lines(&["dead-letter", "list", &world.job, "--json"]);
    let counts = listed.pop().unwrap();
    assert_eq!((listed.len(), &counts["dead_letters"], &counts["foreign"]), (3, &3.into(), &0.into()));
    let broken = listed.iter().find(|letter| letter["kind"] == "decode").unwrap();
    for (field, expected) in [("source_topic", "words"), ("job", "long-words/main")] {
        assert_eq!(broken[field], expected, "{broken}");
    }
    for (field, expected) in [("ordinal", 0), ("deliveries", 1), ("replays", 0)] {
        assert_eq!(broken[field], expected, "{broken}");
    }
    assert!(broken["checkpoint"].as_u64().unwrap() > 0 && broken["time"].as_str().unwrap().ends_with('Z'));
    let list = |filter: &[&str]| {
        let all = [&["dead-letter", "list", "--topic", "bad", "--json"], filter].concat();
        let lines = world.lines(&all);
        (lines.len() - 1, lines.last().unwrap()["dead_letters"].as_u64().unwrap())
    };
    assert_eq!(list(&["--error", "DIVIDE"]), (1, 1));
    assert_eq!(list(&["--kind", "transform"]), (1, 1));
    assert_eq!(list(&["--kind", "call"]), (0, 0));
    assert_eq!(list(&["--since", "1h"]), (3, 3));
    assert_eq!(list(&["--since", "2100-01-01T00:00:00"]), (0, 0));
    assert_eq!(list(&["--limit", "1"]), (1, 3), "all are counted");
    let table = world.broker.text(&["dead-letter", "list", &world.job], "");
    assert!(table.contains("3 dead letters") && table.contains("transform: "), "{table}");

    let position = format!("{}/{}", broken["partition"], broken["offset"]);
    let shown = world.broker.text(&["dead-letter", "show", &position, &world.job], "");
    for part in ["value: broken,many", "key: broken", "sharestream.error-kind: decode"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let raw = world.broker.text(&["dead-letter", "show", &position, &world.job, "--raw"], "");
    assert_eq!(raw, "broken,many");
    let json = &world.lines(&["dead-letter", "show", &position, &world.job, "--json"])[0];
    assert_eq!((&json["key"], &json["value_is_text"]), (&"broken".into(), &true.into()));
    world.refused(&["dead-letter", "show", "0/999", &world.job], &["bad has no committed record at 0/999"]);
    world.refused(&["dead-letter", "show", "99/0", &world.job], &["it has", "partitions"]);
}

#[test]
fn a_replay_puts_records_back_once_as_they_were_and_verify_agrees() {
    let world = World::start();
    let dry = world.replay(&["--all", "--dry-run"]);
    assert_eq!((&dry["replayed"], dry["plan"].as_array().unwrap().len()), (&3.into(), 3));
    assert_eq!(world.values("words"), SOURCE, "a dry run changes nothing");
    let one = world.replay(&["--kind", "transform"]);
    assert_eq!((&one["replayed"], &one["already_replayed"]), (&1.into(), &0.into()));
    let rest = world.replay(&["--all"]);
    assert_eq!((&rest["replayed"], &rest["already_replayed"]), (&2.into(), &1.into()));
    let again = world.replay(&["--all"]);
    assert_eq!((&again["replayed"], &again["already_replayed"]), (&0.into(), &3.into()));
    let twice: Vec<&str> = SOURCE
        .iter()
        .flat_map(|value| {
            let is_bad = !["alpha,5", "beta,4", "omega,5"].contains(value);
            std::iter::repeat_n(*value, if is_bad { 2 } else { 1 })
        })
        .collect();
    assert_eq!(world.values("words"), twice);

    let records = world.lines(&["read", "words", "--json", "--headers"]);
    let put_back: Vec<&Value> = records
        .iter()
        .filter(|record| record["headers"].as_array().is_some_and(|all| !all.is_empty()))
        .collect();
    assert_eq!(put_back.len(), 3);
    for record in put_back {
        assert_eq!(record["headers"], serde_json::json!([["sharestream.replays", "1"]]), "{record}");
        let original = records.iter().find(|other| other["value"] == record["value"]).unwrap();
        for part in ["key", "partition", "timestamp"] {
            assert_eq!(record[part], original[part], "{part}");
        }
    }
    // They die again, as records of their own.
    world.run_job();
    let report = world.verified();
    for (count, expected) in [("records_in", 9), ("records_out", 3), ("dead_lettered", 6)] {
        assert_eq!(report[count], expected, "{count} in {report}");
    }
    let listed = world.lines(&["dead-letter", "list", &world.job, "--json"]);
    let of = |replays: u64, replayed: bool| {
        listed.iter().filter(|letter| letter["replays"] == replays && letter["replayed"] == replayed).count()
    };
    assert_eq!((of(0, true), of(1, false)), (3, 3));
}

#[test]
fn a_record_that_dies_again_and_again_is_left_out_at_last() {
    let world = World::start();
    for round in 1..=3 {
        assert_eq!(world.replay(&["--error", "divide"])["replayed"], 1, "round {round}");
        world.run_job();
    }
    let refused = world.replay(&["--error", "divide"]);
    assert_eq!(
        (&refused["replayed"], &refused["refused"], &refused["already_replayed"]),
        (&0.into(), &1.into(), &3.into())
    );
    let why = refused["refusals"][0]["why"].as_str().unwrap();
    assert!(why.contains("3 times before") && why.contains("--max-replays"), "{why}");
    assert_eq!(world.replay(&["--error", "divide", "--max-replays", "4"])["replayed"], 1);
}

#[test]
fn a_replay_that_dies_before_its_commit_has_done_nothing() {
    let world = World::start();
    world.crashed_replay("before-commit");
    assert_eq!(world.values("words"), SOURCE);
    let report = world.replay(&["--all"]);
    assert_eq!((&report["replayed"], &report["already_replayed"]), (&3.into(), &0.into()));
    assert_eq!(world.values("words").len(), SOURCE.len() + 3);
    // Aborted records lie among the others; the job must not have seen them.
    world.run_job();
    let report = world.verified();
    assert_eq!((&report["records_in"], &report["dead_lettered"]), (&9.into(), &6.into()), "{report}");
}

#[test]
fn a_commit_whose_answer_was_lost_is_found_by_reading() {
    let world = World::start();
    let report = world.replay(&["--kind", "decode", "--crash-at", "answer-lost"]);
    assert_eq!((&report["replayed"], &report["commit_was_unknown"]), (&2.into(), &true.into()));
    // The next one dies without knowing; a further one finds its marks.
    world.crashed_replay("commit-sent");
    let report = world.replay(&["--all"]);
    assert_eq!((&report["replayed"], &report["already_replayed"]), (&0.into(), &3.into()));
    assert_eq!(world.values("words").len(), SOURCE.len() + 3);
}

#[test]
fn what_a_replay_cannot_do_right_is_refused_with_a_sentence() {
    let uncommitted = JOB.replace("share.isolation.level = \"read_committed\"\n", "");
    let world = World::with(&uncommitted);
    world.run_job();
    let replay = ["dead-letter", "replay", &world.job];
    world.refused(&replay, &["which dead letters?", "--all"]);
    world.refused(
        &[&replay[..], &["--all"]].concat(),
        &["reads uncommitted records", "share.isolation.level"],
    );
    world.refused(
        &[&replay[..], &["--at", "0/999", "--allow-uncommitted-readers"]].concat(),
        &["bad has no committed dead letter at 0/999"],
    );
    assert_eq!(world.values("words"), SOURCE, "a replay of positions is all or nothing");
    let into_itself = ["dead-letter", "replay", "--topic", "bad", "--all", "--to-topic", "bad"];
    world.refused(&into_itself, &["not into this one"]);
    world.broker.text(&["topic", "create", "elsewhere"], "");
    let to = world.replay(&["--all", "--allow-uncommitted-readers", "--to-topic", "elsewhere"]);
    assert_eq!((&to["replayed"], &to["uncommitted_readers"]), (&3.into(), &true.into()));
    assert_eq!(world.values("elsewhere"), ["broken,many", "nothing,0", "torn,\""]);
}

#[test]
fn each_kind_of_error_has_its_policy_and_is_counted() {
    let both = JOB.replace("[dead_letter]", "[errors]\ndecode = \"reject\"\n[dead_letter]");
    let world = World::with(&both);
    let report = world.broker.text(&["run", &world.job, "--until-caught-up", "--json"], "");
    let last: Value = serde_json::from_str(report.lines().last().unwrap()).unwrap();
    let counts =
        serde_json::json!({ "decode": 2, "transform": 1, "call": 0, "delivery_limit": 0, "too_large": 0 });
    assert_eq!(
        (&last["status"]["rejected"], &last["status"]["dead_letters"]),
        (&counts, &1.into()),
        "{last}"
    );
    assert_eq!(world.values("bad"), ["nothing,0"]);
    assert_eq!(world.verified()["dead_lettered"], 1, "records that nobody keeps are no violation");

    let failing = JOB.replace("[dead_letter]", "[errors]\ntransform = \"fail\"\n[dead_letter]");
    let world = World::with(&failing);
    let output = world.broker.run(&["run", &world.job, "--until-caught-up"], "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("record words/"), "{stderr}");
    assert!(
        stderr.to_lowercase().contains("divide by zero") && stderr.contains("kind transform"),
        "{stderr}"
    );

    // Given back, they fail each time, and end as records that run out of deliveries.
    let releasing = JOB.replace("[dead_letter]", "[errors]\ndecode = \"release\"\n[dead_letter]");
    let world = World::with(&releasing);
    world.run_job();
    assert_eq!(world.values("bad").len(), 3);
    assert_eq!(world.verified()["dead_lettered"], 3);

    for (section, expected) in [
        ("delivery_limit = \"release\"", "no delivery left to spare"),
        ("decode = \"retry\"", "use one of dead-letter, reject, release, fail"),
    ] {
        let job = JOB.replace("[dead_letter]", &format!("[errors]\n{section}\n[dead_letter]"));
        std::fs::write(&world.job, job).unwrap();
        world.refused(&["run", &world.job], &[expected]);
    }
    let without = JOB.replace("[dead_letter]\ntopic = \"bad\"", "[errors]\ncall = \"dead-letter\"");
    std::fs::write(&world.job, without).unwrap();
    world.refused(&["run", &world.job], &["there is no dead letter topic for it"]);
}

/// KIP-1191: with a dead letter topic of its own the broker writes what is rejected. What we dead-letter is accepted.
#[test]
fn a_dead_letter_of_ours_is_not_written_by_the_broker_as_well() {
    let with_broker = JOB.replace(
        "share.auto.offset.reset",
        "errors.deadletterqueue.topic.name = \"dlq.broker\"\n\
         errors.deadletterqueue.copy.record.enable = true\nshare.auto.offset.reset",
    );
    // Transformed records are rejected without a dead letter of ours: those the broker keeps.
    let job = with_broker.replace("[dead_letter]", "[errors]\ntransform = \"reject\"\n[dead_letter]");
    let world = World::with(&job);
    let enabled = "errors.deadletterqueue.group.enable=true";
    world.broker.text(&["topic", "create", "dlq.broker", "--partitions", "1", "--config", enabled], "");
    world.run_job();
    assert_eq!(world.values("bad"), ["broken,many", "torn,\""]);
    let report = world.verified();
    assert_eq!((&report["records_in"], &report["dead_lettered"]), (&6.into(), &2.into()), "{report}");
    // The broker writes in the background: what is wrong may come a little later.
    let reads = |count: usize| (0..count).map(|_| world.values("dlq.broker"));
    assert!(reads(200).any(|kept| !kept.is_empty()), "the broker keeps something");
    let kept = reads(20).next_back().unwrap();
    assert_eq!(kept, ["nothing,0"], "the broker keeps what we do not, and nothing else");
}
