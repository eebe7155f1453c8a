//! What a user reads when a job file is wrong, word for word, and what a right one becomes.

use std::time::Duration;

use sharestream_kafka::formats::{Column, ColumnType, Format, OutputFormat};

use super::model::{CheckpointSettings, MetricsSettings};
use super::*;

fn errors(text: &str) -> String {
    parse(Path::new("job.toml"), text, &[]).expect_err("the file has faults").to_string()
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
    let job = parse(Path::new("examples/flights/job.toml"), text, &[]).unwrap();
    assert_eq!((job.job.as_str(), job.instance.as_str()), ("delayed-flights", "main"));
    assert_eq!(job.source.format.user_schema().fields().len(), 19);
    assert_eq!(job.source.group_config["share.partition.max.record.locks"], "4000");
    let folder = job.checkpoint.store.as_ref().and_then(|store| store.as_folder());
    assert_eq!(folder, Some(Path::new("examples/flights/checkpoints")));
    let sql = job.transform.unwrap();
    assert!(sql.text.starts_with("SELECT"), "{}", sql.text);
    assert!(text[sql.start..].starts_with("SELECT carrier"));
}

#[test]
fn defaults_are_filled_in() {
    let job = parse(Path::new("job.toml"), &edited("late", "late"), &[]).unwrap();
    assert_eq!(job.instance, "main");
    assert_eq!((job.source.parallelism, job.sink.parallelism), (1, 1));
    assert_eq!(
        job.checkpoint,
        CheckpointSettings { store: None, interval: None, records: None, retain: 3, retain_owners: 16 }
    );
    assert_eq!(job.latency_goal, Duration::from_millis(200));
    assert_eq!((job.ack_mode, job.transform, job.dead_letter_topic), (AckModeSetting::Auto, None, None));
    let Format::Csv(csv) = job.source.format else { panic!("csv was written") };
    assert_eq!((csv.delimiter, csv.nulls.len()), (',', 0));
    assert_eq!(csv.columns[0], Column::new("carrier", ColumnType::String).not_null());
    assert_eq!(csv.columns[1], Column::new("delay", ColumnType::Int64));
    let metrics = MetricsSettings { listen: None, offsets_interval: Duration::from_secs(5) };
    assert_eq!(job.metrics, metrics);
}

#[test]
fn metrics_are_served_where_the_file_or_a_setting_says() {
    let text = edited("[sink]", "[metrics]\nlisten = \"127.0.0.1:0\"\noffsets_interval = \"1m\"\n[sink]");
    let job = parse(Path::new("job.toml"), &text, &[]).unwrap();
    let listen = Some("127.0.0.1:0".parse().unwrap());
    assert_eq!(job.metrics, MetricsSettings { listen, offsets_interval: Duration::from_secs(60) });
    let set = ["metrics.listen=\"[::1]:9100\"".to_owned()];
    let job = parse(Path::new("job.toml"), &text, &set).unwrap();
    assert_eq!(job.metrics.listen, Some("[::1]:9100".parse().unwrap()));
}

