//! The small commands and the messages of a first hour, against the embedded broker as its own process.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod process;

use std::process::Command;

use process::{Broker, write_job};

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
key = "word"
partitions = 2
[dead_letter]
topic = "bad"
[checkpoint]
directory = "checkpoints"
"#;

#[test]
fn produce_run_verify_and_read_agree() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);
    broker.text(&["topic", "create", "words", "--partitions", "2"], "");
    let words = "word,length\nalpha,5\nat,2\nbeta,4\nbroken,many\nomega,5\n";
    broker.text(&["produce", "words", "--key-column", "word"], words);
    broker.text(&["run", &job, "--until-caught-up"], "");
    let verified = broker.text(&["verify", &job, "--json"], "");
    let report: serde_json::Value = serde_json::from_str(&verified).unwrap();
    for (count, expected) in [("records_in", 5), ("records_out", 3), ("filtered", 1), ("dead_lettered", 1)] {
        assert_eq!(report[count], expected, "{count} in {verified}");
    }
    let read = broker.text(&["read", "long"], "");
    for word in ["alpha", "beta", "omega"] {
        assert!(read.contains(&format!("{{\"word\":\"{word}\"}}")), "{read}");
    }
    let bad = broker.text(&["read", "bad", "--headers"], "");
    assert!(
        bad.contains("broken,many") && bad.contains("sharestream.error: column length: not an int64"),
        "{bad}"
    );
    let topics = broker.text(&["topic", "list", "--json"], "");
    assert!(topics.contains("\"topic\":\"words\""), "{topics}");
}

#[test]
fn groups_and_transactions_are_shown_and_reset_and_never_touched_by_mistake() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);
    broker.text(&["topic", "create", "words", "--partitions", "2"], "");
    broker.text(&["produce", "words", "--key-column", "word"], "word,length\nalpha,5\nbeta,4\nomega,5\n");
    broker.text(&["run", &job, "--until-caught-up"], "");
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        broker.text(arguments, "").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let refused = |arguments: &[&str], expected: &[&str]| {
        let output = broker.run(arguments, "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{part} in\n{stderr}");
        }
    };
    assert_eq!(lines(&["group", "list", "--json"])[0]["group"], "long-words");
    let described = &lines(&["group", "describe", "long-words", "--json"])[0];
    assert_eq!((&described["state"], &described["members"]), (&"Empty".into(), &serde_json::json!([])));
    let starts = |described: &serde_json::Value| -> i64 {
        let offsets = described["offsets"].as_array().unwrap();
        offsets.iter().map(|offset| offset["start_offset"].as_i64().unwrap()).sum()
    };
    assert_eq!((starts(described), described["offsets"][0]["lag"].as_i64()), (3, Some(0)));
    let table = broker.text(&["group", "describe", "long-words"], "");
    assert!(table.contains("start offset") && table.contains("words"), "{table}");
    let widths: Vec<usize> = table.lines().skip(1).map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "the columns line up:\n{table}");

    let reset = ["group", "reset", "long-words", "--to", "earliest"];
    let dry = lines(&[&reset[..], &["--dry-run", "--json"]].concat());
    assert_eq!(dry.iter().map(|one| one["after"].as_i64().unwrap()).collect::<Vec<_>>(), [0, 0]);
    let unchanged = &lines(&["group", "describe", "long-words", "--json"])[0];
    assert_eq!(starts(unchanged), 3, "a dry run changes nothing");
    broker.text(&reset, "");
    assert_eq!(starts(&lines(&["group", "describe", "long-words", "--json"])[0]), 0);
    refused(&["group", "reset", "long-words", "--to", "999"], &["has no offset 999; its log reaches from"]);
    refused(&["group", "describe", "nobody"], &["no share group 'nobody'", "group list"]);
    refused(&["group", "reset", "long-words", "--to", "soon"], &["use earliest, latest"]);

    let own = lines(&["transactions", "list", &job, "--json"]);
    let ids: Vec<&str> = own.iter().map(|one| one["transactional_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["long-words.main.0", "long-words.main.1"]);
    assert!(own.iter().all(|one| one["open"] == false));
    assert!(lines(&["transactions", "list", "--any", "--open", "--json"]).is_empty());
    refused(&["transactions", "list"], &["JOB.toml"]);
    refused(&["transactions", "abort", "other.main.0", &job], &["is no transactional id of job long-words"]);
    refused(&["transactions", "abort", "other.main.0", "--any"], &["no coordinator knows"]);
    let ended = &lines(&["transactions", "abort", ids[0], &job, "--json"])[0];
    assert_eq!(ended["ended"], false, "there was nothing to end, and nobody was fenced");
}

#[test]
fn wrong_input_is_explained_and_exits_with_two() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str, expected: &[&str]| {
        let job = write_job(folder.path(), text);
        let output = broker.run(&["run", &job], "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{part} in\n{stderr}");
        }
    };
    refused(JOB, &["'words' does not exist", "topic create"]);
    refused(&JOB.replace("SELECT word", "SELECT wrod"), &["job.toml:13:15", "wrod", "did you mean word?"]);
    refused(
        &JOB.replace("key = \"word\"", "key = \"length\""),
        &["sink.key 'length' is not a column of this SELECT"],
    );
    refused(&JOB.replace("topics", "topcis"), &["job.toml:6:1", "did you mean 'topics'?"]);
    broker.text(&["topic", "create", "words"], "");
    let job = write_job(folder.path(), JOB);
    broker.text(&["run", &job, "--until-caught-up"], "");
    refused(&JOB.replace("long-words", "other-job"), &["belongs to job 'long-words'"]);
}

