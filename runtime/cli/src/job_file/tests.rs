//! What a user reads when a job file is wrong, word for word, and what a right one becomes.

use std::time::Duration;

use sharestream_kafka::formats::{Column, ColumnType, Format};

use super::model::CheckpointSettings;
use super::*;

fn errors(text: &str) -> String {
    parse(Path::new("job.toml"), text).expect_err("the file has faults").to_string()
}

/// A file without faults, with `old` replaced by `new`.
fn edited(old: &str, new: &str) -> String {
    let good = r#"[job]
name = "late"
[source]
brokers = "localhost:9092"
topics = ["flights"]
group = "late"
format = "csv"
columns = [{ name = "carrier", type = "String" }, { name = "delay", type = "Int64?" }]
[sink]
topic = "delayed"
key = "carrier"
"#;
    assert!(good.contains(old), "the edit changes something");
    good.replacen(old, new, 1)
}

#[test]
fn the_example_is_a_job_without_faults() {
    let text = include_str!("../../../../examples/flights/job.toml");
    let job = parse(Path::new("examples/flights/job.toml"), text).unwrap();
    assert_eq!((job.job.as_str(), job.instance.as_str()), ("delayed-flights", "main"));
    assert_eq!(job.source.format.user_schema().fields().len(), 19);
    assert_eq!(job.source.group_config["share.partition.max.record.locks"], "4000");
    assert_eq!(job.checkpoint.directory.as_deref(), Some(Path::new("examples/flights/checkpoints")));
    let sql = job.transform.unwrap();
    assert!(sql.text.starts_with("SELECT"), "{}", sql.text);
    assert!(text[sql.start..].starts_with("SELECT carrier"));
}

#[test]
fn defaults_are_filled_in() {
    let job = parse(Path::new("job.toml"), &edited("late", "late")).unwrap();
    assert_eq!(job.instance, "main");
    assert_eq!((job.source.parallelism, job.sink.parallelism), (1, 1));
    assert_eq!(job.checkpoint, CheckpointSettings { directory: None, interval: Duration::from_millis(200) });
    assert_eq!((job.ack_mode, job.transform, job.dead_letter_topic), (AckModeSetting::Auto, None, None));
    let Format::Csv(csv) = job.source.format else { panic!("csv was written") };
    assert_eq!((csv.delimiter, csv.nulls.len()), (',', 0));
    assert_eq!(csv.columns[0], Column::new("carrier", ColumnType::String).not_null());
    assert_eq!(csv.columns[1], Column::new("delay", ColumnType::Int64));
}

#[test]
fn columns_of_a_table_keep_the_order_of_the_text() {
    let text = edited(
        "columns = [{ name = \"carrier\", type = \"String\" }, { name = \"delay\", type = \"Int64?\" }]",
        "columns = { zulu = \"Int32\", carrier = \"String?\", alpha = \"bool\" }",
    );
    let job = parse(Path::new("job.toml"), &text).unwrap();
    let names: Vec<String> =
        job.source.format.user_schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["zulu", "carrier", "alpha"]);
}

#[test]
fn every_fault_is_reported_at_once_in_the_order_of_the_text() {
    let text = r#"[job]
nmae = "late"
[source]
brokers = "localhost"
topcis = ["flights"]
group = 7
format = "cvs"
[sink]
topic = "delayed"
parallelism = "two"
[checkpiont]
directory = "here"
"#;
    let expected = r#"job.toml:1:2: key 'name' is missing in [job]
    1 | [job]
      |  ^^^
      = add it, for example: name = "delayed-flights"

job.toml:2:1: unknown key 'nmae' in [job]
    2 | nmae = "late"
      | ^^^^
      = did you mean 'name'?

job.toml:3:2: key 'topics' is missing in [source]
    3 | [source]
      |  ^^^^^^
      = add it, for example: topics = ["flights"]

job.toml:4:11: source.brokers: 'localhost' is not host:port
    4 | brokers = "localhost"
      |           ^^^^^^^^^^^
      = write for example "localhost:9092", or "embedded"

job.toml:5:1: unknown key 'topcis' in [source]
    5 | topcis = ["flights"]
      | ^^^^^^
      = did you mean 'topics'?

job.toml:6:9: source.group must be a string, not an integer
    6 | group = 7
      |         ^

job.toml:7:10: source.format cannot be "cvs"
    7 | format = "cvs"
      |          ^^^^^
      = did you mean "csv"? (one of csv, json, raw)

job.toml:10:15: sink.parallelism must be a whole number, not a string
   10 | parallelism = "two"
      |               ^^^^^

job.toml:11:2: unknown section 'checkpiont'
   11 | [checkpiont]
      |  ^^^^^^^^^^
      = did you mean 'checkpoint'?

9 errors in job.toml"#;
    let found = errors(text);
    assert_eq!(found, expected, "\n{found}");
}

