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