#[test]
fn columns_of_a_table_keep_the_order_of_the_text() {
    let text = edited(
        "columns = [{ name = \"carrier\", type = \"String\" }, { name = \"delay\", type = \"Int64?\" }]",
        "columns = { zulu = \"Int32\", carrier = \"String?\", alpha = \"bool\" }",
    );
    let job = parse(Path::new("job.toml"), &text, &[]).unwrap();
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
      = did you mean "csv"? (one of avro, csv, json, raw)

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
    let cases: [(&str, &str, &str, &str); 30] = [
        (
            "[sink]\ntopic = \"delayed\"\nkey = \"carrier\"\n",
            "",
            "job.toml:9:1: section [sink] is missing",
            "[sink]",
        ),
        (
            "[sink]",
            "[metrics]\nlisten = \"9100\"\n[sink]",
            "metrics.listen: '9100' is not host:port",
            "127.0.0.1:9100",
        ),
        (
            "[sink]",
            "[metrics]\noffsets_interval = \"1ms\"\n[sink]",
            "metrics.offsets_interval must be from 100ms to 3600s",
            "^",
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
            "[ack]\noutcome_topic = \"my outcomes\"\n[sink]",
            "'my outcomes' is not a topic name",
            "letters, digits",
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
        ("[sink]", "[latency]\ngoal = \"0s\"\n[sink]", "latency.goal must be from 1ms to 10s", "^"),
        (
            "[sink]",
            "[latency]\ngaol = \"1s\"\n[sink]",
            "unknown key 'gaol' in [latency]",
            "did you mean 'goal'?",
        ),
        (
            "[sink]",
            "[source.group_config]\nshare.record.lock.duration.ms = 6000\n[latency]\ngoal = \"2001ms\"\n[sink]",
            "latency.goal is too long for record locks of 6000 ms",
            "that is 2000 ms",
        ),
        (
            "[sink]",
            "[latency]\ngoal = \"100ms\"\n[checkpoint]\ninterval = \"101ms\"\n[sink]",
            "checkpoint.interval is above latency.goal",
            "leave it out",
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
        let job = parse(Path::new("job.toml"), &text, &[]).unwrap();
        let found =
            job.sql_fault(Some(place), "no such column", Some("did you mean carrier?".into())).to_string();
        assert!(found.starts_with(expected) && found.contains("^^^^^^\n"), "{expected} in\n{found}");
    }
}

fn set(arguments: &[&str]) -> Result<JobFile, JobFileError> {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    parse(Path::new("job.toml"), &edited("late", "late"), &arguments)
}

#[test]
fn the_command_line_sets_typed_values_and_makes_sections() {
    let job = set(&[
        "source.brokers=broker-1:9092,broker-2:9092",
        "source.topics=[\"a\", \"b\"]",
        "source.parallelism=2",
        "sink.topic=\"2013\"",
        "latency.goal=100ms",
        "checkpoint.interval=50ms",
        "checkpoint.records = 750",
        "source.group_config.share.record.lock.duration.ms=5000",
        "transform.sql=SELECT carrier FROM source WHERE delay = 3",
        "ack.mode=ledger",
    ])
    .unwrap();
    let Brokers::Addresses(brokers) = &job.source.brokers else { panic!("addresses were set") };
    assert_eq!(
        brokers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["broker-1:9092", "broker-2:9092"]
    );
    assert_eq!((job.source.topics.len(), job.source.parallelism), (2, 2));
    assert_eq!(job.sink.topic, "2013");
    let ms = Duration::from_millis;
    assert_eq!((job.latency_goal, job.checkpoint.interval), (ms(100), Some(ms(50))));
    assert_eq!(job.checkpoint.records, Some(750));
    assert_eq!(set(&["checkpoint.interval=50ms"]).unwrap().latency_goal, ms(50), "alone it is the goal, too");
    assert_eq!(job.source.group_config["share.record.lock.duration.ms"], "5000");
    assert_eq!(job.transform.unwrap().text, "SELECT carrier FROM source WHERE delay = 3");
    assert_eq!(job.ack_mode, AckModeSetting::Ledger);
}

#[test]
fn a_group_setting_in_quotes_is_replaced_and_not_doubled() {
    let quoted = "[source.group_config]\n\"share.delivery.count.limit\" = 5\n[sink]";
    let arguments = ["source.group_config.share.delivery.count.limit=7".to_owned()];
    let job = parse(Path::new("job.toml"), &edited("[sink]", quoted), &arguments).unwrap();
    assert_eq!(job.source.group_config["share.delivery.count.limit"], "7");
}

#[test]
fn a_fault_of_the_command_line_is_shown_as_one() {
    let expected = r#"command line: unknown key 'brkers' in [source]
      | --set source.brkers=localhost:9092
      |              ^^^^^^
      = did you mean 'brokers'?

1 error in the command line"#;
    let found = set(&["source.brkers=localhost:9092"]).unwrap_err().to_string();
    assert_eq!(found, expected, "\n{found}");
    let cases = [
        ("sourc.brokers=a:1", "unknown section 'sourc'", "did you mean 'source'?"),
        ("source.topics=[\"a\"", "not a TOML value", "^"),
        ("source.topics.first=a", "'topics' is no section, so there is no 'first' in it", "^^^^^^"),
        ("source.parallelism=two", "source.parallelism must be a whole number", "^^^"),
        ("source.brokers", "'source.brokers' sets nothing", "section.key=value"),
        ("=a", "'=a' sets nothing", "source.brokers=localhost:9092"),
        ("source..topics=a", "'source..topics=a' sets nothing", "^"),
    ];
    for (argument, message, remedy) in cases {
        let found = set(&[argument]).unwrap_err().to_string();
        assert!(found.contains(message) && found.contains(remedy), "{message} / {remedy} in\n{found}");
        assert!(found.contains(&format!("--set {argument}")), "{found}");
    }
    let arguments = ["sink.tpic=late".to_owned()];
    let both = parse(Path::new("job.toml"), &edited("group = \"late\"", "gruop = \"late\""), &arguments);
    let both = both.unwrap_err().to_string();
    assert!(both.ends_with("3 errors in job.toml and the command line"), "{both}");
}

#[test]
fn a_fault_in_the_sql_of_the_command_line_is_placed_there() {
    let job = set(&["transform.sql=SELECT carier FROM source"]).unwrap();
    let found = job.sql_fault(Some((1, 8)), "no such column", None).to_string();
    assert!(found.contains("command line: no such column"), "{found}");
    assert!(found.contains("      |                            ^^^^^^\n"), "{found}");
}

/// A file without faults but for this `[source.security]`.
fn with_security(lines: &str) -> String {
    edited("[sink]", &format!("[source.security]\n{lines}\n[sink]"))
}

#[test]
fn security_is_written_under_kafkas_names_and_files_are_relative_to_the_job_file() {
    let text = with_security(
        r#"security.protocol = "SASL_SSL"
ssl.ca.file = "ca.pem"
"sasl.mechanism" = "SCRAM-SHA-512"
sasl.username = "alice"
sasl.password.file = "/run/secrets/alice""#,
    );
    let job = parse(Path::new("jobs/job.toml"), &text, &[]).unwrap();
    let properties = job.source.security.to_properties();
    assert_eq!(properties["ssl.ca.file"], "jobs/ca.pem");
    assert_eq!(properties["sasl.password.file"], "/run/secrets/alice");
    assert_eq!(properties["sasl.mechanism"], "SCRAM-SHA-512");
}

#[test]
fn a_secret_in_a_job_file_is_refused_and_not_shown() {
    for line in [
        r#"sasl.password = "hunter2""#,
        r#"sasl.jaas.config = "x hunter2""#,
        r#"sasl.pasword.file = "hunter2""#,
    ] {
        let text = with_security(&format!("security.protocol = \"SSL\"\n{line}"));
        let shown = errors(&text);
        assert!(shown.contains("job.toml:11:") && shown.contains("sasl."), "{shown}");
        assert!(line.contains("pasword") || shown.contains("sasl.password.file"), "{shown}");
        assert!(line.contains("pasword") || !shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_security_setting_that_is_not_known_is_shown_with_its_line() {
    let shown = errors(&with_security(r#"security.protocl = "SSL""#));
    assert!(shown.contains("did you mean 'security.protocol'?"), "{shown}");
    let embedded = with_security(r#"security.protocol = "SSL""#).replace("localhost:9092", "embedded");
    assert!(errors(&embedded).contains("makes no sense with brokers = \"embedded\""));
}

#[test]
fn checkpoints_are_kept_in_a_folder_or_a_bucket() {
    let store = |text: &str| {
        let text = edited("[sink]", &format!("[checkpoint]\n{text}\n[sink]"));
        parse(Path::new("jobs/job.toml"), &text, &[]).unwrap().checkpoint
    };
    for text in ["directory = \"checkpoints\"", "store = \"checkpoints\""] {
        let folder = store(text).store.unwrap();
        assert_eq!(folder.as_folder(), Some(Path::new("jobs/checkpoints")), "{text}");
    }
    assert!(store("store = \"memory://\"").store.unwrap().is_memory());
    let kept = store("store = \"/x\"\nretain = 10\nretain_owners = 2");
    assert_eq!((kept.retain, kept.retain_owners), (10, 2));
    let bucket = store(
        "store = \"s3://bucket/late\"\n[checkpoint.options]\nendpoint = \"http://localhost:9000\"\nallow_http = true",
    );
    assert_eq!(bucket.store.unwrap().to_string(), "s3://bucket/late");
}

#[test]
fn a_store_that_cannot_be_is_named_at_its_place() {
    for (text, place, expected) in [
        ("store = \"s4://b/x\"", "job.toml:10:9", "has the unknown scheme 's4': use a folder"),
        ("store = \"a\"\ndirectory = \"b\"", "job.toml:11:13", "say the same"),
        ("retain = 0", "job.toml:10:10", "checkpoint.retain must be from 1 to 10000"),
        ("[checkpoint.options]\nregion = \"x\"", "job.toml:10:13", "without a checkpoint.store"),
        ("directory = \"a\"\n[checkpoint.options]\nregion = \"x\"", "job.toml:11:13", "is for buckets"),
        (
            "store = \"a\"\n[checkpoint.options]\nregion = \"x\"",
            "job.toml:10:9",
            "takes no options such as 'region'",
        ),
        ("store = \"s3://b\"\n[checkpoint.options]\nregoin = \"x\"", "job.toml:10:9", "option 'regoin'"),
        (
            "store = \"s3://b\"\n[checkpoint.options]\nregion = 1.5",
            "job.toml:12:10",
            "must be a string, not a float",
        ),
    ] {
        let text = edited("[sink]", &format!("[checkpoint]\n{text}\n[sink]"));
        let told = errors(&text);
        assert!(told.contains(place) && told.contains(expected), "{text}\n{told}");
    }
}

/// The table behind the good file.
fn with_http(table: &str) -> String {
    format!("{}\n{table}", edited("late", "late"))
}

#[test]
fn calls_are_read_with_their_defaults_in_the_order_of_the_text() {
    let text = with_http(
        r#"[[http]]
url = "https://rates.example/{carrier}"
method = "GET"
concurrency = 512
ordered = true
timeout = "2s"
on_exhausted = "fail"
accepted = [404]
fields = [{ name = "price", pointer = "/p", type = "float64", required = true }]
ca_file = "ca.pem"
body_column = ""
[http.headers]
Authorization = { file = "token", prefix = "Bearer " }
X-Team = "rates"
[[http]]
url = "http://localhost:1/"
body = ["carrier"]
status_column = "status_2"
"#,
    );
    let job = parse(Path::new("here/job.toml"), &text, &[]).unwrap();
    let [first, second] = job.http.as_slice() else { panic!("two tables") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("http", "http-2"));
    assert_eq!(first.options.concurrency, 512);
    assert!(first.options.is_ordered && !second.options.is_ordered);
    assert_eq!(first.options.timeout, Duration::from_secs(2));
    assert_eq!(second.options, sharestream_core::async_map::AsyncMapOptions::default());
    assert_eq!(first.settings.accepted, [404]);
    assert_eq!(first.settings.ca_file.as_deref(), Some(Path::new("here/ca.pem")));
    let columns: Vec<String> = first.settings.columns().iter().map(|field| field.name().clone()).collect();
    assert_eq!(columns, ["status", "price"]);
    assert_eq!(first.settings.headers.len(), 2);
    assert!(format!("{:?}", first.settings.headers).contains("here/token"));
    assert_eq!(second.settings.method, "POST");
    assert_eq!(second.settings.body, sharestream_http::Body::Columns(vec!["carrier".to_owned()]));
}

#[test]
fn every_fault_of_a_call_is_reported_at_its_place() {
    let text = with_http(
        r#"[[http]]
url = "ftp://rates"
methd = "GET"
concurrency = 0
body = "all"
fields = [{ name = "price", pointer = "/p", type = "decimal" }]
[http.headers]
Authorization = { file = "a", env = "B" }
[[http]]
name = "x"
url = "http://h/{carrier"
backoff = "2s"
backoff_max = "1s"
[http.headers]
Host = "h"
[[http]]
name = "x"
"#,
    );
    let found = errors(&text);
    for part in [
        "job.toml:15:1: unknown key 'methd' in [http]",
        "did you mean 'method'?",
        "job.toml:16:15: http.concurrency must be from 1 to 65536",
        "job.toml:17:8: http.body cannot be \"all\"",
        "http.fields.type cannot be \"decimal\"",
        "a secret is in one place: a file or the environment",
        "http.backoff_max 1s is below backoff 2s",
        "key 'url' is missing in [http]",
    ] {
        assert!(found.contains(part), "{part} in\n{found}");
    }
    let found = errors(&with_http(
        "[[http]]\nname = \"x\"\nurl = \"http://h/{carrier\"\n[http.headers]\nHost = \"h\"\n[[http]]\nname = \"x\"\nurl = \
         \"http://h/\"\n",
    ));
    assert!(found.contains("job.toml:15:7: http.url: a '{' is never closed"), "{found}");
    assert!(found.contains("job.toml:17:1: http.headers.Host: the connection decides"), "{found}");
    assert!(found.contains("job.toml:19:8: http.name 'x' is used twice"), "{found}");
}

#[test]
fn a_call_that_needs_a_column_that_is_not_there_is_a_fault_of_the_file() {
    let plan = |table: &str| {
        let job = parse(Path::new("job.toml"), &with_http(table), &[]).unwrap();
        crate::transform::plan(&job).map(|plan| plan.output)
    };
    let error = plan("[[http]]\nurl = \"http://h/{carier}\"\n").unwrap_err().to_string();
    assert!(error.contains("job.toml:14:7: http.url: column 'carier' is not there"), "{error}");
    assert!(error.contains("columns: carrier, delay"), "{error}");
    // Two calls would give two columns of one name.
    let twice = "[[http]]\nurl = \"http://h/\"\n[[http]]\nurl = \"http://h/\"\n";
    let error = plan(twice).unwrap_err().to_string();
    assert!(error.contains("http.status_column: column 'status' is there already"), "{error}");
    let output = plan("[[http]]\nurl = \"http://h/{carrier}\"\n").unwrap();
    let names: Vec<&str> = output.fields().iter().take(4).map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["carrier", "delay", "status", "body"]);
}

#[test]
fn a_key_may_be_a_column_of_a_call() {
    let text = with_http("[[http]]\nurl = \"http://h/\"\n").replace("key = \"carrier\"", "key = \"status\"");
    let job = parse(Path::new("job.toml"), &text, &[]).unwrap();
    assert!(crate::transform::plan(&job).is_ok());
    let text = text.replace("key = \"status\"", "key = \"verdict\"");
    let error = crate::transform::plan(&parse(Path::new("job.toml"), &text, &[]).unwrap());
    let error = error.map(|plan| plan.output).unwrap_err().to_string();
    assert!(error.contains("sink.key 'verdict' is not a column of the rows behind the calls"), "{error}");
}

#[test]
fn the_example_of_the_docs_is_read_without_faults() {
    let docs = include_str!("../../../../docs/http.md");
    let example = docs.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let job = parse(Path::new("job.toml"), &with_http(example), &[]).unwrap();
    assert_eq!(job.http[0].name, "rates");
    assert_eq!(job.http[0].options.concurrency, 256);
    // What the example leaves out has the defaults that the page tells.
    for key in
        ["connect_timeout` (5s)", "idle_timeout` (60s)", "idle_connections_max` (1024)", "rows_max` (65536)"]
    {
        assert!(docs.contains(key), "{key}");
    }
}

const WITH_CALL: &str = "[[http]]\nurl = \"http://localhost/\"\n";

#[test]
fn slow_records_are_parked_in_a_topic_of_the_jobs_own() {
    let job = parse(
        Path::new("job.toml"),
        &edited("[sink]", &format!("{WITH_CALL}[slow]\npark_after = \"30s\"\n[sink]")),
        &[],
    );
    let job = job.unwrap();
    let slow = job.slow.as_ref().unwrap();
    assert_eq!(
        (slow.topic.as_str(), slow.park_after, slow.park_max),
        ("late.parked", Duration::from_secs(30), 3)
    );
    assert_eq!(job.acquired_topics(), ["flights", "late.parked"]);
    let options = &job.http[0].options;
    assert_eq!((options.park_after, options.park_max), (Some(Duration::from_secs(30)), 3));
    let cases = [
        ("", "park_after = \"30s\"", "[slow] has nothing to park", "add an [[http]] table"),
        (WITH_CALL, "max = 3", "key 'park_after' is missing in [slow]", "park_after = \"30s\""),
        (WITH_CALL, "park_after = \"0s\"", "slow.park_after must be from 1ms", "^"),
        (WITH_CALL, "park_after = 30", "must be a duration in quotes", "not an integer"),
        (WITH_CALL, "park_after = \"30s\"\nmax = 0", "slow.max must be from 1 to 1000", "^"),
        (
            WITH_CALL,
            "park_after = \"30s\"\ntopic = \"delayed\"",
            "is also used for other records",
            "topic of their own",
        ),
        (
            WITH_CALL,
            "park_after = \"30s\"\ntopic = \"flights\"",
            "is also used for other records",
            "topic of their own",
        ),
        (WITH_CALL, "park_after = \"30s\"\ntopic = \"a b\"", "'a b' is not a topic name", "letters, digits"),
        (
            WITH_CALL,
            "park_after = \"30s\"\n[source.group_config]\nshare.isolation.level = \"read_uncommitted\"",
            "[slow] does not go with share.isolation.level",
            "the job sets read_committed",
        ),
    ];
    for (call, slow, message, remedy) in cases {
        let found = errors(&edited("[sink]", &format!("{call}[slow]\n{slow}\n[sink]")));
        assert!(found.contains(message) && found.contains(remedy), "{slow}: {found}");
    }
}

#[test]
fn how_large_a_record_may_be_and_what_becomes_of_larger_ones_is_said_in_the_file() {
    let large = "record_bytes_max = 2048\nformat = \"csv\"";
    let job = parse(Path::new("job.toml"), &edited("format = \"csv\"", large), &[]).unwrap();
    assert_eq!(job.source.record_bytes_max, Some(2_048));
    let text = edited("[sink]", "[errors]\ntoo_large = \"reject\"\n[sink]");
    let job = parse(Path::new("job.toml"), &text, &[]).unwrap();
    assert_eq!(job.errors.too_large, Some(sharestream_kafka::BadRecords::Reject));
    let small = errors(&edited("format = \"csv\"", "record_bytes_max = 10\nformat = \"csv\""));
    assert!(small.contains("source.record_bytes_max must be from 1024 to 104857600"), "{small}");
}

/// A file of Avro without faults: `source` and `sink` are lines of their sections.
fn avro(source: &str, sink: &str) -> String {
    format!(
        "[job]\nname = \"late\"\n[source]\nbrokers = \"localhost:9092\"\ntopics = [\"flights\"]\ngroup = \"late\"\n\
         format = \"avro\"\n{source}\n[sink]\ntopic = \"delayed-flights\"\n{sink}\n"
    )
}

const AVRO_SCHEMA: &str = r#"schema = '{"type":"record","name":"F","fields":[{"name":"id","type":"long"}]}'"#;

#[test]
fn avro_has_its_schema_in_the_file_or_beside_it() {
    let read = |path: &Path, text: &str| parse(path, text, &[]).map_err(|error| error.to_string());
    let job = read(Path::new("job.toml"), &avro(AVRO_SCHEMA, "format = \"avro\"")).unwrap();
    assert_eq!(job.source.format.user_schema().field(0).name(), "id");
    let OutputFormat::Avro(output) = &job.sink.format else { panic!("avro was written") };
    assert_eq!(
        (output.record_name.as_str(), &output.schema, output.schema_id),
        ("delayed_flights", &None, None)
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    let text = avro("schema_file = \"f.avsc\"", "format = \"avro\"\nrecord_name = \"a.B\"");
    assert!(read(&path, &text).unwrap_err().contains("source.schema_file: cannot read"));
    std::fs::write(
        folder.path().join("f.avsc"),
        r#"{"type":"record","name":"F","fields":[{"name":"a b","type":"int"}]}"#,
    )
    .unwrap();
    assert!(read(&path, &text).unwrap_err().contains("source: the Avro schema: 'a b' is no name"));
    std::fs::write(
        folder.path().join("f.avsc"),
        r#"{"type":"record","name":"F","fields":[{"name":"a","type":"int"}]}"#,
    )
    .unwrap();
    let job = read(&path, &text).unwrap();
    assert_eq!(job.source.format.user_schema().field(0).name(), "a");
    assert!(!job.source.format.names_schemas());
}

#[test]
fn a_registry_is_where_schemas_may_be() {
    let registry = "[source.schema_registry]\nurl = [\"http://a:8081\", \"https://b/registry\"]\nusername = \"job\"\n\
                    password_file = \"secret\"\ntimeout = \"2s\"";
    let sink = "format = \"avro\"\n[sink.schema_registry]\nurl = \"http://a:8081\"\nregister = false";
    let job = parse(Path::new("jobs/job.toml"), &avro(registry, sink), &[]).unwrap();
    let settings = job.source.registry.as_ref().unwrap();
    assert_eq!(settings.urls.len(), 2);
    assert_eq!(settings.request_timeout, Duration::from_secs(2));
    let user = settings.user.as_ref().unwrap();
    assert_eq!(user.password, sharestream_http::SecretSource::File("jobs/secret".into()));
    assert!(job.source.format.names_schemas());
    assert!(!job.sink.registry.as_ref().unwrap().register);
}

#[test]
fn faults_of_avro_are_named() {
    let of = |source: &str, sink: &str| errors(&avro(source, sink));
    assert!(of("", "").contains("format = \"avro\" needs a schema"));
    assert!(of(&format!("{AVRO_SCHEMA}\nschema_file = \"x\""), "").contains("are two schemas"));
    assert!(
        of(&format!("{AVRO_SCHEMA}\ncolumns = [{{ name = \"a\", type = \"int64\" }}]"), "")
            .contains("source.columns cannot be used")
    );
    assert!(
        of(AVRO_SCHEMA, "format = \"json\"\nrecord_name = \"R\"")
            .contains("sink: schemas are for format = \"avro\" only")
    );
    assert!(
        of(AVRO_SCHEMA, &format!("format = \"avro\"\nrecord_name = \"R\"\n{AVRO_SCHEMA}"))
            .contains("remove one of the two")
    );
    let registry = |keys: &str| of(&format!("[source.schema_registry]\n{keys}"), "");
    assert!(registry("").contains("key 'url' is missing"));
    assert!(registry("url = \"a:8081\"").contains("source.schema_registry.url"));
    assert!(registry("url = \"http://a\"\nregister = true").contains("a source registers nothing"));
    assert!(registry("url = \"http://a\"\nusername = \"u\"").contains("a user has a name and one password"));
    for secret in ["url = \"http://user:hunter2@a\"", "url = \"http://a\"\npassword = \"hunter2\""] {
        let error = registry(secret);
        assert!(error.contains("password"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let two = avro("[source.schema_registry]\nurl = \"http://a\"", "")
        .replace("[\"flights\"]", "[\"flights\", \"more\"]");
    assert!(errors(&two).contains("the latest version of which topic"));
}