#[test]
fn each_fault_names_its_place_and_its_remedy() {
    let cases: [(&str, &str, &str, &str); 24] = [
        (
            "[sink]\ntopic = \"delayed\"\nkey = \"carrier\"\n",
            "",
            "job.toml:9:1: section [sink] is missing",
            "[sink]",
        ),
        ("\"Int64?\"", "\"Itn64\"", "'Itn64' is not a column type", "did you mean \"int64\"?"),
        ("\"delay\"", "\"carrier\"", "column 'carrier' is named twice (columns 1 and 2)", "^"),
        ("\"delay\"", "\"_offset\"", "column '_offset' cannot start with '_'", "record's own columns"),
        (
            "\"Int64?\" }]",
            "\"Int64?\", nulable = true }]",
            "unknown key 'nulable'",
            "did you mean 'nullable'?",
        ),
        (
            "format = \"csv\"\ncolumns",
            "format = \"raw\"\ncolumns",
            "cannot be used with format = \"raw\"",
            "'value'",
        ),
        (
            "format = \"csv\"",
            "format = \"json\"\nnulls = [\"NA\"]",
            "source.nulls is for format = \"csv\" only",
            "remove it",
        ),
        (
            "format = \"csv\"",
            "format = \"csv\"\ndelimiter = \";;\"",
            "source.delimiter cannot be \";;\"",
            "one ASCII",
        ),
        (
            "key = \"carrier\"",
            "key = \"carier\"",
            "sink.key 'carier' is not a column",
            "did you mean \"carrier\"?",
        ),
        ("\"delayed\"", "\"flights\"", "sink.topic 'flights' is also a source", "another topic"),
        (
            "[sink]",
            "[dead_letter]\ntopic = \"flights\"\n[sink]",
            "dead_letter.topic 'flights' is also a source",
            "^",
        ),
        (
            "[sink]",
            "[dead_letter]\ntopic = \"delayed\"\n[sink]",
            "is also the sink's topic",
            "topic of their own",
        ),
        (
            "[sink]",
            "[ack]\nmode = \"at_least_once\"\n[sink]",
            "ack.mode cannot be",
            "did you mean \"at-least-once\"?",
        ),
        ("[sink]", "[checkpoint]\ninterval = 200\n[sink]", "must be a duration in quotes", "not an integer"),
        ("[sink]", "[checkpoint]\ninterval = \"fast\"\n[sink]", "is not a duration: 'fast'", "\"200ms\""),
        (
            "[sink]",
            "[checkpoint]\ninterval = \"2000s\"\n[sink]",
            "checkpoint.interval must be from 1ms to 10s",
            "^",
        ),
        (
            "[sink]",
            "[source.group_config]\nshare.record.lock.duration.ms = 6000\n[checkpoint]\ninterval = \"2001ms\"\n[sink]",
            "checkpoint.interval is too long for record locks of 6000 ms",
            "that is 2000 ms",
        ),
        (
            "[sink]\n",
            "[sink]\nparallelism = 4\npartitions = 2\n",
            "larger than sink.partitions",
            "use at most 2",
        ),
        ("[\"flights\"]", "[\"flights\", \"flights\"]", "topic 'flights' is listed twice", "^"),
        ("[\"flights\"]", "[\"fl ghts\"]", "'fl ghts' is not a topic name", "letters, digits"),
        ("\"localhost:9092\"", "\"embeded\"", "'embeded' is not host:port", "did you mean \"embedded\"?"),
        ("name = \"late\"", "name = ", "not TOML", "job.toml:2:"),
        ("name = \"late\"", "name = \" \"", "job.name must not be empty", "^"),
    ];
    for (old, new, message, remedy) in cases {
        let found = errors(&edited(old, new));
        assert!(found.contains(message) && found.contains(remedy), "{message} / {remedy} in\n{found}");
    }
}

#[test]
fn group_settings_are_checked_under_kafkas_names() {
    let cases = [
        ("share.isolation.level = \"read_comitted\"", "did you mean \"read_committed\"?"),
        ("share.delivery.count.limt = 5", "did you mean 'share.delivery.count.limit'?"),
        ("share.delivery.count.limit = 50", "use a whole number from 2 to 10"),
        ("\"share.partition.max.record.locks\" = \"many\"", "use a whole number from 100 to 10000"),
        ("share.auto.offset.reset = \"newest\"", "use earliest, latest or by_duration"),
        ("share.record.lock.duration.ms = 1.5", "must be a whole number, not a float"),
        (
            "share.session.timeout.ms = 9000\nshare.heartbeat.interval.ms = 9000",
            "share.heartbeat.interval.ms must be below share.session.timeout.ms",
        ),
    ];
    for (line, expected) in cases {
        let found = errors(&edited("[sink]", &format!("[source.group_config]\n{line}\n[sink]")));
        assert!(found.contains(expected), "{expected} in\n{found}");
    }
}

#[test]
fn a_fault_in_the_sql_is_placed_in_the_file() {
    let cases = [
        ("sql = \"SELECT carier FROM source\"", (1, 8), "job.toml:10:15: no such column"),
        ("sql = \"\"\"\nSELECT\n  carier FROM source\n\"\"\"", (2, 3), "job.toml:12:3: no such column"),
        ("sql = '''SELECT carier FROM source'''", (1, 8), "job.toml:10:17: no such column"),
    ];
    for (line, place, expected) in cases {
        let text = edited("[sink]", &format!("[transform]\n{line}\n[sink]"));
        let job = parse(Path::new("job.toml"), &text).unwrap();
        let found =
            job.sql_fault(Some(place), "no such column", Some("did you mean carrier?".into())).to_string();
        assert!(found.starts_with(expected) && found.contains("^^^^^^\n"), "{expected} in\n{found}");
    }
}