#[test]
fn a_broker_that_is_not_there_is_named() {
    let arguments = ["topic", "list", "--brokers", "127.0.0.1:1"];
    let output = Command::new(env!("CARGO_BIN_EXE_sharestream")).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("127.0.0.1:1") && stderr.contains("sharestream broker"), "{stderr}");
}

/// What `check --json` says: the report, and area/name of the findings of a weight.
fn checked(broker: &Broker, job: &str, more: &[&str], code: i32) -> serde_json::Value {
    let output = broker.run(&[&["check", job, "--json"], more].concat(), "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn of_weight(report: &serde_json::Value, weight: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|finding| finding["weight"] == weight);
    findings
        .map(|finding| format!("{}/{}", finding["area"].as_str().unwrap(), finding["name"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_good_job_is_checked_without_a_trace() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);
    broker.text(&["topic", "create", "words", "--partitions", "2"], "");
    broker.text(&["produce", "words", "--key-column", "word"], "word,length\nalpha,5\nbeta,4\n");
    // The dead letter topic would be created as well.
    let report = checked(&broker, &job, &[], 0);
    assert_eq!((&report["mode"], &report["refused"]), (&"transactional".into(), &0.into()), "{report}");
    assert_eq!((&report["job"], &report["instance"]), (&"long-words".into(), &"main".into()));
    assert_eq!(of_weight(&report, "warning"), Vec::<String>::new(), "{report:#}");
    assert_eq!(of_weight(&report, "not-checked"), ["clock/store", "clock/brokers"], "{report:#}");
    let ok = of_weight(&report, "ok");
    for looked_at in [
        "job/plan",
        "brokers/features",
        "mode/mode",
        "times/fit",
        "group/settings",
        "group/offset-reset",
        "members/members",
        "topics/exists",
        "rights/topic",
        "rights/group",
        "rights/transactional-id",
        "transactions/open",
        "store/store",
    ] {
        assert!(ok.iter().any(|name| name == looked_at), "{looked_at} in {ok:?}");
    }
    assert_eq!(ok.iter().filter(|name| *name == "topics/exists").count(), 4, "{report:#}");

    let table = broker.text(&["check", &job], "");
    for part in
        ["what to do", "output topic 'long' will be created: 2 partitions", "may run in transactional mode"]
    {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width <= 140), "{table}");

    let topics = broker.text(&["topic", "list", "--json"], "");
    assert_eq!(topics.lines().count(), 1, "nothing was created: {topics}");
    assert_eq!(broker.text(&["group", "list", "--json"], ""), "", "nobody joined");
    assert!(!folder.path().join("checkpoints").exists());

    // Then it does run, and what was checked is as it was said.
    broker.text(&["run", &job, "--until-caught-up"], "");
    let after = checked(&broker, &job, &[], 0);
    assert_eq!(of_weight(&after, "warning"), Vec::<String>::new(), "{after:#}");
    assert!(of_weight(&after, "ok").contains(&"outcomes/settings".to_owned()), "{after:#}");
    assert!(of_weight(&after, "hint").contains(&"store/last-owner".to_owned()), "{after:#}");
    let repeats = checked(&broker, &job, &["--mode", "at-least-once"], 0);
    assert_eq!(of_weight(&repeats, "warning"), ["mode/mode"], "{repeats:#}");
}

#[test]
fn everything_that_is_wrong_with_a_job_is_told_at_once() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let good = write_job(folder.path(), JOB);
    broker.text(&["topic", "create", "words", "--partitions", "2"], "");
    broker.text(&["run", &good, "--until-caught-up"], "");
    broker.text(&["topic", "create", "newest", "--config", "cleanup.policy=compact"], "");
    broker.text(&["topic", "create", "outcomes", "--config", "cleanup.policy=delete"], "");
    broker.text(&["topic", "create", "first", "--partitions", "1"], "");
    broker.text(&["produce", "first"], "alpha,5\nbeta,4\n");
    let text = JOB
        .replace("name = \"long-words\"\n", "name = \"other\"\n")
        .replace("group = \"long-words\"", "group = \"other\"")
        .replace("topics = [\"words\"]", "topics = [\"first\", \"second\"]")
        .replace("share.auto.offset.reset = \"earliest\"", "share.delivery.count.limit = 2")
        .replace("SELECT word", "SELECT wrod")
        .replace("topic = \"long\"", "topic = \"newest\"")
        .replace("[checkpoint]", "[ack]\nmode = \"ledger\"\noutcome_topic = \"outcomes\"\n[checkpoint]");
    let bad = write_job(folder.path(), &text);
    let report = checked(&broker, &bad, &[], 2);
    assert_eq!(
        of_weight(&report, "refused"),
        ["job/plan", "topics/exists", "outcomes/cleanup-policy", "store/owner"],
        "{report:#}"
    );
    assert_eq!(
        of_weight(&report, "warning"),
        ["group/offset-reset", "group/delivery-limit", "topics/compacted"],
        "{report:#}"
    );
    assert_eq!((&report["mode"], &report["refused"]), (&"ledger".into(), &4.into()));
    let output = broker.run(&["check", &bad], "");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{table}");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "did you mean word?",
        "'second'",
        "refused 4, warnings 3, not checked 2",
        "other/main cannot run like this",
    ] {
        assert!(words.contains(part), "{part} in\n{table}");
    }
    let first = table.lines().nth(3).unwrap();
    assert!(first.contains("refused"), "the worst comes first:\n{table}");
}

#[test]
fn a_job_that_runs_already_is_seen() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);
    broker.text(&["topic", "create", "words", "--partitions", "2"], "");
    let same_job = "members/same-job".to_owned();
    let mut running = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(["run", &job, "--json", "--brokers", &broker.address])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Each look takes a while, in which the job comes up.
    let mut looks = (0..1_000).map(|_| checked(&broker, &job, &[], 0));
    let seen = looks.find(|report| of_weight(report, "warning").contains(&same_job));
    let is_alive = running.try_wait().unwrap().is_none();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(is_alive, "the job was not disturbed");
    let text = seen.expect("it is seen").to_string();
    assert!(text.contains("long-words/main runs already") && text.contains("job.instance"), "{text}");
}

#[test]
fn a_check_without_brokers_ends_as_a_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(arguments)
            .env_remove("SHARESTREAM_BROKERS")
            .output()
            .unwrap()
    };
    let output = run(&["check", &job, "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("127.0.0.1:1") && stderr.contains("sharestream broker"), "{stderr}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["error"].as_str().unwrap().contains("127.0.0.1:1"), "{said}");
    let embedded = run(&["check", &job, "--set", "source.brokers=embedded"]);
    let stderr = String::from_utf8_lossy(&embedded.stderr);
    assert_eq!(embedded.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--brokers"), "{stderr}");
}
